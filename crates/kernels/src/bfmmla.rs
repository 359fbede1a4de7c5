//! How does `bfmmla` compute a product of bf16 pieces on 64-bit Arm? Two rows by two output features and four inputs in an
//! instruction; up to eight rows by eight features, or fewer rows by more features, keep their sums in registers over a depth
//! of inputs.
//!
//! Tiles lie on AArch64 as the instruction reads them, by fours of inputs: zipping AMX's pairs of inputs on the way, and rows,
//! would be an instruction for every two that multiply, on many cores in the same pipes, and no less code.
//!
//! A depth of a panel of weights stays in the L1 while the rows of a block walk past it, and one of the rows in the L2 while
//! panels do; between depths the sums wait in y.
//!
//! The instruction rounds the sum of two products, and then its sum with what was there, to odd, and takes what is not normal
//! for zero (Arm Architecture Reference Manual, `BFDotAdd` where `FPCR.EBF` is 0, as systems leave it): each is off by less than
//! a unit in the last place, not by half of one. So that this does not grow with all inputs, the sums of a depth begin at zero,
//! and depths are added up to nearest. Over depths of d inputs in p parts a sum is off by at most (p · d / 2 + 1) · 2⁻²³ of the
//! magnitudes of what it adds up, where d is 512 at most, or 384 in two parts or three; of random numbers by some 4 · 2⁻²³.

// Indices say which register is which.
#![allow(clippy::needless_range_loop)]

use std::arch::aarch64::*;
use std::arch::{asm, is_aarch64_feature_detected};
use std::ops::Range;

use crate::matmul::Finish;
use crate::neon::Neon;
use crate::tiles::{DEPTH, PANEL, ROWS, TILE, Tiled, TiledRows, step_of};
use crate::{Activation, Epilogue, Rows, Window};

/// Rows that are multiplied at once.
const STRIP: usize = 8;
/// Output features that meet a row's numbers in turn: enough sums to hide the latency of one.
const EIGHT: usize = 8;
/// Inputs that an instruction adds up.
const FOUR: usize = 4;
/// Numbers that an instruction reads of a factor: of two rows, or of two output features.
const OPERAND: usize = 2 * FOUR;

/// Has this machine the instruction, and what rounds to bf16?
pub(crate) fn available() -> bool {
    is_aarch64_feature_detected!("bf16")
}

/// As [`Kernels::matmul_tiles`](crate::Kernels::matmul_tiles), which checks the shapes.
#[target_feature(enable = "neon,bf16")]
pub(crate) fn matmul(
    x: &TiledRows,
    blocks: Range<usize>,
    w: &Tiled,
    panels: Range<usize>,
    y: Window<'_>,
    epilogue: &Epilogue<'_>,
) {
    match (x.pieces(), w.pieces()) {
        (2, 2) => walk::<2, 2>(x, blocks, w, panels, y, epilogue),
        (2, 1) => walk::<2, 1>(x, blocks, w, panels, y, epilogue),
        (1, 1) => walk::<1, 1>(x, blocks, w, panels, y, epilogue),
        (rows, weights) => unreachable!("{rows} pieces of rows by {weights} of weights"),
    }
}

/// The product of rows in `X` pieces and weights in `W`.
#[target_feature(enable = "neon,bf16")]
fn walk<const X: usize, const W: usize>(
    x: &TiledRows,
    blocks: Range<usize>,
    w: &Tiled,
    panels: Range<usize>,
    mut y: Window<'_>,
    epilogue: &Epilogue<'_>,
) {
    let (first_row, first_out) = (x.rows_of(blocks.clone()).start, w.columns(panels.clone()).start);
    let mut sums = [[0f32; PANEL]; STRIP];
    for block in blocks {
        for steps in x.depths() {
            for panel in panels.clone() {
                let (weights, outs) = (w.steps_of(panel, steps.clone()), w.columns(panel..panel + 1));
                let mut bias = [0f32; PANEL];
                if let Some(all) = epilogue.bias {
                    bias[..outs.len()].copy_from_slice(&all[outs.clone()]);
                }
                let outs = outs.start - first_out..outs.end - first_out;
                for (pair, rows) in x.pairs(block) {
                    let tiles = x.steps_of(block, pair, steps.clone());
                    for top in (0..rows.len()).step_by(STRIP) {
                        let count = STRIP.min(rows.len() - top);
                        let task = Task {
                            a: tiles[place(top, X)..].as_ptr(),
                            b: weights.as_ptr(),
                            steps: steps.len(),
                            rows: count,
                            outs: outs.len(),
                        };
                        // SAFETY: the pair and the panel have tiles of so many steps, the pair has the rows from `top` on.
                        unsafe { multiply::<X, W>(&task, &mut sums) };
                        let row = rows.start - first_row + top;
                        let mut y = y.tile(row..row + count, outs.clone());
                        for (row, sums) in sums[..count].iter().enumerate() {
                            let y = y.row_mut(row);
                            if steps.start == 0 {
                                y.copy_from_slice(&bias[..outs.len()]);
                            }
                            y.iter_mut().zip(sums).for_each(|(y, sum)| *y += sum);
                        }
                        if steps.end == x.steps() {
                            let residual =
                                epilogue.residual.map(|r| r.slice_rows(row..row + count).slice_cols(outs.clone()));
                            finish(Finish { y, residual }, epilogue.activation);
                        }
                    }
                }
            }
        }
    }
}

