//! Is attention over pages right on every instruction set, and the same for a prompt in chunks of any size?

mod common;

use common::{bits, difference, every_fast_isa, every_isa, random, scalar, step};
use lattice_kernels::{
    AttendScratch, Kernels, KvPage, KvSlice, KvSliceMut, Mask, PagedAttend, Rows, Window, f16_to_f32, f32_to_f16,
};

const MASKS: [Mask; 4] =
    [Mask::Full, Mask::Causal, Mask::Window { left: 5, right: 0 }, Mask::Window { left: 150, right: 0 }];

/// The pages of a head, filled with numbers through the kernels under test; what is behind the last key is NaN.
struct Cache {
    kind: Kind,
    tokens: usize,
    single: Vec<(Vec<f32>, Vec<f32>)>,
    bits: Vec<(Vec<u16>, Vec<u16>)>,
    bytes: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Single,
    Half,
    Blocks,
}

/// Bytes of a key or value in blocks.
fn width(dim: usize) -> usize {
    KvSlice::Q8_0(&[]).width(dim)
}

impl Cache {
    fn new(kernels: &Kernels, kind: Kind, tokens: usize, keys: &[f32], dim: usize, values: &[f32], vd: usize) -> Cache {
        let (keys, values) = (Rows::dense(keys, dim), Rows::dense(values, vd));
        let count = keys.rows().div_ceil(tokens);
        let mut cache = Cache {
            kind,
            tokens,
            single: vec![(vec![f32::NAN; tokens * dim], vec![f32::NAN; tokens * vd]); count],
            bits: vec![(vec![0x7e00; tokens * dim], vec![0x7e00; tokens * vd]); count],
            bytes: vec![(vec![0x7e; tokens * width(dim)], vec![0x7e; tokens * width(vd)]); count],
        };
        // In runs of 3, as chunks of a prompt come.
        let mut at = 0;
        while at < keys.rows() {
            let run = 3.min(keys.rows() - at).min(tokens - at % tokens);
            let (page, token) = (at / tokens, at % tokens);
            let (k, v) = (keys.slice_rows(at..at + run), values.slice_rows(at..at + run));
            kernels.write_keys(KvSliceMut::F32(&mut cache.single[page].0), token, k);
            kernels.write_values(KvSliceMut::F32(&mut cache.single[page].1), token, v);
            kernels.write_keys(KvSliceMut::F16(&mut cache.bits[page].0), token, k);
            kernels.write_values(KvSliceMut::F16(&mut cache.bits[page].1), token, v);
            kernels.write_keys(KvSliceMut::Q8_0(&mut cache.bytes[page].0), token, k);
            kernels.write_values(KvSliceMut::Q8_0(&mut cache.bytes[page].1), token, v);
            at += run;
        }
        cache
    }

    fn pages(&self) -> Vec<KvPage<'_>> {
        match self.kind {
            Kind::Single => {
                self.single.iter().map(|(k, v)| KvPage { keys: KvSlice::F32(k), values: KvSlice::F32(v) }).collect()
            }
            Kind::Half => {
                self.bits.iter().map(|(k, v)| KvPage { keys: KvSlice::F16(k), values: KvSlice::F16(v) }).collect()
            }
            Kind::Blocks => {
                self.bytes.iter().map(|(k, v)| KvPage { keys: KvSlice::Q8_0(k), values: KvSlice::Q8_0(v) }).collect()
            }
        }
    }
}

fn task<'a>(
    q: Rows<'a>,
    dim: usize,
    pages: &'a [KvPage<'a>],
    cache: &Cache,
    keys: usize,
    past: usize,
) -> PagedAttend<'a> {
    let page_tokens = cache.tokens;
    PagedAttend { q, dim, pages, page_tokens, keys, past, scale: 0.4, mask: Mask::Causal, softcap: None }
}

