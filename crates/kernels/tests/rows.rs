//! Are the row kernels right on every instruction set, at any length and over the whole range of numbers?

mod common;

use common::{bits, difference, every_fast_isa, every_isa, random, scalar};
use lattice_kernels::{Activation, Kernels, RopeLayout};

/// Runs `kernel` on scalar and on every other instruction set at lengths 0 to 70 and two long ones.
fn compare(bound: f64, kernel: impl Fn(&Kernels, usize) -> Vec<f32>) {
    for len in (0..=70).chain([384, 1031]) {
        let want = kernel(scalar(), len);
        for kernels in every_fast_isa() {
            let off = difference(&kernel(kernels, len), &want);
            assert!(off <= bound, "{} at length {len}: off by {off:e}", kernels.isa());
        }
    }
}

#[test]
fn norms_agree_with_scalar() {
    let filled = |seed, len| random(seed, len);
    for offset in [0.0, 100.0] {
        let x = |len| filled(1, len).iter().map(|x| x + offset).collect::<Vec<_>>();
        // A common offset costs the digits that it takes from the numbers, before any norm sees them.
        let bound = if offset == 0.0 { 2e-6 } else { 2e-5 };
        compare(bound, |k, len| {
            let mut y = vec![f32::NAN; len];
            k.layer_norm(&x(len), &filled(2, len), Some(&filled(3, len)), 1e-5, &mut y);
            y
        });
        compare(bound, |k, len| {
            let mut y = vec![f32::NAN; len];
            k.layer_norm(&x(len), &filled(2, len), None, 1e-5, &mut y);
            y
        });
        compare(bound, |k, len| {
            let mut y = vec![f32::NAN; len];
            k.rms_norm(&x(len), &filled(2, len), 1e-6, &mut y);
            y
        });
        compare(bound, |k, len| {
            let (mut sum, mut y) = (x(len), vec![f32::NAN; len]);
            k.add_layer_norm(&mut sum, &filled(4, len), &filled(2, len), Some(&filled(3, len)), 1e-5, &mut y);
            [sum, y].concat()
        });
        compare(bound, |k, len| {
            let (mut sum, mut y) = (x(len), vec![f32::NAN; len]);
            k.add_rms_norm(&mut sum, &filled(4, len), &filled(2, len), 1e-6, &mut y);
            [sum, y].concat()
        });
    }
}

#[test]
fn a_constant_row_has_the_bias_as_its_layer_norm() {
    for kernels in every_isa() {
        let mut y = [f32::NAN; 5];
        kernels.layer_norm(&[3.25; 5], &[2.0; 5], Some(&[1.0, 2.0, 3.0, 4.0, 5.0]), 1e-12, &mut y);
        assert_eq!(y, [1.0, 2.0, 3.0, 4.0, 5.0], "{}", kernels.isa());
    }
}

#[test]
fn elementwise_kernels_equal_scalar_bit_for_bit() {
    compare(0.0, |k, len| {
        let (x, mut y) = (random(1, len), random(2, len));
        k.add(&mut y, &x);
        k.mul(&mut y, &x);
        k.max(&mut y, &random(3, len));
        k.scale(&mut y, 0.3);
        k.axpy(&mut y, -0.7, &x);
        y
    });
}

#[test]
fn reductions_agree_with_scalar() {
    compare(2e-7, |k, len| {
        let (x, mut y) = (random(1, len), random(2, len));
        let sums = [k.dot(&x, &y), k.sum_squares(&x)].map(|sum| sum / (len + 1) as f32).to_vec();
        k.l2_normalize(&mut y);
        [sums, y].concat()
    });
    for kernels in every_isa() {
        let mut zeros = [0.0; 9];
        kernels.l2_normalize(&mut zeros);
        assert_eq!(zeros, [0.0; 9]);
    }
}

#[test]
fn softmax_agrees_with_scalar() {
    for factor in [1.0, 30.0, 1e4] {
        compare(2e-7, |k, len| {
            let mut x: Vec<f32> = random(1, len).iter().map(|x| x * factor).collect();
            k.softmax(&mut x);
            x
        });
    }
    for kernels in every_isa() {
        let softmax = |mut x: Vec<f32>| {
            kernels.softmax(&mut x);
            x
        };
        assert_eq!(softmax(vec![-1e30]), [1.0]);
        assert_eq!(softmax(vec![f32::NEG_INFINITY, 5.0, f32::NEG_INFINITY, 5.0]), [0.0, 0.5, 0.0, 0.5]);
        assert_eq!(softmax(vec![f32::MAX, f32::MIN, f32::MAX]), [0.5, 0.0, 0.5]);
        assert!(softmax(vec![f32::NEG_INFINITY; 3]).iter().all(|x| x.is_nan()));
        for len in 1..40 {
            let mut row = random(5, len);
            row[len / 2] = f32::NAN;
            assert!(softmax(row).iter().all(|x| x.is_nan()), "{} NaN in {len}", kernels.isa());
        }
        // Down to the smallest normal numbers: exp(−x) / (1 + exp(−x)).
        for x in (0..873).map(|x| x as f32 / 10.0) {
            let got = softmax(vec![0.0, -x])[1];
            let want = (-f64::from(x)).exp() / (1.0 + (-f64::from(x)).exp());
            assert!(ulps(got, want) < 2.0, "{} softmax(0, −{x}): {got:e}, not {want:e}", kernels.isa());
        }
    }
}

