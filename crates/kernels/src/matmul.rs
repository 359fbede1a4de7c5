//! How does a tile of `y = x · Wᵀ` stay in registers, and which order of tiles keeps the caches warm?
//!
//! A tile is up to `TILE` rows of x by one panel of W: its sums live in registers while a panel (32 KiB of it at
//! most) comes from the L1 and x is read by broadcast where it lies. A block of `BLOCK` rows is
//! walked over all panels, so that W comes from memory once a block while the block's part of x stays in the L2.
//! Sums between two depths wait in y. Each number of y is so one chain of fused multiply-adds in the order of `in`,
//! whatever tile it falls in: that is what makes a row's result independent of the others.

// Indices say which register is which.
#![allow(clippy::needless_range_loop)]

use std::ops::Range;

use crate::activations::{Identity, Unary, activations};
use crate::packed::Number;
use crate::simd::Simd;
use crate::{Activation, Epilogue, Packed, Rows, Stored, Window};

/// Most numbers of a panel that a tile walks before its sums go to y.
const DEPTH_NUMBERS: usize = 8192;
/// Rows of x that are taken over all panels together.
const BLOCK: usize = 144;
/// Most rows of a tile, on every instruction set.
pub(crate) const MOST_ROWS: usize = 12;
/// Most numbers in a row of a tile: of all panels side by side, on every instruction set.
const WIDEST: usize = 4 * 32;

/// A stored number that a vector unit widens as it loads.
pub(crate) trait Load: Number {
    /// # Safety
    /// As [`Simd::load`].
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::V;
}

impl Load for f32 {
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const f32) -> S::V {
        // SAFETY: the caller's.
        unsafe { s.load(p) }
    }
}

/// IEEE half precision, as its bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct F16(#[allow(dead_code)] u16);
impl Number for F16 {}
impl Load for F16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const F16) -> S::V {
        // SAFETY: the caller's; the layout is that of u16.
        unsafe { s.load_f16(p.cast()) }
    }
}

/// bfloat16, as its bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Bf16(#[allow(dead_code)] u16);
impl Number for Bf16 {}
impl Load for Bf16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Bf16) -> S::V {
        // SAFETY: the caller's; the layout is that of u16.
        unsafe { s.load_bf16(p.cast()) }
    }
}

#[inline(always)]
pub(crate) fn matmul<S: Simd>(
    s: S,
    x: Rows<'_>,
    w: &Packed,
    panels: Range<usize>,
    y: Window<'_>,
    epilogue: &Epilogue<'_>,
) {
    match w.stored() {
        Stored::F32 => blocks::<S, f32>(s, x, w, panels, y, epilogue),
        Stored::F16 => blocks::<S, F16>(s, x, w, panels, y, epilogue),
        Stored::Bf16 => blocks::<S, Bf16>(s, x, w, panels, y, epilogue),
    }
}

#[inline(always)]
fn blocks<S: Simd, T: Load>(
    s: S,
    x: Rows<'_>,
    w: &Packed,
    panels: Range<usize>,
    mut y: Window<'_>,
    epilogue: &Epilogue<'_>,
) {
    let columns = w.columns(panels.clone());
    let numbers = w.numbers::<T>();
    let plain = epilogue.activation.is_none() && epilogue.residual.is_none();
    let most = (DEPTH_NUMBERS / S::PANEL).min(512);
    let depth = w.ins().div_ceil(w.ins().div_ceil(most).max(1));
    let mut top = 0;
    while top < x.rows() {
        let left = x.rows() - top;
        let bottom = x.rows().min(top + left.div_ceil(left.div_ceil(BLOCK)).next_multiple_of(S::TILE));
        let side = panels_at_once(bottom - top);
        let mut start = 0;
        loop {
            let end = (start + depth).min(w.ins());
            let mut panel = panels.start;
            while panel < panels.end {
                let count = if panel + side <= panels.end { side } else { 1 };
                let at = panel * S::PANEL - columns.start;
                let cols = (count * S::PANEL).min(columns.len() - at);
                // The bias of a panel that lacks columns, padded to the panel.
                let mut padded = [0f32; WIDEST];
                let begin = match epilogue.bias {
                    _ if start > 0 => Begin::Sums,
                    None => Begin::Zero,
                    Some(bias) => {
                        let bias = &bias[columns.start + at..][..cols];
                        if cols == count * S::PANEL {
                            Begin::Row(bias.as_ptr())
                        } else {
                            padded[..cols].copy_from_slice(bias);
                            Begin::Row(padded.as_ptr())
                        }
                    }
                };
                let b = numbers[(panel * w.ins() + start) * S::PANEL..].as_ptr();
                let mut row = top;
                while row < bottom {
                    let rows = even_part(bottom - row, S::TILE);
                    // SAFETY: row < x.rows() and start + (end − start) ≤ x.cols() = w.ins().
                    let a = unsafe { x.as_ptr().add(row * x.stride() + start) };
                    // SAFETY: row < y.rows() and at < y.cols().
                    let c = unsafe { y.as_mut_ptr().add(row * y.stride() + at) };
                    let task = Tile {
                        a,
                        a_row: x.stride(),
                        b,
                        b_panel: w.ins() * S::PANEL,
                        depth: end - start,
                        c,
                        c_row: y.stride(),
                        begin,
                    };
                    // SAFETY: x has `rows` rows below a and `depth` columns right of it; the panels have as many rows
                    // behind b; y has `rows` rows and `cols` columns at c, which nobody else can reach; begin has the columns
                    // of whole panels.
                    unsafe { ragged_tile(s, task, rows, count, cols) };
                    row += rows;
                }
                if end == w.ins() && !plain {
                    let finish = Finish {
                        y: y.tile(top..bottom, at..at + cols),
                        residual: epilogue.residual.map(|r| r.slice_rows(top..bottom).slice_cols(at..at + cols)),
                    };
                    finish.run(s, epilogue.activation);
                }
                panel += count;
            }
            start = end;
            if start >= w.ins() {
                break;
            }
        }
        top = bottom;
    }
}

