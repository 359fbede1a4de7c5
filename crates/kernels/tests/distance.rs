//! Are distances right on every level of instructions: all lengths, all kinds of numbers, and the ends of their ranges?

mod common;

use common::random;
use lattice_kernels::distance::{Bf16, Bits, Element, F16, F32, I8, Stored};
use lattice_kernels::{Distances, Isa, Metric, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};

/// Every length up to some vectors of the widest level, and those of embeddings.
fn lengths() -> impl Iterator<Item = usize> {
    (0..150).chain([255, 256, 257, 383, 384, 385, 768, 1000, 1024, 1536, 4096])
}

fn scalar() -> &'static Distances {
    Distances::for_isa(Isa::Scalar).unwrap()
}

fn halves(x: &[f32]) -> Vec<u16> {
    x.iter().map(|&x| f32_to_f16(x)).collect()
}

fn brains(x: &[f32]) -> Vec<u16> {
    x.iter().map(|&x| f32_to_bf16(x)).collect()
}

fn bytes(x: &[f32]) -> Vec<i8> {
    x.iter().map(|&x| (x * 128.0) as i8).collect()
}

fn bits(x: &[f32]) -> Vec<u8> {
    bytes(x).iter().map(|&x| x as u8).collect()
}

/// Compares all levels with scalar: `slack` of the largest that the sum of the terms could be is allowed.
fn compare<E: Element>(
    what: &str,
    slack: f64,
    values: impl Fn(&[f32]) -> Vec<Stored<E>>,
    widen: impl Fn(Stored<E>) -> f64,
) {
    let mut failures = Vec::new();
    for len in lengths() {
        let (a, b) = (values(&random(1, len)), values(&random(2, len)));
        let pairs = || a.iter().zip(&b).map(|(&a, &b)| (widen(a), widen(b)));
        for &metric in Metric::ALL {
            let size = match metric {
                Metric::Cosine => 1.0,
                Metric::Dot => pairs().map(|(a, b)| (a * b).abs()).sum::<f64>(),
                Metric::SquaredEuclidean => pairs().map(|(a, b)| (a - b) * (a - b)).sum(),
                Metric::Euclidean => pairs().map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt(),
                Metric::Hamming => 0.0,
            };
            let want = scalar().one::<E>(metric, &a, &b);
            for level in Distances::available() {
                let got = level.one::<E>(metric, &a, &b);
                let off = (f64::from(got) - f64::from(want)).abs();
                // One rounding of the result is always allowed.
                if off.is_nan() || off > slack * size + f64::from(want.abs()) * 6e-8 {
                    failures.push(format!("{what} {level:?} {metric:?} of {len}: {got} for {want}"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn floats_agree_with_scalar_at_every_length() {
    compare::<F32>("f32", 4e-7, <[f32]>::to_vec, f64::from);
    compare::<F16>("f16", 4e-7, halves, |x| f16_to_f32(x).into());
    compare::<Bf16>("bf16", 4e-7, brains, |x| bf16_to_f32(x).into());
}

#[test]
fn integers_and_bits_are_exact_but_for_the_last_rounding() {
    compare::<I8>("i8", 2e-7, bytes, f64::from);
    compare::<Bits>("bits", 1e-7, bits, f64::from);
}

#[test]
fn a_row_of_a_matrix_has_the_bits_of_the_pair_alone() {
    fn check<E: Element>(values: impl Fn(&[f32]) -> Vec<Stored<E>>) {
        for level in Distances::available() {
            for len in [1, 3, 8, 15, 16, 33, 100, 384, 385, 1024] {
                let (query, rows) = (values(&random(1, len)), values(&random(2, len * 9)));
                for &metric in Metric::ALL {
                    let mut out = [f32::NAN; 9];
                    level.many::<E>(metric, &query, &rows, &mut out);
                    for (i, (row, out)) in rows.chunks(len).zip(out).enumerate() {
                        let alone = level.one::<E>(metric, &query, row);
                        assert_eq!(alone.to_bits(), out.to_bits(), "{level:?} {metric:?} row {i} of {len}");
                    }
                    if metric == Metric::Cosine {
                        let (mut lengths, mut known) = ([f32::NAN; 9], [f32::NAN; 9]);
                        level.inverse_lengths::<E>(len, &rows, &mut lengths);
                        level.cosines::<E>(&query, &rows, &lengths, &mut known);
                        let off = out.iter().zip(known).map(|(out, known)| (out - known).abs()).fold(0.0, f32::max);
                        assert!(off <= 3e-7, "{level:?} {len} with known lengths: off by {off}");
                    }
                }
            }
        }
    }
    check::<F32>(<[f32]>::to_vec);
    check::<F16>(halves);
    check::<Bf16>(brains);
    check::<I8>(bytes);
    check::<Bits>(bits);
}

#[test]
fn the_ends_of_the_range_are_right() {
    type Pair = (&'static str, Metric, Vec<f32>, Vec<f32>, f32);
    let cases: Vec<Pair> = vec![
        ("largest, cosine", Metric::Cosine, vec![f32::MAX; 40], vec![f32::MAX; 40], 1.0),
        ("largest, opposite", Metric::Cosine, vec![f32::MAX; 40], vec![-f32::MAX; 40], -1.0),
        ("smallest, cosine", Metric::Cosine, vec![1e-45; 40], vec![1e-45; 40], 1.0),
        ("smallest with largest", Metric::Cosine, vec![1e-45; 40], vec![f32::MAX; 40], 1.0),
        ("zeros, cosine", Metric::Cosine, vec![0.0; 40], vec![1.0; 40], 0.0),
        ("zeros, both signs", Metric::Cosine, vec![0.0; 40], vec![-0.0; 40], 0.0),
        ("sums that cancel", Metric::Dot, [vec![f32::MAX; 20], vec![-f32::MAX; 20]].concat(), vec![2.0; 40], 0.0),
        ("too large", Metric::Dot, vec![f32::MAX; 40], vec![2.0; 40], f32::INFINITY),
        ("squares too large", Metric::SquaredEuclidean, vec![1e30; 40], vec![0.0; 40], f32::INFINITY),
        ("length of large", Metric::Euclidean, vec![3e30; 16], vec![0.0; 16], 1.2e31),
        ("length of small", Metric::Euclidean, vec![3e-40; 16], vec![0.0; 16], 1.2e-39),
        ("the same", Metric::Euclidean, vec![0.3; 40], vec![0.3; 40], 0.0),
        ("zeros are equal", Metric::Hamming, vec![0.0; 40], vec![-0.0; 40], 0.0),
        ("NaN differs", Metric::Hamming, vec![f32::NAN; 40], vec![f32::NAN; 40], 40.0),
        ("NaN, cosine", Metric::Cosine, vec![f32::NAN; 40], vec![1.0; 40], f32::NAN),
        ("NaN with zeros", Metric::Cosine, vec![f32::NAN; 40], vec![0.0; 40], f32::NAN),
        ("infinity, cosine", Metric::Cosine, vec![f32::INFINITY; 40], vec![1.0; 40], f32::NAN),
        ("infinity, dot", Metric::Dot, vec![f32::INFINITY; 40], vec![1.0; 40], f32::INFINITY),
        ("infinities, length", Metric::Euclidean, vec![f32::INFINITY; 40], vec![1.0; 40], f32::INFINITY),
        ("infinities, difference", Metric::Euclidean, vec![f32::INFINITY; 40], vec![f32::INFINITY; 40], f32::NAN),
        ("nothing", Metric::Cosine, vec![], vec![], 0.0),
        ("nothing", Metric::Dot, vec![], vec![], 0.0),
    ];
    let same = |got: f32, want: f32| {
        got == want || got.is_nan() && want.is_nan() || (got - want).abs() <= want.abs() * 2e-7 + 2e-45
    };
    for level in Distances::available() {
        for (what, metric, a, b, want) in &cases {
            let got = level.one::<F32>(*metric, a, b);
            assert!(same(got, *want), "{what}, {level:?}: {got} for {want}");
            let mut out = [0.5; 2];
            level.many::<F32>(*metric, a, &[&b[..], b].concat(), &mut out);
            assert!(out.iter().all(|&out| same(out, *want)), "{what} in a matrix, {level:?}: {out:?} for {want}");
            if *metric == Metric::Cosine {
                let mut lengths = [0.5; 2];
                level.inverse_lengths::<F32>(b.len(), &[&b[..], b].concat(), &mut lengths);
                level.cosines::<F32>(a, &[&b[..], b].concat(), &lengths, &mut out);
                assert!(
                    out.iter().all(|&out| same(out, *want)),
                    "{what}, lengths known, {level:?}: {out:?} for {want}"
                );
            }
        }
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 17, 40] {
                let (mut a, b) = (random(1, 41), random(2, 41));
                a[at] = bad;
                assert!(level.one::<F32>(Metric::Cosine, &a, &b).is_nan(), "{level:?} {bad} at {at}");
                assert!(!level.one::<F32>(Metric::SquaredEuclidean, &a, &b).is_finite(), "{level:?} {bad} at {at}");
            }
        }
        for len in [1, 384, 40_000, 100_001] {
            let (low, high) = (vec![-128i8; len], vec![127i8; len]);
            assert_eq!(level.one::<I8>(Metric::Dot, &low, &low), (16384 * len as u64) as f32, "{level:?} {len}");
            assert_eq!(level.one::<I8>(Metric::Dot, &low, &high), -((16256 * len as u64) as f32), "{level:?} {len}");
            let squared = level.one::<I8>(Metric::SquaredEuclidean, &low, &high);
            assert_eq!(squared, (65025 * len as u64) as f32, "{level:?} {len}");
            assert_eq!(level.one::<I8>(Metric::Cosine, &low, &low), 1.0, "{level:?} {len}");
            let (clear, set) = (vec![0u8; len], vec![0xffu8; len]);
            assert_eq!(level.one::<Bits>(Metric::Hamming, &clear, &set), (8 * len) as f32, "{level:?} {len}");
            assert_eq!(level.one::<Bits>(Metric::Cosine, &clear, &set), 0.0, "{level:?} {len}");
        }
        let halves = [0x7bffu16; 40];
        assert_eq!(level.one::<F16>(Metric::Cosine, &halves, &halves), 1.0, "{level:?}");
        let brains = [0x7f7fu16; 40];
        assert_eq!(level.one::<Bf16>(Metric::Cosine, &brains, &brains), 1.0, "{level:?}");
    }
}

#[test]
fn a_vector_has_cosine_one_with_itself_and_with_its_multiples() {
    for level in Distances::available() {
        for len in [3, 384, 1000] {
            for scale in [1.0, 1e-20, 1e20] {
                let a: Vec<f32> = random(5, len).iter().map(|x| x * scale).collect();
                let twice: Vec<f32> = a.iter().map(|x| x * 2.0).collect();
                assert_eq!(level.one::<F32>(Metric::Cosine, &a, &a), 1.0, "{level:?} {len} {scale}");
                assert_eq!(level.one::<F32>(Metric::Cosine, &a, &twice), 1.0, "{level:?} {len} {scale}");
            }
        }
    }
}

#[test]
fn normalized_vectors_have_length_one() {
    for level in Distances::available() {
        for len in [1, 7, 384, 385] {
            for scale in [1.0, 1e-30, 1e-44, 1e30, 3e38] {
                let mut x: Vec<f32> = random(3, len).iter().map(|x| (x + 1.5) / 2.5 * scale).collect();
                level.normalize::<F32>(&mut x);
                let length = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
                assert!((length - 1.0).abs() < 2e-7, "{level:?} {len} {scale}: {length}");
            }
            let mut x = halves(&random(3, len));
            level.normalize::<F16>(&mut x);
            let length = x.iter().map(|&x| f64::from(f16_to_f32(x)).powi(2)).sum::<f64>().sqrt();
            assert!((length - 1.0).abs() < 5e-4, "{level:?} f16 {len}: {length}");
            let mut x = brains(&random(3, len));
            level.normalize::<Bf16>(&mut x);
            let length = x.iter().map(|&x| f64::from(bf16_to_f32(x)).powi(2)).sum::<f64>().sqrt();
            assert!((length - 1.0).abs() < 4e-3, "{level:?} bf16 {len}: {length}");
        }
        let mut zeros = [0.0, -0.0, 0.0];
        level.normalize::<F32>(&mut zeros);
        assert_eq!(zeros, [0.0; 3], "{level:?}");
        level.normalize::<F32>(&mut []);
        for bad in [f32::NAN, f32::INFINITY] {
            let mut x = [1.0, bad, 0.0];
            level.normalize::<F32>(&mut x);
            assert!(x.iter().all(|x| x.is_nan()), "{level:?} {bad}: {x:?}");
        }
    }
}

#[test]
fn the_nearer_comes_first_and_nan_last() {
    use std::cmp::Ordering::*;
    for &metric in Metric::ALL {
        let (near, far) = if metric.is_similarity() { (2.0, 1.0) } else { (1.0, 2.0) };
        assert_eq!(metric.nearer_first(near, far), Less, "{metric:?}");
        assert_eq!(metric.nearer_first(far, near), Greater, "{metric:?}");
        assert_eq!(metric.nearer_first(near, near), Equal, "{metric:?}");
        assert_eq!(metric.nearer_first(near, f32::NAN), Less, "{metric:?}");
        assert_eq!(metric.nearer_first(f32::NAN, near), Greater, "{metric:?}");
        assert_eq!(metric.nearer_first(f32::NAN, f32::NAN), Equal, "{metric:?}");
    }
}

#[test]
#[should_panic(expected = "the distance of vectors of 3 and of 2 numbers")]
fn refuses_vectors_of_different_lengths() {
    scalar().one::<F32>(Metric::Dot, &[0.0; 3], &[0.0; 2]);
}

#[test]
#[should_panic(expected = "numbers of 2 rows of 3")]
fn refuses_a_matrix_of_another_width() {
    scalar().many::<F32>(Metric::Dot, &[0.0; 3], &[0.0; 7], &mut [0.0; 2]);
}
