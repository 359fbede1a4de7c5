//! How are blocks of weights unpacked with AVX2? Eight formats, each by the integers that it codes and the scales that
//! they are multiplied by; decoding to f32 uses them.
//!
//! Layouts as in the tables of `weights`, after `ggml-common.h` of ggml (MIT).

use std::arch::x86_64::*;

use weights::Format;

/// A format of 32 values with one scale: value = scale · (code − offset), or scale · code + minimum.
trait Short {
    /// Bytes of a block.
    const BYTES: usize;
    /// Has it a minimum behind the scale?
    const MINIMUM: bool = false;
    /// What is subtracted from a code.
    const OFFSET: i8 = 0;

    /// The 32 codes.
    ///
    /// # Safety
    /// `BYTES` bytes can be read at `p`; so for all functions of the formats.
    unsafe fn codes(p: *const u8) -> __m256i;
}

struct Q8_0;
struct Q4_0;
struct Q4_1;
struct Q5_0;
struct Q5_1;

impl Short for Q8_0 {
    const BYTES: usize = 34;
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    unsafe fn codes(p: *const u8) -> __m256i {
        // SAFETY: the caller's.
        unsafe { _mm256_loadu_si256(p.add(2).cast()) }
    }
}

impl Short for Q4_0 {
    const BYTES: usize = 18;
    const OFFSET: i8 = 8;
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    unsafe fn codes(p: *const u8) -> __m256i {
        // SAFETY: the caller's.
        unsafe { nibbles(p.add(2)) }
    }
}

impl Short for Q4_1 {
    const BYTES: usize = 20;
    const MINIMUM: bool = true;
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    unsafe fn codes(p: *const u8) -> __m256i {
        // SAFETY: the caller's.
        unsafe { nibbles(p.add(4)) }
    }
}

impl Short for Q5_0 {
    const BYTES: usize = 22;
    const OFFSET: i8 = 16;
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    unsafe fn codes(p: *const u8) -> __m256i {
        // SAFETY: the caller's.
        unsafe { _mm256_or_si256(nibbles(p.add(6)), fifth_bits(p.add(2))) }
    }
}

impl Short for Q5_1 {
    const BYTES: usize = 24;
    const MINIMUM: bool = true;
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    unsafe fn codes(p: *const u8) -> __m256i {
        // SAFETY: the caller's.
        unsafe { _mm256_or_si256(nibbles(p.add(8)), fifth_bits(p.add(4))) }
    }
}

/// 16 bytes as 32 codes, the lower nibbles first.
///
/// # Safety
/// 16 bytes can be read at `p`.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn nibbles(p: *const u8) -> __m256i {
    // SAFETY: the caller's.
    let bytes = unsafe { _mm_loadu_si128(p.cast()) };
    let both = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(bytes), _mm_srli_epi16::<4>(bytes));
    _mm256_and_si256(both, _mm256_set1_epi8(15))
}

/// 32 bits as bytes of 0 or 16.
///
/// # Safety
/// 4 bytes can be read at `p`.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn fifth_bits(p: *const u8) -> __m256i {
    // SAFETY: the caller's.
    let bits = unsafe { p.cast::<i32>().read_unaligned() };
    let byte_of = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
    let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), byte_of);
    let bit_of = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    let is_set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit_of), bit_of);
    _mm256_and_si256(is_set, _mm256_set1_epi8(16))
}

/// The scale, and the minimum where the format has one (else the scale again), in the two lowest lanes.
///
/// # Safety
/// As [`Short::codes`].
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn scales<F: Short>(p: *const u8) -> __m128 {
    // SAFETY: the caller's.
    unsafe {
        if F::MINIMUM {
            _mm_cvtph_ps(_mm_cvtsi32_si128(p.cast::<i32>().read_unaligned()))
        } else {
            _mm_cvtph_ps(_mm_set1_epi16(p.cast::<i16>().read_unaligned()))
        }
    }
}

/// A format of 256 values in groups of 32: value = factor · code − minimum, where each group, or each half of one,
/// has a small integer in its factor.
trait Long {
    /// Bytes of a block.
    const BYTES: usize;
    /// What is unpacked once a block.
    type Head: Copy;

