//! SentencePiece models (`tokenizer.model`), segmented exactly as Google's library does.
//!
//! The `tokenizers` crate can be fed the same pieces, but it normalises by grapheme, sums scores in other precision and
//! merges by rank, so its ids differ on ties, jamo and stacked marks. Whoever trained a model with the library gets the
//! library's ids here.

mod detokenize;
mod load;
mod normalize;
mod proto;
mod segment;

pub(crate) use detokenize::Surface;
pub(crate) use load::load;
pub(crate) use normalize::{Charsmap, Normalizer};
pub(crate) use proto::{Kind, ModelType, Proto};
pub(crate) use segment::{Algorithm, Segmenter};

/// SentencePiece's mark for a space, U+2581.
pub(crate) const SPACE: char = '\u{2581}';
