//! How is attention computed without ever holding a score for each pair? Keys are walked in blocks with an online
//! softmax (Milakov and Gimelshein 2018; FlashAttention): per query only the largest score so far, the sum of
//! exponentials, and the weighted sum of values are kept.
//!
//! Scores are kept as powers of two, so that the exponential needs no reduction: `log2(e)` goes into the keys with the
//! scale as they are packed, unless a softcap or a bias wants the scores themselves first.
//!
//! Blocks begin at multiples of `KEYS` from the start of the sequence, and a query meets exactly the blocks in which
//! it sees a key: its arithmetic is the same whatever other queries are in the call.

use std::f32::consts::LOG2_E;
use std::ops::Range;

use crate::activations::exp2_below_one;
use crate::matmul::{Begin, MOST_ROWS, Tile, even_part, panels_at_once, tile};
use crate::quant::Quant;
use crate::rows::{add, largest as largest_of, scale};
use crate::simd::Simd;
use crate::{Activation, Attend, AttendScratch, RelativeBias, Rows, Window};

/// Keys in a block: a multiple of every instruction set's panel.
const KEYS: usize = 128;

#[inline(always)]
pub(crate) fn attend<S: Quant>(s: S, task: &Attend<'_>, scratch: &mut AttendScratch, mut out: Window<'_>) {
    let (queries, keys, dim) = (task.q.rows(), task.k.rows(), task.q.cols());
    let value_dim = task.v.cols().next_multiple_of(S::PANEL);
    let mut parts = scratch.take(KEYS * (dim + value_dim + MOST_ROWS) + queries * (value_dim + 2));
    let mut part = |len: usize| parts.split_off_mut(..len).expect("the sum of all parts");
    let (k, v, scores) = (part(KEYS * dim), part(KEYS * value_dim), part(KEYS * MOST_ROWS));
    let (sums, largest, totals) = (part(queries * value_dim), part(queries), part(queries));
    sums.fill(0.0);
    largest.fill(f32::NEG_INFINITY);
    totals.fill(0.0);

    let plain = task.softcap.is_none() && task.bias.is_none();
    let factor = if plain { task.scale * LOG2_E } else { task.scale };
    for start in (0..keys).step_by(KEYS) {
        let block = start..keys.min(start + KEYS);
        let met = queries_that_meet(task, &block);
        if met.is_empty() {
            continue;
        }
        pack_keys(s, task.k.slice_rows(block.clone()), factor, k);
        pack_values::<S>(task.v.slice_rows(block.clone()), v);
        let mut query = met.start;
        while query < met.end {
            let rows = even_part(met.end - query, S::TILE);
            // What one of the rows sees; to the others it adds zeros.
            let (first, last) = (visible(task, query, &block), visible(task, query + rows - 1, &block));
            let seen = first.start / S::PANEL * S::PANEL..last.end;
            let width = seen.end.next_multiple_of(S::PANEL) - seen.start;
            score(s, task.q.slice_rows(query..query + rows), &k[seen.start * dim..], scores, width);
            for row in 0..rows {
                let query = query + row;
                let scores = &mut scores[row * KEYS..][..width];
                let visible = visible(task, query, &block);
                adjust(
                    s,
                    task,
                    query,
                    block.start + visible.start,
                    &mut scores[visible.start - seen.start..visible.end - seen.start],
                );
                scores[..visible.start - seen.start].fill(f32::NEG_INFINITY);
                scores[visible.end - seen.start..].fill(f32::NEG_INFINITY);
                let most = largest_of(s, scores).max(largest[query]);
                // Where every score is −∞, 2 to the power of −∞ − 0 makes the weights 0.
                let origin = if most == f32::NEG_INFINITY { 0.0 } else { most };
                let shrink = s.first(exp2_below_one(s, s.splat(largest[query] - origin)));
                totals[query] = totals[query] * shrink + powers(s, scores, origin);
                largest[query] = most;
                if shrink != 1.0 {
                    scale(s, &mut sums[query * value_dim..][..value_dim], shrink);
                }
            }
            let v = &v[seen.start * S::PANEL..];
            add_values(s, scores, rows, seen.len(), v, &mut sums[query * value_dim..], value_dim);
            query += rows;
        }
    }

    for query in 0..queries {
        let out = out.row_mut(query);
        if totals[query] == 0.0 {
            out.fill(0.0);
            continue;
        }
        let total = s.splat(totals[query]);
        let sums = &sums[query * value_dim..][..out.len()];
        for (out, sum) in out.chunks_mut(S::LANES).zip(sums.chunks(S::LANES)) {
            s.store_part(out, out.len(), s.div(s.load_part(sum, sum.len()), total));
        }
    }
}

/// `scores = 2^(scores − origin)`; their sum.
#[inline(always)]
pub(crate) fn powers<S: Simd>(s: S, scores: &mut [f32], origin: f32) -> f32 {
    let (origin, mut sum) = (s.splat(origin), s.splat(0.0));
    for scores in scores.chunks_exact_mut(S::LANES) {
        let power = exp2_below_one(s, s.sub(s.load_part(scores, S::LANES), origin));
        sum = s.add(sum, power);
        s.store_part(scores, S::LANES, power);
    }
    s.sum(sum)
}

/// The keys of the block that the query sees, counted from the block's start.
pub(crate) fn visible(task: &Attend<'_>, query: usize, block: &Range<usize>) -> Range<usize> {
    let visible = task.mask.visible(task.past + query, block.end);
    visible.start.saturating_sub(block.start)..visible.end.saturating_sub(block.start)
}

