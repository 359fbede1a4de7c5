//! How are integer products with blocks of weights computed on 64-bit Arm? Four output features at a time, a lane each:
//! the products of a group of 32 are added up as integers, then go into one chain in f32 over the groups of a row.
//!
//! So a result is the same to the bit with dot products (`sdot`), with products of matrices (`smmla`) and with neither, and
//! whatever number of rows is in the call.

// Indices say which register is which.
#![allow(clippy::needless_range_loop)]

use std::arch::aarch64::*;
use std::arch::{asm, is_aarch64_feature_detected};
use std::ops::Range;

use weights::Format;

use super::neon::{Form, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};
use crate::blocks::{Blocks, GROUP, QuantizedRows, ROWS};

/// Output features at a time.
const LANES: usize = 4;

/// What adds products of bytes.
const MULTIPLY: u8 = 0;
const DOT: u8 = 1;
const MATRIX: u8 = 2;

/// As [`Quant::dot_rows`](super::Quant::dot_rows).
#[target_feature(enable = "neon")]
pub(super) fn dot_rows(
    x: &QuantizedRows,
    rows: Range<usize>,
    w: &Blocks<'_>,
    outs: Range<usize>,
    to: impl FnMut(usize, usize, f32),
) {
    assert!(rows.end <= x.rows() && rows.start / ROWS == (rows.end - 1) / ROWS && x.cols() == w.ins());
    if rows.len() > 1 && is_aarch64_feature_detected!("i8mm") {
        // SAFETY: the machine has the instructions, x and w the same number of columns, x the rows.
        unsafe { with_matrix(x, rows, w, outs, to) }
    } else if is_aarch64_feature_detected!("dotprod") {
        // SAFETY: as above.
        unsafe { with_dot(x, rows, w, outs, to) }
    } else {
        // SAFETY: as above.
        unsafe { of_format::<MULTIPLY>(x, rows, w, outs, to) }
    }
}

macro_rules! levels {
    ($($name:ident: $features:literal, $level:ident;)*) => {$(
        /// # Safety
        /// As [`all`].
        #[target_feature(enable = $features)]
        unsafe fn $name(
            x: &QuantizedRows,
            rows: Range<usize>,
            w: &Blocks<'_>,
            outs: Range<usize>,
            to: impl FnMut(usize, usize, f32),
        ) {
            // SAFETY: the caller's.
            unsafe { of_format::<$level>(x, rows, w, outs, to) }
        }
    )*};
}
levels! { with_dot: "neon,dotprod", DOT; with_matrix: "neon,dotprod,i8mm", MATRIX; }

/// # Safety
/// As [`all`].
#[inline(always)]
unsafe fn of_format<const LEVEL: u8>(
    x: &QuantizedRows,
    rows: Range<usize>,
    w: &Blocks<'_>,
    outs: Range<usize>,
    to: impl FnMut(usize, usize, f32),
) {
    // SAFETY: the caller's.
    unsafe {
        match w.format() {
            Format::Q8_0 => by_rows::<Q8_0, LEVEL>(x, rows, w, outs, to),
            Format::Q4_0 => by_rows::<Q4_0, LEVEL>(x, rows, w, outs, to),
            Format::Q4_1 => by_rows::<Q4_1, LEVEL>(x, rows, w, outs, to),
            Format::Q5_0 => by_rows::<Q5_0, LEVEL>(x, rows, w, outs, to),
            Format::Q5_1 => by_rows::<Q5_1, LEVEL>(x, rows, w, outs, to),
            Format::Q4_K => by_rows::<Q4_K, LEVEL>(x, rows, w, outs, to),
            Format::Q5_K => by_rows::<Q5_K, LEVEL>(x, rows, w, outs, to),
            Format::Q6_K => by_rows::<Q6_K, LEVEL>(x, rows, w, outs, to),
            format => unreachable!("no integer products with {format}"),
        }
    }
}

/// # Safety
/// As [`all`].
#[inline(always)]
unsafe fn by_rows<F: Form, const LEVEL: u8>(
    x: &QuantizedRows,
    rows: Range<usize>,
    w: &Blocks<'_>,
    outs: Range<usize>,
    to: impl FnMut(usize, usize, f32),
) {
    // SAFETY: the caller's.
    unsafe {
        match rows.len() {
            1 => all::<F, LEVEL, 1>(x, rows.start, w, outs, to),
            2 => all::<F, LEVEL, 2>(x, rows.start, w, outs, to),
            3 => all::<F, LEVEL, 3>(x, rows.start, w, outs, to),
            4 => all::<F, LEVEL, 4>(x, rows.start, w, outs, to),
            5 => all::<F, LEVEL, 5>(x, rows.start, w, outs, to),
            6 => all::<F, LEVEL, 6>(x, rows.start, w, outs, to),
            7 => all::<F, LEVEL, 7>(x, rows.start, w, outs, to),
            8 => all::<F, LEVEL, 8>(x, rows.start, w, outs, to),
            rows => unreachable!("{rows} rows at once"),
        }
    }
}

