//! How does a float32 product come from bf16 tiles? [`TiledRows`] of activations, [`TileWeights`], and the product's definition
//! as plain code.
//!
//! A number is the sum of two bf16 pieces, `x ≈ hi + mid`, 16 bits of it together, and a product is
//! `hi·hi + hi·mid + mid·hi`: within some 2⁻¹⁶ of the float32 one, at the speed of matrix units for bf16. Weights that are
//! bf16 already have one piece, and products of them two parts. Where 8 bits are enough, each has one piece and a product one
//! part, within some 2⁻⁸.

use std::ops::Range;

use crate::convert::{bf16_to_f32, f32_to_bf16};
use crate::{Blocks, Epilogue, Isa, Kernels, Pool, Rows, Window};

/// Output features of a panel: two tiles side by side.
pub(crate) const PANEL: usize = 32;
/// Rows of a tile.
pub(crate) const ROWS: usize = 16;
/// Rows that matrix units multiply at once: two tiles.
pub(crate) const PAIR: usize = 2 * ROWS;
/// Inputs of a tile, which are a step.
pub(crate) const DEPTH: usize = 32;
/// bf16 numbers of a tile.
pub(crate) const TILE: usize = ROWS * DEPTH;
/// Inputs that lie together in a tile of rows, and in one of weights: what the matrix units of this architecture read of a row,
/// and of an output feature, at once. Tiles are `[inputs / together][16][together]`.
const ROW_TOGETHER: usize = if cfg!(target_arch = "aarch64") { 4 } else { DEPTH };
const OUT_TOGETHER: usize = if cfg!(target_arch = "aarch64") { 4 } else { 2 };
/// Rows of a block, which lie together.
const BLOCK: usize = 256;
/// Most steps of a depth, by the pieces of the rows: what of a panel of weights stays in the L1.
const MOST_STEPS: [usize; 2] = [16, 12];

/// 64 bytes, a row of a tile.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u16; 32]);

/// The weights `[outs, ins]` of a linear layer in bf16 pieces and in tiles:
/// `[outs / 32][ins / 32][piece][half of the 32 outputs]` tiles, padded with zeros.
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

    /// The output features that these panels compute.
    pub fn columns(&self, panels: Range<usize>) -> Range<usize> {
        (panels.start * PANEL).min(self.outs)..(panels.end * PANEL).min(self.outs)
    }

    /// bf16 pieces of a weight.
    pub(crate) fn pieces(&self) -> usize {
        self.pieces
    }

    /// The tiles of some steps of a panel.
    #[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), expect(dead_code))]
    pub(crate) fn steps_of(&self, panel: usize, steps: Range<usize>) -> &[u16] {
        let step = self.pieces * 2 * TILE;
        &numbers(&self.lines)[panel * self.panel_len()..][steps.start * step..steps.end * step]
    }

    /// Piece `piece` of the weight from input `k` to output `out`.
    fn bits(&self, out: usize, k: usize, piece: usize) -> u16 {
        numbers(&self.lines)[out / PANEL * self.panel_len() + place(self.pieces, k, piece, out % PANEL)]
    }

    fn panel_len(&self) -> usize {
        self.ins.div_ceil(DEPTH) * self.pieces * 2 * TILE
    }
}

/// Lines as the numbers that they hold.
fn numbers(lines: &[Line]) -> &[u16] {
    // SAFETY: lines are arrays of 32 u16 without gaps, and there are as many as this.
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), lines.len() * 32) }
}

/// As [`numbers`], to write.
fn numbers_mut(lines: &mut [Line]) -> &mut [u16] {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * 32) }
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
    let tile = (k / DEPTH * pieces + piece) * 2 + out / ROWS;
    tile * TILE + place_in_tile(OUT_TOGETHER, out, k)
}

/// Where in its tile the number of a row or an output feature for input `k` lies.
fn place_in_tile(together: usize, lane: usize, k: usize) -> usize {
    (k % DEPTH / together * ROWS + lane % ROWS) * together + k % together
}

