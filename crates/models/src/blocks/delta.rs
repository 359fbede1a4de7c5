//! A layer of linear attention: the gated delta net (Yang et al. 2024, "Gated Delta Networks") between its projections.

use crate::model::Forward;
use crate::state::LayerState;
use ops::{Act, Activation, Delta, Linear, Norm};

/// A gated delta net with its projections.
pub struct DeltaNet {
    /// `[channels, hidden]`: queries, keys and values before the convolution.
    pub qkv: Linear,
    /// `[value_heads · value_dim, hidden]`: the gate of the result.
    pub gate: Linear,
    /// `[value_heads, hidden]`: how fast the state decays.
    pub decay: Linear,
    /// `[value_heads, hidden]`: how much of a token is taken up.
    pub beta: Linear,
    /// The net.
    pub delta: Delta,
    /// Of each head of the result, before the gate.
    pub norm: Norm,
    /// `[hidden, value_heads · value_dim]`.
    pub output: Linear,
}

impl DeltaNet {
    /// `[tokens, hidden]` to `[tokens, value_heads · value_dim]`, before the output projection.
    pub fn forward(&self, cx: &Forward, layer: usize, x: &Act) -> Act {
        let [qkv, gate, a, b] = cx.linears(x, [&self.qkv, &self.gate, &self.decay, &self.beta]);
        let heads = cx.delta(layer, &qkv, &a, &b, &self.delta);
        cx.ops.glu(gate, &cx.ops.norm(&heads, &self.norm), Activation::Silu)
    }

    /// What it keeps of a sequence.
    pub fn state(&self) -> LayerState {
        let Delta { kernel, value_heads: heads, key_dim, value_dim, .. } = self.delta;
        LayerState::Recurrent { channels: self.delta.channels(), kernel, heads, key_dim, value_dim }
    }
}
