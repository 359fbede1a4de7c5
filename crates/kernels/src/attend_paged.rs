//! How is attention computed over keys and values in pages, with the same arithmetic for a prompt and for one token?
//!
//! Keys are walked in blocks of [`KEYS`], counted from the start of the sequence. Each block by itself gives a query its
//! largest score, the sum of the exponentials below it, and the sum of the values that these weigh; blocks are joined in their
//! order (the online softmax of Milakov and Gimelshein 2018). So threads may share the blocks of a query, and whoever joins
//! them gets the bits of one who walks them all. Keys and values in 8-bit blocks are read into single precision first, a block
//! of keys at a time.

use std::f32::consts::LOG2_E;
use std::ops::Range;

use crate::activations::exp2_below_one;
use crate::attend::powers;
use crate::attend_tiles::{add_values, most_rows, score};
use crate::matmul::{F16, Load, MOST_ROWS, even_part};
use crate::pages::{KEYS, KEYS_ABREAST, read_keys_q8_0, read_values_q8_0, write_key_q8_0, write_value_q8_0};
use crate::quant::Quant;
use crate::rows::{activation, largest as largest_of, scale};
use crate::simd::Simd;
use crate::{Activation, KvSlice, KvSliceMut, PagedAttend, Rows, Window};

/// What is multiplied.
trait Element: Load {
    /// The numbers `range` of a slice that is known to be of them, or, where it is of blocks, those of the block of keys,
    /// which were `read` from it, from `at` on.
    fn of<'a>(slice: &KvSlice<'a>, range: Range<usize>, read: &'a [f32], at: usize) -> &'a [Self];
}

impl Element for f32 {
    fn of<'a>(slice: &KvSlice<'a>, range: Range<usize>, read: &'a [f32], at: usize) -> &'a [f32] {
        match slice {
            KvSlice::F32(numbers) => &numbers[range],
            KvSlice::Q8_0(_) => &read[at..][..range.len()],
            KvSlice::F16(_) => unreachable!("pages of one element type were checked"),
        }
    }
}

impl Element for F16 {
    fn of<'a>(slice: &KvSlice<'a>, range: Range<usize>, _: &'a [f32], _: usize) -> &'a [F16] {
        match slice {
            KvSlice::F16(bits) => {
                // SAFETY: F16 is a transparent u16.
                let numbers: &[F16] = unsafe { std::slice::from_raw_parts(bits.as_ptr().cast(), bits.len()) };
                &numbers[range]
            }
            _ => unreachable!("pages of one element type were checked"),
        }
    }
}

/// Some blocks of keys: each by itself, or `together` joined.
#[inline(always)]
pub(crate) fn attend_blocks<S: Simd>(
    s: S,
    task: &PagedAttend<'_>,
    range: Range<usize>,
    together: bool,
    work: &mut [f32],
    parts: &mut [f32],
) {
    let (rows, seen) = (task.q.rows() * task.group(), task.seen());
    let (step, count) = if together { (range.len(), 1) } else { (1, range.len()) };
    let part = parts.len() / count;
    for (first, part) in range.step_by(step).zip(parts.chunks_exact_mut(part)) {
        let keys = seen.start.max(first * KEYS)..seen.end.min((first + step) * KEYS);
        let mut state = State::new(part, rows);
        match task.pages.get(keys.start / task.page_tokens).map(|page| page.keys) {
            Some(KvSlice::F16(_)) => blocks::<S, F16>(s, task, keys, &mut state, work),
            _ => blocks::<S, f32>(s, task, keys, &mut state, work),
        }
    }
}

/// Joins what [`attend_blocks`] made of a query's blocks.
#[inline(always)]
pub(crate) fn join_blocks<S: Simd>(s: S, parts: &[f32], group: usize, mut out: Window<'_>) {
    let (rows, value_dim) = (out.rows() * group, out.cols() / group);
    for row in 0..rows {
        let out = &mut out.row_mut(row / group)[row % group * value_dim..][..value_dim];
        let (mut largest, mut total) = (f32::NEG_INFINITY, 0.0);
        for part in parts.chunks_exact(rows * (value_dim + 2)) {
            let (sums, ends) = part.split_at(rows * value_dim);
            let block = (ends[row], ends[rows + row], &sums[row * value_dim..][..value_dim]);
            join(s, &mut largest, &mut total, out, block);
        }
        if total == 0.0 {
            out.fill(0.0); // it saw nothing
            continue;
        }
        let total = s.splat(total);
        for out in out.chunks_mut(S::LANES) {
            s.store_part(out, out.len(), s.div(s.load_part(out, out.len()), total));
        }
    }
}

/// What the rows of a call have gathered.
struct State<'a> {
    /// `[rows, value_dim]`: the weighted sums of the values; of a row that saw nothing, anything.
    sums: &'a mut [f32],
    /// `[rows]`: the largest scores, as powers of two.
    largest: &'a mut [f32],
    /// `[rows]`: the sums of the weights.
    totals: &'a mut [f32],
}

