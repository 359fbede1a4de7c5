//! Is attention right on every instruction set, whatever the mask, and is a query's result its own?

mod common;

use common::{bits, difference, every_fast_isa, every_isa, random, scalar};
use lattice_kernels::{Attend, AttendScratch, Kernels, Mask, RelativeBias, Rows, Window};

const MASKS: [Mask; 6] = [
    Mask::Full,
    Mask::Causal,
    Mask::Window { left: 64, right: 64 },
    Mask::Window { left: 5, right: 0 },
    Mask::Window { left: 0, right: 3 },
    Mask::Window { left: 200, right: 0 },
];

/// In f32 and in bf16 pieces, with how many times as far from the right numbers results may be.
const PIECES: [(Option<usize>, f64); 3] = [(None, 1.0), (Some(2), 50.0), (Some(1), 1e4)];

fn attend(kernels: &Kernels, task: &Attend<'_>) -> Vec<f32> {
    let mut out = vec![f32::NAN; task.q.rows() * task.v.cols()];
    let out_window = Window::new(&mut out, task.q.rows(), task.v.cols(), task.v.cols());
    kernels.attend(task, &mut AttendScratch::new(), out_window);
    out
}

fn task<'a>(q: Rows<'a>, k: Rows<'a>, v: Rows<'a>, past: usize, mask: Mask) -> Attend<'a> {
    Attend {
        q,
        k,
        v,
        past,
        scale: 1.0 / (q.cols().max(1) as f32).sqrt(),
        mask,
        softcap: None,
        bias: None,
        pieces: None,
    }
}

