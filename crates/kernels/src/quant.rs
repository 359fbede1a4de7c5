//! What does an instruction set bring beyond [`Simd`] for numbers of few bits? Plain code unless it knows better.

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod lanes;
#[cfg(target_arch = "x86_64")]
mod lanes_avx2;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "aarch64")]
mod neon_dot;
#[cfg(target_arch = "x86_64")]
pub(crate) mod vnni;

use std::ops::Range;

use weights::Format;

use crate::blocks::{Blocks, GROUP, QuantizedRows};
use crate::convert::f32_to_f16;
use crate::simd::Simd;
use crate::{AttendScratch, Epilogue, Interleaved, Window};

/// Rows of activations that one unpacked block of weights meets.
pub(crate) const MOST_ABREAST: usize = 8;

/// A product in integers with interleaved weights: of panels `panels`, into `y`.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // only there is it computed
pub(crate) struct Job<'a> {
    pub(crate) x: &'a QuantizedRows,
    pub(crate) w: &'a Interleaved,
    pub(crate) panels: Range<usize>,
    pub(crate) y: Window<'a>,
    pub(crate) epilogue: &'a Epilogue<'a>,
    pub(crate) scratch: &'a mut AttendScratch,
}

/// Work on 16-bit numbers and on blocks of weights.
pub(crate) trait Quant: Simd {
    /// Output features in a panel of [`Interleaved`] weights; 0 where there are none.
    const LANES_OF_CODES: usize = 0;

    /// Rounds a vector to half precision.
    ///
    /// # Safety
    /// `LANES` numbers can be written at `p`.
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: Self::V) {
        let mut lanes = [0f32; 16];
        self.store_part(&mut lanes, Self::LANES, v);
        for (i, &lane) in lanes[..Self::LANES].iter().enumerate() {
            // SAFETY: the caller's.
            unsafe { *p.add(i) = f32_to_f16(lane) };
        }
    }

    /// Decodes whole blocks, to the same bits as `weights` does.
    #[inline(always)]
    fn decode(self, format: Format, bytes: &[u8], out: &mut [f32]) {
        decode(format, bytes, out);
    }

    /// `to[k][lane] = rows[lane][k]`: eight rows of `depth` numbers, a multiple of 8, each `stride` numbers from the
    /// last, into columns of which there are `width` side by side.
    #[inline(always)]
    fn transpose(self, rows: &[f32], stride: usize, depth: usize, to: &mut [f32], width: usize) {
        for (k, column) in to.chunks_mut(width).take(depth).enumerate() {
            for lane in 0..8 {
                column[lane] = rows[lane * stride + k];
            }
        }
    }

    /// Codes of a group: its numbers times `inverse`, to the nearest; and for each half of them the sums of codes 0, 1, 4, 5, …
    /// and of the others.
    #[inline(always)]
    fn round_group(self, x: &[f32; GROUP], inverse: f32) -> ([i8; GROUP], [[i16; 2]; 2]) {
        let mut codes = [0; GROUP];
        let mut rounded = [0f32; GROUP];
        for (rounded, x) in rounded.chunks_exact_mut(Self::LANES).zip(x.chunks_exact(Self::LANES)) {
            let x = self.mul(self.load_part(x, Self::LANES), self.splat(inverse));
            self.store_part(rounded, Self::LANES, self.round(x));
        }
        codes.iter_mut().zip(rounded).for_each(|(code, x)| *code = x as i8);
        (codes, sums(&codes))
    }

    /// As [`Kernels::dot_interleaved`](crate::Kernels::dot_interleaved).
    #[inline(always)]
    fn dot_interleaved(self, _: Job<'_>) {
        unreachable!("no interleaved weights on {}", Self::ISA)
    }

    /// The products of output features `outs` with 1 to [`MOST_ABREAST`] rows of `x`, each given to
    /// `to(row, out, product)`.
    #[inline(always)]
    fn dot_rows(
        self,
        x: &QuantizedRows,
        rows: Range<usize>,
        w: &Blocks<'_>,
        outs: Range<usize>,
        mut to: impl FnMut(usize, usize, f32),
    ) {
        for out in outs {
            let mut sums = [0f32; MOST_ABREAST];
            dot_row(x, rows.start, w, out, &mut sums[..rows.len()]);
            rows.clone().zip(sums).for_each(|(row, sum)| to(row, out, sum));
        }
    }
}

