//! How fast are the kernels of decoders, and how near to a plain read of the same bytes?
//! `cargo bench -p lattice-kernels --bench decoder -- [isa] [filter]`.
//!
//! One thread, best of many runs, by the thread's own clock. Weights are read from one copy after another, 128 MiB of them in
//! all, so that small matrices come from memory too, as they do in a model.

mod clock;

use std::hint::black_box;

use clock::best;

use lattice_kernels::{
    AttendScratch, Blocks, DeltaRows, Epilogue, Interleaved, Isa, Kernels, KvPage, KvSlice, Mask, Packed, PagedAttend,
    QuantizedRows, Rows, ShortConv, Stored, Window,
};
use weights::Format;

/// Weights that are walked in turn.
const BYTES: usize = 128 << 20;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let asked: Vec<Isa> = words.iter().filter_map(|word| Isa::from_name(word)).collect();
    let filter = words.iter().find(|word| Isa::from_name(word).is_none()).cloned().unwrap_or_default();
    let source: Vec<u8> = (0..BYTES).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3] & 0x1f).collect();
    for isa in Isa::available() {
        if asked.is_empty() && isa != Isa::Scalar || asked.contains(&isa) {
            println!("{isa}");
            let bench = Bench { kernels: Kernels::for_isa(isa).expect("it is available"), filter: filter.clone() };
            bench.products(&source);
            bench.half_precision();
            bench.quantize();
            bench.attention();
            bench.delta();
        }
    }
}

struct Bench {
    kernels: &'static Kernels,
    filter: String,
}

impl Bench {
    fn products(&self, source: &[u8]) {
        let shapes = [
            (Format::Q4_1, 1536, 576),
            (Format::Q4_1, 576, 1536),
            (Format::Q8_0, 49152, 576),
            (Format::Q5_0, 2048, 640),
            (Format::Q8_0, 640, 2048),
            (Format::Q4_0, 2048, 2048),
            (Format::Q5_1, 2048, 2048),
            (Format::Q4_K, 640, 2048),
            (Format::Q5_K, 2048, 2048),
            (Format::Q6_K, 640, 2048),
            (Format::Q6_K, 65536, 2048),
            (Format::Q8_0, 131_072, 640),
        ];
        for (format, outs, ins) in shapes {
            let size = format.row_bytes(ins).expect("whole blocks") * outs;
            let copies: Vec<Blocks<'_>> =
                source.chunks_exact(size).map(|bytes| Blocks::new(format, bytes, outs, ins)).collect();
            let (mut at, mut scratch) = (0, AttendScratch::new());
            for rows in [1, 2, 4, 8] {
                let (x, mut y) = (vec![0.5; rows * ins], vec![0.0; rows * outs]);
                let mut quantized = QuantizedRows::new();
                self.kernels.quantize_rows(Rows::dense(&x, ins), quantized.shaped(rows, ins));
                self.time(&format!("dot {format} {rows} x {ins} x {outs}"), 2 * rows * ins * outs, size, || {
                    at = (at + 1) % copies.len();
                    let y = Window::dense(&mut y, outs);
                    let w = &copies[at];
                    self.kernels.dot_blocks(&quantized, w, 0..outs, y, &Epilogue::default(), &mut scratch);
                });
            }
            if self.kernels.interleaves(format) {
                let copies: Vec<Interleaved> =
                    copies.iter().map(|blocks| Interleaved::new(self.kernels, blocks)).collect();
                for rows in [1, 2, 4, 8, 12, 16, 64, 512] {
                    if rows > 8 && outs > 4096 {
                        continue;
                    }
                    let (x, mut y) = (vec![0.5; rows * ins], vec![0.0; rows * outs]);
                    let mut quantized = QuantizedRows::new();
                    self.kernels.quantize_rows(Rows::dense(&x, ins), quantized.shaped(rows, ins));
                    self.time(&format!("int {format} {rows} x {ins} x {outs}"), 2 * rows * ins * outs, size, || {
                        at = (at + 1) % copies.len();
                        let (w, y) = (&copies[at], Window::dense(&mut y, outs));
                        let panels = 0..w.panels();
                        self.kernels.dot_interleaved(&quantized, w, panels, y, &Epilogue::default(), &mut scratch);
                    });
                }
                let mut to = Interleaved::zeroed(self.kernels, format, outs, ins);
                self.time(&format!("repack {format} {ins} x {outs}"), 0, size, || {
                    at = (at + 1) % copies.len();
                    let blocks = Blocks::new(format, &source[at * size..][..size], outs, ins);
                    to.panels_mut().for_each(|mut panel| panel.fill(&blocks));
                });
            }
            for rows in [1, 8, 64, 512] {
                if outs > 4096 {
                    continue;
                }
                let (x, mut y) = (vec![0.5; rows * ins], vec![0.0; rows * outs]);
                self.time(&format!("exact {format} {rows} x {ins} x {outs}"), 2 * rows * ins * outs, size, || {
                    at = (at + 1) % copies.len();
                    let (x, y) = (Rows::dense(&x, ins), Window::dense(&mut y, outs));
                    self.kernels.matmul_blocks(x, &copies[at], 0..outs, y, &Epilogue::default(), &mut scratch);
                });
            }
            self.time(&format!("read {} KiB in turn", size / 1024), 0, size, || {
                at = (at + 1) % copies.len();
                black_box(read(&source[at * size..][..size]));
            });
        }
    }

