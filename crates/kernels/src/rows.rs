//! How is a row added up, normalised, scaled, activated or rotated in vectors? Each kernel once, for all instruction sets.

use crate::activations::{Unary, activations, exp_below_one};
use crate::simd::Simd;
use crate::{Activation, RopeLayout};

/// Sums that run side by side, to hide the latency of the addition.
const SIDE: usize = 4;

/// `$body` for each vector of a row of `$len` numbers: `$at` is where it begins, `$n` how many numbers it has. The
/// whole ones come apart from the last, so that the compiler knows their length.
macro_rules! vectors {
    ($lanes:expr, $len:expr, |$at:ident, $n:ident| $body:block) => {
        let mut $at = 0;
        while $at + $lanes <= $len {
            let $n = $lanes;
            $body
            $at += $lanes;
        }
        if $at < $len {
            let $n = $len - $at;
            $body
        }
    };
}

/// `x = function(x)`, number by number; a tail goes through a whole vector too, so its bits are the same anywhere.
#[inline(always)]
fn map<S: Simd>(s: S, x: &mut [f32], function: impl Unary) {
    let len = x.len();
    vectors!(S::LANES, len, |at, n| {
        let v = function.apply(s, s.load_part(&x[at..], n));
        s.store_part(&mut x[at..], n, v);
    });
}

/// A function of two numbers, on vectors.
trait Binary: Copy {
    fn apply<S: Simd>(self, s: S, y: S::V, x: S::V) -> S::V;
}

/// `y = function(y, x)`, number by number.
#[inline(always)]
fn zip<S: Simd>(s: S, y: &mut [f32], x: &[f32], function: impl Binary) {
    let len = y.len();
    let x = &x[..len];
    vectors!(S::LANES, len, |at, n| {
        let v = function.apply(s, s.load_part(&y[at..], n), s.load_part(&x[at..], n));
        s.store_part(&mut y[at..], n, v);
    });
}

macro_rules! binary {
    ($($name:ident { $($field:ident: $type:ty)? } ($self:ident, $s:ident, $y:ident, $x:ident) = $body:expr;)*) => {
        $(#[derive(Clone, Copy)]
        struct $name { $($field: $type)? }
        impl Binary for $name {
            #[inline(always)]
            fn apply<S: Simd>($self, $s: S, $y: S::V, $x: S::V) -> S::V {
                $body
            }
        })*
    };
}

binary! {
    Add {} (self, s, y, x) = s.add(y, x);
    Mul {} (self, s, y, x) = s.mul(y, x);
    Max {} (self, s, y, x) = s.max(y, x);
    Axpy { a: f32 } (self, s, y, x) = s.fma(s.splat(self.a), x, y);
}

#[derive(Clone, Copy)]
struct Gate<U>(U);
impl<U: Unary> Binary for Gate<U> {
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, gate: S::V, up: S::V) -> S::V {
        s.mul(self.0.apply(s, gate), up)
    }
}

#[derive(Clone, Copy)]
struct Scale(f32);
impl Unary for Scale {
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, x: S::V) -> S::V {
        s.mul(x, s.splat(self.0))
    }
}

#[inline(always)]
pub(crate) fn activation<S: Simd>(s: S, kind: Activation, x: &mut [f32]) {
    activations!(kind, function => map(s, x, function));
}

#[inline(always)]
pub(crate) fn glu<S: Simd>(s: S, kind: Activation, gate: &mut [f32], up: &[f32]) {
    activations!(kind, function => zip(s, gate, up, Gate(function)));
}

#[inline(always)]
pub(crate) fn add<S: Simd>(s: S, y: &mut [f32], x: &[f32]) {
    zip(s, y, x, Add {});
}

#[inline(always)]
pub(crate) fn mul<S: Simd>(s: S, y: &mut [f32], x: &[f32]) {
    zip(s, y, x, Mul {});
}

#[inline(always)]
pub(crate) fn max<S: Simd>(s: S, y: &mut [f32], x: &[f32]) {
    zip(s, y, x, Max {});
}

