//! What encoding a text gives: ids with their types, offsets and marks; and how to truncate and pad them.

use std::fmt;

/// An encoded text or pair. All vectors have the same length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encoding {
    /// Token ids, special tokens included.
    pub ids: Vec<u32>,
    /// 0 for the first text and its special tokens, usually 1 for the second.
    pub type_ids: Vec<u32>,
    /// `(start, end)` of each token in the original text it came from, in Unicode characters, half open; `(0, 0)` for
    /// tokens that the post-processor added.
    pub offsets: Vec<(usize, usize)>,
    /// Whether the post-processor added the token.
    pub special_mask: Vec<bool>,
    /// Which text a token came from: 0, 1, or none for tokens that the post-processor added.
    pub sequence_ids: Vec<Option<u8>>,
    /// How many tokens truncation removed.
    pub removed: usize,
}

/// An encoded text or pair without offsets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ids {
    /// Token ids, special tokens included.
    pub ids: Vec<u32>,
    /// 0 for the first text and its special tokens, usually 1 for the second; as many as `ids`.
    pub type_ids: Vec<u32>,
    /// How many tokens truncation removed.
    pub removed: usize,
}

/// How to encode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Add the tokens that the post-processor adds (`[CLS]`, `<s>`, …).
    pub add_special: bool,
    /// Read special tokens that stand in the text as plain text.
    pub plain: bool,
    /// Cut to a length.
    pub truncation: Option<Truncation>,
}

impl Default for EncodeOptions {
    fn default() -> Self {
        Self { add_special: true, plain: false, truncation: None }
    }
}

/// Cutting tokens off the end of the texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncation {
    /// The most tokens to keep, special ones included.
    pub max_length: usize,
    /// Which text loses tokens.
    pub strategy: Strategy,
}

impl Truncation {
    /// Keeps at most `max_length` tokens, special ones included, cutting the longer text first.
    pub fn to(max_length: usize) -> Self {
        Self { max_length, strategy: Strategy::LongestFirst }
    }
}

/// Which text of a pair loses tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// The longer one until both are equally long, then both.
    #[default]
    LongestFirst,
    /// The first one only.
    OnlyFirst,
    /// The second one only.
    OnlySecond,
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LongestFirst => "longest_first",
            Self::OnlyFirst => "only_first",
            Self::OnlySecond => "only_second",
        })
    }
}

impl Truncation {
    /// How many tokens of the two texts (`second` is none for a single text) remain beside `special` added ones; none
    /// where the strategy cannot reach the length.
    pub(crate) fn keep(&self, first: usize, second: Option<usize>, special: usize) -> Option<(usize, usize)> {
        let max = self.max_length.checked_sub(special)?;
        let other = second.unwrap_or(0);
        let Some(excess) = (first + other).checked_sub(max).filter(|&n| n > 0) else {
            return Some((first, other));
        };
        if max == 0 {
            return Some((0, 0));
        }
        match (self.strategy, second) {
            (Strategy::LongestFirst, None) => Some((max, 0)),
            (Strategy::LongestFirst, Some(_)) => {
                let shorter = first.min(other);
                let (short, long) =
                    if shorter.saturating_mul(2) <= max { (shorter, max - shorter) } else { (max / 2, max - max / 2) };
                Some(if first > other { (long, short) } else { (short, long) })
            }
            (Strategy::OnlyFirst, _) => (first > excess).then(|| (first - excess, other)),
            (Strategy::OnlySecond, None) => None,
            (Strategy::OnlySecond, Some(_)) => (other > excess).then(|| (first, other - excess)),
        }
    }
}

/// The length that padding brings encodings to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PadTo {
    /// The longest of them.
    Longest,
    /// The longest of them, rounded up to a multiple.
    Multiple(usize),
    /// A fixed length; longer encodings stay as they are.
    Length(usize),
}

/// An encoding with padding on the right: for comparing with other tools, since the engine itself never pads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Padded {
    /// The encoding; padding has type 0, offsets `(0, 0)`, counts as special and comes from no text.
    pub encoding: Encoding,
    /// 1 for tokens, 0 for padding.
    pub attention_mask: Vec<u32>,
}

/// Pads encodings on the right with `pad_id`.
pub fn pad(encodings: Vec<Encoding>, to: PadTo, pad_id: u32) -> Vec<Padded> {
    let longest = encodings.iter().map(|e| e.ids.len()).max().unwrap_or(0);
    let length = match to {
        PadTo::Longest => longest,
        PadTo::Multiple(n) => longest.next_multiple_of(n.max(1)),
        PadTo::Length(n) => n,
    };
    encodings
        .into_iter()
        .map(|mut e| {
            let own = e.ids.len();
            let full = length.max(own);
            e.ids.resize(full, pad_id);
            e.type_ids.resize(full, 0);
            e.offsets.resize(full, (0, 0));
            e.special_mask.resize(full, true);
            e.sequence_ids.resize(full, None);
            let mut attention_mask = vec![1; own];
            attention_mask.resize(full, 0);
            Padded { encoding: e, attention_mask }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_first_cuts_the_longer_text_then_both() {
        let to = |n| Truncation::to(n);
        assert_eq!(to(9).keep(5, Some(4), 3), Some((3, 3)));
        assert_eq!(to(10).keep(5, Some(4), 3), Some((4, 3)));
        assert_eq!(to(10).keep(4, Some(5), 3), Some((3, 4)));
        assert_eq!(to(12).keep(100, Some(2), 3), Some((7, 2)));
        assert_eq!(to(12).keep(2, Some(100), 3), Some((2, 7)));
        assert_eq!(to(12).keep(2, Some(3), 3), Some((2, 3)));
    }

    #[test]
    fn a_single_text_keeps_room_for_special_tokens() {
        assert_eq!(Truncation::to(8).keep(100, None, 2), Some((6, 0)));
        assert_eq!(Truncation::to(1).keep(100, None, 2), None);
    }

    #[test]
    fn only_one_text_cannot_give_more_than_it_has() {
        let only = |strategy| Truncation { max_length: 6, strategy };
        assert_eq!(only(Strategy::OnlyFirst).keep(5, Some(4), 1), Some((1, 4)));
        assert_eq!(only(Strategy::OnlyFirst).keep(4, Some(5), 1), None);
        assert_eq!(only(Strategy::OnlySecond).keep(9, None, 1), None);
    }
}
