//! How is a product computed with weights in the blocks of their file? Exactly: some rows of the weights are decoded
//! into panels in the L2, and the tiles of the f32 matmul run over all rows of x, which spreads the decoding's cost. Or in
//! integers, unpacking them once for some rows; weights that are repacked for that are another matter (`quant::lanes`).

use std::ops::Range;

use crate::blocks::{GROUP, part_of_tile};
use crate::matmul::{Begin, Finish, Tile, even_part, panels_at_once, tile};
use crate::quant::{Job, MOST_ABREAST, Quant};
use crate::scalar_decoder::scale_of;
use crate::{AttendScratch, Blocks, Epilogue, Interleaved, QuantizedMut, QuantizedRows, Rows, Window};

/// Most numbers of a row that are decoded at once: whole blocks of every format.
const DEPTH: usize = 256;
/// Rows that are decoded together and transposed into the panel.
const LANES: usize = 8;
/// Panels that are decoded before x is walked over them: what stays in the L2 beside a block of x.
const PANELS: usize = 8;
/// Numbers in a row of the widest panel.
const WIDEST_PANEL: usize = 32;
/// Rows of x that are taken over all decoded panels together, a multiple of every tile's.
const BLOCK: usize = 132;

#[inline(always)]
pub(crate) fn matmul_blocks<S: Quant>(
    s: S,
    x: Rows<'_>,
    w: &Blocks<'_>,
    outs: Range<usize>,
    mut y: Window<'_>,
    epilogue: &Epilogue<'_>,
    scratch: &mut AttendScratch,
) {
    let (rows, ins) = (x.rows(), w.ins());
    if rows == 0 {
        return;
    }
    let side = panels_at_once(rows);
    // Depths of nearly the same length, whole blocks each.
    let most = ins.div_ceil(ins.div_ceil(DEPTH).max(1)).next_multiple_of(w.format().block().max(8));
    let (panel_numbers, width) = (DEPTH * S::PANEL, PANELS * S::PANEL);
    let mut parts = scratch.take(PANELS * panel_numbers + DEPTH * LANES + rows * width);
    let mut part = |len: usize| parts.split_off_mut(..len).expect("the sum of all parts");
    // The sums of all rows over the decoded panels lie together, where rows of y may be an unlucky distance apart.
    let (panels, decoded, sums) = (part(PANELS * panel_numbers), part(DEPTH * LANES), part(rows * width));
    for at in (0..outs.len()).step_by(width) {
        let cols = width.min(outs.len() - at);
        let first = outs.start + at;
        let count = cols.div_ceil(S::PANEL);
        // The bias, padded to whole panels.
        let mut bias = [0f32; PANELS * WIDEST_PANEL];
        if let Some(all) = epilogue.bias {
            bias[..cols].copy_from_slice(&all[first..first + cols]);
        }
        let mut start = 0;
        loop {
            let depth = most.min(ins - start);
            for (i, panel) in panels.chunks_exact_mut(panel_numbers).take(count).enumerate() {
                let from = first + i * S::PANEL;
                unpack(s, w, from..(first + cols).min(from + S::PANEL), start..start + depth, panel, decoded);
            }
            for top in (0..rows).step_by(BLOCK) {
                let bottom = rows.min(top + BLOCK);
                let mut panel = 0;
                while panel < count {
                    let abreast = if panel + side <= count { side } else { 1 };
                    // SAFETY: the bias has a number for each column of the panels.
                    let bias = unsafe { bias.as_ptr().add(panel * S::PANEL) };
                    let mut row = top;
                    while row < bottom {
                        let height = even_part(bottom - row, S::TILE);
                        let task = Tile {
                            // SAFETY: row < x.rows() and start ≤ x.cols() = ins.
                            a: unsafe { x.as_ptr().add(row * x.stride() + start) },
                            a_row: x.stride(),
                            b: panels[panel * panel_numbers..].as_ptr(),
                            b_panel: panel_numbers,
                            depth,
                            c: sums[row * width + panel * S::PANEL..].as_mut_ptr(),
                            c_row: width,
                            begin: if start == 0 { Begin::Row(bias) } else { Begin::Sums },
                        };
                        // SAFETY: x has `height` rows below a and `depth` columns right of it; each of the panels abreast
                        // has `depth` rows; the sums have `height` rows of all panels from c on; so has the bias one.
                        unsafe { tile(s, task, height, abreast) };
                        row += height;
                    }
                    panel += abreast;
                }
            }
            start += depth;
            if start >= ins {
                break;
            }
        }
        for (row, sums) in sums.chunks_exact(width).enumerate() {
            y.row_mut(row)[at..at + cols].copy_from_slice(&sums[..cols]);
        }
    }
    finish(s, y, epilogue);
}

