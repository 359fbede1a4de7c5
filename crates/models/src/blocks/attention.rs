//! Self-attention up to its output projection: queries, keys and values of the same rows.

use crate::model::Forward;
use ops::{Act, Attention, Linear, Mask, Rope};

/// Query, key and value projections and how they meet. The output projection belongs to the layer, which adds it to its
/// residual.
pub struct SelfAttention {
    /// `[heads · dim, hidden]`.
    pub query: Linear,
    /// `[kv_heads · dim, hidden]`.
    pub key: Linear,
    /// `[kv_heads · dim, hidden]`.
    pub value: Linear,
    /// Heads, scale, mask.
    pub attention: Attention,
    /// How queries and keys are rotated, where positions are rotary.
    pub rope: Option<Rope>,
}

impl SelfAttention {
    /// `[tokens, hidden]` to `[tokens, heads · dim]`. `angles` `[tokens, rotary]` are there if `rope` is.
    pub fn forward(&self, cx: &Forward, x: &Act, angles: Option<&Act>) -> Act {
        let [mut q, mut k, v] = cx.linears(x, [&self.query, &self.key, &self.value]);
        if let (Some(rope), Some(angles)) = (self.rope, angles) {
            q = cx.ops.rope(q, angles, rope);
            k = cx.ops.rope(k, angles, rope);
        }
        cx.attend(&q, &k, &v, &self.attention)
    }
}

/// Every token sees every token of its sequence; as many key heads as query heads, scores over √dim.
pub fn bidirectional(heads: usize, head_dim: usize) -> Attention {
    let scale = (head_dim as f64).sqrt().recip() as f32;
    Attention { heads, kv_heads: heads, head_dim, scale, mask: Mask::Full, softcap: None, bias: None }
}
