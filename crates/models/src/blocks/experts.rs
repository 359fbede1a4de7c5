//! A network of many of which each token uses a few: routed experts, and one that all tokens share.

use super::Mlp;
use crate::model::Forward;
use ops::{Act, Activation, Expert, Linear, Routing};

/// A mixture of experts.
pub struct Mixture {
    /// `[experts, hidden]`: who is asked.
    pub router: Linear,
    /// How the router's logits choose.
    pub routing: Routing,
    /// The experts.
    pub experts: Vec<Expert>,
    /// The activation of their gates.
    pub kind: Activation,
    /// The expert that every token asks.
    pub shared: Option<Box<SharedExpert>>,
}

/// An expert that every token asks, with a gate of its own.
pub struct SharedExpert {
    /// Its inner half.
    pub mlp: Mlp,
    /// `[hidden, inner]`.
    pub down: Linear,
    /// `[1, hidden]`: its sigmoid multiplies the result.
    pub gate: Linear,
    /// `[hidden, 1]`, all ones: spreads the gate over the features.
    pub spread: Linear,
}

impl Mixture {
    /// `[tokens, hidden]` to the same.
    pub fn forward(&self, cx: &Forward, x: &Act) -> Act {
        let routed = cx.experts(x, &cx.linear(x, &self.router), self.routing, &self.experts, self.kind);
        let Some(shared) = &self.shared else { return routed };
        let gate = cx.linear(&cx.linear(x, &shared.gate), &shared.spread);
        let all = cx.linear(&shared.mlp.forward(cx, x), &shared.down);
        cx.ops.add(routed, &cx.ops.glu(gate, &all, Activation::Sigmoid))
    }
}
