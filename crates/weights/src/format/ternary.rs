//! How are ggml's ternary formats coded? 256 values of −1, 0 or 1 times one scale: `TQ1_0` packs five into a byte, `TQ2_0`
//! four.

use super::blocks::{decode_blocks, encode_blocks, f16_at, put_f16};

/// Where `TQ1_0` keeps value `i`: its byte, and how many digits come before its own, the highest being first.
/// Bytes 0..32 hold 160 values in five planes, bytes 32..48 the next 80, bytes 48..52 the last 16 in four planes.
#[inline]
fn place(i: usize) -> (usize, usize) {
    match i {
        0..160 => (i % 32, i / 32),
        160..240 => (32 + i % 16, (i - 160) / 16),
        _ => (48 + i % 4, (i - 240) / 4),
    }
}

const POWERS: [u8; 5] = [1, 3, 9, 27, 81];

/// `[52 bytes: base-3 fractions][f16 scale]`: a byte is the five digits as a fraction of 256, rounded up; multiplying
/// by 3 moves the first digit over the point.
pub(super) fn decode_tq1_0(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<54, 256>(bytes, out, |block, out| {
        let d = f16_at(block, 52);
        for (i, value) in out.iter_mut().enumerate() {
            let (byte, digit) = place(i);
            let fraction = block[byte].wrapping_mul(POWERS[digit]);
            *value = d * (f32::from(((u16::from(fraction) * 3) >> 8) as u8) - 1.0);
        }
    });
}

/// `[64 bytes: 2-bit digits][f16 scale]`: 32 bytes hold 128 values in four planes.
pub(super) fn decode_tq2_0(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<66, 256>(bytes, out, |block, out| {
        let d = f16_at(block, 64);
        for (i, value) in out.iter_mut().enumerate() {
            let code = block[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
            *value = d * (f32::from(code) - 1.0);
        }
    });
}

/// The largest magnitude as the scale, and every value as 0, 1 or 2.
fn digits(values: &[f32; 256]) -> (f32, [u8; 256]) {
    let d = values.iter().fold(0.0f32, |max, v| max.max(v.abs()));
    let id = if d == 0.0 { 0.0 } else { 1.0 / d };
    (d, values.map(|v| ((v * id).round() + 1.0) as u8))
}

pub(super) fn encode_tq1_0(values: &[f32], out: &mut [u8]) {
    encode_blocks::<256, 54>(values, out, |values, block| {
        let (d, digits) = digits(values);
        for (i, digit) in digits.into_iter().enumerate() {
            let (byte, place) = place(i);
            block[byte] += digit * POWERS[4 - place];
        }
        for byte in &mut block[..52] {
            *byte = (u16::from(*byte) * 256).div_ceil(243) as u8;
        }
        put_f16(block, 52, d);
    });
}

pub(super) fn encode_tq2_0(values: &[f32], out: &mut [u8]) {
    encode_blocks::<256, 66>(values, out, |values, block| {
        let (d, digits) = digits(values);
        for (i, digit) in digits.into_iter().enumerate() {
            block[i / 128 * 32 + i % 32] |= digit << (i % 128 / 32 * 2);
        }
        put_f16(block, 64, d);
    });
}
