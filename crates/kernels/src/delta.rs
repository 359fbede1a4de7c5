//! How does a gated delta net step from token to token? Its short convolution and its recurrence (Yang, Kautz and
//! Hatamizadeh 2024, "Gated Delta Networks"), in the form that Qwen3.5 and Qwen3-Next use.

use crate::activations::{Silu, Unary};
use crate::rows::{activation, sum_squares};
use crate::simd::Simd;
use crate::{Activation, AttendScratch, Rows, Window};

/// Longest convolution kernel.
const LONGEST: usize = 16;
/// Channels that a pass of the convolution takes: enough of a row for reading it to be worth the way to it, few enough for
/// the last rows and the weights to stay in the L1.
const CHANNELS: usize = 128;
/// Vectors of a state's row that stay in registers.
const SIDE: usize = 4;
/// Tokens for which columns of the state are copied to where they lie side by side.
const WORTH_PACKING: usize = 4;

/// A causal convolution along the tokens, each channel by itself, followed by SiLU.
#[derive(Debug)]
pub struct ShortConv<'a> {
    /// `[channels, kernel]`: the last inputs of each channel, oldest first. Updated.
    pub state: &'a mut [f32],
    /// `[channels, kernel]`, the weight of the oldest input first.
    pub weight: &'a [f32],
    /// Inputs that a number of the result depends on, 1 to 16.
    pub kernel: usize,
    /// `[tokens, channels]`.
    pub x: Rows<'a>,
}

impl ShortConv<'_> {
    pub(crate) fn check(&self, out: &Window<'_>) {
        let (kernel, channels) = (self.kernel, self.x.cols());
        assert!((1..=LONGEST).contains(&kernel), "a convolution over {kernel} tokens; 1 to {LONGEST} are possible");
        assert_eq!(self.state.len(), channels * kernel, "state of {channels} channels and kernel {kernel}");
        assert_eq!(self.weight.len(), channels * kernel, "weights of {channels} channels and kernel {kernel}");
        assert_eq!((out.rows(), out.cols()), (self.x.rows(), channels), "shape of the result");
    }
}

/// The recurrence of one value head over some tokens. Per token, with `q̂ = q / ‖q‖ / √dk` and `k̂ = k / ‖k‖`
/// (where `‖x‖ = √(Σx² + 1e-6)`):
///
/// `S = exp(g) · S`, then `S = S + k̂ᵀ · beta · (v − k̂ · S)`, then `out = q̂ · S`.
#[derive(Debug)]
pub struct DeltaRows<'a> {
    /// `[tokens, dk]`, as it comes from the convolution.
    pub q: Rows<'a>,
    /// `[tokens, dk]`, likewise.
    pub k: Rows<'a>,
    /// `[tokens, dv]`.
    pub v: Rows<'a>,
    /// `[tokens, 1]`: the logarithm of the decay.
    pub g: Rows<'a>,
    /// `[tokens, 1]`: how much of the difference is learned.
    pub beta: Rows<'a>,
    /// `[dk, dv]`. Updated.
    pub state: &'a mut [f32],
}

impl DeltaRows<'_> {
    pub(crate) fn check(&self, out: &Window<'_>) {
        let tokens = self.q.rows();
        assert_eq!(self.q.cols(), self.k.cols(), "dimension of queries and keys");
        for (what, rows) in [("k", self.k), ("v", self.v), ("g", self.g), ("beta", self.beta)] {
            assert_eq!(rows.rows(), tokens, "tokens of {what}");
        }
        assert_eq!((self.g.cols(), self.beta.cols()), (1, 1), "numbers of g and beta for a token");
        assert_eq!(self.state.len(), self.k.cols() * self.v.cols(), "state of [{}, {}]", self.k.cols(), self.v.cols());
        assert_eq!((out.rows(), out.cols()), (tokens, self.v.cols()), "shape of the result");
    }
}