/// The queries that see a key of the block: a range, as both ends of what a query sees grow with its position.
pub(crate) fn queries_that_meet(task: &Attend<'_>, block: &Range<usize>) -> Range<usize> {
    let meets = |query: usize| {
        let visible = task.mask.visible(task.past + query, task.k.rows());
        visible.start < block.end && block.start < visible.end
    };
    let start = (0..task.q.rows()).find(|&query| meets(query)).unwrap_or(0);
    let end = (start..task.q.rows()).find(|&query| !meets(query)).unwrap_or(task.q.rows());
    start..end
}

/// Keys `[keys, dim]`, times `factor`, as panels `[keys / PANEL][dim][PANEL]`, the last padded with zeros.
#[inline(always)]
fn pack_keys<S: Quant>(s: S, k: Rows<'_>, factor: f32, packed: &mut [f32]) {
    let dim = k.cols();
    let panels = packed.chunks_exact_mut((dim * S::PANEL).max(1)).take(k.rows().div_ceil(S::PANEL));
    for (i, panel) in panels.enumerate() {
        let first = i * S::PANEL;
        let filled = S::PANEL.min(k.rows() - first);
        if filled < S::PANEL {
            panel.fill(0.0);
        }
        // Eight keys at a time where that is how they come.
        let whole = if dim.is_multiple_of(8) { filled / 8 * 8 } else { 0 };
        for lane in (0..whole).step_by(8) {
            let keys = k.slice_rows(first + lane..first + lane + 8);
            s.transpose(keys.data(), k.stride(), dim, &mut panel[lane..], S::PANEL);
        }
        for lane in whole..filled {
            for (column, &number) in panel.chunks_exact_mut(S::PANEL).zip(k.row(first + lane)) {
                column[lane] = number;
            }
        }
        scale(s, panel, factor);
    }
}

/// Values `[keys, dim]` as panels `[dim / PANEL][KEYS][PANEL]`, the last padded with zeros.
#[inline(always)]
fn pack_values<S: Simd>(v: Rows<'_>, packed: &mut [f32]) {
    for key in 0..v.rows() {
        for (panel, numbers) in v.row(key).chunks(S::PANEL).enumerate() {
            let place = &mut packed[(panel * KEYS + key) * S::PANEL..][..S::PANEL];
            place[..numbers.len()].copy_from_slice(numbers);
            place[numbers.len()..].fill(0.0);
        }
    }
}

/// `scores = q · kᵀ`: rows of `KEYS`, of which `width` are computed.
#[inline(always)]
fn score<S: Simd>(s: S, q: Rows<'_>, k: &[f32], scores: &mut [f32], width: usize) {
    let dim = q.cols();
    assert!(width <= KEYS && width * dim <= k.len() && q.rows() * KEYS <= scores.len());
    let (panels, side) = (width / S::PANEL, panels_at_once(q.rows()));
    let mut panel = 0;
    while panel < panels {
        let count = if panel + side <= panels { side } else { 1 };
        // SAFETY: q has rows of `dim` numbers; k has all panels, of `dim` rows; scores has a row of KEYS for each of q.
        unsafe {
            let task = Tile {
                a: q.as_ptr(),
                a_row: q.stride(),
                b: k.as_ptr().add(panel * dim * S::PANEL),
                b_panel: dim * S::PANEL,
                depth: dim,
                c: scores.as_mut_ptr().add(panel * S::PANEL),
                c_row: KEYS,
                begin: Begin::Zero,
            };
            tile(s, task, q.rows(), count);
        }
        panel += count;
    }
}

/// Caps and biases the scores of a query with the keys from `key` on, and makes them powers of two.
#[inline(always)]
pub(crate) fn adjust<S: Simd>(s: S, task: &Attend<'_>, query: usize, key: usize, scores: &mut [f32]) {
    if let Some(cap) = task.softcap {
        scale(s, scores, 1.0 / cap);
        crate::rows::activation(s, Activation::Tanh, scores);
        scale(s, scores, cap);
    }
    if let Some(RelativeBias { values, offset }) = task.bias {
        let first = key + offset - (task.past + query);
        add(s, scores, &values[first..first + scores.len()]);
    }
    if task.softcap.is_some() || task.bias.is_some() {
        scale(s, scores, LOG2_E);
    }
}

/// `sums += scores · v`: rows of `value_dim`.
#[inline(always)]
fn add_values<S: Simd>(s: S, scores: &[f32], rows: usize, keys: usize, v: &[f32], sums: &mut [f32], value_dim: usize) {
    assert!(rows * KEYS <= scores.len() && rows * value_dim <= sums.len() && keys <= KEYS);
    let (panels, side) = (value_dim / S::PANEL, panels_at_once(rows));
    assert!(panels == 0 || ((panels - 1) * KEYS + keys) * S::PANEL <= v.len());
    let mut panel = 0;
    while panel < panels {
        let count = if panel + side <= panels { side } else { 1 };
        // SAFETY: scores has rows of KEYS ≥ keys numbers; v has all panels, of KEYS rows; sums has a row for each.
        unsafe {
            let task = Tile {
                a: scores.as_ptr(),
                a_row: KEYS,
                b: v.as_ptr().add(panel * KEYS * S::PANEL),
                b_panel: KEYS * S::PANEL,
                depth: keys,
                c: sums.as_mut_ptr().add(panel * S::PANEL),
                c_row: value_dim,
                begin: Begin::Sums,
            };
            tile(s, task, rows, count);
        }
        panel += count;
    }
}
