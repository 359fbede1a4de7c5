//! How are distances of floating point numbers summed up in vectors? Once, for every implementation of [`Simd`].

use super::scalar::exact;
use super::{Bf16, COSINE, DOT, EUCLIDEAN, F16, F32, SQUARED, cosine};
use crate::convert::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use crate::simd::Simd;

/// Sums abreast, for the latency of a multiply-add.
const CHAINS: usize = 4;

/// Numbers that are taken as f32.
pub(super) trait Number {
    type Stored: Copy + Default + 'static;
    fn widen(x: Self::Stored) -> f32;
    fn round(x: f32) -> Self::Stored;
    /// # Safety
    /// `LANES` numbers can be read at `p`, at any alignment.
    unsafe fn load<S: Simd>(s: S, p: *const Self::Stored) -> S::V;
}

macro_rules! numbers {
    ($($kind:ident: $stored:ty, $widen:expr, $round:expr, $load:ident;)*) => {$(
        impl Number for $kind {
            type Stored = $stored;
            #[inline(always)]
            fn widen(x: $stored) -> f32 {
                $widen(x)
            }
            #[inline(always)]
            fn round(x: f32) -> $stored {
                $round(x)
            }
            #[inline(always)]
            unsafe fn load<S: Simd>(s: S, p: *const $stored) -> S::V {
                // SAFETY: the caller's.
                unsafe { s.$load(p) }
            }
        }
    )*};
}
numbers! {
    F32: f32, std::convert::identity, std::convert::identity, load;
    F16: u16, f16_to_f32, f32_to_f16, load_f16;
    Bf16: u16, bf16_to_f32, f32_to_bf16, load_bf16;
}

/// What is summed up over the places of two vectors: `N` sums.
trait Terms<const N: usize> {
    fn add<S: Simd>(s: S, sums: &mut [S::V; N], x: S::V, y: S::V);
}

struct Products;
impl Terms<1> for Products {
    #[inline(always)]
    fn add<S: Simd>(s: S, sums: &mut [S::V; 1], x: S::V, y: S::V) {
        sums[0] = s.fma(x, y, sums[0]);
    }
}

struct Squares;
impl Terms<1> for Squares {
    #[inline(always)]
    fn add<S: Simd>(s: S, sums: &mut [S::V; 1], x: S::V, y: S::V) {
        let difference = s.sub(x, y);
        sums[0] = s.fma(difference, difference, sums[0]);
    }
}

/// The products, and the squares of both.
struct Angle;
impl Terms<3> for Angle {
    #[inline(always)]
    fn add<S: Simd>(s: S, sums: &mut [S::V; 3], x: S::V, y: S::V) {
        sums[0] = s.fma(x, y, sums[0]);
        sums[1] = s.fma(x, x, sums[1]);
        sums[2] = s.fma(y, y, sums[2]);
    }
}

/// The products, and the squares of the second.
struct AngleTo;
impl Terms<2> for AngleTo {
    #[inline(always)]
    fn add<S: Simd>(s: S, sums: &mut [S::V; 2], x: S::V, y: S::V) {
        sums[0] = s.fma(x, y, sums[0]);
        sums[1] = s.fma(y, y, sums[1]);
    }
}

#[inline(always)]
pub(super) fn one<S: Simd, N: Number, const M: usize>(s: S, a: &[N::Stored], b: &[N::Stored]) -> f32 {
    if a.len() < S::LANES {
        return exact::<N, M>(a, b);
    }
    match M {
        COSINE => {
            let [product, a_square, b_square] = sums::<S, N, Angle, 3>(s, a, b);
            cosine(product, a_square, b_square).unwrap_or_else(|| exact::<N, M>(a, b))
        }
        DOT => finite::<N, M>(sums::<S, N, Products, 1>(s, a, b)[0], a, b),
        SQUARED => finite::<N, M>(sums::<S, N, Squares, 1>(s, a, b)[0], a, b),
        EUCLIDEAN => {
            let [square] = sums::<S, N, Squares, 1>(s, a, b);
            if (1e-30..=f32::MAX).contains(&square) { square.sqrt() } else { exact::<N, M>(a, b) }
        }
        _ => a.iter().zip(b).filter(|(a, b)| N::widen(**a) != N::widen(**b)).count() as f32,
    }
}

#[inline(always)]
pub(super) fn many<S: Simd, N: Number, const M: usize>(s: S, query: &[N::Stored], rows: &[N::Stored], out: &mut [f32]) {
    let rows = rows.chunks_exact(query.len()).zip(out);
    if M != COSINE || query.len() < S::LANES {
        return rows.for_each(|(row, out)| *out = one::<S, N, M>(s, query, row));
    }
    let [square] = sums::<S, N, Products, 1>(s, query, query);
    for (row, out) in rows {
        let [product, row_square] = sums::<S, N, AngleTo, 2>(s, query, row);
        *out = cosine(product, square, row_square).unwrap_or_else(|| exact::<N, M>(query, row));
    }
}

#[inline(always)]
fn finite<N: Number, const M: usize>(sum: f32, a: &[N::Stored], b: &[N::Stored]) -> f32 {
    if sum.is_finite() { sum } else { exact::<N, M>(a, b) }
}

/// The sums over all places of two rows of the same length, `LANES` or more: vector after vector into one chain after
/// another, the last few numbers at the end of the last chain.
#[inline(always)]
fn sums<S: Simd, N: Number, T: Terms<C>, const C: usize>(s: S, a: &[N::Stored], b: &[N::Stored]) -> [f32; C] {
    let len = a.len().min(b.len());
    assert!(len >= S::LANES);
    let mut sums = [[s.splat(0.0); C]; CHAINS];
    let mut at = 0;
    // SAFETY: as its callers promise.
    let load = |at: usize| unsafe { (N::load(s, a.as_ptr().add(at)), N::load(s, b.as_ptr().add(at))) };
    while at + CHAINS * S::LANES <= len {
        for (i, sums) in sums.iter_mut().enumerate() {
            let (x, y) = load(at + i * S::LANES); // CHAINS vectors from `at` on are there
            T::add(s, sums, x, y);
        }
        at += CHAINS * S::LANES;
    }
    for sums in &mut sums[..CHAINS - 1] {
        if at + S::LANES <= len {
            let (x, y) = load(at); // the vector ends within len
            T::add(s, sums, x, y);
            at += S::LANES;
        }
    }
    if at < len {
        let (x, y) = load(len - S::LANES); // so does this one, and len ≥ LANES
        T::add(s, &mut sums[CHAINS - 1], s.keep_last(x, len - at), s.keep_last(y, len - at));
    }
    std::array::from_fn(|i| s.sum(s.add(s.add(sums[0][i], sums[1][i]), s.add(sums[2][i], sums[3][i]))))
}

#[inline(always)]
pub(super) fn normalize<S: Simd, N: Number>(s: S, x: &mut [N::Stored]) {
    let square = if x.len() < S::LANES { 0.0 } else { sums::<S, N, Products, 1>(s, x, x)[0] };
    if !super::square_fits(square) {
        return super::scalar::normalize::<N>(x);
    }
    let inverse = 1.0 / square.sqrt();
    x.iter_mut().for_each(|x| *x = N::round(N::widen(*x) * inverse));
}