#[test]
fn agrees_with_scalar_at_every_dimension_length_and_mask() {
    let mut failures = Vec::new();
    let mut scratch = AttendScratch::new();
    for (dim, value_dim) in [(32, 32), (64, 64), (80, 80), (128, 128), (256, 256), (8, 8), (12, 12), (1, 1), (33, 7)] {
        for (queries, keys, past) in
            [(1, 1, 0), (1, 300, 299), (7, 7, 0), (30, 130, 100), (128, 128, 0), (140, 140, 0), (3, 260, 10)]
        {
            for mask in MASKS {
                let stride = 2 * dim + 5;
                let (q, k) = (random(1, queries * stride), random(2, keys * stride));
                let v = random(3, keys * value_dim);
                let q = Rows::new(&q, queries, dim, stride);
                let k = Rows::new(&k, keys, dim, stride);
                let task = Attend { scale: 1.5, ..task(q, k, Rows::dense(&v, value_dim), past, mask) };
                let want = attend(scalar(), &task);
                for (kernels, (pieces, times)) in every_fast_isa().into_iter().flat_map(|k| PIECES.map(|p| (k, p))) {
                    let mut got = vec![f32::NAN; want.len()];
                    kernels.attend(&Attend { pieces, ..task }, &mut scratch, Window::dense(&mut got, value_dim));
                    let off = difference(&got, &want);
                    if off > 1e-5 * times {
                        failures.push(format!(
                            "{} dim {dim}, {queries} queries after {past}, {keys} keys, {mask:?}, {pieces:?} pieces: off by {off:e}",
                            kernels.isa()
                        ));
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn softcap_and_relative_bias_agree_with_scalar() {
    let (queries, keys, dim, past) = (20, 150, 24, 130);
    let (q, k, v) = (random(1, queries * dim), random(2, keys * dim), random(3, keys * dim));
    let bias = random(4, keys + 200);
    for mask in MASKS {
        for (softcap, biased) in [(Some(2.0), false), (None, true), (Some(1.0), true)] {
            let task = Attend {
                softcap,
                bias: biased.then_some(RelativeBias { values: &bias, offset: 170 }),
                ..task(Rows::dense(&q, dim), Rows::dense(&k, dim), Rows::dense(&v, dim), past, mask)
            };
            let want = attend(scalar(), &task);
            for (kernels, (pieces, times)) in every_fast_isa().into_iter().flat_map(|k| PIECES.map(|p| (k, p))) {
                let off = difference(&attend(kernels, &Attend { pieces, ..task }), &want);
                let isa = kernels.isa();
                assert!(off < 2e-6 * times, "{isa} {mask:?} {softcap:?} {biased} {pieces:?}: off by {off:e}");
            }
        }
    }
}

#[test]
fn a_query_alone_equals_the_query_among_others_bit_for_bit() {
    let (length, dim) = (290, 40);
    let (q, k, v) = (random(1, length * dim), random(2, length * dim), random(3, length * dim));
    let (q, k, v) = (Rows::dense(&q, dim), Rows::dense(&k, dim), Rows::dense(&v, dim));
    for (kernels, (pieces, _)) in every_isa().into_iter().flat_map(|k| PIECES.map(|p| (k, p))) {
        let task = |q, k, v, past, mask| Attend { pieces, ..task(q, k, v, past, mask) };
        for mask in MASKS {
            let together = attend(kernels, &task(q, k, v, 0, mask));
            for start in (0..length).step_by(7) {
                for count in [1, 4, 13] {
                    let range = start..length.min(start + count);
                    let part = attend(kernels, &task(q.slice_rows(range.clone()), k, v, start, mask));
                    assert_eq!(bits(&part), bits(&together[range.start * dim..range.end * dim]), "{mask:?} {range:?}");
                }
            }
        }
        // A causal query does not know of the keys behind it, as while decoding.
        let together = attend(kernels, &task(q, k, v, 0, Mask::Causal));
        for i in (0..length).step_by(13) {
            let (k, v) = (k.slice_rows(0..i + 1), v.slice_rows(0..i + 1));
            let alone = attend(kernels, &task(q.slice_rows(i..i + 1), k, v, i, Mask::Causal));
            assert_eq!(bits(&alone), bits(&together[i * dim..][..dim]), "query {i}");
        }
    }
}

#[test]
fn a_query_that_sees_nothing_gets_zeros() {
    for (kernels, (pieces, _)) in every_isa().into_iter().flat_map(|k| PIECES.map(|p| (k, p))) {
        let task = |q, k, v, past, mask| Attend { pieces, ..task(q, k, v, past, mask) };
        let ones = [1.0; 40];
        let rows = Rows::dense(&ones, 4);
        let behind = Mask::Window { left: 2, right: 0 };
        let out = attend(kernels, &task(rows.slice_rows(0..4), rows, rows, 10, behind));
        assert_eq!(out, [[1.0; 4], [1.0; 4], [0.0; 4], [0.0; 4]].concat(), "{}", kernels.isa());
        let nothing = rows.slice_rows(0..0);
        assert_eq!(attend(kernels, &task(rows.slice_rows(0..2), nothing, nothing, 0, Mask::Full)), [0.0; 8]);
    }
}

#[test]
fn enormous_scores_stay_finite() {
    let (k, v) = (random(2, 200 * 16), random(3, 200 * 16));
    let q: Vec<f32> = random(1, 9 * 16).iter().map(|x| x * 1e6).collect();
    let task = task(Rows::dense(&q, 16), Rows::dense(&k, 16), Rows::dense(&v, 16), 0, Mask::Full);
    let want = attend(scalar(), &task);
    for kernels in every_fast_isa() {
        let off = difference(&attend(kernels, &task), &want);
        assert!(off < 1e-3, "{}: off by {off:e}", kernels.isa());
        for pieces in [Some(1), Some(2)] {
            // Which of two such scores is the larger is beyond their precision.
            let values = attend(kernels, &Attend { pieces, ..task });
            assert!(values.iter().all(|x| x.abs() <= 1.01), "{} {pieces:?}: {values:?}", kernels.isa());
        }
    }
}

#[test]
#[should_panic(expected = "do not cover")]
fn refuses_a_bias_that_is_too_short() {
    let ones = [1.0; 40];
    let rows = Rows::dense(&ones, 4);
    let bias = Some(RelativeBias { values: &ones[..18], offset: 9 });
    attend(scalar(), &Attend { bias, ..task(rows, rows, rows, 0, Mask::Full) });
}
