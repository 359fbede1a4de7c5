//! How are ggml's K-quants decoded? 256 values in groups of 16 or 32, whose scales are small integers times one half-precision
//! scale: two levels. Layouts after `ggml-common.h` of ggml (MIT).

use super::blocks::{decode_blocks, f16_at};

/// `[16 bytes: scale, minimum nibbles][64 bytes: 2-bit codes][f16 scale][f16 minimum]`, groups of 16,
/// value = scale · code − minimum.
pub(super) fn decode_q2_k(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<84, 256>(bytes, out, |block, out| {
        let (d, dmin) = (f16_at(block, 80), f16_at(block, 82));
        for (g, group) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let (dl, ml) = (d * f32::from(block[g] & 15), dmin * f32::from(block[g] >> 4));
            let (qs, shift) = two_bits(&block[16..80], g);
            for (value, q) in group.iter_mut().zip(qs) {
                *value = dl * f32::from(q >> shift & 3) - ml;
            }
        }
    });
}

/// The 16 bytes and the shift where the two-bit codes of group `g` lie: 32 bytes hold 128 values in four planes.
#[inline]
fn two_bits(qs: &[u8], g: usize) -> (&[u8], usize) {
    (&qs[g / 8 * 32 + g % 2 * 16..][..16], g % 8 / 2 * 2)
}

/// `[32 bytes: third bits][64 bytes: 2-bit codes][12 bytes: 6-bit scales][f16 scale]`, groups of 16,
/// value = scale · (group scale − 32) · (code − 4).
pub(super) fn decode_q3_k(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<110, 256>(bytes, out, |block, out| {
        let (high, scales, d) = (&block[..32], &block[96..108], f16_at(block, 108));
        for (g, group) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let low = scales[g % 8] >> (g / 8 * 4) & 15;
            let scale = low | (scales[8 + g % 4] >> (g / 4 * 2) & 3) << 4;
            let dl = d * (f32::from(scale) - 32.0);
            let (qs, shift) = two_bits(&block[32..96], g);
            for ((value, q), h) in group.iter_mut().zip(qs).zip(&high[g % 2 * 16..]) {
                let code = (q >> shift & 3) | (h >> (g / 2) & 1) << 2;
                *value = dl * (f32::from(code) - 4.0);
            }
        }
    });
}

/// Scale and minimum of group `g` of 8, from the 12 bytes in which `Q4_K` and `Q5_K` keep them, 6 bits each.
#[inline]
fn scale_and_min(packed: &[u8], g: usize) -> (f32, f32) {
    let (scale, min) = if g < 4 {
        (packed[g] & 63, packed[g + 4] & 63)
    } else {
        let low = packed[g + 4];
        (low & 15 | packed[g - 4] >> 2 & 0x30, low >> 4 | packed[g] >> 2 & 0x30)
    };
    (f32::from(scale), f32::from(min))
}

/// `[f16 scale][f16 minimum][12 bytes: scales, minima][128 bytes: nibbles]`, groups of 32, value = scale · code − minimum.
pub(super) fn decode_q4_k(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<144, 256>(bytes, out, |block, out| {
        let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
        for (g, group) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (scale, min) = scale_and_min(&block[4..16], g);
            let (dl, ml) = (d * scale, dmin * min);
            for (value, q) in group.iter_mut().zip(&block[16 + g / 2 * 32..]) {
                *value = dl * f32::from(q >> (g % 2 * 4) & 15) - ml;
            }
        }
    });
}

/// `[f16 scale][f16 minimum][12 bytes: scales, minima][32 bytes: fifth bits][128 bytes: nibbles]`, groups of 32,
/// value = scale · code − minimum.
pub(super) fn decode_q5_k(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<176, 256>(bytes, out, |block, out| {
        let (d, dmin, high) = (f16_at(block, 0), f16_at(block, 2), &block[16..48]);
        for (g, group) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (scale, min) = scale_and_min(&block[4..16], g);
            let (dl, ml) = (d * scale, dmin * min);
            for ((value, q), h) in group.iter_mut().zip(&block[48 + g / 2 * 32..]).zip(high) {
                let code = (q >> (g % 2 * 4) & 15) | (h >> g & 1) << 4;
                *value = dl * f32::from(code) - ml;
            }
        }
    });
}

/// `[128 bytes: nibbles][64 bytes: upper 2 bits][16 signed bytes: scales][f16 scale]`, groups of 16,
/// value = scale · group scale · (code − 32).
pub(super) fn decode_q6_k(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<210, 256>(bytes, out, |block, out| {
        let d = f16_at(block, 208);
        for (g, group) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let dl = d * f32::from(block[192 + g] as i8);
            let low = &block[g / 8 * 64 + g % 4 * 16..][..16];
            let high = &block[128 + g / 8 * 32 + g % 2 * 16..][..16];
            for ((value, l), h) in group.iter_mut().zip(low).zip(high) {
                let code = (l >> (g % 8 / 4 * 4) & 15) | (h >> (g % 8 / 2 * 2) & 3) << 4;
                *value = dl * (f32::from(code) - 32.0);
            }
        }
    });
}
