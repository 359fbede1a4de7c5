//! How are the products of a group added with AVX-512 VNNI? Four at a time in 32 bits, for sixteen output features.

// Indices say which register is which.
#![allow(clippy::needless_range_loop)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::Job;
use super::lanes::{self, Activations, Lanes, Source};
use crate::avx512::Avx512;
use crate::blocks::GROUP;
use crate::simd::operations;
use crate::{AttendScratch, Epilogue, Interleaved, QuantizedRows, Window};

/// As [`Kernels::dot_interleaved`](crate::Kernels::dot_interleaved).
#[target_feature(enable = "avx512vnni,avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
pub(crate) fn dot_interleaved(
    x: &QuantizedRows,
    w: &Interleaved,
    panels: Range<usize>,
    y: Window<'_>,
    epilogue: &Epilogue<'_>,
    scratch: &mut AttendScratch,
) {
    // SAFETY: the features that make this function are those of AVX-512 and VNNI.
    let s = Vnni(unsafe { Avx512::new() });
    lanes::dot_interleaved(s, Job { x, w, panels, y, epilogue, scratch });
}

/// Proof of AVX-512 with VNNI.
#[derive(Clone, Copy)]
pub(super) struct Vnni(pub(super) Avx512);

impl Lanes for Vnni {
    type F = Avx512;
    type I = __m512i;
    const BY_NIBBLES: bool = false;

    #[inline(always)]
    fn simd(self) -> Avx512 {
        self.0
    }

    #[inline(always)]
    unsafe fn load(self, p: *const u8) -> __m512i {
        // SAFETY: the caller's, and `self` proves the instructions; so below.
        unsafe { _mm512_loadu_si512(p.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut u8, v: __m512i) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_si512(p.cast(), v) }
    }

    #[inline(always)]
    unsafe fn widen_pairs(self, p: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_cvtepi8_epi16(_mm256_loadu_si256(p.cast())) }
    }

    #[inline(always)]
    unsafe fn numbers(self, p: *const u8) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast()))) }
    }

    operations! {
        fn and(v: __m512i, byte: i8) -> __m512i = _mm512_and_si512(v, _mm512_set1_epi8(byte));
        fn or(a: __m512i, b: __m512i) -> __m512i = _mm512_or_si512(a, b);
        fn left(v: __m512i, by: i32) -> __m512i = _mm512_sll_epi16(v, _mm_cvtsi32_si128(by));
        fn right(v: __m512i, by: i32) -> __m512i = _mm512_srl_epi16(v, _mm_cvtsi32_si128(by));
        fn to_f32(v: __m512i) -> __m512 = _mm512_cvtepi32_ps(v);
    }

    #[inline(always)]
    unsafe fn group<W: Source, const R: usize, const P: usize>(
        self,
        x: Activations,
        w: *const u8,
        panel: usize,
    ) -> [[__m512i; P]; R] {
        // SAFETY: the caller's, and `self` proves the instructions.
        unsafe {
            let zero = _mm512_setzero_si512();
            // Of 4 bytes, or 2 times 16 bits, in each lane.
            macro_rules! splat {
                ($p:expr) => {
                    _mm512_set1_epi32($p.cast::<i32>().read_unaligned())
                };
            }
            // Vectors $j of codes by activations.
            macro_rules! multiply {
                ($sums:ident, $($j:literal)*) => {$(
                    let mut codes = [zero; P];
                    for p in 0..P {
                        codes[p] = W::codes::<Self, $j>(self, w.add(p * panel));
                    }
                    for r in 0..R {
                        let activations = splat!(x.codes.add(r * GROUP + 4 * $j));
                        for p in 0..P {
                            $sums[r][p] = _mm512_dpbusd_epi32($sums[r][p], codes[p], activations);
                        }
                    }
                )*};
            }
            let offset = _mm512_set1_epi16(W::SCHEME.offset as i16);
            let mut totals = [[zero; P]; R];
            if W::SCHEME.bits != 6 {
                if W::SCHEME.offset != 0 {
                    for r in 0..R {
                        totals[r] = [_mm512_madd_epi16(splat!(x.pairs.add(r * 4)), offset); P];
                    }
                }
                multiply!(totals, 0 1 2 3 4 5 6 7);
                return totals;
            }
            // Halves have scales.
            let mut second = totals;
            for r in 0..R {
                let pairs = x.pairs.add(r * 4);
                let (all, first) = (splat!(pairs), splat!(pairs.add(2)));
                totals[r] = [_mm512_madd_epi16(first, offset); P];
                second[r] = [_mm512_madd_epi16(_mm512_sub_epi16(all, first), offset); P];
            }
            multiply!(totals, 0 1 2 3);
            multiply!(second, 4 5 6 7);
            for p in 0..P {
                let [a, b] = split(W::halves(self, w.add(p * panel)));
                for r in 0..R {
                    totals[r][p] =
                        _mm512_add_epi32(_mm512_mullo_epi32(totals[r][p], a), _mm512_mullo_epi32(second[r][p], b));
                }
            }
            totals
        }
    }
}

/// The lower and the upper 16 bits of each lane, signed.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn split(pairs: __m512i) -> [__m512i; 2] {
    [_mm512_srai_epi32::<16>(_mm512_slli_epi32::<16>(pairs)), _mm512_srai_epi32::<16>(pairs)]
}
