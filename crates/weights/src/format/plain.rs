//! How are the formats without blocks decoded and encoded? Little-endian elements, one after another, at any alignment.
//!
//! Decoders are exact, except `F64`, which rounds to nearest.

use half::{bf16, f16};

/// The value of a half-precision float (IEEE 754 binary16), without branches, so that loops over it vectorize.
#[inline]
pub fn f16_to_f32(bits: u16) -> f32 {
    // The exponent is 112 too small after the shift; a multiplication by 2^112 mends it, for subnormal numbers too.
    let magnitude = f32::from_bits(u32::from(bits & 0x7fff) << 13) * f32::from_bits(0x7780_0000);
    let special = if magnitude >= 65536.0 { 0x7f80_0000 } else { 0 };
    f32::from_bits(magnitude.to_bits() | special | u32::from(bits & 0x8000) << 16)
}

/// The value of a bfloat16: the upper half of a `f32`.
#[inline]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Fills `out` with `read` of each `N` bytes.
#[inline(always)]
fn each<const N: usize>(bytes: &[u8], out: &mut [f32], read: impl Fn([u8; N]) -> f32) {
    for (value, element) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *value = read(*element);
    }
}

pub(super) fn decode_f64(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, |b| f64::from_le_bytes(b) as f32);
}

pub(super) fn decode_f32(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, f32::from_le_bytes);
}

pub(super) fn decode_f16(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, |b| f16_to_f32(u16::from_le_bytes(b)));
}

pub(super) fn decode_bf16(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, |b| bf16_to_f32(u16::from_le_bytes(b)));
}

/// `F8_E4M3` of safetensors is the "FN" variant: no infinities, 0x7f and 0xff are NaN. <https://arxiv.org/abs/2209.05433>
pub(super) fn decode_f8_e4m3(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, |[b]| {
        let sign = if b & 0x80 != 0 { -1.0 } else { 1.0 };
        let (exponent, mantissa) = (i32::from(b >> 3 & 15), f32::from(b & 7));
        sign * match (exponent, b & 7) {
            (15, 7) => f32::NAN,
            (0, _) => mantissa * 2f32.powi(-9),
            _ => (8.0 + mantissa) * 2f32.powi(exponent - 10),
        }
    });
}

/// `F8_E5M2` is the upper half of a half-precision float. <https://arxiv.org/abs/2209.05433>
pub(super) fn decode_f8_e5m2(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, |[b]| f16_to_f32(u16::from(b) << 8));
}

pub(super) fn decode_i8(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, |b| f32::from(i8::from_le_bytes(b)));
}

pub(super) fn decode_u8(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, |[b]| f32::from(b));
}

pub(super) fn decode_i16(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, |b| f32::from(i16::from_le_bytes(b)));
}

pub(super) fn decode_u16(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, |b| f32::from(u16::from_le_bytes(b)));
}

/// Writes `write` of each value as the next `N` bytes.
#[inline(always)]
fn put<const N: usize>(values: &[f32], out: &mut [u8], write: impl Fn(f32) -> [u8; N]) {
    for (element, &value) in out.as_chunks_mut::<N>().0.iter_mut().zip(values) {
        *element = write(value);
    }
}

pub(super) fn encode_f64(values: &[f32], out: &mut [u8]) {
    put(values, out, |v| f64::from(v).to_le_bytes());
}

pub(super) fn encode_f32(values: &[f32], out: &mut [u8]) {
    put(values, out, f32::to_le_bytes);
}

/// Rounds to nearest, ties to even.
pub(super) fn encode_f16(values: &[f32], out: &mut [u8]) {
    put(values, out, |v| f16::from_f32(v).to_le_bytes());
}

/// Rounds to nearest, ties to even.
pub(super) fn encode_bf16(values: &[f32], out: &mut [u8]) {
    put(values, out, |v| bf16::from_f32(v).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_equals_the_half_crate() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f16_to_f32(bits), f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "{bits:04x}");
            let (ours, theirs) = (bf16_to_f32(bits), bf16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "{bits:04x}");
        }
    }

    #[test]
    fn halves_survive_a_round_trip_bit_for_bit() {
        for bits in (0..=u16::MAX).filter(|&b| f16_to_f32(b).is_finite()) {
            let mut out = [0; 2];
            encode_f16(&[f16_to_f32(bits)], &mut out);
            assert_eq!(u16::from_le_bytes(out), bits);
        }
    }

    #[test]
    fn eight_bit_floats_have_the_published_extremes() {
        let mut out = [0.0; 6];
        decode_f8_e4m3(&[0x7e, 0x01, 0x08, 0xb8, 0x80, 0x7f], &mut out);
        assert_eq!(out[..4], [448.0, 2f32.powi(-9), 2f32.powi(-6), -1.0]);
        assert!(out[4] == 0.0 && out[4].is_sign_negative() && out[5].is_nan());
        decode_f8_e5m2(&[0x7b, 0x01, 0x04, 0xbc, 0x7c, 0x7f], &mut out);
        assert_eq!(out[..5], [57344.0, 2f32.powi(-16), 2f32.powi(-14), -1.0, f32::INFINITY]);
        assert!(out[5].is_nan());
    }

    #[test]
    fn integers_and_doubles_decode_to_their_values() {
        let mut out = [0.0; 2];
        decode_i8(&[0x80, 0x7f], &mut out);
        assert_eq!(out, [-128.0, 127.0]);
        decode_u8(&[0x80, 0xff], &mut out);
        assert_eq!(out, [128.0, 255.0]);
        decode_i16(&[0, 0x80, 0xff, 0x7f], &mut out);
        assert_eq!(out, [-32768.0, 32767.0]);
        decode_u16(&[0, 0x80, 0xff, 0xff], &mut out);
        assert_eq!(out, [32768.0, 65535.0]);
        decode_f64(&[1.5f64.to_le_bytes(), (-0.1f64).to_le_bytes()].concat(), &mut out);
        assert_eq!(out, [1.5, -0.1]);
    }
}
