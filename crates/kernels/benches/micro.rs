//! How fast is each kernel, and how near to what the machine can do? `cargo bench -p lattice-kernels -- [isa] [filter]`.
//!
//! One thread, the best of many short runs, timed by the thread's own clock where there is one, so that other
//! processes disturb little. `peak` is a loop of multiply-adds on registers, measured before each kernel.

mod clock;

use std::hint::black_box;

use clock::best;

use lattice_kernels::{
    Activation, Attend, AttendScratch, Blocks, Epilogue, Interleaved, Isa, Kernels, Mask, Packed, Pool, QuantizedRows,
    RopeLayout, Rows, Stored, TileScratch, TileWeights, Tiled, TiledRows, Window,
};

use weights::Format;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let asked: Vec<Isa> = words.iter().filter_map(|word| Isa::from_name(word)).collect();
    let filter = words.iter().find(|word| Isa::from_name(word).is_none()).cloned().unwrap_or_default();
    for isa in Isa::available() {
        if asked.is_empty() && isa != Isa::Scalar || asked.contains(&isa) {
            let kernels = Kernels::for_isa(isa).expect("it is available");
            println!("{isa}: peak {:.1} GFLOP/s", peak(kernels) / 1e9);
            Bench { kernels, filter: filter.clone() }.run();
        }
    }
}

struct Bench {
    kernels: &'static Kernels,
    filter: String,
}

impl Bench {
    fn run(&self) {
        self.matmuls();
        self.tiles();
        self.integers();
        self.attention();
        self.rows();
    }

    /// Products of bf16 pieces, where there are matrix units; the share is of f32's peak without them.
    fn tiles(&self) {
        if self.kernels.matrix_unit().is_none() {
            return;
        }
        let pool = Pool::new(1).expect("the caller's thread alone");
        for (ins, outs) in [(384, 384), (384, 1536), (1536, 384), (1024, 4096), (4096, 4096)] {
            for (rows, of_rows, of_weights) in [
                (1, 2, 2),
                (1, 2, 1),
                (14, 2, 2),
                (96, 2, 2),
                (256, 2, 2),
                (256, 2, 1),
                (256, 1, 1),
                (512, 2, 2),
                (512, 1, 1),
            ] {
                let name = format!("tiles of {of_rows} and {of_weights}, {rows} x {ins} x {outs}");
                if !name.contains(&self.filter) {
                    continue;
                }
                let mut w = Tiled::zeroed(of_weights, outs, ins);
                w.panels_mut().for_each(|mut panel| panel.fill(&mut vec![0.0; ins], |_, row| row.fill(0.3)));
                self.product_on_tiles(&name, rows, of_rows, TileWeights::Tiled(&w), &pool);
            }
        }
        for format in [Format::Q8_0, Format::Q4_0, Format::Q4_1, Format::Q4_K, Format::Q6_K] {
            let (rows, ins, outs) = (512, 4096, 4096);
            let name = format!("tiles of {format}, {rows} x {ins} x {outs}");
            if self.kernels.has_tiles() && name.contains(&self.filter) {
                let bytes = vec![1; format.row_bytes(ins).expect("whole blocks") * outs];
                self.product_on_tiles(
                    &name,
                    rows,
                    1,
                    TileWeights::Blocks(Blocks::new(format, &bytes, outs, ins)),
                    &pool,
                );
            }
        }
    }

    /// Products in integers of rows that are rounded already; the share is of f32's peak.
    fn integers(&self) {
        for format in [Format::Q8_0, Format::Q4_0, Format::Q4_1, Format::Q4_K, Format::Q6_K] {
            for (ins, outs) in [(384, 1536), (1536, 384), (640, 2048), (4096, 4096)] {
                for rows in [1, 4, 16, 64, 512] {
                    let name = format!("integers of {format}, {rows} x {ins} x {outs}");
                    let bytes = format.row_bytes(ins).map(|bytes| vec![1; bytes * outs]);
                    let Some(bytes) = bytes.filter(|_| self.kernels.interleaves(format) && name.contains(&self.filter))
                    else {
                        continue;
                    };
                    let w = Interleaved::new(self.kernels, &Blocks::new(format, &bytes, outs, ins));
                    let (x, mut y) = (numbers(rows * ins), numbers(rows * outs));
                    let (mut quantized, mut scratch) = (QuantizedRows::new(), AttendScratch::new());
                    let to = quantized.shaped(rows, ins);
                    self.kernels.quantize_rows(Rows::dense(&x[..rows * ins], ins), to);
                    let moved = bytes.len() + rows * (ins + 4 * outs);
                    self.time(&name, 2 * rows * ins * outs, moved, || {
                        let y = Window::dense(&mut y[..rows * outs], outs);
                        let epilogue = Epilogue::default();
                        self.kernels.dot_interleaved(&quantized, &w, 0..w.panels(), y, &epilogue, &mut scratch);
                    });
                }
            }
        }
    }

