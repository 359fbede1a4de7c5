//! What is the right distance? Plain Rust, in f64 and in integers: the oracle of the fast ones, the code of machines without
//! them, and what these fall back to at the ends of f32's range.

use super::floats::Number;
use super::{Bf16, COSINE, DOT, Distances, EUCLIDEAN, F16, F32, Pointers, SQUARED, bits, by_metric, cosine_f64};
use crate::Isa;

pub(super) static TABLE: Distances = Distances {
    isa: Isa::Scalar,
    name: "scalar",
    f32: of_floats::<F32>(),
    f16: of_floats::<F16>(),
    bf16: of_floats::<Bf16>(),
    i8: Pointers { one: by_metric!(of_bytes), many: by_metric!(each_bytes) },
    bits: Pointers { one: by_metric!(of_bits), many: by_metric!(each_bits) },
    normalize_f32: normalize::<F32>,
    normalize_f16: normalize::<F16>,
    normalize_bf16: normalize::<Bf16>,
};

const fn of_floats<N: Number>() -> Pointers<N::Stored> {
    Pointers { one: by_metric!(exact, N), many: by_metric!(each_exact, N) }
}

/// The distance of vectors of floating point numbers, by sums in f64.
#[cold]
#[inline(never)]
pub(super) fn exact<N: Number, const M: usize>(a: &[N::Stored], b: &[N::Stored]) -> f32 {
    let pairs = || a.iter().zip(b).map(|(&a, &b)| (f64::from(N::widen(a)), f64::from(N::widen(b))));
    let squares = || pairs().map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
    match M {
        COSINE => {
            let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
            for (a, b) in pairs() {
                ab += a * b;
                aa += a * a;
                bb += b * b;
            }
            cosine_f64(ab, aa, bb)
        }
        DOT => pairs().map(|(a, b)| a * b).sum::<f64>() as f32,
        SQUARED => squares() as f32,
        EUCLIDEAN => squares().sqrt() as f32,
        _ => pairs().filter(|(a, b)| a != b).count() as f32,
    }
}

fn each_exact<N: Number, const M: usize>(query: &[N::Stored], rows: &[N::Stored], out: &mut [f32]) {
    rows.chunks_exact(query.len()).zip(out).for_each(|(row, out)| *out = exact::<N, M>(query, row));
}

#[cold]
#[inline(never)]
pub(super) fn of_bytes<const M: usize>(a: &[i8], b: &[i8]) -> f32 {
    let pairs = || a.iter().zip(b).map(|(&a, &b)| (i64::from(a), i64::from(b)));
    let squares = || pairs().map(|(a, b)| (a - b) * (a - b)).sum::<i64>();
    match M {
        COSINE => {
            let sum = |of: fn((i64, i64)) -> i64| pairs().map(of).sum::<i64>() as f64;
            cosine_f64(sum(|(a, b)| a * b), sum(|(a, _)| a * a), sum(|(_, b)| b * b))
        }
        DOT => pairs().map(|(a, b)| a * b).sum::<i64>() as f32,
        SQUARED => squares() as f32,
        EUCLIDEAN => (squares() as f64).sqrt() as f32,
        _ => pairs().filter(|(a, b)| a != b).count() as f32,
    }
}

fn each_bytes<const M: usize>(query: &[i8], rows: &[i8], out: &mut [f32]) {
    rows.chunks_exact(query.len()).zip(out).for_each(|(row, out)| *out = of_bytes::<M>(query, row));
}

fn of_bits<const M: usize>(a: &[u8], b: &[u8]) -> f32 {
    let count = |of: fn(u8, u8) -> u8| a.iter().zip(b).map(|(&a, &b)| u64::from(of(a, b).count_ones())).sum();
    bits::measure::<M>(count(|a, b| a & b), count(|a, _| a), count(|_, b| b))
}

fn each_bits<const M: usize>(query: &[u8], rows: &[u8], out: &mut [f32]) {
    rows.chunks_exact(query.len()).zip(out).for_each(|(row, out)| *out = of_bits::<M>(query, row));
}

/// Divides a vector by its length, number by number in f64.
pub(super) fn normalize<N: Number>(vector: &mut [N::Stored]) {
    let square: f64 = vector.iter().map(|&x| f64::from(N::widen(x)).powi(2)).sum();
    if square == 0.0 {
        return;
    }
    let length = if square.is_finite() { square.sqrt() } else { f64::NAN };
    vector.iter_mut().for_each(|x| *x = N::round((f64::from(N::widen(*x)) / length) as f32));
}
