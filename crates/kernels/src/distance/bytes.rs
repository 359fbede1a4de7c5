//! How are distances of 8-bit integers summed up? Exactly, in 32 bits for some ten thousand numbers, in 64 beyond.

use super::scalar::of_bytes as exact;
use super::{COSINE, DOT, EUCLIDEAN, SQUARED, cosine, cosine_f64};

/// Numbers whose squared differences, up to 255², fit into 31 bits together.
const MOST: usize = 1 << 15;
/// Rows of a matrix that are taken together, so that the query is read and widened once for all.
pub(super) const ROWS: usize = 4;

/// An instruction set's way with 8-bit integers. A value of the type is the proof that the machine has it.
pub(super) trait Bytes: Copy {
    /// Numbers of a step.
    type X: Copy;
    /// Lanes of 32-bit sums.
    type Sum: Copy;
    /// Numbers of a step.
    const STEP: usize;

    fn zero(self) -> Self::Sum;
    /// # Safety
    /// `STEP` numbers can be read at `p`.
    unsafe fn load(self, p: *const i8) -> Self::X;
    /// The last `n` of the numbers at `p`, the others 0.
    ///
    /// # Safety
    /// As [`Bytes::load`], and 1 ≤ n ≤ STEP.
    unsafe fn load_last(self, p: *const i8, n: usize) -> Self::X;
    /// `sum + x · y`, where every lane adds its numbers.
    fn product(self, sum: Self::Sum, x: Self::X, y: Self::X) -> Self::Sum;
    /// `sum + (x − y)²`.
    fn square(self, sum: Self::Sum, x: Self::X, y: Self::X) -> Self::Sum;
    /// Lane by lane.
    fn add(self, a: Self::Sum, b: Self::Sum) -> Self::Sum;
    /// All lanes together.
    fn total(self, sum: Self::Sum) -> i32;
    /// All lanes of each together.
    #[inline(always)]
    fn totals(self, sums: [Self::Sum; ROWS]) -> [i32; ROWS] {
        sums.map(|sum| self.total(sum))
    }
}

#[inline(always)]
pub(super) fn one<B: Bytes, const M: usize>(s: B, a: &[i8], b: &[i8]) -> f32 {
    if a.len() < B::STEP {
        return exact::<M>(a, b);
    }
    match M {
        COSINE => {
            let [product, a, b] =
                sums(s, a, b, |[ab, aa, bb], x, y| [s.product(ab, x, y), s.product(aa, x, x), s.product(bb, y, y)]);
            finish(product, a, b)
        }
        DOT => sums(s, a, b, |[ab], x, y| [s.product(ab, x, y)])[0] as f32,
        SQUARED => squares(s, a, b) as f32,
        EUCLIDEAN => (squares(s, a, b) as f64).sqrt() as f32,
        _ => a.iter().zip(b).filter(|(a, b)| a != b).count() as f32,
    }
}

#[inline(always)]
pub(super) fn many<B: Bytes, const M: usize>(s: B, query: &[i8], rows: &[i8], out: &mut [f32]) {
    let width = query.len();
    if width < B::STEP || width > MOST || M != COSINE && M != DOT {
        return rows.chunks_exact(width).zip(out).for_each(|(row, out)| *out = one::<B, M>(s, query, row));
    }
    let [query_square] = sums(s, query, query, |[ab], x, y| [s.product(ab, x, y)]);
    if M == COSINE {
        for (row, out) in rows.chunks_exact(width).zip(out) {
            let [product, square] = sums(s, query, row, |[ab, bb], x, y| [s.product(ab, x, y), s.product(bb, y, y)]);
            *out = finish(product, query_square, square);
        }
        return;
    }
    let (groups, rest) = out.as_chunks_mut::<ROWS>();
    let (grouped, single) = rows.split_at(groups.len() * ROWS * width);
    for (rows, out) in grouped.chunks_exact(ROWS * width).zip(groups) {
        *out = dots(s, query, rows).map(|sum| sum as f32);
    }
    single.chunks_exact(width).zip(rest).for_each(|(row, out)| *out = one::<B, M>(s, query, row));
}

