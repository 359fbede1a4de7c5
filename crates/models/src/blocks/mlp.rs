//! The position-wise network of a layer up to its last projection: plain, or gated (GLU).

use crate::model::Forward;
use ops::{Act, Activation, Linear};

/// Up-projection and activation. The down-projection belongs to the layer, which adds it to its residual.
pub enum Mlp {
    /// `kind(up(x))`.
    Plain {
        /// `[inner, hidden]`.
        up: Linear,
        /// The activation.
        kind: Activation,
    },
    /// `kind(gate(x)) · up(x)` (Shazeer 2020, "GLU Variants Improve Transformer").
    Gated {
        /// `[inner, hidden]`, activated.
        gate: Linear,
        /// `[inner, hidden]`.
        up: Linear,
        /// The activation.
        kind: Activation,
    },
}

impl Mlp {
    /// `[tokens, hidden]` to `[tokens, inner]`.
    pub fn forward(&self, cx: &Forward, x: &Act) -> Act {
        match self {
            Mlp::Plain { up, kind } => cx.linear_activation(x, up, *kind),
            Mlp::Gated { gate, up, kind } => cx.ops.linear_glu(x, gate, up, *kind),
        }
    }
}
