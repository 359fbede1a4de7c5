//! How near to the machine's limits are products with weights in every format, on every instruction set?
//! `bench/kernels/run`, or `cargo bench -p lattice-ops --bench kernels -- [options] [words]`.
//!
//! Through the CPU executor, so whatever it makes of a matrix at upload is what is measured. Two limits are measured in the
//! same run, with the same threads: multiply-adds in f32 from registers on that instruction set, and reading a buffer of the
//! matrix' size. Matrices come from memory as a model's do: copies, together larger than the caches, take turns, and so do the
//! buffers. Integer products and matrix units may exceed the first limit.

use std::hint::black_box;
use std::time::Instant;

use kernels::Kernels;
use lattice_ops::{Cpu, CpuOptions, Isa, Key, Linear, Ops, Precision};
use weights::{Format, Tensor};

/// `[inputs, outputs]` and where they occur.
const SHAPES: &[(usize, usize, &str)] = &[
    (384, 1536, "minilm"),
    (576, 1536, "smollm2"),
    (640, 2048, "gemma3-270m"),
    (1024, 3072, "qwen3-0.6b"),
    (4096, 4096, "8b"),
];
const FORMATS: &[Format] = &[
    Format::F32,
    Format::BF16,
    Format::F16,
    Format::Q8_0,
    Format::Q6_K,
    Format::Q5_K,
    Format::Q5_1,
    Format::Q5_0,
    Format::Q4_K,
    Format::Q4_1,
    Format::Q4_0,
];
const ROWS: &[usize] = &[1, 8, 64, 512];
const HELP: &str = "\
Rates of matrix products: GFLOP/s, GB/s of weights as their format counts them, and the share of the time that the
limits of this machine would allow.

bench/kernels/run [--threads N] [--exact | --fast] [--memory MIB] [--json] [words]

  --threads N    threads of the executor and of the limits (1)
  --exact        precision exact instead of the default, where quantized weights are multiplied in integers
  --fast         precision fast: plain weights in one bf16 piece on matrix units, elsewhere in 8 bits
  --memory MIB   copies of a matrix that take turns, together (128)
  --json         an object a line
  words          only the rows of the table that have all of them, each a whole column: avx2 Q4_K smollm2 64";

struct Options {
    threads: usize,
    precision: Precision,
    memory: usize,
    json: bool,
    words: Vec<String>,
}

fn main() {
    let mut options =
        Options { threads: 1, precision: Precision::Default, memory: 128 << 20, json: false, words: vec![] };
    let mut args = std::env::args().skip(1);
    let number = |arg: Option<String>, what: &str| {
        arg.and_then(|n| n.parse::<usize>().ok()).unwrap_or_else(|| panic!("{what} wants a number"))
    };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--help" | "-h" => return println!("{HELP}"),
            "--threads" => options.threads = number(args.next(), "--threads").max(1),
            "--memory" => options.memory = number(args.next(), "--memory") << 20,
            "--exact" => options.precision = Precision::Exact,
            "--fast" => options.precision = Precision::Fast,
            "--json" => options.json = true,
            "--bench" => {}
            word if word.starts_with('-') => panic!("{word} is unknown\n\n{HELP}"),
            word => options.words.push(word.to_lowercase()),
        }
    }
    run(&options);
}

fn run(options: &Options) {
    // Instruction sets that are named are the only ones; scalar only if named.
    let named: Vec<Isa> = options.words.iter().filter_map(|word| Isa::from_name(word)).collect();
    let limits = Limits::new(options);
    if !options.json {
        println!(
            "{:8} {:6} {:12} {:>12} {:>5} {:>11} {:>9} {:>8} {:>9} {:>9} {:>6}",
            "isa", "format", "model", "shape", "rows", "median µs", "GFLOP/s", "GB/s", "f32 peak", "read GB/s", "limit"
        );
    }
    for isa in Isa::available().into_iter().filter(|isa| named.is_empty() && *isa != Isa::Scalar || named.contains(isa))
    {
        let cpu_options = CpuOptions { threads: Some(options.threads), isa: Some(isa), precision: options.precision };
        let ops = Cpu::new(&cpu_options).expect("an available instruction set");
        for &(ins, outs, model) in SHAPES {
            for &format in FORMATS {
                if !ins.is_multiple_of(format.block()) {
                    continue; // no such matrix
                }
                let rows: Vec<usize> =
                    ROWS.iter().copied().filter(|&rows| options.wants(isa, format, model, ins, outs, rows)).collect();
                if rows.is_empty() {
                    continue;
                }
                let bytes = format.row_bytes(ins).expect("whole blocks") * outs;
                let matrices = copies(&ops, format, ins, outs, (options.memory / bytes).max(1));
                for rows in rows {
                    let x = ops.input(rows, ins, (0..rows * ins).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect());
                    let mut at = 0;
                    let seconds = median(|| {
                        at = (at + 1) % matrices.len();
                        black_box(ops.linear(&x, &matrices[at]));
                    });
                    let (peak, read) = (limits.peak(isa), limits.read(bytes));
                    let flops = 2.0 * (rows * ins * outs) as f64;
                    let limit = (flops / peak).max(bytes as f64 / read) / seconds;
                    let shape = format!("{ins}x{outs}");
                    let (isa, format) = (isa.name(), format.name());
                    let (rate, speed) = (flops / seconds / 1e9, bytes as f64 / seconds / 1e9);
                    let (micros, peak, read) = (seconds * 1e6, peak / 1e9, read / 1e9);
                    if options.json {
                        println!(
                            "{{\"isa\":\"{isa}\",\"format\":\"{format}\",\"model\":\"{model}\",\"ins\":{ins},\"outs\":{outs},\
                             \"rows\":{rows},\"threads\":{},\"precision\":\"{:?}\",\"us\":{micros:.3},\"gflops\":{rate:.2},\
                             \"gbps\":{speed:.3},\"peak_gflops\":{peak:.2},\"read_gbps\":{read:.3},\"of_limit\":{limit:.4}}}",
                            options.threads, options.precision
                        );
                    } else {
                        println!(
                            "{isa:8} {format:6} {model:12} {shape:>12} {rows:>5} {micros:>11.1} {rate:>9.1} {speed:>8.2} \
                             {peak:>9.1} {read:>9.2} {:>4.0} %",
                            limit * 100.0
                        );
                    }
                }
            }
        }
    }
}