/// The two pieces of a number. What is not finite is not finite in the first.
#[inline(always)]
pub(crate) fn split(x: f32) -> [u16; 2] {
    let hi = f32_to_bf16(x);
    [hi, f32_to_bf16(x - bf16_to_f32(hi))]
}

/// Activations `[rows, cols]` in bf16 pieces and in tiles, in blocks of 256 rows:
/// `[depth][rows of the block / 32][step][half of the 32 rows][piece]` tiles, padded with zeros as far as they are read; depths
/// are some steps of 32 numbers each. Its memory is reused from call to call.
#[derive(Debug, Default)]
pub struct TiledRows {
    lines: Vec<Line>,
    pieces: usize,
    rows: usize,
    cols: usize,
}

impl TiledRows {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers in a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.rows.div_ceil(BLOCK)
    }

    /// Rows in a block (the last may have fewer).
    pub const fn block_rows() -> usize {
        BLOCK
    }

    /// The rows of some blocks.
    pub fn rows_of(&self, blocks: Range<usize>) -> Range<usize> {
        (blocks.start * BLOCK).min(self.rows)..(blocks.end * BLOCK).min(self.rows)
    }

    pub(crate) fn pieces(&self) -> usize {
        self.pieces
    }

    /// Steps of [`DEPTH`] numbers.
    pub(crate) fn steps(&self) -> usize {
        self.cols.div_ceil(DEPTH)
    }

    /// The parts that a product walks its inputs in. Where numbers have one piece, parts of whole blocks of all formats.
    pub(crate) fn depths(&self) -> impl ExactSizeIterator<Item = Range<usize>> + Clone + use<> {
        let (steps, most) = (self.steps(), MOST_STEPS[self.pieces - 1]);
        let len = match self.cols.is_multiple_of(256) && self.pieces == 1 {
            true => most,
            false => steps.div_ceil(steps.div_ceil(most).max(1)).max(1),
        };
        (0..steps).step_by(len).map(move |start| start..steps.min(start + len))
    }

    /// The pairs of tiles of a block, and the rows that each holds.
    pub(crate) fn pairs(&self, block: usize) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let rows = self.rows_of(block..block + 1);
        rows.clone().step_by(PAIR).map(move |row| row..rows.end.min(row + PAIR)).enumerate()
    }

    /// The tiles of one depth of a pair.
    pub(crate) fn steps_of(&self, block: usize, pair: usize, steps: Range<usize>) -> &[u16] {
        let (start, step) = (self.block_start(block), 2 * self.pieces * TILE);
        let tall = self.rows_of(block..block + 1).len().div_ceil(PAIR);
        &numbers(&self.lines)[start + (steps.start * tall + pair * steps.len()) * step..][..steps.len() * step]
    }

    /// Where a block's numbers begin.
    fn block_start(&self, block: usize) -> usize {
        block * BLOCK / PAIR * self.steps() * 2 * self.pieces * TILE
    }

    /// The sum of the pieces of a number, or the first of them.
    fn value(&self, row: usize, col: usize, first: bool) -> f64 {
        let (block, row, step) = (row / BLOCK, row % BLOCK, col / DEPTH);
        let depth = self.depths().find(|depth| depth.contains(&step)).expect("a depth for each step");
        let tiles = &self.steps_of(block, row / PAIR, depth.clone())[(step - depth.start) * 2 * self.pieces * TILE..];
        let at = row % PAIR / ROWS * self.pieces * TILE + place_in_tile(ROW_TOGETHER, row, col);
        let pieces = if first { 1 } else { self.pieces };
        (0..pieces).map(|piece| f64::from(bf16_to_f32(tiles[at + piece * TILE]))).sum()
    }
}

