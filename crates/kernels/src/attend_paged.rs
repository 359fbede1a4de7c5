//! How is attention computed over keys and values in pages, with the same arithmetic for a prompt and for one token?
//!
//! As in `attend`: blocks of keys, counted from the start of the sequence, and an online softmax over them. A page keeps
//! sixteen keys side by side, so that scores come out in vectors of keys, each a chain over the dimensions, and values row
//! by row, so that results come out in vectors of dimensions, each a chain over the keys. The rows of a tile are queries, or
//! the heads of a group, or both. Keys and values in 8-bit blocks are read into single precision first, a block of keys at a
//! time.

// Indices say which register is which.
#![allow(clippy::needless_range_loop)]

use std::f32::consts::LOG2_E;
use std::ops::Range;

use crate::activations::exp2_below_one;
use crate::attend::powers;
use crate::matmul::{F16, Load, MOST_ROWS, even_part};
use crate::pages::{KEYS_ABREAST, read_keys_q8_0, read_values_q8_0, write_key_q8_0, write_value_q8_0};
use crate::quant::Quant;
use crate::rows::{activation, largest as largest_of, scale};
use crate::simd::Simd;
use crate::{Activation, AttendScratch, KvSlice, KvSliceMut, PagedAttend, Rows, Window};

/// Keys in a block.
const KEYS: usize = 128;

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

#[inline(always)]
pub(crate) fn attend_paged<S: Simd>(s: S, task: &PagedAttend<'_>, scratch: &mut AttendScratch, out: Window<'_>) {
    let seen = task.seen();
    match task.pages.get(seen.start / task.page_tokens).map(|page| page.keys) {
        Some(KvSlice::F16(_)) => blocks::<S, F16>(s, task, seen, scratch, out),
        _ => blocks::<S, f32>(s, task, seen, scratch, out),
    }
}

#[inline(always)]
fn blocks<S: Simd, T: Element>(
    s: S,
    task: &PagedAttend<'_>,
    seen: Range<usize>,
    scratch: &mut AttendScratch,
    mut out: Window<'_>,
) {
    let (group, dim) = (task.group(), task.dim);
    let rows = task.q.rows() * group;
    let value_dim = out.cols() / group.max(1);
    let first_page = task.pages.get(seen.start / task.page_tokens).map(|page| page.keys);
    let read = if matches!(first_page, Some(KvSlice::Q8_0(_))) { KEYS } else { 0 };
    let mut parts = scratch.take(rows * (dim + value_dim + 2) + KEYS * MOST_ROWS + read * (dim + value_dim));
    let mut part = |len: usize| parts.split_off_mut(..len).expect("the sum of all parts");
    let (q, sums, scores) = (part(rows * dim), part(rows * value_dim), part(KEYS * MOST_ROWS));
    let (largest, totals) = (part(rows), part(rows));
    let (read_keys, read_values) = (part(read * dim), part(read * value_dim));
    sums.fill(0.0);
    largest.fill(f32::NEG_INFINITY);
    totals.fill(0.0);
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
            for i in 0..count {
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
                let most = largest_of(s, scores).max(largest[row]);
                // Where every score is −∞, 2 to the power of −∞ − 0 makes the weights 0.
                let origin = if most == f32::NEG_INFINITY { 0.0 } else { most };
                let shrink = s.first(exp2_below_one(s, s.splat(largest[row] - origin)));
                totals[row] = totals[row] * shrink + powers(s, scores, origin);
                largest[row] = most;
                if shrink != 1.0 {
                    scale(s, &mut sums[row * value_dim..][..value_dim], shrink);
                }
            }
            for (keys, at, page) in segments(task, start + from..start + to) {
                let (range, place) =
                    (at * value_dim..(at + keys) * value_dim, at_block(task, page, at, start) * value_dim);
                let v = T::of(&task.pages[page].values, range, read_values, place);
                let scores = &scores[at_block(task, page, at, start + from)..];
                add_values(s, scores, count, v, &mut sums[row * value_dim..][..count * value_dim], value_dim);
            }
            row += count;
        }
    }

    for row in 0..rows {
        let out = &mut out.row_mut(row / group)[row % group * value_dim..][..value_dim];
        if totals[row] == 0.0 {
            out.fill(0.0);
            continue;
        }
        let total = s.splat(totals[row]);
        let sums = &sums[row * value_dim..][..value_dim];
        for (out, sum) in out.chunks_mut(S::LANES).zip(sums.chunks(S::LANES)) {
            s.store_part(out, out.len(), s.div(s.load_part(sum, sum.len()), total));
        }
    }
}

/// Rows of a tile: as many as the registers hold beside sixteen keys.
const fn most_rows<S: Simd>() -> usize {
    let fit = 24 * S::LANES / KEYS_ABREAST;
    if fit < S::TILE { fit } else { S::TILE }
}

