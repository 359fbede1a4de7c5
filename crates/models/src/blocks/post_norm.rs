//! The encoder of "Attention Is All You Need" (Vaswani et al. 2017) as BERT made it known: summed embeddings, then layers
//! whose halves are each added, then normalised. Four families share it and differ in names, positions and networks.

use super::{Embeddings, Mlp, SelfAttention, angles, positions_after_padding};
use crate::model::{Forward, Model, Shape};
use ops::{Act, Linear, Norm};

/// A trunk of post-norm layers.
pub struct PostNormEncoder {
    /// Its sizes.
    pub shape: Shape,
    /// Below the first layer.
    pub embeddings: Embeddings,
    /// How a token's position enters.
    pub positions: Positions,
    /// From the first to the last.
    pub layers: Vec<PostNormLayer>,
}

/// How a token's position enters the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Positions {
    /// A learned row for each, from 0.
    Learned,
    /// A learned row for each, counted by [`positions_after_padding`] with this padding id.
    AfterPadding(u32),
    /// Queries and keys are rotated.
    Rotary {
        /// Rotated features of a head.
        rotary: usize,
        /// Base frequency.
        base: f64,
    },
}

impl Model for PostNormEncoder {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn forward(&self, cx: &Forward) -> Act {
        let mut x = match self.positions {
            Positions::AfterPadding(padding) => {
                self.embeddings.forward(cx, &positions_after_padding(cx.batch, padding))
            }
            Positions::Learned | Positions::Rotary { .. } => self.embeddings.forward(cx, &cx.batch.positions),
        };
        let angles = match self.positions {
            Positions::Rotary { rotary, base } => Some(angles(cx, rotary, base)),
            Positions::Learned | Positions::AfterPadding(_) => None,
        };
        for layer in &self.layers {
            x = layer.forward(cx, x, angles.as_ref());
        }
        x
    }
}

/// `x = norm(x + attention(x))`, then `x = norm(x + mlp(x))`.
pub struct PostNormLayer {
    /// Queries, keys and values.
    pub attention: SelfAttention,
    /// `[hidden, heads · dim]`.
    pub output: Linear,
    /// After the attention.
    pub attention_norm: Norm,
    /// The inner half of the network.
    pub mlp: Mlp,
    /// `[hidden, inner]`.
    pub down: Linear,
    /// After the network.
    pub mlp_norm: Norm,
}

impl PostNormLayer {
    /// `[tokens, hidden]` to the same; `angles` as for [`SelfAttention::forward`].
    pub fn forward(&self, cx: &Forward, x: Act, angles: Option<&Act>) -> Act {
        let heads = self.attention.forward(cx, &x, angles);
        let x = cx.ops.norm(&cx.linear_add(&heads, &self.output, x), &self.attention_norm);
        let inner = self.mlp.forward(cx, &x);
        cx.ops.norm(&cx.linear_add(&inner, &self.down, x), &self.mlp_norm)
    }
}
