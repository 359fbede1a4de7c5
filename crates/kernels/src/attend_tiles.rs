//! How do the scores of some queries with keys in pages, and the weighted sums of values, come out of registers?
//!
//! Keys lie sixteen abreast, so a vector of them gives scores side by side, each a chain over the dimensions; values lie row
//! by row, so a vector of dimensions is a chain over the keys. The rows of a tile are queries, or the heads of a group, or
//! both: each vector is widened once for all of them.

// Indices say which register is which.
#![allow(clippy::needless_range_loop)]

use crate::matmul::Load;
use crate::pages::{KEYS, KEYS_ABREAST};
use crate::simd::Simd;

/// Bytes ahead of what is read that are asked for: the hardware's own streams end at a page.
const AHEAD: usize = 4096;

/// Rows of a tile: as many as the registers hold beside sixteen keys.
pub(crate) const fn most_rows<S: Simd>() -> usize {
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
pub(crate) fn score<S: Simd, T: Load>(s: S, q: &[f32], dim: usize, k: &[T], scores: &mut [f32]) {
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
            for panel in 0..PANELS {
                s.prefetch(column(panel, 0).wrapping_byte_add(AHEAD));
            }
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

/// `sums = scores · v`, or if they are not `fresh` `sums += scores · v`, for the keys that `v` has: rows of `dim`.
#[inline(always)]
pub(crate) fn add_values<S: Simd, T: Load>(
    s: S,
    scores: &[f32],
    rows: usize,
    v: &[T],
    sums: &mut [f32],
    dim: usize,
    fresh: bool,
) {
    if dim == 0 {
        return;
    }
    let keys = v.len() / dim;
    assert!(rows > 0 && (rows - 1) * KEYS + keys <= scores.len() && rows * dim <= sums.len());
    let most = match rows {
        1 => 8,
        2 => 4,
        3 | 4 => 3,
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
            return unsafe { add_columns(s, scores.as_ptr(), rows, keys, v, sums, dim, left, fresh) };
        };
        pick!(value_tile, s, T, rows, side, is_value_tile::<S>, (s, scores.as_ptr(), keys, v, sums, dim, fresh);
            1 x 8, 2 x 4, 3 x 3, 4 x 3,
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
    fresh: bool,
) {
    let mut sums = [[s.splat(0.0); SIDE]; ROWS];
    // SAFETY: the caller's.
    unsafe {
        for row in 0..if fresh { 0 } else { ROWS } {
            for i in 0..SIDE {
                sums[row][i] = s.load(to.add(row * dim + i * S::LANES));
            }
        }
        for key in 0..keys {
            s.prefetch(v.add(key * dim).wrapping_byte_add(AHEAD));
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
    fresh: bool,
) {
    for row in 0..rows {
        // SAFETY: the caller's.
        let sums = unsafe { std::slice::from_raw_parts_mut(to.add(row * dim), left) };
        let mut sum = if fresh { s.splat(0.0) } else { s.load_part(sums, left) };
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
