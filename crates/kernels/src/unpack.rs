//! How do blocks of weights become bf16 tiles? Rows are decoded, rounded, and their pairs of numbers transposed.

use std::arch::x86_64::*;
use std::ops::Range;

use crate::Blocks;
use crate::amx::round;
use crate::avx512::Avx512;
use crate::quant::Quant;
use crate::tiles::{DEPTH, PANEL, ROWS, TILE};

/// Steps that are decoded at once: the longest block of a format.
const STEPS: usize = 256 / DEPTH;

/// The tiles `[step][half of the 32 output features][pair of inputs][output][2]` of some steps of a panel; features that the
/// weights lack are zeros.
///
/// # Safety
/// The machine has what this function is made of.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma,f16c")]
pub(crate) unsafe fn panel(w: &Blocks<'_>, panel: usize, steps: Range<usize>, to: &mut [u16]) {
    // SAFETY: the features that make this function are those that `new` asks for.
    let s = unsafe { Avx512::new() };
    let (block, block_bytes) = (w.format().block(), w.format().block_bytes());
    let mut decoded = [[0f32; STEPS * DEPTH]; ROWS];
    for first in steps.clone().step_by(STEPS) {
        let some = first..steps.end.min(first + STEPS);
        let ins = some.start * DEPTH..(some.end * DEPTH).min(w.ins());
        let bytes = ins.start / block * block_bytes..ins.end / block * block_bytes;
        for half in 0..2 {
            let outs = panel * PANEL + half * ROWS;
            for (i, decoded) in decoded.iter_mut().enumerate() {
                if outs + i < w.outs() {
                    s.decode(w.format(), &w.row(outs + i)[bytes.clone()], &mut decoded[..ins.len()]);
                    decoded[ins.len()..].fill(0.0);
                } else {
                    decoded.fill(0.0);
                }
            }
            for step in some.clone() {
                let at = (step - some.start) * DEPTH;
                let mut rows = [_mm512_setzero_si512(); ROWS];
                for (row, decoded) in rows.iter_mut().zip(&decoded) {
                    let numbers = &decoded[at..][..DEPTH];
                    // SAFETY: 32 numbers are read.
                    *row = unsafe { round(_mm512_loadu_ps(numbers.as_ptr()), _mm512_loadu_ps(numbers[16..].as_ptr())) };
                }
                let tile = &mut to[((step - steps.start) * 2 + half) * TILE..][..TILE];
                for (pair, line) in transpose(rows).into_iter().zip(tile.chunks_exact_mut(DEPTH)) {
                    // SAFETY: 64 bytes are written.
                    unsafe { _mm512_storeu_si512(line.as_mut_ptr().cast(), pair) };
                }
            }
        }
    }
}

/// `result[j]` has number j of every row, 32 bits each.
#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) fn transpose(rows: [__m512i; 16]) -> [__m512i; 16] {
    // Pairs of rows, then fours, within each quarter of a vector; then the quarters themselves.
    let mut twos = rows;
    for i in 0..8 {
        twos[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
        twos[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
    }
    // fours[4 g + j]: number 4 q + j of rows 4 g .. 4 g + 4 in quarter q.
    let mut fours = rows;
    for g in 0..4 {
        let [a, b, c, d] = [twos[4 * g], twos[4 * g + 1], twos[4 * g + 2], twos[4 * g + 3]];
        fours[4 * g] = _mm512_unpacklo_epi64(a, c);
        fours[4 * g + 1] = _mm512_unpackhi_epi64(a, c);
        fours[4 * g + 2] = _mm512_unpacklo_epi64(b, d);
        fours[4 * g + 3] = _mm512_unpackhi_epi64(b, d);
    }
    let mut columns = rows;
    for j in 0..4 {
        let [a, b, c, d] = [fours[j], fours[4 + j], fours[8 + j], fours[12 + j]];
        // Quarters 0 and 1, then 2 and 3, of two groups of rows.
        let (low, high) = (_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0x44>(c, d));
        columns[j] = _mm512_shuffle_i32x4::<0x88>(low, high);
        columns[4 + j] = _mm512_shuffle_i32x4::<0xdd>(low, high);
        let (low, high) = (_mm512_shuffle_i32x4::<0xee>(a, b), _mm512_shuffle_i32x4::<0xee>(c, d));
        columns[8 + j] = _mm512_shuffle_i32x4::<0x88>(low, high);
        columns[12 + j] = _mm512_shuffle_i32x4::<0xdd>(low, high);
    }
    columns
}
