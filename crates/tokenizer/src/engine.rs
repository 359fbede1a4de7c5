//! What a tokenizer can do, whichever way its file is run: by our own [`crate::pipeline::Pipeline`], or by the
//! `tokenizers` crate where a file asks for what ours does not cover ([`crate::fallback::Fallback`]).

use crate::encoding::{EncodeOptions, Encoding, Ids};
use crate::error::TokenizerError;

pub(crate) trait Engine: Send + Sync {
    /// Whose it is: `lattice` or `tokenizers`.
    fn name(&self) -> &'static str;

    /// Ids, offsets and marks of a text or a pair.
    fn encode(&self, text: &str, pair: Option<&str>, options: &EncodeOptions) -> Result<Encoding, TokenizerError>;

    /// Ids and types of a text or a pair, and how many tokens truncation removed; nothing else is computed.
    fn encode_ids(&self, text: &str, pair: Option<&str>, options: &EncodeOptions) -> Result<Ids, TokenizerError>;

    /// How many tokens the post-processor adds.
    fn added_count(&self, pair: bool) -> usize;

    /// The id of a token as the vocabulary writes it.
    fn id(&self, token: &str) -> Option<u32>;

    /// A token as decoding takes it: as the vocabulary writes it, or what normalisation made of an added one.
    fn token(&self, id: u32) -> Option<String>;

    /// An added token as it was declared.
    fn added_content(&self, id: u32) -> Option<String>;

    /// Whether an id counts as special: an added token that says so, or a control piece.
    fn is_special(&self, id: u32) -> bool;

    /// One more than the largest id.
    fn size(&self) -> usize;
}

/// How many tokens of two texts remain, as the options say.
pub(crate) fn keep(
    options: &EncodeOptions,
    first: usize,
    second: Option<usize>,
    special: usize,
) -> Result<(usize, usize), TokenizerError> {
    let Some(truncation) = &options.truncation else { return Ok((first, second.unwrap_or(0))) };
    truncation.keep(first, second, special).ok_or_else(|| TokenizerError::Truncation {
        max_length: truncation.max_length,
        strategy: truncation.strategy,
        first,
        second: second.unwrap_or(0),
        special,
    })
}
