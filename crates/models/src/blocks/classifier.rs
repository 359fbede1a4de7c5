//! The head of a cross-encoder or text classifier: one row a sequence, a hidden layer, one logit a label.

use crate::model::Forward;
use ops::{Act, Activation, Linear, Norm, Pool};

/// How the head gets one row a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstOrMean {
    /// The first token's row.
    First,
    /// The mean of the rows.
    Mean,
}

/// A sequence-classification head: `out(norm(kind(dense(row))))`.
pub struct Classifier {
    /// How a sequence becomes a row.
    pub pool: FirstOrMean,
    /// `[hidden, hidden]`.
    pub dense: Linear,
    /// After `dense`.
    pub kind: Activation,
    /// After the activation, in some families.
    pub norm: Option<Norm>,
    /// `[labels, hidden]`.
    pub out: Linear,
}

impl Classifier {
    /// Raw logits `[sequences, labels]` of a model's output `[tokens, hidden]`.
    pub fn forward(&self, cx: &Forward, hidden: &Act) -> Act {
        let rows = match self.pool {
            FirstOrMean::First => cx.ops.rows(hidden, &cx.batch.first_rows()),
            FirstOrMean::Mean => cx.ops.pool(hidden, &cx.batch.spans, Pool::Mean),
        };
        let mut x = cx.linear_activation(&rows, &self.dense, self.kind);
        if let Some(norm) = &self.norm {
            x = cx.ops.norm(&x, norm);
        }
        cx.linear(&x, &self.out)
    }
}