/// What a row has for a step, padded with zeros in `padded`, which is zeros before; for a row behind the last, zeros.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
pub(crate) fn step_of<'a>(x: Rows<'a>, row: usize, step: usize, padded: &'a mut [f32; DEPTH]) -> &'a [f32; DEPTH] {
    let numbers = if row < x.rows() { x.row(row) } else { &[] };
    let numbers = numbers.get(step * DEPTH..).unwrap_or(&[]);
    numbers.first_chunk().unwrap_or_else(|| {
        padded[..numbers.len()].copy_from_slice(numbers);
        padded
    })
}

/// The weights of a product on matrix units.
#[derive(Clone, Copy, Debug)]
pub enum TileWeights<'a> {
    /// In tiles already.
    Tiled(&'a Tiled),
    /// In blocks, which are rounded to one bf16 piece as they are unpacked.
    Blocks(Blocks<'a>),
}

impl TileWeights<'_> {
    /// Rows of the weights: the features that come out.
    pub fn outs(&self) -> usize {
        match self {
            TileWeights::Tiled(w) => w.outs,
            TileWeights::Blocks(w) => w.outs(),
        }
    }

    /// Columns of the weights: the features that go in.
    pub fn ins(&self) -> usize {
        match self {
            TileWeights::Tiled(w) => w.ins,
            TileWeights::Blocks(w) => w.ins(),
        }
    }

    /// Number of panels of [`Tiled::panel_width`] output features.
    pub fn panels(&self) -> usize {
        self.outs().div_ceil(PANEL)
    }

    /// The output features that these panels compute.
    pub fn columns(&self, panels: Range<usize>) -> Range<usize> {
        (panels.start * PANEL).min(self.outs())..(panels.end * PANEL).min(self.outs())
    }

    /// bf16 pieces of a weight.
    pub fn pieces(&self) -> usize {
        match self {
            TileWeights::Tiled(w) => w.pieces(),
            TileWeights::Blocks(_) => 1,
        }
    }

    /// Steps that an unpacked panel takes in memory.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn unpacked(&self, x: &TiledRows) -> usize {
        match self {
            TileWeights::Tiled(_) => 0,
            TileWeights::Blocks(_) => x.depths().next().map_or(0, |depth| depth.len()),
        }
    }
}

/// The memory that [`Kernels::matmul_tiles`] works in; it grows to the largest call's need.
#[derive(Default)]
pub struct TileScratch {
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
    sums: Vec<Sums>,
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
    panel: Vec<Line>,
}

/// Sums of [`PAIR`] rows by a panel.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Sums(pub(crate) [f32; PAIR * PANEL]);

impl TileScratch {
    /// `sums` blocks of sums of any value, and `steps` steps of a panel of one piece.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn take(&mut self, sums: usize, steps: usize) -> (&mut [Sums], &mut [u16]) {
        if self.sums.len() < sums {
            self.sums.resize(sums, Sums([0.0; PAIR * PANEL]));
        }
        let lines = steps * 2 * TILE / 32;
        if self.panel.len() < lines {
            self.panel.resize(lines, Line([0; 32]));
        }
        (&mut self.sums[..sums], numbers_mut(&mut self.panel[..lines]))
    }
}

/// Instructions that multiply matrices of bf16 numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixUnit {
    /// AMX, which has registers of whole tiles.
    Amx,
    /// `bfmmla` of AArch64, in NEON's registers: four times the products of a multiply-add in float32, of which some cores begin
    /// twice as many in a cycle.
    Bfmmla,
}

impl Kernels {
    /// The matrix unit that computes [`Kernels::matmul_tiles`]; without one it is right, but slow.
    pub fn matrix_unit(&self) -> Option<MatrixUnit> {
        match self.isa {
            Isa::Amx => Some(MatrixUnit::Amx),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon if crate::bfmmla::available() => Some(MatrixUnit::Bfmmla),
            _ => None,
        }
    }

    /// Are there tile registers, which attention and blocks of weights go through as well?
    pub fn has_tiles(&self) -> bool {
        self.matrix_unit() == Some(MatrixUnit::Amx)
    }