    fn product_on_tiles(&self, name: &str, rows: usize, pieces: usize, w: TileWeights<'_>, pool: &Pool) {
        let (x, mut y) = (numbers(rows * w.ins()), numbers(rows * w.outs()));
        let (mut tiles, mut scratch) = (TiledRows::default(), TileScratch::default());
        let bytes = w.outs() * w.ins() * 2 * w.pieces() + 4 * rows * (w.ins() + w.outs());
        self.time(name, 2 * rows * w.ins() * w.outs(), bytes, || {
            self.kernels.tile_rows(Rows::dense(&x[..rows * w.ins()], w.ins()), pieces, pool, &mut tiles);
            for block in (0..tiles.blocks()).step_by(2) {
                let blocks = block..tiles.blocks().min(block + 2);
                let rows = tiles.rows_of(blocks.clone());
                let y = Window::dense(&mut y[rows.start * w.outs()..rows.end * w.outs()], w.outs());
                self.kernels.matmul_tiles(&tiles, blocks, w, 0..w.panels(), y, &Epilogue::default(), &mut scratch);
            }
        });
    }

    fn matmuls(&self) {
        let shapes = [(384, 384), (384, 1536), (1536, 384), (768, 3072), (3072, 768), (1024, 4096), (4096, 1024)];
        for stored in [Stored::F32, Stored::F16, Stored::Bf16] {
            for (ins, outs) in shapes {
                for rows in [1, 2, 3, 4, 5, 6, 7, 13, 32, 128, 512, 4096] {
                    if stored != Stored::F32 && ![1, 6, 128].contains(&rows) || rows * ins * outs > 1 << 31 {
                        continue;
                    }
                    let name = format!("matmul {stored:?} {rows} x {ins} x {outs}");
                    if !name.contains(&self.filter) {
                        continue;
                    }
                    let w = Packed::new(self.kernels, stored, outs, ins, |_, row| row.fill(0.5));
                    let (x, mut y) = (numbers(rows * ins), numbers(rows * outs));
                    let x = Rows::dense(&x[..rows * ins], ins);
                    self.time(
                        &name,
                        2 * rows * ins * outs,
                        outs * ins * stored.size() + 4 * rows * (ins + outs),
                        || {
                            let y = Window::dense(&mut y[..rows * outs], outs);
                            self.kernels.matmul(x, &w, 0..w.panels(), y, &Epilogue::default());
                        },
                    );
                }
            }
        }
        for stored in [Stored::F32, Stored::F16, Stored::Bf16] {
            let (ins, outs) = (1024, 4096);
            self.time(&format!("pack {stored:?} {ins} x {outs}"), 0, ins * outs * (4 + stored.size()), || {
                Packed::new(self.kernels, stored, outs, ins, |_, row| row.fill(0.5));
            });
        }
        let (rows, ins, outs) = (128, 384, 1536);
        let w = Packed::new(self.kernels, Stored::F32, outs, ins, |_, row| row.fill(0.01));
        let (x, bias, mut y) = (numbers(rows * ins), numbers(outs), numbers(rows * outs));
        for activation in [None, Some(Activation::Gelu), Some(Activation::GeluTanh), Some(Activation::Silu)] {
            let epilogue = Epilogue { bias: Some(&bias[..outs]), activation, residual: None };
            self.time(
                &format!("matmul {rows} x {ins} x {outs} + bias, {activation:?}"),
                2 * rows * ins * outs,
                0,
                || {
                    let y = Window::dense(&mut y[..rows * outs], outs);
                    self.kernels.matmul(Rows::dense(&x[..rows * ins], ins), &w, 0..w.panels(), y, &epilogue);
                },
            );
        }
    }

