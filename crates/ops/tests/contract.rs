//! Every executor of this machine against the scalar one, on every row of the contract.

use kernels::{Kernels, MatrixUnit};
use lattice_ops::contract::{Case, Random, Unfused, cases};
use lattice_ops::{Cpu, CpuOptions, Deferred, Isa, Key, Linear, Ops, Precision};
use std::sync::Arc;
use weights::{Format, Tensor};

fn cpu(isa: Isa, threads: usize) -> Cpu {
    at(Precision::Default, isa, threads)
}

fn at(precision: Precision, isa: Isa, threads: usize) -> Cpu {
    Cpu::new(&CpuOptions { threads: Some(threads), isa: Some(isa), precision }).expect("an available instruction set")
}

fn result(case: &Case, ops: &dyn Ops) -> Vec<f32> {
    let run = case.prepare(ops);
    ops.read(&run(ops)).expect("the CPU can be read")
}

/// Runs `check` on every case and reports all that fail.
fn every_case(check: impl Fn(&Case) -> Result<(), String>) {
    let failures: Vec<String> = cases()
        .iter()
        .filter(|case| !case.large)
        .filter_map(|case| check(case).err().map(|why| format!("{}: {why}", case.name)))
        .collect();
    assert!(failures.is_empty(), "{} cases fail:\n{}", failures.len(), failures.join("\n"));
}

fn within(got: &[f32], want: &[f32], tolerance: f32) -> Result<(), String> {
    if got.len() != want.len() {
        return Err(format!("{} values instead of {}", got.len(), want.len()));
    }
    let largest = want.iter().fold(0f32, |m, w| m.max(w.abs())).max(1e-6);
    let worst = got.iter().zip(want).fold(0f32, |m, (g, w)| {
        if g == w { m } else { m.max((g - w).abs()).max(if g.is_nan() { f32::INFINITY } else { 0.0 }) }
    });
    if worst <= tolerance * largest {
        Ok(())
    } else {
        Err(format!("off by {worst:.2e} where values reach {largest:.2e}; {:.2e} is allowed", tolerance * largest))
    }
}

fn same_bits(got: &[f32], want: &[f32]) -> Result<(), String> {
    let differ = got.iter().zip(want).filter(|(g, w)| g.to_bits() != w.to_bits()).count();
    if got.len() == want.len() && differ == 0 {
        Ok(())
    } else {
        Err(format!("{differ} of {} values differ", want.len()))
    }
}

#[test]
fn every_isa_agrees_with_scalar() {
    for precision in [Precision::Exact, Precision::Default, Precision::Fast] {
        let scalar = at(precision, Isa::Scalar, 2);
        let fast: Vec<(Isa, Cpu)> =
            Isa::available().into_iter().skip(1).map(|isa| (isa, at(precision, isa, 2))).collect();
        // What products on matrix units may lose of the largest value: 2⁻¹⁶ of two bf16 pieces, 2⁻⁸ of one.
        let pieces = |case: &Case, isa: Isa| {
            let named = |name: &str| case.name.starts_with(name);
            let product = named("linear") || named("experts");
            let on_unit = match Kernels::for_isa(isa).expect("an available instruction set").matrix_unit() {
                None => false,
                Some(MatrixUnit::Amx) => product || named("attend "),
                Some(MatrixUnit::Bfmmla) => product && (precision == Precision::Fast || case.name.contains("BF16")),
            };
            match precision {
                _ if !on_unit || precision == Precision::Exact => 0.0,
                // Of two products that are multiplied, twice that.
                Precision::Default if named("linear_glu") => 3.2e-5,
                Precision::Default => 1.6e-5,
                // Of their parts, which may cancel.
                _ => 5e-2,
            }
        };
        every_case(|case| {
            let want = result(case, &scalar);
            let wrong: Vec<String> = fast
                .iter()
                .filter_map(|(isa, fast)| {
                    let why = within(&result(case, fast), &want, case.tolerance.max(pieces(case, *isa))).err()?;
                    Some(format!("{isa}, {precision:?}: {why}"))
                })
                .collect();
            if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
        });
    }
}

