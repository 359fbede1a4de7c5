//! What is exp, erf, tanh and each activation of a vector of numbers? Polynomials, to about a unit in the last place.

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
    Gelu(s, x) = {
        let half = s.mul(s.splat(0.5), x);
        s.fma(half, erf(s, s.mul(s.splat(std::f32::consts::FRAC_1_SQRT_2), x)), half)
    };
    GeluTanh(s, x) = {
        let half = s.mul(s.splat(0.5), x);
        let inner = s.fma(s.mul(s.splat(0.044715), s.mul(x, x)), x, x);
        s.fma(half, tanh(s, s.mul(s.splat(0.797_884_6), inner)), half)
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
    let n = s.round(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    let r = s.fnma(n, s.splat(0.693_145_75), x);
    let r = s.fnma(n, s.splat(1.428_606_8e-6), r);
    let p = polynomial(s, r, &EXP);
    let half = s.round(s.mul(n, s.splat(0.5)));
    s.mul(s.mul(p, s.pow2(half)), s.pow2(s.sub(n, half)))
}

/// eʳ on |r| ≤ ln 2 / 2, lowest degree first.
const EXP: [f32; 7] = [1.0, 1.0, 0.5, 0.166_665_77, 0.041_666_556, 0.008_363_179, 0.001_392_618_4];

/// The error function: an odd polynomial near 0, else `1 − exp(p(|x|))`.
#[inline(always)]
pub(crate) fn erf<S: Simd>(s: S, x: S::V) -> S::V {
    let t = s.abs(x);
    let square = s.mul(x, x);
    let near = s.fma(polynomial(s, square, &ERF_NEAR), x, x);
    let far = s.fma(polynomial(s, t, &ERF_FAR), t, s.mul(s.splat(-1.0), t));
    let far = s.copysign(s.sub(s.splat(1.0), exp(s, far)), x);
    s.select_lt(s.splat(0.927_734_4), t, far, near)
}

const ERF_NEAR: [f32; 6] = [0.128_379_17, -0.376_125_34, 0.112_819_925, -2.676_813_5e-2, 4.991_194_2e-3, -5.967_617e-4];
const ERF_FAR: [f32; 7] =
    [-0.128_717_51, -0.634_846_7, -0.106_777_88, 2.425_462_2e-2, -3.883_964_4e-3, 3.831_971_3e-4, -1.728_534_7e-5];

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

const TANH_NEAR: [f32; 4] = [-0.333_327_68, 0.133_152_47, -5.230_255_8e-2, 1.573_944e-2];

/// A polynomial by Horner's rule, lowest degree first.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(s: S, x: S::V, coefficients: &[f32; N]) -> S::V {
    let mut p = s.splat(coefficients[N - 1]);
    for i in (0..N - 1).rev() {
        p = s.fma(p, x, s.splat(coefficients[i]));
    }
    p
}