/// # Safety
/// The machine has the instructions of the level, x has `R` rows from `first` on in one of its tiles, of as many columns as w.
#[inline(always)]
unsafe fn all<F: Form, const LEVEL: u8, const R: usize>(
    x: &QuantizedRows,
    first: usize,
    w: &Blocks<'_>,
    outs: Range<usize>,
    mut to: impl FnMut(usize, usize, f32),
) {
    let mut out = outs.start;
    while out < outs.end {
        let count = LANES.min(outs.end - out);
        // Where fewer are left, the last one fills the other lanes.
        let rows = std::array::from_fn(|lane| w.row(out + lane.min(count - 1)).as_ptr());
        // SAFETY: the caller's, and the rows of w are whole.
        let sums = unsafe { tile::<F, LEVEL, R>(x, first, rows) };
        for (r, sums) in sums.iter().enumerate() {
            for lane in 0..count {
                to(first + r, out + lane, sums[lane]);
            }
        }
        out += count;
    }
}

/// The products of `R` rows of x with four rows of weights.
///
/// # Safety
/// As [`all`], and the rows of weights have a block for each of x.
#[inline(always)]
unsafe fn tile<F: Form, const LEVEL: u8, const R: usize>(
    x: &QuantizedRows,
    first: usize,
    mut w: [*const u8; LANES],
) -> [[f32; LANES]; R] {
    let groups = x.cols() / GROUP;
    // SAFETY: the caller's: all that is read is in the blocks and in the rows of x.
    unsafe {
        let mut codes = x.codes.as_ptr().add(x.place(first, 0) * GROUP);
        let mut scales = x.scales.as_ptr().add(x.place(first, 0) * 2);
        let mut sums = [vdupq_n_f32(0.0); R];
        for _ in 0..groups / F::GROUPS {
            let heads = w.map(|w| F::head(w));
            for g in 0..F::GROUPS {
                let mut weights = [[vdupq_n_s8(0); 2]; LANES];
                let (mut factors, mut minima) = ([0f32; LANES], [0f32; LANES]);
                let mut halves = [[0i32; LANES]; 2];
                for lane in 0..LANES {
                    weights[lane] = F::codes(w[lane], g);
                    (factors[lane], minima[lane]) = F::parameters(&heads[lane], g);
                    if F::HALVES {
                        let both = F::halves(&heads[lane], g);
                        (halves[0][lane], halves[1][lane]) = (both[0], both[1]);
                    }
                }
                let (factors, minima) = (vld1q_f32(factors.as_ptr()), vld1q_f32(minima.as_ptr()));
                let halves = halves.map(|half| vld1q_s32(half.as_ptr()));
                let mut r = 0;
                if LEVEL == MATRIX {
                    let pairs = [zip(weights[0], weights[1]), zip(weights[2], weights[3])];
                    while r + 2 <= R {
                        let x = zip(load(codes.add(r * GROUP)), load(codes.add((r + 1) * GROUP)));
                        // Of a pair of rows of weights: sums of halves, with the two rows of x in turn.
                        let mut parts = [[vdupq_n_s32(0); 2]; 2];
                        for pair in 0..2 {
                            for k in 0..4 {
                                parts[pair][k / 2] = matrix(parts[pair][k / 2], pairs[pair][k], x[k]);
                            }
                        }
                        let [one, two] = parts;
                        let first = [vuzp1q_s32(one[0], two[0]), vuzp1q_s32(one[1], two[1])];
                        let second = [vuzp2q_s32(one[0], two[0]), vuzp2q_s32(one[1], two[1])];
                        let at = scales.add(r * 2);
                        sums[r] = add_group::<F>(sums[r], first, halves, factors, minima, at);
                        sums[r + 1] = add_group::<F>(sums[r + 1], second, halves, factors, minima, at.add(2));
                        r += 2;
                    }
                }
                while r < R {
                    let x = load(codes.add(r * GROUP));
                    let mut parts = [[vdupq_n_s32(0); LANES]; 2];
                    for lane in 0..LANES {
                        parts[0][lane] = dot::<LEVEL>(parts[0][lane], weights[lane][0], x[0]);
                        let second = if F::HALVES { 1 } else { 0 };
                        parts[second][lane] = dot::<LEVEL>(parts[second][lane], weights[lane][1], x[1]);
                    }
                    let second = if F::HALVES { total(parts[1]) } else { vdupq_n_s32(0) };
                    let (products, at) = ([total(parts[0]), second], scales.add(r * 2));
                    sums[r] = add_group::<F>(sums[r], products, halves, factors, minima, at);
                    r += 1;
                }
                codes = codes.wrapping_add(x.height() * GROUP);
                scales = scales.wrapping_add(x.height() * 2);
            }
            w = w.map(|w| w.add(F::BYTES));
        }
        sums.map(|sum| {
            let mut lanes = [0f32; LANES];
            vst1q_f32(lanes.as_mut_ptr(), sum);
            lanes
        })
    }
}

