//! How are blocks of weights unpacked on 64-bit Arm? Eight formats, each by the integers that it codes and what they are
//! multiplied by; decoding to f32 and integer products share them.
//!
//! Layouts as in the tables of `weights`, after `ggml-common.h` of ggml (MIT).

use std::arch::aarch64::*;

use weights::Format;

use crate::blocks::GROUP;

/// A format in groups of 32: value = factor · code + minimum, where codes have 8 bits and a sign, and halves of a group
/// may have an integer scale of their own.
pub(super) trait Form {
    /// Bytes of a block.
    const BYTES: usize;
    /// Groups of a block.
    const GROUPS: usize = 1;
    /// Has it a minimum?
    const MINIMUM: bool = false;
    /// Have halves of a group their scales?
    const HALVES: bool = false;
    /// What is unpacked once a block.
    type Head;

    /// # Safety
    /// `BYTES` bytes can be read at `p`; so for all functions of the formats.
    unsafe fn head(p: *const u8) -> Self::Head;
    /// The codes of group `g`.
    ///
    /// # Safety
    /// As [`Form::head`].
    unsafe fn codes(p: *const u8, g: usize) -> [int8x16_t; 2];
    /// Factor and minimum of group `g`.
    fn parameters(head: &Self::Head, g: usize) -> (f32, f32);
    /// The scales of the halves of group `g`.
    fn halves(_: &Self::Head, _: usize) -> [i32; 2] {
        [1, 1]
    }
}

/// A half precision number.
///
/// # Safety
/// Two bytes can be read at `p`.
#[inline(always)]
unsafe fn half(p: *const u8) -> f32 {
    // SAFETY: the caller's.
    unsafe {
        let bits = p.cast::<u16>().read_unaligned();
        vgetq_lane_f32::<0>(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits))))
    }
}

/// 16 bytes as 32 codes, the lower nibbles first.
///
/// # Safety
/// 16 bytes can be read at `p`.
#[inline(always)]
unsafe fn nibbles(p: *const u8) -> [uint8x16_t; 2] {
    // SAFETY: the caller's.
    unsafe {
        let bytes = vld1q_u8(p);
        [vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8::<4>(bytes)]
    }
}

/// 32 bits as bytes of 0 or 16.
///
/// # Safety
/// 4 bytes can be read at `p`.
#[inline(always)]
unsafe fn fifth_bits(p: *const u8) -> [uint8x16_t; 2] {
    const BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    // SAFETY: the caller's.
    unsafe {
        let bits = vld1q_u8(BITS.as_ptr());
        let of = |i: usize| {
            let bytes = vcombine_u8(vdup_n_u8(*p.add(i)), vdup_n_u8(*p.add(i + 1)));
            vandq_u8(vtstq_u8(bytes, bits), vdupq_n_u8(16))
        };
        [of(0), of(2)]
    }
}

#[inline(always)]
fn or(a: [uint8x16_t; 2], b: [uint8x16_t; 2]) -> [uint8x16_t; 2] {
    // SAFETY: vectors are there where this is called.
    unsafe { [vorrq_u8(a[0], b[0]), vorrq_u8(a[1], b[1])] }
}

/// Codes less an offset.
#[inline(always)]
fn less(codes: [uint8x16_t; 2], offset: u8) -> [int8x16_t; 2] {
    // SAFETY: vectors are there where this is called.
    unsafe { codes.map(|codes| vreinterpretq_s8_u8(vsubq_u8(codes, vdupq_n_u8(offset)))) }
}

