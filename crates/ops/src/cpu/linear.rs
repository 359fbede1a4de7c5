//! Linear layers on the CPU: how weights are kept, and how a product is cut into tiles for the threads.

use super::{Cpu, Precision, TASKS_PER_THREAD, values, vector};
use crate::value::{Act, Linear};
use crate::vocabulary::OpsError;
use kernels::{
    Activation, AttendScratch, Blocks, Epilogue, Kernels, Packed, Pool, QuantizedRows, Rows, Stored, Window,
};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::OnceLock;
use weights::{Format, Tensor};

/// Rows of a tile: enough to reuse a panel of weights, few enough to stay in the second-level cache.
const TILE_ROWS: usize = 96;
/// Tiles are cut at multiples of this many rows: what micro-kernels compute at once (6 on AVX2, 12 on AVX-512).
const ROWS_TOGETHER: usize = 12;
/// Panels of weights in blocks that a product in float32 decodes at once.
const PANELS_TOGETHER: usize = 8;
/// Output features of a tile where products are in integers.
const OUTS_TOGETHER: usize = 16;
/// At the default precision, products of more rows than this are in float32: decoding then costs less than the
/// integers save.
const INTEGER_ROWS: usize = 16;
/// Products with less arithmetic are not worth waking a thread for.
const SERIAL_PRODUCTS: usize = 100_000;

thread_local! {
    static SCRATCH: RefCell<AttendScratch> = RefCell::default();
    static QUANTIZED: RefCell<QuantizedRows> = RefCell::default();
}

/// A matrix as the kernels read it.
#[derive(Debug)]
pub(super) enum Matrix {
    /// Plain numbers, repacked into panels.
    Packed(Packed),
    /// Blocks of a quantized format, as they lie in the mapped file.
    Blocks(Tensor),
}

impl Matrix {
    /// Takes a tensor. Plain numbers keep their width in memory; their mapped pages may be given back.
    pub(super) fn new(kernels: &Kernels, pool: &Pool, tensor: &Tensor) -> Result<Matrix, OpsError> {
        let stored = match tensor.format() {
            Format::F32 | Format::F64 => Stored::F32,
            Format::F16 => Stored::F16,
            Format::BF16 => Stored::Bf16,
            format if format.block() > 1 && kernels.supports(format).exact => {
                return Ok(Matrix::Blocks(tensor.clone()));
            }
            // One byte a number without its scale means nothing.
            other => {
                let (tensor, format) = (tensor.name().to_string(), other.name().to_string());
                return Err(OpsError::Format { tensor, format, role: "matrix" });
            }
        };
        let mut packed = Packed::zeroed(kernels, stored, tensor.rows(), tensor.cols());
        let failed = OnceLock::new();
        pool.each_of(packed.panels_mut().collect(), |mut panel| {
            panel.fill(&mut vec![0.0; tensor.cols()], |row, values| {
                if let Err(error) = tensor.decode_row(row, values) {
                    let _ = failed.set(error); // the first is enough
                }
            });
        });
        match failed.into_inner() {
            Some(error) => Err(error.into()),
            None => Ok(Matrix::Packed(packed)),
        }
    }

    /// `[outputs, inputs]`
    fn shape(&self) -> (usize, usize) {
        match self {
            Matrix::Packed(packed) => (packed.outs(), packed.ins()),
            Matrix::Blocks(tensor) => (tensor.rows(), tensor.cols()),
        }
    }
}