    /// # Safety
    /// `BYTES` bytes can be read at `p`; so for all functions of the formats.
    unsafe fn head(p: *const u8) -> Self::Head;
    /// The codes of group `G`, 0..=63.
    ///
    /// # Safety
    /// As [`Long::head`].
    unsafe fn codes<const G: usize>(p: *const u8) -> __m256i;
    /// Group `G` in f32: factors and minima of its first and second half.
    ///
    /// # Safety
    /// As [`Long::head`].
    unsafe fn parameters(p: *const u8, head: Self::Head, g: usize) -> [(f32, f32); 2];
    /// What is subtracted from a code as it is decoded.
    const OFFSET: i8 = 0;
}

struct Q4K;
struct Q5K;
struct Q6K;

/// Scales and minima of the eight groups of Q4_K and Q5_K.
#[derive(Clone, Copy)]
struct Head {
    factors: __m256,
    minima: __m256,
}

/// # Safety
/// 16 bytes can be read at `p`: two half-precision scales and 12 bytes with scales and minima of 6 bits.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn head(p: *const u8) -> Head {
    // SAFETY: the caller's.
    let (both, [a, b, c]) = unsafe {
        let both = _mm_cvtph_ps(_mm_cvtsi32_si128(p.cast::<i32>().read_unaligned()));
        (both, p.add(4).cast::<[u32; 3]>().read_unaligned())
    };
    // Four at a time: the lower six bits, and for the last four a nibble below the first four's upper two bits.
    let scales = [a & 0x3f3f_3f3f, c & 0x0f0f_0f0f | (a >> 6 & 0x0303_0303) << 4];
    let minima = [b & 0x3f3f_3f3f, c >> 4 & 0x0f0f_0f0f | (b >> 6 & 0x0303_0303) << 4];
    let widen = |[low, high]: [u32; 2]| {
        let bytes = _mm_cvtsi64_si128((u64::from(high) << 32 | u64::from(low)) as i64);
        _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes))
    };
    let (d, dmin) = (_mm256_broadcastss_ps(both), _mm256_broadcastss_ps(_mm_movehdup_ps(both)));
    Head { factors: _mm256_mul_ps(d, widen(scales)), minima: _mm256_mul_ps(dmin, widen(minima)) }
}

/// Nibbles of 32 bytes: the lower ones, or where `UPPER` the upper ones.
///
/// # Safety
/// 32 bytes can be read at `p`.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn nibble<const UPPER: bool>(p: *const u8) -> __m256i {
    // SAFETY: the caller's.
    let bytes = unsafe { _mm256_loadu_si256(p.cast()) };
    let bytes = if UPPER { _mm256_srli_epi16::<4>(bytes) } else { bytes };
    _mm256_and_si256(bytes, _mm256_set1_epi8(15))
}

/// # Safety
/// As [`nibble`].
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn nibble_of(p: *const u8, upper: bool) -> __m256i {
    // SAFETY: the caller's.
    unsafe { if upper { nibble::<true>(p) } else { nibble::<false>(p) } }
}

/// Lane `i`.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn lane(v: __m256, i: usize) -> f32 {
    let mut lanes = [0f32; 8];
    // SAFETY: eight numbers.
    unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), v) };
    lanes[i]
}

macro_rules! with_minima {
    ($format:ident, $bytes:literal, $codes:expr) => {
        impl Long for $format {
            const BYTES: usize = $bytes;
            type Head = Head;
            #[target_feature(enable = "avx2,fma,f16c")]
            #[inline]
            unsafe fn head(p: *const u8) -> Head {
                // SAFETY: the caller's.
                unsafe { head(p) }
            }
            #[target_feature(enable = "avx2,fma,f16c")]
            #[inline]
            unsafe fn codes<const G: usize>(p: *const u8) -> __m256i {
                // SAFETY: the caller's.
                unsafe { $codes(p, G) }
            }
            #[target_feature(enable = "avx2,fma,f16c")]
            #[inline]
            unsafe fn parameters(_: *const u8, head: Head, g: usize) -> [(f32, f32); 2] {
                [(lane(head.factors, g), lane(head.minima, g)); 2]
            }
        }
    };
}

