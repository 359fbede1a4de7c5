//! The head of a language model: a logit for every token of the vocabulary.

use crate::model::Forward;
use ops::{Act, Activation, Linear};

/// `out(row)`, bent towards a bound in some families.
pub struct LanguageHead {
    /// `[vocab, hidden]`.
    pub out: Linear,
    /// Logits become `cap · tanh(logit / cap)`.
    pub softcap: Option<f32>,
}

impl LanguageHead {
    /// `[rows, hidden]` of a model's output to logits `[rows, vocab]`.
    pub fn logits(&self, cx: &Forward, rows: &Act) -> Act {
        let logits = cx.linear(rows, &self.out);
        let Some(cap) = self.softcap else { return logits };
        cx.ops.scale(cx.ops.activation(cx.ops.scale(logits, cap.recip()), Activation::Tanh), cap)
    }
}