/// The dot products of a query with `ROWS` rows, of [`MOST`] numbers at most.
#[inline(always)]
fn dots<B: Bytes>(s: B, query: &[i8], rows: &[i8]) -> [i32; ROWS] {
    let len = query.len();
    assert!(len >= B::STEP && rows.len() == ROWS * len);
    let (q, r) = (query.as_ptr(), rows.as_ptr());
    let mut sums = [s.zero(); ROWS];
    let mut at = 0;
    while at + B::STEP <= len {
        // SAFETY: a step from `at` on is there, in the query and in each row.
        unsafe {
            let x = s.load(q.add(at));
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = s.product(*sum, x, s.load(r.add(i * len + at)));
            }
        }
        at += B::STEP;
    }
    if at < len {
        // SAFETY: len ≥ STEP, so the last step is there, in the query and in each row; 1 ≤ len − at < STEP.
        unsafe {
            let (last, n) = (len - B::STEP, len - at);
            let x = s.load_last(q.add(last), n);
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = s.product(*sum, x, s.load(r.add(i * len + last)));
            }
        }
    }
    s.totals(sums)
}

#[inline(always)]
fn squares<B: Bytes>(s: B, a: &[i8], b: &[i8]) -> i64 {
    sums(s, a, b, |[sum], x, y| [s.square(sum, x, y)])[0]
}

#[inline(always)]
fn finish(product: i64, a: i64, b: i64) -> f32 {
    cosine(product as f32, a as f32, b as f32).unwrap_or_else(|| cosine_f64(product as f64, a as f64, b as f64))
}

/// `C` sums over all places of two vectors of the same length, a step or more.
#[inline(always)]
fn sums<B: Bytes, const C: usize>(
    s: B,
    a: &[i8],
    b: &[i8],
    add: impl Fn([B::Sum; C], B::X, B::X) -> [B::Sum; C] + Copy,
) -> [i64; C] {
    let len = a.len().min(b.len());
    if len <= MOST {
        return short_sums(s, a, b, add).map(i64::from);
    }
    let (mut a, mut b, mut totals) = (a, b, [0; C]);
    while !a.is_empty() {
        // What is left after a part is a step or more.
        let part = if a.len() <= MOST { a.len() } else { MOST - B::STEP };
        let sums = short_sums(s, &a[..part], &b[..part], add);
        totals.iter_mut().zip(sums).for_each(|(total, sum)| *total += i64::from(sum));
        (a, b) = (&a[part..], &b[part..]);
    }
    totals
}

/// The same of at most [`MOST`] numbers.
#[inline(always)]
fn short_sums<B: Bytes, const C: usize>(
    s: B,
    a: &[i8],
    b: &[i8],
    add: impl Fn([B::Sum; C], B::X, B::X) -> [B::Sum; C],
) -> [i32; C] {
    let len = a.len().min(b.len());
    assert!(len >= B::STEP);
    let (mut even, mut odd) = ([s.zero(); C], [s.zero(); C]);
    let mut at = 0;
    // SAFETY: as its callers promise.
    let load = |at: usize| unsafe { (s.load(a.as_ptr().add(at)), s.load(b.as_ptr().add(at))) };
    while at + 2 * B::STEP <= len {
        let (x, y) = load(at); // two steps from `at` on are there
        even = add(even, x, y);
        let (x, y) = load(at + B::STEP);
        odd = add(odd, x, y);
        at += 2 * B::STEP;
    }
    if at + B::STEP <= len {
        let (x, y) = load(at); // one is there
        even = add(even, x, y);
        at += B::STEP;
    }
    if at < len {
        let (last, n) = (len - B::STEP, len - at);
        // SAFETY: len ≥ STEP, so the last step is there; 1 ≤ n < STEP.
        let (x, y) = unsafe { (s.load_last(a.as_ptr().add(last), n), s.load_last(b.as_ptr().add(last), n)) };
        odd = add(odd, x, y);
    }
    std::array::from_fn(|i| s.total(s.add(even[i], odd[i])))
}
