//! Are the gated delta net's steps right on every instruction set, and the same in chunks of any size?

mod common;

use common::{bits, difference, every_fast_isa, every_isa, random, scalar};
use lattice_kernels::{DeltaRows, Kernels, Rows, ShortConv, Window};

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
        kernels.delta_rows(task, Window::new(&mut out, range.len(), dv, dv));
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
        kernels.delta_rows(task, Window::dense(&mut out, 8));
        assert!(state.iter().all(|s| (s - 1.0).abs() < 1e-6), "{} {state:?}", kernels.isa());
        // q̂ = 1/√8 · 1/√8 each, eight of them, of a state of ones.
        assert!(out.iter().all(|o| (o - 1.0).abs() < 1e-5), "{} {out:?}", kernels.isa());
    }
}