/// The epilogue but for the bias.
#[target_feature(enable = "neon,bf16")]
fn finish(finish: Finish<'_>, activation: Option<Activation>) {
    if activation.is_some() || finish.residual.is_some() {
        // SAFETY: this function has the features.
        let s = unsafe { Neon::new() };
        finish.run(s, activation);
    }
}

/// Where the first four inputs lie of a row or an output feature among the 32 of two tiles, which are `apart` tiles apart.
const fn place(lane: usize, apart: usize) -> usize {
    lane / ROWS * apart * TILE + lane % ROWS * FOUR
}

/// Rows by output features over some steps.
struct Task {
    /// The first of the rows in tiles `[step][half of the 32 rows][piece]`.
    a: *const u16,
    /// A panel's tiles `[step][piece][half of the 32 output features]`.
    b: *const u16,
    steps: usize,
    /// 1 to [`STRIP`], in one half.
    rows: usize,
    /// Output features of the panel.
    outs: usize,
}

/// The sums of a task, from zero on. Those of rows and output features that it lacks become anything.
///
/// # Safety
/// The task's memory is as it says, for `X` pieces of rows and `W` of weights.
#[target_feature(enable = "neon,bf16")]
unsafe fn multiply<const X: usize, const W: usize>(task: &Task, sums: &mut [[f32; PANEL]; STRIP]) {
    macro_rules! tiles {
        ($pairs:literal x $eights:literal) => {
            for first in (0..task.outs.div_ceil(EIGHT)).step_by($eights) {
                // SAFETY: the caller's; panels are whole.
                unsafe { tile::<X, W, $pairs, $eights>(task, first, sums) };
            }
        };
    }
    match task.rows.div_ceil(2) {
        1 => tiles!(1 x 4),
        2 => tiles!(2 x 2),
        3 => tiles!(3 x 1),
        4 => tiles!(4 x 1),
        pairs => unreachable!("{pairs} pairs of rows at once"),
    }
}

/// The sums of `PAIRS` pairs of rows by `EIGHTS` eights of output features, the first of which is `first`.
///
/// # Safety
/// As [`multiply`]; so many rows and output features are in the tiles.
#[target_feature(enable = "neon,bf16")]
unsafe fn tile<const X: usize, const W: usize, const PAIRS: usize, const EIGHTS: usize>(
    task: &Task,
    first: usize,
    to: &mut [[f32; PANEL]; STRIP],
) {
    const PER_EIGHT: usize = EIGHT / 2;
    let mut sums = [[[vdupq_n_f32(0.0); PER_EIGHT]; PAIRS]; EIGHTS];
    let (mut a, mut b) = (task.a, task.b.wrapping_add(place(first * EIGHT, 1)));
    for _ in 0..task.steps {
        for four in 0..DEPTH / FOUR {
            let at = four * ROWS * FOUR;
            let mut rows = [[vdupq_n_u16(0); PAIRS]; X];
            for piece in 0..X {
                for pair in 0..PAIRS {
                    // SAFETY: inside of the tile of the piece, the caller's.
                    rows[piece][pair] = unsafe { vld1q_u16(a.add(piece * TILE + at + pair * OPERAND)) };
                }
            }
            for eight in 0..EIGHTS {
                let mut weights = [[vdupq_n_u16(0); PER_EIGHT]; W];
                let at = at + place(eight * EIGHT, 1);
                for piece in 0..W {
                    for pair in 0..PER_EIGHT {
                        // SAFETY: as above.
                        weights[piece][pair] = unsafe { vld1q_u16(b.add(piece * 2 * TILE + at + pair * OPERAND)) };
                    }
                }
                // mid · hi, hi · hi, hi · mid.
                let sums = &mut sums[eight];
                if X == 2 {
                    add_products(sums, rows[X - 1], weights[0]);
                }
                add_products(sums, rows[0], weights[0]);
                if W == 2 {
                    add_products(sums, rows[0], weights[W - 1]);
                }
            }
        }
        a = a.wrapping_add(2 * X * TILE);
        b = b.wrapping_add(2 * W * TILE);
    }
    for eight in 0..EIGHTS {
        for pair in 0..PAIRS {
            for half in 0..2 {
                let [one, two] = [0, 1].map(|i| vreinterpretq_f64_f32(sums[eight][pair][2 * half + i]));
                let at = (first + eight) * EIGHT + half * FOUR;
                for (row, sums) in [(2 * pair, vzip1q_f64(one, two)), (2 * pair + 1, vzip2q_f64(one, two))] {
                    let to = &mut to[row][at..at + FOUR];
                    // SAFETY: there are four numbers.
                    unsafe { vst1q_f32(to.as_mut_ptr(), vreinterpretq_f32_f64(sums)) };
                }
            }
        }
    }
}

