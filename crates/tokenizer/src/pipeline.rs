//! The way from text to ids: cut out added tokens, normalise, split, segment, put special tokens around.
//!
//! The steps are values of the `tokenizers` crate, held apart (its own `Tokenizer` keeps truncation and the reading of
//! special tokens as state, here they are arguments of a call). The model may also be one of ours.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use tokenizers::models::wordlevel::WordLevel;
use tokenizers::models::{ModelWrapper, TrainerWrapper};
use tokenizers::tokenizer::{
    AddedToken, AddedVocabulary, Model as _, NormalizedString, OffsetReferential, OffsetType, PostProcessor as _,
    PreTokenizedString, PreTokenizer as _,
};
use tokenizers::{NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, Token};

use crate::config::Added;
use crate::detokenize::Detokenizer;
use crate::encoding::{EncodeOptions, Encoding, Ids, Truncation};
use crate::error::TokenizerError;
use crate::sentencepiece::{self, Segmenter};
use crate::tiktoken::Ranks;
use crate::wordpiece::WordPiece;

/// How a word becomes ids.
pub(crate) enum Model {
    /// BPE, WordPiece, WordLevel or unigram of the `tokenizers` crate.
    Hf(ModelWrapper),
    /// Scored pieces, as the SentencePiece library.
    Pieces(Segmenter),
    /// Byte pairs by rank, as tiktoken.
    Ranks(Ranks),
}

/// How a text is normalised.
pub(crate) enum Normalizer {
    /// As `tokenizers` does.
    Hf(NormalizerWrapper),
    /// As the SentencePiece library does.
    SentencePiece(sentencepiece::Normalizer),
}

pub(crate) struct Pipeline {
    pub(crate) added: AddedVocabulary,
    /// The same tokens, with special ones read as plain text.
    plain: AddedVocabulary,
    normalizer: Option<Normalizer>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    pub(crate) model: Model,
    post_processor: Option<PostProcessorWrapper>,
    pub(crate) detokenizer: Detokenizer,
    /// What the post-processor makes of texts, where it only puts tokens around them: without and with special tokens,
    /// for one text and for two.
    layouts: [[Option<Layout>; 2]; 2],
    /// A shorter way to the same ids, for BERT.
    wordpiece: Option<WordPiece>,
}

/// The parts of a pipeline, as the loaders find them.
pub(crate) struct Parts {
    pub(crate) normalizer: Option<Normalizer>,
    pub(crate) pre_tokenizer: Option<PreTokenizerWrapper>,
    pub(crate) model: Model,
    pub(crate) post_processor: Option<PostProcessorWrapper>,
    pub(crate) detokenizer: Detokenizer,
    pub(crate) added: Vec<Added>,
}

impl Pipeline {
    /// Puts the parts together; errors are in words, without the file they came from.
    pub(crate) fn new(parts: Parts) -> Result<Self, String> {
        guard(|| {
            let mut added = AddedVocabulary::new();
            added.add_tokens(parts.added.iter().map(added_token), &parts.model, parts.normalizer.as_ref())?;
            let mut plain = added.clone();
            plain.set_encode_special_tokens(true);
            let layout = |pair, special| layout(parts.post_processor.as_ref(), pair, special);
            let layouts = [false, true].map(|special| [false, true].map(|pair| layout(pair, special)));
            let wordpiece = WordPiece::new(&parts);
            Ok(Self {
                added,
                plain,
                normalizer: parts.normalizer,
                pre_tokenizer: parts.pre_tokenizer,
                model: parts.model,
                post_processor: parts.post_processor,
                detokenizer: parts.detokenizer,
                layouts,
                wordpiece,
            })
        })
    }

