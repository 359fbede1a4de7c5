//! How are ggml's i-quants decoded? A code is the index of a lattice point: the magnitudes of eight or four weights at
//! once; signs are apart, except in the one-bit formats. Layouts after `ggml-common.h` of ggml (MIT).

use super::blocks::{decode_blocks, f16_at, u16_at, u32_at};
use super::{grids, plain::f16_to_f32};

/// What the digits of the two-bit lattices stand for.
const TWO: [f32; 4] = [8.0, 25.0, 43.0, 0.0];
/// What the digits of `IQ3_XXS` stand for.
const THREE_XXS: [f32; 8] = [4.0, 12.0, 20.0, 28.0, 36.0, 44.0, 52.0, 62.0];
/// What the digits of `IQ3_S` stand for.
const THREE_S: [f32; 8] = [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0];
/// What the digits of the one-bit lattice stand for.
const ONE: [f32; 4] = [-1.0, 0.0, 1.0, 0.0];
/// By how much the one-bit formats shift a group.
const DELTA: f32 = 0.125;

/// Eight weights at a point of a two-bit lattice; bit `i` of `signs` negates weight `i`.
#[inline(always)]
fn point8(out: &mut [f32], scale: f32, point: u16, signs: u8) {
    for (i, value) in out.iter_mut().enumerate() {
        let magnitude = scale * TWO[usize::from(point >> (2 * i) & 3)];
        *value = if signs >> i & 1 == 0 { magnitude } else { -magnitude };
    }
}

/// Four weights at a point of a three-bit lattice; bit `i` of `signs` negates weight `i`.
#[inline(always)]
fn point4(out: &mut [f32], scale: f32, table: &[f32; 8], point: u16, signs: u8) {
    for (i, value) in out.iter_mut().enumerate() {
        let magnitude = scale * table[usize::from(point >> (3 * i) & 7)];
        *value = if signs >> i & 1 == 0 { magnitude } else { -magnitude };
    }
}

/// Eight signs from seven bits: the number of minus signs is even.
#[inline]
fn even_signs(bits: u32) -> u8 {
    let bits = (bits & 127) as u8;
    bits | ((bits.count_ones() & 1) as u8) << 7
}

/// `[f16 scale]`, then 8 times `[4 bytes: points][4 × 7 bits: signs, 4 bits: scale]` for 32 weights.
pub(super) fn decode_iq2_xxs(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<66, 256>(bytes, out, |block, out| {
        let d = f16_at(block, 0);
        for (p, weights) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let signs = u32_at(block, 2 + p / 4 * 8 + 4);
            let scale = d * (0.5 + (signs >> 28) as f32) * 0.25;
            let point = grids::IQ2_XXS[usize::from(block[2 + p / 4 * 8 + p % 4])];
            point8(weights, scale, point, even_signs(signs >> (p % 4 * 7)));
        }
    });
}

/// `[f16 scale][32 × (9 bits: point, 7 bits: signs)][8 bytes: 4-bit scales]`, groups of 16.
pub(super) fn decode_iq2_xs(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<74, 256>(bytes, out, |block, out| {
        let d = f16_at(block, 0);
        for (p, weights) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let code = u16_at(block, 2 + 2 * p);
            let point = grids::IQ2_XS[usize::from(code & 511)];
            point8(weights, two_bit_scale(d, &block[66..], p), point, even_signs(u32::from(code >> 9)));
        }
    });
}

/// The scale of point `p`, from nibbles for groups of 16 weights.
#[inline]
fn two_bit_scale(d: f32, scales: &[u8], p: usize) -> f32 {
    let scale = scales[p / 4] >> (p % 4 / 2 * 4) & 15;
    d * (0.5 + f32::from(scale)) * 0.25
}

