//! How does a float32 product come from bf16 tiles? [`Tiled`] weights and the product's definition, as plain code.
//!
//! A number is the sum of two bf16 pieces, `x ≈ hi + mid`, 16 bits of it together, and a product is
//! `hi·hi + hi·mid + mid·hi`: within some 2⁻¹⁶ of the float32 one, at the speed of matrix units for bf16. Weights that are
//! bf16 already have one piece, and products of them two parts.

use std::ops::Range;

use crate::convert::{bf16_to_f32, f32_to_bf16};
use crate::{Epilogue, Isa, Kernels, Rows, Window};

/// Output features of a panel: two tiles side by side.
pub(crate) const PANEL: usize = 32;
/// Inputs of a tile.
pub(crate) const DEPTH: usize = 32;
/// bf16 numbers of a tile.
pub(crate) const TILE: usize = 512;

/// 64 bytes, a row of a tile.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u16; 32]);

/// The weights `[outs, ins]` of a linear layer in bf16 pieces and in tiles:
/// `[outs / 32][ins / 32][piece][half of the 32 outputs][pair of inputs][output][2]`, padded with zeros.
pub struct Tiled {
    lines: Vec<Line>,
    pieces: usize,
    outs: usize,
    ins: usize,
}

impl Tiled {
    /// Weights that are all zero, to be filled panel by panel. `pieces` is 2, or 1 for numbers that are bf16.
    ///
    /// # Panics
    /// If `pieces` is neither, or the address space too small.
    pub fn zeroed(pieces: usize, outs: usize, ins: usize) -> Tiled {
        assert!((1..=2).contains(&pieces), "{pieces} pieces");
        let panel = ins.div_ceil(DEPTH).checked_mul(pieces * 2 * TILE).expect("weights larger than the address space");
        let lines = outs.div_ceil(PANEL).checked_mul(panel / 32).expect("weights larger than the address space");
        Tiled { lines: vec![Line([0; 32]); lines], pieces, outs, ins }
    }

    /// The panels, to be filled in any order by any threads.
    pub fn panels_mut(&mut self) -> impl Iterator<Item = TilesMut<'_>> {
        let Tiled { pieces, outs, ins, .. } = *self;
        let lines = (self.panel_len() / 32).max(1);
        self.lines.chunks_mut(lines).enumerate().map(move |(i, lines)| {
            let first = i * PANEL;
            TilesMut { lines, pieces, ins, first, rows: PANEL.min(outs - first) }
        })
    }

    /// Rows of the weights: the features that come out.
    pub fn outs(&self) -> usize {
        self.outs
    }

    /// Columns of the weights: the features that go in.
    pub fn ins(&self) -> usize {
        self.ins
    }

    /// Number of panels.
    pub fn panels(&self) -> usize {
        self.outs.div_ceil(PANEL)
    }

    /// Output features in a panel (the last may have fewer).
    pub const fn panel_width() -> usize {
        PANEL
    }

    /// Rows that matrix units compute at once.
    pub const fn rows_together() -> usize {
        32
    }

    /// The output features that these panels compute.
    pub fn columns(&self, panels: Range<usize>) -> Range<usize> {
        (panels.start * PANEL).min(self.outs)..(panels.end * PANEL).min(self.outs)
    }

    pub(crate) fn pieces(&self) -> usize {
        self.pieces
    }

    /// Tiles of `DEPTH` inputs.
    pub(crate) fn steps(&self) -> usize {
        self.ins.div_ceil(DEPTH)
    }

    /// The numbers of a panel.
    pub(crate) fn panel(&self, panel: usize) -> &[u16] {
        let len = self.panel_len();
        // SAFETY: lines are arrays of 32 u16 without gaps, and there are as many as this.
        let numbers = unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast::<u16>(), self.lines.len() * 32) };
        &numbers[panel * len..][..len]
    }

    fn panel_len(&self) -> usize {
        self.steps() * self.pieces * 2 * TILE
    }
}

impl std::fmt::Debug for Tiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tiled[{}, {}] in {} pieces", self.outs, self.ins, self.pieces)
    }
}

/// One panel of [`Tiled`] weights, to be filled.
pub struct TilesMut<'a> {
    lines: &'a mut [Line],
    pieces: usize,
    ins: usize,
    first: usize,
    rows: usize,
}

impl TilesMut<'_> {
    /// Fills the panel: `decode(row, numbers)` is asked for its rows in order. `row` is scratch, `[ins]`.
    pub fn fill(&mut self, row: &mut [f32], mut decode: impl FnMut(usize, &mut [f32])) {
        assert_eq!(row.len(), self.ins, "length of a row");
        for out in 0..self.rows {
            decode(self.first + out, row);
            for (k, &number) in row.iter().enumerate() {
                let split = split(number);
                for (piece, &bits) in split.iter().enumerate().take(self.pieces) {
                    let at = place(self.pieces, k, piece, out);
                    self.lines[at / 32].0[at % 32] = bits;
                }
            }
        }
    }
}