    /// Ids, offsets and marks of a text or a pair.
    pub(crate) fn encode(
        &self,
        text: &str,
        pair: Option<&str>,
        options: &EncodeOptions,
    ) -> Result<Encoding, TokenizerError> {
        let fail = |reason| TokenizerError::Encode { bytes: text.len() + pair.map_or(0, str::len), reason };
        let encode =
            |text, kind| guard(|| self.segment(text, options.plain)?.into_encoding(None, kind, OffsetType::Char));
        let mut first = encode(text, 0).map_err(fail)?;
        let mut second = pair.map(|text| encode(text, 1)).transpose().map_err(fail)?;
        let mut removed = 0;
        if let Some(truncation) = &options.truncation {
            let special = self.added_count(second.is_some(), options.add_special);
            let lengths = (first.len(), second.as_ref().map(|e| e.len()));
            let (a, b) = self.keep(truncation, lengths.0, lengths.1, special)?;
            removed = lengths.0 + lengths.1.unwrap_or(0) - a - b;
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
        }
        let done =
            guard(|| post_process(self.post_processor.as_ref(), first, second, options.add_special)).map_err(fail)?;
        Ok(Encoding {
            ids: done.get_ids().to_vec(),
            type_ids: done.get_type_ids().to_vec(),
            offsets: done.get_offsets().to_vec(),
            special_mask: done.get_special_tokens_mask().iter().map(|&m| m != 0).collect(),
            sequence_ids: done.get_sequence_ids().iter().map(|s| s.map(|s| s as u8)).collect(),
            removed,
        })
    }

    /// Ids and types of a text or a pair, and how many tokens truncation removed; nothing else is computed.
    pub(crate) fn encode_ids(
        &self,
        text: &str,
        pair: Option<&str>,
        options: &EncodeOptions,
    ) -> Result<Ids, TokenizerError> {
        let layout = &self.layouts[usize::from(options.add_special)][usize::from(pair.is_some())];
        let Some(layout) = layout else {
            let e = self.encode(text, pair, options)?;
            return Ok(Ids { ids: e.ids, type_ids: e.type_ids, removed: e.removed });
        };
        let first = self.words(text, options.plain)?;
        let second = pair.map(|text| self.words(text, options.plain)).transpose()?;
        let lengths = (first.len(), second.as_ref().map(Vec::len));
        let second = second.unwrap_or_default();
        let special = layout.iter().filter(|slot| matches!(slot, Slot::Token(..))).count();
        let (a, b) = match &options.truncation {
            Some(truncation) => self.keep(truncation, lengths.0, lengths.1, special)?,
            None => (first.len(), second.len()),
        };
        let mut ids = Vec::with_capacity(a + b + special);
        let mut type_ids = Vec::with_capacity(a + b + special);
        for slot in layout {
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
        Ok(Ids { ids, type_ids, removed: first.len() + second.len() - a - b })
    }

    /// The ids of a text alone.
    fn words(&self, text: &str, plain: bool) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::with_capacity(text.len() / 4 + 4);
        let general = |text: &str, ids: &mut Vec<u32>| {
            guard(|| {
                let pieces = self.segment(text, plain)?;
                for (_, _, tokens) in pieces.get_splits(OffsetReferential::Original, OffsetType::None) {
                    ids.extend(tokens.iter().flatten().map(|t| t.id));
                }
                Ok(())
            })
        };
        match &self.wordpiece {
            Some(wordpiece) => wordpiece.encode(text, &mut ids, general),
            None => general(text, &mut ids),
        }
        .map_err(|reason| TokenizerError::Encode { bytes: text.len(), reason })?;
        Ok(ids)
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

    /// How many tokens the post-processor adds.
    pub(crate) fn added_count(&self, pair: bool, add_special: bool) -> usize {
        match &self.post_processor {
            Some(processor) if add_special => processor.added_tokens(pair),
            _ => 0,
        }
    }

    fn keep(
        &self,
        truncation: &Truncation,
        first: usize,
        second: Option<usize>,
        special: usize,
    ) -> Result<(usize, usize), TokenizerError> {
        truncation.keep(first, second, special).ok_or_else(|| TokenizerError::Truncation {
            max_length: truncation.max_length,
            strategy: truncation.strategy,
            first,
            second: second.unwrap_or(0),
            special,
        })
    }

    /// Whether an id counts as special: an added token that says so, or a control piece.
    pub(crate) fn is_special(&self, id: u32) -> bool {
        self.id_to_token(id).is_some_and(|token| self.added.is_special_token(&token))
            || matches!(&self.model, Model::Pieces(model) if model.is_control(id))
    }

    pub(crate) fn id_to_token(&self, id: u32) -> Option<String> {
        self.added.simple_id_to_token(id).or_else(|| self.model.id_to_token(id))
    }
}

/// A part of what a post-processor makes: a token of its own or a text, with their type.
enum Slot {
    Token(u32, u32),
    First(u32),
    Second(u32),
}

type Layout = Vec<Slot>;

/// What a post-processor makes of texts, found by giving it texts of one impossible token each; none where it does more
/// than putting tokens around them.
fn layout(processor: Option<&PostProcessorWrapper>, pair: bool, special: bool) -> Option<Layout> {
    let marker = |id, kind| tokenizers::Encoding::from_tokens(vec![Token::new(id, String::new(), (0, 0))], kind);
    let (first, second) = (u32::MAX, u32::MAX - 1);
    let done = post_process(processor, marker(first, 0), pair.then(|| marker(second, 1)), special).ok()?;
    let slot = |(&id, &kind): (&u32, &u32)| match id {
        id if id == first => Slot::First(kind),
        id if id == second => Slot::Second(kind),
        id => Slot::Token(id, kind),
    };
    let count = |id| done.get_ids().iter().filter(|&&i| i == id).count();
    let once = count(first) == 1 && count(second) == usize::from(pair);
    once.then(|| done.get_ids().iter().zip(done.get_type_ids()).map(slot).collect())
}

fn post_process(
    processor: Option<&PostProcessorWrapper>,
    first: tokenizers::Encoding,
    second: Option<tokenizers::Encoding>,
    add_special: bool,
) -> tokenizers::Result<tokenizers::Encoding> {
    if let Some(processor) = processor {
        return processor.process(first, second, add_special);
    }
    let mut all = tokenizers::Encoding::default();
    for (i, mut encoding) in [Some(first), second].into_iter().flatten().enumerate() {
        encoding.set_sequence_id(i);
        all.merge_with(encoding, false);
    }
    Ok(all)
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

fn added_token(token: &Added) -> AddedToken {
    AddedToken::from(token.content.clone(), token.special)
        .single_word(token.single_word)
        .lstrip(token.lstrip)
        .rstrip(token.rstrip)
        .normalized(token.normalized)
}

impl tokenizers::Normalizer for Normalizer {
    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        match self {
            Self::Hf(normalizer) => normalizer.normalize(text),
            Self::SentencePiece(normalizer) => normalizer.normalize(text),
        }
    }
}

impl tokenizers::Model for Model {
    type Trainer = TrainerWrapper;