impl State<'_> {
    /// Nothing yet.
    fn new(numbers: &mut [f32], rows: usize) -> State<'_> {
        let (sums, ends) = numbers.split_at_mut(numbers.len() - 2 * rows);
        let (largest, totals) = ends.split_at_mut(rows);
        largest.fill(f32::NEG_INFINITY);
        totals.fill(0.0);
        State { sums, largest, totals }
    }
}

/// Joins a block's largest score, total and sums to those of the blocks before it.
#[inline(always)]
fn join<S: Simd>(s: S, largest: &mut f32, total: &mut f32, sums: &mut [f32], block: (f32, f32, &[f32])) {
    let (block_largest, block_total, block_sums) = block;
    if block_largest == f32::NEG_INFINITY {
        return;
    }
    if *largest == f32::NEG_INFINITY {
        (*largest, *total) = (block_largest, block_total);
        return sums.copy_from_slice(block_sums);
    }
    let most = block_largest.max(*largest);
    let power = |x: f32| s.first(exp2_below_one(s, s.splat(x)));
    let (keep, take) = (power(*largest - most), power(block_largest - most));
    *total = take.mul_add(block_total, *total * keep);
    *largest = most;
    let (keep, take) = (s.splat(keep), s.splat(take));
    for (sums, block) in sums.chunks_mut(S::LANES).zip(block_sums.chunks(S::LANES)) {
        let sum = s.mul(s.load_part(sums, sums.len()), keep);
        s.store_part(sums, sums.len(), s.fma(take, s.load_part(block, block.len()), sum));
    }
}

/// Walks the blocks of a range of keys that some query sees.
#[inline(always)]
fn blocks<S: Simd, T: Element>(
    s: S,
    task: &PagedAttend<'_>,
    seen: Range<usize>,
    state: &mut State<'_>,
    mut work: &mut [f32],
) {
    let (group, dim) = (task.group(), task.dim);
    let rows = task.q.rows() * group;
    let value_dim = state.sums.len() / rows.max(1);
    let read = task.blocks_read();
    let mut part = |len: usize| work.split_off_mut(..len).expect("the sum of all parts");
    let (q, scores, block_sums) = (part(rows * dim), part(KEYS * MOST_ROWS), part(value_dim * MOST_ROWS));
    let (read_keys, read_values) = (part(read * dim), part(read * value_dim));
    // Scores are powers of two, so log2(e) goes into the queries, unless a softcap wants the scores themselves first.
    let factor = if task.softcap.is_none() { task.scale * LOG2_E } else { task.scale };
    for (i, q) in q.chunks_exact_mut((group * dim).max(1)).enumerate() {
        q.copy_from_slice(task.q.row(i));
        scale(s, q, factor);
    }

    for start in (seen.start / KEYS * KEYS..seen.end).step_by(KEYS) {
        let block = start..seen.end.min(start + KEYS);
        if read > 0 {
            let from = block.start.max(seen.start / KEYS_ABREAST * KEYS_ABREAST);
            for (keys, at, page) in segments(task, from..block.end.next_multiple_of(KEYS_ABREAST)) {
                let place = at_block(task, page, at, start);
                if let (KvSlice::Q8_0(k), KvSlice::Q8_0(v)) = (task.pages[page].keys, task.pages[page].values) {
                    let (k_width, v_width) = (k.len() / task.page_tokens, v.len() / task.page_tokens);
                    let k = &k[at * k_width..][..keys * k_width];
                    read_keys_q8_0(k, dim, &mut read_keys[place * dim..][..keys * dim]);
                    let v = &v[at * v_width..][..keys * v_width];
                    read_values_q8_0(v, value_dim, &mut read_values[place * value_dim..][..keys * value_dim]);
                }
            }
        }
        // The queries that see a key of the block, as rows.
        let meets = |query: &usize| !visible(task, *query, &block).is_empty();
        let first = (0..task.q.rows()).find(meets).unwrap_or(task.q.rows());
        let last = (first..task.q.rows()).rfind(meets).map_or(first, |last| last + 1);
        let (mut row, end) = (first * group, last * group);
        while row < end {
            let count = even_part(end - row, most_rows::<S>());
            // What one of the rows sees; to the others it adds zeros.
            let from = visible(task, row / group, &block).start / KEYS_ABREAST * KEYS_ABREAST;
            let to = visible(task, (row + count - 1) / group, &block).end;
            let width = (to - from).next_multiple_of(KEYS_ABREAST);
            for (keys, at, page) in segments(task, start + from..start + from + width) {
                let place = at_block(task, page, at, start) * dim;
                let k = T::of(&task.pages[page].keys, at * dim..(at + keys) * dim, read_keys, place);
                score(s, &q[row * dim..][..count * dim], dim, k, &mut scores[at_block(task, page, at, start + from)..]);
            }
            let mut ends = [(0.0, 0.0); MOST_ROWS];
            for (i, end) in ends.iter_mut().take(count).enumerate() {
                let row = row + i;
                let scores = &mut scores[i * KEYS..][..width];
                let visible = visible(task, row / group, &block);
                scores[..visible.start.max(from) - from].fill(f32::NEG_INFINITY);
                scores[visible.end.max(from) - from..].fill(f32::NEG_INFINITY);
                if let Some(cap) = task.softcap {
                    let scores = &mut scores[visible.start.max(from) - from..visible.end.max(from) - from];
                    scale(s, scores, 1.0 / cap);
                    activation(s, Activation::Tanh, scores);
                    scale(s, scores, cap * LOG2_E);
                }
                let most = largest_of(s, scores);
                // Where every score is −∞, 2 to the power of −∞ − 0 makes the weights 0.
                let origin = if most == f32::NEG_INFINITY { 0.0 } else { most };
                *end = (most, powers(s, scores, origin));
            }
            for (keys, at, page) in segments(task, start + from..start + to) {
                let (range, place) =
                    (at * value_dim..(at + keys) * value_dim, at_block(task, page, at, start) * value_dim);
                let v = T::of(&task.pages[page].values, range, read_values, place);
                let first = at_block(task, page, at, start + from);
                let sums = &mut block_sums[..count * value_dim];
                add_values(s, &scores[first..], count, v, sums, value_dim, first == 0);
            }
            for (i, (most, total)) in ends.into_iter().take(count).enumerate() {
                let row = row + i;
                let sums = &mut state.sums[row * value_dim..][..value_dim];
                let block = (most, total, &block_sums[i * value_dim..][..value_dim]);
                join(s, &mut state.largest[row], &mut state.totals[row], sums, block);
            }
            row += count;
        }
    }
}

