//! Which bytes does each token of a model stand for?

use crate::error::GrammarError;
use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenizerEnv};
use std::collections::HashMap;
use std::sync::Arc;

/// The tokens of a model, as a grammar sees them.
pub trait Vocabulary: Send + Sync {
    /// Number of ids: one more than the largest.
    fn size(&self) -> usize;

    /// The bytes that a token adds to a running text; none for an id without a token.
    fn bytes(&self, id: u32) -> Option<Vec<u8>>;

    /// Whether a token is a sign of control, which never is part of a text.
    fn is_special(&self, id: u32) -> bool;

    /// Ids of a text that goes on; nothing is added around it.
    fn encode(&self, text: &str) -> Vec<u32>;
}

/// A vocabulary of the 256 bytes and an end: for tests, and to try a grammar without a model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bytes;

impl Bytes {
    /// The token that ends a text.
    pub const END: u32 = 256;

    /// As [`crate::Compiler::new`] takes it.
    pub fn shared() -> Arc<dyn Vocabulary> {
        Arc::new(Bytes)
    }
}

impl Vocabulary for Bytes {
    fn size(&self) -> usize {
        257
    }

    fn bytes(&self, id: u32) -> Option<Vec<u8>> {
        u8::try_from(id).ok().map(|byte| vec![byte])
    }

    fn is_special(&self, id: u32) -> bool {
        id == Bytes::END
    }

    fn encode(&self, text: &str) -> Vec<u32> {
        text.bytes().map(u32::from).collect()
    }
}

/// Largest number of ids. The trie holds 24 bits of an id.
const MAX_SIZE: usize = 1 << 22;
/// Longest token in bytes that can be allowed; the trie is no deeper.
const MAX_TOKEN: usize = 1000;
/// Nodes that a trie holds.
const MAX_NODES: usize = 1 << 22;

/// The vocabulary with its trie, for `llguidance`.
pub(crate) struct Tokens {
    vocabulary: Arc<dyn Vocabulary>,
    trie: TokTrie,
}

impl Tokens {
    /// Builds the trie. Control tokens stand under a mark that no text contains.
    pub(crate) fn build(vocabulary: Arc<dyn Vocabulary>, ends: &[u32]) -> Result<TokEnv, GrammarError> {
        let size = vocabulary.size();
        let refuse = |reason: String| Err(GrammarError::Vocabulary { reason });
        if size > MAX_SIZE {
            return refuse(format!("it has {size} tokens, at most {MAX_SIZE} are taken"));
        }
        let Some(&first) = ends.first() else {
            return refuse("no token ends a text; does config.json name an eos_token_id?".into());
        };
        if let Some(end) = ends.iter().find(|&&end| end as usize >= size) {
            return refuse(format!("token {end}, which ends a text, is not among its {size} tokens"));
        }
        let mut words = vec![Vec::new(); size];
        let mut same: HashMap<Vec<u8>, u32> = HashMap::new();
        let mut nodes = 0;
        for id in 0..size as u32 {
            let Some(bytes) = vocabulary.bytes(id) else { continue };
            let special = vocabulary.is_special(id) || ends.contains(&id);
            // Such bytes are in no UTF-8 text, and the trie gives them a meaning of its own.
            if bytes.is_empty() || bytes.len() > MAX_TOKEN || (!special && bytes[0] == TokTrie::SPECIAL_TOKEN_MARKER) {
                continue;
            }
            let word = match special {
                true => [&[TokTrie::SPECIAL_TOKEN_MARKER], &bytes[..]].concat(),
                false => bytes,
            };
            // Of tokens with the same bytes the trie knows one: the one that the tokenizer writes.
            if let Some(&other) = same.get(&word) {
                let written = std::str::from_utf8(&word).is_ok_and(|text| vocabulary.encode(text) == [id]);
                if !written {
                    continue;
                }
                words[other as usize] = Vec::new();
            }
            nodes += word.len();
            same.insert(word.clone(), id);
            words[id as usize] = word;
        }
        if nodes > 8 * MAX_NODES {
            return refuse(format!("its tokens have {nodes} bytes together"));
        }
        let trie = TokTrie::from(&TokRxInfo::new(size as u32, first), &words).with_eos_tokens(ends);
        Ok(Arc::new(Tokens { vocabulary, trie }))
    }

    fn concat(&self, ids: &[u32]) -> Vec<u8> {
        ids.iter().flat_map(|&id| self.trie.token(id)).copied().collect()
    }
}

impl TokenizerEnv for Tokens {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    /// The tokenizer's ids where they stand for exactly these bytes, else those of the longest matches.
    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        if let Ok(text) = std::str::from_utf8(bytes) {
            let ids = self.vocabulary.encode(text);
            if ids.iter().all(|&id| (id as usize) < self.trie.vocab_size()) && self.concat(&ids) == bytes {
                return ids;
            }
        }
        self.trie.greedy_tokenize(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vocabulary_without_an_end_is_refused() {
        for ends in [&[][..], &[257]] {
            let error = Tokens::build(Bytes::shared(), ends).err().unwrap();
            assert!(matches!(error, GrammarError::Vocabulary { .. }), "{error}");
        }
    }

    #[test]
    fn of_two_tokens_with_the_same_bytes_the_written_one_is_known() {
        struct Twice;
        impl Vocabulary for Twice {
            fn size(&self) -> usize {
                259
            }
            fn bytes(&self, id: u32) -> Option<Vec<u8>> {
                if id >= 257 { Some(b"a".to_vec()) } else { Bytes.bytes(id).or(Some(b"<end>".to_vec())) }
            }
            fn is_special(&self, id: u32) -> bool {
                Bytes.is_special(id)
            }
            fn encode(&self, text: &str) -> Vec<u32> {
                text.bytes().map(|b| if b == b'a' { 257 } else { u32::from(b) }).collect()
            }
        }
        let tokens = Tokens::build(Arc::new(Twice), &[256]).unwrap();
        assert_eq!(tokens.tok_trie().token_id(b"a"), Some(257));
        assert_eq!(tokens.tokenize_bytes(b"ba"), [98, 257]);
    }
}
