//! The gated delta net on the CPU: the convolution, then one task for each value head.
//!
//! Tokens go one by one, so that chunks of any size give the same bits; at precision fast many tokens go as matrix products,
//! which differ from these by rounding.

use super::attend::SCRATCH;
use super::{Cpu, Precision, SERIAL_VALUES, TASKS_PER_THREAD, values, vector};
use crate::state::{Delta, Past, State, StateCache, StateSpec};
use crate::value::{Act, Span};
use kernels::{DeltaRows, Rows, ShortConv, Window};
use std::sync::Mutex;

/// The states of a layer; one that was never written has no memory.
#[derive(Debug)]
pub(super) struct Slots {
    spec: StateSpec,
    slots: Vec<Mutex<Option<State>>>,
}

impl Slots {
    pub(super) fn new(spec: StateSpec) -> Slots {
        Slots { spec, slots: (0..spec.slots).map(|_| Mutex::new(None)).collect() }
    }

    pub(super) fn read(&self, slot: u32) -> State {
        let slot = self.slots[slot as usize].lock().expect("no panics under this lock");
        slot.clone().unwrap_or_else(|| zeroed(self.spec))
    }

    /// The state that a span goes on from.
    fn take(&self, past: &Past) -> Option<State> {
        let kept = self.slots[past.slot as usize].lock().expect("no panics under this lock").take();
        kept.filter(|_| past.tokens > 0)
    }

    fn put(&self, past: &Past, state: State) {
        *self.slots[past.slot as usize].lock().expect("no panics under this lock") = Some(state);
    }

    /// Keeps a copy of a state, in memory that the slot has already if it has any.
    fn save(&self, slot: u32, state: &State) {
        match &mut *self.slots[slot as usize].lock().expect("no panics under this lock") {
            Some(kept) => {
                kept.convolution.copy_from_slice(&state.convolution);
                kept.recurrent.copy_from_slice(&state.recurrent);
            }
            empty => *empty = Some(state.clone()),
        }
    }

    /// Makes slot `to` hold what slot `from` holds.
    pub(super) fn copy(&self, from: u32, to: u32) {
        assert_ne!(from, to, "a slot is no copy of itself");
        match &*self.slots[from as usize].lock().expect("no panics under this lock") {
            Some(state) => self.save(to, state),
            None => drop(self.slots[to as usize].lock().expect("no panics under this lock").take()),
        }
    }
}

