//! Are the gated delta net's steps right on every instruction set, and the same in chunks of any size?

mod common;

use common::{bits, difference, every_fast_isa, every_isa, random, scalar};
use lattice_kernels::{AttendScratch, DeltaRows, Kernels, Rows, ShortConv, Window};

fn convolve(kernels: &Kernels, state: &mut [f32], weight: &[f32], kernel: usize, x: Rows<'_>) -> Vec<f32> {
    let mut out = vec![f32::NAN; x.rows() * x.cols()];
    let window = Window::new(&mut out, x.rows(), x.cols(), x.cols());
    kernels.short_conv(ShortConv { state, weight, kernel, x }, window);
    out
}

#[test]
fn convolution_agrees_with_scalar_and_with_itself_in_chunks() {
    for (channels, kernel, tokens) in [(40, 4, 9), (1, 1, 3), (7, 2, 5), (16, 4, 1), (33, 16, 20), (128, 3, 2)] {
        let (weight, before) = (random(1, channels * kernel), random(2, channels * kernel));
        let x = random(3, tokens * (channels + 2));
        let x = Rows::new(&x, tokens, channels, channels + 2);
        let mut want_state = before.clone();
        let want = convolve(scalar(), &mut want_state, &weight, kernel, x);
        for kernels in every_isa() {
            let mut state = before.clone();
            let got = convolve(kernels, &mut state, &weight, kernel, x);
            let off = difference(&got, &want);
            assert!(off < 2e-6, "{} {channels} x {kernel}: off by {off:e}", kernels.isa());
            assert_eq!(state, want_state, "{} {channels} x {kernel}", kernels.isa());
            for chunk in [1, 2, 7] {
                let (mut state, mut parts) = (before.clone(), Vec::new());
                for start in (0..tokens).step_by(chunk) {
                    let rows = x.slice_rows(start..tokens.min(start + chunk));
                    parts.extend(convolve(kernels, &mut state, &weight, kernel, rows));
                }
                assert_eq!((bits(&parts), bits(&state)), (bits(&got), bits(&want_state)), "chunks of {chunk}");
            }
        }
    }
}

/// All numbers of a head's tokens side by side: q, k, v, g, beta.
struct Tokens {
    numbers: Vec<f32>,
    count: usize,
    dk: usize,
    dv: usize,
}

impl Tokens {
    fn new(count: usize, dk: usize, dv: usize) -> Tokens {
        let width = 2 * dk + dv + 2;
        let mut numbers = random(4, count * width);
        for row in numbers.chunks_mut(width) {
            row[width - 2] = -row[width - 2].abs() * 2.0;
            row[width - 1] = row[width - 1].abs();
        }
        Tokens { numbers, count, dk, dv }
    }

    fn run(&self, kernels: &Kernels, range: std::ops::Range<usize>, state: &mut [f32]) -> Vec<f32> {
        self.with(range, state, |task, out| kernels.delta_rows(task, &mut AttendScratch::new(), out))
    }

    fn run_chunks(&self, kernels: &Kernels, state: &mut [f32]) -> Vec<f32> {
        self.with(0..self.count, state, |task, out| kernels.delta_chunks(task, &mut AttendScratch::new(), out))
    }

    fn with(
        &self,
        range: std::ops::Range<usize>,
        state: &mut [f32],
        run: impl Fn(DeltaRows<'_>, Window<'_>),
    ) -> Vec<f32> {
        let (dk, dv) = (self.dk, self.dv);
        let width = 2 * dk + dv + 2;
        let all = Rows::new(&self.numbers, self.count, width, width).slice_rows(range.clone());
        let mut out = vec![f32::NAN; range.len() * dv];
        let task = DeltaRows {
            q: all.slice_cols(0..dk),
            k: all.slice_cols(dk..2 * dk),
            v: all.slice_cols(2 * dk..2 * dk + dv),
            g: all.slice_cols(2 * dk + dv..width - 1),
            beta: all.slice_cols(width - 1..width),
            state,
        };
        run(task, Window::new(&mut out, range.len(), dv, dv));
        out
    }
}

#[test]
fn recurrence_agrees_with_scalar_at_every_dimension() {
    for (tokens, dk, dv) in [(1, 128, 128), (40, 128, 128), (9, 16, 24), (5, 7, 3), (12, 1, 1), (6, 64, 77), (0, 8, 8)]
    {
        let case = Tokens::new(tokens, dk, dv);
        let before = random(5, dk * dv);
        let mut want_state = before.clone();
        let want = case.run(scalar(), 0..tokens, &mut want_state);
        for kernels in every_fast_isa() {
            let mut state = before.clone();
            let off = difference(&case.run(kernels, 0..tokens, &mut state), &want);
            let state_off = difference(&state, &want_state);
            assert!(off < 5e-6 && state_off < 5e-6, "{} {tokens} x {dk} x {dv}: {off:e}, {state_off:e}", kernels.isa());
        }
    }
}

