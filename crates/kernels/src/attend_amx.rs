//! How is attention computed on AMX's matrix units? As in [`attend`](crate::attend), in blocks of keys with an online softmax, but
//! both products are of bf16 pieces: keys and values are packed as panels of weights are, queries and the powers of their scores
//! as rows are, and the products are those of [`amx`](crate::amx).

use std::arch::x86_64::*;
use std::f32::consts::LOG2_E;

use crate::activations::exp2_below_one;
use crate::amx::{Product, Shape, Task, configure, release, rest, round, split};
use crate::attend::{adjust, queries_that_meet, visible};
use crate::avx512::Avx512;
use crate::simd::Simd;
use crate::tiles::{DEPTH, PAIR, PANEL, ROWS, TILE};
use crate::unpack::transpose;
use crate::{Attend, AttendScratch, Rows, Window};

/// Keys in a block.
const KEYS: usize = 128;
/// Numbers in a block of sums: a pair of rows of tiles by a panel.
const SUMS: usize = PAIR * PANEL;

/// As [`Kernels::attend`](crate::Kernels::attend) of so many pieces, 1 or 2, which checks the shapes.
///
/// # Safety
/// Tiles are [`available`](crate::amx::available), and the machine has AVX-512 F, BW, VL and DQ.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma,f16c")]
pub(crate) unsafe fn attend(task: &Attend<'_>, pieces: usize, scratch: &mut AttendScratch, mut out: Window<'_>) {
    // SAFETY: the features that make this function are those that `new` asks for.
    let s = unsafe { Avx512::new() };
    let (queries, keys, dim, value_dim) = (task.q.rows(), task.k.rows(), task.q.cols(), task.v.cols());
    let (steps, value_panels, pairs) = (dim.div_ceil(DEPTH), value_dim.div_ceil(PANEL), queries.div_ceil(PAIR));
    let panel = 2 * pieces * TILE; // a step of a panel, and of a pair of rows
    let mut memory = scratch.lines(
        (pairs + KEYS / PANEL) * steps * panel / 2 // queries and keys, two numbers in the place of a float
            + (KEYS / DEPTH) * (value_panels + 1) * panel / 2 // values, and the weights of a pair
            + (KEYS / PANEL + pairs * value_panels) * SUMS
            + 2 * pairs * PAIR,
    );
    let mut floats = |len: usize| memory.split_off_mut(..len).expect("the sum of all parts");
    let q = halves(floats(pairs * steps * panel / 2));
    let k = halves(floats(KEYS / PANEL * steps * panel / 2));
    let v = halves(floats(KEYS / DEPTH * value_panels * panel / 2));
    let weights = halves(floats(KEYS / DEPTH * panel / 2));
    let scores = floats(KEYS / PANEL * SUMS);
    let sums = floats(pairs * value_panels * SUMS);
    let (largest, totals) = (floats(pairs * PAIR), floats(pairs * PAIR));
    largest.fill(f32::NEG_INFINITY);
    totals.fill(0.0);

    for (pair, tiles) in q.chunks_exact_mut((steps * panel).max(1)).enumerate() {
        let rows = task.q.slice_rows(pair * PAIR..queries.min((pair + 1) * PAIR));
        // SAFETY: this function has those features.
        unsafe { split(rows, 0..steps, pieces, tiles) };
    }
    let plain = task.softcap.is_none() && task.bias.is_none();
    let factor = if plain { task.scale * LOG2_E } else { task.scale };
    let products = [false, true].map(|tall| Product::new(tall, pieces, pieces));
    // SAFETY: the machine has tiles.
    unsafe { configure(&[Shape::FULL; 8]) };
    for start in (0..keys).step_by(KEYS) {
        let block = start..keys.min(start + KEYS);
        let met = queries_that_meet(task, &block);
        if met.is_empty() {
            continue;
        }
        let (k_rows, v_rows) = (task.k.slice_rows(block.clone()), task.v.slice_rows(block.clone()));
        pack_keys(s, k_rows, factor, pieces, k);
        pack_values(v_rows, pieces, v);
        for pair in met.start / PAIR..met.end.div_ceil(PAIR) {
            let rows = pair * PAIR..queries.min((pair + 1) * PAIR);
            let product = products[usize::from(rows.len() > ROWS)];
            // What one of the rows sees; to the others it adds zeros.
            let seen = rows
                .clone()
                .map(|query| visible(task, query, &block))
                .filter(|seen| !seen.is_empty())
                .reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
            let Some(seen) = seen else { continue };
            let panels = seen.start / PANEL..seen.end.div_ceil(PANEL);
            for panel_of_keys in panels.clone() {
                let keys = &k[panel_of_keys * steps * panel..][..steps * panel];
                let scores = &mut scores[panel_of_keys * SUMS..][..SUMS];
                match steps {
                    0 => scores.fill(0.0),
                    // SAFETY: tiles are configured; a pair and a panel have `steps` steps, the scores are a block of sums.
                    _ => unsafe {
                        let task = Task {
                            a: q[pair * steps * panel..].as_ptr(),
                            b: keys.as_ptr(),
                            c: scores.as_mut_ptr(),
                            steps,
                            begin: true,
                            next: keys.as_ptr().wrapping_add(keys.len()),
                        };
                        product.run(task, |_| ());
                    },
                }
            }
            // Both ends of what a row sees grow with it: what the first and the last see, all do.
            let of_all = visible(task, rows.end - 1, &block).start..visible(task, rows.start, &block).end;
            for panel in panels.clone() {
                let keys = panel * PANEL..(panel + 1) * PANEL;
                if plain && of_all.start <= keys.start && keys.end <= of_all.end {
                    continue;
                }
                for query in rows.clone() {
                    let visible = visible(task, query, &block);
                    let scores = &mut scores[panel * SUMS + (query - rows.start) * PANEL..][..PANEL];
                    let place = |key: usize| key.clamp(keys.start, keys.end) - keys.start;
                    let (first, end) = (place(visible.start), place(visible.end).max(place(visible.start)));
                    if !plain && first < end {
                        adjust(s, task, query, block.start + keys.start + first, &mut scores[first..end]);
                    }
                    scores[..first].fill(f32::NEG_INFINITY);
                    scores[end..].fill(f32::NEG_INFINITY);
                }
            }
            let fresh = totals[rows.start] == 0.0 && rows.clone().all(|query| totals[query] == 0.0);
            for half in 0..rows.len().div_ceil(ROWS) {
                let at = pair * PAIR + half * ROWS;
                let first = panels.start * SUMS + half * ROWS * PANEL;
                let shrinks = soften(
                    s,
                    &scores[first..(panels.end - 1) * SUMS + SUMS],
                    pieces,
                    &mut weights[(panels.start * 2 + half) * pieces * TILE..],
                    &mut largest[at..at + ROWS],
                    &mut totals[at..at + ROWS],
                );
                if !fresh {
                    for (row, shrink) in shrinks.into_iter().enumerate().filter(|(_, shrink)| *shrink != 1.0) {
                        for sums in sums[pair * value_panels * SUMS..][..value_panels * SUMS].chunks_exact_mut(SUMS) {
                            crate::rows::scale(s, &mut sums[(half * ROWS + row) * PANEL..][..PANEL], shrink);
                        }
                    }
                }
            }
            for value_panel in 0..value_panels {
                let v = &v[(value_panel * KEYS / DEPTH + panels.start) * panel..];
                let sums = &mut sums[(pair * value_panels + value_panel) * SUMS..][..SUMS];
                // SAFETY: tiles are configured; weights and values have the steps of all panels of keys.
                unsafe {
                    let task = Task {
                        a: weights[panels.start * panel..].as_ptr(),
                        b: v.as_ptr(),
                        c: sums.as_mut_ptr(),
                        steps: panels.len(),
                        begin: fresh,
                        next: v.as_ptr().wrapping_add(panels.len() * panel),
                    };
                    product.run(task, |_| ());
                }
            }
        }
    }
    // SAFETY: the machine has tiles.
    unsafe { release() };

    for query in 0..queries {
        let (row, total) = (out.row_mut(query), totals[query]);
        if total == 0.0 {
            row.fill(0.0);
            continue;
        }
        let inverse = s.splat(1.0 / total);
        let sums = sums[query / PAIR * value_panels * SUMS..].chunks_exact(SUMS);
        for (out, sums) in row.chunks_mut(PANEL).zip(sums) {
            let sums = &sums[query % PAIR * PANEL..][..out.len()];
            for (out, sums) in out.chunks_mut(Avx512::LANES).zip(sums.chunks(Avx512::LANES)) {
                s.store_part(out, out.len(), s.mul(s.load_part(sums, sums.len()), inverse));
            }
        }
    }
}

