//! Is the matmul right on every instruction set, and is a row's result its own?

mod common;

use common::{bits, difference, every_fast_isa, every_isa, random, scalar};
use lattice_kernels::{Activation, Epilogue, Kernels, Packed, Rows, Stored, Window, bf16_to_f32, f16_to_f32};

const STORED: [Stored; 3] = [Stored::F32, Stored::F16, Stored::Bf16];

fn pack(kernels: &Kernels, stored: Stored, outs: usize, ins: usize, seed: u64) -> Packed {
    let weights = random(seed, outs * ins);
    Packed::new(kernels, stored, outs, ins, |row, numbers| numbers.copy_from_slice(&weights[row * ins..][..ins]))
}

fn product(kernels: &Kernels, x: Rows<'_>, w: &Packed, epilogue: &Epilogue<'_>) -> Vec<f32> {
    let mut y = vec![f32::NAN; x.rows() * w.outs()];
    kernels.matmul(x, w, 0..w.panels(), Window::new(&mut y, x.rows(), w.outs(), w.outs()), epilogue);
    y
}

#[test]
fn agrees_with_scalar_in_every_shape_and_format() {
    let mut failures = Vec::new();
    for kernels in every_fast_isa() {
        for stored in STORED {
            for (rows, ins, outs) in [
                (0, 3, 5),
                (1, 0, 5),
                (1, 1, 1),
                (2, 3, 5),
                (5, 7, 15),
                (6, 8, 16),
                (7, 9, 17),
                (13, 31, 33),
                (12, 64, 70),
                (3, 384, 64),
                (1, 384, 384),
                (2, 600, 100),
                (150, 40, 48),
                (289, 16, 31),
                (25, 1100, 40),
                (4, 1537, 65),
            ] {
                let x = random(1, rows * ins);
                let x = Rows::new(&x, rows, ins, ins);
                let plain = Epilogue::default();
                let want = product(scalar(), x, &pack(scalar(), stored, outs, ins, 2), &plain);
                let got = product(kernels, x, &pack(kernels, stored, outs, ins, 2), &plain);
                // A chain of `ins` roundings of sums of products below 1: some 3 standard deviations.
                let bound = 3.0 * ins as f64 * 6e-8 + 1e-9;
                let off = difference(&got, &want);
                if off.is_nan() || off > bound {
                    failures.push(format!("{} {stored:?} {rows} x {ins} x {outs}: off by {off:e}", kernels.isa()));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn epilogues_agree_with_scalar() {
    let (rows, ins, outs) = (9, 20, 43);
    let (x, bias, residual) = (random(1, rows * ins), random(3, outs), random(4, rows * outs));
    let x = Rows::dense(&x, ins);
    let activations = Activation::ALL.iter().map(|&kind| Some(kind)).chain([None]);
    for (case, activation) in activations.enumerate() {
        let epilogue = Epilogue {
            bias: (case % 3 != 1).then_some(&bias),
            activation,
            residual: (case % 2 == 0).then_some(Rows::dense(&residual, outs)),
        };
        let want = product(scalar(), x, &pack(scalar(), Stored::F32, outs, ins, 2), &epilogue);
        for kernels in every_fast_isa() {
            let got = product(kernels, x, &pack(kernels, Stored::F32, outs, ins, 2), &epilogue);
            let off = difference(&got, &want);
            assert!(off < 1e-5, "{} {epilogue:?}: off by {off:e}", kernels.isa());
        }
    }
}

#[test]
fn a_row_alone_equals_the_row_in_any_batch_bit_for_bit() {
    for kernels in every_isa() {
        for stored in STORED {
            for (ins, outs) in [(384, 100), (1100, 40), (7, 300)] {
                let w = pack(kernels, stored, outs, ins, 2);
                let bias = random(3, outs);
                let epilogue = Epilogue { bias: Some(&bias), activation: Some(Activation::Gelu), residual: None };
                let x = random(1, 300 * ins);
                let x = Rows::dense(&x, ins);
                let alone: Vec<_> =
                    (0..300).map(|i| bits(&product(kernels, x.slice_rows(i..i + 1), &w, &epilogue))).collect();
                for rows in (1..=20).chain([143, 145, 300]) {
                    let together = product(kernels, x.slice_rows(0..rows), &w, &epilogue);
                    for (i, row) in together.chunks(outs).enumerate() {
                        assert_eq!(bits(row), alone[i], "{} {stored:?} row {i} of {rows}", kernels.isa());
                    }
                }
            }
        }
    }
}

#[test]
fn tiles_of_rows_and_panels_make_up_the_whole_bit_for_bit() {
    for kernels in every_isa() {
        let (rows, ins, outs) = (17, 50, 5 * kernels.panel_width() + 3);
        let (x, bias, residual) = (random(1, rows * (ins + 3)), random(3, outs), random(4, rows * outs));
        let x = Rows::new(&x, rows, ins, ins + 3);
        let residual = Rows::dense(&residual, outs);
        let w = pack(kernels, Stored::Bf16, outs, ins, 2);
        let epilogue = Epilogue { bias: Some(&bias), activation: Some(Activation::Silu), residual: Some(residual) };
        let want = product(kernels, x, &w, &epilogue);
        for (at_row, at_panel) in [(0, 0), (1, 1), (5, 2), (11, 5), (17, 6)] {
            let mut y = vec![f32::NAN; rows * outs];
            let (top, bottom) = Window::dense(&mut y, outs).split_rows(at_row);
            for (window, rows) in [(top, 0..at_row), (bottom, at_row..rows)] {
                let (left, right) = window.split_cols(w.columns(0..at_panel).end);
                for (window, panels) in [(left, 0..at_panel), (right, at_panel..w.panels())] {
                    let part = residual.slice_rows(rows.clone()).slice_cols(w.columns(panels.clone()));
                    let epilogue = Epilogue { residual: Some(part), ..epilogue };
                    kernels.matmul(x.slice_rows(rows.clone()), &w, panels, window, &epilogue);
                }
            }
            assert_eq!(bits(&y), bits(&want), "{} split at row {at_row} and panel {at_panel}", kernels.isa());
        }
    }
}

#[test]
fn every_sixteen_bit_number_is_loaded_as_itself() {
    for kernels in every_isa() {
        for (stored, widen) in [(Stored::F16, f16_to_f32 as fn(u16) -> f32), (Stored::Bf16, bf16_to_f32)] {
            let w = Packed::new(kernels, stored, 1 << 16, 1, |row, number| number[0] = widen(row as u16));
            let y = product(kernels, Rows::dense(&[1.0], 1), &w, &Epilogue::default());
            for (bits, y) in y.iter().enumerate() {
                let want = widen(bits as u16);
                assert!(
                    *y == want || y.is_nan() && want.is_nan(),
                    "{} {stored:?} {bits:#x}: {y}, not {want}",
                    kernels.isa()
                );
            }
        }
    }
}

#[test]
fn subnormals_and_infinities_come_through() {
    for kernels in every_isa() {
        let tiny = f32::from_bits(3);
        let w = Packed::new(kernels, Stored::F32, 2, 2, |row, n| n.copy_from_slice(&[[1.0, 0.0], [0.0, 2.0]][row]));
        let x = [tiny, tiny, f32::MAX, f32::MAX, f32::INFINITY, 1.0];
        let y = product(kernels, Rows::dense(&x, 2), &w, &Epilogue::default());
        assert_eq!(y[..4], [tiny, 2.0 * tiny, f32::MAX, f32::INFINITY]);
        assert!(y[4] == f32::INFINITY && y[5].is_nan());
    }
}

#[test]
#[should_panic(expected = "was packed for another instruction set than scalar")]
fn refuses_weights_packed_for_another_instruction_set() {
    let Some(other) = every_isa().into_iter().find(|k| k.panel_width() != scalar().panel_width()) else {
        panic!("no other: was packed for another instruction set than scalar");
    };
    product(scalar(), Rows::dense(&[1.0], 1), &pack(other, Stored::F32, 1, 1, 0), &Epilogue::default());
}
