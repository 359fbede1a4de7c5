//! Rates of every operation on this machine: `cargo bench -p lattice-ops [-- FILTER]`.

use lattice_ops::contract::cases;
use lattice_ops::{Cpu, CpuOptions, Isa};
use std::time::Instant;

fn main() {
    let filter: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    println!("{:<52} {:>8} {:>10} {:>9} {:>8}", "case", "isa", "median µs", "GFLOP/s", "GB/s");
    for case in cases().iter().filter(|case| filter.iter().all(|f| case.name.contains(f.as_str()))) {
        for isa in Isa::available() {
            if isa == Isa::Scalar && case.large {
                continue;
            }
            let ops = Cpu::new(&CpuOptions { isa: Some(isa), ..CpuOptions::default() })
                .expect("an available instruction set");
            let run = case.prepare(&ops);
            run(&ops);
            let mut seconds: Vec<f64> = Vec::new();
            let start = Instant::now();
            while seconds.len() < 5 || (start.elapsed().as_millis() < 100 && seconds.len() < 1000) {
                let t = Instant::now();
                run(&ops);
                seconds.push(t.elapsed().as_secs_f64());
            }
            seconds.sort_by(f64::total_cmp);
            let median = seconds[seconds.len() / 2];
            let (flops, bytes) = (case.flops / median / 1e9, case.bytes / median / 1e9);
            println!("{:<52} {:>8} {:>10.1} {flops:>9.1} {bytes:>8.1}", case.name, isa.name(), median * 1e6);
        }
    }
}
