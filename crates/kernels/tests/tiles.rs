//! Products of bf16 pieces: as exact as they promise, on matrix units as in plain code, and the same for a row alone.

mod common;

use common::{bits, difference, every_isa, random, scalar};
use lattice_kernels::{
    Activation, Blocks, Epilogue, Kernels, MatrixUnit, Pool, Rows, TileScratch, TileWeights, Tiled, TiledRows, Window,
};
use std::ops::Range;
use weights::Format;

const SHAPES: &[(usize, usize, usize)] = &[
    (1, 1, 1),
    (1, 32, 32),
    (3, 7, 5),
    (16, 33, 31),
    (17, 64, 33),
    (33, 100, 70),
    (64, 384, 96),
    (300, 130, 40),
    (70, 1100, 70),
];
/// Pieces of rows and of weights.
const PIECES: &[(usize, usize)] = &[(2, 2), (2, 1), (1, 1)];

fn weights(pieces: usize, outs: usize, ins: usize) -> (Tiled, Vec<f32>) {
    let mut numbers = random(2, outs * ins);
    if pieces == 1 {
        numbers.iter_mut().for_each(|x| *x = lattice_kernels::bf16_to_f32(lattice_kernels::f32_to_bf16(*x)));
    }
    let mut tiled = Tiled::zeroed(pieces, outs, ins);
    for mut panel in tiled.panels_mut() {
        panel.fill(&mut vec![0.0; ins], |row, to| to.copy_from_slice(&numbers[row * ins..][..ins]));
    }
    (tiled, numbers)
}

/// The product of some panels.
fn part(
    kernels: &Kernels,
    x: Rows<'_>,
    pieces: usize,
    w: TileWeights<'_>,
    panels: Range<usize>,
    epilogue: &Epilogue<'_>,
) -> Vec<f32> {
    let mut rows = TiledRows::default();
    kernels.tile_rows(x, pieces, &Pool::new(2).unwrap(), &mut rows);
    let columns = w.columns(panels.clone()).len();
    let mut y = vec![f32::NAN; x.rows() * columns];
    // The last block alone, to see that blocks are independent.
    let last = rows.blocks().saturating_sub(1);
    let (first, second) = y.split_at_mut(rows.rows_of(0..last).len() * columns);
    for (blocks, y) in [(0..last, first), (last..rows.blocks(), second)] {
        let residual = epilogue.residual.map(|r| r.slice_rows(rows.rows_of(blocks.clone())));
        let (epilogue, y) = (Epilogue { residual, ..*epilogue }, Window::dense(y, columns));
        kernels.matmul_tiles(&rows, blocks, w, panels.clone(), y, &epilogue, &mut TileScratch::default());
    }
    y
}

fn product(kernels: &Kernels, x: Rows<'_>, pieces: usize, w: &Tiled, epilogue: &Epilogue<'_>) -> Vec<f32> {
    part(kernels, x, pieces, TileWeights::Tiled(w), 0..w.panels(), epilogue)
}

#[test]
fn are_within_their_bound_of_float64() {
    for kernels in every_isa() {
        for &(of_rows, of_weights) in PIECES {
            for &(rows, ins, outs) in SHAPES {
                let (w, numbers) = weights(of_weights, outs, ins);
                let x = random(1, rows * ins);
                let got = product(kernels, Rows::dense(&x, ins), of_rows, &w, &Epilogue::default());
                let error = 2f64.powi(if of_rows == 2 { -16 } else { -8 });
                for (i, (got, x)) in got.chunks(outs).zip(x.chunks(ins)).enumerate() {
                    for (out, (&got, w)) in got.iter().zip(numbers.chunks(ins)).enumerate() {
                        let parts = || x.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w));
                        let magnitude: f64 = parts().map(f64::abs).sum();
                        let off = (f64::from(got) - parts().sum::<f64>()).abs();
                        let bound = magnitude * (1.1 * error + ins as f64 * 2f64.powi(-24));
                        assert!(off <= bound, "{} ({i}, {out}) of {rows}x{ins}x{outs}: off by {off:e}", kernels.isa());
                    }
                }
            }
        }
    }
}