/// Adds the products of pairs of rows with pairs of output features to their sums.
#[target_feature(enable = "neon,bf16")]
#[inline]
fn add_products<const PAIRS: usize, const OUTS: usize>(
    sums: &mut [[float32x4_t; OUTS]; PAIRS],
    rows: [uint16x8_t; PAIRS],
    outs: [uint16x8_t; OUTS],
) {
    for i in 0..PAIRS {
        for j in 0..OUTS {
            // SAFETY: this function has the feature.
            unsafe {
                asm!("bfmmla {0:v}.4s, {1:v}.8h, {2:v}.8h", inout(vreg) sums[i][j], in(vreg) rows[i], in(vreg) outs[j],
                    options(pure, nomem, nostack, preserves_flags));
            }
        }
    }
}

/// Up to 32 rows as tiles `[step][half of the 32 rows][piece]`, padded with zeros to a pair of rows.
#[target_feature(enable = "neon,bf16")]
pub(crate) fn split(x: Rows<'_>, steps: Range<usize>, pieces: usize, to: &mut [u16]) {
    for (step, tiles) in steps.zip(to.chunks_exact_mut(2 * pieces * TILE)) {
        for row in (0..x.rows()).step_by(2) {
            let (mut one, mut two) = ([0f32; DEPTH], [0f32; DEPTH]);
            let (one, two) = (step_of(x, row, step, &mut one), step_of(x, row + 1, step, &mut two));
            let tile = &mut tiles[place(row, pieces)..];
            for (four, (one, two)) in one.chunks_exact(FOUR).zip(two.chunks_exact(FOUR)).enumerate() {
                let at = four * ROWS * FOUR;
                // SAFETY: four numbers are read of each row, and eight are written.
                unsafe {
                    let (one, two) = (vld1q_f32(one.as_ptr()), vld1q_f32(two.as_ptr()));
                    let hi = round(one, two);
                    vst1q_u16(tile[at..][..OPERAND].as_mut_ptr(), hi);
                    if pieces == 2 {
                        let one = vsubq_f32(one, widen(vget_low_u16(hi)));
                        let mid = round(one, vsubq_f32(two, widen(vget_high_u16(hi))));
                        vst1q_u16(tile[TILE + at..][..OPERAND].as_mut_ptr(), mid);
                    }
                }
            }
        }
    }
}

/// Eight numbers as bf16.
#[target_feature(enable = "neon,bf16")]
#[inline]
fn round(one: float32x4_t, two: float32x4_t) -> uint16x8_t {
    let rounded;
    // SAFETY: this function has the feature.
    unsafe {
        asm!("bfcvtn {0:v}.4h, {1:v}.4s", "bfcvtn2 {0:v}.8h, {2:v}.4s", out(vreg) rounded, in(vreg) one, in(vreg) two,
            options(pure, nomem, nostack));
    }
    rounded
}

/// Four numbers that were bf16.
#[target_feature(enable = "neon")]
#[inline]
fn widen(numbers: uint16x4_t) -> float32x4_t {
    vreinterpretq_f32_u32(vshll_n_u16::<16>(numbers))
}
