//! What does an instruction set bring beyond [`Simd`] for numbers of few bits? Plain code unless it knows better.

use weights::Format;

use crate::blocks::{Blocks, GROUP, QuantizedRows};
use crate::convert::f32_to_f16;
use crate::simd::Simd;

/// Rows of activations that one unpacked block of weights meets.
pub(crate) const MOST_ABREAST: usize = 8;

/// Work on 16-bit numbers and on blocks of weights.
pub(crate) trait Quant: Simd {
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

    /// The products of output feature `out` with 1 to [`MOST_ABREAST`] rows of `x` from `first` on.
    #[inline(always)]
    fn dot_rows(self, x: &QuantizedRows, first: usize, w: &Blocks<'_>, out: usize, sums: &mut [f32]) {
        let (block, bytes) = (w.format().block(), w.format().block_bytes());
        let mut decoded = [0f32; 256];
        let decoded = &mut decoded[..block];
        sums.fill(0.0);
        for (b, bytes) in w.row(out).chunks_exact(bytes).enumerate() {
            decode(w.format(), bytes, decoded);
            for (i, sum) in sums.iter_mut().enumerate() {
                let at = (first + i) * w.ins() + b * block;
                for (g, weights) in decoded.chunks_exact(GROUP).enumerate() {
                    let codes = &x.codes[at + g * GROUP..][..GROUP];
                    let mut lanes = [0f32; 8];
                    for (weights, codes) in weights.chunks_exact(8).zip(codes.chunks_exact(8)) {
                        for (lane, (&weight, &code)) in lanes.iter_mut().zip(weights.iter().zip(codes)) {
                            *lane += weight * f32::from(code);
                        }
                    }
                    *sum += x.scales[(at / GROUP + g) * 2] * lanes.iter().sum::<f32>();
                }
            }
        }
    }
}

/// As [`Format::decode`], for formats that [`Blocks::new`] took.
pub(crate) fn decode(format: Format, bytes: &[u8], out: &mut [f32]) {
    let decode = format.row().decode.expect("blocks of a format that holds numbers");
    decode(bytes, out);
}

#[cfg(target_arch = "x86_64")]
impl Quant for crate::avx2::Avx2 {}

#[cfg(target_arch = "x86_64")]
impl Quant for crate::avx512::Avx512 {}

#[cfg(target_arch = "aarch64")]
impl Quant for crate::neon::Neon {}