macro_rules! short {
    ($($form:ident: $bytes:literal bytes, minimum $minimum:literal, |$p:ident| $codes:expr;)*) => {$(
        #[allow(non_camel_case_types)] // the format's name
        pub(super) struct $form;
        impl Form for $form {
            const BYTES: usize = $bytes;
            const MINIMUM: bool = $minimum;
            type Head = (f32, f32);
            #[inline(always)]
            unsafe fn head(p: *const u8) -> (f32, f32) {
                // SAFETY: the caller's.
                unsafe { (half(p), if $minimum { half(p.add(2)) } else { 0.0 }) }
            }
            #[inline(always)]
            unsafe fn codes($p: *const u8, _: usize) -> [int8x16_t; 2] {
                // SAFETY: the caller's.
                unsafe { $codes }
            }
            #[inline(always)]
            fn parameters(head: &(f32, f32), _: usize) -> (f32, f32) {
                *head
            }
        }
    )*};
}
short! {
    Q8_0: 34 bytes, minimum false, |p| [vld1q_s8(p.add(2).cast()), vld1q_s8(p.add(18).cast())];
    Q4_0: 18 bytes, minimum false, |p| less(nibbles(p.add(2)), 8);
    Q4_1: 20 bytes, minimum true, |p| less(nibbles(p.add(4)), 0);
    Q5_0: 22 bytes, minimum false, |p| less(or(nibbles(p.add(6)), fifth_bits(p.add(2))), 16);
    Q5_1: 24 bytes, minimum true, |p| less(or(nibbles(p.add(8)), fifth_bits(p.add(4))), 0);
}

/// Factors and minima of the eight groups of Q4_K and Q5_K.
///
/// # Safety
/// 16 bytes can be read at `p`: two half-precision scales and 12 bytes with scales and minima of 6 bits.
#[inline(always)]
unsafe fn head_with_minima(p: *const u8) -> [[f32; 8]; 2] {
    // SAFETY: the caller's.
    let (d, dmin, [a, b, c]) = unsafe { (half(p), half(p.add(2)), p.add(4).cast::<[u32; 3]>().read_unaligned()) };
    // Four at a time: the lower six bits, and for the last four a nibble below the first four's upper two bits.
    let scales = [a & 0x3f3f_3f3f, c & 0x0f0f_0f0f | (a >> 6 & 0x0303_0303) << 4];
    let minima = [b & 0x3f3f_3f3f, c >> 4 & 0x0f0f_0f0f | (b >> 6 & 0x0303_0303) << 4];
    let widen = |[low, high]: [u32; 2], by: f32| -> [f32; 8] {
        let bytes = (u64::from(high) << 32 | u64::from(low)).to_le_bytes();
        bytes.map(|byte| by * f32::from(byte))
    };
    [widen(scales, d), widen(minima, -dmin)]
}

/// 32 bytes.
///
/// # Safety
/// They can be read at `p`.
#[inline(always)]
unsafe fn bytes(p: *const u8) -> [uint8x16_t; 2] {
    // SAFETY: the caller's.
    unsafe { [vld1q_u8(p), vld1q_u8(p.add(16))] }
}

/// Bits `at..` of bytes, under a mask.
#[inline(always)]
fn bits(v: [uint8x16_t; 2], at: usize, mask: u8) -> [uint8x16_t; 2] {
    // SAFETY: vectors are there where this is called.
    unsafe { v.map(|v| vandq_u8(vshlq_u8(v, vdupq_n_s8(-(at as i8))), vdupq_n_u8(mask))) }
}

macro_rules! with_minima {
    ($($form:ident: $bytes:literal bytes, |$p:ident, $g:ident| $codes:expr;)*) => {$(
        #[allow(non_camel_case_types)] // the format's name
        pub(super) struct $form;
        impl Form for $form {
            const BYTES: usize = $bytes;
            const GROUPS: usize = 8;
            const MINIMUM: bool = true;
            type Head = [[f32; 8]; 2];
            #[inline(always)]
            unsafe fn head(p: *const u8) -> Self::Head {
                // SAFETY: the caller's.
                unsafe { head_with_minima(p) }
            }
            #[inline(always)]
            unsafe fn codes($p: *const u8, $g: usize) -> [int8x16_t; 2] {
                // SAFETY: the caller's.
                unsafe { less($codes, 0) }
            }
            #[inline(always)]
            fn parameters(head: &Self::Head, g: usize) -> (f32, f32) {
                (head[0][g], head[1][g])
            }
        }
    )*};
}
with_minima! {
    Q4_K: 144 bytes, |p, g| bits(bytes(p.add(16 + g / 2 * 32)), g % 2 * 4, 15);
    Q5_K: 176 bytes, |p, g| {
        let high = bits(bytes(p.add(16)), g, 1).map(|v| vshlq_n_u8::<4>(v));
        or(bits(bytes(p.add(48 + g / 2 * 32)), g % 2 * 4, 15), high)
    };
}

