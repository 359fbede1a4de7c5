//! Linear layers on the CPU: how weights are kept, and how a product is cut into tiles for the threads.

use super::{Cpu, Precision, SERIAL_VALUES, TASKS_PER_THREAD, values, vector};
use crate::value::{Act, Linear};
use crate::vocabulary::{Ops, OpsError};
use kernels::{
    Activation, AttendScratch, Blocks, Epilogue, Interleaved, Kernels, MatrixUnit, Packed, Pool, QuantizedRows, Rows,
    Stored, TileScratch, TileWeights, Tiled, TiledRows, TilesMut, Window,
};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use weights::{Format, Tensor};

/// Rows of a tile: enough to reuse a panel of weights, few enough to stay in the second-level cache.
const TILE_ROWS: usize = 96;
/// Blocks of rows of a tile on matrix units, where weights are unpacked for each: enough to spread that over.
const BLOCKS_TOGETHER: usize = 2;
/// Tiles are cut at multiples of this many rows: what micro-kernels compute at once (6 on AVX2, 12 on AVX-512).
const ROWS_TOGETHER: usize = 12;
/// Panels of weights in blocks that a product in float32 decodes at once.
const PANELS_TOGETHER: usize = 8;
/// Output features of a tile where products are in integers.
const OUTS_TOGETHER: usize = 16;
/// Rows from which on integer products are cut into twice as many tasks.
const LONG_TASKS: usize = 64;
/// Bytes of a mapped tensor that are read before their pages are given back.
const BYTES_TOGETHER: usize = 1 << 17;
/// Precision fast multiplies up to so many rows with quantized weights in integers where more go to matrix units.
const INTEGER_ROWS: usize = 16;
/// Products with less arithmetic are not worth waking a thread for.
const SERIAL_PRODUCTS: usize = 100_000;

thread_local! {
    static SCRATCH: RefCell<AttendScratch> = RefCell::default();
    static QUANTIZED: RefCell<QuantizedRows> = RefCell::default();
    static TILE_SCRATCH: RefCell<TileScratch> = RefCell::default();
    /// Rows in one bf16 piece, and in two.
    static TILED: RefCell<[TiledRows; 2]> = RefCell::default();
}

/// A matrix as the kernels read it.
#[derive(Debug)]
pub(super) enum Matrix {
    /// Plain numbers, repacked into panels.
    Packed(Packed),
    /// Plain numbers in bf16 pieces for matrix units, and the pieces of rows that meet them.
    Tiled(Tiled, usize),
    /// Blocks of a quantized format, as they lie in the mapped file.
    Blocks(Tensor),
    /// The same repacked for products in integers.
    Interleaved(Interleaved),
}

