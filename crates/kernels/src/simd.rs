//! What must an instruction set bring so that the kernels can be written once for all? A vector of f32 lanes and some
//! twenty operations on it.

use crate::Isa;

/// Lanes of the widest vector.
const MOST_LANES: usize = 16;

/// All bits of the upper half: lanes from `LANES − n` on are the mask of the last `n`, where vectors are loaded to mask.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) static LAST: [u32; 16] = [0, 0, 0, 0, 0, 0, 0, 0, !0, !0, !0, !0, !0, !0, !0, !0];

/// A vector instruction set. A value of the type is the proof that the machine has it, so that the operations on
/// values are safe; loads and stores are as unsafe as the pointers that they go through.
pub(crate) trait Simd: Copy {
    /// A vector of `LANES` numbers.
    type V: Copy;
    /// The level that it belongs to.
    const ISA: Isa;
    /// Numbers in a vector.
    const LANES: usize;
    /// Numbers in a row of a panel of packed weights: two vectors.
    const PANEL: usize = 2 * Self::LANES;
    /// Rows of the largest matmul tile: as many as the registers hold.
    const TILE: usize;

    /// # Safety
    /// `LANES` numbers can be read at `p`, at any alignment; so for the other loads.
    unsafe fn load(self, p: *const f32) -> Self::V;
    /// # Safety
    /// As [`Simd::load`].
    unsafe fn load_f16(self, p: *const u16) -> Self::V;
    /// # Safety
    /// As [`Simd::load`].
    unsafe fn load_bf16(self, p: *const u16) -> Self::V;
    /// # Safety
    /// `LANES` numbers can be written at `p`, at any alignment.
    unsafe fn store(self, p: *mut f32, v: Self::V);

    /// Asks for the cache line at `p`, which need not be memory.
    fn prefetch<T>(self, p: *const T);
    fn splat(self, x: f32) -> Self::V;
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a / b` within two places of the last, for normal `b` whose inverse is normal: for where divisions would be what takes the time.
    #[inline(always)]
    fn quotient(self, a: Self::V, b: Self::V) -> Self::V {
        self.div(a, b)
    }
    /// `a · b + c`, rounded once.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `c − a · b`, rounded once.
    fn fnma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The smaller; where `b` is NaN, NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// The larger; where `b` is NaN, NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// To the nearest integer, ties to even.
    fn round(self, a: Self::V) -> Self::V;
    /// `2ⁿ` for integers −126 ≤ n ≤ 127.
    fn pow2(self, n: Self::V) -> Self::V;
    /// `a · 2ⁿ` for integers −126 ≤ n ≤ 127.
    #[inline(always)]
    fn times_pow2(self, a: Self::V, n: Self::V) -> Self::V {
        self.mul(a, self.pow2(n))
    }
    fn abs(self, a: Self::V) -> Self::V;
    /// The magnitude of `a` with the sign of `b`.
    fn copysign(self, a: Self::V, b: Self::V) -> Self::V;
    /// Where `a < b`, `yes`, elsewhere (also where either is NaN) `no`.
    fn select_lt(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    /// The first lane.
    fn first(self, a: Self::V) -> f32;
    /// The last `n` lanes, 1 ≤ n ≤ LANES; the others become 0.
    fn keep_last(self, a: Self::V, n: usize) -> Self::V;
    /// The sum of the lanes, in a fixed order.
    fn sum(self, a: Self::V) -> f32;
    /// The largest lane.
    fn largest(self, a: Self::V) -> f32;

    /// The first `n ≤ LANES` numbers of `x`; the other lanes are 0.
    #[inline(always)]
    fn load_part(self, x: &[f32], n: usize) -> Self::V {
        if n == Self::LANES {
            let x = &x[..Self::LANES];
            // SAFETY: `x` has LANES numbers.
            return unsafe { self.load(x.as_ptr()) };
        }
        let mut lanes = [0f32; MOST_LANES];
        lanes[..n].copy_from_slice(&x[..n]);
        // SAFETY: LANES ≤ MOST_LANES.
        unsafe { self.load(lanes.as_ptr()) }
    }

    /// Writes the first `n ≤ LANES` lanes to `x`.
    #[inline(always)]
    fn store_part(self, x: &mut [f32], n: usize, v: Self::V) {
        if n == Self::LANES {
            let x = &mut x[..Self::LANES];
            // SAFETY: `x` has LANES numbers.
            return unsafe { self.store(x.as_mut_ptr(), v) };
        }
        let mut lanes = [0f32; MOST_LANES];
        // SAFETY: LANES ≤ MOST_LANES.
        unsafe { self.store(lanes.as_mut_ptr(), v) };
        x[..n].copy_from_slice(&lanes[..n]);
    }
}

/// Methods of [`Simd`] of one intrinsic expression each.
macro_rules! operations {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $body:expr;)*) => {
        $(#[inline(always)]
        fn $name(self, $($arg: $type),*) -> $result {
            // SAFETY: `self` proves that the machine has the instructions; they touch no memory.
            unsafe { $body }
        })*
    };
}
pub(crate) use operations;
