//! How do 64-bit Arm machines sum 8-bit integers, and which levels of distances have they?

use std::arch::aarch64::*;
use std::arch::asm;

use super::bytes::{self, Bytes};
use super::{Bf16, Distances, F16, F32, bits, floats, pointers, table};
use crate::Isa;
use crate::neon::Neon;
use crate::simd::LAST;

/// The levels that this machine has, lowest first.
pub(super) fn levels() -> impl Iterator<Item = &'static Distances> {
    let neon = Isa::Neon.is_available();
    let dot = std::arch::is_aarch64_feature_detected!("dotprod");
    [(neon, &NEON), (neon && dot, &NEON_DOT)].into_iter().filter_map(|(available, table)| available.then_some(table))
}

static NEON: Distances = TABLE;
const TABLE: Distances = table!(Isa::Neon, "neon", "neon", Neon::new, Sixteen::<false>::new);
static NEON_DOT: Distances = Distances {
    name: "neon with dotprod",
    i8: pointers!(i8, "neon,dotprod", Sixteen::<true>::new, bytes::one::<_, M>, bytes::many::<_, M>),
    ..TABLE
};

/// Sixteen numbers at a time. Proof of Advanced SIMD, and where `DOT` of its dot products.
#[derive(Clone, Copy)]
struct Sixteen<const DOT: bool>(());

impl<const DOT: bool> Sixteen<DOT> {
    /// # Safety
    /// The machine has Advanced SIMD, and where `DOT` dot products.
    #[inline(always)]
    unsafe fn new() -> Self {
        Self(())
    }
}

impl<const DOT: bool> Bytes for Sixteen<DOT> {
    type X = int8x16_t;
    type Sum = int32x4_t;
    const STEP: usize = 16;

    #[inline(always)]
    fn zero(self) -> int32x4_t {
        // SAFETY: `self` proves the instructions.
        unsafe { vdupq_n_s32(0) }
    }

    #[inline(always)]
    unsafe fn load(self, p: *const i8) -> int8x16_t {
        // SAFETY: the caller's, and `self` proves the instructions.
        unsafe { vld1q_s8(p) }
    }

    #[inline(always)]
    unsafe fn load_last(self, p: *const i8, n: usize) -> int8x16_t {
        // SAFETY: the caller's; n ≤ 16, so sixteen bytes of LAST, n of them beyond its middle, are there.
        unsafe { vandq_s8(vld1q_s8(p), vld1q_s8(LAST.as_ptr().cast::<i8>().add(16 + n))) }
    }

    #[inline(always)]
    fn product(self, mut sum: int32x4_t, x: int8x16_t, y: int8x16_t) -> int32x4_t {
        // SAFETY: `self` proves the instructions.
        unsafe {
            if DOT {
                asm!(".arch_extension dotprod", "sdot {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) sum, in(vreg) x, in(vreg) y,
                    options(pure, nomem, nostack, preserves_flags));
                sum
            } else {
                let low = vmull_s8(vget_low_s8(x), vget_low_s8(y));
                vpadalq_s16(vpadalq_s16(sum, low), vmull_high_s8(x, y))
            }
        }
    }

    #[inline(always)]
    fn square(self, sum: int32x4_t, x: int8x16_t, y: int8x16_t) -> int32x4_t {
        // SAFETY: `self` proves the instructions.
        unsafe {
            // 0 to 255.
            let d = vreinterpretq_u8_s8(vabdq_s8(x, y));
            let mut sum = vreinterpretq_u32_s32(sum);
            if DOT {
                asm!(".arch_extension dotprod", "udot {0:v}.4s, {1:v}.16b, {1:v}.16b", inout(vreg) sum, in(vreg) d,
                    options(pure, nomem, nostack, preserves_flags));
            } else {
                let low = vmull_u8(vget_low_u8(d), vget_low_u8(d));
                sum = vpadalq_u16(vpadalq_u16(sum, low), vmull_high_u8(d, d));
            }
            vreinterpretq_s32_u32(sum)
        }
    }

    #[inline(always)]
    fn add(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        // SAFETY: `self` proves the instructions.
        unsafe { vaddq_s32(a, b) }
    }

    #[inline(always)]
    fn total(self, sum: int32x4_t) -> i32 {
        // SAFETY: `self` proves the instructions.
        unsafe { vaddvq_s32(sum) }
    }
}
