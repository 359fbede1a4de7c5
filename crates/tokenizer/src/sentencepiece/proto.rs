//! The bytes of a SentencePiece model: a protocol buffer, of which we read the few fields that segmentation needs.
//!
//! Field numbers are those of `sentencepiece_model.proto`. Everything is bounded by the length of the file: a field's
//! length is checked before it is used, and nothing is allocated by a number that the file states.

use std::collections::HashSet;

/// How the pieces were trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelType {
    Unigram,
    Bpe,
}

/// What a piece is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

/// An entry of the vocabulary.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Piece {
    pub(crate) text: String,
    pub(crate) score: f32,
    pub(crate) kind: Kind,
}

/// The fields of a model file that matter here.
#[derive(Debug, Clone)]
pub(crate) struct Proto {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) model_type: ModelType,
    pub(crate) byte_fallback: bool,
    pub(crate) suffix_space: bool,
    pub(crate) unk_surface: String,
    pub(crate) charsmap: Vec<u8>,
    pub(crate) dummy_prefix: bool,
    pub(crate) remove_extra_spaces: bool,
    pub(crate) escape_spaces: bool,
    /// Numbers of the pieces for the roles; negative where there is none.
    pub(crate) bos: i64,
    pub(crate) eos: i64,
    pub(crate) pad: i64,
}

impl Proto {
    /// Reads a model; the error says what is wrong with it.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let mut proto = Self {
            pieces: Vec::new(),
            model_type: ModelType::Unigram,
            byte_fallback: false,
            suffix_space: false,
            unk_surface: " \u{2047} ".into(),
            charsmap: Vec::new(),
            dummy_prefix: true,
            remove_extra_spaces: true,
            escape_spaces: true,
            bos: 1,
            eos: 2,
            pad: -1,
        };
        let mut fields = Fields(bytes);
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (1, Value::Bytes(piece)) => {
                    let piece = read_piece(piece).map_err(|e| format!("piece {}: {e}", proto.pieces.len()))?;
                    proto.pieces.push(piece);
                }
                (2, Value::Bytes(spec)) => proto.read_trainer(spec).map_err(|e| format!("trainer_spec: {e}"))?,
                (3, Value::Bytes(spec)) => proto.read_normalizer(spec).map_err(|e| format!("normalizer_spec: {e}"))?,
                (5, Value::Bytes(spec)) => {
                    let mut fields = Fields(spec);
                    while let Some((number, value)) = fields.next()? {
                        if matches!((number, value), (2, Value::Bytes(map)) if !map.is_empty()) {
                            return Err("a denormalizer is not supported".into());
                        }
                    }
                }
                _ => {}
            }
        }
        proto.check()?;
        Ok(proto)
    }

    fn read_trainer(&mut self, spec: &[u8]) -> Result<(), String> {
        let mut fields = Fields(spec);
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (3, Value::Number(1)) => self.model_type = ModelType::Unigram,
                (3, Value::Number(2)) => self.model_type = ModelType::Bpe,
                (3, Value::Number(3)) => return Err("model type WORD is not supported".into()),
                (3, Value::Number(4)) => return Err("model type CHAR is not supported".into()),
                (3, Value::Number(n)) => return Err(format!("model type {n} is unknown")),
                (24, Value::Number(n)) => self.suffix_space = n != 0,
                (35, Value::Number(n)) => self.byte_fallback = n != 0,
                // Negative numbers fill all 64 bits.
                (41, Value::Number(n)) => self.bos = n as i64,
                (42, Value::Number(n)) => self.eos = n as i64,
                (43, Value::Number(n)) => self.pad = n as i64,
                (44, Value::Bytes(text)) => self.unk_surface = utf8(text)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn read_normalizer(&mut self, spec: &[u8]) -> Result<(), String> {
        let mut fields = Fields(spec);
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (2, Value::Bytes(map)) => self.charsmap = map.to_vec(),
                (3, Value::Number(n)) => self.dummy_prefix = n != 0,
                (4, Value::Number(n)) => self.remove_extra_spaces = n != 0,
                (5, Value::Number(n)) => self.escape_spaces = n != 0,
                _ => {}
            }
        }
        Ok(())
    }

    /// What the library's `InitializePieces` insists on.
    fn check(&self) -> Result<(), String> {
        if self.pieces.is_empty() {
            return Err("no pieces: not a SentencePiece model".into());
        }
        let mut seen = HashSet::with_capacity(self.pieces.len());
        for (i, piece) in self.pieces.iter().enumerate() {
            if piece.text.is_empty() {
                return Err(format!("piece {i} is empty"));
            }
            if !piece.score.is_finite() {
                return Err(format!("piece {i} ({:?}) has score {}", piece.text, piece.score));
            }
            if !seen.insert(piece.text.as_str()) {
                return Err(format!("piece {i} ({:?}) occurs twice", piece.text));
            }
        }
        match self.pieces.iter().filter(|p| p.kind == Kind::Unknown).count() {
            1 => Ok(()),
            n => Err(format!("{n} pieces stand for the unknown, expected 1")),
        }
    }
}

fn read_piece(bytes: &[u8]) -> Result<Piece, String> {
    let mut piece = Piece { text: String::new(), score: 0.0, kind: Kind::Normal };
    let mut fields = Fields(bytes);
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (1, Value::Bytes(text)) => piece.text = utf8(text)?,
            (2, Value::Fixed32(bits)) => piece.score = f32::from_bits(bits),
            (3, Value::Number(n)) => {
                piece.kind = match n {
                    1 => Kind::Normal,
                    2 => Kind::Unknown,
                    3 => Kind::Control,
                    4 => Kind::UserDefined,
                    5 => Kind::Unused,
                    6 => Kind::Byte,
                    _ => return Err(format!("type {n} is unknown")),
                }
            }
            _ => {}
        }
    }
    Ok(piece)
}

fn utf8(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| format!("{} bytes that are not UTF-8", bytes.len()))
}

enum Value<'a> {
    Number(u64),
    Fixed32(u32),
    Fixed64,
    Bytes(&'a [u8]),
}

/// The fields of a message, one after another.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, String> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => {
                self.take(8)?;
                Value::Fixed64
            }
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(usize::try_from(length).map_err(|_| "a field longer than memory")?)?)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.take(4)?.try_into().map_err(|_| "a short field")?)),
            wire => return Err(format!("wire type {wire}: not a protocol buffer")),
        };
        Ok(Some((key >> 3, value)))
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a number of more than 64 bits".into())
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        match self.0.split_at_checked(length) {
            Some((taken, rest)) => {
                self.0 = rest;
                Ok(taken)
            }
            None => Err(format!("the file ends within a field: {length} bytes needed, {} left", self.0.len())),
        }
    }
}
