//! What all kernel tests need: numbers that look random and are the same each run, and the machine's instruction sets.
#![allow(dead_code, unreachable_pub)]

use lattice_kernels::{Isa, Kernels};

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