#[inline(always)]
pub(crate) fn axpy<S: Simd>(s: S, y: &mut [f32], a: f32, x: &[f32]) {
    zip(s, y, x, Axpy { a });
}

#[inline(always)]
pub(crate) fn scale<S: Simd>(s: S, x: &mut [f32], factor: f32) {
    map(s, x, Scale(factor));
}

/// A sum over the numbers of one or two rows, `SIDE` vectors at a time.
trait Sum: Copy {
    fn step<S: Simd>(self, s: S, sum: S::V, x: S::V, y: S::V) -> S::V;
}

#[derive(Clone, Copy)]
struct Plain;
impl Sum for Plain {
    #[inline(always)]
    fn step<S: Simd>(self, s: S, sum: S::V, x: S::V, _: S::V) -> S::V {
        s.add(sum, x)
    }
}

#[derive(Clone, Copy)]
struct Products;
impl Sum for Products {
    #[inline(always)]
    fn step<S: Simd>(self, s: S, sum: S::V, x: S::V, y: S::V) -> S::V {
        s.fma(x, y, sum)
    }
}

#[inline(always)]
fn sum<S: Simd>(s: S, x: &[f32], y: &[f32], of: impl Sum) -> f32 {
    let mut sums = [s.splat(0.0); SIDE];
    let (mut xs, mut ys) = (x.chunks_exact(SIDE * S::LANES), y.chunks_exact(SIDE * S::LANES));
    for (x, y) in (&mut xs).zip(&mut ys) {
        for (side, sum) in sums.iter_mut().enumerate() {
            let (x, y) = (&x[side * S::LANES..], &y[side * S::LANES..]);
            *sum = of.step(s, *sum, s.load_part(x, S::LANES), s.load_part(y, S::LANES));
        }
    }
    for (x, y) in xs.remainder().chunks(S::LANES).zip(ys.remainder().chunks(S::LANES)) {
        sums[0] = of.step(s, sums[0], s.load_part(x, x.len()), s.load_part(y, y.len()));
    }
    s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
}

#[inline(always)]
pub(crate) fn dot<S: Simd>(s: S, x: &[f32], y: &[f32]) -> f32 {
    sum(s, x, y, Products)
}

#[inline(always)]
pub(crate) fn sum_squares<S: Simd>(s: S, x: &[f32]) -> f32 {
    sum(s, x, x, Products)
}

#[inline(always)]
pub(crate) fn layer_norm<S: Simd>(s: S, x: &[f32], weight: &[f32], bias: Option<&[f32]>, eps: f32, y: &mut [f32]) {
    if x.is_empty() {
        return;
    }
    let len = x.len();
    let (weight, y) = (&weight[..len], &mut y[..len]);
    let mean = s.splat(sum(s, x, x, Plain) / len as f32);
    // y holds the centred numbers until their size is known.
    vectors!(S::LANES, len, |at, n| {
        s.store_part(&mut y[at..], n, s.sub(s.load_part(&x[at..], n), mean));
    });
    let inverse = s.splat(1.0 / (sum_squares(s, y) / len as f32 + eps).sqrt());
    match bias.map(|bias| &bias[..len]) {
        Some(bias) => {
            vectors!(S::LANES, len, |at, n| {
                let v = s.mul(s.load_part(&y[at..], n), inverse);
                s.store_part(&mut y[at..], n, s.fma(v, s.load_part(&weight[at..], n), s.load_part(&bias[at..], n)));
            });
        }
        None => {
            vectors!(S::LANES, len, |at, n| {
                let v = s.mul(s.load_part(&y[at..], n), inverse);
                s.store_part(&mut y[at..], n, s.mul(v, s.load_part(&weight[at..], n)));
            });
        }
    }
}

