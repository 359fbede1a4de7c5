//! GPT-2's way of writing bytes as printable characters, so that a vocabulary of byte strings fits into JSON.
//!
//! Printable Latin-1 bytes stand for themselves, the other 68 are shifted to U+0100 and up, in order
//! (`bytes_to_unicode` in GPT-2's `encoder.py`).

/// The character that stands for a byte.
pub(crate) fn char_of(byte: u8) -> char {
    let n = u32::from(byte);
    let shifted = match byte {
        b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => n,
        0..=b' ' => 0x100 + n,
        0x7F..=0xA0 => 0x100 + 33 + n - 0x7F,
        0xAD => 0x100 + 67,
    };
    char::from_u32(shifted).unwrap_or('\u{FFFD}')
}

/// The byte that a character stands for.
pub(crate) fn byte_of(c: char) -> Option<u8> {
    let n = c as u32;
    let byte = match n {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => n,
        0x100..=0x120 => n - 0x100,
        0x121..=0x142 => n - 0x121 + 0x7F,
        0x143 => 0xAD,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

/// The bytes that a token stands for; a token with a character outside the alphabet stands for itself.
pub(crate) fn bytes_of(token: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = token.chars().map(byte_of).collect();
    bytes.unwrap_or_else(|| token.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_is_that_of_the_tokenizers_crate() {
        let ours: std::collections::BTreeSet<char> = (0..=255).map(char_of).collect();
        let theirs = tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet();
        assert_eq!(ours, theirs.into_iter().collect());
        assert!((0..=255).all(|b| byte_of(char_of(b)) == Some(b)));
        assert_eq!((char_of(b' '), char_of(b'\n'), char_of(0xAD)), ('Ġ', 'Ċ', 'Ń'));
    }
}
