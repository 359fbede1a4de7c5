//! Are products with weights in the blocks of their file right on every instruction set, exactly and in integers?

mod common;

use common::{DOT, bits, difference, every_fast_isa, every_isa, largest, quantize, random, scalar, weights};
use lattice_kernels::{Activation, AttendScratch, Blocks, Epilogue, Kernels, Packed, Rows, Stored, Window};
use weights::{FORMATS, Format};

fn exact(kernels: &Kernels, x: Rows<'_>, w: &Blocks<'_>, epilogue: &Epilogue<'_>) -> Vec<f32> {
    let mut y = vec![f32::NAN; x.rows() * w.outs()];
    let window = Window::new(&mut y, x.rows(), w.outs(), w.outs());
    kernels.matmul_blocks(x, w, 0..w.outs(), window, epilogue, &mut AttendScratch::new());
    y
}

fn dot(kernels: &Kernels, x: Rows<'_>, w: &Blocks<'_>, epilogue: &Epilogue<'_>) -> Vec<f32> {
    let mut y = vec![f32::NAN; x.rows() * w.outs()];
    let window = Window::new(&mut y, x.rows(), w.outs(), w.outs());
    kernels.dot_blocks(&quantize(kernels, x), w, 0..w.outs(), window, epilogue, &mut AttendScratch::new());
    y
}