/// `[f16 scale][32 bytes: points][32 bytes: signs][8 bytes: upper 2 bits of points][8 bytes: 4-bit scales]`, groups of 16.
pub(super) fn decode_iq2_s(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<82, 256>(bytes, out, |block, out| {
        let d = f16_at(block, 0);
        for (p, weights) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let high = block[66 + p / 4] >> (p % 4 * 2) & 3;
            let point = grids::IQ2_S[usize::from(high) << 8 | usize::from(block[2 + p])];
            point8(weights, two_bit_scale(d, &block[74..], p), point, block[34 + p]);
        }
    });
}

/// `[f16 scale][64 bytes: points][8 × (4 × 7 bits: signs, 4 bits: scale)]`, groups of 32.
pub(super) fn decode_iq3_xxs(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<98, 256>(bytes, out, |block, out| {
        let d = f16_at(block, 0);
        for (p, weights) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let signs = u32_at(block, 66 + p / 8 * 4);
            let scale = d * (0.5 + (signs >> 28) as f32) * 0.5;
            let eight = even_signs(signs >> (p % 8 / 2 * 7));
            point4(weights, scale, &THREE_XXS, grids::IQ3_XXS[usize::from(block[2 + p])], eight >> (p % 2 * 4));
        }
    });
}

/// `[f16 scale][64 bytes: points][8 bytes: ninth bits of points][32 bytes: signs][4 bytes: 4-bit scales]`, groups of 32.
pub(super) fn decode_iq3_s(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<110, 256>(bytes, out, |block, out| {
        let d = f16_at(block, 0);
        for (p, weights) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let high = block[66 + p / 8] >> (p % 8) & 1;
            let point = grids::IQ3_S[usize::from(high) << 8 | usize::from(block[2 + p])];
            let scale = block[106 + p / 16] >> (p % 16 / 8 * 4) & 15;
            let signs = block[74 + p / 2] >> (p % 2 * 4);
            point4(weights, d * (1.0 + 2.0 * f32::from(scale)), &THREE_S, point, signs);
        }
    });
}

/// Eight weights of −1, 0 or 1, shifted by a little.
#[inline(always)]
fn point1(out: &mut [f32], scale: f32, point: u16, delta: f32) {
    for (i, value) in out.iter_mut().enumerate() {
        *value = scale * (ONE[usize::from(point >> (2 * i) & 3)] + delta);
    }
}

/// `[f16 scale][32 bytes: points][8 × (4 × 3 bits: upper bits of points, 3 bits: scale, sign of the shift)]`, groups of 32.
pub(super) fn decode_iq1_s(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<50, 256>(bytes, out, |block, out| {
        let d = f16_at(block, 0);
        for (p, weights) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let word = u16_at(block, 34 + p / 4 * 2);
            let high = word >> (p % 4 * 3) & 7;
            let scale = d * f32::from(2 * (word >> 12 & 7) + 1);
            let delta = if word & 0x8000 == 0 { DELTA } else { -DELTA };
            point1(weights, scale, grids::IQ1_S[usize::from(high) << 8 | usize::from(block[p + 2])], delta);
        }
    });
}

/// `[32 bytes: points][16 bytes of nibbles: upper 3 bits of a point, sign of its shift][8 bytes: 3-bit scales]`, groups of
/// 16. The half-precision scale is spread over the top nibbles of the four 16-bit words of scales.
pub(super) fn decode_iq1_m(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<56, 256>(bytes, out, |block, out| {
        let words: [u16; 4] = std::array::from_fn(|k| u16_at(block, 48 + 2 * k));
        let d = f16_to_f32((0..4).fold(0, |bits, k| bits | words[k] >> 12 << (4 * k)));
        for (p, weights) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let nibble = block[32 + p / 2] >> (p % 2 * 4) & 15;
            let scale = d * f32::from(2 * (words[p / 8] >> (p % 8 / 2 * 3) & 7) + 1);
            let delta = if nibble & 8 == 0 { DELTA } else { -DELTA };
            let point = grids::IQ1_S[usize::from(nibble & 7) << 8 | usize::from(block[p])];
            point1(weights, scale, point, delta);
        }
    });
}
