//! How does an x86-64 with AVX-512 F, BW, VL and DQ do the operations of [`Simd`]? Sixteen lanes.

use std::arch::x86_64::*;

use crate::quant::{amx, vnni};
use crate::simd::{Simd, operations};
use crate::table::{Pointers, table_for, wrappers};
use crate::{Isa, Kernels};

table_for!(Avx512, "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c");

/// The table of this machine, which may have VNNI.
pub(crate) fn kernels() -> &'static Kernels {
    static VNNI: Kernels = with(Isa::Avx512, Pointers { dot_interleaved: vnni::dot_interleaved, ..TABLE.pointers });
    if is_x86_feature_detected!("avx512vnni") { &VNNI } else { &KERNELS }
}

/// The table of this machine, which has AMX tiles and VNNI too; what else tiles do is in [`Kernels::matmul_tiles`].
pub(crate) fn kernels_with_tiles() -> &'static Kernels {
    static AMX: Kernels = with(Isa::Amx, Pointers { dot_interleaved: amx::dot_interleaved, ..TABLE.pointers });
    &AMX
}

const fn with(isa: Isa, pointers: Pointers) -> Kernels {
    Kernels { isa, lanes: 16, pointers, ..TABLE }
}

/// Proof of AVX-512 F, BW, VL and DQ.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// # Safety
    /// The machine has AVX-512 F, BW, VL and DQ.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

impl Simd for Avx512 {
    type V = __m512;
    const ISA: Isa = Isa::Avx512;
    const LANES: usize = 16;
    const TILE: usize = 12;

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m512 {
        // SAFETY: the caller's, and `self` proves the instructions.
        unsafe { _mm512_loadu_ps(p) }
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> __m512 {
        // SAFETY: the caller's, and `self` proves the instructions.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> __m512 {
        // SAFETY: the caller's, and `self` proves the instructions.
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast())))) }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m512) {
        // SAFETY: the caller's, and `self` proves the instructions.
        unsafe { _mm512_storeu_ps(p, v) }
    }

    #[inline(always)]
    fn prefetch<T>(self, p: *const T) {
        // SAFETY: a prefetch reads nothing that the program could see, and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }

    operations! {
        fn splat(x: f32) -> __m512 = _mm512_set1_ps(x);
        fn add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        fn sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        fn mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        fn div(a: __m512, b: __m512) -> __m512 = _mm512_div_ps(a, b);
        // One step of Newton's from 14 places: in a third of the time of a division.
        fn quotient(a: __m512, b: __m512) -> __m512 = {
            let r = _mm512_rcp14_ps(b);
            _mm512_mul_ps(a, _mm512_fmadd_ps(_mm512_fnmadd_ps(b, r, _mm512_set1_ps(1.0)), r, r))
        };
        fn fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        fn fnma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fnmadd_ps(a, b, c);
        fn min(a: __m512, b: __m512) -> __m512 = _mm512_min_ps(a, b);
        fn max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
        fn round(a: __m512) -> __m512 = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
        fn pow2(n: __m512) -> __m512 = _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_add_epi32(
            _mm512_cvtps_epi32(n),
            _mm512_set1_epi32(127),
        )));
        fn times_pow2(a: __m512, n: __m512) -> __m512 = _mm512_scalef_ps(a, n);
        fn abs(a: __m512) -> __m512 = _mm512_abs_ps(a);
        fn copysign(a: __m512, b: __m512) -> __m512 = {
            let sign = _mm512_set1_ps(-0.0);
            _mm512_or_ps(_mm512_andnot_ps(sign, a), _mm512_and_ps(sign, b))
        };
        fn select_lt(a: __m512, b: __m512, yes: __m512, no: __m512) -> __m512 =
            _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), no, yes);
        fn keep_last(a: __m512, n: usize) -> __m512 = _mm512_maskz_mov_ps(u16::MAX << (16 - n), a);
        fn first(a: __m512) -> f32 = _mm512_cvtss_f32(a);
        fn sum(a: __m512) -> f32 = _mm512_reduce_add_ps(a);
        fn largest(a: __m512) -> f32 = _mm512_reduce_max_ps(a);
    }
}
