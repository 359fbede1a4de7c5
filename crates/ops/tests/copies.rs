//! Copies of what sequences leave behind: one that goes on from a copy gives the same bits as one that goes on from the
//! original, whatever happens to the original meanwhile.

use lattice_ops::contract::Random;
use lattice_ops::{
    Attention, Cpu, CpuOptions, Delta, Isa, KvFormat, KvSpec, Mask, Ops, Past, Save, Span, StateSpec, Vector,
};

fn every_isa() -> impl Iterator<Item = Cpu> {
    Isa::available().into_iter().map(|isa| {
        Cpu::new(&CpuOptions { threads: Some(2), isa: Some(isa), ..CpuOptions::default() }).expect("an available ISA")
    })
}

fn bits(values: Vec<f32>) -> Vec<u32> {
    values.into_iter().map(f32::to_bits).collect()
}

#[test]
fn attention_over_a_copied_page_gives_the_bits_of_the_original() {
    const WIDTH: usize = 2 * 24;
    let attention =
        Attention { heads: 2, kv_heads: 2, head_dim: 24, scale: 0.2, mask: Mask::Causal, softcap: None, bias: None };
    for ops in every_isa() {
        for format in [KvFormat::F32, KvFormat::F16, KvFormat::Q8_0] {
            let cache = ops.kv_cache(KvSpec { pages: 4, page_tokens: 32, kv_heads: 2, head_dim: 24, format });
            let mut random = Random(1);
            let mut run = |rows: usize, past: &Past| {
                let mut act = || ops.input(rows, WIDTH, random.values(rows * WIDTH, 1.0));
                let (q, k, v) = (act(), act(), act());
                ops.attend_cached(
                    &q,
                    Some((&k, &v)),
                    &attention,
                    &[Span { start: 0, len: rows }],
                    std::slice::from_ref(past),
                    &cache,
                );
                (q, k, v)
            };
            let original = Past { pages: [0, 1].into(), ..Past::default() };
            run(40, &original);
            ops.copy_page(&cache, 1, 3);
            let branch = Past { tokens: 40, pages: [0, 3].into(), ..Past::default() };
            let (q, k, v) = run(5, &branch);
            // The original goes its own way, and then where the branch went.
            run(9, &Past { tokens: 40, ..original.clone() });
            let again = |past: &Past| {
                let span = [Span { start: 0, len: 5 }];
                let past = std::slice::from_ref(past);
                bits(ops.read(&ops.attend_cached(&q, Some((&k, &v)), &attention, &span, past, &cache)).expect("values"))
            };
            let branched = again(&branch);
            assert_eq!(again(&Past { tokens: 40, ..original }), branched, "{} {format:?}", ops.isa());
        }
    }
}

#[test]
fn a_state_saved_in_the_middle_of_a_span_is_what_a_shorter_span_leaves() {
    let (key_heads, value_heads, key_dim, value_dim, kernel) = (2, 4, 8, 12, 3);
    let channels = 2 * key_heads * key_dim + value_heads * value_dim;
    let spec = StateSpec { slots: 6, channels, kernel, heads: value_heads, key_dim, value_dim };
    for ops in every_isa() {
        let mut random = Random(2);
        let mut vector = |len: usize| Vector {
            len,
            weight: ops
                .upload_vector(&weights::Tensor::from_f32("vector", vec![len], random.values(len, 0.5)))
                .expect("f32 vectors are taken everywhere")
                .weight,
        };
        let (convolution, a_log, dt_bias) = (vector(channels * kernel), vector(value_heads), vector(value_heads));
        let delta = Delta { key_heads, value_heads, key_dim, value_dim, kernel, convolution, a_log, dt_bias };
        let inputs = [channels, value_heads, value_heads].map(|cols| (cols, random.values(20 * cols, 1.0)));
        let cache = ops.state_cache(spec);
        let run = |rows: usize, past: Past| {
            let [qkv, a, b] = [0, 1, 2].map(|i| {
                let (cols, values) = &inputs[i];
                ops.input(rows, *cols, values[..rows * cols].to_vec())
            });
            let span = [Span { start: 0, len: rows }];
            bits(ops.read(&ops.delta(&qkv, &a, &b, &delta, &span, Some((&cache, &[past])))).expect("values"))
        };
        let saves = [1, 7, 20].into_iter().zip(1..).map(|(rows, slot)| Save { rows, slot }).collect();
        let whole = run(20, Past { saves, ..Past::default() });
        for (rows, saved) in [(1, 1), (7, 2), (20, 3)] {
            let short = run(rows, Past { slot: 5, ..Past::default() });
            assert_eq!(short, whole[..short.len()], "{}", ops.isa());
            ops.copy_state(&cache, saved, 4);
            let state = |slot| ops.read_state(&cache, slot).expect("a state");
            assert_eq!(state(saved), state(5), "{} after {rows}", ops.isa());
            assert_eq!(state(4), state(5), "{} after {rows}", ops.isa());
        }
    }
}
