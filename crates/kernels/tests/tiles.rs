//! Products of bf16 pieces: as exact as they promise, on matrix units as in plain code, and the same for a row alone.

mod common;

use common::{bits, difference, every_isa, random, scalar};
use lattice_kernels::{Activation, Epilogue, Kernels, Rows, TileScratch, Tiled, Window};

const SHAPES: &[(usize, usize, usize)] =
    &[(1, 1, 1), (1, 32, 32), (3, 7, 5), (16, 33, 31), (17, 64, 33), (33, 100, 70), (64, 384, 96), (300, 130, 40)];

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

fn product(kernels: &Kernels, x: Rows<'_>, w: &Tiled, epilogue: &Epilogue<'_>) -> Vec<f32> {
    let mut y = vec![f32::NAN; x.rows() * w.outs()];
    let window = Window::dense(&mut y, w.outs());
    kernels.matmul_tiles(x, w, 0..w.panels(), window, epilogue, &mut TileScratch::default());
    y
}

#[test]
fn are_within_their_bound_of_float64() {
    for kernels in every_isa() {
        for pieces in [1, 2] {
            for &(rows, ins, outs) in SHAPES {
                let (w, numbers) = weights(pieces, outs, ins);
                let x = random(1, rows * ins);
                let got = product(kernels, Rows::dense(&x, ins), &w, &Epilogue::default());
                for (i, (got, x)) in got.chunks(outs).zip(x.chunks(ins)).enumerate() {
                    for (out, (&got, w)) in got.iter().zip(numbers.chunks(ins)).enumerate() {
                        let parts = || x.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w));
                        let magnitude: f64 = parts().map(f64::abs).sum();
                        let off = (f64::from(got) - parts().sum::<f64>()).abs();
                        let bound = magnitude * (1.1 * 2f64.powi(-16) + ins as f64 * 2f64.powi(-24));
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
        for pieces in [1, 2] {
            for (case, &(rows, ins, outs)) in SHAPES.iter().enumerate() {
                let (w, _) = weights(pieces, outs, ins);
                let (x, bias, residual) = (random(1, rows * ins), random(3, outs), random(4, rows * outs));
                let epilogue = Epilogue {
                    bias: (case % 3 != 1).then_some(&bias),
                    activation: (case % 2 == 0).then_some(Activation::Gelu),
                    residual: (case % 4 != 0).then_some(Rows::dense(&residual, outs)),
                };
                let x = Rows::dense(&x, ins);
                let off = difference(&product(kernels, x, &w, &epilogue), &product(scalar(), x, &w, &epilogue));
                assert!(off < 1e-5, "{} {rows}x{ins}x{outs} in {pieces}: off by {off:e}", kernels.isa());
            }
        }
    }
}

#[test]
fn a_row_alone_and_a_panel_alone_have_the_bits_of_the_whole() {
    for kernels in every_isa() {
        let (rows, ins, outs) = (70, 75, 100);
        let (w, _) = weights(2, outs, ins);
        let (x, bias) = (random(1, rows * ins), random(3, outs));
        let (x, epilogue) = (Rows::dense(&x, ins), Epilogue { bias: Some(&bias), ..Epilogue::default() });
        let whole = product(kernels, x, &w, &epilogue);
        for row in 0..rows {
            let alone = product(kernels, x.slice_rows(row..row + 1), &w, &epilogue);
            assert_eq!(bits(&alone), bits(&whole[row * outs..][..outs]), "{} row {row}", kernels.isa());
        }
        for panel in 0..w.panels() {
            let columns = w.columns(panel..panel + 1);
            let mut y = vec![f32::NAN; rows * columns.len()];
            let window = Window::dense(&mut y, columns.len());
            kernels.matmul_tiles(x, &w, panel..panel + 1, window, &epilogue, &mut TileScratch::default());
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
            let y = product(kernels, Rows::dense(&x, 40), &w, &Epilogue::default());
            assert!(y.iter().all(|y| !y.is_finite()), "{} {bad}", kernels.isa());
        }
    }
}
