//! Where can a text be cut without changing what merging makes of it? Between two characters that no token holds side by
//! side: no merge ever joins them.
//!
//! SentencePiece models see a whole text as one word. Cut at these places (in practice before the mark for a space) it
//! becomes short words, which are merged faster and remembered.

use crate::classes::decode;
use crate::vocab::{Vocab, fold};

/// A set of pairs of characters, in which some are found that were not put in: such a place is not cut, nothing more.
pub(crate) struct Borders {
    bits: Vec<u64>,
    shift: u32,
}

impl Borders {
    /// All neighbours in the tokens of a vocabulary.
    pub(crate) fn new(vocab: &Vocab) -> Self {
        let log2 = vocab.total_bytes().next_power_of_two().ilog2().clamp(12, 22);
        let mut borders = Self { bits: vec![0; 1 << (log2 - 6)], shift: 64 - log2 };
        for id in 0..vocab.len() as u32 {
            let Some(token) = vocab.text(id) else { continue };
            let mut before = None;
            for c in token.chars() {
                if let Some(before) = before.replace(u32::from(c)) {
                    let bit = borders.bit(before, c.into());
                    borders.bits[bit / 64] |= 1 << (bit % 64);
                }
            }
        }
        borders
    }

    fn bit(&self, left: u32, right: u32) -> usize {
        (fold(u64::from(left) << 32 | u64::from(right), 0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    /// The first place after `at` where `text` can be cut, or its end.
    pub(crate) fn next(&self, text: &[u8], at: usize) -> usize {
        let (mut left, length) = decode(text, at);
        let mut at = at + length;
        while at < text.len() {
            let (right, length) = decode(text, at);
            let bit = self.bit(left, right);
            if self.bits[bit / 64] >> (bit % 64) & 1 == 0 {
                break;
            }
            left = right;
            at += length;
        }
        at
    }
}
