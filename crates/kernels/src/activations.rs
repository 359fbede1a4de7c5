//! What is exp, tanh and each activation of a vector of numbers? Polynomials, to a few units in the last place.

use crate::simd::Simd;

/// A function of one number, on vectors.
pub(crate) trait Unary: Copy {
    fn apply<S: Simd>(self, s: S, x: S::V) -> S::V;
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident($s:ident, $x:ident) = $body:expr;)*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name;
        impl Unary for $name {
            #[inline(always)]
            fn apply<S: Simd>(self, $s: S, $x: S::V) -> S::V {
                $body
            }
        })*
    };
}

unary! {
    /// Itself.
    Identity(_s, x) = x;
    Gelu(s, x) = gelu(s, x);
    GeluTanh(s, x) = {
        // (1 + tanh(u)) / 2 = 1 / (1 + exp(−2 u)), with u = √(2/π) · (x + 0.044715 x³).
        let inner = s.fma(s.mul(s.splat(0.044715), s.mul(x, x)), x, x);
        s.div(x, s.add(s.splat(1.0), exp(s, s.mul(s.splat(-1.595_769), inner))))
    };
    QuickGelu(s, x) = s.div(x, s.add(s.splat(1.0), exp(s, s.mul(s.splat(-1.702), x))));
    Silu(s, x) = s.div(x, s.add(s.splat(1.0), exp(s, s.mul(s.splat(-1.0), x))));
    Relu(s, x) = s.max(s.splat(0.0), x);
    Relu2(s, x) = {
        let x = s.max(s.splat(0.0), x);
        s.mul(x, x)
    };
    Tanh(s, x) = tanh(s, x);
    Sigmoid(s, x) = s.div(s.splat(1.0), s.add(s.splat(1.0), exp(s, s.mul(s.splat(-1.0), x))));
}

/// `$body` with `$function` bound to the vector code of the activation `$kind`.
macro_rules! activations {
    ($kind:expr, $function:ident => $body:expr) => {{
        use $crate::Activation as Kind;
        use $crate::activations as vector;
        macro_rules! with {
            ($name:ident) => {{
                let $function = vector::$name;
                $body
            }};
        }
        match $kind {
            Kind::Gelu => with!(Gelu),
            Kind::GeluTanh => with!(GeluTanh),
            Kind::QuickGelu => with!(QuickGelu),
            Kind::Silu => with!(Silu),
            Kind::Relu => with!(Relu),
            Kind::Relu2 => with!(Relu2),
            Kind::Tanh => with!(Tanh),
            Kind::Sigmoid => with!(Sigmoid),
        }
    }};
}
pub(crate) use activations;

/// eˣ. `x = n · ln 2 + r` with integer `n` and `|r| ≤ ln 2 / 2`; a polynomial gives `eʳ`, two factors `2ⁿ`, so that
/// results below the normal numbers are rounded once.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::V) -> S::V {
    // Beyond these the result is 0 or ∞ in any case.
    let x = s.min(s.splat(89.0), s.max(s.splat(-104.5), x));
    let (n, p) = exp_parts(s, x);
    let half = s.round(s.mul(n, s.splat(0.5)));
    s.mul(s.mul(p, s.pow2(half)), s.pow2(s.sub(n, half)))
}

/// eˣ for x ≤ 0, in fewer steps: what would be no normal number is 0.
#[inline(always)]
pub(crate) fn exp_below_one<S: Simd>(s: S, x: S::V) -> S::V {
    let least = s.splat(-87.3);
    let (n, p) = exp_parts(s, s.max(least, x));
    s.select_lt(x, least, s.splat(0.0), s.times_pow2(p, n))
}

/// 2ˣ for x ≤ 0; what would be no normal number is 0.
#[inline(always)]
pub(crate) fn exp2_below_one<S: Simd>(s: S, x: S::V) -> S::V {
    let least = s.splat(-126.0);
    let z = s.max(least, x);
    let n = s.round(z);
    s.select_lt(x, least, s.splat(0.0), s.times_pow2(polynomial(s, s.sub(z, n), &EXP2), n))
}

/// `n` and `eʳ` of [`exp`].
#[inline(always)]
fn exp_parts<S: Simd>(s: S, x: S::V) -> (S::V, S::V) {
    let n = s.round(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    // ln 2 in two parts, the first of which has zeros enough for `n` times it to be exact.
    let r = s.fnma(n, s.splat(0.693_145_75), x);
    let r = s.fnma(n, s.splat(1.428_606_8e-6), r);
    (n, polynomial(s, r, &EXP))
}

/// eʳ on |r| ≤ ln 2 / 2 to 3e-9, lowest degree first.
const EXP: [f32; 7] = [1.0, 1.0, 0.499_999_94, 0.166_665_21, 0.041_668_39, 0.008_368_71, 0.001_381_461_3];

/// `max(x, 0) − |x| · Φ(−|x|)` with the normal distribution's `Φ(−t) = exp(−t²/2) · R(t)`, where R falls slowly from ½: no
/// difference of nearly equal numbers, so both tails are right to the last places.
#[inline(always)]
fn gelu<S: Simd>(s: S, x: S::V) -> S::V {
    // Beyond 12.9 all is lost in x anyway; up to there every factor is a normal number.
    let t = s.min(s.splat(12.9), s.abs(x));
    let z = s.mul(s.mul(t, t), s.splat(-0.5 * std::f32::consts::LOG2_E));
    let n = s.round(z);
    let exp = s.times_pow2(polynomial(s, s.sub(z, n), &EXP2), n);
    let tail = s.quotient(s.mul(s.mul(t, polynomial(s, t, &TAIL_ABOVE)), exp), polynomial(s, t, &TAIL_BELOW));
    s.sub(s.max(s.splat(0.0), x), tail)
}

/// 2ʳ on |r| ≤ ½ to 2e-9.
const EXP2: [f32; 7] =
    [1.0, std::f32::consts::LN_2, 0.240_226_48, 0.055_503_324, 0.009_618_437, 0.001_339_887_5, 0.000_153_533_62];

/// R(t) = erfcx(t / √2) / 2 = `TAIL_ABOVE / TAIL_BELOW`; Φ(−t) so is right to 7e-10.
const TAIL_ABOVE: [f32; 4] = [0.5, 0.306_458_74, 0.090_354_79, 0.010_686_238];
const TAIL_BELOW: [f32; 5] = [1.0, 1.410_801_9, 0.806_368_65, 0.225_310_01, 0.026_843_105];

/// Hyperbolic tangent: an odd polynomial near 0, else `1 − 2 / (exp(2 |x|) + 1)`.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::V) -> S::V {
    let t = s.abs(x);
    let square = s.mul(x, x);
    let near = s.fma(s.mul(polynomial(s, square, &TANH_NEAR), square), x, x);
    let e = exp(s, s.add(t, t));
    let far = s.copysign(s.sub(s.splat(1.0), s.div(s.splat(2.0), s.add(e, s.splat(1.0)))), x);
    s.select_lt(s.splat(0.6), t, far, near)
}

/// (tanh(x) − x) / x³ in powers of x².
const TANH_NEAR: [f32; 5] = [-0.333_332_8, 0.133_314, -0.053_735_38, 0.020_622_8, -0.005_684_703_6];

/// A polynomial by Horner's rule, lowest degree first.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(s: S, x: S::V, coefficients: &[f32; N]) -> S::V {
    let mut p = s.splat(coefficients[N - 1]);
    for i in (0..N - 1).rev() {
        p = s.fma(p, x, s.splat(coefficients[i]));
    }
    p
}
