//! From `tokenizer.json` to an engine: ours where it covers all that the file asks for, else the `tokenizers` crate's.
//!
//! The vocabulary and the merges, most of the file, go from its bytes into their tables without a tree or a list between.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::bpe::{Bpe, MergeList, Options};
use crate::config::{Added, TokenizerConfig};
use crate::detokenize::Detokenizer;
use crate::engine::Engine;
use crate::error::TokenizerError;
use crate::fallback::Fallback;
use crate::layout::Layout;
use crate::normalize::Normalizer;
use crate::pipeline::{Parts, Pipeline};
use crate::pretokenize::Words;
use crate::unigram::Unigram;
use crate::vet;
use crate::vocab::{Builder, Vocab};
use crate::wordpiece::WordPiece;

/// The file; truncation and padding are the caller's affair and not read.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    added_tokens: Vec<AddedEntry>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    model: ModelFile,
}

/// An added token as the file writes it.
#[derive(Deserialize)]
pub(crate) struct AddedEntry {
    id: u32,
    content: String,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
}

/// Reads the bytes of a `tokenizer.json` and adds the tokens that `config` declares beyond it.
pub(crate) fn load(
    path: &Path,
    bytes: &[u8],
    config: &TokenizerConfig,
) -> Result<(Box<dyn Engine>, Detokenizer), TokenizerError> {
    let invalid = |reason| TokenizerError::Invalid { path: path.to_owned(), reason };
    let unsupported = |what| TokenizerError::Unsupported { path: path.to_owned(), what };
    // Checked once, not text by text.
    let text = std::str::from_utf8(bytes).map_err(|e| invalid(format!("not UTF-8 at byte {}", e.valid_up_to())))?;
    let file: File = serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?;
    if let Some(version) = file.version.as_deref().filter(|v| *v != "1.0") {
        return Err(unsupported(format!("tokenizer.json version {version}")));
    }
    if file.model.dropout.is_some_and(|p| p > 0.0) {
        return Err(unsupported("BPE dropout, which encodes the same text differently each time,".into()));
    }
    let steps = [
        ("normalizer", &file.normalizer),
        ("pre_tokenizer", &file.pre_tokenizer),
        ("post_processor", &file.post_processor),
        ("decoder", &file.decoder),
    ];
    for (name, step) in steps {
        vet::part(name, step).map_err(invalid)?;
    }
    let detokenizer = Detokenizer::read(&file.decoder).map_err(|e| invalid(format!("decoder: {e}")))?;
    let engine: Box<dyn Engine> = match own(file, config) {
        Some(pipeline) => Box::new(pipeline),
        None => Box::new(Fallback::read(bytes, config).map_err(invalid)?),
    };
    Ok((engine, detokenizer))
}

/// The file as our own pipeline; none if it asks for what that does not cover.
fn own(file: File, config: &TokenizerConfig) -> Option<Pipeline> {
    let words = Words::read(&file.pre_tokenizer)?;
    let normalizer = match &file.normalizer {
        Value::Null => None,
        value => Some(Normalizer::read(value)?),
    };
    let layout = Layout::read(&file.post_processor)?;
    let model = file.model;
    let vocab = model.vocab?;
    let added = added_tokens(file.added_tokens, config, |token| vocab.get(token.as_bytes()).is_some());
    let empty = |text: &Option<String>| text.as_ref().is_none_or(String::is_empty);
    let byte_level = words.byte_level;
    let parts = Parts { normalizer, words, layout, added };
    match model.kind.as_deref()? {
        "BPE" => {
            if !empty(&model.prefix) || !empty(&model.suffix) || !vocab.is_one_to_one() {
                return None;
            }
            let options = Options {
                byte_level,
                ignore_merges: model.ignore_merges,
                byte_fallback: model.byte_fallback,
                fuse_unknown: model.fuse_unknown,
                unknown: model.unknown,
            };
            let bpe = Bpe::new(vocab, model.merges?, &options).ok()?;
            bpe.has_all_bytes().then(|| Pipeline::new(bpe, parts))
        }
        _ if byte_level => None,
        "WordPiece" => {
            let (unknown, mark) = (model.unknown?, model.prefix?);
            let longest = model.longest_word?;
            if !vocab.is_one_to_one() {
                return None;
            }
            Some(Pipeline::wordpiece(WordPiece::new(vocab, &unknown, &mark, longest).ok()?, parts))
        }
        "Unigram" => {
            let scores = model.scores.filter(|scores| scores.iter().all(|s| s.is_finite()))?;
            Some(Pipeline::new(Unigram::new(vocab, scores, model.unknown_id, model.byte_fallback).ok()?, parts))
        }
        _ => None,
    }
}