#[test]
fn agree_with_plain_code_under_every_epilogue() {
    for kernels in every_isa() {
        for &(of_rows, of_weights) in PIECES {
            for (case, &(rows, ins, outs)) in SHAPES.iter().enumerate() {
                let (w, _) = weights(of_weights, outs, ins);
                let (x, bias, residual) = (random(1, rows * ins), random(3, outs), random(4, rows * outs));
                let epilogue = Epilogue {
                    bias: (case % 3 != 1).then_some(&bias),
                    activation: (case % 2 == 0).then_some(Activation::Gelu),
                    residual: (case % 4 != 0).then_some(Rows::dense(&residual, outs)),
                };
                let x = Rows::dense(&x, ins);
                let [got, plain] = [kernels, scalar()].map(|kernels| product(kernels, x, of_rows, &w, &epilogue));
                let off = difference(&got, &plain);
                let pieces = (of_rows, of_weights);
                // Sums of many inputs in float32 lose more, and of the inputs of a depth where they are rounded to odd.
                let of_sums = match kernels.matrix_unit() {
                    Some(MatrixUnit::Bfmmla) => 1.5e-7 * ins.min(512) as f64,
                    _ => 1.5e-8 * ins as f64,
                };
                assert!(off < of_sums.max(1e-5), "{} {rows}x{ins}x{outs} in {pieces:?}: off by {off:e}", kernels.isa());
            }
        }
    }
}

#[test]
fn a_row_alone_and_a_panel_alone_have_the_bits_of_the_whole() {
    for kernels in every_isa() {
        let (rows, ins, outs) = (290, 750, 100);
        let (w, _) = weights(2, outs, ins);
        let of = 2;
        let (x, bias) = (random(1, rows * ins), random(3, outs));
        let (x, epilogue) = (Rows::dense(&x, ins), Epilogue { bias: Some(&bias), ..Epilogue::default() });
        let whole = product(kernels, x, of, &w, &epilogue);
        for row in 0..rows {
            let alone = product(kernels, x.slice_rows(row..row + 1), of, &w, &epilogue);
            assert_eq!(bits(&alone), bits(&whole[row * outs..][..outs]), "{} row {row}", kernels.isa());
        }
        // Few rows may be multiplied in other shapes.
        for rows in 2..8 {
            let few = product(kernels, x.slice_rows(0..rows), of, &w, &epilogue);
            assert_eq!(bits(&few), bits(&whole[..rows * outs]), "{} {rows} rows", kernels.isa());
        }
        for panel in 0..w.panels() {
            let columns = w.columns(panel..panel + 1);
            let y = part(kernels, x, of, TileWeights::Tiled(&w), panel..panel + 1, &epilogue);
            for (row, y) in y.chunks(columns.len()).enumerate() {
                assert_eq!(bits(y), bits(&whole[row * outs..][columns.clone()]), "{} panel {panel}", kernels.isa());
            }
        }
    }
}

#[test]
fn numbers_that_are_not_finite_do_not_become_finite() {
    for kernels in every_isa() {
        let (w, _) = weights(2, 40, 40);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = random(1, 40);
            x[17] = bad;
            let y = product(kernels, Rows::dense(&x, 40), 2, &w, &Epilogue::default());
            assert!(y.iter().all(|y| !y.is_finite()), "{} {bad}", kernels.isa());
        }
    }
}

#[test]
fn blocks_are_unpacked_to_what_tiles_of_their_values_are() {
    let formats = [Format::Q8_0, Format::Q4_0, Format::Q4_1, Format::Q5_1, Format::Q4_K, Format::Q5_K, Format::Q6_K];
    // On other matrix units blocks are multiplied by plain code.
    let unpacks = |kernels: &&Kernels| kernels.matrix_unit().is_none() || kernels.has_tiles();
    for kernels in every_isa().into_iter().filter(unpacks) {
        for format in formats {
            for (rows, ins, outs) in [(5, 256, 40), (40, 768, 33), (20, 1280, 64)] {
                // Small enough to be no half-precision number that is not finite.
                let bytes = random(5, format.row_bytes(ins).unwrap() * outs);
                let bytes: Vec<u8> = bytes.iter().map(|x| (x.abs() * 60.0) as u8 % 60).collect();
                let blocks = Blocks::new(format, &bytes, outs, ins);
                let mut tiled = Tiled::zeroed(1, outs, ins);
                for mut panel in tiled.panels_mut() {
                    panel.fill(&mut vec![0.0; ins], |row, to| format.decode("w", blocks.row(row), to).unwrap());
                }
                let (x, bias) = (random(1, rows * ins), random(3, outs));
                let (x, epilogue) = (Rows::dense(&x, ins), Epilogue { bias: Some(&bias), ..Epilogue::default() });
                let [unpacked, tiled] = [TileWeights::Blocks(blocks), TileWeights::Tiled(&tiled)]
                    .map(|w| part(kernels, x, 1, w, 0..w.panels(), &epilogue));
                assert_eq!(bits(&unpacked), bits(&tiled), "{} {format} {rows}x{ins}x{outs}", kernels.isa());
            }
        }
    }
}