/// Panels that a block of so few rows takes side by side, so that enough sums are under way to hide the latency of
/// the multiply-add.
#[inline(always)]
pub(crate) fn panels_at_once(rows: usize) -> usize {
    match rows {
        1 => 4,
        2 => 2,
        _ => 1,
    }
}

/// The first of the fewest parts of `most` at most that `rows` can be cut into evenly.
#[inline(always)]
pub(crate) fn even_part(rows: usize, most: usize) -> usize {
    rows.div_ceil(rows.div_ceil(most))
}

/// What the sums of a tile begin with.
#[derive(Clone, Copy)]
pub(crate) enum Begin {
    Zero,
    /// These numbers in each row: the bias.
    Row(*const f32),
    /// What is in `c`: the sums over what came before.
    Sums,
}

/// `c = begin + a · b`.
#[derive(Clone, Copy)]
pub(crate) struct Tile<T> {
    /// Rows of `depth` numbers.
    pub(crate) a: *const f32,
    /// From a row of `a` to the next.
    pub(crate) a_row: usize,
    /// `depth` rows of a panel.
    pub(crate) b: *const T,
    /// From a panel to the next.
    pub(crate) b_panel: usize,
    pub(crate) depth: usize,
    /// The rows of the result.
    pub(crate) c: *mut f32,
    /// From a row of `c` to the next.
    pub(crate) c_row: usize,
    pub(crate) begin: Begin,
}

/// A tile of which `c` may lack the last columns.
///
/// # Safety
/// As [`tile`], but `c` needs `cols` columns only.
#[inline(always)]
unsafe fn ragged_tile<S: Simd, T: Load>(s: S, task: Tile<T>, rows: usize, panels: usize, cols: usize) {
    let width = panels * S::PANEL;
    if cols == width {
        // SAFETY: the caller's.
        return unsafe { tile(s, task, rows, panels) };
    }
    let mut whole = [0f32; MOST_ROWS * WIDEST];
    // SAFETY: rows ≤ MOST_ROWS and width ≤ WIDEST, so `whole` has a row of `width` for each; c has `cols` columns in each.
    unsafe {
        for row in 0..if matches!(task.begin, Begin::Sums) { rows } else { 0 } {
            task.c.add(row * task.c_row).copy_to_nonoverlapping(whole.as_mut_ptr().add(row * width), cols);
        }
        tile(s, Tile { c: whole.as_mut_ptr(), c_row: width, ..task }, rows, panels);
        for row in 0..rows {
            whole.as_ptr().add(row * width).copy_to_nonoverlapping(task.c.add(row * task.c_row), cols);
        }
    }
}

