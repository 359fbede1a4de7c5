//! How are ggml's first block formats coded? 32 values with one scale (`Q4_0`, `Q5_0`, `Q8_0`), or scale and minimum
//! (`Q4_1`, `Q5_1`).
//!
//! Encoders give the bytes of ggml's reference: the code is chosen by the scale before that is rounded to half precision.

use super::blocks::{decode_blocks, encode_blocks, f16_at, put_f16};

/// Value `i` of 32 in 16 bytes of nibbles: the lower nibbles come first.
#[inline]
fn nibble(qs: &[u8], i: usize) -> u8 {
    qs[i % 16] >> (i / 16 * 4) & 15
}

fn put_nibbles(codes: &[u8; 32], qs: &mut [u8]) {
    for (i, byte) in qs.iter_mut().enumerate() {
        *byte = codes[i] & 15 | codes[i + 16] << 4;
    }
}

/// The fifth bits of 32 codes.
fn put_high_bits(codes: &[u8; 32], qh: &mut [u8]) {
    let bits = codes.iter().rev().fold(0u32, |bits, code| bits << 1 | u32::from(code >> 4));
    qh.copy_from_slice(&bits.to_le_bytes());
}

fn high_bits(qh: &[u8]) -> u32 {
    u32::from_le_bytes([qh[0], qh[1], qh[2], qh[3]])
}

/// `[f16 scale][16 bytes: nibbles]`, value = scale · (code − 8).
pub(super) fn decode_q4_0(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<18, 32>(bytes, out, |block, out| {
        let d = f16_at(block, 0);
        for (i, value) in out.iter_mut().enumerate() {
            *value = d * (f32::from(nibble(&block[2..], i)) - 8.0);
        }
    });
}

/// `[f16 scale][f16 minimum][16 bytes: nibbles]`, value = scale · code + minimum.
pub(super) fn decode_q4_1(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<20, 32>(bytes, out, |block, out| {
        let (d, m) = (f16_at(block, 0), f16_at(block, 2));
        for (i, value) in out.iter_mut().enumerate() {
            *value = d * f32::from(nibble(&block[4..], i)) + m;
        }
    });
}

/// `[f16 scale][4 bytes: fifth bits][16 bytes: nibbles]`, value = scale · (code − 16).
pub(super) fn decode_q5_0(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<22, 32>(bytes, out, |block, out| {
        let (d, qh) = (f16_at(block, 0), high_bits(&block[2..6]));
        for (i, value) in out.iter_mut().enumerate() {
            let code = nibble(&block[6..], i) | ((qh >> i & 1) << 4) as u8;
            *value = d * (f32::from(code) - 16.0);
        }
    });
}

/// `[f16 scale][f16 minimum][4 bytes: fifth bits][16 bytes: nibbles]`, value = scale · code + minimum.
pub(super) fn decode_q5_1(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<24, 32>(bytes, out, |block, out| {
        let (d, m, qh) = (f16_at(block, 0), f16_at(block, 2), high_bits(&block[4..8]));
        for (i, value) in out.iter_mut().enumerate() {
            let code = nibble(&block[8..], i) | ((qh >> i & 1) << 4) as u8;
            *value = d * f32::from(code) + m;
        }
    });
}

/// `[f16 scale][32 signed bytes]`, value = scale · code.
pub(super) fn decode_q8_0(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<34, 32>(bytes, out, |block, out| {
        let d = f16_at(block, 0);
        for (value, code) in out.iter_mut().zip(&block[2..]) {
            *value = d * f32::from(*code as i8);
        }
    });
}

/// The scale that maps the value of largest magnitude, sign included, to code 0: `half` steps below the middle.
fn signed_codes(values: &[f32; 32], half: f32) -> (f32, [u8; 32]) {
    let largest = values.iter().fold(0.0f32, |max, &v| if v.abs() > max.abs() { v } else { max });
    let d = largest / -half;
    let id = if d == 0.0 { 0.0 } else { 1.0 / d };
    (d, values.map(|v| ((v * id + (half + 0.5)) as u8).min((2.0 * half - 1.0) as u8)))
}

/// The scale and minimum that map the values to 0..=`steps`.
fn affine_codes(values: &[f32; 32], steps: f32) -> (f32, f32, [u8; 32]) {
    let (min, max) = values.iter().fold((values[0], values[0]), |(min, max), &v| (min.min(v), max.max(v)));
    let d = (max - min) / steps;
    let id = if d == 0.0 { 0.0 } else { 1.0 / d };
    (d, min, values.map(|v| (((v - min) * id + 0.5) as u8).min(steps as u8)))
}

pub(super) fn encode_q4_0(values: &[f32], out: &mut [u8]) {
    encode_blocks::<32, 18>(values, out, |values, block| {
        let (d, codes) = signed_codes(values, 8.0);
        put_f16(block, 0, d);
        put_nibbles(&codes, &mut block[2..]);
    });
}

pub(super) fn encode_q4_1(values: &[f32], out: &mut [u8]) {
    encode_blocks::<32, 20>(values, out, |values, block| {
        let (d, m, codes) = affine_codes(values, 15.0);
        put_f16(block, 0, d);
        put_f16(block, 2, m);
        put_nibbles(&codes, &mut block[4..]);
    });
}

pub(super) fn encode_q5_0(values: &[f32], out: &mut [u8]) {
    encode_blocks::<32, 22>(values, out, |values, block| {
        let (d, codes) = signed_codes(values, 16.0);
        put_f16(block, 0, d);
        put_high_bits(&codes, &mut block[2..6]);
        put_nibbles(&codes, &mut block[6..]);
    });
}

pub(super) fn encode_q5_1(values: &[f32], out: &mut [u8]) {
    encode_blocks::<32, 24>(values, out, |values, block| {
        let (d, m, codes) = affine_codes(values, 31.0);
        put_f16(block, 0, d);
        put_f16(block, 2, m);
        put_high_bits(&codes, &mut block[4..8]);
        put_nibbles(&codes, &mut block[8..]);
    });
}

pub(super) fn encode_q8_0(values: &[f32], out: &mut [u8]) {
    encode_blocks::<32, 34>(values, out, |values, block| {
        let d = values.iter().fold(0.0f32, |max, v| max.max(v.abs())) / 127.0;
        let id = if d == 0.0 { 0.0 } else { 1.0 / d };
        put_f16(block, 0, d);
        for (code, v) in block[2..].iter_mut().zip(values) {
            *code = (v * id).round() as i8 as u8;
        }
    });
}