with_minima!(Q4K, 144, |p: *const u8, g: usize| nibble_of(p.add(16 + g / 2 * 32), g % 2 == 1));
with_minima!(Q5K, 176, |p: *const u8, g: usize| {
    let high = _mm256_loadu_si256(p.add(16).cast());
    let high = match g {
        0 => _mm256_slli_epi16::<4>(high),
        1 => _mm256_slli_epi16::<3>(high),
        2 => _mm256_slli_epi16::<2>(high),
        3 => _mm256_slli_epi16::<1>(high),
        4 => high,
        5 => _mm256_srli_epi16::<1>(high),
        6 => _mm256_srli_epi16::<2>(high),
        _ => _mm256_srli_epi16::<3>(high),
    };
    let low = nibble_of(p.add(48 + g / 2 * 32), g % 2 == 1);
    _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(16)))
});

impl Long for Q6K {
    const BYTES: usize = 210;
    const OFFSET: i8 = 32;
    type Head = f32;

    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    unsafe fn head(p: *const u8) -> f32 {
        // SAFETY: the caller's.
        unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_set1_epi16(p.add(208).cast::<i16>().read_unaligned()))) }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    unsafe fn codes<const G: usize>(p: *const u8) -> __m256i {
        // SAFETY: the caller's.
        let (low, high) = unsafe {
            let low = nibble_of(p.add(G / 4 * 64 + G % 2 * 32), G % 4 / 2 == 1);
            (low, _mm256_loadu_si256(p.add(128 + G / 4 * 32).cast()))
        };
        let high = match G % 4 {
            0 => _mm256_slli_epi16::<4>(high),
            1 => _mm256_slli_epi16::<2>(high),
            2 => high,
            _ => _mm256_srli_epi16::<2>(high),
        };
        _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(0x30)))
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    unsafe fn parameters(p: *const u8, d: f32, g: usize) -> [(f32, f32); 2] {
        // SAFETY: the caller's.
        let scale = |half: usize| unsafe { f32::from(*p.add(192 + 2 * g + half).cast::<i8>()) };
        [(d * scale(0), 0.0), (d * scale(1), 0.0)]
    }
}

/// Decodes whole blocks of the formats of this module, to the bits of `weights`; `false`, and nothing done, for others.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn decode(format: Format, bytes: &[u8], out: &mut [f32]) -> bool {
    match format {
        Format::Q8_0 => decode_short::<Q8_0>(bytes, out),
        Format::Q4_0 => decode_short::<Q4_0>(bytes, out),
        Format::Q4_1 => decode_short::<Q4_1>(bytes, out),
        Format::Q5_0 => decode_short::<Q5_0>(bytes, out),
        Format::Q5_1 => decode_short::<Q5_1>(bytes, out),
        Format::Q4_K => decode_long::<Q4K>(bytes, out),
        Format::Q5_K => decode_long::<Q5K>(bytes, out),
        Format::Q6_K => decode_long::<Q6K>(bytes, out),
        _ => return false,
    }
    true
}

