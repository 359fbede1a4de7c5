//! How does an AArch64 do the operations of [`Simd`]? Four lanes.

use std::arch::aarch64::*;

use crate::Isa;
use crate::simd::{LAST, Simd, operations};
use crate::table::{table_for, wrappers};

table_for!(Neon, "neon");

/// Proof of Advanced SIMD.
#[derive(Clone, Copy)]
pub(crate) struct Neon(());

impl Neon {
    /// # Safety
    /// The machine has Advanced SIMD.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

impl Simd for Neon {
    type V = float32x4_t;
    const ISA: Isa = Isa::Neon;
    const LANES: usize = 4;
    const TILE: usize = 12;

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> float32x4_t {
        // SAFETY: the caller's, and `self` proves the instructions.
        unsafe { vld1q_f32(p) }
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> float32x4_t {
        // SAFETY: the caller's, and `self` proves the instructions.
        unsafe { vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))) }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> float32x4_t {
        // SAFETY: the caller's, and `self` proves the instructions.
        unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(p))) }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: float32x4_t) {
        // SAFETY: the caller's, and `self` proves the instructions.
        unsafe { vst1q_f32(p, v) }
    }

    #[inline(always)]
    fn prefetch<T>(self, p: *const T) {
        // SAFETY: a prefetch reads nothing that the program could see, and never faults.
        unsafe { std::arch::asm!("prfm pldl1keep, [{}]", in(reg) p, options(readonly, nostack, preserves_flags)) }
    }

    operations! {
        fn splat(x: f32) -> float32x4_t = vdupq_n_f32(x);
        fn add(a: float32x4_t, b: float32x4_t) -> float32x4_t = vaddq_f32(a, b);
        fn sub(a: float32x4_t, b: float32x4_t) -> float32x4_t = vsubq_f32(a, b);
        fn mul(a: float32x4_t, b: float32x4_t) -> float32x4_t = vmulq_f32(a, b);
        fn div(a: float32x4_t, b: float32x4_t) -> float32x4_t = vdivq_f32(a, b);
        fn fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t = vfmaq_f32(c, a, b);
        fn fnma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t = vfmsq_f32(c, a, b);
        fn min(a: float32x4_t, b: float32x4_t) -> float32x4_t = vminq_f32(a, b);
        fn max(a: float32x4_t, b: float32x4_t) -> float32x4_t = vmaxq_f32(a, b);
        fn round(a: float32x4_t) -> float32x4_t = vrndnq_f32(a);
        fn pow2(n: float32x4_t) -> float32x4_t =
            vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127))));
        fn abs(a: float32x4_t) -> float32x4_t = vabsq_f32(a);
        fn copysign(a: float32x4_t, b: float32x4_t) -> float32x4_t = vbslq_f32(vdupq_n_u32(0x8000_0000), b, a);
        fn select_lt(a: float32x4_t, b: float32x4_t, yes: float32x4_t, no: float32x4_t) -> float32x4_t =
            vbslq_f32(vcltq_f32(a, b), yes, no);
        fn keep_last(a: float32x4_t, n: usize) -> float32x4_t = {
            assert!(n <= 4);
            // Four lanes around the middle of eight.
            vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(a), vld1q_u32(LAST.as_ptr().add(4 + n))))
        };
        fn first(a: float32x4_t) -> f32 = vgetq_lane_f32::<0>(a);
        fn sum(a: float32x4_t) -> f32 = vaddvq_f32(a);
        fn largest(a: float32x4_t) -> f32 = vmaxvq_f32(a);
    }
}