/// Floats' memory as twice as many numbers of 16 bits.
fn halves(memory: &mut [f32]) -> &mut [u16] {
    // SAFETY: any bits are a u16, of which two fit a float.
    unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), 2 * memory.len()) }
}

/// The softmax of 16 rows of scores, which lie in blocks of sums a panel of keys each: their weights `2^(score − largest)` as the
/// steps of a pair of rows. What the sums before must be multiplied by.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma,f16c")]
#[inline]
fn soften(
    s: Avx512,
    scores: &[f32],
    pieces: usize,
    weights: &mut [u16],
    largest: &mut [f32],
    totals: &mut [f32],
) -> [f32; ROWS] {
    let panels = scores.len().div_ceil(SUMS);
    let row_of = |panel: usize, row: usize| {
        let scores = &scores[panel * SUMS + row * PANEL..][..PANEL];
        [s.load_part(scores, 16), s.load_part(&scores[16..], 16)]
    };
    let mut parts = [s.splat(f32::NEG_INFINITY); ROWS];
    for (row, most) in parts.iter_mut().enumerate() {
        for panel in 0..panels {
            let [a, b] = row_of(panel, row);
            *most = s.max(*most, s.max(a, b));
        }
    }
    let before = s.load_part(largest, ROWS);
    let most = s.max(before, reduce(parts, |a, b| s.max(a, b)));
    // Where every score is −∞, 2 to the power of −∞ − 0 makes the weights 0.
    let none = s.splat(f32::NEG_INFINITY);
    let origin = s.select_lt(none, most, most, s.splat(0.0));
    let shrink = exp2_below_one(s, s.sub(before, origin));
    s.store_part(largest, ROWS, most);
    let (mut origins, mut shrinks) = ([0.0; ROWS], [0.0; ROWS]);
    s.store_part(&mut origins, ROWS, origin);
    s.store_part(&mut shrinks, ROWS, shrink);

    let mut parts = [s.splat(0.0); ROWS];
    for (row, sum) in parts.iter_mut().enumerate() {
        let origin = s.splat(origins[row]);
        for panel in 0..panels {
            let [a, b] = row_of(panel, row);
            let (a, b) = (exp2_below_one(s, s.sub(a, origin)), exp2_below_one(s, s.sub(b, origin)));
            *sum = s.add(*sum, s.add(a, b));
            store_pieces(a, b, pieces, &mut weights[panel * 2 * pieces * TILE + row * DEPTH..]);
        }
    }
    s.store_part(totals, ROWS, s.fma(s.load_part(totals, ROWS), shrink, reduce(parts, |a, b| s.add(a, b))));
    shrinks
}