/// Where in a panel piece `piece` of the weight from input `k` to the panel's output `out` lies.
fn place(pieces: usize, k: usize, piece: usize, out: usize) -> usize {
    let tile = (k / DEPTH * pieces + piece) * 2 + out / 16;
    tile * TILE + k % DEPTH / 2 * 32 + out % 16 * 2 + k % 2
}

/// The two pieces of a number. What is not finite is not finite in the first.
#[inline(always)]
pub(crate) fn split(x: f32) -> [u16; 2] {
    let hi = f32_to_bf16(x);
    [hi, f32_to_bf16(x - bf16_to_f32(hi))]
}

/// The memory that [`Kernels::matmul_tiles`] works in; it grows to the largest call's need.
#[derive(Default)]
pub struct TileScratch {
    lines: Vec<Line>,
}

impl TileScratch {
    /// `len` numbers of any value, from a cache line on.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
    pub(crate) fn take(&mut self, len: usize) -> &mut [u16] {
        if self.lines.len() * 32 < len {
            self.lines.resize(len.div_ceil(32), Line([0; 32]));
        }
        // SAFETY: lines are arrays of 32 u16 without gaps, and there are enough of them.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), len) }
    }
}

impl Kernels {
    /// Are there matrix units for [`Kernels::matmul_tiles`]? Without them it is right, but slow.
    pub fn has_tiles(&self) -> bool {
        self.isa == Isa::Amx
    }

    /// `y = epilogue(x · Wᵀ)` of bf16 pieces, for some rows and some panels of output features.
    ///
    /// `x` is `[rows, ins]`, `y` is `[rows, w.columns(panels)]`. The error of a product is some 2⁻¹⁶ of the sum of its
    /// parts' magnitudes. A row's bits do not depend on the others.
    ///
    /// # Panics
    /// If shapes differ.
    pub fn matmul_tiles(
        &self,
        x: Rows<'_>,
        w: &Tiled,
        panels: Range<usize>,
        y: Window<'_>,
        epilogue: &Epilogue<'_>,
        scratch: &mut TileScratch,
    ) {
        assert!(panels.start <= panels.end && panels.end <= w.panels(), "panels {panels:?} of {w:?}");
        assert_eq!(x.cols(), w.ins(), "columns of x and {w:?}");
        assert_eq!(
            (y.rows(), y.cols()),
            (x.rows(), w.columns(panels.clone()).len()),
            "shape of y for panels {panels:?} of {w:?}"
        );
        if let Some(bias) = epilogue.bias {
            assert_eq!(bias.len(), w.outs(), "length of the bias of {w:?}");
        }
        if let Some(residual) = epilogue.residual {
            assert_eq!((residual.rows(), residual.cols()), (y.rows(), y.cols()), "shape of the residual and y");
        }
        #[cfg(target_arch = "x86_64")]
        if self.has_tiles() {
            // SAFETY: this table is handed out where the machine has the instructions; shapes were checked.
            return unsafe { crate::amx::matmul(x, w, panels, y, epilogue, scratch) };
        }
        let _ = scratch;
        plain(x, w, panels, y, epilogue);
    }
}

/// The definition, and the oracle: the products of the pieces, summed in f64.
fn plain(x: Rows<'_>, w: &Tiled, panels: Range<usize>, mut y: Window<'_>, epilogue: &Epilogue<'_>) {
    let (columns, pieces) = (w.columns(panels), w.pieces());
    let scalar = Kernels::for_isa(Isa::Scalar).expect("it is everywhere");
    for row in 0..x.rows() {
        let numbers: Vec<[f64; 2]> = x.row(row).iter().map(|&x| split(x).map(|x| f64::from(bf16_to_f32(x)))).collect();
        let results = y.row_mut(row);
        for (result, out) in results.iter_mut().zip(columns.clone()) {
            let panel = w.panel(out / PANEL);
            let weight = |k: usize, piece: usize| f64::from(bf16_to_f32(panel[place(pieces, k, piece, out % PANEL)]));
            let mut sum = epilogue.bias.map_or(0.0, |bias| f64::from(bias[out]));
            for (k, &[hi, mid]) in numbers.iter().enumerate() {
                sum += (hi + mid) * weight(k, 0);
                if pieces == 2 {
                    sum += hi * weight(k, 1);
                }
            }
            *result = sum as f32;
        }
        if let Some(kind) = epilogue.activation {
            scalar.activation(kind, results);
        }
        if let Some(residual) = epilogue.residual {
            scalar.add(results, residual.row(row));
        }
    }
}