/// The tokens of the file, and those that only the configuration knows; it also decides which of the file's are special.
pub(crate) fn added_tokens(
    entries: Vec<AddedEntry>,
    config: &TokenizerConfig,
    known: impl Fn(&str) -> bool,
) -> Vec<Added> {
    let mut added: Vec<Added> = entries
        .into_iter()
        .map(|t| Added {
            content: t.content,
            id: Some(t.id),
            special: t.special,
            normalized: t.normalized,
            single_word: t.single_word,
            lstrip: t.lstrip,
            rstrip: t.rstrip,
        })
        .collect();
    let places: HashMap<String, usize> = added.iter().zip(0..).map(|(t, i)| (t.content.clone(), i)).collect();
    for token in &config.added {
        match places.get(&token.content) {
            Some(&at) => added[at].special |= token.special,
            None if token.id.is_some() || known(&token.content) => added.push(token.clone()),
            None => {}
        }
    }
    added
}

/// A model as the file writes it, whichever its kind. What is not understood is none, and left to the fallback.
#[derive(Default)]
struct ModelFile {
    kind: Option<String>,
    dropout: Option<f32>,
    unknown: Option<String>,
    unknown_id: Option<u32>,
    prefix: Option<String>,
    suffix: Option<String>,
    longest_word: Option<usize>,
    fuse_unknown: bool,
    byte_fallback: bool,
    ignore_merges: bool,
    vocab: Option<Vocab>,
    scores: Option<Vec<f64>>,
    merges: Option<MergeList>,
}

impl<'de> Deserialize<'de> for ModelFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = ModelFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a model")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ModelFile, A::Error> {
                let mut model = ModelFile::default();
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "type" => model.kind = map.next_value()?,
                        "dropout" => model.dropout = map.next_value()?,
                        "unk_token" => model.unknown = map.next_value()?,
                        "unk_id" => model.unknown_id = map.next_value()?,
                        "continuing_subword_prefix" => model.prefix = map.next_value()?,
                        "end_of_word_suffix" => model.suffix = map.next_value()?,
                        "max_input_chars_per_word" => model.longest_word = map.next_value()?,
                        "fuse_unk" => model.fuse_unknown = map.next_value::<Option<bool>>()?.unwrap_or(false),
                        "byte_fallback" => model.byte_fallback = map.next_value::<Option<bool>>()?.unwrap_or(false),
                        "ignore_merges" => model.ignore_merges = map.next_value::<Option<bool>>()?.unwrap_or(false),
                        "vocab" => {
                            let (vocab, scores) = map.next_value_seed(VocabSeed)?;
                            (model.vocab, model.scores) = (vocab, Some(scores));
                        }
                        "merges" => match &model.vocab {
                            Some(vocab) => model.merges = map.next_value_seed(MergesSeed(vocab))?,
                            None => drop(map.next_value::<IgnoredAny>()?),
                        },
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(model)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// A vocabulary: an object of ids, or a list of pieces with their scores.
struct VocabSeed;