#[test]
fn fused_operations_agree_with_their_composition() {
    for isa in Isa::available() {
        let ops = cpu(isa, 2);
        every_case(|case| {
            within(&result(case, &ops), &result(case, &Unfused { ops: &ops, delta: &ops }), case.tolerance)
                .map_err(|why| format!("{isa}: {why}"))
        });
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    for isa in Isa::available() {
        let (one, three) = (cpu(isa, 1), cpu(isa, 3));
        every_case(|case| same_bits(&result(case, &three), &result(case, &one)).map_err(|why| format!("{isa}: {why}")));
    }
}

#[test]
fn a_row_of_a_quantized_product_is_the_same_in_any_company() {
    for isa in Isa::available() {
        let precisions = [(Precision::Exact, false), (Precision::Default, false), (Precision::Fast, true)];
        for (precision, batch_invariant) in precisions {
            let ops = at(precision, isa, 2);
            for format in ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"] {
                let (rows, inputs, outputs) = (100, 1088, 77);
                let mut random = Random(7);
                let tensor = Tensor::from_f32("w", vec![outputs, inputs], random.values(outputs * inputs, 0.1));
                let tensor = tensor.encode(Format::from_name(format).unwrap()).unwrap();
                let weight = ops.upload_matrix(&tensor, batch_invariant).unwrap();
                let w = Linear { weight, bias: None, inputs, outputs, key: Key { layer: None, name: "w" } };
                let x = random.values(rows * inputs, 1.0);
                let product = |rows: std::ops::Range<usize>| {
                    let x = x[rows.start * inputs..rows.end * inputs].to_vec();
                    ops.read(&ops.linear(&ops.input(rows.len(), inputs, x), &w)).unwrap()
                };
                let all = product(0..rows);
                for part in [0..1, 1..3, 3..10, 10..27, 27..100] {
                    let want = &all[part.start * outputs..part.end * outputs];
                    let same = same_bits(&product(part.clone()), want);
                    assert!(same.is_ok(), "{isa} {precision:?} {format} rows {part:?}: {same:?}");
                }
            }
        }
    }
}

#[test]
fn weights_that_8_bits_cannot_hold_are_not_rounded_to_them() {
    for isa in Isa::available().into_iter().filter(|isa| !matches!(isa, Isa::Amx | Isa::Neon)) {
        let (rows, inputs, outputs) = (20, 64, 33);
        let mut random = Random(3);
        let (x, mut w) = (random.values(rows * inputs, 1.0), random.values(outputs * inputs, 0.1));
        let product = |precision, w: &[f32]| {
            let ops = at(precision, isa, 2);
            let tensor = Tensor::from_f32("w", vec![outputs, inputs], w.to_vec());
            let weight = ops.upload_matrix(&tensor, false).unwrap();
            let w = Linear { weight, bias: None, inputs, outputs, key: Key { layer: None, name: "w" } };
            ops.read(&ops.linear(&ops.input(rows, inputs, x.clone()), &w)).unwrap()
        };
        let [exact, fast] = [Precision::Exact, Precision::Fast].map(|precision| product(precision, &w));
        within(&fast, &exact, 0.02).unwrap_or_else(|why| panic!("{isa}: {why}"));
        // Its 127th is beyond half precision.
        w[inputs * outputs / 2] = 1e9;
        let [exact, fast] = [Precision::Exact, Precision::Fast].map(|precision| product(precision, &w));
        same_bits(&fast, &exact).unwrap_or_else(|why| panic!("{isa}: {why}"));
    }
}

#[test]
fn recorded_operations_give_the_same_bits_in_one_submit() {
    let ops = Arc::new(cpu(Isa::available().pop().expect("scalar at least"), 2));
    every_case(|case| {
        let deferred = Deferred::new(ops.clone());
        same_bits(&result(case, &deferred), &result(case, &*ops))?;
        if deferred.submits() == 1 { Ok(()) } else { Err(format!("{} submits", deferred.submits())) }
    });
}
