//! SentencePiece's normaliser: a table of character sequences and their replacements, then its rules for spaces.
//!
//! Follows `normalizer.cc` step by step. The table (`precompiled_charsmap`) is a double-array trie in the layout of
//! darts-clone, followed by the replacements, NUL-terminated.

use std::sync::Arc;

use memchr::memmem::Finder;

use super::{Proto, SPACE};
use crate::text::{Changed, Text, replace_plain, transform};
use crate::trie::Trie;

/// The table of replacements.
pub(crate) struct Charsmap {
    units: Vec<u32>,
    replacements: String,
}

/// The library looks at no more matches than this.
const MAX_MATCHES: usize = 32;

impl Charsmap {
    /// Checks the layout; an empty table replaces nothing.
    pub(crate) fn read(blob: &[u8]) -> Result<Self, String> {
        if blob.is_empty() {
            return Ok(Self { units: Vec::new(), replacements: String::new() });
        }
        let (size, rest) = blob.split_at_checked(4).ok_or("precompiled_charsmap is cut off")?;
        let size = u32::from_le_bytes(size.try_into().map_err(|_| "precompiled_charsmap is cut off")?) as usize;
        let (units, replacements) = rest
            .split_at_checked(size)
            .filter(|_| size.is_multiple_of(4))
            .ok_or_else(|| format!("precompiled_charsmap states a trie of {size} bytes in {}", rest.len()))?;
        Ok(Self {
            units: units.chunks_exact(4).map(|u| u32::from_le_bytes([u[0], u[1], u[2], u[3]])).collect(),
            replacements: String::from_utf8(replacements.to_vec())
                .map_err(|_| "precompiled_charsmap has replacements that are not UTF-8")?,
        })
    }

    fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// Length of each entry that `text` starts with, and where its replacement lies, shortest first.
    fn entries<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (usize, usize)> + 'a {
        let offset = |unit: u32| ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
        let mut at = self.units.first().map(|&root| offset(root));
        let step = move |(i, &byte): (usize, &u8)| {
            let next = at? ^ usize::from(byte);
            let &unit = self.units.get(next).filter(|_| byte != 0)?;
            if unit & ((1 << 31) | 0xFF) != u32::from(byte) {
                return None;
            }
            let next = next ^ offset(unit);
            at = Some(next);
            match unit & (1 << 8) {
                0 => Some(None),
                _ => Some(Some((i + 1, (self.units.get(next)? & 0x7FFF_FFFF) as usize))),
            }
        };
        text.as_bytes().iter().enumerate().map_while(step).flatten()
    }

    /// What the shortest entry that `text` starts with is replaced by.
    pub(crate) fn shortest(&self, text: &str) -> Option<&str> {
        let value = self.entries(text).next()?.1;
        Some(self.replacements.get(value..)?.split('\0').next().unwrap_or_default())
    }

    /// The longest entry that `text` starts with: its length and replacement.
    fn longest(&self, text: &str) -> Option<(usize, &str)> {
        let found = self.entries(text).take(MAX_MATCHES).last();
        let (length, value) = found.filter(|&(length, _)| text.is_char_boundary(length))?;
        let tail = self.replacements.get(value..)?;
        Some((length, tail.split('\0').next().unwrap_or_default()))
    }
}

/// Normalises the parts of a text between added tokens.
#[derive(Clone)]
pub(crate) struct Normalizer {
    pub(crate) charsmap: Arc<Charsmap>,
    /// User-defined symbols pass as they are.
    pub(crate) symbols: Arc<Trie>,
    pub(crate) dummy_prefix: bool,
    /// Only the part that begins the text gets the dummy prefix.
    pub(crate) first_only: bool,
    pub(crate) suffix_space: bool,
    pub(crate) remove_extra_spaces: bool,
    pub(crate) escape_spaces: bool,
}

impl Normalizer {
    pub(crate) fn new(proto: &Proto, symbols: Arc<Trie>) -> Result<Self, String> {
        Ok(Self {
            charsmap: Arc::new(Charsmap::read(&proto.charsmap)?),
            symbols,
            dummy_prefix: proto.dummy_prefix,
            first_only: false,
            suffix_space: proto.suffix_space,
            remove_extra_spaces: proto.remove_extra_spaces,
            escape_spaces: proto.escape_spaces,
        })
    }

