//! How are the products of a group added with AVX2? Two at a time in 16 bits, where codes are centred so that a group's sums
//! (of 6-bit codes, a half's) fit whatever their order: sums may wrap in between, their end does not.

// Indices say which register is which.
#![allow(clippy::needless_range_loop)]

use std::arch::asm;
use std::arch::x86_64::*;

use super::Job;
use super::lanes::{self, Activations, Lanes, Source};
use crate::avx2::Avx2;
use crate::blocks::GROUP;
use crate::simd::operations;

/// As [`Quant::dot_interleaved`](super::Quant::dot_interleaved).
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn dot_interleaved(job: Job<'_>) {
    // SAFETY: the features that make this function are those that `new` asks for.
    lanes::dot_interleaved(unsafe { Avx2::new() }, job);
}

impl Lanes for Avx2 {
    type F = Avx2;
    type I = __m256i;
    const BY_NIBBLES: bool = true;

    #[inline(always)]
    fn simd(self) -> Avx2 {
        self
    }

    #[inline(always)]
    unsafe fn load(self, p: *const u8) -> __m256i {
        // SAFETY: the caller's, and `self` proves the instructions; so below.
        unsafe { _mm256_loadu_si256(p.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut u8, v: __m256i) {
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(p.cast(), v) }
    }

    #[inline(always)]
    unsafe fn widen_pairs(self, p: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_cvtepi8_epi16(_mm_loadu_si128(p.cast())) }
    }

