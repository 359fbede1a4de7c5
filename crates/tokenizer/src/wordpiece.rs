//! WordPiece, BERT's model: the longest piece that a word begins with, then the longest of the rest, and so on.
//!
//! Plain ASCII has a shorter way through the whole pipeline ([`Ascii`]): a text falls apart at white space, and a run of
//! ASCII without added tokens is lower-cased, split at punctuation and matched at once. The ids are the same, which
//! `tests/fast.rs` holds.

use std::sync::Arc;

use crate::added::AddedTokens;
use crate::model::{Model, Scratch, Tokens};
use crate::normalize::Bert;
use crate::text::Text;
use crate::trie::Trie;
use crate::vocab::Vocab;

/// A vocabulary of words and pieces of words.
pub(crate) struct WordPiece {
    vocab: Vocab,
    /// Pieces that begin a word, and pieces that go on with one (without their mark).
    starts: Trie,
    rests: Trie,
    unknown: u32,
    /// The most characters of a word that is looked at.
    longest_word: usize,
}

impl WordPiece {
    /// `mark` is written before pieces that go on with a word.
    ///
    /// # Errors
    /// An unknown token that the vocabulary lacks.
    pub(crate) fn new(vocab: Vocab, unknown: &str, mark: &str, longest_word: usize) -> Result<Self, String> {
        let ids = || {
            let all = (0..vocab.len() as u32).filter_map(|id| Some((vocab.text(id)?, id)));
            all.filter(|(text, id)| vocab.get(text.as_bytes()) == Some(*id))
        };
        let rests = ids().filter_map(|(text, id)| Some((text.strip_prefix(mark).filter(|t| !t.is_empty())?, id)));
        let (starts, rests) = (Trie::new(ids()), Trie::new(rests));
        let unknown = vocab.get(unknown.as_bytes()).ok_or_else(|| format!("the vocabulary has no token {unknown}"))?;
        Ok(Self { vocab, starts, rests, unknown, longest_word })
    }

    /// Gives id and end of each piece; a word with an unmatched rest is unknown as a whole.
    fn pieces(&self, word: &[u8], characters: usize, out: &mut Tokens) {
        let before = out.ids.len();
        let mut at = 0;
        let mut trie = &self.starts;
        while let (true, Some((length, id))) = (characters <= self.longest_word, trie.longest(&word[at..])) {
            out.ids.push(id);
            at += length;
            trie = &self.rests;
            if at == word.len() {
                return;
            }
        }
        out.ids.truncate(before);
        out.ids.push(self.unknown);
    }
}

impl Model for WordPiece {
    fn segment(&self, word: Text<'_>, _: &mut Scratch, out: &mut Tokens) -> Result<(), String> {
        let before = out.ids.len();
        let characters = word.text.chars().count();
        self.pieces(word.text.as_bytes(), characters, out);
        if word.traced() {
            // Again for the offsets: the lengths of the pieces are those of their tokens.
            let ids = out.ids.split_off(before);
            if ids == [self.unknown] {
                out.push(self.unknown, word, 0, word.text.len());
                return Ok(());
            }
            let mut start = 0;
            for id in ids {
                let trie = if start == 0 { &self.starts } else { &self.rests };
                let length = trie.longest(&word.text.as_bytes()[start..]).map_or(0, |(length, _)| length);
                out.push(id, word, start, start + length);
                start += length;
            }
        }
        Ok(())
    }

    fn id(&self, token: &str) -> Option<u32> {
        self.vocab.get(token.as_bytes())
    }

    fn token(&self, id: u32) -> Option<String> {
        self.vocab.text(id).map(str::to_owned)
    }

    fn size(&self) -> usize {
        self.vocab.len()
    }
}

/// The shorter way.
pub(crate) struct Ascii {
    model: Arc<WordPiece>,
    lowercase: bool,
    /// Added tokens by their first byte.
    added: Vec<Vec<Box<[u8]>>>,
}

impl Ascii {
    /// For a pipeline that is BERT's in every part; none where added tokens are looked for in normalised text, or across
    /// white space: those do not fall apart with the text.
    pub(crate) fn new(model: &Arc<WordPiece>, bert: Bert, added: &AddedTokens) -> Option<Self> {
        let whole = |token: &str| !token.contains(char::is_whitespace);
        if !bert.clean || added.any_normalized() || !added.raw_contents().all(whole) {
            return None;
        }
        let mut by_byte = vec![Vec::new(); 256];
        for token in added.raw_contents() {
            by_byte[usize::from(token.as_bytes()[0])].push(token.as_bytes().into());
        }
        Some(Self { model: model.clone(), lowercase: bert.lowercase, added: by_byte })
    }

    /// Adds the ids of a text; `general` does so for what is not plain.
    pub(crate) fn encode(
        &self,
        text: &str,
        out: &mut Tokens,
        mut general: impl FnMut(&str, &mut Tokens) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut word = Vec::with_capacity(64);
        for run in text.split([' ', '\t', '\n', '\r']).filter(|run| !run.is_empty()) {
            if self.is_plain(run.as_bytes()) {
                self.run(run.as_bytes(), &mut word, out);
            } else {
                general(run, out)?;
            }
        }
        Ok(())
    }

    fn is_plain(&self, run: &[u8]) -> bool {
        let plain = |(at, &byte): (usize, &u8)| {
            let added = &self.added[usize::from(byte)];
            byte < 0x80 && (added.is_empty() || !added.iter().any(|t| run[at..].starts_with(t)))
        };
        run.iter().enumerate().all(plain)
    }

    fn run(&self, run: &[u8], word: &mut Vec<u8>, out: &mut Tokens) {
        let mut finish = |word: &mut Vec<u8>| {
            if !word.is_empty() {
                self.model.pieces(word, word.len(), out);
                word.clear();
            }
        };
        for &byte in run {
            if byte.is_ascii_punctuation() {
                finish(word);
                word.push(byte);
                finish(word);
            } else if !byte.is_ascii_control() {
                word.push(if self.lowercase { byte.to_ascii_lowercase() } else { byte });
            }
        }
        finish(word);
    }
}
