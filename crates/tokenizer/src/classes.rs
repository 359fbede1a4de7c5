//! What kind of character is this? One byte for each code point, filled from the tables of the `regex` crates, so that
//! our scanners and the regular expressions that they stand for agree by construction.

use std::sync::OnceLock;

use regex_syntax::hir::{Class, HirKind};

/// `\p{L}`.
pub(crate) const LETTER: u8 = 1;
/// `\p{N}`.
pub(crate) const NUMBER: u8 = 2;
/// `\s`.
pub(crate) const SPACE: u8 = 4;
/// `\p{M}`.
pub(crate) const MARK: u8 = 8;
/// `\w`.
pub(crate) const WORD: u8 = 16;
/// `char::is_numeric`, whose Unicode version is the standard library's.
pub(crate) const NUMERIC: u8 = 32;

/// The classes of every code point.
pub(crate) struct Classes(Box<[u8]>);

/// The table; made at the first call, in about a millisecond. Pages without assigned characters stay untouched.
pub(crate) fn classes() -> &'static Classes {
    static TABLE: OnceLock<Classes> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = vec![0u8; char::MAX as usize + 1].into_boxed_slice();
        for (name, bit) in [(r"\p{L}", LETTER), (r"\p{N}", NUMBER), (r"\s", SPACE), (r"\p{M}", MARK), (r"\w", WORD)] {
            for (first, last) in ranges(name) {
                table[first as usize..=last as usize].iter_mut().for_each(|c| *c |= bit);
            }
        }
        // Every numeric character of either Unicode version is assigned below U+20000.
        for c in ('\0'..='\u{1FFFF}').filter(|c| c.is_numeric()) {
            table[c as usize] |= NUMERIC;
        }
        Classes(table)
    })
}

fn ranges(class: &str) -> Vec<(char, char)> {
    match regex_syntax::parse(class).map(regex_syntax::hir::Hir::into_kind) {
        Ok(HirKind::Class(Class::Unicode(class))) => class.iter().map(|r| (r.start(), r.end())).collect(),
        _ => unreachable!("{class} is a class of characters"),
    }
}

impl Classes {
    /// The classes of the character that begins at `at`, and its length in bytes; `bytes` are UTF-8.
    #[inline]
    pub(crate) fn at(&self, bytes: &[u8], at: usize) -> (u8, usize) {
        let first = bytes[at];
        if first < 0x80 {
            return (self.0[usize::from(first)], 1);
        }
        let (c, length) = decode(bytes, at);
        (self.0[c as usize], length)
    }

    #[inline]
    pub(crate) fn of(&self, c: char) -> u8 {
        self.0[c as usize]
    }
}

/// The code point that begins at `at`, and its length in bytes; `bytes` are UTF-8.
#[inline]
pub(crate) fn decode(bytes: &[u8], at: usize) -> (u32, usize) {
    let tail = |i: usize| u32::from(bytes[at + i] & 0x3F);
    let first = u32::from(bytes[at]);
    match first {
        0..0x80 => (first, 1),
        0x80..0xE0 => ((first & 0x1F) << 6 | tail(1), 2),
        0xE0..0xF0 => ((first & 0x0F) << 12 | tail(1) << 6 | tail(2), 3),
        _ => ((first & 0x07) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3), 4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_agrees_with_the_standard_library_where_that_has_the_class() {
        for c in '\0'..=char::MAX {
            let class = classes().of(c);
            assert_eq!(class & SPACE != 0, c.is_whitespace(), "{c:?}");
            assert_eq!(class & NUMERIC != 0, c.is_numeric(), "{c:?}");
            let text = c.to_string();
            assert_eq!(decode(text.as_bytes(), 0), (c as u32, text.len()));
        }
    }
}