    #[inline(always)]
    unsafe fn numbers(self, p: *const u8) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast()))) }
    }

    operations! {
        fn and(v: __m256i, byte: i8) -> __m256i = _mm256_and_si256(v, _mm256_set1_epi8(byte));
        fn or(a: __m256i, b: __m256i) -> __m256i = _mm256_or_si256(a, b);
        fn left(v: __m256i, by: i32) -> __m256i = _mm256_sll_epi16(v, _mm_cvtsi32_si128(by));
        fn right(v: __m256i, by: i32) -> __m256i = _mm256_srl_epi16(v, _mm_cvtsi32_si128(by));
        fn to_f32(v: __m256i) -> __m256 = _mm256_cvtepi32_ps(v);
    }

    #[inline(always)]
    unsafe fn group<W: Source, const R: usize, const P: usize>(
        self,
        x: Activations,
        w: *const u8,
        panel: usize,
    ) -> [[__m256i; P]; R] {
        // SAFETY: the caller's, and `self` proves the instructions.
        unsafe {
            let zero = _mm256_setzero_si256();
            // Of 4 bytes, or 2 times 16 bits, in each lane.
            macro_rules! splat {
                ($p:expr) => {
                    _mm256_set1_epi32($p.cast::<i32>().read_unaligned())
                };
            }
            // The negative sums of a group's activations, or of its first half.
            macro_rules! pairs {
                ($r:ident, $at:literal) => {
                    splat!(x.pairs.add($r * 4 + $at))
                };
            }
            // Vectors $j of codes, through $part, by activations.
            macro_rules! multiply {
                ($sums:ident, $($j:literal)*) => {$(
                    let mut codes = [zero; P];
                    for p in 0..P {
                        codes[p] = W::codes::<Self, $j>(self, w.add(p * panel));
                    }
                    for r in 0..R {
                        let activations = splat!(x.codes.add(r * GROUP + 4 * $j));
                        for p in 0..P {
                            $sums[r][p] = add_products($sums[r][p], codes[p], activations);
                        }
                    }
                )*};
            }
            let ones = _mm256_set1_epi16(1);
            let mut totals = [[zero; P]; R];
            match W::SCHEME.bits {
                4 => {
                    if W::SCHEME.offset != 0 {
                        for r in 0..R {
                            totals[r] = [_mm256_slli_epi16::<3>(pairs!(r, 0)); P];
                        }
                    }
                    multiply!(totals, 0 1 2 3 4 5 6 7);
                    for r in 0..R {
                        for p in 0..P {
                            totals[r][p] = _mm256_madd_epi16(totals[r][p], ones);
                        }
                    }
                }
                5 => {
                    for r in 0..R {
                        totals[r] = [_mm256_slli_epi16::<4>(pairs!(r, 0)); P];
                    }
                    multiply!(totals, 0 1 2 3 4 5 6 7);
                    for r in 0..R {
                        // What centring took.
                        let taken = _mm256_madd_epi16(pairs!(r, 0), _mm256_set1_epi16(-16));
                        for p in 0..P {
                            totals[r][p] = _mm256_madd_epi16(totals[r][p], ones);
                            if W::SCHEME.offset == 0 {
                                totals[r][p] = _mm256_add_epi32(totals[r][p], taken);
                            }
                        }
                    }
                }
                6 => {
                    let mut sums = totals;
                    macro_rules! add {
                        ($half:literal) => {
                            for p in 0..P {
                                // The scale of this half, for both sums of two.
                                let this = _mm256_set1_epi64x(0x0504_0504_0100_0100 + $half * 0x0202_0202_0202_0202);
                                let this = _mm256_add_epi8(
                                    this,
                                    _mm256_setr_epi64x(0, 0x0808_0808_0808_0808, 0, 0x0808_0808_0808_0808),
                                );
                                let scales = _mm256_shuffle_epi8(W::halves(self, w.add(p * panel)), this);
                                for r in 0..R {
                                    let products = _mm256_madd_epi16(sums[r][p], scales);
                                    totals[r][p] = _mm256_add_epi32(totals[r][p], products);
                                }
                            }
                        };
                    }
                    for r in 0..R {
                        sums[r] = [_mm256_slli_epi16::<5>(pairs!(r, 2)); P];
                    }
                    multiply!(sums, 0 1 2 3);
                    add!(0);
                    for r in 0..R {
                        sums[r] = [_mm256_slli_epi16::<5>(_mm256_sub_epi16(pairs!(r, 0), pairs!(r, 2))); P];
                    }
                    multiply!(sums, 4 5 6 7);
                    add!(1);
                }
                _ => {
                    // code − 128 = 16 · (upper nibble − 8) + lower nibble
                    let mut upper = totals;
                    for r in 0..R {
                        upper[r] = [_mm256_slli_epi16::<3>(pairs!(r, 0)); P];
                    }
                    macro_rules! both {
                        ($($j:literal)*) => {$(
                            let mut codes = [[zero; 2]; P];
                            for p in 0..P {
                                codes[p] = W::nibbles::<Self, $j>(self, w.add(p * panel));
                            }
                            for r in 0..R {
                                let activations = splat!(x.codes.add(r * GROUP + 4 * $j));
                                for p in 0..P {
                                    totals[r][p] = add_products(totals[r][p], codes[p][0], activations);
                                    upper[r][p] = add_products(upper[r][p], codes[p][1], activations);
                                }
                            }
                        )*};
                    }
                    both!(0 1 2 3 4 5 6 7);
                    for r in 0..R {
                        for p in 0..P {
                            totals[r][p] = _mm256_add_epi32(
                                _mm256_madd_epi16(totals[r][p], ones),
                                _mm256_madd_epi16(upper[r][p], _mm256_set1_epi16(16)),
                            );
                        }
                    }
                }
            }
            totals
        }
    }
}

/// Sums of two products each, of codes without and activations with a sign, added in 16 bits. In the order of the calls: the
/// compiler's own order of so many sums needs more registers than there are.
#[target_feature(enable = "avx2")]
#[inline]
fn add_products(mut sums: __m256i, codes: __m256i, activations: __m256i) -> __m256i {
    // SAFETY: instructions of AVX2 on registers alone.
    unsafe {
        asm!(
            "vpmaddubsw {products}, {codes}, {activations}",
            "vpaddw {sums}, {sums}, {products}",
            products = out(ymm_reg) _, codes = in(ymm_reg) codes, activations = in(ymm_reg) activations,
            sums = inout(ymm_reg) sums, options(nomem, nostack, preserves_flags),
        );
    }
    sums
}