impl Matrix {
    /// Takes a tensor. Numbers keep their width in memory; what is repacked gives its mapped pages back.
    pub(super) fn new(
        kernels: &Kernels,
        precision: Precision,
        batch_invariant: bool,
        pool: &Pool,
        tensor: &Tensor,
    ) -> Result<Matrix, OpsError> {
        let rounded = match precision {
            Precision::Fast if kernels.matrix_unit().is_none() && kernels.prefers_integers() => in_8_bits(pool, tensor),
            _ => None,
        };
        let tensor = rounded.as_ref().unwrap_or(tensor);
        let in_integers = match precision {
            Precision::Exact => false,
            Precision::Default => true,
            // On matrix units in bf16, unless that were so for many rows only.
            Precision::Fast => !kernels.has_tiles() || batch_invariant,
        };
        let stored = match tensor.format() {
            Format::F32 | Format::F64 => Stored::F32,
            Format::F16 => Stored::F16,
            Format::BF16 => Stored::Bf16,
            format if in_integers && kernels.interleaves(format) => {
                let blocks = Blocks::new(format, tensor.bytes(), tensor.rows(), tensor.cols());
                let mut interleaved = Interleaved::zeroed(kernels, format, tensor.rows(), tensor.cols());
                let width = interleaved.panel_width();
                repack(pool, tensor, width, interleaved.panels_mut().collect(), |mut panel| panel.fill(&blocks));
                return Ok(Matrix::Interleaved(interleaved));
            }
            format if format.block() > 1 && kernels.supports(format).exact => {
                return Ok(Matrix::Blocks(tensor.clone()));
            }
            // One byte a number without its scale means nothing.
            other => {
                let (tensor, format) = (tensor.name().to_string(), other.name().to_string());
                return Err(OpsError::Format { tensor, format, role: "matrix" });
            }
        };
        let (rows, cols) = (tensor.rows(), tensor.cols());
        let failed = OnceLock::new();
        let decode = |row: usize, values: &mut [f32]| {
            if let Err(error) = tensor.decode_row(row, values) {
                let _ = failed.set(error); // the first is enough
            }
        };
        // Pieces of rows and of weights.
        let pieces = match (precision, stored, kernels.matrix_unit()) {
            (Precision::Exact, ..) | (.., None) => None,
            (Precision::Fast, ..) => Some((1, 1)),
            (Precision::Default, Stored::Bf16, _) => Some((2, 1)),
            (Precision::Default, Stored::F32, Some(MatrixUnit::Amx)) => Some((2, 2)),
            // Three `bfmmla` are no faster than four multiply-adds on cores that begin twice as many of these in a cycle.
            (Precision::Default, Stored::F32, Some(MatrixUnit::Bfmmla)) => None,
            // Half precision is no sum of fewer pieces than would double it.
            (Precision::Default, ..) => None,
        };
        let matrix = if let Some((of_rows, of_weights)) = pieces {
            let mut tiled = Tiled::zeroed(of_weights, rows, cols);
            let fill = |mut panel: TilesMut<'_>| panel.fill(&mut vec![0.0; cols], decode);
            repack(pool, tensor, Tiled::panel_width(), tiled.panels_mut().collect(), fill);
            Matrix::Tiled(tiled, of_rows)
        } else {
            let mut packed = Packed::zeroed(kernels, stored, rows, cols);
            let (width, panels) = (packed.panel_width(), packed.panels_mut().collect());
            repack(pool, tensor, width, panels, |mut panel| panel.fill(&mut vec![0.0; cols], decode));
            Matrix::Packed(packed)
        };
        failed.into_inner().map_or(Ok(matrix), |error| Err(error.into()))
    }

    /// `[outputs, inputs]`
    fn shape(&self) -> (usize, usize) {
        match self {
            Matrix::Packed(packed) => (packed.outs(), packed.ins()),
            Matrix::Tiled(tiled, _) => (tiled.outs(), tiled.ins()),
            Matrix::Blocks(tensor) => (tensor.rows(), tensor.cols()),
            Matrix::Interleaved(w) => (w.outs(), w.ins()),
        }
    }
}

/// The plain numbers of a tensor as Q8_0, whose mapped pages are given back on the way; `None` where its rows are no whole blocks, it
/// is quantized already, or a number is none that the format holds.
fn in_8_bits(pool: &Pool, tensor: &Tensor) -> Option<Tensor> {
    let (rows, cols) = (tensor.rows(), tensor.cols());
    let plain = matches!(tensor.format(), Format::F32 | Format::F64 | Format::F16 | Format::BF16);
    let width = Format::Q8_0.row_bytes(cols).filter(|_| plain && rows * cols > 0)?;
    let tall = (BYTES_TOGETHER / tensor.row_bytes().max(1)).max(1);
    let mut bytes = vec![0; rows * width];
    let failed = AtomicBool::new(false);
    pool.chunks(&mut bytes, tall * width, |i, bytes| {
        let part = tensor.slice_rows(i * tall..rows.min((i + 1) * tall));
        match part.and_then(|part| part.encode(Format::Q8_0)) {
            Ok(part) => bytes.copy_from_slice(part.bytes()),
            Err(_) => failed.store(true, Ordering::Relaxed),
        }
    });
    if failed.into_inner() {
        return None;
    }
    tensor.release();
    Tensor::from_bytes(tensor.name(), vec![rows, cols], Format::Q8_0, bytes).ok()
}

/// Fills panels of `width` rows each from a tensor, whose mapped pages are given back on the way, so that a matrix is never in
/// memory twice.
fn repack<P: Send>(pool: &Pool, tensor: &Tensor, width: usize, panels: Vec<P>, fill: impl Fn(P) + Sync) {
    let tall = (BYTES_TOGETHER / (width * tensor.row_bytes()).max(1)).max(1);
    let mut panels = panels.into_iter();
    let parts =
        (0..tensor.rows()).step_by(tall * width).map(|row| (row, panels.by_ref().take(tall).collect::<Vec<_>>()));
    pool.each_of(parts.collect(), |(row, panels)| {
        panels.into_iter().for_each(&fill);
        let rows = row..tensor.rows().min(row + tall * width);
        if let Ok(part) = tensor.slice_rows(rows) {
            part.release();
        }
    });
    // What came back with its neighbours.
    tensor.release();
}

