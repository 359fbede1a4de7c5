//! From pieces back to text, as `SentencePieceProcessor::Decode` does, one piece at a time.

use crate::detokenize::{Memory, fallback_byte};

use super::{Kind, Proto, SPACE};

/// What the library needs to know to write pieces as text.
pub(crate) struct Surface {
    /// The piece for unknown characters and what is written for it.
    pub(crate) unknown: String,
    pub(crate) unknown_surface: String,
    /// Whether pieces `<0x..>` are bytes.
    pub(crate) bytes: bool,
    /// Whether the text was given a space in front, or lost its own.
    pub(crate) prefixed: bool,
    pub(crate) remove_extra_spaces: bool,
}

impl Surface {
    pub(crate) fn new(proto: &Proto) -> Self {
        let unknown = proto.pieces.iter().find(|p| p.kind == Kind::Unknown);
        Self {
            unknown: unknown.map(|p| p.text.clone()).unwrap_or_default(),
            unknown_surface: proto.unk_surface.clone(),
            bytes: proto.pieces.iter().any(|p| p.kind == Kind::Byte),
            prefixed: proto.dummy_prefix || proto.remove_extra_spaces,
            remove_extra_spaces: proto.remove_extra_spaces,
        }
    }

    /// The bytes of a piece within a text.
    pub(crate) fn bytes(&self, piece: &str) -> Vec<u8> {
        match fallback_byte(piece) {
            Some(byte) if self.bytes => vec![byte],
            _ => piece.replace(SPACE, " ").into_bytes(),
        }
    }

    /// `memory.seen`: some text was written; `memory.held`: a space in front was swallowed.
    pub(crate) fn push(&self, memory: &mut Memory, piece: &str) -> String {
        let mut text = String::new();
        if let Some(byte) = fallback_byte(piece).filter(|_| self.bytes) {
            memory.bytes.push(byte);
            spell(&mut memory.bytes, false, &mut text);
            memory.seen |= !text.is_empty();
            return text;
        }
        spell(&mut memory.bytes, true, &mut text);
        memory.seen |= !text.is_empty();
        let at_start = !memory.seen && memory.held == 0;
        if piece == self.unknown {
            memory.held = 0;
            text.push_str(&self.unknown_surface);
        } else {
            let (piece, mut swallowed) = match piece.strip_prefix(SPACE) {
                Some(rest) if at_start && self.prefixed => (rest, 1),
                _ => (piece, 0),
            };
            // With extra spaces removed, every leading space goes, not only the first.
            if self.remove_extra_spaces {
                swallowed = 0;
            }
            memory.held = memory.held.max(swallowed);
            text.push_str(&piece.replace(SPACE, " "));
        }
        memory.seen |= !text.is_empty();
        text
    }

    pub(crate) fn finish(&self, memory: &mut Memory) -> String {
        let mut text = String::new();
        spell(&mut memory.bytes, true, &mut text);
        text
    }
}

/// Takes whole characters off the front of `bytes`; a byte that cannot begin one is U+FFFD. What may still become a
/// character stays, unless this is the `end` of the run.
fn spell(bytes: &mut Vec<u8>, end: bool, text: &mut String) {
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                rest = &[];
            }
            Err(error) if error.valid_up_to() > 0 => {
                let (valid, after) = rest.split_at(error.valid_up_to());
                text.push_str(&String::from_utf8_lossy(valid));
                rest = after;
            }
            Err(error) if error.error_len().is_some() || end => {
                text.push('\u{FFFD}');
                rest = &rest[1..];
            }
            Err(_) => break,
        }
    }
    *bytes = rest.to_vec();
}
