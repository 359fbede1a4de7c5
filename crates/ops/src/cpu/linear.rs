//! Linear layers on the CPU: which weights can be packed, and how a product is cut into tiles for the threads.

use super::{Cpu, TASKS_PER_THREAD, values, vector};
use crate::value::{Act, Linear};
use crate::vocabulary::OpsError;
use kernels::{Activation, Epilogue, Kernels, Packed, Rows, Stored, Window};
use rayon::prelude::*;
use weights::{Format, Tensor};

/// Rows of a tile: enough to reuse a panel of weights, few enough to stay in the second-level cache.
const TILE_ROWS: usize = 96;

/// Repacks a matrix for the kernels, panel by panel on the threads. Values keep their width in memory.
pub(super) fn pack(kernels: &Kernels, threads: &rayon::ThreadPool, tensor: &Tensor) -> Result<Packed, OpsError> {
    let stored = match tensor.format() {
        Format::F32 | Format::F64 => Stored::F32,
        Format::F16 => Stored::F16,
        Format::BF16 => Stored::Bf16,
        other => {
            let (tensor, format) = (tensor.name().to_string(), other.name().to_string());
            return Err(OpsError::Format { tensor, format, role: "matrix" });
        }
    };
    let mut packed = Packed::zeroed(kernels, stored, tensor.rows(), tensor.cols());
    threads.install(|| {
        packed.panels_mut().par_bridge().try_for_each(|mut panel| {
            let mut failed = Ok(());
            panel.fill(&mut vec![0.0; tensor.cols()], |row, values| {
                if failed.is_ok() {
                    failed = tensor.decode_row(row, values);
                }
            });
            failed
        })
    })?;
    Ok(packed)
}

impl Cpu {
    /// `y = residual + activation(x · Wᵀ + b)`.
    pub(super) fn matmul(&self, x: &Act, w: &Linear, activation: Option<Activation>, residual: Option<Act>) -> Act {
        let packed = w.weight.inner::<Packed>();
        assert_eq!((w.outputs, w.inputs), (packed.outs(), packed.ins()), "{:?} as declared and as uploaded", w.key);
        assert_eq!(x.cols(), w.inputs, "features that go into {:?}", w.key);
        if let Some(residual) = &residual {
            assert_eq!((residual.rows(), residual.cols()), (x.rows(), w.outputs), "shapes of the sum at {:?}", w.key);
        }
        let rows = Rows::dense(values(x), w.inputs);
        let bias = w.bias.as_ref().map(vector);
        let residual = residual.as_ref().map(|r| Rows::dense(values(r), w.outputs));
        self.act(x.rows(), w.outputs, |out| {
            let tiles = self.tiles(Window::dense(out, w.outputs), packed);
            let run = |tile: Tile| {
                let columns = packed.columns(tile.panels.clone());
                let residual = residual.map(|r| r.slice_rows(tile.rows.clone()).slice_cols(columns));
                let epilogue = Epilogue { bias, activation, residual };
                self.kernels.matmul(rows.slice_rows(tile.rows), packed, tile.panels, tile.window, &epilogue);
            };
            match tiles.len() {
                1 => tiles.into_iter().for_each(run),
                _ => self.threads.install(|| tiles.into_par_iter().for_each(run)),
            }
        })
    }

    /// Cuts a product by rows, and by panels too where there are too few rows for all threads.
    fn tiles<'a>(&self, window: Window<'a>, packed: &Packed) -> Vec<Tile<'a>> {
        let (rows, panels) = (window.rows(), packed.panels());
        // Waking a thread takes as long as a hundred thousand products or so.
        let tasks = if rows * packed.outs() * packed.ins() < 100_000 { 1 } else { self.threads() * TASKS_PER_THREAD };
        let tall = rows.div_ceil(tasks).next_multiple_of(ROWS_TOGETHER).clamp(1, TILE_ROWS);
        let row_blocks = rows.div_ceil(tall).max(1);
        let panel_blocks = if self.threads() == 1 { 1 } else { tasks.div_ceil(row_blocks).min(panels.max(1)) };
        let wide = panels.div_ceil(panel_blocks);
        let mut tiles = Vec::with_capacity(row_blocks * panel_blocks);
        let mut below = window;
        for row in (0..rows).step_by(tall) {
            let (mut right, rest) = below.split_rows(tall.min(rows - row));
            below = rest;
            for panel in (0..panels).step_by(wide) {
                let panels = panel..(panel + wide).min(panels);
                let (window, rest) = right.split_cols(packed.columns(panels.clone()).len());
                right = rest;
                tiles.push(Tile { rows: row..row + window.rows(), panels, window });
            }
        }
        tiles
    }
}

/// Tiles are cut at multiples of this many rows: what micro-kernels compute at once (6 on AVX2, 12 on AVX-512).
const ROWS_TOGETHER: usize = 12;

/// A part of a product: some rows by some panels.
struct Tile<'a> {
    rows: std::ops::Range<usize>,
    panels: std::ops::Range<usize>,
    window: Window<'a>,
}
