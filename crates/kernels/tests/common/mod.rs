//! What all kernel tests need: numbers that look random and are the same each run, and the machine's instruction sets.
#![allow(dead_code, unreachable_pub)]

use lattice_kernels::{Isa, Kernels, QuantizedRows, Rows};
use weights::Format;

/// Formats that are multiplied in integers.
pub const DOT: [Format; 8] =
    [Format::Q8_0, Format::Q4_0, Format::Q4_1, Format::Q5_0, Format::Q5_1, Format::Q4_K, Format::Q5_K, Format::Q6_K];

/// The kernels of every instruction set that the machine has, scalar first.
pub fn every_isa() -> Vec<&'static Kernels> {
    Isa::available().into_iter().map(|isa| Kernels::for_isa(isa).unwrap()).collect()
}

/// The kernels of every instruction set but scalar.
pub fn every_fast_isa() -> Vec<&'static Kernels> {
    every_isa().split_off(1)
}

pub fn scalar() -> &'static Kernels {
    Kernels::for_isa(Isa::Scalar).unwrap()
}

/// Which part of its table a long test takes: all of it, but every `few`th case under an emulator (`scripts/test-aarch64`),
/// which is some 30 times slower.
pub fn step(few: usize) -> usize {
    if std::env::var_os("QEMU_CPU").is_some() { few } else { 1 }
}

/// `len` numbers in −1..1.
pub fn random(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

/// The bits, to compare exactly.
pub fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// The largest difference; infinite where one is NaN and the other not.
pub fn difference(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let one = |a: f32, b: f32| match (a.is_nan(), b.is_nan()) {
        (true, true) => 0.0,
        (false, false) if a == b => 0.0,
        (false, false) => (f64::from(a) - f64::from(b)).abs(),
        _ => f64::INFINITY,
    };
    a.iter().zip(b).map(|(&a, &b)| one(a, b)).fold(0.0, f64::max)
}

/// Blocks of random bytes, their half-precision scales small: every code and every group scale occurs.
pub fn weights(format: Format, seed: u64, outs: usize, ins: usize) -> Vec<u8> {
    let size = format.block_bytes();
    let len = format.row_bytes(ins).unwrap() * outs;
    let mut bytes: Vec<u8> = random(seed, len).iter().map(|x| (x * 128.0 + 128.0) as u8).collect();
    let scales: &[usize] = match format {
        Format::Q8_0 | Format::Q4_0 | Format::Q5_0 | Format::IQ4_NL => &[0],
        Format::Q4_1 | Format::Q5_1 | Format::Q4_K | Format::Q5_K => &[0, 2],
        Format::Q6_K => &[208],
        Format::Q2_K => &[80, 82],
        Format::Q3_K => &[108],
        _ => &[],
    };
    for block in bytes.chunks_mut(size) {
        for &at in scales {
            // 2^-8 or so, either sign.
            block[at + 1] = block[at + 1] & 0x83 | 0x1c;
        }
        if format == Format::F16 {
            block[1] = block[1] & 0x83 | 0x38;
        }
        if matches!(format, Format::BF16) {
            block[1] = block[1] & 0x80 | 0x3f;
        }
        if matches!(format, Format::F32) {
            block[3] = block[3] & 0x80 | 0x3f;
        }
    }
    bytes
}

/// Rows in integers.
pub fn quantize(kernels: &Kernels, x: Rows<'_>) -> QuantizedRows {
    let mut rows = QuantizedRows::new();
    kernels.quantize_rows(x, rows.shaped(x.rows(), x.cols()));
    rows
}

/// The largest magnitude.
pub fn largest(x: &[f32]) -> f64 {
    x.iter().fold(0.0, |most, &x| f64::from(x.abs()).max(most))
}