    /// The normalised text.
    pub(crate) fn apply(&self, from: Text<'_>) -> Changed {
        let first = from.start == 0;
        let plain = self.charsmap.is_empty() && self.symbols.is_empty() && !self.remove_extra_spaces;
        if plain && !from.traced() {
            let space = if self.escape_spaces { SPACE } else { ' ' };
            let dummy = !from.text.is_empty() && self.dummy_prefix && (first || !self.first_only);
            let mut buffer = [0; 4];
            let mark = &*space.encode_utf8(&mut buffer);
            let mut text = String::with_capacity(from.text.len() + from.text.len() / 2 + 8);
            if dummy && !self.suffix_space {
                text.push(space);
            }
            text.push_str(&replace_plain(from.text, &Finder::new(" "), mark));
            if dummy && self.suffix_space {
                text.push(space);
            }
            return Changed { text, spans: Vec::new() };
        }
        let (out, dropped) = self.run(from.text, first);
        if out.is_empty() {
            return Changed::default();
        }
        transform(from, out.into_iter().map(|(c, consumed)| (c, 1 - consumed as isize)), dropped)
    }

    /// The first step: how many bytes of `text` belong together, and what they become.
    fn prefix<'a>(&'a self, text: &'a str) -> (usize, &'a str) {
        if let Some((length, _)) = self.symbols.longest(text.as_bytes()) {
            return (length, &text[..length]);
        }
        self.charsmap.longest(text).unwrap_or_else(|| {
            let length = text.chars().next().map_or(0, char::len_utf8);
            (length, &text[..length])
        })
    }

    /// The normalised text; every character with how many characters of the original text end with it (0 for one
    /// that was put in), and how many characters were dropped before the first.
    pub(crate) fn run(&self, text: &str, first: bool) -> (Vec<(char, usize)>, usize) {
        let mut rest = text;
        let mut dropped = 0;
        if self.remove_extra_spaces {
            while !rest.is_empty() {
                let (length, out) = self.prefix(rest);
                if out != " " {
                    break;
                }
                dropped += rest[..length].chars().count();
                rest = &rest[length..];
            }
        }
        let mut out: Vec<(char, usize)> = Vec::with_capacity(rest.len() + 1);
        if rest.is_empty() {
            return (out, dropped);
        }
        let dummy = self.dummy_prefix && (first || !self.first_only);
        let space = if self.escape_spaces { SPACE } else { ' ' };
        if dummy && !self.suffix_space {
            out.push((space, 0));
        }
        let mut after_space = self.remove_extra_spaces;
        while !rest.is_empty() {
            let (length, mut piece) = self.prefix(rest);
            let mut consumed = rest[..length].chars().count();
            if after_space {
                piece = piece.trim_start_matches(' ');
            }
            for c in piece.chars() {
                out.push((if c == ' ' { space } else { c }, std::mem::take(&mut consumed)));
            }
            match out.last_mut() {
                Some(last) => last.1 += consumed,
                None => dropped += consumed,
            }
            if !piece.is_empty() {
                after_space = piece.ends_with(' ');
            }
            after_space &= self.remove_extra_spaces;
            rest = &rest[length..];
        }
        if self.remove_extra_spaces {
            while let Some(&(c, consumed)) = out.last()
                && c == space
            {
                out.pop();
                match out.last_mut() {
                    Some(last) => last.1 += consumed,
                    None => dropped += consumed,
                }
            }
        }
        if dummy && self.suffix_space {
            out.push((space, 0));
        }
        (out, dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalizer(remove_extra_spaces: bool) -> Normalizer {
        Normalizer {
            charsmap: Arc::new(Charsmap::read(&[]).unwrap()),
            symbols: Arc::new(Trie::new([("<sym bol>", 0)])),
            dummy_prefix: true,
            first_only: false,
            suffix_space: false,
            remove_extra_spaces,
            escape_spaces: true,
        }
    }

    #[test]
    fn extra_spaces_go_and_offsets_stay() {
        let (out, dropped) = normalizer(true).run("  a  b ", true);
        let text: String = out.iter().map(|o| o.0).collect();
        assert_eq!((text.as_str(), dropped), ("▁a▁b", 2));
        assert_eq!(out.iter().map(|o| o.1).collect::<Vec<_>>(), [0, 1, 2, 2]);
        let (out, _) = normalizer(false).run(" a ", true);
        assert_eq!(out.iter().map(|o| o.0).collect::<String>(), "▁▁a▁");
    }

    #[test]
    fn rejects_a_trie_larger_than_its_table() {
        assert!(Charsmap::read(&[255, 255, 255, 127, 0]).is_err());
        assert!(Charsmap::read(&[1]).is_err());
        let wild = Charsmap::read(&[4, 0, 0, 0, 0, 255, 255, 255]).unwrap();
        assert_eq!(wild.longest("abc"), None);
    }
}