impl<'de> DeserializeSeed<'de> for VocabSeed {
    type Value = (Option<Vocab>, Vec<f64>);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for VocabSeed {
    type Value = (Option<Vocab>, Vec<f64>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a vocabulary: an object of ids, or a list of pieces and scores")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut builder = Builder::default();
        let mut full = Ok(());
        while map.next_key_seed(TextSeed(|token: &str| builder.text(token.as_bytes())))?.is_some() {
            full = full.and(builder.number(map.next_value()?));
        }
        let sorted = full.ok().and_then(|()| builder.sorted(0));
        Ok((sorted.map(Builder::build), Vec::new()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut builder = Builder::default();
        let mut scores = Vec::new();
        let mut full = Ok(());
        let mut piece = |token: &str| full = full.clone().and(builder.push(token.as_bytes()));
        while let Some((_, score)) = seq.next_element_seed(PairSeed(TextSeed(&mut piece), Number))? {
            scores.push(score);
        }
        Ok((full.ok().map(|()| builder.build()), scores))
    }
}

/// A number.
struct Number;

impl<'de> DeserializeSeed<'de> for Number {
    type Value = f64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<f64, D::Error> {
        f64::deserialize(deserializer)
    }
}

/// Merges: a list of pairs, or of texts with a space between the two tokens. None if one does not fit the vocabulary.
struct MergesSeed<'v>(&'v Vocab);

impl<'de> DeserializeSeed<'de> for MergesSeed<'_> {
    type Value = Option<MergeList>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for MergesSeed<'_> {
    type Value = Option<MergeList>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of merges")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut merge = MergeSeed { vocab: self.0, merges: Some(MergeList::default()), left: String::new() };
        while seq.next_element_seed(&mut merge)?.is_some() {}
        Ok(merge.merges)
    }
}

struct MergeSeed<'v> {
    vocab: &'v Vocab,
    merges: Option<MergeList>,
    left: String,
}

impl MergeSeed<'_> {
    fn push(&mut self, left: &str, right: &str) {
        if self.merges.as_mut().is_some_and(|merges| merges.push(self.vocab, left, right).is_err()) {
            self.merges = None;
        }
    }
}

impl<'de> DeserializeSeed<'de> for &mut MergeSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut MergeSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a merge: two tokens, or a text with a space between them")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        match text.split_once(' ') {
            // Some files begin with a comment.
            _ if text.starts_with("#version") => {}
            Some((left, right)) if !right.contains(' ') => self.push(left, right),
            _ => self.merges = None,
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut left = std::mem::take(&mut self.left);
        let first = seq.next_element_seed(TextSeed(|text: &str| {
            left.clear();
            left.push_str(text);
        }))?;
        let second = seq.next_element_seed(TextSeed(|text: &str| self.push(&left, text)))?;
        self.left = left;
        if first.is_none() || second.is_none() || seq.next_element::<IgnoredAny>()?.is_some() {
            self.merges = None;
        }
        Ok(())
    }
}

/// A text, given to a function where it lies.
struct TextSeed<F>(F);

impl<'de, T, F: FnOnce(&str) -> T> DeserializeSeed<'de> for TextSeed<F> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<T, F: FnOnce(&str) -> T> Visitor<'_> for TextSeed<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok((self.0)(text))
    }
}

/// A list of two.
struct PairSeed<A, B>(A, B);

impl<'de, A: DeserializeSeed<'de>, B: DeserializeSeed<'de>> DeserializeSeed<'de> for PairSeed<A, B> {
    type Value = (A::Value, B::Value);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_tuple(2, self)
    }
}

impl<'de, A: DeserializeSeed<'de>, B: DeserializeSeed<'de>> Visitor<'de> for PairSeed<A, B> {
    type Value = (A::Value, B::Value);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of two")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Self::Value, S::Error> {
        let short = |n| serde::de::Error::invalid_length(n, &"a list of two");
        let first = seq.next_element_seed(self.0)?.ok_or_else(|| short(0))?;
        let second = seq.next_element_seed(self.1)?.ok_or_else(|| short(1))?;
        Ok((first, second))
    }
}