    /// Splits rows into so many bf16 pieces, 1 or 2, on the threads of a pool.
    ///
    /// # Panics
    /// If `pieces` is neither, or the address space too small.
    pub fn tile_rows(&self, x: Rows<'_>, pieces: usize, pool: &Pool, to: &mut TiledRows) {
        assert!((1..=2).contains(&pieces), "{pieces} pieces");
        (to.pieces, to.rows, to.cols) = (pieces, x.rows(), x.cols());
        let pairs = x.rows().div_ceil(PAIR);
        let step = 2 * pieces * TILE / 32;
        let lines = pairs.checked_mul(to.steps() * step).expect("rows larger than the address space");
        if to.lines.len() < lines {
            to.lines.resize(lines, Line([0; 32]));
        }
        let mut own = std::mem::take(&mut to.lines);
        let block_lines = (to.block_start(1) / 32).max(1);
        let depths = to.depths();
        pool.chunks(&mut own[..lines], block_lines, |block, lines| {
            let mut rest = lines;
            for steps in depths.clone() {
                for (_, rows) in to.pairs(block) {
                    let (tiles, others) = rest.split_at_mut(steps.len() * step);
                    rest = others;
                    self.split(x.slice_rows(rows), steps.clone(), pieces, numbers_mut(tiles));
                }
            }
        });
        to.lines = own;
    }

    /// Up to 32 rows as the tiles of one depth.
    fn split(&self, x: Rows<'_>, steps: Range<usize>, pieces: usize, to: &mut [u16]) {
        #[cfg(target_arch = "x86_64")]
        if self.has_tiles() {
            // SAFETY: this table is handed out where the machine has the instructions.
            return unsafe { crate::amx::split(x, steps, pieces, to) };
        }
        #[cfg(target_arch = "aarch64")]
        if self.matrix_unit() == Some(MatrixUnit::Bfmmla) {
            // SAFETY: the machine has the instructions.
            return unsafe { crate::bfmmla::split(x, steps, pieces, to) };
        }
        to.fill(0);
        for row in 0..x.rows() {
            let numbers = x.row(row).iter().enumerate().skip(steps.start * DEPTH).take(steps.len() * DEPTH);
            for (col, &number) in numbers {
                let tile = ((col / DEPTH - steps.start) * 2 + row / ROWS) * pieces;
                for (piece, bits) in split(number).into_iter().enumerate().take(pieces) {
                    to[(tile + piece) * TILE + place_in_tile(ROW_TOGETHER, row, col)] = bits;
                }
            }
        }
    }

    /// `y = epilogue(x · Wᵀ)` of bf16 pieces, for some blocks of rows and some panels of output features.
    ///
    /// `x` is `[rows, ins]`, `y` is `[x.rows_of(blocks), w.columns(panels)]`, and so is the residual; the bias is that of all
    /// output features. The error of a product is some 2⁻¹⁶ of the sum of its parts' magnitudes where `x` has two pieces and the
    /// weights have two or are bf16, and some 2⁻⁸ where they have one; what sums in float32 lose is less, some 2⁻²¹ with `bfmmla`.
    /// A row's bits do not depend on the others.
    ///
    /// # Panics
    /// If shapes differ, there are no inputs, or the weights have more pieces than the rows.
    #[expect(clippy::too_many_arguments, reason = "a product is of what these say")]
    pub fn matmul_tiles(
        &self,
        x: &TiledRows,
        blocks: Range<usize>,
        w: TileWeights<'_>,
        panels: Range<usize>,
        y: Window<'_>,
        epilogue: &Epilogue<'_>,
        scratch: &mut TileScratch,
    ) {
        assert!(blocks.start <= blocks.end && blocks.end <= x.blocks(), "blocks {blocks:?} of {}", x.blocks());
        assert!(panels.start <= panels.end && panels.end <= w.panels(), "panels {panels:?} of {w:?}");
        assert_eq!(x.cols(), w.ins(), "columns of x and {w:?}");
        assert!(w.ins() > 0, "no inputs in {w:?}");
        assert!(x.pieces() >= w.pieces(), "{} pieces of rows by {w:?}", x.pieces());
        let shape = (x.rows_of(blocks.clone()).len(), w.columns(panels.clone()).len());
        assert_eq!((y.rows(), y.cols()), shape, "shape of y for panels {panels:?} of {w:?}");
        if let Some(bias) = epilogue.bias {
            assert_eq!(bias.len(), w.outs(), "length of the bias of {w:?}");
        }
        if let Some(residual) = epilogue.residual {
            assert_eq!((residual.rows(), residual.cols()), shape, "shape of the residual and y");
        }
        #[cfg(target_arch = "x86_64")]
        if self.has_tiles() {
            // SAFETY: this table is handed out where the machine has the instructions; shapes were checked.
            return unsafe { crate::amx::matmul(x, blocks, w, panels, y, epilogue, scratch) };
        }
        #[cfg(target_arch = "aarch64")]
        if let (TileWeights::Tiled(w), Some(MatrixUnit::Bfmmla)) = (w, self.matrix_unit()) {
            // SAFETY: the machine has the instructions.
            return unsafe { crate::bfmmla::matmul(x, blocks, w, panels, y, epilogue) };
        }
        let _ = scratch;
        plain(x, blocks, w, panels, y, epilogue);
    }
}

