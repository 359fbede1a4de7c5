//! How are integer products with blocks of weights computed with AVX2? Codes of 8 bits times activations of 8 bits,
//! added up in 32 bits within a group, and in f32, one chain a lane, over the groups of a row.

// Indices say which register is which.
#![allow(clippy::needless_range_loop)]

use std::arch::x86_64::*;
use std::ops::Range;

use weights::Format;

use super::avx2::{Long, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0, Short, scales};
use crate::blocks::{Blocks, GROUP, QuantizedRows};

/// How far ahead of its reading a row of weights is asked for: past the end of a page, where the hardware's own
/// prefetch stops.
const AHEAD: usize = 2048;

/// As [`Quant::dot_rows`](super::Quant::dot_rows).
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn dot_rows(
    x: &QuantizedRows,
    rows: Range<usize>,
    w: &Blocks<'_>,
    outs: Range<usize>,
    to: impl FnMut(usize, usize, f32),
) {
    match w.format() {
        Format::Q8_0 => by_rows::<ShortDot<Q8_0>>(x, rows, w, outs, to),
        Format::Q4_0 => by_rows::<ShortDot<Q4_0>>(x, rows, w, outs, to),
        Format::Q4_1 => by_rows::<ShortDot<Q4_1>>(x, rows, w, outs, to),
        Format::Q5_0 => by_rows::<ShortDot<Q5_0>>(x, rows, w, outs, to),
        Format::Q5_1 => by_rows::<ShortDot<Q5_1>>(x, rows, w, outs, to),
        Format::Q4_K => by_rows::<LongDot<Q4K>>(x, rows, w, outs, to),
        Format::Q5_K => by_rows::<LongDot<Q5K>>(x, rows, w, outs, to),
        Format::Q6_K => by_rows::<LongDot<Q6K>>(x, rows, w, outs, to),
        format => unreachable!("no integer products with {format}"),
    }
}

/// The products of some rows of weights with some rows of activations.
trait Dot {
    /// Is the sum of one row of weights with one of activations too little to hide the latency of its parts?
    const LATENT: bool;

    /// # Safety
    /// `O` rows of weights for `x.cols`, of `row_bytes` each, can be read at `w`, and `x` has `R` rows from `first` on.
    unsafe fn rows<const R: usize, const O: usize>(
        x: &QuantizedRows,
        first: usize,
        w: *const u8,
        row_bytes: usize,
    ) -> [[f32; R]; O];
}