#[test]
fn recurrence_in_chunks_has_the_bits_of_the_whole() {
    let (tokens, dk, dv) = (50, 32, 40);
    let case = Tokens::new(tokens, dk, dv);
    for kernels in every_isa() {
        let mut whole_state = vec![0.0; dk * dv];
        let whole = case.run(kernels, 0..tokens, &mut whole_state);
        for chunk in [1, 7, 32] {
            let (mut state, mut parts) = (vec![0.0; dk * dv], Vec::new());
            for start in (0..tokens).step_by(chunk) {
                parts.extend(case.run(kernels, start..tokens.min(start + chunk), &mut state));
            }
            assert_eq!(bits(&parts), bits(&whole), "{} chunks of {chunk}", kernels.isa());
            assert_eq!(bits(&state), bits(&whole_state), "{} chunks of {chunk}", kernels.isa());
        }
    }
}

fn largest(x: &[f32]) -> f64 {
    x.iter().fold(1e-30, |most, x| f64::from(x.abs()).max(most))
}

#[test]
fn chunks_as_matrix_products_agree_with_the_recurrence() {
    let mut failures = Vec::new();
    for (dk, dv) in [(128, 128), (64, 77), (16, 24), (5, 7), (1, 1), (33, 130)] {
        for tokens in [0, 1, 2, 5, 6, 8, 15, 16, 17, 31, 32, 33, 47, 100, 200] {
            // Decays that forget nearly nothing, that forget at once, and both in turns.
            for (weak, strong) in [(1e-3, 1e-3), (1.0, 1.0), (60.0, 60.0), (1e-4, 300.0)] {
                let mut case = Tokens::new(tokens, dk, dv);
                let width = 2 * dk + dv + 2;
                for (t, row) in case.numbers.chunks_mut(width).enumerate() {
                    row[width - 2] *= if t % 5 == 3 { strong } else { weak };
                }
                let before = random(5, dk * dv);
                let mut want_state = before.clone();
                let want = case.run(scalar(), 0..tokens, &mut want_state);
                for kernels in every_isa() {
                    let mut state = before.clone();
                    let off = difference(&case.run_chunks(kernels, &mut state), &want) / largest(&want);
                    let state_off = difference(&state, &want_state) / largest(&want_state);
                    if !(off < 1e-5 && state_off < 1e-5) {
                        let isa = kernels.isa();
                        failures.push(format!("{isa} {tokens} x {dk} x {dv}, {weak} {strong}: {off:e}, {state_off:e}"));
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn chunks_of_equal_keys_and_full_rates_stay_exact() {
    // Each token replaces what the one before it left under the same key: nothing may build up.
    let (tokens, dk, dv) = (300, 32, 16);
    let mut case = Tokens::new(tokens, dk, dv);
    let width = 2 * dk + dv + 2;
    let key = random(9, dk);
    for row in case.numbers.chunks_mut(width) {
        row[..dk].copy_from_slice(&key);
        row[dk..2 * dk].copy_from_slice(&key);
        row[width - 2..].copy_from_slice(&[0.0, 1.0]);
    }
    for kernels in every_isa() {
        let out = case.run_chunks(kernels, &mut vec![0.0; dk * dv]);
        for (out, row) in out.chunks(dv).zip(case.numbers.chunks(width)) {
            let want: Vec<f32> = row[2 * dk..2 * dk + dv].iter().map(|v| v / (dk as f32).sqrt()).collect();
            assert!(difference(out, &want) < 1e-6, "{}", kernels.isa());
        }
    }
}

#[test]
fn a_key_of_zeros_changes_nothing_but_the_decay() {
    for kernels in every_isa() {
        let zeros = [0.0; 8];
        let (ones, half) = ([1.0f32; 8], [0.5f32.ln()]);
        let mut state = vec![2.0; 64];
        let mut out = vec![f32::NAN; 8];
        let row = |x| Rows::dense(x, 8);
        let task = DeltaRows {
            q: row(&ones),
            k: row(&zeros),
            v: row(&ones),
            g: Rows::dense(&half, 1),
            beta: Rows::dense(&ones[..1], 1),
            state: &mut state,
        };
        kernels.delta_rows(task, &mut AttendScratch::new(), Window::dense(&mut out, 8));
        assert!(state.iter().all(|s| (s - 1.0).abs() < 1e-6), "{} {state:?}", kernels.isa());
        // q̂ = 1/√8 · 1/√8 each, eight of them, of a state of ones.
        assert!(out.iter().all(|o| (o - 1.0).abs() < 1e-5), "{} {out:?}", kernels.isa());
    }
}
