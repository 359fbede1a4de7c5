//! Unigram models of `tokenizer.json`: the most likely pieces, as the `tokenizers` crate finds them.
//!
//! The SentencePiece library sums in float32 and over whole texts; see [`crate::sentencepiece`] for that.

use crate::model::{Model, Scratch, Tokens, remembered};
use crate::text::Text;
use crate::trie::Trie;
use crate::vocab::Vocab;

/// Pieces with the logarithms of their frequencies.
pub(crate) struct Unigram {
    vocab: Vocab,
    scores: Vec<f64>,
    pieces: Trie,
    unknown: Option<u32>,
    unknown_score: f64,
    byte_fallback: bool,
}

/// The best way to a place in a word: its last piece, the sum of its scores, where that piece begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Best {
    piece: u32,
    score: f64,
    start: u32,
}

/// Below the worst piece by this much lies an unknown character.
const UNKNOWN_PENALTY: f64 = 10.0;
const OPEN: u32 = u32::MAX;

impl Unigram {
    /// # Errors
    /// An unknown piece that is none.
    pub(crate) fn new(
        vocab: Vocab,
        scores: Vec<f64>,
        unknown: Option<u32>,
        byte_fallback: bool,
    ) -> Result<Self, String> {
        if let Some(id) = unknown.filter(|&id| id as usize >= scores.len()) {
            return Err(format!("unk_id is {id}, but there are {} pieces", scores.len()));
        }
        let ids = (0..vocab.len() as u32).filter_map(|id| Some((vocab.text(id)?, id)));
        let pieces = Trie::new(ids.filter(|(text, id)| vocab.get(text.as_bytes()) == Some(*id)));
        let unknown_score = scores.iter().copied().fold(f64::INFINITY, f64::min) - UNKNOWN_PENALTY;
        Ok(Self { vocab, scores, pieces, unknown, unknown_score, byte_fallback })
    }

    fn word(&self, word: Text<'_>, scratch: &mut Scratch, out: &mut Tokens) -> Result<(), String> {
        let missing = || "it has an unknown character, but the model has no piece for that".to_owned();
        let (text, bytes) = (word.text, word.text.as_bytes());
        let best = &mut scratch.best;
        best.clear();
        best.resize(bytes.len() + 1, Best { piece: 0, score: 0.0, start: OPEN });
        for (start, c) in text.char_indices() {
            let before = best[start].score;
            let mut single = false;
            let mut offer = |length: usize, piece: u32, score: f64| {
                let target = &mut best[start + length];
                if target.start == OPEN || score > target.score {
                    *target = Best { piece, score, start: start as u32 };
                }
            };
            for (length, piece) in self.pieces.prefixes(&bytes[start..]) {
                offer(length, piece, self.scores[piece as usize] + before);
                single |= length == c.len_utf8();
            }
            if !single {
                offer(c.len_utf8(), self.unknown.ok_or_else(missing)?, self.unknown_score + before);
            }
        }
        // From the end to the start: the ends of the pieces, unknown neighbours as one.
        let ends = &mut scratch.parts.ends;
        ends.clear();
        let mut end = bytes.len();
        let mut after_unknown = false;
        while end > 0 {
            let node = best[end];
            let unknown = Some(node.piece) == self.unknown;
            if !(unknown && after_unknown) {
                ends.push(end as u32);
            }
            after_unknown = unknown;
            end = node.start as usize;
        }
        let mut start = 0;
        for &end in ends.iter().rev() {
            let end = end as usize;
            let surface = &bytes[start..end];
            let spelled = || {
                let byte = |b: &u8| self.vocab.get(format!("<0x{b:02X}>").as_bytes());
                surface.iter().map(byte).collect::<Option<Vec<u32>>>().filter(|_| self.byte_fallback)
            };
            if let Some(id) = self.vocab.get(surface) {
                out.push(id, word, start, end);
            } else if let Some(ids) = spelled() {
                ids.into_iter().for_each(|id| out.push(id, word, start, end));
            } else {
                out.push(self.unknown.ok_or_else(missing)?, word, start, end);
            }
            start = end;
        }
        Ok(())
    }
}

impl Model for Unigram {
    fn segment(&self, word: Text<'_>, scratch: &mut Scratch, out: &mut Tokens) -> Result<(), String> {
        remembered(word, scratch, out, |scratch, out| self.word(word, scratch, out))
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
