//! What every executor is held to: one table of cases, an operation on given shapes and formats each.
//!
//! The table serves three purposes: *test* (an executor against the scalar one, within the case's tolerance), *fused*
//! (an executor's overrides against the defaults that compose plain operations, by way of [`Unfused`]) and *bench*.
//! A new operation, format, instruction set or device adds rows here.

use crate::state::{Delta, KvCache, KvFormat, KvSpec, Past, Routing, Save, State, StateCache, StateSpec};
use crate::value::{Act, Key, Linear, Norm, NormKind, Span, Table, Vector, Weight};
use crate::vocabulary::{Attention, Expert, Ops, OpsError, Pool, Rope};
use kernels::{Activation, Mask, RopeLayout};
use weights::Tensor;

/// An operation ready to run on the executor it was prepared for, as often as one likes.
pub type Prepared = Box<dyn Fn(&dyn Ops) -> Act>;

type Prepare = dyn Fn(&dyn Ops) -> Prepared;

/// One row of the contract.
pub struct Case {
    /// `operation shape format`, unique.
    pub name: String,
    /// Largest allowed difference to the scalar executor, relative to the largest value of its result.
    pub tolerance: f32,
    /// Floating-point operations of one run.
    pub flops: f64,
    /// Bytes of weights and activations read and written by one run.
    pub bytes: f64,
    /// Too large for a quick test; benched all the same.
    pub large: bool,
    prepare: Box<Prepare>,
}

impl Case {
    /// Uploads the case's weights and inputs; the result runs on the same executor.
    pub fn prepare(&self, ops: &dyn Ops) -> Prepared {
        (self.prepare)(ops)
    }
}

/// Reproducible values without a dependency: SplitMix64.
pub struct Random(pub u64);

