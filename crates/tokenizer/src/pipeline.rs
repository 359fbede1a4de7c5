//! The way from text to ids: cut out added tokens, normalise, cut into words, segment, put special tokens around.
//!
//! The steps and their order are those of the `tokenizers` crate; so are the results, id for id and offset for offset.
//! Offsets are only followed where they are asked for.

use std::sync::{Arc, Mutex, PoisonError};

use crate::added::AddedTokens;
use crate::config::Added;
use crate::encoding::{EncodeOptions, Encoding, Ids};
use crate::engine::{Engine, keep};
use crate::error::TokenizerError;
use crate::layout::{Layout, Slot, Trim};
use crate::model::{Model, Scratch, Tokens};
use crate::normalize::Normalizer;
use crate::pretokenize::Words;
use crate::text::{Text, identity};
use crate::wordpiece::{Ascii, WordPiece};

pub(crate) struct Pipeline {
    added: AddedTokens,
    normalizer: Option<Normalizer>,
    words: Words,
    model: Arc<dyn Model>,
    layout: Layout,
    /// A shorter way to the same ids, for BERT.
    ascii: Option<Ascii>,
    /// What encoding works with, by as many threads as encode at once.
    scratch: Mutex<Vec<Scratch>>,
}

/// The parts of a pipeline, as the loaders find them.
pub(crate) struct Parts {
    pub(crate) normalizer: Option<Normalizer>,
    pub(crate) words: Words,
    pub(crate) layout: Layout,
    pub(crate) added: Vec<Added>,
}

/// Spans are 32 bits.
const MAX_TEXT: usize = u32::MAX as usize / 2;

impl Pipeline {
    pub(crate) fn new(model: impl Model + 'static, parts: Parts) -> Self {
        Self::over(Arc::new(model), parts)
    }

    /// With a shorter way where all parts are BERT's.
    pub(crate) fn wordpiece(model: WordPiece, parts: Parts) -> Self {
        let model = Arc::new(model);
        let mut pipeline = Self::over(model.clone(), parts);
        if let (Some(Normalizer::Bert(bert)), true) = (&pipeline.normalizer, pipeline.words.is_bert()) {
            pipeline.ascii = Ascii::new(&model, *bert, &pipeline.added);
        }
        pipeline
    }

    fn over(model: Arc<dyn Model>, parts: Parts) -> Self {
        let Parts { normalizer, words, layout, added } = parts;
        let added = AddedTokens::new(added, &*model, normalizer.as_ref());
        Self { added, normalizer, words, model, layout, ascii: None, scratch: Mutex::default() }
    }

    /// The tokens of a text alone.
    fn tokens(&self, text: &str, plain: bool, traced: bool) -> Result<Tokens, TokenizerError> {
        let fail = |reason| TokenizerError::Encode { bytes: text.len(), reason };
        if text.len() > MAX_TEXT {
            return Err(fail(format!("a text may have {MAX_TEXT} bytes")));
        }
        let lock = || self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let mut scratch = lock().pop().unwrap_or_default();
        let mut out = Tokens { ids: Vec::with_capacity(text.len() / 4 + 4), spans: Vec::new() };
        let done = match &self.ascii {
            Some(ascii) if !traced => ascii.encode(text, &mut out, |part, out| {
                self.segment(Text { text: part, spans: &[], start: 0 }, plain, &mut scratch, out)
            }),
            _ => {
                let spans = if traced { identity(text) } else { Vec::new() };
                self.segment(Text { text, spans: &spans, start: 0 }, plain, &mut scratch, &mut out)
            }
        };
        lock().push(scratch);
        done.map_err(fail)?;
        Ok(out)
    }

    fn segment(&self, text: Text<'_>, plain: bool, scratch: &mut Scratch, out: &mut Tokens) -> Result<(), String> {
        self.added.cut(text, false, plain, |part, token| {
            if let Some(token) = token {
                out.push(token.id, part, 0, part.text.len());
                return Ok(());
            }
            let normalized = self.normalizer.as_ref().map(|n| n.run(part));
            let part = normalized.as_ref().map_or(part, |now| now.as_text());
            self.added.cut(part, true, plain, |part, token| {
                if let Some(token) = token {
                    out.push(token.id, part, 0, part.text.len());
                    return Ok(());
                }
                self.words.run(part, &mut |word| self.model.segment(word, scratch, out))
            })
        })
    }

    /// Offsets in characters, white space taken off where the post-processor does so.
    fn offsets(&self, text: &str, tokens: &Tokens) -> Vec<(usize, usize)> {
        let mut characters = vec![0u32; text.len() + 1];
        let mut count = 0;
        for (at, byte) in text.bytes().enumerate() {
            count += u32::from(byte & 0xC0 != 0x80);
            characters[at + 1] = count;
        }
        // Within a character counts as before it.
        let before = |at: u32| match text.as_bytes().get(at as usize) {
            Some(byte) if byte & 0xC0 == 0x80 => characters[at as usize] as usize - 1,
            _ => characters[at as usize] as usize,
        };
        let offset = |(i, (&id, &(start, end))): (usize, (&u32, &(u32, u32)))| {
            let plain = (before(start), before(end));
            let Some(trim) = self.layout.trim else { return plain };
            match self.added.get(id) {
                Some(_) => trim.apply(i, plain, text.get(start as usize..end as usize).unwrap_or_default()),
                None => trim.apply(i, plain, &self.model.token(id).unwrap_or_default()),
            }
        };
        tokens.ids.iter().zip(&tokens.spans).enumerate().map(offset).collect()
    }