impl Options {
    fn wants(&self, isa: Isa, format: Format, model: &str, ins: usize, outs: usize, rows: usize) -> bool {
        let columns =
            [isa.name(), format.name(), model, &format!("{ins}x{outs}"), &rows.to_string()].map(str::to_lowercase);
        self.words.iter().all(|word| columns.contains(word) || Isa::from_name(word).is_some())
    }
}

/// The same matrix so many times, each at a place of its own.
fn copies(ops: &Cpu, format: Format, ins: usize, outs: usize, count: usize) -> Vec<Linear> {
    let numbers = |len: usize| (0..len).map(|i| ((i as u32).wrapping_mul(2_654_435_761) >> 16) as f32 / 65536.0 - 0.5);
    let tensor = if format.block() == 1 {
        Tensor::from_f32("w", vec![outs, ins], numbers(outs * ins).collect()).encode(format).expect("plain numbers")
    } else {
        // Whatever the bytes say, scales among them: small and finite.
        let len = format.row_bytes(ins).expect("whole blocks") * outs;
        let bytes = numbers(len).map(|x| ((x + 0.5) * 256.0) as u8 & 0x1f).collect();
        Tensor::from_bytes("w", vec![outs, ins], format, bytes).expect("bytes of the shape")
    };
    let copy = |_| {
        let own = Tensor::from_bytes("w", vec![outs, ins], format, tensor.bytes().to_vec()).expect("as above");
        let weight = ops.upload_matrix(&own, false).expect("a format of weights");
        Linear { weight, bias: None, inputs: ins, outputs: outs, key: Key { layer: None, name: "w" } }
    };
    (0..count).map(copy).collect()
}

/// What the machine can do with so many threads, asked beside every figure: the machine may not be the same all the time.
struct Limits {
    pool: kernels::Pool,
    memory: Vec<f32>,
}

impl Limits {
    fn new(options: &Options) -> Self {
        Limits { pool: kernels::Pool::new(options.threads).expect("threads"), memory: vec![0.5; options.memory / 4] }
    }

    /// Operations a second on registers.
    fn peak(&self, isa: Isa) -> f64 {
        let (kernels, rounds) = (Kernels::for_isa(isa).expect("it is available"), 100_000);
        let (sums, _) = kernels.peak(1);
        let seconds = median(|| {
            self.pool.each(self.pool.threads(), |_| {
                black_box(kernels.peak(black_box(rounds)));
            });
        });
        (2 * sums * rounds * self.pool.threads()) as f64 / seconds
    }

    /// Bytes a second from buffers of a size that take turns, each shared by the threads.
    fn read(&self, bytes: usize) -> f64 {
        let kernels = Kernels::for_isa(*Isa::available().last().expect("scalar at least")).expect("it is available");
        let buffers: Vec<&[f32]> = self.memory.chunks(bytes / 4).filter(|buffer| buffer.len() == bytes / 4).collect();
        assert!(!buffers.is_empty(), "--memory is less than a matrix of {} MiB", bytes >> 20);
        let part = (bytes / 4).div_ceil(self.pool.threads());
        let mut at = 0;
        let seconds = median(|| {
            at = (at + 1) % buffers.len();
            let parts: Vec<&[f32]> = buffers[at].chunks(part).collect();
            self.pool.each(parts.len(), |i| {
                black_box(kernels.sum_squares(parts[i]));
            });
        });
        bytes as f64 / seconds
    }
}

/// Seconds of a call: the median of some tens, after the first.
fn median(mut call: impl FnMut()) -> f64 {
    call();
    let start = Instant::now();
    call();
    // So many together that the clock does not matter.
    let together = (20e-6 / start.elapsed().as_secs_f64().max(1e-7)).ceil() as usize;
    let (begin, mut seconds) = (Instant::now(), Vec::new());
    while seconds.len() < 5 || begin.elapsed().as_secs_f64() < 0.05 {
        let start = Instant::now();
        (0..together).for_each(|_| call());
        seconds.push(start.elapsed().as_secs_f64() / together as f64);
    }
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}
