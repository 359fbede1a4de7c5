//! What can be asked of a kernel besides its matrices? Activations, epilogues, rotary layouts, masks: the plain values
//! of the calls.

use std::ops::Range;

use crate::{Rows, Window};

/// An activation function. Its error against f64 over all magnitudes, stays below `4 · 2⁻²⁴` of the result
/// (2 to 4 units in its last place), for both GELUs of `x`, for QuickGELU growing with `|x|` to `100 · 2⁻²⁴` where the result
/// vanishes; what is left of a result below 1e-35 may be lost. NaN stays NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// `x / 2 · (1 + erf(x / √2))`.
    Gelu,
    /// GELU by tanh: `x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`.
    GeluTanh,
    /// `x · sigmoid(1.702 x)`.
    QuickGelu,
    /// `x · sigmoid(x)`.
    Silu,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)²`.
    Relu2,
    /// Hyperbolic tangent.
    Tanh,
    /// `1 / (1 + exp(−x))`.
    Sigmoid,
}

impl Activation {
    /// All of them.
    pub const ALL: &[Activation] = &[
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::QuickGelu,
        Activation::Silu,
        Activation::Relu,
        Activation::Relu2,
        Activation::Tanh,
        Activation::Sigmoid,
    ];
}

/// What a matmul does with a product before it stores it: `activation(product + bias) + residual`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Epilogue<'a> {
    /// Added first, `[out]`: of all output features, also where the call computes some panels only.
    pub bias: Option<&'a [f32]>,
    /// Applied next.
    pub activation: Option<Activation>,
    /// Added last: of the shape of the call's `y`.
    pub residual: Option<Rows<'a>>,
}

/// Which two numbers of a head rotary embedding turns together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopeLayout {
    /// Number `i` and number `i + rotary / 2` ("rotate half": NeoX, Llama in Hugging Face's layout).
    Half,
    /// Number `2 i` and number `2 i + 1` (GPT-J, the original Llama layout).
    Interleaved,
}

/// Which keys a query sees, by their positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mask {
    /// All.
    Full,
    /// Those not behind it: `key ≤ query`.
    Causal,
    /// Those near it: `query − left ≤ key ≤ query + right`.
    Window {
        /// How far back it sees.
        left: usize,
        /// How far ahead.
        right: usize,
    },
}

impl Mask {
    /// Of `keys` keys, those that the query at `position` sees.
    pub fn visible(self, position: usize, keys: usize) -> Range<usize> {
        let (start, end) = match self {
            Mask::Full => (0, keys),
            Mask::Causal => (0, position.saturating_add(1)),
            Mask::Window { left, right } => {
                (position.saturating_sub(left), position.saturating_add(right).saturating_add(1))
            }
        };
        let end = end.min(keys);
        start.min(end)..end
    }
}

/// A number added to the score of a pair by its distance: `values[key + offset − query]`, positions as in [`Attend`].
#[derive(Clone, Copy, Debug)]
pub struct RelativeBias<'a> {
    /// The numbers of a head.
    pub values: &'a [f32],
    /// Where in `values` distance 0 is.
    pub offset: usize,
}

/// The attention of one head of one sequence for a range of its queries.
///
/// Key `j` has position `j`, query `i` has position `past + i`. The score of a pair is
/// `softcap(scale · q·k) + bias`, where `softcap(s) = cap · tanh(s / cap)`.
#[derive(Clone, Copy, Debug)]
pub struct Attend<'a> {
    /// `[queries, head_dim]`.
    pub q: Rows<'a>,
    /// `[keys, head_dim]`.
    pub k: Rows<'a>,
    /// `[keys, value_dim]`.
    pub v: Rows<'a>,
    /// How many keys come before the first query.
    pub past: usize,
    /// What scores are multiplied by.
    pub scale: f32,
    /// Which keys a query sees.
    pub mask: Mask,
    /// The bound that scores are bent towards.
    pub softcap: Option<f32>,
    /// The relative position bias.
    pub bias: Option<RelativeBias<'a>>,
    /// bf16 pieces, 1 or 2, in which to multiply on AMX; without, and elsewhere, it is in f32.
    pub pieces: Option<usize>,
}

impl Attend<'_> {
    pub(crate) fn check(&self, out: &Window<'_>) {
        assert!(matches!(self.pieces, None | Some(1 | 2)), "{:?} pieces", self.pieces);
        assert_eq!(self.q.cols(), self.k.cols(), "head dimension of queries and keys");
        assert_eq!(self.k.rows(), self.v.rows(), "keys and values");
        assert_eq!((out.rows(), out.cols()), (self.q.rows(), self.v.cols()), "shape of the result");
        if let Some(RelativeBias { values, offset }) = self.bias
            && self.q.rows() > 0
            && self.k.rows() > 0
        {
            let (first, last) = (self.past, self.past + self.q.rows() - 1);
            assert!(
                last <= offset && self.k.rows() + offset - first <= values.len(),
                "{} biases around {offset} do not cover {} keys and queries {first}..={last}",
                values.len(),
                self.k.rows(),
            );
        }
    }
}

/// The memory that [`Kernels::attend`](crate::Kernels::attend) works in. It grows to the largest call's need, which is
/// linear in the dimensions and the number of queries, and is reused by the next.
#[derive(Debug, Default)]
pub struct AttendScratch {
    numbers: Vec<f32>,
}

impl AttendScratch {
    /// Empty scratch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Two pieces, of `one` and `other` numbers of any value.
    pub(crate) fn take_two(&mut self, one: usize, other: usize) -> (&mut [f32], &mut [f32]) {
        self.take(one + other).split_at_mut(one)
    }

    /// `len` numbers of any value.
    pub(crate) fn take(&mut self, len: usize) -> &mut [f32] {
        if self.numbers.len() < len {
            self.numbers.resize(len, 0.0);
        }
        &mut self.numbers[..len]
    }

    /// `len` numbers of any value, from a cache line on.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn lines(&mut self, len: usize) -> &mut [f32] {
        let numbers = self.take(len + 16);
        let start = numbers.as_ptr().align_offset(64);
        &mut numbers[start..][..len]
    }
}
