//! How is a row of blocks walked? The loops and the half-precision fields that all block formats share.

use super::plain::f16_to_f32;
use half::f16;

/// Decodes every block of `B` bytes to `N` values.
#[inline(always)]
pub(super) fn decode_blocks<const B: usize, const N: usize>(
    bytes: &[u8],
    out: &mut [f32],
    decode: impl Fn(&[u8; B], &mut [f32; N]),
) {
    for (block, values) in bytes.as_chunks::<B>().0.iter().zip(out.as_chunks_mut::<N>().0) {
        decode(block, values);
    }
}

/// Encodes every `N` values to a block of `B` bytes, which is zero at first.
#[inline(always)]
pub(super) fn encode_blocks<const N: usize, const B: usize>(
    values: &[f32],
    out: &mut [u8],
    encode: impl Fn(&[f32; N], &mut [u8; B]),
) {
    for (values, block) in values.as_chunks::<N>().0.iter().zip(out.as_chunks_mut::<B>().0) {
        encode(values, block);
    }
}

/// The little-endian 16 bits at `at`.
#[inline]
pub(super) fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

/// The little-endian 32 bits at `at`.
#[inline]
pub(super) fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// The half-precision float at `at`.
#[inline]
pub(super) fn f16_at(block: &[u8], at: usize) -> f32 {
    f16_to_f32(u16_at(block, at))
}

/// Writes a half-precision float at `at`, rounded to nearest.
#[inline]
pub(super) fn put_f16(block: &mut [u8], at: usize, value: f32) {
    block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
}
