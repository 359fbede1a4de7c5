//! What is a model? A trunk that turns the tokens of a batch into rows, and the context its forward pass runs in.

use crate::batch::Batch;
use ops::{Act, Activation, Attention, Linear, Ops, Table};

/// The sizes of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The family: the name of its row in [`crate::ARCHITECTURES`].
    pub architecture: &'static str,
    /// Features of a row.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Features of a head.
    pub head_dim: usize,
    /// Number of token ids.
    pub vocab: usize,
    /// Number of token types; 0 if the model does not look at them.
    pub types: usize,
    /// The longest sequence in tokens.
    pub max_positions: usize,
}

/// A trunk: rows in, rows out.
pub trait Model: Send + Sync {
    /// Its sizes.
    fn shape(&self) -> &Shape;

    /// The last hidden state of every token, `[tokens, hidden]`. The batch must have passed [`Shape::check`].
    fn forward(&self, cx: &Forward) -> Act;
}

/// What a forward pass runs on. Models reach weights through its methods, so that what hooks into a matrix multiplication
/// or an attention has one place to do so.
pub struct Forward<'a> {
    /// The executor that holds the model's weights.
    pub ops: &'a dyn Ops,
    /// The tokens.
    pub batch: &'a Batch,
}

impl<'a> Forward<'a> {
    /// A forward pass of a batch.
    pub fn new(ops: &'a dyn Ops, batch: &'a Batch) -> Forward<'a> {
        Forward { ops, batch }
    }

    /// The model's output `[tokens, hidden]`, computed where the executor's threads are at hand.
    pub fn run(&self, model: &dyn Model) -> Act {
        let mut rows = None;
        self.ops.run(&mut || rows = Some(model.forward(self)));
        rows.expect("an executor runs the pass it is given")
    }

    /// Rows of a token table for the batch's ids, `[tokens, table.cols]`.
    pub fn embed(&self, table: &Table) -> Act {
        self.ops.embed(table, &self.batch.ids)
    }

    /// `x · Wᵀ + b`: `[rows, inputs]` to `[rows, outputs]`.
    pub fn linear(&self, x: &Act, w: &Linear) -> Act {
        self.ops.linear(x, w)
    }

    /// [`Forward::linear`], then an activation.
    pub fn linear_activation(&self, x: &Act, w: &Linear, kind: Activation) -> Act {
        self.ops.linear_activation(x, w, kind)
    }

    /// [`Forward::linear`] added to `residual`.
    pub fn linear_add(&self, x: &Act, w: &Linear, residual: Act) -> Act {
        self.ops.linear_add(x, w, residual)
    }

    /// Attention within each sequence of the batch: q `[tokens, heads · dim]`, k and v `[tokens, kv_heads · dim]`.
    pub fn attend(&self, q: &Act, k: &Act, v: &Act, attention: &Attention) -> Act {
        self.ops.attend(q, k, v, attention, &self.batch.spans)
    }
}