fn attend(kernels: &Kernels, task: &PagedAttend<'_>, value_dim: usize) -> Vec<f32> {
    let cols = task.group() * value_dim;
    let mut out = vec![f32::NAN; task.q.rows() * cols];
    kernels.attend_paged(task, &mut AttendScratch::new(), Window::new(&mut out, task.q.rows(), cols, cols));
    out
}

#[test]
fn agrees_with_scalar_at_every_dimension_group_and_mask() {
    let mut failures = Vec::new();
    let dims = [(64, 64), (80, 80), (256, 256), (8, 8), (13, 13), (1, 3), (33, 70)];
    let shapes = [(1, 1, 0), (1, 3, 299), (2, 1, 127), (7, 2, 0), (1, 9, 40), (140, 1, 0), (5, 3, 250)];
    let all = dims.into_iter().flat_map(|dims| shapes.map(|shape| (dims, shape)));
    // Under an emulator the diagonal: each dimension and each shape once.
    for ((dim, value_dim), (queries, group, past)) in all.step_by(step(shapes.len() + 1)) {
        let keys = past + queries;
        let q = random(1, queries * (group * dim + 5));
        let q = Rows::new(&q, queries, group * dim, group * dim + 5);
        let (k, v) = (random(2, keys * dim), random(3, keys * value_dim));
        for (tokens, kind) in [(16, Kind::Single), (48, Kind::Half), (256, Kind::Half), (48, Kind::Blocks)] {
            let cache = Cache::new(scalar(), kind, tokens, &k, dim, &v, value_dim);
            let pages = cache.pages();
            for mask in MASKS {
                for softcap in [None, Some(1.5)] {
                    // The scalar kernel takes its time; what differs here are masks, pages and caps.
                    if softcap.is_some() && (tokens != 48 || dim > 80) || dim == 256 && tokens == 16 {
                        continue;
                    }
                    let task = PagedAttend { mask, softcap, ..task(q, dim, &pages, &cache, keys, past) };
                    let want = attend(scalar(), &task, value_dim);
                    for kernels in every_fast_isa() {
                        let off = difference(&attend(kernels, &task, value_dim), &want);
                        if off > 1e-5 {
                            let isa = kernels.isa();
                            failures.push(format!("{isa} dim {dim} {queries}x{group} after {past}, pages of {tokens} {kind:?}, {mask:?} {softcap:?}: off by {off:e}"));
                        }
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn chunks_of_any_size_give_the_bits_of_the_whole() {
    let (dim, group, length) = (64, 3, 300);
    let q = random(1, length * group * dim);
    let q = Rows::dense(&q, group * dim);
    let (k, v) = (random(2, length * dim), random(3, length * dim));
    for kernels in every_isa() {
        for (tokens, kind) in [(32, Kind::Single), (64, Kind::Half), (48, Kind::Blocks)] {
            let cache = Cache::new(kernels, kind, tokens, &k, dim, &v, dim);
            let pages = cache.pages();
            let masks = MASKS[1..].iter().flat_map(|&mask| [(mask, None), (mask, Some(2.0))]);
            // Under an emulator the first and the last.
            for (mask, softcap) in masks.step_by(step(5)) {
                let with = |q, keys, past| PagedAttend { mask, softcap, ..task(q, dim, &pages, &cache, keys, past) };
                let whole = attend(kernels, &with(q, length, 0), dim);
                for chunk in [1, 7, 64, 128] {
                    let mut parts = Vec::new();
                    for past in (0..length).step_by(chunk) {
                        let end = length.min(past + chunk);
                        parts.extend(attend(kernels, &with(q.slice_rows(past..end), end, past), dim));
                    }
                    assert!(bits(&parts) == bits(&whole), "{} {mask:?} {softcap:?} chunks of {chunk}", kernels.isa());
                }
                // A head of the group alone, too.
                let head = attend(kernels, &with(q.slice_cols(dim..2 * dim), length, 0), dim);
                for (row, whole) in head.chunks(dim).zip(whole.chunks(group * dim)) {
                    assert_eq!(bits(row), bits(&whole[dim..2 * dim]), "{} {mask:?} head alone", kernels.isa());
                }
            }
        }
    }
}

#[test]
fn blocks_of_keys_in_any_grouping_join_to_the_bits_of_the_whole() {
    for (dim, group, queries, past) in [(64, 3, 1, 700), (80, 2, 5, 383), (13, 4, 140, 260), (256, 1, 2, 1)] {
        let keys = past + queries;
        let q = random(1, queries * group * dim);
        let (k, v) = (random(2, keys * dim), random(3, keys * dim));
        for kernels in every_isa() {
            for (tokens, kind) in [(32, Kind::Single), (256, Kind::Half), (48, Kind::Half), (48, Kind::Blocks)] {
                let cache = Cache::new(kernels, kind, tokens, &k, dim, &v, dim);
                let pages = cache.pages();
                for mask in [Mask::Causal, Mask::Window { left: 200, right: 0 }, Mask::Window { left: 3, right: 0 }] {
                    let task =
                        PagedAttend { mask, ..task(Rows::dense(&q, group * dim), dim, &pages, &cache, keys, past) };
                    let whole = attend(kernels, &task, dim);
                    for step in [1, 2, 5] {
                        let mut scratch = AttendScratch::new();
                        let mut parts = Vec::new();
                        for first in task.blocks().step_by(step) {
                            let range = first..task.blocks().end.min(first + step);
                            let start = parts.len();
                            parts.resize(start + range.len() * queries * group * (dim + 2), f32::NAN);
                            kernels.attend_blocks(&task, range, &mut scratch, &mut parts[start..]);
                        }
                        let mut out = vec![f32::NAN; whole.len()];
                        kernels.join_blocks(&parts, group, Window::dense(&mut out, group * dim));
                        assert!(bits(&out) == bits(&whole), "{} {kind:?} {mask:?} by {step}", kernels.isa());
                    }
                }
            }
        }
    }
}

#[test]
fn page_size_does_not_matter_and_unseen_pages_may_be_empty() {
    let (dim, keys, past) = (32, 290, 280);
    let q = random(1, (keys - past) * dim);
    let q = Rows::dense(&q, dim);
    let (k, v) = (random(2, keys * dim), random(3, keys * dim));
    for kernels in every_isa() {
        let mask = Mask::Window { left: 40, right: 0 };
        let run = |kind: Kind, tokens: usize, drop: bool| {
            let cache = Cache::new(kernels, kind, tokens, &k, dim, &v, dim);
            let mut pages = cache.pages();
            if drop {
                let none = if kind == Kind::Half { KvSlice::F16(&[]) } else { KvSlice::Q8_0(&[]) };
                let empty = KvPage { keys: none, values: none };
                pages[..240 / tokens].fill(empty);
            }
            bits(&attend(kernels, &PagedAttend { mask, ..task(q, dim, &pages, &cache, keys, past) }, dim))
        };
        for kind in [Kind::Half, Kind::Blocks] {
            let want = run(kind, 16, false);
            for tokens in [16, 32, 48, 80, 304] {
                assert_eq!(run(kind, tokens, false), want, "{} {kind:?} pages of {tokens}", kernels.isa());
            }
            assert_eq!(run(kind, 16, true), want);
            assert_eq!(run(kind, 80, true), want);
        }
    }
}

#[test]
fn half_precision_pages_hold_the_nearest_halves_in_sixteens_of_keys() {
    let (dim, tokens) = (21, 32);
    let numbers: Vec<f32> =
        random(5, 30 * dim).iter().map(|x| x * 3e4 + x.signum() * 4e4 * (x.abs() > 0.9) as u8 as f32).collect();
    for kernels in every_isa() {
        let (mut keys, mut values) = (vec![0u16; tokens * dim], vec![0u16; tokens * dim]);
        kernels.write_keys(KvSliceMut::F16(&mut keys), 1, Rows::dense(&numbers, dim));
        kernels.write_values(KvSliceMut::F16(&mut values), 2, Rows::dense(&numbers, dim));
        for (i, row) in numbers.chunks(dim).enumerate() {
            for (d, &number) in row.iter().enumerate() {
                let token = 1 + i;
                let key = keys[(token / 16 * dim + d) * 16 + token % 16];
                assert_eq!(key, f32_to_f16(number), "{} {number} {}", kernels.isa(), f16_to_f32(key));
                assert_eq!(values[(2 + i) * dim + d], f32_to_f16(number));
            }
        }
    }
}

#[test]
fn a_query_that_sees_nothing_gets_zeros_and_enormous_scores_stay_finite() {
    let (dim, keys) = (16, 40);
    let q: Vec<f32> = random(1, 3 * dim).iter().map(|x| x * 1e6).collect();
    let (k, v) = (random(2, keys * dim), random(3, keys * dim));
    for kernels in every_isa() {
        let cache = Cache::new(kernels, Kind::Single, 16, &k, dim, &v, dim);
        let pages = cache.pages();
        let task = task(Rows::dense(&q, dim), dim, &pages, &cache, keys, 37);
        assert!(difference(&attend(kernels, &task, dim), &attend(scalar(), &task, dim)) < 1e-3, "{}", kernels.isa());
        let blind = PagedAttend { past: 100, mask: Mask::Window { left: 3, right: 0 }, ..task };
        assert_eq!(attend(kernels, &blind, dim), [0.0; 48]);
        let nothing = PagedAttend { keys: 0, pages: &[], past: 0, ..task };
        assert_eq!(attend(kernels, &nothing, dim), [0.0; 48]);
    }
}

#[test]
#[should_panic(expected = "hold no 40 keys")]
fn refuses_pages_that_are_missing() {
    let cache = Cache::new(scalar(), Kind::Single, 16, &[0.0; 40 * 4], 4, &[0.0; 40 * 4], 4);
    let pages = cache.pages();
    attend(scalar(), &task(Rows::dense(&[0.0; 4], 4), 4, &pages[..2], &cache, 40, 39), 4);
}

#[test]
fn pages_of_blocks_hold_every_number_to_half_a_step() {
    let (dim, tokens) = (70, 32);
    let mut numbers = random(6, 20 * dim);
    numbers[..dim].fill(0.0);
    numbers[dim..2 * dim].iter_mut().for_each(|x| *x *= 1e4);
    numbers[2 * dim..3 * dim].iter_mut().for_each(|x| *x *= 1e-3);
    for kernels in every_isa() {
        let (mut keys, mut values) = (vec![0u8; tokens * width(dim)], vec![0u8; tokens * width(dim)]);
        kernels.write_keys(KvSliceMut::Q8_0(&mut keys), 7, Rows::dense(&numbers, dim));
        kernels.write_values(KvSliceMut::Q8_0(&mut values), 3, Rows::dense(&numbers, dim));
        let half = |bytes: &[u8]| f16_to_f32(u16::from_le_bytes([bytes[0], bytes[1]]));
        for (i, row) in numbers.chunks(dim).enumerate() {
            for (d, &number) in row.iter().enumerate() {
                let block = &row[d / 32 * 32..dim.min(d / 32 * 32 + 32)];
                let step = block.iter().fold(0f32, |m, x| m.max(x.abs())) / 127.0;
                let (panel, lane) = ((7 + i) / 16, (7 + i) % 16);
                let at = (panel * 3 + d / 32) * 16 * 34;
                let key = half(&keys[at + 2 * lane..]) * f32::from(keys[at + 32 + d % 32 * 16 + lane] as i8);
                let at = ((3 + i) * 3 + d / 32) * 34;
                let value = half(&values[at..]) * f32::from(values[at + 2 + d % 32] as i8);
                for kept in [key, value] {
                    // The factor is rounded too, to one part in 2048.
                    assert!((kept - number).abs() <= step * (0.5 + 127.0 / 2048.0) + 1e-7, "{number} became {kept}");
                }
            }
        }
    }
}