#[target_feature(enable = "avx2,fma,f16c")]
fn by_rows<D: Dot>(
    x: &QuantizedRows,
    rows: Range<usize>,
    w: &Blocks<'_>,
    outs: Range<usize>,
    to: impl FnMut(usize, usize, f32),
) {
    assert!(rows.end <= x.rows && x.cols == w.ins());
    match rows.len() {
        1 => all::<D, 1>(x, rows.start, w, outs, to),
        2 => all::<D, 2>(x, rows.start, w, outs, to),
        3 => all::<D, 3>(x, rows.start, w, outs, to),
        4 => all::<D, 4>(x, rows.start, w, outs, to),
        5 => all::<D, 5>(x, rows.start, w, outs, to),
        6 => all::<D, 6>(x, rows.start, w, outs, to),
        7 => all::<D, 7>(x, rows.start, w, outs, to),
        8 => all::<D, 8>(x, rows.start, w, outs, to),
        rows => unreachable!("{rows} rows at once"),
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn all<D: Dot, const R: usize>(
    x: &QuantizedRows,
    first: usize,
    w: &Blocks<'_>,
    outs: Range<usize>,
    mut to: impl FnMut(usize, usize, f32),
) {
    let mut out = outs.start;
    while out < outs.end {
        let bytes = w.row(out).len();
        if D::LATENT && R == 1 && out + 2 <= outs.end {
            // SAFETY: two rows of weights for `ins` = x.cols; the rows of x were checked.
            let [one, two] = unsafe { D::rows::<R, 2>(x, first, w.row(out).as_ptr(), bytes) };
            for i in 0..R {
                to(first + i, out, one[i]);
                to(first + i, out + 1, two[i]);
            }
            out += 2;
            continue;
        }
        // SAFETY: a row of weights for `ins` = x.cols; the rows of x were checked.
        let [sums] = unsafe { D::rows::<R, 1>(x, first, w.row(out).as_ptr(), bytes) };
        for (i, sum) in sums.into_iter().enumerate() {
            to(first + i, out, sum);
        }
        out += 1;
    }
}

struct ShortDot<F>(F);

impl<F: Short> Dot for ShortDot<F> {
    const LATENT: bool = !F::SIGNED;

    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    unsafe fn rows<const R: usize, const O: usize>(
        x: &QuantizedRows,
        first: usize,
        mut w: *const u8,
        row_bytes: usize,
    ) -> [[f32; R]; O] {
        let groups = x.cols / GROUP;
        // SAFETY: x has the row `first`.
        let (mut codes, mut pairs) =
            unsafe { (x.codes.as_ptr().add(first * x.cols), x.scales.as_ptr().add(first * groups * 2)) };
        let (mut sums, mut minima) = ([[_mm256_setzero_ps(); R]; O], [[_mm_setzero_ps(); R]; O]);
        for _ in 0..groups {
            // SAFETY: the weights have a block for each group, x has R rows of `cols` codes and of `groups` pairs.
            unsafe {
                for o in 0..O {
                    let w = w.add(o * row_bytes);
                    _mm_prefetch::<_MM_HINT_T0>(w.wrapping_add(AHEAD).cast());
                    let (weights, both) = (F::codes(w), scales::<F>(w));
                    for i in 0..R {
                        let activations = _mm256_loadu_si256(codes.add(i * x.cols).cast());
                        let products = if F::SIGNED {
                            _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(activations, weights))
                        } else {
                            _mm256_maddubs_epi16(weights, activations)
                        };
                        let products = _mm256_cvtepi32_ps(_mm256_madd_epi16(products, _mm256_set1_epi16(1)));
                        // The scale's product, and the minimum's or the offset's with the sum of the activations.
                        let pair = _mm_castpd_ps(_mm_load_sd(pairs.add(i * groups * 2).cast()));
                        let pair = _mm_mul_ps(both, pair);
                        sums[o][i] = _mm256_fmadd_ps(products, _mm256_broadcastss_ps(pair), sums[o][i]);
                        if F::MINIMUM || F::OFFSET != 0 {
                            minima[o][i] = _mm_add_ps(minima[o][i], pair);
                        }
                    }
                }
                w = w.add(F::BYTES);
                codes = codes.add(GROUP);
                pairs = pairs.add(2);
            }
        }
        let factor = if F::MINIMUM { 1.0 } else { -f32::from(F::OFFSET) };
        let mut results = [[0f32; R]; O];
        for o in 0..O {
            for i in 0..R {
                let sum = total(sums[o][i]);
                let minima = _mm_cvtss_f32(_mm_movehdup_ps(minima[o][i]));
                results[o][i] = if F::MINIMUM || F::OFFSET != 0 { sum + factor * minima } else { sum };
            }
        }
        results
    }
}

struct LongDot<F>(F);

impl<F: Long> Dot for LongDot<F> {
    const LATENT: bool = false;

    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    unsafe fn rows<const R: usize, const O: usize>(
        x: &QuantizedRows,
        first: usize,
        mut w: *const u8,
        row_bytes: usize,
    ) -> [[f32; R]; O] {
        const GROUPS: usize = 256 / GROUP;
        let groups = x.cols / GROUP;
        // SAFETY: x has the row `first`.
        let (mut codes, mut pairs, mut halves) = unsafe {
            let at = first * groups * 2;
            (x.codes.as_ptr().add(first * x.cols), x.scales.as_ptr().add(at), x.sums.as_ptr().add(at))
        };
        let (mut sums, mut offsets) = ([[_mm256_setzero_ps(); R]; O], [[_mm256_setzero_ps(); R]; O]);
        for _ in 0..groups / GROUPS {
            // SAFETY: the weights have a block for each eight groups, x has R rows of as many codes, pairs and sums.
            unsafe {
                for o in 0..O {
                    let w = w.add(o * row_bytes);
                    for line in 0..F::BYTES.div_ceil(64) {
                        _mm_prefetch::<_MM_HINT_T0>(w.wrapping_add(AHEAD + line * 64).cast());
                    }
                    let (head, mut factors) = (F::head(w), [[0f32; GROUPS]; R]);
                    for i in 0..R {
                        let pairs = pairs.add(i * groups * 2);
                        let (a, b) = (_mm256_loadu_ps(pairs), _mm256_loadu_ps(pairs.add(8)));
                        let in_order = |v| _mm256_castpd_ps(_mm256_permute4x64_pd::<0b1101_1000>(_mm256_castps_pd(v)));
                        let scales = in_order(_mm256_shuffle_ps::<0x88>(a, b));
                        let totals = in_order(_mm256_shuffle_ps::<0xdd>(a, b));
                        let halves = _mm256_loadu_si256(halves.add(i * groups * 2).cast());
                        offsets[o][i] = _mm256_add_ps(offsets[o][i], F::offset(head, scales, totals, halves));
                        _mm256_storeu_ps(factors[i].as_mut_ptr(), _mm256_mul_ps(F::factors(head), scales));
                    }
                    macro_rules! groups {
                        ($($g:literal)*) => {$({
                            let weights = F::codes::<$g>(w);
                            for i in 0..R {
                                let activations = _mm256_loadu_si256(codes.add(i * x.cols + $g * GROUP).cast());
                                let products = F::widen::<$g>(head, _mm256_maddubs_epi16(weights, activations));
                                let products = _mm256_cvtepi32_ps(products);
                                sums[o][i] = _mm256_fmadd_ps(products, _mm256_set1_ps(factors[i][$g]), sums[o][i]);
                            }
                        })*};
                    }
                    groups!(0 1 2 3 4 5 6 7);
                }
                w = w.add(F::BYTES);
                codes = codes.add(256);
                pairs = pairs.add(2 * GROUPS);
                halves = halves.add(2 * GROUPS);
            }
        }
        let mut results = [[0f32; R]; O];
        for o in 0..O {
            for i in 0..R {
                results[o][i] = total(_mm256_sub_ps(sums[o][i], offsets[o][i]));
            }
        }
        results
    }
}

/// The sum of the lanes.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn total(v: __m256) -> f32 {
    let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
}
