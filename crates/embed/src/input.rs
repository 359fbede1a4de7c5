//! From texts to sequences of ids: the part that embedders and rerankers share.

use crate::error::EmbedError;
use crate::options::Cancel;
use inference::{Encoder, Sequence};
use std::sync::OnceLock;
use tokenizer::{EncodeOptions, Tokenizer, Truncation};

/// An input as the model will see it.
pub(crate) struct Input {
    pub(crate) sequence: Sequence,
    pub(crate) truncated: bool,
}

/// A tokenizer with the longest input that its model takes.
pub(crate) struct Inputs {
    pub(crate) tokenizer: Tokenizer,
    /// Tokens, special ones included.
    pub(crate) window: usize,
    pub(crate) lower_case: bool,
}

impl Inputs {
    /// Encodes what `texts` makes of each index, on the executor's threads.
    pub(crate) fn encode<'t>(
        &self,
        encoder: &Encoder,
        count: usize,
        texts: impl Fn(usize) -> (std::borrow::Cow<'t, str>, Option<&'t str>) + Sync,
        truncate: bool,
        cancel: &Cancel,
    ) -> Result<Vec<Input>, EmbedError> {
        let inputs: Vec<OnceLock<_>> = (0..count).map(|_| OnceLock::new()).collect();
        encoder.ops().host_tasks(count, &|index| {
            let one = || {
                cancel.check()?;
                let (text, pair) = texts(index);
                self.one(index, &text, pair, truncate)
            };
            let _ = inputs[index].set(one()); // each index comes once
        });
        inputs.into_iter().map(|input| input.into_inner().expect("every index comes")).collect()
    }

    fn one(&self, text: usize, first: &str, second: Option<&str>, truncate: bool) -> Result<Input, EmbedError> {
        let lowered = self.lower_case.then(|| first.chars().flat_map(char::to_lowercase).collect::<String>());
        let first = lowered.as_deref().unwrap_or(first);
        let options = EncodeOptions { truncation: truncate.then(|| Truncation::to(self.window)), ..Default::default() };
        let (sequence, removed) = match second {
            None => {
                let (ids, removed) = self.tokenizer.encode_ids_with(first, &options)?;
                (Sequence::from(ids), removed)
            }
            Some(second) => {
                let pair = self.tokenizer.encode_pair_ids_with(first, second, &options)?;
                (Sequence { ids: pair.ids, types: pair.type_ids }, pair.removed)
            }
        };
        let (tokens, window) = (sequence.ids.len(), self.window);
        if tokens > window {
            return Err(EmbedError::TooLong { text, tokens, window });
        }
        if tokens == 0 {
            return Err(EmbedError::Empty { text });
        }
        Ok(Input { sequence, truncated: removed > 0 })
    }
}
