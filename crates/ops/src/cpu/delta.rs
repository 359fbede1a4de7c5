//! The gated delta net on the CPU, token by token: one task for each sequence and value head.

use super::{Cpu, values, vector};
use crate::state::{Delta, Past, State, StateCache, StateSpec};
use crate::value::{Act, Span};
use kernels::{Activation, Kernels, Window};
use rayon::prelude::*;
use std::sync::Mutex;

/// The states of a layer; one that was never written has no memory.
#[derive(Debug)]
pub(super) struct Slots {
    spec: StateSpec,
    slots: Vec<Mutex<Option<Slot>>>,
}

/// What a sequence left: the last raw rows of qkv `[kernel, channels]`, oldest first, and a matrix for each head.
#[derive(Clone, Debug)]
struct Slot {
    convolution: Vec<f32>,
    recurrent: Vec<f32>,
}

impl Slot {
    fn zeroed(spec: StateSpec) -> Slot {
        let StateSpec { channels, kernel, heads, key_dim, value_dim, .. } = spec;
        Slot { convolution: vec![0.0; kernel * channels], recurrent: vec![0.0; heads * key_dim * value_dim] }
    }
}

impl Slots {
    pub(super) fn new(spec: StateSpec) -> Slots {
        Slots { spec, slots: (0..spec.slots).map(|_| Mutex::new(None)).collect() }
    }

    pub(super) fn read(&self, slot: u32) -> State {
        let slot = self.slots[slot as usize].lock().expect("no panics under this lock");
        let Slot { convolution, recurrent } = slot.clone().unwrap_or_else(|| Slot::zeroed(self.spec));
        let StateSpec { channels, kernel, .. } = self.spec;
        let by_channel = (0..channels).flat_map(|c| (0..kernel).map(move |k| k * channels + c));
        State { convolution: by_channel.map(|i| convolution[i]).collect(), recurrent }
    }
}

impl Cpu {
    pub(super) fn delta_net(
        &self,
        qkv: &Act,
        a: &Act,
        b: &Act,
        delta: &Delta,
        spans: &[Span],
        states: Option<(&StateCache, &[Past])>,
    ) -> Act {
        let Delta { value_heads: heads, key_dim, value_dim, kernel, .. } = *delta;
        let channels = delta.channels();
        assert_eq!(qkv.cols(), channels, "features of qkv");
        assert_eq!((a.cols(), b.cols()), (heads, heads), "a gate and a rate for each value head");
        let spec = StateSpec { slots: 0, channels, kernel, heads, key_dim, value_dim };
        let weight = by_row(vector(&delta.convolution), channels, kernel);
        let (rates, shifts) = (vector(&delta.a_log), vector(&delta.dt_bias));
        self.act(qkv.rows(), heads * value_dim, |out| {
            let mut below = Window::dense(out, heads * value_dim);
            for (index, span) in spans.iter().enumerate() {
                let (window, rest) = below.split_rows(span.len);
                below = rest;
                let slots = states.map(|(cache, pasts)| (cache.memory.inner::<Slots>(), &pasts[index]));
                let mut held = slots.map(|(s, past)| {
                    assert_eq!(StateSpec { slots: 0, ..s.spec }, spec, "sizes of the state");
                    (s.slots[past.slot as usize].lock().expect("no panics under this lock"), past.tokens > 0)
                });
                let kept = held.as_mut().and_then(|(slot, goes_on)| if *goes_on { slot.take() } else { None });
                let mut slot = kept.unwrap_or_else(|| Slot::zeroed(spec));
                let rows = &values(qkv)[span.start * channels..][..span.len * channels];
                let mut mixed = vec![0.0; rows.len()];
                convolve(self.kernels, channels, &mut slot.convolution, &weight, rows, &mut mixed);
                let gates = |x| &values(x)[span.start * heads..][..span.len * heads];
                let net = Net { delta, rows: &mixed, a: gates(a), b: gates(b), rates, shifts };
                self.heads(&net, &mut slot.recurrent, window);
                if let Some((held, _)) = &mut held {
                    **held = Some(slot);
                }
            }
        })
    }