#[inline(always)]
pub(crate) fn short_conv<S: Simd>(s: S, task: ShortConv<'_>, mut out: Window<'_>) {
    let ShortConv { state, weight, kernel, x } = task;
    if x.rows() == 1 {
        // The same chains, where turning inputs and weights around would cost more than they do.
        let out = out.row_mut(0);
        let channels = state.chunks_exact_mut(kernel).zip(weight.chunks_exact(kernel));
        for ((out, &x), (state, weight)) in out.iter_mut().zip(x.row(0)).zip(channels) {
            state.copy_within(1.., 0);
            state[kernel - 1] = x;
            *out = state.iter().zip(weight).fold(0.0, |sum, (&x, &w)| w.mul_add(x, sum));
        }
        return activation(s, Activation::Silu, out);
    }
    // The inputs and weights of some channels, `[kernel][CHANNELS]`; the newest input is where `newest` says.
    let (mut inputs, mut weights) = ([[0f32; CHANNELS]; LONGEST], [[0f32; CHANNELS]; LONGEST]);
    for first in (0..x.cols()).step_by(CHANNELS) {
        let channels = CHANNELS.min(x.cols() - first);
        for c in 0..channels {
            let at = (first + c) * kernel;
            for j in 0..kernel {
                (inputs[j][c], weights[j][c]) = (state[at + j], weight[at + j]);
            }
        }
        let mut oldest = 0;
        for t in 0..x.rows() {
            inputs[oldest][..channels].copy_from_slice(&x.row(t)[first..first + channels]);
            oldest = (oldest + 1) % kernel;
            let mut order = [0; LONGEST];
            order[..kernel].iter_mut().enumerate().for_each(|(j, place)| *place = (oldest + j) % kernel);
            let out = &mut out.row_mut(t)[first..first + channels];
            for at in (0..channels).step_by(S::LANES) {
                let mut sum = s.splat(0.0);
                for (weights, &j) in weights.iter().zip(&order[..kernel]) {
                    sum = s.fma(s.load_part(&weights[at..], S::LANES), s.load_part(&inputs[j][at..], S::LANES), sum);
                }
                let n = S::LANES.min(channels - at);
                s.store_part(&mut out[at..], n, Silu.apply(s, sum));
            }
        }
        for c in 0..channels {
            for j in 0..kernel {
                state[(first + c) * kernel + j] = inputs[(oldest + j) % kernel][c];
            }
        }
    }
}

#[inline(always)]
pub(crate) fn delta_rows<S: Simd>(s: S, task: DeltaRows<'_>, scratch: &mut AttendScratch, mut out: Window<'_>) {
    let (tokens, dk, dv) = (task.q.rows(), task.k.cols(), task.v.cols());
    let DeltaRows { q, k, v, g, beta, state } = task;
    let strip = scratch.take(dk * SIDE * S::LANES);
    // Some columns at a time, over all tokens: so much of the state stays in the L1. There it must lie side by side, or its
    // rows fall into few of the cache's sets.
    let mut at = 0;
    while at < dv {
        let width = if at + SIDE * S::LANES <= dv { SIDE * S::LANES } else { S::LANES.min(dv - at) };
        let packed = tokens >= WORTH_PACKING;
        if packed {
            for (to, from) in strip.chunks_exact_mut(width).zip(state.chunks_exact(dv)) {
                to.copy_from_slice(&from[at..at + width]);
            }
        }
        for t in 0..tokens {
            let step = Step {
                q: q.row(t),
                k: k.row(t),
                v: &v.row(t)[at..at + width],
                decay: g.row(t)[0].exp(),
                beta: beta.row(t)[0],
            };
            let out = &mut out.row_mut(t)[at..at + width];
            let (state, stride) = if packed { (&mut strip[..dk * width], width) } else { (&mut state[at..], dv) };
            if width == SIDE * S::LANES {
                step.run::<S, SIDE>(s, S::LANES, state, stride, out);
            } else {
                step.run::<S, 1>(s, width, state, stride, out);
            }
        }
        if packed {
            for (from, to) in strip.chunks_exact(width).zip(state.chunks_exact_mut(dv)) {
                to[at..at + width].copy_from_slice(from);
            }
        }
        at += width;
    }
}

/// A token's step on some columns of the state.
struct Step<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    decay: f32,
    beta: f32,
}

impl Step<'_> {
    /// `V` vectors of `n` numbers in each row of the state.
    #[inline(always)]
    fn run<S: Simd, const V: usize>(self, s: S, n: usize, state: &mut [f32], stride: usize, out: &mut [f32]) {
        let inverse = |x: &[f32]| 1.0 / (sum_squares(s, x) + 1e-6).sqrt();
        let k_factor = inverse(self.k);
        let q_factor = inverse(self.q) / (self.k.len() as f32).sqrt();
        let decay = s.splat(self.decay);
        let mut known = [s.splat(0.0); V];
        for (row, &k) in state.chunks(stride).zip(self.k) {
            let k = s.splat(k);
            for (i, known) in known.iter_mut().enumerate() {
                *known = s.fma(k, s.load_part(&row[i * S::LANES..], n), *known);
            }
        }
        let mut delta = [s.splat(0.0); V];
        for (i, delta) in delta.iter_mut().enumerate() {
            let known = s.mul(known[i], s.splat(self.decay * k_factor));
            let off = s.sub(s.load_part(&self.v[i * S::LANES..], n), known);
            *delta = s.mul(off, s.splat(self.beta * k_factor));
        }
        let mut read = [s.splat(0.0); V];
        for ((row, &k), &q) in state.chunks_mut(stride).zip(self.k).zip(self.q) {
            let (k, q) = (s.splat(k), s.splat(q));
            for i in 0..V {
                let place = &mut row[i * S::LANES..];
                let new = s.fma(k, delta[i], s.mul(decay, s.load_part(place, n)));
                s.store_part(place, n, new);
                read[i] = s.fma(q, new, read[i]);
            }
        }
        for (i, read) in read.into_iter().enumerate() {
            s.store_part(&mut out[i * S::LANES..], n, s.mul(read, s.splat(q_factor)));
        }
    }
}