/// `sum` and a group's products, of its halves or in two parts, by what they are multiplied by.
///
/// # Safety
/// The machine has Advanced SIMD, and the scale and the sum of the activations can be read at `scales`.
#[inline(always)]
unsafe fn add_group<F: Form>(
    sum: float32x4_t,
    [first, second]: [int32x4_t; 2],
    halves: [int32x4_t; 2],
    factors: float32x4_t,
    minima: float32x4_t,
    scales: *const f32,
) -> float32x4_t {
    // SAFETY: the caller's.
    unsafe {
        let products = if F::HALVES {
            vmlaq_s32(vmulq_s32(first, halves[0]), second, halves[1])
        } else {
            vaddq_s32(first, second)
        };
        let sum = vfmaq_f32(sum, vcvtq_f32_s32(products), vmulq_n_f32(factors, *scales));
        if F::MINIMUM { vfmaq_n_f32(sum, minima, *scales.add(1)) } else { sum }
    }
}

/// The codes of a group of activations.
///
/// # Safety
/// 32 bytes can be read at `p`.
#[inline(always)]
unsafe fn load(p: *const i8) -> [int8x16_t; 2] {
    // SAFETY: the caller's.
    unsafe { [vld1q_s8(p), vld1q_s8(p.add(16))] }
}

/// `sum` and the products of bytes, which in all four lanes together are all.
///
/// # Safety
/// The machine has the instructions of the level.
#[inline(always)]
unsafe fn dot<const LEVEL: u8>(mut sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: the caller's.
    unsafe {
        if LEVEL == MULTIPLY {
            let low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
            return vpadalq_s16(vpadalq_s16(sum, low), vmull_high_s8(a, b));
        }
        asm!(".arch_extension dotprod", "sdot {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) sum, in(vreg) a, in(vreg) b,
            options(pure, nomem, nostack, preserves_flags));
        sum
    }
}

/// `sum` and the products of two rows of eight bytes with two: with the first of the one, that of the other, then its second.
///
/// # Safety
/// The machine has products of matrices of 8-bit integers.
#[inline(always)]
unsafe fn matrix(mut sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: the caller's.
    unsafe {
        asm!(".arch_extension i8mm", "smmla {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) sum, in(vreg) a, in(vreg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

/// Eight bytes of the one and eight of the other, for all four eights.
///
/// # Safety
/// The machine has Advanced SIMD; so below.
#[inline(always)]
unsafe fn zip(a: [int8x16_t; 2], b: [int8x16_t; 2]) -> [int8x16_t; 4] {
    // SAFETY: the caller's.
    unsafe {
        let (a, b) = (a.map(|v| vreinterpretq_s64_s8(v)), b.map(|v| vreinterpretq_s64_s8(v)));
        let [c, d] =
            [[vzip1q_s64(a[0], b[0]), vzip2q_s64(a[0], b[0])], [vzip1q_s64(a[1], b[1]), vzip2q_s64(a[1], b[1])]];
        [c[0], c[1], d[0], d[1]].map(|v| vreinterpretq_s8_s64(v))
    }
}

/// The lanes of each, added up.
///
/// # Safety
/// As [`zip`].
#[inline(always)]
unsafe fn total([a, b, c, d]: [int32x4_t; LANES]) -> int32x4_t {
    // SAFETY: the caller's.
    unsafe { vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Isa, Kernels, Rows};

    #[test]
    fn every_level_gives_the_same_bits() {
        let (rows, outs, ins) = (8, 7, 512);
        let x: Vec<f32> = (0..rows * ins).map(|i| ((i * 7919 % 1009) as f32 - 504.0) / 300.0).collect();
        let mut quantized = QuantizedRows::new();
        let kernels = Kernels::for_isa(Isa::Neon).expect("this machine");
        kernels.quantize_rows(Rows::dense(&x, ins), quantized.shaped(rows, ins));
        for &format in crate::blocks::DOT_FORMATS {
            let len = format.row_bytes(ins).unwrap() * outs;
            // Scales of 2^-8 or so, whatever bytes they are.
            let bytes: Vec<u8> = (0..len).map(|i| (i * 151 % 256) as u8 & 0x9f).collect();
            let w = Blocks::new(format, &bytes, outs, ins);
            for count in [1, 2, 3, 8] {
                let run = |level: u8| {
                    let mut y = vec![0f32; count * outs];
                    let to = |row: usize, out: usize, product| y[row * outs + out] = product;
                    // SAFETY: the machine has the level's instructions; x has the rows and as many columns as w.
                    unsafe {
                        match level {
                            MULTIPLY => of_format::<MULTIPLY>(&quantized, 0..count, &w, 0..outs, to),
                            DOT => with_dot(&quantized, 0..count, &w, 0..outs, to),
                            _ => with_matrix(&quantized, 0..count, &w, 0..outs, to),
                        }
                    }
                    y.into_iter().map(f32::to_bits).collect::<Vec<_>>()
                };
                let want = run(MULTIPLY);
                assert!(want.iter().any(|&bits| bits != 0), "{format}");
                if is_aarch64_feature_detected!("dotprod") {
                    assert_eq!(run(DOT), want, "{format}, {count} rows, dot products");
                }
                if is_aarch64_feature_detected!("i8mm") {
                    assert_eq!(run(MATRIX), want, "{format}, {count} rows, products of matrices");
                }
            }
        }
    }
}
