//! Byte pairs by rank, as tiktoken merges them: of all neighbours whose union is a token, the one with the lowest rank,
//! the leftmost among equals.

use std::collections::HashMap;
use std::path::Path;

use crate::base64;
use crate::byte_level::{bytes_of, char_of};
use crate::config::Added;
use crate::detokenize::Detokenizer;
use crate::error::TokenizerError;
use crate::layout::Layout;
use crate::merge::Part;
use crate::model::{Model, Scratch, Tokens, remembered};
use crate::normalize::Normalizer;
use crate::open::{Loaded, TiktokenSpec};
use crate::pipeline::{Parts, Pipeline};
use crate::pretokenize::Words;
use crate::text::Text;
use crate::vocab::{Builder, Vocab};

/// Tokens by their bytes; the id of a token is its rank.
struct Ranks {
    tokens: Vocab,
    /// Special tokens, which no text is segmented into.
    special: HashMap<String, u32>,
    special_by_id: HashMap<u32, String>,
}

/// Ranks may leave out so many numbers.
const MAX_GAP: usize = 1 << 16;

/// Reads a `.tiktoken` file: a token in base64 and its rank on each line.
pub(crate) fn load(path: &Path, bytes: &[u8], spec: &TiktokenSpec) -> Result<Loaded, TokenizerError> {
    let invalid = |reason| TokenizerError::Invalid { path: path.to_owned(), reason };
    let model = Ranks::read(bytes, &spec.special_tokens).map_err(invalid)?;
    let parts = Parts {
        normalizer: spec.nfc.then_some(Normalizer::Nfc),
        words: Words::bytes(&[&spec.pattern], false).map_err(invalid)?,
        layout: Layout::bare(),
        added: spec.special_tokens.iter().map(|(token, _)| Added::special(token)).collect(),
    };
    Ok((Box::new(Pipeline::new(model, parts)), Detokenizer::byte_level()))
}

impl Ranks {
    fn read(bytes: &[u8], special: &[(String, u32)]) -> Result<Self, String> {
        let mut builder = Builder::default();
        for (number, line) in bytes.split(|&b| b == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let read = || {
                let (token, rank) = std::str::from_utf8(line).ok()?.split_once(' ')?;
                Some((base64::decode(token)?, rank.parse::<u32>().ok()?))
            };
            let wrong = || format!("line {}: expected a token in base64 and its rank", number + 1);
            let (token, rank) = read().ok_or_else(wrong)?;
            builder.insert(&token, rank)?;
        }
        let count = builder.len();
        let clash = || format!("two of {count} tokens have the same rank, or a rank is far beyond their number");
        let tokens = builder.sorted(MAX_GAP).ok_or_else(clash)?.build();
        if (0..tokens.len() as u32).any(|id| !tokens.bytes(id).is_empty() && tokens.get(tokens.bytes(id)) != Some(id)) {
            return Err("a token occurs twice".into());
        }
        if let Some(byte) = (0..=255u8).find(|&b| tokens.get(&[b]).is_none()) {
            return Err(format!("no token for byte {byte}"));
        }
        for (token, id) in special {
            let taken = tokens.bytes(*id);
            if !taken.is_empty() {
                let taken = String::from_utf8_lossy(taken);
                return Err(format!("special token {token} has id {id}, which is the token {taken:?}"));
            }
        }
        Ok(Self {
            tokens,
            special: special.iter().cloned().collect(),
            special_by_id: special.iter().map(|(t, id)| (*id, t.clone())).collect(),
        })
    }
}

impl Model for Ranks {
    fn segment(&self, word: Text<'_>, scratch: &mut Scratch, out: &mut Tokens) -> Result<(), String> {
        let bytes = word.text.as_bytes();
        remembered(word, scratch, out, |scratch, out| {
            if let Some(id) = self.tokens.get(bytes) {
                out.push(id, word, 0, bytes.len());
                return Ok(());
            }
            let parts = &mut scratch.parts;
            parts.clear();
            for byte in bytes {
                parts.push(self.tokens.get(&[*byte]).unwrap_or_default(), 1);
            }
            parts.merge(|a: Part, b: Part| self.tokens.get(&bytes[a.start..b.end]).map(|id| (id, id)));
            let mut start = 0;
            for (&id, &end) in parts.ids.iter().zip(&parts.ends) {
                out.push(id, word, start, end as usize);
                start = end as usize;
            }
            Ok(())
        })
    }

    fn id(&self, token: &str) -> Option<u32> {
        self.special.get(token).copied().or_else(|| self.tokens.get(&bytes_of(token)))
    }

    fn token(&self, id: u32) -> Option<String> {
        let bytes = self.tokens.bytes(id);
        match bytes.is_empty() {
            true => self.special_by_id.get(&id).cloned(),
            false => Some(bytes.iter().map(|&b| char_of(b)).collect()),
        }
    }

    fn size(&self) -> usize {
        let special = self.special_by_id.keys().max().map_or(0, |&id| id as usize + 1);
        self.tokens.len().max(special)
    }
}