/// A product to compute: all but the rows that it is computed for.
struct Product<'a> {
    factor: Factor<'a>,
    epilogue: Epilogue<'a>,
}

/// Weights, and in which arithmetic they are multiplied.
enum Factor<'a> {
    Packed(&'a Packed),
    /// In bf16 pieces, with rows in so many.
    Tiled(TileWeights<'a>, usize),
    /// In float32, decoded on the way.
    Decoded(Blocks<'a>),
    /// In integers.
    Integer(Blocks<'a>),
    /// The same on repacked weights.
    Interleaved(&'a Interleaved),
}

impl Factor<'_> {
    /// Products for each row of activations.
    fn size(&self) -> usize {
        match self {
            Factor::Packed(w) => w.outs() * w.ins(),
            Factor::Tiled(w, _) => w.outs() * w.ins(),
            Factor::Decoded(w) | Factor::Integer(w) => w.outs() * w.ins(),
            Factor::Interleaved(w) => w.outs() * w.ins(),
        }
    }

    fn takes_integers(&self) -> bool {
        matches!(self, Factor::Integer(_) | Factor::Interleaved(_))
    }
}

impl Cpu {
    /// `y = residual + activation(x · Wᵀ + b)`.
    pub(super) fn matmul(&self, x: &Act, w: &Linear, activation: Option<Activation>, residual: Option<Act>) -> Act {
        if let Some(residual) = &residual {
            assert_eq!((residual.rows(), residual.cols()), (x.rows(), w.outputs), "shapes of the sum at {:?}", w.key);
        }
        let residual = residual.as_ref().map(|r| Rows::dense(values(r), w.outputs));
        let mut product = self.product(x, w);
        product.epilogue = Epilogue { activation, residual, ..product.epilogue };
        self.act(x.rows(), w.outputs, |out| {
            let tiles = self.tiles(x.rows(), &product, Window::dense(out, w.outputs), 1.0);
            let products = std::slice::from_ref(&product);
            self.with_factors(x, products, |x| self.pool.each_of(tiles, |tile| self.tile(x, &product, tile)));
        })
    }

    /// Products of the same rows, as one job for the threads.
    pub(super) fn matmuls(&self, x: &Act, weights: &[&Linear]) -> Vec<Act> {
        let products: Vec<Product<'_>> = weights.iter().map(|w| self.product(x, w)).collect();
        let all: usize = products.iter().map(|p| p.factor.size()).sum();
        let mut results: Vec<_> = weights.iter().map(|w| self.buffers.take(x.rows() * w.outputs)).collect();
        let mut tiles = Vec::new();
        for ((result, product), w) in results.iter_mut().zip(&products).zip(weights) {
            let share = product.factor.size() as f64 / all.max(1) as f64;
            let window = Window::dense(result.values_mut(), w.outputs);
            tiles.extend(self.tiles(x.rows(), product, window, share).into_iter().map(|tile| (product, tile)));
        }
        self.with_factors(x, &products, |x| {
            self.pool.each_of(tiles, |(product, tile)| self.tile(x, product, tile));
        });
        results.into_iter().zip(weights).map(|(host, w)| Act::new(x.rows(), w.outputs, host)).collect()
    }

    /// `kind(x · gateᵀ) ⊙ (x · upᵀ)`: a tile of both, then their product while it is in the cache.
    pub(super) fn matmul_glu(&self, x: &Act, gate: &Linear, up: &Linear, kind: Activation) -> Act {
        assert_eq!(gate.outputs, up.outputs, "features of {:?} and {:?}", gate.key, up.key);
        let (rows, outputs) = (x.rows(), gate.outputs);
        let products = [self.product(x, gate), self.product(x, up)];
        let [a, b] = products.each_ref().map(|p| std::mem::discriminant(&p.factor));
        if a != b {
            // Cut differently.
            return self.glu(self.linear(x, gate), &self.linear(x, up), kind);
        }
        let mut other = self.buffers.take(rows * outputs);
        self.act(rows, outputs, |out| {
            let [gates, ups] = [(&products[0], out), (&products[1], other.values_mut())]
                .map(|(product, values)| self.tiles(rows, product, Window::dense(values, outputs), 0.5));
            self.with_factors(x, &products, |x| {
                self.pool.each_of(gates.into_iter().zip(ups).collect(), |(mut gate, mut up)| {
                    self.tile(x, &products[0], gate.reborrow());
                    self.tile(x, &products[1], up.reborrow());
                    for row in 0..gate.rows.len() {
                        self.kernels.glu(kind, gate.window.row_mut(row), up.window.row(row));
                    }
                });
            });
        })
    }

    /// What a linear layer says, for rows like those of `x`.
    fn product<'a>(&self, x: &Act, w: &'a Linear) -> Product<'a> {
        let matrix = w.weight.inner::<Matrix>();
        assert_eq!((w.outputs, w.inputs), matrix.shape(), "{:?} as declared and as uploaded", w.key);
        assert_eq!(x.cols(), w.inputs, "features that go into {:?}", w.key);
        let factor = match matrix {
            Matrix::Packed(packed) => Factor::Packed(packed),
            Matrix::Tiled(tiled, pieces) => Factor::Tiled(TileWeights::Tiled(tiled), *pieces),
            Matrix::Blocks(tensor) => {
                let blocks = Blocks::new(tensor.format(), tensor.bytes(), tensor.rows(), tensor.cols());
                match self.precision {
                    Precision::Fast if self.kernels.has_tiles() && x.rows() > INTEGER_ROWS => {
                        Factor::Tiled(TileWeights::Blocks(blocks), 1)
                    }
                    Precision::Default | Precision::Fast if self.kernels.supports(blocks.format()).dot => {
                        Factor::Integer(blocks)
                    }
                    _ => Factor::Decoded(blocks),
                }
            }
            Matrix::Interleaved(w) => Factor::Interleaved(w),
        };
        let epilogue = Epilogue { bias: w.bias.as_ref().map(vector), activation: None, residual: None };
        Product { factor, epilogue }
    }

    /// Cuts a product's result for the threads; it is `share` of the job that they do together.
    fn tiles<'a>(&self, rows: usize, product: &Product<'_>, out: Window<'a>, share: f64) -> Vec<Tile<'a>> {
        let work = (rows * product.factor.size()) as f64 / share;
        let parallel = work >= SERIAL_PRODUCTS as f64 && self.threads() > 1;
        let tasks = if parallel { (share * (self.threads() * TASKS_PER_THREAD) as f64).ceil() as usize } else { 1 };
        match &product.factor {
            Factor::Packed(w) => {
                let tall = rows.div_ceil(tasks).next_multiple_of(ROWS_TOGETHER).clamp(1, TILE_ROWS);
                let across = tasks.div_ceil(rows.div_ceil(tall).max(1)).min(w.panels().max(1));
                tiles(out, tall, w.panels().div_ceil(across).max(1) * w.panel_width())
            }
            Factor::Tiled(w, _) => {
                let together = if matches!(w, TileWeights::Blocks(_)) { BLOCKS_TOGETHER } else { 1 };
                let tall = together * TiledRows::block_rows();
                let across = tasks.div_ceil(rows.div_ceil(tall).max(1)).min(w.panels().max(1));
                tiles(out, tall, w.panels().div_ceil(across).max(1) * Tiled::panel_width())
            }
            Factor::Decoded(w) => {
                let together = PANELS_TOGETHER * self.kernels.panel_width();
                tiles(out, rows.max(1), w.outs().div_ceil(tasks).next_multiple_of(together))
            }
            Factor::Integer(w) => tiles(out, rows.max(1), w.outs().div_ceil(tasks).next_multiple_of(OUTS_TOGETHER)),
            Factor::Interleaved(w) => {
                // With many rows the tasks are long, and the last one would be waited for.
                let tasks = if rows < LONG_TASKS { tasks } else { 2 * tasks };
                tiles(out, rows.max(1), w.outs().div_ceil(tasks).next_multiple_of(2 * w.panel_width()))
            }
        }
    }

    /// Gives `run` the rows, in integers and in bf16 pieces too if a product needs them.
    fn with_factors(&self, x: &Act, products: &[Product<'_>], run: impl FnOnce(Factors<'_>)) {
        let rows = Rows::dense(values(x), x.cols());
        QUANTIZED.with_borrow_mut(|quantized| {
            TILED.with_borrow_mut(|tiled| {
                if products.iter().any(|p| p.factor.takes_integers()) {
                    self.quantize(rows, quantized);
                }
                for (tiled, pieces) in tiled.iter_mut().zip(1..) {
                    if products.iter().any(|p| matches!(p.factor, Factor::Tiled(_, of_rows) if of_rows == pieces)) {
                        self.kernels.tile_rows(rows, pieces, &self.pool, tiled);
                    }
                }
                run(Factors { rows, quantized, tiled });
            });
        });
    }

    /// Rounds rows to integers, on the threads.
    fn quantize(&self, rows: Rows<'_>, to: &mut QuantizedRows) {
        let mut left = to.shaped(rows.rows(), rows.cols());
        if rows.rows() * rows.cols() < SERIAL_VALUES {
            return self.kernels.quantize_rows(rows, left);
        }
        let tall = rows.rows().div_ceil(self.threads() * TASKS_PER_THREAD);
        let tall = tall.next_multiple_of(QuantizedRows::tile_rows());
        let parts: Vec<_> = (0..rows.rows())
            .step_by(tall)
            .map(|row| {
                let part = rows.slice_rows(row..rows.rows().min(row + tall));
                let (to, rest) = std::mem::take(&mut left).split_rows(part.rows());
                left = rest;
                (part, to)
            })
            .collect();
        self.pool.each_of(parts, |(rows, to)| self.kernels.quantize_rows(rows, to));
    }

    fn tile(&self, x: Factors<'_>, product: &Product<'_>, tile: Tile<'_>) {
        let residual = product.epilogue.residual;
        let residual = residual.map(|r| r.slice_rows(tile.rows.clone()).slice_cols(tile.cols.clone()));
        let epilogue = Epilogue { residual, ..product.epilogue };
        match &product.factor {
            Factor::Packed(w) => {
                let panels = tile.cols.start / w.panel_width()..tile.cols.end.div_ceil(w.panel_width());
                self.kernels.matmul(x.rows.slice_rows(tile.rows), w, panels, tile.window, &epilogue);
            }
            &Factor::Tiled(w, pieces) => TILE_SCRATCH.with_borrow_mut(|scratch| {
                let panels = tile.cols.start / Tiled::panel_width()..tile.cols.end.div_ceil(Tiled::panel_width());
                let blocks = tile.rows.start / TiledRows::block_rows()..tile.rows.end.div_ceil(TiledRows::block_rows());
                let rows = &x.tiled[pieces - 1];
                self.kernels.matmul_tiles(rows, blocks, w, panels, tile.window, &epilogue, scratch);
            }),
            Factor::Decoded(w) => SCRATCH.with_borrow_mut(|scratch| {
                self.kernels.matmul_blocks(x.rows, w, tile.cols, tile.window, &epilogue, scratch);
            }),
            Factor::Integer(w) => SCRATCH.with_borrow_mut(|scratch| {
                self.kernels.dot_blocks(x.quantized, w, tile.cols, tile.window, &epilogue, scratch);
            }),
            Factor::Interleaved(w) => SCRATCH.with_borrow_mut(|scratch| {
                let panels = tile.cols.start / w.panel_width()..tile.cols.end.div_ceil(w.panel_width());
                self.kernels.dot_interleaved(x.quantized, w, panels, tile.window, &epilogue, scratch);
            }),
        }
    }
}

/// Rows of activations, as products take them.
#[derive(Clone, Copy)]
struct Factors<'a> {
    rows: Rows<'a>,
    /// The same in integers, where a product is in them.
    quantized: &'a QuantizedRows,
    /// The same in one bf16 piece and in two, where a product is of so many.
    tiled: &'a [TiledRows; 2],
}

/// A part of a product: some rows by some output features.
struct Tile<'a> {
    rows: Range<usize>,
    cols: Range<usize>,
    window: Window<'a>,
}

impl Tile<'_> {
    fn reborrow(&mut self) -> Tile<'_> {
        Tile { rows: self.rows.clone(), cols: self.cols.clone(), window: self.window.reborrow() }
    }
}

/// Cuts a result into tiles of `tall` rows by `wide` columns.
fn tiles(window: Window<'_>, tall: usize, wide: usize) -> Vec<Tile<'_>> {
    let (rows, cols) = (window.rows(), window.cols());
    let mut tiles = Vec::new();
    let mut below = window;
    for row in (0..rows).step_by(tall) {
        let (mut right, rest) = below.split_rows(tall.min(rows - row));
        below = rest;
        for col in (0..cols).step_by(wide) {
            let (window, rest) = right.split_cols(wide.min(cols - col));
            right = rest;
            tiles.push(Tile { rows: row..row + window.rows(), cols: col..col + window.cols(), window });
        }
    }
    tiles
}