/// How far `got` is from `want`, in units of the last place of the f32 nearest to `want`.
fn ulps(got: f32, want: f64) -> f64 {
    let near = want as f32;
    if got == near || (got.is_nan() && near.is_nan()) {
        return 0.0;
    }
    let next = f32::from_bits(near.abs().to_bits() + 1);
    (f64::from(got) - want).abs() / (f64::from(next) - f64::from(near.abs()))
}

/// Every 997th f32 there is, of both signs, with the special ones.
fn all_magnitudes() -> Vec<f32> {
    let special = [0.0, f32::MIN_POSITIVE, f32::MAX, f32::INFINITY, f32::NAN];
    let positive: Vec<f32> = (0..f32::INFINITY.to_bits()).step_by(997).map(f32::from_bits).chain(special).collect();
    positive.iter().map(|x| -x).chain(positive.iter().copied()).collect()
}

#[test]
fn activations_keep_their_error_over_all_magnitudes() {
    let x = all_magnitudes();
    for &kind in Activation::ALL {
        let mut want = x.clone();
        scalar().activation(kind, &mut want);
        // In 2^-24 of the result, the half of its last place or less; of x for GELU, whose left tail need not be as good.
        for kernels in every_fast_isa() {
            let mut got = x.clone();
            kernels.activation(kind, &mut got);
            let mut worst = (0.0, 0.0);
            for ((&x, &got), &want) in x.iter().zip(&got).zip(&want) {
                assert_eq!(got.is_nan(), want.is_nan(), "{} {kind:?}({x:e}) = {got:e}, not {want:e}", kernels.isa());
                // Where 1 + exp(−x) overflows, what is left below 1e-35 is lost.
                if got == want || got.is_nan() || (f64::from(got) - f64::from(want)).abs() < 1e-35 {
                    continue;
                }
                let unit = match kind {
                    Activation::Gelu | Activation::GeluTanh => f64::from(x.abs()) * 2f64.powi(-24),
                    _ => f64::from(want.abs()) * 2f64.powi(-24),
                };
                let off = (f64::from(got) - f64::from(want)).abs() / unit;
                if off > worst.0 {
                    worst = (off, x);
                }
            }
            let bound = match kind {
                Activation::Relu | Activation::Relu2 => 0.0,
                Activation::QuickGelu => 100.0, // exp(1.702 x) multiplies the rounding of its argument
                _ => 4.0,
            };
            println!("{} {kind:?}: {:.2} · 2^-24 at {:e}", kernels.isa(), worst.0, worst.1);
            assert!(worst.0 <= bound, "{} {kind:?}({:e}) is off by {:.2} · 2^-24", kernels.isa(), worst.1, worst.0);
        }
    }
}

#[test]
fn a_number_has_the_same_result_anywhere_in_a_row() {
    for kernels in every_isa() {
        let x = random(1, 67);
        for &kind in Activation::ALL {
            let mut all = x.clone();
            kernels.activation(kind, &mut all);
            let mut gated = x.clone();
            kernels.glu(kind, &mut gated, &x);
            for (i, &x) in x.iter().enumerate() {
                let (mut one, mut gate) = ([x], [x]);
                kernels.activation(kind, &mut one);
                kernels.glu(kind, &mut gate, &[x]);
                assert_eq!(bits(&one), bits(&all[i..=i]), "{} {kind:?}", kernels.isa());
                assert_eq!(bits(&gate), bits(&gated[i..=i]), "{} {kind:?}", kernels.isa());
            }
        }
    }
}

#[test]
fn gated_units_agree_with_scalar() {
    for &kind in Activation::ALL {
        compare(5e-7, |k, len| {
            let mut gate = random(1, len);
            k.glu(kind, &mut gate, &random(2, len));
            gate
        });
    }
}

#[test]
fn rope_agrees_with_scalar_and_leaves_the_rest_alone() {
    for layout in [RopeLayout::Half, RopeLayout::Interleaved] {
        for (heads, head_dim, pairs) in
            [(1, 2, 1), (3, 64, 32), (2, 80, 40), (2, 80, 16), (4, 12, 3), (2, 50, 25), (1, 5, 0)]
        {
            let angles: Vec<f32> = random(1, pairs).iter().map(|x| x * 10.0).collect();
            let cos: Vec<f32> = angles.iter().map(|x| x.cos()).collect();
            let sin: Vec<f32> = angles.iter().map(|x| x.sin()).collect();
            let row = random(2, heads * head_dim);
            let mut want = row.clone();
            scalar().rope(&mut want, head_dim, &cos, &sin, layout);
            for kernels in every_fast_isa() {
                let mut got = row.clone();
                kernels.rope(&mut got, head_dim, &cos, &sin, layout);
                assert!(difference(&got, &want) < 3e-7, "{} {layout:?} {heads} x {head_dim}, {pairs}", kernels.isa());
                for (got, row) in got.chunks(head_dim).zip(row.chunks(head_dim)) {
                    assert_eq!(got[2 * pairs..], row[2 * pairs..]);
                }
            }
        }
    }
}