/// The keys of the block that the query sees, counted from the block's start.
fn visible(task: &PagedAttend<'_>, query: usize, block: &Range<usize>) -> Range<usize> {
    let visible = task.mask.visible(task.past + query, block.end);
    let start = visible.start.max(block.start) - block.start;
    start..(visible.end.max(block.start) - block.start).max(start)
}

/// A range of keys page by page: how many of them are in a page, from which token on, and which page it is.
fn segments(task: &PagedAttend<'_>, keys: Range<usize>) -> impl Iterator<Item = (usize, usize, usize)> {
    let (tokens, mut key) = (task.page_tokens, keys.start);
    std::iter::from_fn(move || {
        let (page, at) = (key / tokens, key % tokens);
        let count = (keys.end - key).min(tokens - at);
        key += count;
        (count > 0).then_some((count, at, page))
    })
}

/// Where a page's token lies, counted from the key `first`.
fn at_block(task: &PagedAttend<'_>, page: usize, at: usize, first: usize) -> usize {
    page * task.page_tokens + at - first
}

#[inline(always)]
pub(crate) fn write_keys<S: Quant>(s: S, mut keys: KvSliceMut<'_>, at: usize, rows: Rows<'_>) {
    let dim = rows.cols();
    for i in 0..rows.rows() {
        let first = (at + i) / KEYS_ABREAST * KEYS_ABREAST * dim + (at + i) % KEYS_ABREAST;
        match &mut keys {
            KvSliceMut::F32(keys) => {
                let places = keys[first..].iter_mut().step_by(KEYS_ABREAST);
                places.zip(rows.row(i)).for_each(|(place, &number)| *place = number);
            }
            KvSliceMut::F16(keys) => {
                let mut places = keys[first..].iter_mut().step_by(KEYS_ABREAST);
                for numbers in rows.row(i).chunks(S::LANES) {
                    let mut half = [0u16; 16];
                    // SAFETY: `half` has a vector's numbers.
                    unsafe { s.store_f16(half.as_mut_ptr(), s.load_part(numbers, numbers.len())) };
                    half[..numbers.len()].iter().zip(&mut places).for_each(|(&half, place)| *place = half);
                }
            }
            KvSliceMut::Q8_0(keys) => write_key_q8_0(keys, at + i, rows.row(i)),
        }
    }
}

#[inline(always)]
pub(crate) fn write_values<S: Quant>(s: S, mut values: KvSliceMut<'_>, at: usize, rows: Rows<'_>) {
    let dim = rows.cols();
    for i in 0..rows.rows() {
        match &mut values {
            KvSliceMut::F32(values) => values[(at + i) * dim..][..dim].copy_from_slice(rows.row(i)),
            KvSliceMut::F16(values) => {
                let places = values[(at + i) * dim..][..dim].chunks_mut(S::LANES);
                for (place, numbers) in places.zip(rows.row(i).chunks(S::LANES)) {
                    let mut half = [0u16; 16];
                    // SAFETY: `half` has a vector's numbers.
                    unsafe { s.store_f16(half.as_mut_ptr(), s.load_part(numbers, numbers.len())) };
                    place.copy_from_slice(&half[..place.len()]);
                }
            }
            KvSliceMut::Q8_0(values) => write_value_q8_0(values, at + i, rows.row(i)),
        }
    }
}
