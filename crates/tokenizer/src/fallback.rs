//! The `tokenizers` crate itself, for a `tokenizer.json` that asks for what our own pipeline does not cover.
//!
//! The steps are values of that crate, held apart: its own `Tokenizer` keeps truncation and the reading of special tokens
//! as state, here they are arguments of a call.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokenizers::models::ModelWrapper;
use tokenizers::tokenizer::{
    AddedToken, AddedVocabulary, Model as _, OffsetType, PostProcessor as _, PreTokenizedString, PreTokenizer as _,
};
use tokenizers::{NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper};

use crate::config::{Added, TokenizerConfig};
use crate::encoding::{EncodeOptions, Encoding, Ids};
use crate::engine::{Engine, keep};
use crate::error::TokenizerError;
use crate::json::{AddedEntry, added_tokens};

pub(crate) struct Fallback {
    added: AddedVocabulary,
    /// The same tokens, with special ones read as plain text.
    plain: AddedVocabulary,
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    model: ModelWrapper,
    post_processor: Option<PostProcessorWrapper>,
}

/// What of the file is read here; the decoder is ours.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<AddedEntry>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    model: ModelWrapper,
}

impl Fallback {
    /// Reads a `tokenizer.json` whose steps were found to be harmless.
    ///
    /// # Errors
    /// In words, without the file they came from.
    pub(crate) fn read(bytes: &[u8], config: &TokenizerConfig) -> Result<Self, String> {
        let file: File = guard(|| Ok(serde_json::from_slice(bytes)?))?;
        let model = file.model;
        let added = added_tokens(file.added_tokens, config, |token| model.token_to_id(token).is_some());
        let normalizer: Option<NormalizerWrapper> = step("normalizer", file.normalizer)?;
        guard(|| {
            let mut vocabulary = AddedVocabulary::new();
            vocabulary.add_tokens(added.iter().map(added_token), &model, normalizer.as_ref())?;
            let mut plain = vocabulary.clone();
            plain.set_encode_special_tokens(true);
            Ok(Self {
                added: vocabulary,
                plain,
                normalizer,
                pre_tokenizer: step("pre_tokenizer", file.pre_tokenizer)?,
                model,
                post_processor: step("post_processor", file.post_processor)?,
            })
        })
    }

    fn segment(&self, text: &str, plain: bool) -> tokenizers::Result<PreTokenizedString> {
        let added = if plain { &self.plain } else { &self.added };
        let mut pieces = added.extract_and_normalize(self.normalizer.as_ref(), text);
        if let Some(pre_tokenizer) = &self.pre_tokenizer {
            pre_tokenizer.pre_tokenize(&mut pieces)?;
        }
        pieces.tokenize(|word| self.model.tokenize(word.get()))?;
        Ok(pieces)
    }

    fn process(
        &self,
        first: tokenizers::Encoding,
        second: Option<tokenizers::Encoding>,
        add_special: bool,
    ) -> tokenizers::Result<tokenizers::Encoding> {
        if let Some(processor) = &self.post_processor {
            return processor.process(first, second, add_special);
        }
        let mut all = tokenizers::Encoding::default();
        for (i, mut encoding) in [Some(first), second].into_iter().flatten().enumerate() {
            encoding.set_sequence_id(i);
            all.merge_with(encoding, false);
        }
        Ok(all)
    }
}

impl Engine for Fallback {
    fn name(&self) -> &'static str {
        "tokenizers"
    }

    fn encode(&self, text: &str, pair: Option<&str>, options: &EncodeOptions) -> Result<Encoding, TokenizerError> {
        let fail = |reason| TokenizerError::Encode { bytes: text.len() + pair.map_or(0, str::len), reason };
        let encode =
            |text, kind| guard(|| self.segment(text, options.plain)?.into_encoding(None, kind, OffsetType::Char));
        let mut first = encode(text, 0).map_err(fail)?;
        let mut second = pair.map(|text| encode(text, 1)).transpose().map_err(fail)?;
        let special = if options.add_special { self.added_count(pair.is_some()) } else { 0 };
        let lengths = (first.len(), second.as_ref().map(|e| e.len()));
        let (a, b) = keep(options, lengths.0, lengths.1, special)?;
        let removed = lengths.0 + lengths.1.unwrap_or(0) - a - b;
        let cut = |e: &mut tokenizers::Encoding, n| {
            if n < e.len() {
                e.truncate(n, 0, tokenizers::TruncationDirection::Right);
                e.take_overflowing();
            }
        };
        cut(&mut first, a);
        if let Some(second) = &mut second {
            cut(second, b);
        }
        let done = guard(|| self.process(first, second, options.add_special)).map_err(fail)?;
        Ok(Encoding {
            ids: done.get_ids().to_vec(),
            type_ids: done.get_type_ids().to_vec(),
            offsets: done.get_offsets().to_vec(),
            special_mask: done.get_special_tokens_mask().iter().map(|&m| m != 0).collect(),
            sequence_ids: done.get_sequence_ids().iter().map(|s| s.map(|s| s as u8)).collect(),
            removed,
        })
    }

    fn encode_ids(&self, text: &str, pair: Option<&str>, options: &EncodeOptions) -> Result<Ids, TokenizerError> {
        let e = self.encode(text, pair, options)?;
        Ok(Ids { ids: e.ids, type_ids: e.type_ids, removed: e.removed })
    }

    fn added_count(&self, pair: bool) -> usize {
        self.post_processor.as_ref().map_or(0, |processor| processor.added_tokens(pair))
    }

    fn id(&self, token: &str) -> Option<u32> {
        self.added.token_to_id(token, &self.model)
    }

    fn token(&self, id: u32) -> Option<String> {
        self.added.simple_id_to_token(id).or_else(|| self.model.id_to_token(id))
    }

    fn added_content(&self, id: u32) -> Option<String> {
        self.added.get_added_tokens_decoder().get(&id).map(|token| token.content.clone())
    }

    fn is_special(&self, id: u32) -> bool {
        self.added.get_added_tokens_decoder().get(&id).is_some_and(|token| token.special)
    }

    fn size(&self) -> usize {
        let added = self.added.get_added_tokens_decoder().keys().max();
        self.model.get_vocab_size().max(added.map_or(0, |&id| id as usize + 1))
    }
}

/// A part of the file, if it has it.
fn step<T: DeserializeOwned>(name: &str, value: Value) -> Result<Option<T>, String> {
    guard(|| Ok(serde_json::from_value(value)?)).map_err(|error| format!("{name}: {error}"))
}

fn added_token(token: &Added) -> AddedToken {
    AddedToken::from(token.content.clone(), token.special)
        .single_word(token.single_word)
        .lstrip(token.lstrip)
        .rstrip(token.rstrip)
        .normalized(token.normalized)
}

/// Runs code of the `tokenizers` crate on untrusted files. It indexes and unwraps in places that a hostile
/// tokenizer.json reaches (a charsmap whose trie points outside, a strip longer than the token), so a panic becomes an
/// error here; nothing that it leaves half done is used afterwards.
pub(crate) fn guard<T>(run: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(format!("the tokenizer's files are inconsistent ({text})"))
        }
    }
}