#[allow(non_camel_case_types)] // the format's name
pub(super) struct Q6_K;
impl Form for Q6_K {
    const BYTES: usize = 210;
    const GROUPS: usize = 8;
    const HALVES: bool = true;
    /// The scale, and the integers that it is multiplied by.
    type Head = (f32, [i8; 16]);

    #[inline(always)]
    unsafe fn head(p: *const u8) -> Self::Head {
        // SAFETY: the caller's.
        unsafe { (half(p.add(208)), p.add(192).cast::<[i8; 16]>().read_unaligned()) }
    }

    #[inline(always)]
    unsafe fn codes(p: *const u8, g: usize) -> [int8x16_t; 2] {
        // SAFETY: the caller's.
        unsafe {
            let low = bits(bytes(p.add(g / 4 * 64 + g % 2 * 32)), g % 4 / 2 * 4, 15);
            let high = bits(bytes(p.add(128 + g / 4 * 32)), g % 4 * 2, 3).map(|v| vshlq_n_u8::<4>(v));
            less(or(low, high), 32)
        }
    }

    #[inline(always)]
    fn parameters(head: &Self::Head, _: usize) -> (f32, f32) {
        (head.0, 0.0)
    }

    #[inline(always)]
    fn halves(head: &Self::Head, g: usize) -> [i32; 2] {
        [head.1[2 * g].into(), head.1[2 * g + 1].into()]
    }
}

/// Decodes whole blocks of the formats of this module, to the bits of `weights`; `false`, and nothing done, for others.
#[target_feature(enable = "neon")]
pub(super) fn decode(format: Format, bytes: &[u8], out: &mut [f32]) -> bool {
    match format {
        Format::Q8_0 => decode_form::<Q8_0>(bytes, out),
        Format::Q4_0 => decode_form::<Q4_0>(bytes, out),
        Format::Q4_1 => decode_form::<Q4_1>(bytes, out),
        Format::Q5_0 => decode_form::<Q5_0>(bytes, out),
        Format::Q5_1 => decode_form::<Q5_1>(bytes, out),
        Format::Q4_K => decode_form::<Q4_K>(bytes, out),
        Format::Q5_K => decode_form::<Q5_K>(bytes, out),
        Format::Q6_K => decode_form::<Q6_K>(bytes, out),
        _ => return false,
    }
    true
}

#[target_feature(enable = "neon")]
fn decode_form<F: Form>(bytes: &[u8], out: &mut [f32]) {
    for (block, out) in bytes.chunks_exact(F::BYTES).zip(out.chunks_exact_mut(F::GROUPS * GROUP)) {
        // SAFETY: a block has F::BYTES bytes, and there is room for its values.
        unsafe {
            let head = F::head(block.as_ptr());
            for (g, out) in out.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
                let (factor, minimum) = F::parameters(&head, g);
                let halves = F::halves(&head, g).map(|half| factor * half as f32);
                for (h, codes) in F::codes(block.as_ptr(), g).into_iter().enumerate() {
                    let words = [vmovl_s8(vget_low_s8(codes)), vmovl_high_s8(codes)];
                    let quads = words.map(|v| [vmovl_s16(vget_low_s16(v)), vmovl_high_s16(v)]);
                    for (i, codes) in quads.into_iter().flatten().enumerate() {
                        let value = vmulq_n_f32(vcvtq_f32_s32(codes), halves[h]);
                        let value = if F::MINIMUM { vaddq_f32(value, vdupq_n_f32(minimum)) } else { value };
                        vst1q_f32(out.as_mut_ptr().add(h * 16 + i * 4), value);
                    }
                }
            }
        }
    }
}