    fn special_count(&self, pair: bool, special: bool) -> usize {
        self.layout.slots(pair, special).iter().filter(|s| matches!(s, Slot::Token(..))).count()
    }
}

impl Trim {
    /// `(start, end)` of the token at `index` without the white space that it begins and ends with.
    fn apply(self, index: usize, (mut start, mut end): (usize, usize), token: &str) -> (usize, usize) {
        let space = |c: &char| *c == 'Ġ' || c.is_whitespace();
        let mut leading = token.chars().take_while(space).count();
        let trailing = token.chars().rev().take_while(space).count();
        if leading == 1 && self.prefix_space && (index == 0 || start == 0) {
            leading = 0;
        }
        start = (start + leading).min(end);
        if trailing > 0 && end >= trailing {
            end = (end - trailing).max(start);
        }
        (start, end)
    }
}

impl Engine for Pipeline {
    fn name(&self) -> &'static str {
        "lattice"
    }

    fn encode(&self, text: &str, pair: Option<&str>, options: &EncodeOptions) -> Result<Encoding, TokenizerError> {
        let first = self.tokens(text, options.plain, true)?;
        let second = pair.map(|text| self.tokens(text, options.plain, true)).transpose()?;
        let special = self.special_count(pair.is_some(), options.add_special);
        let lengths = (first.ids.len(), second.as_ref().map(|t| t.ids.len()));
        let (a, b) = keep(options, lengths.0, lengths.1, special)?;
        let mut encoding = Encoding { removed: lengths.0 + lengths.1.unwrap_or(0) - a - b, ..Encoding::default() };
        let add = |encoding: &mut Encoding, text: &str, tokens: &Tokens, count: usize, which: u8, kind: u32| {
            encoding.ids.extend_from_slice(&tokens.ids[..count]);
            encoding.offsets.extend_from_slice(&self.offsets(text, tokens)[..count]);
            let all = encoding.ids.len();
            encoding.type_ids.resize(all, kind);
            encoding.special_mask.resize(all, false);
            encoding.sequence_ids.resize(all, Some(which));
        };
        for slot in self.layout.slots(pair.is_some(), options.add_special) {
            match (*slot, &second, pair) {
                (Slot::Token(id, kind), ..) => {
                    encoding.ids.push(id);
                    encoding.type_ids.push(kind);
                    encoding.offsets.push((0, 0));
                    encoding.special_mask.push(true);
                    encoding.sequence_ids.push(None);
                }
                (Slot::First(kind), ..) => add(&mut encoding, text, &first, a, 0, kind),
                (Slot::Second(kind), Some(second), Some(pair)) => add(&mut encoding, pair, second, b, 1, kind),
                (Slot::Second(_), ..) => {}
            }
        }
        Ok(encoding)
    }

    fn encode_ids(&self, text: &str, pair: Option<&str>, options: &EncodeOptions) -> Result<Ids, TokenizerError> {
        let first = self.tokens(text, options.plain, false)?.ids;
        let second = pair.map(|text| self.tokens(text, options.plain, false)).transpose()?.map(|t| t.ids);
        let special = self.special_count(pair.is_some(), options.add_special);
        let (a, b) = keep(options, first.len(), second.as_ref().map(Vec::len), special)?;
        let second = second.unwrap_or_default();
        let removed = first.len() + second.len() - a - b;
        let slots = self.layout.slots(pair.is_some(), options.add_special);
        if let ([Slot::First(kind)], 0) = (slots, removed) {
            let type_ids = vec![*kind; first.len()];
            return Ok(Ids { ids: first, type_ids, removed });
        }
        let mut ids = Vec::with_capacity(a + b + special);
        let mut type_ids = Vec::with_capacity(a + b + special);
        for slot in slots {
            let kind = match *slot {
                Slot::Token(id, kind) => {
                    ids.push(id);
                    kind
                }
                Slot::First(kind) => {
                    ids.extend_from_slice(&first[..a]);
                    kind
                }
                Slot::Second(kind) => {
                    ids.extend_from_slice(&second[..b]);
                    kind
                }
            };
            type_ids.resize(ids.len(), kind);
        }
        Ok(Ids { ids, type_ids, removed })
    }

    fn added_count(&self, pair: bool) -> usize {
        self.special_count(pair, true)
    }

    fn id(&self, token: &str) -> Option<u32> {
        self.added.id(token).or_else(|| self.model.id(token))
    }

    fn token(&self, id: u32) -> Option<String> {
        self.added.get(id).map(|token| token.surface.clone()).or_else(|| self.model.token(id))
    }

    fn added_content(&self, id: u32) -> Option<String> {
        self.added.get(id).map(|token| token.declared.content.clone())
    }

    fn is_special(&self, id: u32) -> bool {
        self.added.get(id).is_some_and(|token| token.declared.special) || self.model.is_control(id)
    }

    fn size(&self) -> usize {
        self.model.size().max(self.added.last_id().map_or(0, |id| id as usize + 1))
    }
}