#[target_feature(enable = "avx2,fma,f16c")]
fn decode_short<F: Short>(bytes: &[u8], out: &mut [f32]) {
    for (block, out) in bytes.chunks_exact(F::BYTES).zip(out.as_chunks_mut::<32>().0) {
        // SAFETY: a block has F::BYTES bytes.
        let (codes, both) = unsafe { (F::codes(block.as_ptr()), scales::<F>(block.as_ptr())) };
        let codes = _mm256_sub_epi8(codes, _mm256_set1_epi8(F::OFFSET));
        let (d, m) = (_mm256_broadcastss_ps(both), _mm256_broadcastss_ps(_mm_movehdup_ps(both)));
        store_codes(codes, out, |_, code| {
            let value = _mm256_mul_ps(d, code);
            if F::MINIMUM { _mm256_add_ps(value, m) } else { value }
        });
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn decode_long<F: Long>(bytes: &[u8], out: &mut [f32]) {
    for (block, out) in bytes.chunks_exact(F::BYTES).zip(out.as_chunks_mut::<256>().0) {
        let p = block.as_ptr();
        // SAFETY: a block has F::BYTES bytes.
        let head = unsafe { F::head(p) };
        macro_rules! groups {
            ($($g:literal)*) => {$(
                // SAFETY: as above.
                let (codes, parameters) = unsafe { (F::codes::<$g>(p), F::parameters(p, head, $g)) };
                let codes = _mm256_sub_epi8(codes, _mm256_set1_epi8(F::OFFSET));
                let group: &mut [f32; 32] = (&mut out[$g * 32..][..32]).try_into().expect("32 numbers");
                store_codes(codes, group, |half, code| {
                    let (factor, minimum) = parameters[half];
                    let value = _mm256_mul_ps(_mm256_set1_ps(factor), code);
                    if F::OFFSET == 0 { _mm256_sub_ps(value, _mm256_set1_ps(minimum)) } else { value }
                });
            )*};
        }
        groups!(0 1 2 3 4 5 6 7);
    }
}

/// 32 codes, as f32, through `value`, which is told in which half of them it is.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn store_codes(codes: __m256i, out: &mut [f32; 32], value: impl Fn(usize, __m256) -> __m256) {
    let halves = [_mm256_castsi256_si128(codes), _mm256_extracti128_si256::<1>(codes)];
    for (half, codes) in halves.into_iter().enumerate() {
        for (part, codes) in [codes, _mm_srli_si128::<8>(codes)].into_iter().enumerate() {
            let code = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
            // SAFETY: out has eight numbers there.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr().add(half * 16 + part * 8), value(half, code)) };
        }
    }
}

/// As [`Quant::round_group`](super::Quant::round_group).
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn round_group(x: &[f32; 32], inverse: f32) -> ([i8; 32], [[i16; 2]; 2]) {
    let inverse = _mm256_set1_ps(inverse);
    // SAFETY: i < 4, and x has 32 numbers.
    let part = |i: usize| unsafe { _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x.as_ptr().add(i * 8)), inverse)) };
    let codes = _mm256_packs_epi16(_mm256_packs_epi32(part(0), part(1)), _mm256_packs_epi32(part(2), part(3)));
    let codes = _mm256_permutevar8x32_epi32(codes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    let pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
    let fold = |half: __m128i| {
        let half = _mm_add_epi16(half, _mm_srli_si128::<8>(half));
        let both = _mm_cvtsi128_si32(_mm_add_epi16(half, _mm_srli_si128::<4>(half)));
        [both as i16, (both >> 16) as i16]
    };
    let mut bytes = [0; 32];
    // SAFETY: 32 bytes.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), codes) };
    (bytes, [fold(_mm256_castsi256_si128(pairs)), fold(_mm256_extracti128_si256::<1>(pairs))])
}

/// As [`Quant::transpose`](super::Quant::transpose).
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn transpose(rows: &[f32], stride: usize, depth: usize, to: &mut [f32], width: usize) {
    assert!(depth.is_multiple_of(8) && depth <= stride && 7 * stride + depth <= rows.len());
    assert!(depth == 0 || width >= 8 && (depth - 1) * width + 8 <= to.len());
    for k in (0..depth).step_by(8) {
        // SAFETY: there are eight rows of `depth` numbers, by the assertion.
        let load = |lane: usize| unsafe { _mm256_loadu_ps(rows.as_ptr().add(lane * stride + k)) };
        let pair = |i: usize| {
            let (a, b) = (load(i), load(i + 1));
            [_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)]
        };
        let (ab, cd, ef, gh) = (pair(0), pair(2), pair(4), pair(6));
        let four = |x: [__m256; 2], y: [__m256; 2]| {
            [
                _mm256_shuffle_ps::<0x44>(x[0], y[0]),
                _mm256_shuffle_ps::<0xee>(x[0], y[0]),
                _mm256_shuffle_ps::<0x44>(x[1], y[1]),
                _mm256_shuffle_ps::<0xee>(x[1], y[1]),
            ]
        };
        let (left, right) = (four(ab, cd), four(ef, gh));
        for i in 0..4 {
            let (low, high) =
                (_mm256_permute2f128_ps::<0x20>(left[i], right[i]), _mm256_permute2f128_ps::<0x31>(left[i], right[i]));
            // SAFETY: `to` has `depth` columns of eight numbers, by the assertion.
            unsafe {
                _mm256_storeu_ps(to.as_mut_ptr().add((k + i) * width), low);
                _mm256_storeu_ps(to.as_mut_ptr().add((k + i + 4) * width), high);
            }
        }
    }
}