fn zeroed(spec: StateSpec) -> State {
    let StateSpec { channels, kernel, heads, key_dim, value_dim, .. } = spec;
    State { convolution: vec![0.0; channels * kernel], recurrent: vec![0.0; heads * key_dim * value_dim] }
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
        let (channels, heads) = (delta.channels(), delta.value_heads);
        let Delta { key_dim, value_dim, kernel, .. } = *delta;
        assert_eq!(qkv.cols(), channels, "features of qkv");
        assert_eq!((a.cols(), b.cols()), (heads, heads), "a gate and a rate for each value head");
        let spec = StateSpec { slots: 0, channels, kernel, heads, key_dim, value_dim };
        let slots = states.map(|(cache, pasts)| {
            assert_eq!(StateSpec { slots: 0, ..cache.spec }, spec, "sizes of the state");
            (cache.memory.inner::<Slots>(), pasts)
        });
        self.act(qkv.rows(), heads * value_dim, |out| {
            let mut below = Window::dense(out, heads * value_dim);
            for (index, &span) in spans.iter().enumerate() {
                let (window, rest) = below.split_rows(span.len);
                below = rest;
                let kept = slots.and_then(|(slots, pasts)| slots.take(&pasts[index]));
                let mut state = kept.unwrap_or_else(|| zeroed(spec));
                let saves = slots.map_or(&[][..], |(_, pasts)| &pasts[index].saves);
                let mut pieces = window;
                let mut done = 0;
                // From one copy to the next, and to the end of the span.
                for end in saves.iter().map(Some).chain([None]) {
                    let len = end.map_or(span.len, |save| save.rows) - done;
                    let (piece, rest) = pieces.split_rows(len);
                    pieces = rest;
                    if len > 0 {
                        let rows = Span { start: span.start + done, len };
                        self.delta_span([qkv, a, b].map(|x| part(x, rows)), delta, &mut state, piece);
                    }
                    done += len;
                    if let (Some(save), Some((slots, _))) = (end, slots) {
                        slots.save(save.slot, &state);
                    }
                }
                if let Some((slots, pasts)) = slots {
                    slots.put(&pasts[index], state);
                }
            }
        })
    }

    /// One sequence: `inputs` are its rows of qkv, a and b.
    fn delta_span(&self, [qkv, a, b]: [Rows<'_>; 3], delta: &Delta, state: &mut State, out: Window<'_>) {
        let Delta { key_heads, value_heads, key_dim, value_dim, kernel, .. } = *delta;
        let (channels, tokens) = (delta.channels(), qkv.rows());
        let mut mixed = self.buffers.take(tokens * channels);
        self.convolve(qkv, vector(&delta.convolution), kernel, &mut state.convolution, mixed.values_mut());
        let (rates, shifts) = (vector(&delta.a_log), vector(&delta.dt_bias));

        let (mut tasks, mut right) = (Vec::new(), out);
        for (head, state) in state.recurrent.chunks_exact_mut(key_dim * value_dim).enumerate() {
            let (window, rest) = right.split_cols(value_dim);
            right = rest;
            tasks.push((head, state, window));
        }
        let mixed = Rows::dense(mixed.values(), channels);
        let run = |(head, state, window): (usize, &mut [f32], Window<'_>)| {
            let key = head / (value_heads / key_heads) * key_dim;
            let (keys, value) = (key_heads * key_dim, 2 * key_heads * key_dim + head * value_dim);
            let rate = -rates[head].exp();
            let decays: Vec<f32> = (0..tokens).map(|t| rate * softplus(a.row(t)[head] + shifts[head])).collect();
            let betas: Vec<f32> = (0..tokens).map(|t| 1.0 / (1.0 + (-b.row(t)[head]).exp())).collect();
            let task = DeltaRows {
                q: mixed.slice_cols(key..key + key_dim),
                k: mixed.slice_cols(keys + key..keys + key + key_dim),
                v: mixed.slice_cols(value..value + value_dim),
                g: Rows::dense(&decays, 1),
                beta: Rows::dense(&betas, 1),
                state,
            };
            SCRATCH.with_borrow_mut(|scratch| match self.precision {
                Precision::Fast => self.kernels.delta_chunks(task, scratch, window),
                Precision::Exact | Precision::Default => self.kernels.delta_rows(task, scratch, window),
            });
        };
        self.pool.each_of(tasks, run);
    }

    /// The convolution, by ranges of channels if there is enough to do.
    fn convolve(&self, x: Rows<'_>, weight: &[f32], kernel: usize, state: &mut [f32], out: &mut [f32]) {
        let channels = x.cols();
        let parts = if out.len() < SERIAL_VALUES { 1 } else { self.threads() * TASKS_PER_THREAD };
        let width = channels.div_ceil(parts).next_multiple_of(128);
        let (mut tasks, mut right) = (Vec::new(), Window::dense(out, channels));
        for (i, state) in state.chunks_mut(width * kernel).enumerate() {
            let cols = i * width..channels.min((i + 1) * width);
            let (window, rest) = right.split_cols(cols.len());
            right = rest;
            let weight = &weight[cols.start * kernel..cols.end * kernel];
            tasks.push((ShortConv { state, weight, kernel, x: x.slice_cols(cols) }, window));
        }
        self.pool.each_of(tasks, |(task, window)| self.kernels.short_conv(task, window));
    }
}

fn part(x: &Act, span: Span) -> Rows<'_> {
    Rows::dense(values(x), x.cols()).slice_rows(span.range())
}

/// `ln(1 + eˣ)`.
fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}