/// Computes a tile of 1 to `TILE` rows and 1 panel, or the 2 or 4 of [`panels_at_once`].
///
/// # Safety
/// `a` has `rows` rows of `depth` numbers to read, `b` has `depth` rows of each panel, `c` has `rows` rows of all
/// panels' columns to read and write, and so has `begin` one.
#[inline(always)]
pub(crate) unsafe fn tile<S: Simd, T: Load>(s: S, task: Tile<T>, rows: usize, panels: usize) {
    macro_rules! pick {
        ($($rows:literal x $panels:literal),*) => {
            match (rows, panels) {
                // SAFETY: the caller's.
                $(($rows, $panels) if $rows <= S::TILE => unsafe { fixed_tile::<S, T, $rows, $panels>(s, task) },)*
                _ => unreachable!("tile of {rows} rows and {panels} panels"),
            }
        };
    }
    pick!(6 x 1, 1 x 4, 2 x 2, 1 x 1, 2 x 1, 3 x 1, 4 x 1, 5 x 1, 7 x 1, 8 x 1, 9 x 1, 10 x 1, 11 x 1, 12 x 1);
}

/// # Safety
/// As [`tile`] of `ROWS` and `PANELS`.
#[inline(always)]
unsafe fn fixed_tile<S: Simd, T: Load, const ROWS: usize, const PANELS: usize>(s: S, task: Tile<T>) {
    let Tile { mut a, a_row, mut b, b_panel, depth, c, c_row, begin } = task;
    let mut sums = [[[s.splat(0.0); 2]; PANELS]; ROWS];
    // SAFETY: the caller's: everything read and written is inside a, b and c.
    unsafe {
        let begin = match begin {
            Begin::Zero => None,
            Begin::Row(bias) => Some((bias, 0)),
            Begin::Sums => Some((c.cast_const(), c_row)),
        };
        if let Some((from, from_row)) = begin {
            for row in 0..ROWS {
                for panel in 0..PANELS {
                    for v in 0..2 {
                        sums[row][panel][v] = s.load(from.add(row * from_row + panel * S::PANEL + v * S::LANES));
                    }
                }
            }
        }
        for _ in 0..depth {
            if PANELS == 1 {
                // The hardware's prefetch of a single stream ends at a page: stay one ahead of it.
                s.prefetch(b.wrapping_add(4096 / size_of::<T>()));
            }
            let mut weights = [[s.splat(0.0); 2]; PANELS];
            for panel in 0..PANELS {
                for v in 0..2 {
                    weights[panel][v] = T::load(s, b.add(panel * b_panel + v * S::LANES));
                }
            }
            for row in 0..ROWS {
                let x = s.splat(*a.add(row * a_row));
                for panel in 0..PANELS {
                    for v in 0..2 {
                        sums[row][panel][v] = s.fma(x, weights[panel][v], sums[row][panel][v]);
                    }
                }
            }
            a = a.add(1);
            b = b.add(S::PANEL);
        }
        for row in 0..ROWS {
            for panel in 0..PANELS {
                for v in 0..2 {
                    s.store(c.add(row * c_row + panel * S::PANEL + v * S::LANES), sums[row][panel][v]);
                }
            }
        }
    }
}

/// The epilogue of a tile, while it is in the L1.
pub(crate) struct Finish<'a> {
    pub(crate) y: Window<'a>,
    pub(crate) residual: Option<Rows<'a>>,
}

impl Finish<'_> {
    #[inline(always)]
    pub(crate) fn run<S: Simd>(self, s: S, activation: Option<Activation>) {
        match activation {
            None => self.with(s, Identity),
            Some(kind) => activations!(kind, function => self.with(s, function)),
        }
    }

    #[inline(always)]
    fn with<S: Simd>(mut self, s: S, function: impl Unary) {
        for row in 0..self.y.rows() {
            let residual = self.residual.map(|residual| residual.row(row));
            let y = self.y.row_mut(row);
            if y.len() == S::PANEL {
                // A row of a whole panel: two vectors under way hide each other's latency.
                let v = [s.load_part(y, S::LANES), s.load_part(&y[S::LANES..], S::LANES)];
                let mut v = [function.apply(s, v[0]), function.apply(s, v[1])];
                if let Some(residual) = residual {
                    v = [
                        s.add(v[0], s.load_part(residual, S::LANES)),
                        s.add(v[1], s.load_part(&residual[S::LANES..], S::LANES)),
                    ];
                }
                s.store_part(y, S::LANES, v[0]);
                s.store_part(&mut y[S::LANES..], S::LANES, v[1]);
                continue;
            }
            for at in (0..y.len()).step_by(S::LANES) {
                let n = S::LANES.min(y.len() - at);
                let v = function.apply(s, s.load_part(&y[at..], n));
                let v = match residual {
                    Some(residual) => s.add(v, s.load_part(&residual[at..], n)),
                    None => v,
                };
                s.store_part(&mut y[at..], n, v);
            }
        }
    }
}