/// Does a tile of scores fit the registers? Several panels abreast give sums enough to hide the latency of one.
const fn is_score_tile<S: Simd>(rows: usize, panels: usize) -> bool {
    let sums = if S::LANES == 8 { 8 } else { 16 };
    rows <= most_rows::<S>() && (panels == 1 || rows * panels * KEYS_ABREAST <= sums * S::LANES)
}

/// Does a tile of values fit the registers?
const fn is_value_tile<S: Simd>(rows: usize, _vectors: usize) -> bool {
    rows <= most_rows::<S>()
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

/// `$tile::<S, T, rows, side>` for the rows and the side that are asked for; other pairs do not occur.
macro_rules! pick {
    ($tile:ident, $s:ident, $T:ident, $rows:expr, $side:expr, $fits:expr, $args:tt; $($r:literal x $side_:literal),*) => {
        match ($rows, $side) {
            // SAFETY: as said where the macro is used.
            $(($r, $side_) if $fits($r, $side_) => unsafe { $tile::<S, $T, $r, $side_>$args },)*
            (rows, side) => unreachable!("tile of {rows} rows and {side} abreast"),
        }
    };
}

/// `scores = q · kᵀ` for sixteens of keys: rows of `KEYS`.
#[inline(always)]
fn score<S: Simd, T: Load>(s: S, q: &[f32], dim: usize, k: &[T], scores: &mut [f32]) {
    let (rows, panels) = (q.len() / dim, k.len() / (dim * KEYS_ABREAST));
    assert!(rows > 0 && (rows - 1) * KEYS + panels * KEYS_ABREAST <= scores.len());
    let mut panel = 0;
    while panel < panels {
        let fits = |&side: &usize| panel + side <= panels && is_score_tile::<S>(rows, side);
        let side = [8, 4, 2].into_iter().find(fits).unwrap_or(1);
        // SAFETY: k has `side` panels from here on, of `dim` rows each.
        let k = unsafe { k.as_ptr().add(panel * dim * KEYS_ABREAST) };
        // SAFETY: scores has `rows` rows of KEYS, the last of which has all panels.
        let to = unsafe { scores.as_mut_ptr().add(panel * KEYS_ABREAST) };
        // Besides these, a tile reads `rows` rows of `dim` numbers of q.
        pick!(score_tile, s, T, rows, side, is_score_tile::<S>, (s, q.as_ptr(), dim, k, to);
            1 x 8, 2 x 8, 1 x 4, 2 x 4, 3 x 4, 4 x 4,
            1 x 2, 2 x 2, 3 x 2, 4 x 2, 5 x 2, 6 x 2, 7 x 2, 8 x 2,
            1 x 1, 2 x 1, 3 x 1, 4 x 1, 5 x 1, 6 x 1, 7 x 1, 8 x 1, 9 x 1, 10 x 1, 11 x 1, 12 x 1);
        panel += side;
    }
}

/// # Safety
/// `q` has `ROWS` rows of `dim` numbers, `k` has `PANELS` panels, `to` has `ROWS` rows of `KEYS` numbers, of which it
/// needs the panels' columns.
#[inline(always)]
unsafe fn score_tile<S: Simd, T: Load, const ROWS: usize, const PANELS: usize>(
    s: S,
    q: *const f32,
    dim: usize,
    k: *const T,
    to: *mut f32,
) {
    // A panel is at most four vectors.
    let mut sums = [[[s.splat(0.0); 4]; PANELS]; ROWS];
    // SAFETY: the caller's.
    unsafe {
        for d in 0..dim {
            let column = |panel: usize, v: usize| k.add((panel * dim + d) * KEYS_ABREAST + v * S::LANES);
            if ROWS <= PANELS * 2 {
                let mut x = [s.splat(0.0); ROWS];
                for row in 0..ROWS {
                    x[row] = s.splat(*q.add(row * dim + d));
                }
                for panel in 0..PANELS {
                    for v in 0..KEYS_ABREAST / S::LANES {
                        let k = T::load(s, column(panel, v));
                        for row in 0..ROWS {
                            sums[row][panel][v] = s.fma(x[row], k, sums[row][panel][v]);
                        }
                    }
                }
            } else {
                let mut keys = [[s.splat(0.0); 4]; PANELS];
                for panel in 0..PANELS {
                    for v in 0..KEYS_ABREAST / S::LANES {
                        keys[panel][v] = T::load(s, column(panel, v));
                    }
                }
                for row in 0..ROWS {
                    let x = s.splat(*q.add(row * dim + d));
                    for panel in 0..PANELS {
                        for v in 0..KEYS_ABREAST / S::LANES {
                            sums[row][panel][v] = s.fma(x, keys[panel][v], sums[row][panel][v]);
                        }
                    }
                }
            }
        }
        for row in 0..ROWS {
            for panel in 0..PANELS {
                for v in 0..KEYS_ABREAST / S::LANES {
                    s.store(to.add(row * KEYS + panel * KEYS_ABREAST + v * S::LANES), sums[row][panel][v]);
                }
            }
        }
    }
}

/// `sums += scores · v` for the keys that `v` has: rows of `dim`.
#[inline(always)]
fn add_values<S: Simd, T: Load>(s: S, scores: &[f32], rows: usize, v: &[T], sums: &mut [f32], dim: usize) {
    if dim == 0 {
        return;
    }
    let keys = v.len() / dim;
    assert!(rows > 0 && (rows - 1) * KEYS + keys <= scores.len() && rows * dim <= sums.len());
    let most = match rows {
        1 => 8,
        2 => 4,
        3 => 3,
        _ => 2,
    };
    let mut at = 0;
    while at < dim {
        let left = dim - at;
        let side = [most, 2, 1].into_iter().find(|side| side * S::LANES <= left);
        // SAFETY: v has `keys` rows of `dim` numbers, of which `left` are right of this.
        let v = unsafe { v.as_ptr().add(at) };
        // SAFETY: sums has `rows` rows of `dim`.
        let sums = unsafe { sums.as_mut_ptr().add(at) };
        let Some(side) = side else {
            // SAFETY: as above, for the last `left` columns.
            return unsafe { add_columns(s, scores.as_ptr(), rows, keys, v, sums, dim, left) };
        };
        pick!(value_tile, s, T, rows, side, is_value_tile::<S>, (s, scores.as_ptr(), keys, v, sums, dim);
            1 x 8, 2 x 4, 3 x 3,
            1 x 2, 2 x 2, 3 x 2, 4 x 2, 5 x 2, 6 x 2, 7 x 2, 8 x 2, 9 x 2, 10 x 2, 11 x 2, 12 x 2,
            1 x 1, 2 x 1, 3 x 1, 4 x 1, 5 x 1, 6 x 1, 7 x 1, 8 x 1, 9 x 1, 10 x 1, 11 x 1, 12 x 1);
        at += side * S::LANES;
    }
}

/// # Safety
/// `scores` has `ROWS` rows of `KEYS` numbers, of which it needs `keys`; `v` has `keys` rows, `sums` has `ROWS` rows, both
/// `dim` numbers apart, of which it needs `SIDE` vectors.
#[inline(always)]
unsafe fn value_tile<S: Simd, T: Load, const ROWS: usize, const SIDE: usize>(
    s: S,
    scores: *const f32,
    keys: usize,
    v: *const T,
    to: *mut f32,
    dim: usize,
) {
    let mut sums = [[s.splat(0.0); SIDE]; ROWS];
    // SAFETY: the caller's.
    unsafe {
        for row in 0..ROWS {
            for i in 0..SIDE {
                sums[row][i] = s.load(to.add(row * dim + i * S::LANES));
            }
        }
        for key in 0..keys {
            if ROWS <= SIDE {
                let mut weight = [s.splat(0.0); ROWS];
                for row in 0..ROWS {
                    weight[row] = s.splat(*scores.add(row * KEYS + key));
                }
                for i in 0..SIDE {
                    let v = T::load(s, v.add(key * dim + i * S::LANES));
                    for row in 0..ROWS {
                        sums[row][i] = s.fma(weight[row], v, sums[row][i]);
                    }
                }
            } else {
                let mut values = [s.splat(0.0); SIDE];
                for i in 0..SIDE {
                    values[i] = T::load(s, v.add(key * dim + i * S::LANES));
                }
                for row in 0..ROWS {
                    let weight = s.splat(*scores.add(row * KEYS + key));
                    for i in 0..SIDE {
                        sums[row][i] = s.fma(weight, values[i], sums[row][i]);
                    }
                }
            }
        }
        for row in 0..ROWS {
            for i in 0..SIDE {
                s.store(to.add(row * dim + i * S::LANES), sums[row][i]);
            }
        }
    }
}

/// The last columns, fewer than a vector has.
///
/// # Safety
/// As [`value_tile`], of `rows` rows and `left` columns.
#[allow(clippy::too_many_arguments)] // as many as its neighbour has
#[inline(always)]
unsafe fn add_columns<S: Simd, T: Load>(
    s: S,
    scores: *const f32,
    rows: usize,
    keys: usize,
    v: *const T,
    to: *mut f32,
    dim: usize,
    left: usize,
) {
    for row in 0..rows {
        // SAFETY: the caller's.
        let sums = unsafe { std::slice::from_raw_parts_mut(to.add(row * dim), left) };
        let mut sum = s.load_part(sums, left);
        for key in 0..keys {
            // SAFETY: the caller's; `part` has a whole vector.
            let (weight, v) = unsafe {
                let mut part = [std::mem::zeroed::<T>(); 16];
                v.add(key * dim).copy_to_nonoverlapping(part.as_mut_ptr(), left);
                (s.splat(*scores.add(row * KEYS + key)), T::load(s, part.as_ptr()))
            };
            sum = s.fma(weight, v, sum);
        }
        s.store_part(sums, left, sum);
    }
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