#[inline(always)]
pub(crate) fn rms_norm<S: Simd>(s: S, x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
    if x.is_empty() {
        return;
    }
    let len = x.len();
    let inverse = s.splat(1.0 / (sum_squares(s, x) / len as f32 + eps).sqrt());
    let (weight, y) = (&weight[..len], &mut y[..len]);
    vectors!(S::LANES, len, |at, n| {
        let v = s.mul(s.load_part(&x[at..], n), inverse);
        s.store_part(&mut y[at..], n, s.mul(v, s.load_part(&weight[at..], n)));
    });
}

#[inline(always)]
pub(crate) fn add_layer_norm<S: Simd>(
    s: S,
    sum: &mut [f32],
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    eps: f32,
    y: &mut [f32],
) {
    add(s, sum, x);
    layer_norm(s, sum, weight, bias, eps, y);
}

#[inline(always)]
pub(crate) fn add_rms_norm<S: Simd>(s: S, sum: &mut [f32], x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
    add(s, sum, x);
    rms_norm(s, sum, weight, eps, y);
}

#[inline(always)]
pub(crate) fn softmax<S: Simd>(s: S, row: &mut [f32]) {
    if row.is_empty() {
        return;
    }
    let max = largest(s, row);
    let (origin, len, mut total) = (s.splat(max), row.len(), s.splat(0.0));
    vectors!(S::LANES, len, |at, n| {
        let v = exp_below_one(s, s.sub(s.load_part(&row[at..], n), origin));
        s.store_part(&mut row[at..], n, v);
        total = s.add(total, s.load_part(&row[at..], n));
    });
    // A division, not a product with 1 / total: a row of one number must become exactly 1.
    let total = s.splat(s.sum(total));
    vectors!(S::LANES, len, |at, n| {
        let v = s.div(s.load_part(&row[at..], n), total);
        s.store_part(&mut row[at..], n, v);
    });
}

/// The largest number of a row; NaN or not where there are NaNs.
#[inline(always)]
pub(crate) fn largest<S: Simd>(s: S, row: &[f32]) -> f32 {
    let mut most = s.splat(f32::NEG_INFINITY);
    let mut vectors = row.chunks_exact(S::LANES);
    for x in &mut vectors {
        most = s.max(s.load_part(x, S::LANES), most);
    }
    vectors.remainder().iter().fold(s.largest(most), |most, &x| if x > most { x } else { most })
}

#[inline(always)]
pub(crate) fn peak<S: Simd>(s: S, rounds: usize) -> f32 {
    let (factor, term) = (s.splat(0.999_999), s.splat(1e-9));
    let mut sums = [s.splat(0.0); 2 * crate::matmul::MOST_ROWS];
    for _ in 0..rounds {
        for sum in &mut sums[..2 * S::TILE] {
            *sum = s.fma(*sum, factor, term);
        }
    }
    sums.into_iter().map(|sum| s.first(sum)).sum()
}

#[inline(always)]
pub(crate) fn rope<S: Simd>(s: S, row: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32], layout: RopeLayout) {
    let pairs = cos.len();
    for head in row.chunks_exact_mut(head_dim) {
        match layout {
            RopeLayout::Half => {
                let (first, second) = head[..2 * pairs].split_at_mut(pairs);
                let parts = first.chunks_mut(S::LANES).zip(second.chunks_mut(S::LANES));
                for ((a, b), (cos, sin)) in parts.zip(cos.chunks(S::LANES).zip(sin.chunks(S::LANES))) {
                    let n = a.len();
                    let (x, y) = (s.load_part(a, n), s.load_part(b, n));
                    let (cos, sin) = (s.load_part(cos, n), s.load_part(sin, n));
                    s.store_part(a, n, s.fnma(y, sin, s.mul(x, cos)));
                    s.store_part(b, n, s.fma(x, sin, s.mul(y, cos)));
                }
            }
            RopeLayout::Interleaved => {
                for (pair, (cos, sin)) in head.chunks_exact_mut(2).zip(cos.iter().zip(sin)) {
                    let (x, y) = (pair[0], pair[1]);
                    pair[0] = x * cos - y * sin;
                    pair[1] = y * cos + x * sin;
                }
            }
        }
    }
}
