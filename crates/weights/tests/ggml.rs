//! Do all block formats agree with ggml? Decoded values within one unit in the last place, encoded bytes exactly.

use lattice_weights::{Checkpoint, FORMATS, Format, Tensor, WeightsError};
use std::path::Path;

fn golden(case: &str) -> Checkpoint {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Checkpoint::open(root.join("goldens").join(case).join("expected.safetensors")).expect("a golden of this repository")
}

/// What the golden holds for a format.
fn part(golden: &Checkpoint, name: &str, part: &str) -> Tensor {
    golden.get(&format!("{name}.{part}")).expect("a part of the case")
}

/// The formats of a golden, by the tensors `NAME.part` that it has.
fn formats(golden: &Checkpoint, part: &str) -> Vec<Format> {
    let names = golden.names().filter_map(|name| name.strip_suffix(part));
    names.map(|name| Format::from_name(name).unwrap_or_else(|| panic!("{name} is in the table"))).collect()
}

/// The first value that is further from the expected one than a unit in the last place.
fn difference(got: &[f32], expected: &[f32]) -> Option<String> {
    let near = |i: &usize| (got[*i] - expected[*i]).abs() <= 2.4e-7 * expected[*i].abs(); // false for NaN
    let bad = (0..got.len()).find(|i| !near(i));
    bad.map(|i| format!("value {i} is {}, expected {}", got[i], expected[i]))
}

#[test]
fn every_block_format_decodes_to_the_values_of_ggml() {
    let golden = golden("ggml_dequant");
    let formats = formats(&golden, ".blocks");
    assert_eq!(formats.len(), 25);
    let mut failed = Vec::new();
    for format in formats {
        let expected = part(&golden, format.name(), "values");
        let blocks = part(&golden, format.name(), "blocks");
        let tensor = Tensor::from_bytes("t", expected.shape().to_vec(), format, blocks.bytes().to_vec()).unwrap();
        let (got, expected) = (tensor.to_f32().unwrap(), expected.to_f32().unwrap());
        failed.extend(difference(&got, &expected).map(|what| format!("{format}: {what}")));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn every_encoder_gives_the_bytes_of_ggml() {
    let golden = golden("ggml_quantize");
    let formats = formats(&golden, ".input");
    assert_eq!(formats.len(), 10);
    let mut failed = Vec::new();
    for format in formats {
        let encoded = part(&golden, format.name(), "input").encode(format).unwrap();
        let bytes = part(&golden, format.name(), "bytes");
        let wrong = encoded.bytes().iter().zip(bytes.bytes()).position(|(ours, theirs)| ours != theirs);
        failed.extend(wrong.map(|at| format!("{format}: byte {at} of {}", bytes.bytes().len())));
        let expected = part(&golden, format.name(), "values").to_f32().unwrap();
        failed.extend(difference(&encoded.to_f32().unwrap(), &expected).map(|what| format!("{format}: {what}")));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The block formats that can be encoded, and how far a value may move: half a step, or where the reference trades the
/// ends for the middle a whole one; and what rounding the scale to half precision adds at the largest code.
fn steps() -> [(Format, f32); 5] {
    let half_precision = |codes: f32| codes / 2048.0;
    [
        (Format::Q8_0, 0.5 + half_precision(127.0)),
        (Format::Q4_0, 1.0 + half_precision(8.0)),
        (Format::Q5_0, 1.0 + half_precision(16.0)),
        (Format::Q4_1, 0.5 + half_precision(30.0)),
        (Format::Q5_1, 0.5 + half_precision(62.0)),
    ]
}

#[test]
fn rows_of_any_width_are_encoded_whole_or_refused_by_name() {
    for (format, steps) in steps() {
        for cols in [31, 32, 33, 64, 255, 256, 257] {
            let values: Vec<f32> = (0..2 * cols).map(|i| ((i * 37 % 101) as f32 - 50.0) / 20.0).collect();
            let tensor = Tensor::from_f32("blk.0.w", vec![2, cols], values.clone());
            let encoded = match tensor.encode(format) {
                Ok(encoded) => encoded,
                Err(error) => {
                    assert_ne!(cols % format.block(), 0);
                    let expected =
                        format!("tensor blk.0.w: rows of {cols} are no whole number of {format} blocks of 32");
                    assert_eq!(error.to_string(), expected);
                    continue;
                }
            };
            for (block, values) in encoded.to_f32().unwrap().chunks(32).zip(values.chunks(32)) {
                let (min, max) = values.iter().fold((0f32, 0f32), |(min, max), v| (min.min(*v), max.max(*v)));
                let largest = max.max(-min);
                let step = match format {
                    Format::Q8_0 => largest / 127.0,
                    Format::Q4_0 => largest / 8.0,
                    Format::Q5_0 => largest / 16.0,
                    Format::Q4_1 => (max - min) / 15.0,
                    _ => (max - min) / 31.0,
                };
                for (got, value) in block.iter().zip(values) {
                    assert!((got - value).abs() <= steps * step, "{format} {cols}: {value} became {got}, step {step}");
                }
            }
        }
    }
}

#[test]
fn zeros_stay_exactly_zero_and_a_block_of_one_spike_stays_finite() {
    for row in FORMATS.iter().filter(|row| row.encode.is_some()) {
        let zero = Tensor::from_f32("t", vec![1, 256], vec![0.0; 256]).encode(row.format).unwrap();
        assert!(zero.to_f32().unwrap().iter().all(|v| *v == 0.0), "{}", row.name);
        for spike in [f32::MIN_POSITIVE, 1e-42, row.encode.unwrap().limit, -row.encode.unwrap().limit] {
            let mut values = vec![0.0; 256];
            values[77] = spike;
            let encoded = Tensor::from_f32("t", vec![1, 256], values).encode(row.format).unwrap();
            assert!(encoded.to_f32().unwrap().iter().all(|v| v.is_finite()), "{} {spike:e}", row.name);
        }
    }
}

#[test]
fn values_that_a_format_cannot_hold_name_the_tensor_and_the_element() {
    for row in FORMATS.iter().filter(|row| row.encode.is_some()) {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut values = vec![1.0; 512];
            values[300] = bad;
            let error = Tensor::from_f32("blk.7.ffn_up.weight", vec![2, 256], values).encode(row.format).unwrap_err();
            assert!(matches!(error, WeightsError::NotFinite { at: 300, .. }), "{}: {error}", row.name);
            let expected = format!("tensor blk.7.ffn_up.weight: element 300 is {bad}, which {} cannot hold", row.name);
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
    }
}