    fn tokenize(&self, word: &str) -> tokenizers::Result<Vec<Token>> {
        match self {
            Self::Hf(model) => model.tokenize(word),
            Self::Pieces(model) => Ok(model.tokenize(word)),
            Self::Ranks(model) => Ok(model.tokenize(word)),
        }
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        match self {
            Self::Hf(model) => model.token_to_id(token),
            Self::Pieces(model) => model.token_to_id(token),
            Self::Ranks(model) => model.token_to_id(token),
        }
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        match self {
            Self::Hf(model) => model.id_to_token(id),
            Self::Pieces(model) => model.id_to_token(id),
            Self::Ranks(model) => model.id_to_token(id),
        }
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        match self {
            Self::Hf(model) => model.get_vocab(),
            // Asked for by trainers only.
            Self::Pieces(_) | Self::Ranks(_) => HashMap::new(),
        }
    }

    fn get_vocab_size(&self) -> usize {
        match self {
            Self::Hf(model) => model.get_vocab_size(),
            Self::Pieces(model) => model.size(),
            Self::Ranks(model) => model.size(),
        }
    }

    fn save(&self, _: &Path, _: Option<&str>) -> tokenizers::Result<Vec<PathBuf>> {
        Err("tokenizers are read here, not written".into())
    }

    fn get_trainer(&self) -> TrainerWrapper {
        match self {
            Self::Hf(model) => model.get_trainer(),
            Self::Pieces(_) | Self::Ranks(_) => ModelWrapper::from(WordLevel::default()).get_trainer(),
        }
    }
}
