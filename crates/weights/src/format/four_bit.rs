//! How are the four-bit formats with a value table coded? A code is an index: of 4-bit floats (`MXFP4`, `NVFP4`), or of
//! levels that are dense around zero (`IQ4_NL`, `IQ4_XS`).

use super::blocks::{decode_blocks, encode_blocks, f16_at, u16_at};

/// The 4-bit floats E2M1, doubled. <https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf>
const FLOATS: [f32; 16] = [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0];

/// ggml's `kvalues_iq4nl`.
const LEVELS: [f32; 16] =
    [-127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0];

/// Scales the values of the codes: all lower nibbles first, then all upper ones.
#[inline(always)]
fn look_up(table: &[f32; 16], scale: f32, codes: &[u8], out: &mut [f32]) {
    let (low, high) = out.split_at_mut(codes.len());
    for ((low, high), code) in low.iter_mut().zip(high).zip(codes) {
        *low = scale * table[usize::from(code & 15)];
        *high = scale * table[usize::from(code >> 4)];
    }
}

/// Half of 2^(exponent − 127): the table is doubled. Exponents 0 and 1 give subnormal floats.
fn half_of_e8m0(exponent: u8) -> f32 {
    f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { u32::from(exponent - 1) << 23 })
}

/// `[E8M0 scale][16 bytes: nibbles]`, value = scale · 4-bit float.
pub(super) fn decode_mxfp4(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<17, 32>(bytes, out, |block, out| look_up(&FLOATS, half_of_e8m0(block[0]), &block[1..], out));
}

/// The scale is the power of two by which the largest magnitude comes to lie in 4..8; a code is the nearest float.
pub(super) fn encode_mxfp4(values: &[f32], out: &mut [u8]) {
    encode_blocks::<32, 17>(values, out, |values, block| {
        let largest = values.iter().fold(0.0f32, |max, v| max.max(v.abs()));
        // The reference takes the logarithm in f32, which rounds magnitudes just below a power of two up to it.
        let log2 = f64::from(largest).log2() as f32;
        block[0] = if largest > 0.0 { (log2.floor() + 125.0) as u8 } else { 0 };
        let scale = half_of_e8m0(block[0]);
        let codes = values.map(|v| {
            let error = |code: usize| (scale * FLOATS[code] - v).abs();
            (1..16).fold(0, |best, code| if error(code) < error(best) { code } else { best }) as u8
        });
        for (i, byte) in block[1..].iter_mut().enumerate() {
            *byte = codes[i] | codes[i + 16] << 4;
        }
    });
}

/// Half of an unsigned E4M3 float: the table is doubled. The NaN pattern counts as zero, as in ggml.
fn half_of_ue4m3(bits: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f32::from(bits & 7));
    0.5 * match exponent {
        _ if bits == 0x7f => 0.0,
        0 => mantissa * 2f32.powi(-9),
        _ => (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7),
    }
}

/// `[4 UE4M3 scales][32 bytes: nibbles]`, groups of 16, value = scale · 4-bit float.
pub(super) fn decode_nvfp4(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<36, 64>(bytes, out, |block, out| {
        let groups = out.as_chunks_mut::<16>().0.iter_mut().zip(block[4..].as_chunks::<8>().0);
        for ((group, codes), &scale) in groups.zip(&block[..4]) {
            look_up(&FLOATS, half_of_ue4m3(scale), codes, group);
        }
    });
}

/// `[f16 scale][16 bytes: nibbles]`, value = scale · level.
pub(super) fn decode_iq4_nl(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<18, 32>(bytes, out, |block, out| look_up(&LEVELS, f16_at(block, 0), &block[2..], out));
}

/// `[f16 scale][2 bytes: upper bits of scales][4 bytes: lower bits][128 bytes: nibbles]`, groups of 32,
/// value = scale · (group scale − 32) · level.
pub(super) fn decode_iq4_xs(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<136, 256>(bytes, out, |block, out| {
        let (d, high) = (f16_at(block, 0), u16_at(block, 2));
        let groups = out.as_chunks_mut::<32>().0.iter_mut().zip(block[8..].as_chunks::<16>().0);
        for (g, (group, codes)) in groups.enumerate() {
            let low = block[4 + g / 2] >> (g % 2 * 4) & 15;
            let scale = u16::from(low) | (high >> (2 * g) & 3) << 4;
            look_up(&LEVELS, d * (f32::from(scale) - 32.0), codes, group);
        }
    });
}