/// The definition, and the oracle: the products of the pieces, summed in f64.
fn plain(
    x: &TiledRows,
    blocks: Range<usize>,
    w: TileWeights<'_>,
    panels: Range<usize>,
    mut y: Window<'_>,
    epilogue: &Epilogue<'_>,
) {
    let columns = w.columns(panels);
    let scalar = Kernels::for_isa(Isa::Scalar).expect("it is everywhere");
    let mut decoded = vec![0f32; w.ins()];
    for (row, y_row) in x.rows_of(blocks).zip(0..) {
        let numbers: Vec<_> = (0..x.cols()).map(|col| (x.value(row, col, false), x.value(row, col, true))).collect();
        let results = y.row_mut(y_row);
        for (result, out) in results.iter_mut().zip(columns.clone()) {
            let mut sum = epilogue.bias.map_or(0.0, |bias| f64::from(bias[out]));
            match w {
                TileWeights::Tiled(w) => {
                    let weight = |k, piece| f64::from(bf16_to_f32(w.bits(out, k, piece)));
                    for (k, &(whole, hi)) in numbers.iter().enumerate() {
                        sum += whole * weight(k, 0);
                        if w.pieces == 2 {
                            sum += hi * weight(k, 1);
                        }
                    }
                }
                TileWeights::Blocks(w) => {
                    crate::quant::decode(w.format(), w.row(out), &mut decoded);
                    for (&(whole, _), &weight) in numbers.iter().zip(&decoded) {
                        sum += whole * f64::from(bf16_to_f32(f32_to_bf16(weight)));
                    }
                }
            }
            *result = sum as f32;
        }
        if let Some(kind) = epilogue.activation {
            scalar.activation(kind, results);
        }
        if let Some(residual) = epilogue.residual {
            scalar.add(results, residual.row(y_row));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_isa_splits_rows_to_the_same_bits() {
        let (rows, cols) = (37, 70);
        let number = |i: usize| match (i * 7919 % 1009) as f32 / 300.0 - 1.7 {
            // Halfway between two bf16 numbers.
            x if i.is_multiple_of(5) => f32::from_bits(x.to_bits() & 0xffff_0000 | 0x8000),
            x => x,
        };
        let x: Vec<f32> = (0..rows * cols).map(number).collect();
        let pool = Pool::new(1).expect("the caller's thread alone");
        for pieces in [1, 2] {
            let split = |isa| {
                let (kernels, mut tiles) = (Kernels::for_isa(isa).expect("an available one"), TiledRows::default());
                kernels.tile_rows(Rows::dense(&x, cols), pieces, &pool, &mut tiles);
                numbers(&tiles.lines).to_vec()
            };
            for isa in Isa::available() {
                assert!(split(isa) == split(Isa::Scalar), "{isa} in {pieces} pieces");
            }
        }
    }
}