impl Cpu {
    /// `y = residual + activation(x · Wᵀ + b)`.
    pub(super) fn matmul(&self, x: &Act, w: &Linear, activation: Option<Activation>, residual: Option<Act>) -> Act {
        let matrix = w.weight.inner::<Matrix>();
        assert_eq!((w.outputs, w.inputs), matrix.shape(), "{:?} as declared and as uploaded", w.key);
        assert_eq!(x.cols(), w.inputs, "features that go into {:?}", w.key);
        if let Some(residual) = &residual {
            assert_eq!((residual.rows(), residual.cols()), (x.rows(), w.outputs), "shapes of the sum at {:?}", w.key);
        }
        let rows = Rows::dense(values(x), w.inputs);
        let residual = residual.as_ref().map(|r| Rows::dense(values(r), w.outputs));
        let epilogue = Epilogue { bias: w.bias.as_ref().map(vector), activation, residual };
        self.act(x.rows(), w.outputs, |out| {
            let out = Window::dense(out, w.outputs);
            match matrix {
                Matrix::Packed(packed) => self.packed(rows, packed, out, epilogue),
                Matrix::Blocks(tensor) => {
                    let blocks = Blocks::new(tensor.format(), tensor.bytes(), tensor.rows(), tensor.cols());
                    self.blocks(rows, &blocks, out, epilogue);
                }
            }
        })
    }

    fn packed(&self, x: Rows<'_>, w: &Packed, out: Window<'_>, epilogue: Epilogue<'_>) {
        let tasks = self.tasks(x.rows() * w.outs() * w.ins());
        let tall = x.rows().div_ceil(tasks).next_multiple_of(ROWS_TOGETHER).clamp(1, TILE_ROWS);
        let wide = w.panels().div_ceil(tasks.div_ceil(x.rows().div_ceil(tall).max(1)).min(w.panels().max(1))).max(1);
        let tiles = tiles(out, tall, wide * w.panel_width());
        self.pool.each_of(tiles, |tile| {
            let panels = tile.cols.start / w.panel_width()..tile.cols.end.div_ceil(w.panel_width());
            let epilogue = epilogue_of(&epilogue, &tile);
            self.kernels.matmul(x.slice_rows(tile.rows), w, panels, tile.window, &epilogue);
        });
    }

    fn blocks(&self, x: Rows<'_>, w: &Blocks<'_>, out: Window<'_>, epilogue: Epilogue<'_>) {
        let rows = x.rows();
        let integer =
            self.precision != Precision::Exact && rows <= INTEGER_ROWS && self.kernels.supports(w.format()).dot;
        let together = if integer { OUTS_TOGETHER } else { PANELS_TOGETHER * self.kernels.panel_width() };
        let wide = w.outs().div_ceil(self.tasks(rows * w.outs() * w.ins())).next_multiple_of(together);
        let tiles = tiles(out, rows.max(1), wide);
        if !integer {
            return self.pool.each_of(tiles, |tile| {
                let epilogue = epilogue_of(&epilogue, &tile);
                SCRATCH.with_borrow_mut(|scratch| {
                    self.kernels.matmul_blocks(x, w, tile.cols, tile.window, &epilogue, scratch);
                });
            });
        }
        let mut quantized = QUANTIZED.take();
        self.kernels.quantize_rows(x, &mut quantized);
        self.pool.each_of(tiles, |tile| {
            let epilogue = epilogue_of(&epilogue, &tile);
            SCRATCH.with_borrow_mut(|scratch| {
                self.kernels.dot_blocks(&quantized, w, tile.cols, tile.window, &epilogue, scratch);
            });
        });
        QUANTIZED.set(quantized);
    }

    /// How many tasks so many products are worth.
    fn tasks(&self, products: usize) -> usize {
        if products < SERIAL_PRODUCTS || self.threads() == 1 { 1 } else { self.threads() * TASKS_PER_THREAD }
    }
}

/// A part of a product: some rows by some output features.
struct Tile<'a> {
    rows: Range<usize>,
    cols: Range<usize>,
    window: Window<'a>,
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

/// What of an epilogue belongs to a tile.
fn epilogue_of<'a>(epilogue: &Epilogue<'a>, tile: &Tile<'_>) -> Epilogue<'a> {
    let residual = epilogue.residual.map(|r| r.slice_rows(tile.rows.clone()).slice_cols(tile.cols.clone()));
    Epilogue { residual, ..*epilogue }
}
