//! How do x86-64 machines sum 8-bit integers, and which levels of distances have they?

use std::arch::x86_64::*;

use super::bytes::{self, Bytes, ROWS};
use super::{Bf16, Distances, F16, F32, bits, floats, pointers, table};
use crate::Isa;
use crate::avx2::Avx2;
use crate::avx512::Avx512;
use crate::simd::LAST;

/// The levels that this machine has, lowest first.
pub(super) fn levels() -> impl Iterator<Item = &'static Distances> {
    let vnni = is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512vpopcntdq");
    let avx512 = Isa::Avx512.is_available();
    [(Isa::Avx2.is_available(), &AVX2), (avx512, &AVX512), (avx512 && vnni, &AVX512_VNNI)]
        .into_iter()
        .filter_map(|(available, table)| available.then_some(table))
}

static AVX2: Distances = Distances {
    bits: pointers!(u8, "popcnt", bits::Words::new, bits::one::<M>, bits::many::<M>),
    ..table!(Isa::Avx2, "avx2", "avx2,fma,f16c,popcnt", Avx2::new, Sixteen::new)
};
static AVX512: Distances = AVX512_TABLE;
const AVX512_TABLE: Distances = table!(
    Isa::Avx512,
    "avx512",
    "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,popcnt",
    Avx512::new,
    ThirtyTwo::<false>::new
);
static AVX512_VNNI: Distances = Distances {
    name: "avx512 with vnni and vpopcntdq",
    i8: pointers!(
        i8,
        "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni",
        ThirtyTwo::<true>::new,
        bytes::one::<_, M>,
        bytes::many::<_, M>
    ),
    bits: pointers!(
        u8,
        "avx512f,avx512bw,avx512vl,avx512dq,avx512vpopcntdq,popcnt",
        bits::Words::new,
        bits::one::<M>,
        bits::many::<M>
    ),
    ..AVX512_TABLE
};

/// Sixteen numbers at a time, widened to 16 bits. Proof of AVX2.
#[derive(Clone, Copy)]
struct Sixteen(());

impl Sixteen {
    /// # Safety
    /// The machine has AVX2.
    #[inline(always)]
    unsafe fn new() -> Self {
        Self(())
    }
}

impl Bytes for Sixteen {
    type X = __m256i;
    type Sum = __m256i;
    const STEP: usize = 16;

    #[inline(always)]
    fn zero(self) -> __m256i {
        // SAFETY: `self` proves the instructions.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    unsafe fn load(self, p: *const i8) -> __m256i {
        // SAFETY: the caller's, and `self` proves the instructions.
        unsafe { _mm256_cvtepi8_epi16(_mm_loadu_si128(p.cast())) }
    }

    #[inline(always)]
    unsafe fn load_last(self, p: *const i8, n: usize) -> __m256i {
        // SAFETY: the caller's; n ≤ 16, so sixteen bytes of LAST, n of them beyond its middle, are there.
        unsafe {
            let mask = _mm_loadu_si128(LAST.as_ptr().cast::<u8>().add(16 + n).cast());
            _mm256_cvtepi8_epi16(_mm_and_si128(_mm_loadu_si128(p.cast()), mask))
        }
    }

    #[inline(always)]
    fn product(self, sum: __m256i, x: __m256i, y: __m256i) -> __m256i {
        // SAFETY: `self` proves the instructions.
        unsafe { _mm256_add_epi32(sum, _mm256_madd_epi16(x, y)) }
    }

    #[inline(always)]
    fn square(self, sum: __m256i, x: __m256i, y: __m256i) -> __m256i {
        // SAFETY: `self` proves the instructions.
        let difference = unsafe { _mm256_sub_epi16(x, y) };
        self.product(sum, difference, difference)
    }

    #[inline(always)]
    fn add(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the instructions.
        unsafe { _mm256_add_epi32(a, b) }
    }

    #[inline(always)]
    fn total(self, sum: __m256i) -> i32 {
        // SAFETY: `self` proves the instructions.
        unsafe {
            let sum = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
            let sum = _mm_add_epi32(sum, _mm_shuffle_epi32::<0b0100_1110>(sum));
            _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32::<0b1011_0001>(sum)))
        }
    }

    #[inline(always)]
    fn totals(self, [a, b, c, d]: [__m256i; ROWS]) -> [i32; ROWS] {
        let mut totals = [0; ROWS];
        // SAFETY: `self` proves the instructions, and there is room for four totals.
        unsafe {
            let sums = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
            let sums = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
            _mm_storeu_si128(totals.as_mut_ptr().cast(), sums);
        }
        totals
    }
}

/// Thirty-two numbers at a time, widened to 16 bits. Proof of AVX-512 F, BW and VL, and where `VNNI` of that.
#[derive(Clone, Copy)]
struct ThirtyTwo<const VNNI: bool>(());

impl<const VNNI: bool> ThirtyTwo<VNNI> {
    /// # Safety
    /// The machine has AVX-512 F, BW and VL, and where `VNNI` that.
    #[inline(always)]
    unsafe fn new() -> Self {
        Self(())
    }
}

impl<const VNNI: bool> Bytes for ThirtyTwo<VNNI> {
    type X = __m512i;
    type Sum = __m512i;
    const STEP: usize = 32;

    #[inline(always)]
    fn zero(self) -> __m512i {
        // SAFETY: `self` proves the instructions.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn load(self, p: *const i8) -> __m512i {
        // SAFETY: the caller's, and `self` proves the instructions.
        unsafe { _mm512_cvtepi8_epi16(_mm256_loadu_si256(p.cast())) }
    }

    #[inline(always)]
    unsafe fn load_last(self, p: *const i8, n: usize) -> __m512i {
        // SAFETY: the caller's, and `self` proves the instructions.
        unsafe {
            let last = _mm256_maskz_mov_epi8(u32::MAX << (32 - n), _mm256_loadu_si256(p.cast()));
            _mm512_cvtepi8_epi16(last)
        }
    }

    #[inline(always)]
    fn product(self, sum: __m512i, x: __m512i, y: __m512i) -> __m512i {
        // SAFETY: `self` proves the instructions.
        unsafe { if VNNI { _mm512_dpwssd_epi32(sum, x, y) } else { _mm512_add_epi32(sum, _mm512_madd_epi16(x, y)) } }
    }

    #[inline(always)]
    fn square(self, sum: __m512i, x: __m512i, y: __m512i) -> __m512i {
        // SAFETY: `self` proves the instructions.
        let difference = unsafe { _mm512_sub_epi16(x, y) };
        self.product(sum, difference, difference)
    }

    #[inline(always)]
    fn add(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the instructions.
        unsafe { _mm512_add_epi32(a, b) }
    }

    #[inline(always)]
    fn total(self, sum: __m512i) -> i32 {
        // SAFETY: `self` proves the instructions.
        unsafe { _mm512_reduce_add_epi32(sum) }
    }
}