#[test]
fn exact_products_agree_with_scalar_in_every_format() {
    let mut failures = Vec::new();
    for row in FORMATS {
        let format = row.format;
        if !scalar().supports(format).exact || matches!(format, Format::F64 | Format::F8_E4M3 | Format::F8_E5M2) {
            continue;
        }
        for (rows, outs, blocks) in [(1, 17, 1), (3, 1, 2), (7, 40, 3), (150, 33, 2)] {
            let ins = format.block() * blocks;
            let bytes = weights(format, 9, outs, ins);
            let w = Blocks::new(format, &bytes, outs, ins);
            let x = random(1, rows * (ins + 3));
            let x = Rows::new(&x, rows, ins, ins + 3);
            let want = exact(scalar(), x, &w, &Epilogue::default());
            let mut size = vec![0.0; ins];
            format.decode("w", w.row(0), &mut size).unwrap();
            if !want.iter().all(|x| x.is_finite() && x.abs() < 1e30) {
                continue; // scales of formats that this test does not know
            }
            for kernels in every_fast_isa() {
                let off = difference(&exact(kernels, x, &w, &Epilogue::default()), &want);
                let bound = 2e-6 * (ins as f64).sqrt() * largest(&size).max(largest(&want)) + 1e-9;
                if off > bound {
                    failures.push(format!(
                        "{} {format} {rows} x {ins} x {outs}: off by {off:e} of {bound:e}",
                        kernels.isa()
                    ));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn exact_products_have_the_bits_of_packed_weights_in_any_batch_and_range() {
    for kernels in every_isa() {
        for format in DOT.into_iter().chain([Format::F16, Format::BF16, Format::Q2_K, Format::Q3_K, Format::IQ4_NL]) {
            let (outs, ins) = (37, format.block().next_multiple_of(256) + format.block().next_multiple_of(32));
            let bytes = weights(format, 3, outs, ins);
            let w = Blocks::new(format, &bytes, outs, ins);
            let packed = Packed::new(kernels, Stored::F32, outs, ins, |row, numbers| {
                format.decode("w", w.row(row), numbers).unwrap();
            });
            let bias = random(4, outs);
            let x = random(1, 20 * ins);
            let x = Rows::dense(&x, ins);
            let residual = random(5, 20 * outs);
            let epilogue = |rows: usize| Epilogue {
                bias: Some(&bias),
                activation: Some(Activation::Silu),
                residual: Some(Rows::dense(&residual[..rows * outs], outs)),
            };
            let mut want = vec![f32::NAN; 20 * outs];
            kernels.matmul(x, &packed, 0..packed.panels(), Window::dense(&mut want, outs), &epilogue(20));
            for rows in [1, 2, 5, 20] {
                let got = exact(kernels, x.slice_rows(0..rows), &w, &epilogue(rows));
                assert_eq!(bits(&got), bits(&want[..rows * outs]), "{} {format} {rows} rows", kernels.isa());
            }
            let mut part = vec![f32::NAN; 2 * 13];
            let plain = Epilogue { residual: None, ..epilogue(2) };
            let all = exact(kernels, x.slice_rows(0..2), &w, &plain);
            kernels.matmul_blocks(
                x.slice_rows(0..2),
                &w,
                5..18,
                Window::dense(&mut part, 13),
                &plain,
                &mut AttendScratch::new(),
            );
            assert_eq!(bits(&part[13..]), bits(&all[outs + 5..outs + 18]), "{} {format} a range", kernels.isa());
        }
    }
}

#[test]
fn integer_products_agree_with_scalar_in_every_format_and_number_of_rows() {
    let mut failures = Vec::new();
    for format in DOT {
        for (outs, blocks) in [(1, 1), (5, 2), (17, 3), (8, 8), (3, 18), (2, 49)] {
            let ins = format.block() * blocks;
            let bytes = weights(format, 7, outs, ins);
            let w = Blocks::new(format, &bytes, outs, ins);
            for rows in [1, 2, 3, 4, 5, 7, 8, 9, 19] {
                let x = random(1, rows * (ins + 1));
                let x = Rows::new(&x, rows, ins, ins + 1);
                let want = dot(scalar(), x, &w, &Epilogue::default());
                for kernels in every_fast_isa() {
                    let off = difference(&dot(kernels, x, &w, &Epilogue::default()), &want);
                    let mut decoded = vec![0.0; ins * outs];
                    format.decode("w", &bytes, &mut decoded).unwrap();
                    // Codes that are unsigned meet the offset afterwards: some places are lost.
                    let bound = 4e-7 * ins as f64 * largest(&decoded);
                    if off > bound {
                        let isa = kernels.isa();
                        failures.push(format!("{isa} {format} {rows} x {ins} x {outs}: off by {off:e} of {bound:e}"));
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn integer_products_are_exact_but_for_the_rounding_of_activations() {
    for kernels in every_isa() {
        for format in DOT {
            let (rows, outs, ins) = (3, 20, 512);
            let bytes = weights(format, 11, outs, ins);
            let w = Blocks::new(format, &bytes, outs, ins);
            let x = random(1, rows * ins);
            let x = Rows::dense(&x, ins);
            let (want, got) = (exact(kernels, x, &w, &Epilogue::default()), dot(kernels, x, &w, &Epilogue::default()));
            let mut decoded = vec![0.0; ins];
            for (i, (&want, &got)) in want.iter().zip(&got).enumerate() {
                format.decode("w", w.row(i % outs), &mut decoded).unwrap();
                // Each activation is off by half a step at most, a step being 1/127 of the group's largest.
                let bound: f32 = decoded.iter().map(|w| w.abs()).sum::<f32>() * (0.5 / 127.0) * 1.01;
                assert!((want - got).abs() <= bound, "{} {format}: {got} for {want}, bound {bound}", kernels.isa());
            }
        }
    }
}

#[test]
fn integer_products_do_not_depend_on_other_rows_or_the_range() {
    for kernels in every_isa() {
        for format in DOT {
            let (outs, ins) = (9, 768);
            let bytes = weights(format, 13, outs, ins);
            let w = Blocks::new(format, &bytes, outs, ins);
            let (bias, x) = (random(2, outs), random(1, 20 * ins));
            let x = Rows::dense(&x, ins);
            let epilogue = Epilogue { bias: Some(&bias), activation: Some(Activation::Gelu), residual: None };
            let all = dot(kernels, x, &w, &epilogue);
            for i in 0..20 {
                let alone = dot(kernels, x.slice_rows(i..i + 1), &w, &epilogue);
                assert_eq!(bits(&alone), bits(&all[i * outs..][..outs]), "{} {format} row {i}", kernels.isa());
            }
            let mut part = vec![f32::NAN; 20 * 4];
            let window = Window::dense(&mut part, 4);
            kernels.dot_blocks(&quantize(kernels, x), &w, 3..7, window, &epilogue, &mut AttendScratch::new());
            assert!(part.chunks(4).zip(all.chunks(outs)).all(|(part, all)| bits(part) == bits(&all[3..7])));
        }
    }
}

#[test]
fn extreme_codes_do_not_overflow() {
    // Weights of −128, the most extreme activations, and the largest group scales.
    for kernels in every_isa() {
        for format in DOT {
            let (outs, ins) = (4, 512);
            for fill in [0x00, 0x7f, 0x80, 0xff] {
                let mut bytes = vec![fill; format.row_bytes(ins).unwrap() * outs];
                for block in bytes.chunks_mut(format.block_bytes()) {
                    let at = if format == Format::Q6_K { 208 } else { 0 };
                    block[at..at + 2].copy_from_slice(&0x2c00u16.to_le_bytes());
                    if matches!(format, Format::Q4_1 | Format::Q5_1 | Format::Q4_K | Format::Q5_K) {
                        block[2..4].copy_from_slice(&0x2c00u16.to_le_bytes());
                    }
                }
                let w = Blocks::new(format, &bytes, outs, ins);
                for sign in [1.0, -1.0] {
                    let x: Vec<f32> = (0..ins).map(|k| if k % 7 == 0 { -sign } else { sign }).collect();
                    let x = Rows::dense(&x, ins);
                    let want = dot(scalar(), x, &w, &Epilogue::default());
                    let got = dot(kernels, x, &w, &Epilogue::default());
                    let off = difference(&got, &want);
                    assert!(off <= 1e-5 * largest(&want) + 1e-2, "{} {format} {fill:#x}: off by {off}", kernels.isa());
                }
            }
        }
    }
}

#[test]
fn activations_are_rounded_to_the_same_codes_everywhere() {
    let mut x = random(1, 5 * 96);
    x[32..64].fill(0.0);
    x[64..96].fill(1e-40);
    x[96] = 3e38;
    x[130] = -1e-3;
    for kernels in every_isa() {
        let (want, got) = (quantize(scalar(), Rows::dense(&x, 96)), quantize(kernels, Rows::dense(&x, 96)));
        for row in 0..5 {
            for col in 0..96 {
                assert_eq!(want.value(row, col), got.value(row, col), "{} ({row}, {col})", kernels.isa());
            }
        }
        let step = got.value(0, 0) - x[0];
        assert!(step.abs() <= 0.5 / 127.0, "{step}");
    }
}

#[test]
fn numbers_that_are_not_finite_do_not_become_finite() {
    for kernels in every_isa() {
        for format in DOT {
            let bytes = weights(format, 5, 2, 256);
            let w = Blocks::new(format, &bytes, 2, 256);
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for at in [0, 5, 31, 200] {
                    let mut x = random(1, 256);
                    x[at] = bad;
                    let y = dot(kernels, Rows::dense(&x, 256), &w, &Epilogue::default());
                    assert!(y.iter().all(|y| !y.is_finite()), "{} {format} {bad} at {at}: {y:?}", kernels.isa());
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "no integer products with Q2_K")]
fn refuses_integer_products_that_do_not_exist() {
    let bytes = weights(Format::Q2_K, 1, 1, 256);
    dot(scalar(), Rows::dense(&[0.0; 256], 256), &Blocks::new(Format::Q2_K, &bytes, 1, 256), &Epilogue::default());
}

#[test]
#[should_panic(expected = "a row of 100 is no whole number of Q8_0's blocks")]
fn refuses_rows_that_are_no_whole_blocks() {
    Blocks::new(Format::Q8_0, &[], 1, 100);
}
