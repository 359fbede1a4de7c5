//! Byte pairs by rank, as tiktoken merges them: of all neighbours whose union is a token, the one with the lowest rank,
//! the leftmost among equals.

use std::collections::HashMap;
use std::path::Path;

use serde_json::json;
use tokenizers::Token;

use crate::byte_level::{bytes_of, char_of};
use crate::config::Added;
use crate::detokenize::Detokenizer;
use crate::error::TokenizerError;
use crate::files::{byte_level_words, part};
use crate::open::TiktokenSpec;
use crate::pipeline::{Model, Normalizer, Parts, Pipeline};

/// Tokens by their bytes; the id of a token is its rank.
pub(crate) struct Ranks {
    ranks: HashMap<Vec<u8>, u32>,
    tokens: HashMap<u32, Vec<u8>>,
    /// Special tokens, which no text is segmented into.
    special: HashMap<String, u32>,
    special_by_id: HashMap<u32, String>,
}

/// Reads a `.tiktoken` file: a token in base64 and its rank on each line.
pub(crate) fn load(path: &Path, bytes: &[u8], spec: &TiktokenSpec) -> Result<Pipeline, TokenizerError> {
    let invalid = |reason| TokenizerError::Invalid { path: path.to_owned(), reason };
    let model = Ranks::read(bytes, &spec.special_tokens).map_err(invalid)?;
    let normalizer = spec.nfc.then(|| part(json!({"type": "NFC"}))).transpose().map_err(invalid)?;
    Pipeline::new(Parts {
        normalizer: normalizer.map(Normalizer::Hf),
        pre_tokenizer: part(byte_level_words(&[&spec.pattern])).map_err(invalid)?,
        model: Model::Ranks(model),
        post_processor: None,
        detokenizer: Detokenizer::byte_level(),
        added: spec.special_tokens.iter().map(|(token, _)| Added::special(token)).collect(),
    })
    .map_err(invalid)
}

impl Ranks {
    fn read(bytes: &[u8], special: &[(String, u32)]) -> Result<Self, String> {
        let mut ranks = HashMap::new();
        let mut tokens = HashMap::new();
        for (number, line) in bytes.split(|&b| b == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let read = || {
                let line = std::str::from_utf8(line).ok()?;
                let (token, rank) = line.split_once(' ')?;
                Some((base64(token)?, rank.parse::<u32>().ok()?))
            };
            let at = number + 1;
            let (token, rank) = read().ok_or_else(|| format!("line {at}: expected a token in base64 and its rank"))?;
            if tokens.insert(rank, token.clone()).is_some() || ranks.insert(token, rank).is_some() {
                return Err(format!("line {at}: a token or rank occurs twice"));
            }
        }
        if let Some(byte) = (0..=255u8).find(|&b| !ranks.contains_key(&[b][..])) {
            return Err(format!("no token for byte {byte}"));
        }
        for (token, id) in special {
            if let Some(taken) = tokens.get(id) {
                let taken = String::from_utf8_lossy(taken);
                return Err(format!("special token {token} has id {id}, which is the token {taken:?}"));
            }
        }
        Ok(Self {
            ranks,
            tokens,
            special: special.iter().cloned().collect(),
            special_by_id: special.iter().map(|(t, id)| (*id, t.clone())).collect(),
        })
    }

    pub(crate) fn size(&self) -> usize {
        let last = self.tokens.keys().chain(self.special_by_id.keys()).max();
        last.map_or(0, |&id| id as usize + 1)
    }

    pub(crate) fn token_to_id(&self, token: &str) -> Option<u32> {
        self.special.get(token).or_else(|| self.ranks.get(&bytes_of(token))).copied()
    }

    pub(crate) fn id_to_token(&self, id: u32) -> Option<String> {
        let special = || self.special_by_id.get(&id).cloned();
        self.tokens.get(&id).map(|t| t.iter().map(|&b| char_of(b)).collect()).or_else(special)
    }

    /// Tokens of a word whose bytes are written as characters, with offsets in that writing.
    pub(crate) fn tokenize(&self, word: &str) -> Vec<Token> {
        let bytes = bytes_of(word);
        // Where each byte's character begins in `word`.
        let mut starts: Vec<usize> = word.char_indices().map(|(i, _)| i).collect();
        starts.push(word.len());
        let token = |id, from: usize, to: usize| Token::new(id, String::new(), (starts[from], starts[to]));
        if starts.len() != bytes.len() + 1 {
            return Vec::new();
        }
        if let Some(&id) = self.ranks.get(&bytes) {
            return vec![token(id, 0, bytes.len())];
        }
        let ends = self.merge(&bytes);
        let mut from = 0;
        let mut tokens = Vec::with_capacity(ends.len());
        for to in ends {
            tokens.extend(self.ranks.get(&bytes[from..to]).map(|&id| token(id, from, to)));
            from = to;
        }
        tokens
    }

    /// Where the parts end after all merges.
    fn merge(&self, bytes: &[u8]) -> Vec<usize> {
        // Borders between parts; `ranks[i]` is that of parts i and i + 1 together.
        let mut borders: Vec<usize> = (0..=bytes.len()).collect();
        let rank = |borders: &[usize], i: usize| {
            let end = *borders.get(i + 2)?;
            self.ranks.get(&bytes[borders[i]..end]).copied()
        };
        let mut ranks: Vec<Option<u32>> = (0..bytes.len()).map(|i| rank(&borders, i)).collect();
        while let Some((_, i)) = ranks.iter().enumerate().filter_map(|(i, r)| Some(((*r)?, i))).min() {
            borders.remove(i + 1);
            ranks.remove(i);
            ranks[i] = rank(&borders, i);
            if i > 0 {
                ranks[i - 1] = rank(&borders, i - 1);
            }
        }
        borders.split_off(1)
    }
}

fn base64(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| {
        Some(match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        })
    };
    let digits = text.trim_end_matches('=');
    let mut out = Vec::with_capacity(digits.len() * 3 / 4);
    let (mut bits, mut count) = (0u32, 0);
    for c in digits.bytes() {
        bits = bits << 6 | u32::from(digit(c)?);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    (!out.is_empty() && bits == 0 && text.len().is_multiple_of(4)).then_some(out)
}
