//! What number do sixteen bits stand for, and back? IEEE half precision and bfloat16, to the nearest, ties to even.

/// The number of these IEEE half precision bits.
#[inline]
pub fn f16_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7fff);
    let value = if magnitude >= 0x7c00 {
        f32::from_bits(0x7f80_0000 | (magnitude << 13))
    } else {
        // Exponent and fraction in f32's places are the number / 2^112, subnormals included.
        f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23)
    };
    f32::from_bits(value.to_bits() | sign)
}

/// The nearest half precision number's bits; what is too large becomes an infinity.
#[inline]
pub fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    let half = if magnitude > 0x7f80_0000 {
        0x7e00 | (magnitude >> 13) & 0x03ff
    } else if magnitude >= 0x4780_0000 {
        0x7c00
    } else if magnitude < 0x3880_0000 {
        // Below 2^-14: let the addition of 0.5 round at half precision's last place, 2^-24.
        (f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits()
    } else {
        let odd = (magnitude >> 13) & 1;
        (magnitude - (112 << 23) + 0xfff + odd) >> 13
    };
    sign | half as u16
}

/// The number of these bfloat16 bits.
#[inline]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest bfloat16 number's bits.
#[inline]
pub fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_and_every_bfloat_survives_the_way_through_f32() {
        for bits in 0..=u16::MAX {
            let (half, brain) = (f16_to_f32(bits), bf16_to_f32(bits));
            if half.is_nan() {
                assert!(f16_to_f32(f32_to_f16(half)).is_nan());
            } else {
                assert_eq!(f32_to_f16(half), bits);
            }
            if brain.is_nan() {
                assert!(bf16_to_f32(f32_to_bf16(brain)).is_nan());
            } else {
                assert_eq!(f32_to_bf16(brain), bits);
            }
        }
    }

    #[test]
    fn halves_have_their_values() {
        for (bits, value) in [
            (0x0001, 2f32.powi(-24)),
            (0x03ff, 1023.0 * 2f32.powi(-24)),
            (0x0400, 2f32.powi(-14)),
            (0x3c00, 1.0),
            (0xc100, -2.5),
            (0x7bff, 65504.0),
            (0x7c00, f32::INFINITY),
        ] {
            assert_eq!(f16_to_f32(bits), value);
        }
    }

    #[test]
    fn rounds_to_nearest_even() {
        for (value, bits) in [
            (1.0 + 2f32.powi(-11), 0x3c00),
            (1.0 + 3.0 * 2f32.powi(-11), 0x3c02),
            (1.0 + 2f32.powi(-11) + 2f32.powi(-20), 0x3c01),
            (65519.0, 0x7bff),
            (65520.0, 0x7c00),
            (2f32.powi(-25), 0x0000),
            (2f32.powi(-25) * 1.5, 0x0001),
            (f32::from_bits(0x387f_f000), 0x0400),
            (1e30, 0x7c00),
        ] {
            assert_eq!(f32_to_f16(value), bits, "{value}");
        }
        assert_eq!(f32_to_bf16(f32::from_bits(0x3f80_8000)), 0x3f80);
        assert_eq!(f32_to_bf16(f32::from_bits(0x3f81_8000)), 0x3f82);
        assert_eq!(f32_to_bf16(f32::MAX), 0x7f80);
    }
}