    fn heads(&self, net: &Net<'_>, recurrent: &mut [f32], out: Window<'_>) {
        let Delta { key_dim, value_dim, .. } = *net.delta;
        let (mut tasks, mut right) = (Vec::new(), out);
        for (head, state) in recurrent.chunks_exact_mut(key_dim * value_dim).enumerate() {
            let (window, rest) = right.split_cols(value_dim);
            right = rest;
            tasks.push((head, state, window));
        }
        let run = |(head, state, window): (usize, &mut [f32], Window<'_>)| net.head(self.kernels, head, state, window);
        match self.threads() {
            1 => tasks.into_iter().for_each(run),
            _ => self.threads.install(|| tasks.into_par_iter().for_each(run)),
        }
    }
}

/// A span's inputs after the convolution.
struct Net<'a> {
    delta: &'a Delta,
    /// `[tokens, channels]`
    rows: &'a [f32],
    /// `[tokens, heads]`
    a: &'a [f32],
    /// `[tokens, heads]`
    b: &'a [f32],
    /// `a_log`, `[heads]`
    rates: &'a [f32],
    /// `dt_bias`, `[heads]`
    shifts: &'a [f32],
}

impl Net<'_> {
    /// One value head over all tokens; `state` is `[key_dim, value_dim]`.
    fn head(&self, kernels: &Kernels, head: usize, state: &mut [f32], mut out: Window<'_>) {
        let Delta { key_heads, value_heads, key_dim, value_dim, .. } = *self.delta;
        let key_head = head / (value_heads / key_heads);
        let (mut q, mut k, mut update) = (vec![0.0; key_dim], vec![0.0; key_dim], vec![0.0; value_dim]);
        for (token, row) in self.rows.chunks_exact(self.delta.channels()).enumerate() {
            let (keys, row_v) = (key_heads * key_dim, &row[2 * key_heads * key_dim..]);
            unit(kernels, &row[key_head * key_dim..], (key_dim as f32).powf(-0.5), &mut q);
            unit(kernels, &row[keys + key_head * key_dim..], 1.0, &mut k);
            let v = &row_v[head * value_dim..][..value_dim];
            let at = token * value_heads + head;
            let decay = (-self.rates[head].exp() * softplus(self.a[at] + self.shifts[head])).exp();
            let rate = 1.0 / (1.0 + (-self.b[at]).exp());

            kernels.scale(state, decay);
            update.fill(0.0);
            for (&k, row) in k.iter().zip(state.chunks_exact(value_dim)) {
                kernels.axpy(&mut update, k, row);
            }
            update.iter_mut().zip(v).for_each(|(u, v)| *u = rate * (v - *u));
            let read = out.row_mut(token);
            read.fill(0.0);
            for ((&k, &q), row) in k.iter().zip(&q).zip(state.chunks_exact_mut(value_dim)) {
                kernels.axpy(row, k, &update);
                kernels.axpy(read, q, row);
            }
        }
    }
}

/// `scale · x / √(Σx² + 1e-6)`.
fn unit(kernels: &Kernels, x: &[f32], scale: f32, out: &mut [f32]) {
    out.copy_from_slice(&x[..out.len()]);
    let length = (kernels.sum_squares(out) + 1e-6).sqrt();
    kernels.scale(out, scale / length);
}

/// `ln(1 + eˣ)`.
fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// `[channels, kernel]` as `[kernel, channels]`.
fn by_row(weight: &[f32], channels: usize, kernel: usize) -> Vec<f32> {
    (0..kernel).flat_map(|k| (0..channels).map(move |c| weight[c * kernel + k])).collect()
}

/// Each channel's sum over the last `kernel` rows, weighted, then SiLU. `state` holds the last `kernel` raw rows before,
/// and afterwards.
fn convolve(kernels: &Kernels, channels: usize, state: &mut Vec<f32>, weight: &[f32], rows: &[f32], out: &mut [f32]) {
    let kept = state.len();
    state.extend_from_slice(rows);
    let mut product = vec![0.0; channels];
    for (token, sum) in out.chunks_exact_mut(channels).enumerate() {
        // The rows that end with this token: the first of those kept lies one too far back.
        let window = state[(token + 1) * channels..][..kept].chunks_exact(channels);
        sum.fill(0.0);
        for (row, weight) in window.zip(weight.chunks_exact(channels)) {
            product.copy_from_slice(row);
            kernels.mul(&mut product, weight);
            kernels.add(sum, &product);
        }
    }
    kernels.activation(Activation::Silu, out);
    state.drain(..state.len() - kept);
}
