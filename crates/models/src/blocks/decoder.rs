//! The trunk of most language models since Llama: each layer's halves read normalised rows and are added to the rows as
//! they were (pre-norm). What the halves are differs: attention or a delta net, a gated network or experts.

use super::{DeltaNet, Mixture, Mlp, Rotary};
use crate::model::{Forward, Model, Place, Shape};
use crate::state::LayerState;
use ops::{Act, Attention, Linear, Mask, Norm, Table};

/// A trunk of pre-norm layers.
pub struct Decoder {
    /// Its sizes.
    pub shape: Shape,
    /// `[vocab, hidden]`.
    pub words: Table,
    /// What words are multiplied by.
    pub scale: Option<f32>,
    /// The rotary positions that layers refer to.
    pub rotaries: Vec<Rotary>,
    /// From the first to the last.
    pub layers: Vec<DecoderLayer>,
    /// After the last.
    pub norm: Norm,
}

impl Model for Decoder {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn states(&self) -> Vec<LayerState> {
        let states: Option<Vec<_>> = self.layers.iter().map(|layer| layer.mixer.state()).collect();
        states.unwrap_or_default()
    }

    fn depends_on_length(&self) -> bool {
        self.rotaries.iter().any(|rotary| rotary.growth.is_some())
    }

    fn forward(&self, cx: &Forward) -> Act {
        let angles: Vec<Act> = self.rotaries.iter().map(|rotary| rotary.angles(cx)).collect();
        let mut x = cx.embed(&self.words);
        if let Some(scale) = self.scale {
            x = cx.ops.scale(x, scale);
        }
        cx.traced(Place::Embedding, &x);
        for (i, layer) in self.layers.iter().enumerate() {
            x = layer.forward(cx, i, x, &angles);
            cx.traced(Place::Layer(i), &x);
        }
        let x = cx.ops.norm(&x, &self.norm);
        cx.traced(Place::Norm, &x);
        x
    }
}

/// `x += mixer(norm(x))`, then `x += network(norm(x))`.
pub struct DecoderLayer {
    /// Before the mixer.
    pub mixer_norm: Norm,
    /// What lets tokens see one another.
    pub mixer: Mixer,
    /// Of what the mixer gives, before it is added, in some families.
    pub mixed_norm: Option<Norm>,
    /// Before the network.
    pub network_norm: Norm,
    /// What looks at each token alone.
    pub network: Network,
    /// Of what the network gives, before it is added, in some families.
    pub network_out_norm: Option<Norm>,
}

impl DecoderLayer {
    /// `[tokens, hidden]` to the same; `angles` of every [`Rotary`] of the model.
    pub fn forward(&self, cx: &Forward, layer: usize, x: Act, angles: &[Act]) -> Act {
        let normed = cx.ops.norm(&x, &self.mixer_norm);
        let (rows, output) = match &self.mixer {
            Mixer::Attention(attention) => (attention.forward(cx, layer, &normed, angles), &attention.output),
            Mixer::Delta(net) => (net.forward(cx, layer, &normed), &net.output),
        };
        let x = add_normed(cx, x, &rows, output, self.mixed_norm.as_ref());
        let normed = cx.ops.norm(&x, &self.network_norm);
        match &self.network {
            Network::Dense { mlp, down } => {
                add_normed(cx, x, &mlp.forward(cx, &normed), down, self.network_out_norm.as_ref())
            }
            Network::Experts(mixture) => cx.ops.add(x, &mixture.forward(cx, &normed)),
        }
    }
}

/// `x + norm(output(rows))`.
pub(crate) fn add_normed(cx: &Forward, x: Act, rows: &Act, output: &Linear, norm: Option<&Norm>) -> Act {
    match norm {
        None => cx.linear_add(rows, output, x),
        Some(norm) => cx.ops.add(x, &cx.ops.norm(&cx.linear(rows, output), norm)),
    }
}

/// What lets the tokens of a sequence see one another.
pub enum Mixer {
    /// Attention.
    Attention(HeadAttention),
    /// A gated delta net.
    Delta(DeltaNet),
}

impl Mixer {
    /// What it keeps of a sequence; nothing can be kept of one that looks ahead.
    fn state(&self) -> Option<LayerState> {
        match self {
            Mixer::Attention(attention) => attention.state(),
            Mixer::Delta(net) => Some(net.state()),
        }
    }
}

/// What looks at each token alone.
pub enum Network {
    /// One network for all tokens.
    Dense {
        /// Its inner half.
        mlp: Mlp,
        /// `[hidden, inner]`.
        down: Linear,
    },
    /// A few networks of many.
    Experts(Mixture),
}

/// Attention with what families put around the heads: norms, rotation, an output gate.
pub struct HeadAttention {
    /// `[heads · dim, hidden]`.
    pub query: Linear,
    /// `[kv_heads · dim, hidden]`.
    pub key: Linear,
    /// `[kv_heads · dim, hidden]`.
    pub value: Linear,
    /// Of each head of queries and of keys, before they are rotated.
    pub norms: Option<[Norm; 2]>,
    /// `[heads · dim, hidden]`: its sigmoid multiplies the result.
    pub gate: Option<Linear>,
    /// Heads, scale, mask.
    pub attention: Attention,
    /// Which of the model's [`Rotary`] turns its heads, and that one's shape.
    pub rotary: (usize, ops::Rope),
    /// `[hidden, heads · dim]`.
    pub output: Linear,
}

impl HeadAttention {
    /// `[tokens, hidden]` to `[tokens, heads · dim]`, before the output projection.
    pub fn forward(&self, cx: &Forward, layer: usize, x: &Act, angles: &[Act]) -> Act {
        let [mut q, mut k, v] = cx.linears(x, [&self.query, &self.key, &self.value]);
        if let Some([query, key]) = &self.norms {
            (q, k) = (cx.ops.norm(&q, query), cx.ops.norm(&k, key));
        }
        let (which, rope) = self.rotary;
        (q, k) = (cx.ops.rope(q, &angles[which], rope), cx.ops.rope(k, &angles[which], rope));
        let heads = cx.attend_layer(layer, &q, &k, &v, &self.attention);
        match &self.gate {
            Some(gate) => cx.ops.glu(cx.linear(x, gate), &heads, ops::Activation::Sigmoid),
            None => heads,
        }
    }

    fn state(&self) -> Option<LayerState> {
        kept(&self.attention)
    }
}

/// What an attention keeps of a sequence, unless its tokens look ahead.
pub(crate) fn kept(attention: &Attention) -> Option<LayerState> {
    let window = match attention.mask {
        Mask::Causal => None,
        Mask::Window { left, right: 0 } => Some(left + 1),
        Mask::Full | Mask::Window { .. } => return None,
    };
    Some(LayerState::Kv { kv_heads: attention.kv_heads, head_dim: attention.head_dim, window })
}

/// A query sees itself and what came before it, `window` tokens in all.
pub fn causal(window: Option<usize>) -> Mask {
    window.map_or(Mask::Causal, |window| Mask::Window { left: window - 1, right: 0 })
}