/// Rows `outs` and columns `ins` of the weights as a panel `[ins][PANEL]`.
#[inline(always)]
fn unpack<S: Quant>(
    s: S,
    w: &Blocks<'_>,
    outs: Range<usize>,
    ins: Range<usize>,
    panel: &mut [f32],
    decoded: &mut [f32],
) {
    let (block, block_bytes) = (w.format().block(), w.format().block_bytes());
    let bytes = ins.start / block * block_bytes..ins.end / block * block_bytes;
    let depth = ins.len().next_multiple_of(8);
    for lane in (0..S::PANEL).step_by(LANES) {
        for i in 0..LANES {
            let row = &mut decoded[i * DEPTH..][..ins.len()];
            match outs.start + lane + i {
                out if out < outs.end => s.decode(w.format(), &w.row(out)[bytes.clone()], row),
                _ => row.fill(0.0),
            }
        }
        s.transpose(decoded, DEPTH, depth, &mut panel[lane..], S::PANEL);
    }
}

/// What of the epilogue comes after the bias.
#[inline(always)]
fn finish<S: Quant>(s: S, y: Window<'_>, epilogue: &Epilogue<'_>) {
    if epilogue.activation.is_some() || epilogue.residual.is_some() {
        Finish { y, residual: epilogue.residual }.run(s, epilogue.activation);
    }
}

#[inline(always)]
pub(crate) fn quantize_rows<S: Quant>(s: S, x: Rows<'_>, mut to: QuantizedMut<'_>) {
    for i in 0..x.rows() {
        for (g, group) in x.row(i).as_chunks::<GROUP>().0.iter().enumerate() {
            let (mut most, mut stain) = (s.splat(0.0), s.splat(0.0));
            for x in group.chunks_exact(S::LANES) {
                let x = s.load_part(x, S::LANES);
                most = s.max(most, s.abs(x));
                // NaN where a number is no finite one.
                stain = s.add(stain, s.sub(x, x));
            }
            let (scale, inverse) = scale_of(s.largest(most));
            let (codes, sums) = s.round_group(group, inverse);
            to.put(i, g, scale + s.sum(stain), codes, sums);
        }
    }
}

#[inline(always)]
pub(crate) fn dot_blocks<S: Quant>(
    s: S,
    x: &QuantizedRows,
    w: &Blocks<'_>,
    outs: Range<usize>,
    mut y: Window<'_>,
    epilogue: &Epilogue<'_>,
    _scratch: &mut AttendScratch,
) {
    let mut first = 0;
    while first < x.rows() {
        let rows = part_of_tile(first..x.rows(), MOST_ABREAST);
        s.dot_rows(x, first..first + rows, w, outs.clone(), |row, out, sum| {
            y.row_mut(row)[out - outs.start] = sum + epilogue.bias.map_or(0.0, |bias| bias[out]);
        });
        first += rows;
    }
    finish(s, y, epilogue);
}

#[inline(always)]
pub(crate) fn dot_interleaved<S: Quant>(
    s: S,
    x: &QuantizedRows,
    w: &Interleaved,
    panels: Range<usize>,
    y: Window<'_>,
    epilogue: &Epilogue<'_>,
    scratch: &mut AttendScratch,
) {
    s.dot_interleaved(Job { x, w, panels, y, epilogue, scratch });
}
