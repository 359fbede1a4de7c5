//! Do repacked quantized weights say what the file says, and are products with them right on every instruction set that
//! repacks, with the same bits in any company?

mod common;

use common::{DOT, bits, difference, every_isa, largest, quantize, random, scalar, weights};
use lattice_kernels::{Activation, AttendScratch, Blocks, Epilogue, Interleaved, Kernels, Rows, Window};
use weights::Format;

/// Instruction sets that repack, with the repacked weights.
fn each(blocks: &Blocks<'_>) -> Vec<(&'static Kernels, Interleaved)> {
    let all = every_isa().into_iter().filter(|kernels| kernels.interleaves(blocks.format()));
    all.map(|kernels| (kernels, Interleaved::new(kernels, blocks))).collect()
}

fn dot(kernels: &Kernels, x: Rows<'_>, w: &Interleaved, epilogue: &Epilogue<'_>) -> Vec<f32> {
    let mut y = vec![f32::NAN; x.rows() * w.outs()];
    let window = Window::dense(&mut y, w.outs());
    let x = quantize(kernels, x);
    kernels.dot_interleaved(&x, w, 0..w.panels(), window, epilogue, &mut AttendScratch::new());
    y
}

fn oracle(x: Rows<'_>, w: &Blocks<'_>) -> Vec<f32> {
    let mut y = vec![f32::NAN; x.rows() * w.outs()];
    let window = Window::dense(&mut y, w.outs());
    let x = quantize(scalar(), x);
    scalar().dot_blocks(&x, w, 0..w.outs(), window, &Epilogue::default(), &mut AttendScratch::new());
    y
}

#[test]
fn rows_come_back_to_the_bit() {
    for format in DOT {
        for (outs, blocks) in [(1, 1), (8, 3), (19, 2), (33, 1)] {
            let ins = format.block() * blocks;
            let bytes = weights(format, 3, outs, ins);
            let w = Blocks::new(format, &bytes, outs, ins);
            for (kernels, repacked) in each(&w) {
                let (mut want, mut got) = (vec![0.0; ins], vec![f32::NAN; ins]);
                for out in 0..outs {
                    format.decode("w", w.row(out), &mut want).unwrap();
                    repacked.row(out, &mut got);
                    assert_eq!(bits(&got), bits(&want), "{} {format} row {out} of {outs}", kernels.isa());
                }
            }
        }
    }
}

#[test]
fn products_agree_with_scalar_in_every_format_and_number_of_rows() {
    let mut failures = Vec::new();
    for format in DOT {
        for (outs, ins) in [(1, 256), (5, 512), (17, 768), (40, 1536), (3, 2304)] {
            let bytes = weights(format, 7, outs, ins);
            let w = Blocks::new(format, &bytes, outs, ins);
            let mut decoded = vec![0.0; ins * outs];
            format.decode("w", &bytes, &mut decoded).unwrap();
            // Sums of unsigned codes and of minima cancel: some places are lost.
            let bound = 4e-7 * ins as f64 * largest(&decoded);
            for rows in [1, 2, 3, 4, 5, 7, 15, 16, 19, 200] {
                let x = random(1, rows * (ins + 1));
                let x = Rows::new(&x, rows, ins, ins + 1);
                let want = oracle(x, &w);
                for (kernels, w) in each(&w) {
                    let off = difference(&dot(kernels, x, &w, &Epilogue::default()), &want);
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
fn products_have_the_same_bits_with_any_rows_beside_them_in_any_range_and_on_every_instruction_set() {
    for format in DOT {
        let (outs, ins) = (37, 1280);
        let bytes = weights(format, 13, outs, ins);
        let (bias, x) = (random(2, outs), random(1, 210 * ins));
        let x = Rows::dense(&x, ins);
        let residual = random(5, 210 * outs);
        let residual = Rows::dense(&residual, outs);
        let epilogue = |rows: std::ops::Range<usize>| Epilogue {
            bias: Some(&bias),
            activation: Some(Activation::Relu),
            residual: Some(residual.slice_rows(rows)),
        };
        let mut first: Option<Vec<f32>> = None;
        for (kernels, w) in each(&Blocks::new(format, &bytes, outs, ins)) {
            let all = dot(kernels, x, &w, &epilogue(0..210));
            for (start, rows) in [(0, 1), (1, 2), (5, 3), (100, 4), (202, 7), (3, 15), (30, 16), (10, 193)] {
                let range = start..start + rows;
                let part = dot(kernels, x.slice_rows(range.clone()), &w, &epilogue(range));
                let isa = kernels.isa();
                assert_eq!(bits(&part), bits(&all[start * outs..][..rows * outs]), "{isa} {format} {start} {rows}");
            }
            let columns = w.columns(1..2);
            for rows in [3, 210] {
                let mut part = vec![f32::NAN; rows * columns.len()];
                let (window, quantized) =
                    (Window::dense(&mut part, columns.len()), quantize(kernels, x.slice_rows(0..rows)));
                let residual = residual.slice_rows(0..rows).slice_cols(columns.clone());
                let epilogue = Epilogue { residual: Some(residual), ..epilogue(0..rows) };
                kernels.dot_interleaved(&quantized, &w, 1..2, window, &epilogue, &mut AttendScratch::new());
                for (part, all) in part.chunks(columns.len()).zip(all.chunks(outs)) {
                    assert_eq!(bits(part), bits(&all[columns.clone()]), "{} {format} a range", kernels.isa());
                }
            }
            let first = first.get_or_insert_with(|| all.clone());
            assert_eq!(bits(&all), bits(first), "{} {format}", kernels.isa());
        }
    }
}

#[test]
fn extreme_codes_do_not_overflow() {
    // The most extreme codes, activations and group scales.
    for format in DOT {
        let (outs, ins) = (4, 512);
        for fill in [0x00, 0x7f, 0x80, 0xff, 0x0f, 0xf0] {
            let mut bytes = vec![fill; format.row_bytes(ins).unwrap() * outs];
            for block in bytes.chunks_mut(format.block_bytes()) {
                let at = if format == Format::Q6_K { 208 } else { 0 };
                block[at..at + 2].copy_from_slice(&0x2c00u16.to_le_bytes());
                if matches!(format, Format::Q4_1 | Format::Q5_1 | Format::Q4_K | Format::Q5_K) {
                    block[2..4].copy_from_slice(&0x2c00u16.to_le_bytes());
                }
            }
            let w = Blocks::new(format, &bytes, outs, ins);
            for (kernels, repacked) in each(&w) {
                for step in [1, 2, 3, 7, 1000] {
                    for sign in [1.0, -1.0] {
                        let x: Vec<f32> = (0..20 * ins).map(|k| if k % step == 1 { -sign } else { sign }).collect();
                        let x = Rows::dense(&x, ins);
                        let want = oracle(x, &w);
                        let off = difference(&dot(kernels, x, &repacked, &Epilogue::default()), &want);
                        let bound = 1e-5 * largest(&want) + 1e-2;
                        assert!(off <= bound, "{} {format} {fill:#x} {step} {sign}: off by {off}", kernels.isa());
                    }
                }
            }
        }
    }
}

#[test]
fn numbers_that_are_not_finite_do_not_become_finite() {
    for format in DOT {
        let bytes = weights(format, 5, 2, 256);
        for (kernels, w) in each(&Blocks::new(format, &bytes, 2, 256)) {
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
#[should_panic(expected = "scalar does not interleave Q8_0")]
fn refuses_to_repack_where_nothing_reads_it() {
    Interleaved::zeroed(scalar(), Format::Q8_0, 1, 32);
}