/// The products of output feature `out` with some rows of `x` from `first` on.
#[inline(always)]
fn dot_row(x: &QuantizedRows, first: usize, w: &Blocks<'_>, out: usize, sums: &mut [f32]) {
    let (block, bytes) = (w.format().block(), w.format().block_bytes());
    let mut decoded = [0f32; 256];
    let decoded = &mut decoded[..block];
    for (b, bytes) in w.row(out).chunks_exact(bytes).enumerate() {
        decode(w.format(), bytes, decoded);
        for (i, sum) in sums.iter_mut().enumerate() {
            for (g, weights) in decoded.chunks_exact(GROUP).enumerate() {
                let at = x.place(first + i, b * block / GROUP + g);
                let codes = &x.codes[at * GROUP..][..GROUP];
                let mut lanes = [0f32; 8];
                for (weights, codes) in weights.chunks_exact(8).zip(codes.chunks_exact(8)) {
                    for (lane, (&weight, &code)) in lanes.iter_mut().zip(weights.iter().zip(codes)) {
                        *lane += weight * f32::from(code);
                    }
                }
                *sum += x.scales[at * 2] * lanes.iter().sum::<f32>();
            }
        }
    }
}

/// For each half of a group, the sums of codes 0, 1, 4, 5, … and of the others.
pub(crate) fn sums(codes: &[i8; GROUP]) -> [[i16; 2]; 2] {
    let mut sums = [[0; 2]; 2];
    for (k, &code) in codes.iter().enumerate() {
        sums[k / (GROUP / 2)][k / 2 % 2] += i16::from(code);
    }
    sums
}

/// As [`Format::decode`], for formats that [`Blocks::new`] took.
pub(crate) fn decode(format: Format, bytes: &[u8], out: &mut [f32]) {
    let decode = format.row().decode.expect("blocks of a format that holds numbers");
    decode(bytes, out);
}

/// What AVX2 does, and AVX-512 by it.
#[cfg(target_arch = "x86_64")]
macro_rules! by_avx2 {
    ($($simd:ty, |$p:ident, $v:ident| $store:expr;)*) => {$(
        impl Quant for $simd {
            #[inline(always)]
            unsafe fn store_f16(self, $p: *mut u16, $v: Self::V) {
                // SAFETY: the caller's, and `self` proves the instructions.
                unsafe { $store }
            }

            #[inline(always)]
            fn decode(self, format: Format, bytes: &[u8], out: &mut [f32]) {
                // SAFETY: `self` proves the instructions.
                if !unsafe { avx2::decode(format, bytes, out) } {
                    decode(format, bytes, out);
                }
            }

            #[inline(always)]
            fn transpose(self, rows: &[f32], stride: usize, depth: usize, to: &mut [f32], width: usize) {
                // SAFETY: `self` proves the instructions.
                unsafe { avx2::transpose(rows, stride, depth, to, width) }
            }

            const LANES_OF_CODES: usize = 8;

            #[inline(always)]
            fn round_group(self, x: &[f32; GROUP], inverse: f32) -> ([i8; GROUP], [[i16; 2]; 2]) {
                // SAFETY: `self` proves the instructions.
                unsafe { avx2::round_group(x, inverse) }
            }

            #[inline(always)]
            fn dot_interleaved(self, job: Job<'_>) {
                // SAFETY: `self` proves the instructions.
                unsafe { lanes_avx2::dot_interleaved(job) }
            }
        }
    )*};
}

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    _MM_FROUND_TO_NEAREST_INT as NEAREST, _mm_storeu_si128, _mm256_cvtps_ph, _mm256_storeu_si256, _mm512_cvtps_ph,
};

#[cfg(target_arch = "x86_64")]
by_avx2! {
    crate::avx2::Avx2, |p, v| _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<NEAREST>(v));
    crate::avx512::Avx512, |p, v| _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<NEAREST>(v));
}

#[cfg(target_arch = "aarch64")]
impl Quant for crate::neon::Neon {
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: Self::V) {
        use std::arch::aarch64::{vcvt_f16_f32, vreinterpret_u16_f16, vst1_u16};
        // SAFETY: the caller's, and `self` proves the instructions.
        unsafe { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v))) }
    }

    #[inline(always)]
    fn decode(self, format: Format, bytes: &[u8], out: &mut [f32]) {
        // SAFETY: `self` proves the instructions.
        if !unsafe { neon::decode(format, bytes, out) } {
            decode(format, bytes, out);
        }
    }

    #[inline(always)]
    fn dot_rows(
        self,
        x: &QuantizedRows,
        rows: Range<usize>,
        w: &Blocks<'_>,
        outs: Range<usize>,
        to: impl FnMut(usize, usize, f32),
    ) {
        // SAFETY: `self` proves the instructions.
        unsafe { neon_dot::dot_rows(x, rows, w, outs, to) }
    }
}