    fn attention(&self) {
        for (length, dim, heads) in
            [(16, 32, 12), (128, 32, 12), (512, 32, 12), (128, 64, 12), (512, 64, 12), (512, 128, 8)]
        {
            for mask in [Mask::Full, Mask::Causal] {
                let stride = 3 * heads * dim;
                let (qkv, mut out) = (numbers(length * stride), numbers(length * heads * dim));
                let mut scratch = AttendScratch::new();
                let part = |which: usize| Rows::new(&qkv[which * heads * dim..], length, dim, stride);
                let task = Attend {
                    q: part(0),
                    k: part(1),
                    v: part(2),
                    past: 0,
                    scale: 0.1,
                    mask,
                    softcap: None,
                    bias: None,
                    pieces: None,
                };
                let pairs = if mask == Mask::Full { length * length } else { length * (length + 1) / 2 };
                self.time(&format!("attend {length} x {dim}, {mask:?}"), 4 * pairs * dim, 0, || {
                    let out = Window::new(&mut out, length, dim, heads * dim);
                    self.kernels.attend(&task, &mut scratch, out);
                });
            }
        }
    }

    fn rows(&self) {
        let k = self.kernels;
        for len in [384, 1536] {
            let (x, w, mut y, mut z) = (spread(len), spread(len), spread(len), spread(len));
            let name = |kernel: &str| format!("{kernel} {len}");
            self.time(&name("layer_norm"), 0, 16 * len, || k.layer_norm(&x, &w, Some(&w), 1e-5, &mut y));
            self.time(&name("add_layer_norm"), 0, 24 * len, || {
                k.add_layer_norm(&mut z, &x, &w, Some(&w), 1e-5, &mut y)
            });
            self.time(&name("rms_norm"), 0, 12 * len, || k.rms_norm(&x, &w, 1e-5, &mut y));
            self.time(&name("softmax"), 0, 8 * len, || k.softmax(&mut y));
            self.time(&name("add"), 0, 12 * len, || k.add(&mut y, &x));
            self.time(&name("dot"), 2 * len, 8 * len, || {
                black_box(k.dot(&x, &y));
            });
            for &kind in Activation::ALL {
                let mut y = spread(len);
                self.time(&name(&format!("{kind:?}")), 0, 8 * len, || {
                    y.copy_from_slice(&x);
                    k.activation(kind, &mut y);
                });
            }
            let (cos, sin) = (spread(32), spread(32));
            for layout in [RopeLayout::Half, RopeLayout::Interleaved] {
                self.time(&name(&format!("rope {layout:?}")), 0, 8 * len, || k.rope(&mut y, 64, &cos, &sin, layout));
            }
        }
    }

    fn time(&self, name: &str, flops: usize, bytes: usize, mut kernel: impl FnMut()) {
        if !name.contains(&self.filter) {
            return;
        }
        let peak = peak(self.kernels);
        let seconds = best(&mut kernel);
        print!("{name:48} {:10.2} µs", seconds * 1e6);
        if flops > 0 {
            let rate = flops as f64 / seconds;
            print!(" {:8.1} GFLOP/s {:4.0} % of peak", rate / 1e9, rate / peak * 100.0);
        }
        if bytes > 0 {
            print!(" {:8.1} GB/s", bytes as f64 / seconds / 1e9);
        }
        println!();
    }
}

/// Floating point operations a second, on registers alone.
fn peak(kernels: &Kernels) -> f64 {
    let rounds = 100_000;
    let (sums, _) = kernels.peak(1);
    let seconds = best(&mut || {
        black_box(kernels.peak(black_box(rounds)));
    });
    (2 * sums * rounds) as f64 / seconds
}

/// At least `len` numbers.
fn numbers(len: usize) -> Vec<f32> {
    vec![0.5; len.next_multiple_of(1024)]
}

/// `len` numbers from −4 to 4.
fn spread(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i * 37 % 101) as f32 / 12.5 - 4.0).collect()
}
