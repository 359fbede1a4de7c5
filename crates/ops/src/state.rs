//! What sequences leave behind in a layer for their next tokens: keys and values in pages, recurrent state in slots.
//! The engine decides who gets which page and slot; the executor holds the memory.

use crate::value::{Vector, Weight};
use std::sync::Arc;

/// Where a sequence's past lies; one for each span of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// Tokens before the span's first row. 0 starts afresh: whatever the pages and the slot hold is not looked at.
    pub tokens: usize,
    /// Pages of the keys and values of the past and of the span itself, in order of position; the same ones in every
    /// layer.
    pub pages: Arc<[u32]>,
    /// Slot of the recurrent state; the same one in every layer.
    pub slot: u32,
    /// Copies to take of the recurrent state on the way, in ascending order of rows.
    pub saves: Vec<Save>,
}

/// A copy of the recurrent state after some rows of a span: what the slot would hold if the span ended there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Save {
    /// Rows of the span before it, from 1 to the span's length.
    pub rows: usize,
    /// The slot that takes it.
    pub slot: u32,
}

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvFormat {
    /// As computed.
    F32,
    /// Rounded to half precision.
    F16,
    /// Rounded to 8 bits, in blocks of 32 numbers of a head with a factor in half precision.
    Q8_0,
}

impl KvFormat {
    /// Bytes of a key or value of `dim` numbers.
    pub fn bytes(self, dim: usize) -> usize {
        match self {
            KvFormat::F32 => 4 * dim,
            KvFormat::F16 => 2 * dim,
            KvFormat::Q8_0 => 34 * dim.div_ceil(32),
        }
    }

    /// Its name in options and results.
    pub fn name(self) -> &'static str {
        match self {
            KvFormat::F32 => "f32",
            KvFormat::F16 => "f16",
            KvFormat::Q8_0 => "q8_0",
        }
    }
}

/// The sizes of a layer's keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvSpec {
    /// Number of pages.
    pub pages: usize,
    /// Tokens of a page, a multiple of 16.
    pub page_tokens: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Features of a head.
    pub head_dim: usize,
    /// Number format.
    pub format: KvFormat,
}

/// Keys and values of one layer, for all sequences. Memory is taken as pages are first written.
#[derive(Clone, Debug)]
pub struct KvCache {
    /// Its sizes.
    pub spec: KvSpec,
    /// The executor's memory.
    pub memory: Weight,
}

/// A gated delta net: what [`crate::Ops::delta`] computes between its projections (Qwen3.5's linear attention).
///
/// For each row: a causal depthwise convolution of `kernel` rows over the `channels` of qkv and SiLU; then q, k
/// `[key_heads · key_dim]` and v `[value_heads · value_dim]`; q and k scaled to length 1, q by `key_dim^-½`; each key head
/// serves `value_heads / key_heads` consecutive value heads. A head's state S `[key_dim, value_dim]` decays by
/// `exp(−exp(a_log) · softplus(a + dt_bias))`, takes up `k ⊗ sigmoid(b) · (v − Sᵀk)`, and gives `Sᵀq`.
#[derive(Clone, Debug)]
pub struct Delta {
    /// Heads of q and k.
    pub key_heads: usize,
    /// Heads of v, of the state and of the result.
    pub value_heads: usize,
    /// Features of a head of q and k.
    pub key_dim: usize,
    /// Features of a head of v.
    pub value_dim: usize,
    /// Rows that the convolution spans.
    pub kernel: usize,
    /// `[channels, kernel]`, the oldest row first.
    pub convolution: Vector,
    /// `[value_heads]`.
    pub a_log: Vector,
    /// `[value_heads]`.
    pub dt_bias: Vector,
}

impl Delta {
    /// Features of qkv: what the convolution runs over.
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }
}

/// The sizes of a layer's recurrent states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateSpec {
    /// Number of sequences.
    pub slots: usize,
    /// Features that the convolution runs over.
    pub channels: usize,
    /// Rows that the convolution spans.
    pub kernel: usize,
    /// Value heads.
    pub heads: usize,
    /// Features of a key.
    pub key_dim: usize,
    /// Features of a value.
    pub value_dim: usize,
}

/// Recurrent states of one layer, for all sequences.
#[derive(Clone, Debug)]
pub struct StateCache {
    /// Its sizes.
    pub spec: StateSpec,
    /// The executor's memory.
    pub memory: Weight,
}

/// A layer's recurrent state for one sequence, read back.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// The last rows of qkv before the convolution, `[channels, kernel]`, oldest first.
    pub convolution: Vec<f32>,
    /// `[heads, key_dim, value_dim]`.
    pub recurrent: Vec<f32>,
}

/// How a router's logits choose experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routing {
    /// Experts that a row goes to: those of the largest softmax probability over all experts.
    pub active: usize,
    /// Whether the chosen probabilities are divided by their sum.
    pub renormalize: bool,
}