    fn half_precision(&self) {
        for (stored, outs, ins) in [(Stored::Bf16, 1536, 576), (Stored::Bf16, 2048, 2048), (Stored::F16, 2048, 2048)] {
            let size = outs * ins * stored.size();
            let copies: Vec<Packed> = (0..BYTES / size)
                .map(|_| Packed::new(self.kernels, stored, outs, ins, |_, numbers| numbers.fill(0.5)))
                .collect();
            let mut at = 0;
            for rows in [1, 2, 4, 8] {
                let (x, mut y) = (vec![0.5; rows * ins], vec![0.0; rows * outs]);
                self.time(&format!("packed {stored:?} {rows} x {ins} x {outs}"), 2 * rows * ins * outs, size, || {
                    at = (at + 1) % copies.len();
                    let (w, y) = (&copies[at], Window::dense(&mut y, outs));
                    self.kernels.matmul(Rows::dense(&x, ins), w, 0..w.panels(), y, &Epilogue::default());
                });
            }
        }
    }

    fn quantize(&self) {
        let (x, mut to) = (vec![0.5; 64 * 1536], QuantizedRows::new());
        self.time("quantize 64 x 1536", 0, 64 * 1536 * 4, || {
            self.kernels.quantize_rows(Rows::dense(&x, 1536), to.shaped(64, 1536));
        });
    }

    fn attention(&self) {
        // SmolLM2: 3 heads of keys for 9 of queries; Gemma 3 270M: 1 for 4.
        for (dim, group) in [(64, 3), (256, 4)] {
            for (queries, past) in [(1, 127), (1, 2047), (128, 0), (512, 0), (64, 2048)] {
                let (keys, tokens): (usize, usize) = (past + queries, 64);
                let count = keys.div_ceil(tokens);
                let q = vec![0.1; queries * group * dim];
                let (k, v) = (vec![0x2e66u16; count * tokens * dim], vec![0x2e66u16; count * tokens * dim]);
                let page = tokens * dim;
                let pages: Vec<KvPage<'_>> = (0..count)
                    .map(|i| KvPage {
                        keys: KvSlice::F16(&k[i * page..][..page]),
                        values: KvSlice::F16(&v[i * page..][..page]),
                    })
                    .collect();
                let task = PagedAttend {
                    q: Rows::dense(&q, group * dim),
                    dim,
                    pages: &pages,
                    page_tokens: tokens,
                    keys,
                    past,
                    scale: 0.1,
                    mask: Mask::Causal,
                    softcap: None,
                };
                let (mut out, mut scratch) = (vec![0.0; q.len()], AttendScratch::new());
                let pairs = (past + 1..=keys).sum::<usize>() * group;
                let bytes = if queries == 1 { 4 * keys * dim } else { 0 };
                self.time(&format!("attend {queries} after {past}, {group} x {dim}"), 4 * pairs * dim, bytes, || {
                    self.kernels.attend_paged(&task, &mut scratch, Window::dense(&mut out, group * dim));
                });
            }
        }
    }

    fn delta(&self) {
        for tokens in [1, 4, 8, 16, 64, 512] {
            let (dk, dv, channels) = (128, 128, 6144);
            let (x, weight, mut conv) =
                (vec![0.1; tokens * channels], vec![0.1; 4 * channels], vec![0.1; 4 * channels]);
            let mut out = vec![0.0; tokens * channels];
            self.time(&format!("short_conv {tokens} x {channels}"), 0, 8 * tokens * channels, || {
                let task = ShortConv { state: &mut conv, weight: &weight, kernel: 4, x: Rows::dense(&x, channels) };
                self.kernels.short_conv(task, Window::dense(&mut out, channels));
            });
            let (q, mut state) = (vec![0.1; tokens * dk], vec![0.1; dk * dv]);
            let (g, beta) = (vec![-0.1; tokens], vec![0.5; tokens]);
            let mut scratch = AttendScratch::new();
            self.time(&format!("delta_rows {tokens} x {dk} x {dv}"), 6 * tokens * dk * dv, 0, || {
                let (q, g, beta) = (Rows::dense(&q, dk), Rows::dense(&g, 1), Rows::dense(&beta, 1));
                let task = DeltaRows { q, k: q, v: q, g, beta, state: &mut state };
                self.kernels.delta_rows(task, &mut scratch, Window::dense(&mut out[..tokens * dv], dv));
            });
            self.time(&format!("delta_chunks {tokens} x {dk} x {dv}"), 6 * tokens * dk * dv, 0, || {
                let (q, g, beta) = (Rows::dense(&q, dk), Rows::dense(&g, 1), Rows::dense(&beta, 1));
                let task = DeltaRows { q, k: q, v: q, g, beta, state: &mut state };
                self.kernels.delta_chunks(task, &mut scratch, Window::dense(&mut out[..tokens * dv], dv));
            });
        }
    }

    fn time(&self, name: &str, flops: usize, bytes: usize, mut kernel: impl FnMut()) {
        if !name.contains(&self.filter) {
            return;
        }
        let least = best(&mut kernel);
        print!("{name:40} {:10.2} µs", least * 1e6);
        if flops > 0 {
            print!(" {:8.1} GFLOP/s", flops as f64 / least / 1e9);
        }
        if bytes > 0 {
            print!(" {:8.1} GB/s", bytes as f64 / least / 1e9);
        }
        println!();
    }
}

/// A sum over all bytes, in eight chains.
fn read(bytes: &[u8]) -> u64 {
    let mut sums = [0u64; 8];
    for chunk in bytes.as_chunks::<64>().0 {
        for (sum, word) in sums.iter_mut().zip(chunk.as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_ne_bytes(*word));
        }
    }
    sums.iter().fold(0, |all, sum| all.wrapping_add(*sum))
}
