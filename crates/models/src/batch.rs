//! What goes into a forward pass: the tokens of several sequences one after another, without padding.

use crate::error::{ModelError, Result};
use crate::model::Shape;
use ops::{Past, Span};

/// A ragged batch of sequences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Token ids, `[tokens]`.
    pub ids: Vec<u32>,
    /// Token types (segments), `[tokens]`; empty stands for all zero. Models without token types ignore them.
    pub types: Vec<u32>,
    /// Place of each token in its sequence, `[tokens]`, from the number of its past tokens on.
    pub positions: Vec<u32>,
    /// Where each sequence's tokens are.
    pub spans: Vec<Span>,
    /// Where each sequence's past is; empty if the batch stands alone.
    pub pasts: Vec<Past>,
}

/// The most tokens of a batch: rows are named by `u32`.
const MAX_TOKENS: usize = u32::MAX as usize;

impl Batch {
    /// A batch of these sequences of ids, all of token type 0.
    ///
    /// # Errors
    /// [`ModelError::EmptySequence`].
    pub fn new<S: AsRef<[u32]>>(sequences: &[S]) -> Result<Batch> {
        let mut batch = Batch::default();
        for ids in sequences {
            batch.push(ids.as_ref(), &[])?;
        }
        Ok(batch)
    }

    /// Appends a sequence with its token types, or with none: all zero.
    ///
    /// # Errors
    /// [`ModelError::EmptySequence`], [`ModelError::Types`], [`ModelError::TooManyTokens`]. The batch stays as it was.
    pub fn push(&mut self, ids: &[u32], types: &[u32]) -> Result<()> {
        assert!(self.pasts.is_empty(), "a batch stands alone or has a past for each sequence");
        self.append(ids, types, 0)
    }

    /// Appends the next tokens of a sequence whose earlier ones are in the caches, or its first ones
    /// (`past.tokens` = 0).
    ///
    /// # Errors
    /// [`ModelError::EmptySequence`], [`ModelError::TooManyTokens`]. The batch stays as it was.
    pub fn push_after(&mut self, ids: &[u32], past: Past) -> Result<()> {
        assert_eq!(self.pasts.len(), self.spans.len(), "a batch stands alone or has a past for each sequence");
        self.append(ids, &[], past.tokens)?;
        self.pasts.push(past);
        Ok(())
    }

    fn append(&mut self, ids: &[u32], types: &[u32], past: usize) -> Result<()> {
        let (sequence, start) = (self.spans.len(), self.ids.len());
        if ids.is_empty() {
            return Err(ModelError::EmptySequence { sequence });
        }
        if !types.is_empty() && types.len() != ids.len() {
            return Err(ModelError::Types { sequence, ids: ids.len(), types: types.len() });
        }
        if ids.len() > MAX_TOKENS - start || past > MAX_TOKENS - ids.len() {
            return Err(ModelError::TooManyTokens { limit: MAX_TOKENS });
        }
        self.ids.extend_from_slice(ids);
        self.positions.extend(past as u32..(past + ids.len()) as u32);
        if !types.is_empty() || !self.types.is_empty() {
            self.types.resize(start, 0);
            self.types.extend_from_slice(types);
            self.types.resize(self.ids.len(), 0);
        }
        self.spans.push(Span { start, len: ids.len() });
        Ok(())
    }

    /// Number of tokens: rows of the model's output.
    pub fn tokens(&self) -> usize {
        self.ids.len()
    }

    /// Tokens of a sequence before its first row.
    pub fn past(&self, sequence: usize) -> usize {
        self.pasts.get(sequence).map_or(0, |past| past.tokens)
    }

    /// Row of each sequence's first token.
    pub fn first_rows(&self) -> Vec<u32> {
        self.spans.iter().map(|s| s.start as u32).collect()
    }

    /// Row of each sequence's last token.
    pub fn last_rows(&self) -> Vec<u32> {
        self.spans.iter().map(|s| (s.start + s.len - 1) as u32).collect()
    }
}

impl Shape {
    /// May a model of this shape compute this batch?
    ///
    /// # Errors
    /// [`ModelError::EmptyBatch`], [`ModelError::TooLong`], or [`ModelError::Id`] for an id, a token type or a position
    /// that the model has no row for.
    pub fn check(&self, batch: &Batch) -> Result<()> {
        if batch.spans.is_empty() {
            return Err(ModelError::EmptyBatch);
        }
        for (sequence, span) in batch.spans.iter().enumerate() {
            let tokens = span.len + batch.past(sequence);
            if tokens > self.max_positions {
                let (window, architecture) = (self.max_positions, self.architecture);
                return Err(ModelError::TooLong { sequence, tokens, window, architecture });
            }
            let below = |what, values: &[u32], limit: usize| {
                let values = values.get(span.range()).unwrap_or_default();
                let outside = values.iter().position(|&v| v as usize >= limit);
                outside.map_or(Ok(()), |token| Err(ModelError::Id { sequence, token, what, got: values[token], limit }))
            };
            below("id", &batch.ids, self.vocab)?;
            below("position", &batch.positions, self.max_positions)?;
            if self.types > 0 {
                below("token type", &batch.types, self.types)?;
            }
        }
        Ok(())
    }
}