impl Random {
    /// Uniform in [-1, 1).
    pub fn value(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// `len` values in [-scale, scale).
    pub fn values(&mut self, len: usize, scale: f32) -> Vec<f32> {
        (0..len).map(|_| self.value() * scale).collect()
    }
}

fn vector(ops: &dyn Ops, random: &mut Random, len: usize, middle: f32) -> Vector {
    let values = (0..len).map(|_| middle + 0.3 * random.value()).collect();
    ops.upload_vector(&Tensor::from_f32("vector", vec![len], values)).expect("f32 vectors are taken everywhere")
}

/// A matrix of random values rounded to `format`, as a checkpoint would hold it.
fn matrix(random: &mut Random, rows: usize, cols: usize, format: &str) -> Tensor {
    let values = random.values(rows * cols, (3.0 / cols as f32).sqrt());
    let format = weights::Format::from_name(format).expect("a row of the format table");
    Tensor::from_f32("matrix", vec![rows, cols], values).encode(format).expect("finite values encode")
}

fn linear(ops: &dyn Ops, random: &mut Random, shape: Shape, format: &str) -> Linear {
    let weight =
        ops.upload_matrix(&matrix(random, shape.outputs, shape.inputs, format), false).expect("a multipliable format");
    let bias = Some(vector(ops, random, shape.outputs, 0.0));
    Linear { weight, bias, inputs: shape.inputs, outputs: shape.outputs, key: Key { layer: None, name: "contract" } }
}

#[derive(Clone, Copy)]
struct Shape {
    rows: usize,
    inputs: usize,
    outputs: usize,
}

const fn shape(rows: usize, inputs: usize, outputs: usize) -> Shape {
    Shape { rows, inputs, outputs }
}

/// Small odd shapes find wrong tails; the others are layers of real models (MiniLM, BGE-base, BGE-large).
const LINEAR: &[Shape] = &[
    shape(1, 1, 1),
    shape(1, 7, 5),
    shape(3, 33, 17),
    shape(7, 96, 40),
    shape(13, 130, 65),
    shape(1, 384, 384),
    shape(14, 384, 1536),
    shape(61, 384, 384),
    shape(1024, 384, 384),
    shape(1024, 384, 1536),
    shape(1024, 1536, 384),
    shape(1024, 768, 3072),
    shape(1024, 4096, 1024),
];
const FORMATS: &[&str] = &["F32", "F16", "BF16"];
/// Quantized formats: multiplied in integers at the default precision, exactly decoded at precision exact.
const BLOCK_FORMATS: &[&str] = &["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"];
const ACTIVATIONS: &[Activation] = &[
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::QuickGelu,
    Activation::Silu,
    Activation::Relu,
    Activation::Relu2,
    Activation::Tanh,
    Activation::Sigmoid,
];
/// Ragged batches: lengths of their sequences.
const BATCHES: &[&[usize]] = &[&[1], &[5, 1, 17], &[130, 3, 64], &[300]];
const LARGE_BATCH: &[usize] = &[128; 8];

struct Rows(Vec<Case>);

impl Rows {
    fn add(
        &mut self,
        name: String,
        tolerance: f32,
        (flops, bytes): (f64, f64),
        prepare: impl Fn(&dyn Ops, &mut Random) -> Prepared + 'static,
    ) {
        let seed = self.0.len() as u64 + 1;
        let large = flops > 5e8;
        let prepare = Box::new(move |ops: &dyn Ops| prepare(ops, &mut Random(seed)));
        self.0.push(Case { name, tolerance, flops, bytes, large, prepare });
    }
}

/// All rows.
pub fn cases() -> Vec<Case> {
    let mut table = Rows(Vec::new());
    matrices(&mut table);
    products_together(&mut table);
    row_by_row(&mut table);
    attention(&mut table);
    with_state(&mut table);
    mixtures(&mut table);
    table.0
}

fn matrices(table: &mut Rows) {
    for &s in LINEAR {
        for &format in FORMATS {
            let width = if format == "F32" { 4.0 } else { 2.0 };
            let (rows, inputs, outputs) = (s.rows as f64, s.inputs as f64, s.outputs as f64);
            let work = (2.0 * rows * inputs * outputs, width * inputs * outputs + 4.0 * rows * (inputs + outputs));
            let of = format!("{}x{}x{} {format}", s.rows, s.inputs, s.outputs);
            table.add(format!("linear {of}"), 1e-6 * (s.inputs as f32).sqrt().max(4.0), work, move |ops, random| {
                let (x, w) = (
                    ops.input(s.rows, s.inputs, random.values(s.rows * s.inputs, 1.0)),
                    linear(ops, random, s, format),
                );
                Box::new(move |ops| ops.linear(&x, &w))
            });
            table.add(
                format!("linear_add {of}"),
                1e-6 * (s.inputs as f32).sqrt().max(4.0),
                work,
                move |ops, random| {
                    let (x, w) = (
                        ops.input(s.rows, s.inputs, random.values(s.rows * s.inputs, 1.0)),
                        linear(ops, random, s, format),
                    );
                    let residual = random.values(s.rows * s.outputs, 1.0);
                    Box::new(move |ops| ops.linear_add(&x, &w, ops.input(s.rows, s.outputs, residual.clone())))
                },
            );
        }
        for &kind in ACTIVATIONS.iter().filter(|_| s.rows <= 64) {
            let of = format!("{}x{}x{} {kind:?}", s.rows, s.inputs, s.outputs);
            table.add(
                format!("linear_activation {of}"),
                1e-6 * (s.inputs as f32).sqrt().max(4.0),
                (0.0, 0.0),
                move |ops, random| {
                    let (x, w) = (
                        ops.input(s.rows, s.inputs, random.values(s.rows * s.inputs, 1.0)),
                        linear(ops, random, s, "F32"),
                    );
                    Box::new(move |ops| ops.linear_activation(&x, &w, kind))
                },
            );
        }
    }
    for &format in FORMATS {
        for (rows, cols) in [(3, 1), (11, 31), (100, 384)] {
            table.add(
                format!("embed {rows}x{cols} {format}"),
                0.0,
                (0.0, 4.0 * (rows * cols) as f64),
                move |ops, random| {
                    let table = ops.upload_table(&matrix(random, rows, cols, format)).expect("a readable format");
                    let ids: Vec<u32> = (0..2 * rows as u32).map(|i| (i * 7 + 1) % rows as u32).collect();
                    Box::new(move |ops| ops.embed(&table, &ids))
                },
            );
        }
    }
}

/// Products of the same rows with several matrices, also where their formats want different arithmetic.
fn products_together(table: &mut Rows) {
    let tolerance = |s: Shape| 1e-6 * (s.inputs as f32).sqrt().max(4.0);
    let pairs = [["F32", "F32"], ["F32", "BF16"], ["Q8_0", "Q4_1"], ["Q8_0", "F32"]];
    for s in [shape(1, 32, 17), shape(3, 64, 96), shape(1, 576, 1536), shape(20, 128, 40), shape(130, 384, 200)] {
        for &format in BLOCK_FORMATS {
            let of = format!("{}x{}x{} {format}", s.rows, s.inputs, s.outputs);
            table.add(format!("linear {of}"), tolerance(s), (0.0, 0.0), move |ops, random| {
                let x = ops.input(s.rows, s.inputs, random.values(s.rows * s.inputs, 1.0));
                let w = linear(ops, random, s, format);
                Box::new(move |ops| ops.linear(&x, &w))
            });
        }
        for [one, two] in pairs {
            let of = format!("{}x{}x{} {one} {two}", s.rows, s.inputs, s.outputs);
            table.add(format!("linear_glu {of}"), tolerance(s), (0.0, 0.0), move |ops, random| {
                let x = ops.input(s.rows, s.inputs, random.values(s.rows * s.inputs, 1.0));
                let (gate, up) = (linear(ops, random, s, one), linear(ops, random, s, two));
                Box::new(move |ops| ops.linear_glu(&x, &gate, &up, Activation::Silu))
            });
            for which in 0..3 {
                table.add(format!("linears {of} {which}"), tolerance(s), (0.0, 0.0), move |ops, random| {
                    let x = ops.input(s.rows, s.inputs, random.values(s.rows * s.inputs, 1.0));
                    let narrow = Shape { outputs: 5, ..s };
                    let all = [(s, one), (narrow, two), (s, two)].map(|(s, format)| linear(ops, random, s, format));
                    Box::new(move |ops| ops.linears(&x, &all.each_ref()).swap_remove(which))
                });
            }
        }
    }
}

fn row_by_row(table: &mut Rows) {
    for (rows, cols) in [(1, 1), (3, 31), (5, 33), (17, 384), (1024, 384), (1024, 1536)] {
        let bytes = 8.0 * (rows * cols) as f64;
        for kind in [NormKind::Layer, NormKind::Rms] {
            for biased in [false, true] {
                table.add(
                    format!("norm {rows}x{cols} {kind:?} bias={biased}"),
                    2e-6,
                    (0.0, bytes),
                    move |ops, random| {
                        let x = ops.input(rows, cols, random.values(rows * cols, 3.0));
                        let (weight, bias) = (vector(ops, random, cols, 1.0), vector(ops, random, cols, 0.0));
                        let norm = Norm { kind, weight, bias: biased.then_some(bias), eps: 1e-5 };
                        Box::new(move |ops| ops.norm(&x, &norm))
                    },
                );
            }
        }
        table.add(format!("add {rows}x{cols}"), 0.0, (0.0, 1.5 * bytes), move |ops, random| {
            let (x, y) = (random.values(rows * cols, 3.0), ops.input(rows, cols, random.values(rows * cols, 3.0)));
            Box::new(move |ops| ops.add(ops.input(rows, cols, x.clone()), &y))
        });
        for &kind in ACTIVATIONS {
            table.add(format!("activation {rows}x{cols} {kind:?}"), 1e-6, (0.0, bytes), move |_, random| {
                let x = random.values(rows * cols, 6.0);
                Box::new(move |ops| ops.activation(ops.input(rows, cols, x.clone()), kind))
            });
            table.add(format!("glu {rows}x{cols} {kind:?}"), 1e-6, (0.0, 1.5 * bytes), move |ops, random| {
                let (x, up) = (random.values(rows * cols, 6.0), ops.input(rows, cols, random.values(rows * cols, 3.0)));
                Box::new(move |ops| ops.glu(ops.input(rows, cols, x.clone()), &up, kind))
            });
        }
        table.add(format!("rows {rows}x{cols}"), 0.0, (0.0, bytes), move |ops, random| {
            let x = ops.input(rows, cols, random.values(rows * cols, 3.0));
            let chosen: Vec<u32> = (0..rows as u32).rev().step_by(2).collect();
            Box::new(move |ops| ops.rows(&x, &chosen))
        });
    }
    // A norm over each head of a row.
    table.add("norm 9x4x16 Rms per head".into(), 2e-6, (0.0, 0.0), |ops, random| {
        let x = ops.input(9, 64, random.values(9 * 64, 3.0));
        let norm = Norm { kind: NormKind::Rms, weight: vector(ops, random, 16, 1.0), bias: None, eps: 1e-6 };
        Box::new(move |ops| ops.norm(&x, &norm))
    });
    for layout in [RopeLayout::Half, RopeLayout::Interleaved] {
        for (heads, head_dim, rotary) in [(3, 8, 8), (2, 80, 32), (12, 32, 32), (1, 6, 2)] {
            table.add(
                format!("rope {heads}x{head_dim} rotary={rotary} {layout:?}"),
                1e-6,
                (0.0, 0.0),
                move |ops, random| {
                    let (rows, cols) = (7, heads * head_dim);
                    let turns: Vec<f32> = random.values(rows * rotary / 2, 3.0);
                    let angles = turns
                        .chunks(rotary / 2)
                        .flat_map(|t| t.iter().map(|a| a.cos()).chain(t.iter().map(|a| a.sin())))
                        .collect();
                    let (x, angles) = (random.values(rows * cols, 3.0), ops.input(rows, rotary, angles));
                    Box::new(move |ops| {
                        ops.rope(ops.input(rows, cols, x.clone()), &angles, Rope { head_dim, rotary, layout })
                    })
                },
            );
        }
    }
    for pool in [Pool::Mean, Pool::Max, Pool::MeanSqrtLen, Pool::WeightedMean { first: 3 }] {
        for &lengths in BATCHES {
            table.add(format!("pool {lengths:?} {pool:?}"), 2e-6, (0.0, 0.0), move |ops, random| {
                let spans = spans(lengths);
                let rows = lengths.iter().sum::<usize>();
                let x = ops.input(rows, 37, random.values(rows * 37, 3.0));
                Box::new(move |ops| ops.pool(&x, &spans, pool))
            });
        }
    }
}

fn spans(lengths: &[usize]) -> Vec<Span> {
    let starts = lengths.iter().scan(0, |at, &len| Some(std::mem::replace(at, *at + len)));
    starts.zip(lengths).map(|(start, &len)| Span { start, len }).collect()
}

fn attention(table: &mut Rows) {
    struct Row(&'static str, usize, usize, usize, Mask, Option<f32>, bool);
    let rows = [
        Row("full", 12, 12, 32, Mask::Full, None, false),
        Row("full", 3, 3, 5, Mask::Full, None, false),
        Row("full", 2, 2, 80, Mask::Full, None, false),
        Row("full", 1, 1, 256, Mask::Full, None, false),
        Row("full biased", 4, 4, 16, Mask::Full, None, true),
        Row("causal", 4, 2, 64, Mask::Causal, None, false),
        Row("causal softcap", 4, 1, 16, Mask::Causal, Some(20.0), false),
        Row("window", 2, 2, 16, Mask::Window { left: 4, right: 4 }, None, false),
        Row("causal window", 2, 2, 16, Mask::Window { left: 9, right: 0 }, None, false),
    ];
    for Row(name, heads, kv_heads, head_dim, mask, softcap, biased) in rows {
        for &lengths in BATCHES.iter().chain([&LARGE_BATCH]) {
            let tokens = lengths.iter().sum::<usize>();
            let pairs = lengths.iter().map(|n| n * n).sum::<usize>();
            let work = ((4 * pairs * heads * head_dim) as f64, (16 * tokens * heads * head_dim) as f64);
            table.add(
                format!("attend {name} {heads}/{kv_heads}x{head_dim} {lengths:?}"),
                4e-6,
                work,
                move |ops, random| {
                    let mut input = |heads: usize| {
                        ops.input(tokens, heads * head_dim, random.values(tokens * heads * head_dim, 2.0))
                    };
                    let (q, k, v) = (input(heads), input(kv_heads), input(kv_heads));
                    let reach = lengths.iter().max().copied().unwrap_or(1);
                    let bias = biased.then(|| {
                        let values = Tensor::from_f32(
                            "bias",
                            vec![heads, 2 * reach - 1],
                            random.values(heads * (2 * reach - 1), 2.0),
                        );
                        ops.upload_vector(&values).expect("f32 vectors are taken everywhere")
                    });
                    let scale = (head_dim as f32).powf(-0.5);
                    let attention = Attention { heads, kv_heads, head_dim, scale, mask, softcap, bias };
                    let spans = spans(lengths);
                    Box::new(move |ops| ops.attend(&q, &k, &v, &attention, &spans))
                },
            );
        }
    }
}

/// A sequence in two parts, the second after the first's past; the result is the second part's. Copies stand in for the
/// past in some rows: their originals hold something else by then.
fn with_state(table: &mut Rows) {
    over_pages(table);
    over_slots(table);
}

fn over_pages(table: &mut Rows) {
    struct Row(&'static str, usize, usize, usize, Mask, Option<f32>);
    let rows = [
        Row("causal", 4, 2, 64, Mask::Causal, None),
        Row("causal softcap", 3, 1, 20, Mask::Causal, Some(10.0)),
        Row("causal window", 2, 2, 16, Mask::Window { left: 40, right: 0 }, None),
    ];
    for Row(name, heads, kv_heads, head_dim, mask, softcap) in rows {
        for (past, len) in [(0, 1), (5, 1), (64, 1), (100, 7), (33, 70), (0, 130), (300, 1), (290, 9)] {
            let formats = [KvFormat::F32, KvFormat::F16, KvFormat::Q8_0];
            let plain = formats.map(|format| (format, false));
            let copies = formats.map(|format| (format, true)).into_iter().filter(|_| past > 0);
            for (format, copied) in plain.into_iter().chain(copies) {
                let op = if copied { "copy_page, attend_cached" } else { "attend_cached" };
                let case = format!("{op} {name} {heads}/{kv_heads}x{head_dim} {past}+{len} {format:?}");
                table.add(case, 4e-6, (0.0, 0.0), move |_, random| {
                    let mut values = |rows: usize, heads: usize| random.values(rows * heads * head_dim, 2.0);
                    let parts = [past, len].map(|n| (values(n, heads), values(n, kv_heads), values(n, kv_heads)));
                    let scale = (head_dim as f32).powf(-0.5);
                    let attention = Attention { heads, kv_heads, head_dim, scale, mask, softcap, bias: None };
                    let page_tokens = if past + len > 256 { 48 } else { 16 };
                    let spec = KvSpec { pages: 32, page_tokens, kv_heads, head_dim, format };
                    Box::new(move |ops| {
                        let cache = ops.kv_cache(spec);
                        let mut last = None;
                        for (before, (q, k, v)) in [0, past].into_iter().zip(&parts).filter(|(_, p)| !p.0.is_empty()) {
                            let rows = q.len() / (heads * head_dim);
                            let act = |x: &[f32]| ops.input(rows, x.len() / rows, x.to_vec());
                            let span = [Span { start: 0, len: rows }];
                            // Pages out of order, as an engine deals them.
                            let pages: Vec<u32> = (0..16).map(|i| (i * 7 + 3) % 16).collect();
                            let mut place = [Past { tokens: before, pages: pages.clone().into(), ..Past::default() }];
                            let kv = (act(k), act(v));
                            let kv = Some((&kv.0, &kv.1));
                            if copied && before > 0 {
                                pages.iter().for_each(|&page| ops.copy_page(&cache, page, page + 16));
                                let other = [Past { tokens: 0, ..place[0].clone() }];
                                ops.attend_cached(&act(q), kv, &attention, &span, &other, &cache);
                                place[0].pages = pages.iter().map(|page| page + 16).collect();
                            }
                            last = Some(ops.attend_cached(&act(q), kv, &attention, &span, &place, &cache));
                        }
                        last.expect("the second part has rows")
                    })
                });
            }
        }
    }
}

fn over_slots(table: &mut Rows) {
    let small: &[(usize, usize, bool)] =
        &[(0, 1, false), (3, 1, false), (1, 9, false), (70, 65, false), (3, 1, true), (1, 9, true), (70, 65, true)];
    // The last is a layer of Qwen3.5 (9B).
    let rows = [((2, 4, 16, 8, 4), small), ((1, 1, 5, 7, 2), small), ((16, 32, 128, 128, 4), &[(0, 512, false)])];
    for ((key_heads, value_heads, key_dim, value_dim, kernel), parts) in rows {
        for &(past, len, copied) in parts {
            let op = if copied { "copy_state, delta" } else { "delta" };
            let case = format!("{op} {key_heads}/{value_heads}x{key_dim}x{value_dim} {past}+{len}");
            let flops = (6 * len * value_heads * key_dim * value_dim) as f64;
            table.add(case, 1e-5, (flops, 0.0), move |ops, random| {
                let channels = 2 * key_heads * key_dim + value_heads * value_dim;
                let delta = Delta {
                    key_heads,
                    value_heads,
                    key_dim,
                    value_dim,
                    kernel,
                    convolution: vector(ops, random, channels * kernel, 0.0),
                    a_log: vector(ops, random, value_heads, 0.0),
                    dt_bias: vector(ops, random, value_heads, -1.0),
                };
                let parts =
                    [past, len].map(|n| [channels, value_heads, value_heads].map(|c| random.values(n * c, 1.0)));
                let heads = value_heads;
                let spec = StateSpec { slots: 4, channels, kernel, heads, key_dim, value_dim };
                Box::new(move |ops| {
                    let cache = ops.state_cache(spec);
                    let mut last = None;
                    for (before, part) in [0, past].into_iter().zip(&parts).filter(|(_, p)| !p[0].is_empty()) {
                        let rows = part[0].len() / channels;
                        let [qkv, a, b] = [0, 1, 2].map(|i| ops.input(rows, part[i].len() / rows, part[i].clone()));
                        let mut past = [Past { tokens: before, slot: 1, ..Past::default() }];
                        let span = [Span { start: 0, len: rows }];
                        if copied && before == 0 {
                            // One copy in the middle, one at the end; the sequence goes on from a copy of the latter.
                            past[0].saves = vec![Save { rows: rows.div_ceil(2), slot: 2 }, Save { rows, slot: 3 }];
                        } else if copied {
                            ops.copy_state(&cache, 3, 0);
                            past[0].slot = 0;
                        }
                        last = Some(ops.delta(&qkv, &a, &b, &delta, &span, Some((&cache, &past))));
                    }
                    last.expect("the second part has rows")
                })
            });
        }
    }
}

fn mixtures(table: &mut Rows) {
    for (rows, hidden, inner, count, active, renormalize) in [(1, 16, 8, 4, 2, true), (9, 33, 20, 8, 3, false)] {
        table.add(
            format!("experts {rows}x{hidden}x{inner} {active} of {count}"),
            1e-5,
            (0.0, 0.0),
            move |ops, random| {
                let experts: Vec<Expert> = (0..count)
                    .map(|_| Expert {
                        gate: linear(ops, random, shape(rows, hidden, inner), "F32"),
                        up: linear(ops, random, shape(rows, hidden, inner), "F32"),
                        down: linear(ops, random, shape(rows, inner, hidden), "F32"),
                    })
                    .collect();
                let x = ops.input(rows, hidden, random.values(rows * hidden, 1.0));
                let scores = ops.input(rows, count, random.values(rows * count, 2.0));
                let routing = Routing { active, renormalize };
                Box::new(move |ops| ops.experts(&x, &scores, routing, &experts, Activation::Silu))
            },
        );
    }
    table.add("scale 5x33".into(), 0.0, (0.0, 0.0), move |_, random| {
        let x = random.values(5 * 33, 3.0);
        Box::new(move |ops| ops.scale(ops.input(5, 33, x.clone()), 1.7))
    });
}

/// An executor without its overrides: the defaults of [`Ops`] compose its plain operations.
pub struct Unfused<'a> {
    /// Whose operations these are.
    pub ops: &'a dyn Ops,
    /// Whose gated delta nets: the same, or another that works on the same values, at another precision.
    pub delta: &'a dyn Ops,
}

impl Ops for Unfused<'_> {
    fn upload_matrix(&self, tensor: &Tensor, batch_invariant: bool) -> Result<Weight, OpsError> {
        self.ops.upload_matrix(tensor, batch_invariant)
    }
    fn upload_table(&self, tensor: &Tensor) -> Result<Table, OpsError> {
        self.ops.upload_table(tensor)
    }
    fn upload_vector(&self, tensor: &Tensor) -> Result<Vector, OpsError> {
        self.ops.upload_vector(tensor)
    }
    fn input(&self, rows: usize, cols: usize, data: Vec<f32>) -> Act {
        self.ops.input(rows, cols, data)
    }
    fn embed(&self, table: &Table, ids: &[u32]) -> Act {
        self.ops.embed(table, ids)
    }
    fn linear(&self, x: &Act, w: &Linear) -> Act {
        self.ops.linear(x, w)
    }
    fn norm(&self, x: &Act, norm: &Norm) -> Act {
        self.ops.norm(x, norm)
    }
    fn add(&self, x: Act, y: &Act) -> Act {
        self.ops.add(x, y)
    }
    fn activation(&self, x: Act, kind: Activation) -> Act {
        self.ops.activation(x, kind)
    }
    fn glu(&self, gate: Act, up: &Act, kind: Activation) -> Act {
        self.ops.glu(gate, up, kind)
    }
    fn rope(&self, x: Act, angles: &Act, rope: Rope) -> Act {
        self.ops.rope(x, angles, rope)
    }
    fn attend(&self, q: &Act, k: &Act, v: &Act, attention: &Attention, spans: &[Span]) -> Act {
        self.ops.attend(q, k, v, attention, spans)
    }
    fn kv_cache(&self, spec: KvSpec) -> KvCache {
        self.ops.kv_cache(spec)
    }
    fn copy_page(&self, cache: &KvCache, from: u32, to: u32) {
        self.ops.copy_page(cache, from, to)
    }
    fn attend_cached(
        &self,
        q: &Act,
        kv: Option<(&Act, &Act)>,
        attention: &Attention,
        spans: &[Span],
        pasts: &[Past],
        cache: &KvCache,
    ) -> Act {
        self.ops.attend_cached(q, kv, attention, spans, pasts, cache)
    }
    fn state_cache(&self, spec: StateSpec) -> StateCache {
        self.ops.state_cache(spec)
    }
    fn delta(
        &self,
        qkv: &Act,
        a: &Act,
        b: &Act,
        delta: &Delta,
        spans: &[Span],
        states: Option<(&StateCache, &[Past])>,
    ) -> Act {
        self.delta.delta(qkv, a, b, delta, spans, states)
    }
    fn copy_state(&self, cache: &StateCache, from: u32, to: u32) {
        self.ops.copy_state(cache, from, to)
    }
    fn read_state(&self, cache: &StateCache, slot: u32) -> Result<State, OpsError> {
        self.ops.read_state(cache, slot)
    }
    fn experts(&self, x: &Act, scores: &Act, routing: Routing, experts: &[Expert], kind: Activation) -> Act {
        self.ops.experts(x, scores, routing, experts, kind)
    }
    fn scale(&self, x: Act, factor: f32) -> Act {
        self.ops.scale(x, factor)
    }
    fn rows(&self, x: &Act, rows: &[u32]) -> Act {
        self.ops.rows(x, rows)
    }
    fn pool(&self, x: &Act, spans: &[Span], pool: Pool) -> Act {
        self.ops.pool(x, spans, pool)
    }
    fn read(&self, x: &Act) -> Result<Vec<f32>, OpsError> {
        self.ops.read(x)
    }
}