/// 32 numbers as one bf16 piece, or as two, a tile apart.
#[target_feature(enable = "avx512f,avx512bf16")]
#[inline]
fn store_pieces(a: __m512, b: __m512, pieces: usize, to: &mut [u16]) {
    let hi = round(a, b);
    store(&mut to[..DEPTH], hi);
    if pieces == 2 {
        store(&mut to[TILE..][..DEPTH], rest(a, b, hi));
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store(to: &mut [u16], v: __m512i) {
    assert!(to.len() >= DEPTH);
    // SAFETY: 32 numbers of 16 bits are 64 bytes.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), v) }
}

/// Lane `i` of the result is the lanes of vector `i`, reduced in an order that is the same for all.
#[target_feature(enable = "avx512f")]
#[inline]
fn reduce(v: [__m512; 16], op: impl Fn(__m512, __m512) -> __m512) -> __m512 {
    let (mut pairs, mut fours) = ([_mm512_setzero_ps(); 8], [_mm512_setzero_ps(); 4]);
    for (i, pair) in pairs.iter_mut().enumerate() {
        let (a, b) = (v[2 * i], v[2 * i + 1]);
        *pair = op(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    }
    for (i, four) in fours.iter_mut().enumerate() {
        let (a, b) = (_mm512_castps_pd(pairs[2 * i]), _mm512_castps_pd(pairs[2 * i + 1]));
        *four = op(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    let halves = |a, b| op(_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
    halves(halves(fours[0], fours[1]), halves(fours[2], fours[3]))
}

/// Keys `[keys, dim]`, times `factor`, as panels of 32 keys `[step of 32 dimensions][piece][half of the keys][dimension / 2][key][2]`,
/// padded with zeros.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma,f16c")]
#[inline]
fn pack_keys(s: Avx512, k: Rows<'_>, factor: f32, pieces: usize, to: &mut [u16]) {
    let (steps, factor) = (k.cols().div_ceil(DEPTH), s.splat(factor));
    for first in (0..k.rows().next_multiple_of(PANEL)).step_by(ROWS) {
        for step in 0..steps {
            let mut tiles = [[_mm512_setzero_si512(); ROWS]; 2];
            for (row, key) in (first..k.rows().min(first + ROWS)).enumerate() {
                let [a, b] = two(s, &k.row(key)[step * DEPTH..]);
                let (a, b) = (s.mul(a, factor), s.mul(b, factor));
                let hi = round(a, b);
                tiles[0][row] = hi;
                if pieces == 2 {
                    tiles[1][row] = rest(a, b, hi);
                }
            }
            let panel = (first / PANEL * steps + step) * 2 * pieces;
            for (piece, tile) in tiles.into_iter().enumerate().take(pieces) {
                let to = &mut to[(panel + 2 * piece + first / ROWS % 2) * TILE..][..TILE];
                for (to, row) in to.chunks_exact_mut(DEPTH).zip(transpose(tile)) {
                    store(to, row);
                }
            }
        }
    }
}

/// Values `[keys, dim]` as panels of 32 dimensions `[4 steps of 32 keys][piece][half of the dimensions][key / 2][dimension][2]`, padded
/// with zeros.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma,f16c")]
#[inline]
fn pack_values(v: Rows<'_>, pieces: usize, to: &mut [u16]) {
    // SAFETY: the features that make this function are those that `new` asks for.
    let s = unsafe { Avx512::new() };
    // From [number][key] to [key][number].
    const TURN: [u16; 32] = {
        let (mut turn, mut i) = ([0; 32], 0);
        while i < 32 {
            turn[i] = (i / 2 + i % 2 * 16) as u16;
            i += 1;
        }
        turn
    };
    // SAFETY: it has 64 bytes.
    let turn = unsafe { _mm512_loadu_si512(TURN.as_ptr().cast()) };
    for panel in 0..v.cols().div_ceil(PANEL) {
        for key in (0..v.rows().next_multiple_of(DEPTH)).step_by(2) {
            let row = |key: usize| match key < v.rows() {
                true => two(s, &v.row(key)[panel * PANEL..]),
                false => [s.splat(0.0); 2],
            };
            let (a, b) = (row(key), row(key + 1));
            let place = (panel * KEYS / DEPTH + key / DEPTH) * 2 * pieces;
            for half in 0..2 {
                let hi = round(a[half], b[half]);
                let at = |piece: usize| (place + 2 * piece + half) * TILE + key % DEPTH / 2 * DEPTH;
                store(&mut to[at(0)..], _mm512_permutexvar_epi16(turn, hi));
                if pieces == 2 {
                    store(&mut to[at(1)..], _mm512_permutexvar_epi16(turn, rest(a[half], b[half], hi)));
                }
            }
        }
    }
}

/// The first 32 numbers, or what there is and zeros.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
#[inline]
fn two(s: Avx512, x: &[f32]) -> [__m512; 2] {
    let n = x.len().min(DEPTH);
    [s.load_part(x, n.min(16)), s.load_part(&x[n.min(16)..], n - n.min(16))]
}
