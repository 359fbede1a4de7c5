//! From `tokenizer.json` to an engine: ours where it covers all that the file asks for, else the `tokenizers` crate's.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::bpe::{Bpe, Options};
use crate::config::{Added, TokenizerConfig};
use crate::detokenize::Detokenizer;
use crate::engine::Engine;
use crate::error::TokenizerError;
use crate::fallback::Fallback;
use crate::layout::Layout;
use crate::normalize::Normalizer;
use crate::open::{Loaded, MAX_FILE_BYTES, too_large};
use crate::pipeline::{Parts, Pipeline};
use crate::pretokenize::Words;
use crate::scan::{Scanned, Stop, scan};
use crate::unigram::Unigram;
use crate::vet;
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

/// Reads a `tokenizer.json` and adds the tokens that `config` declares beyond it. `again` gives the whole file, where the
/// fallback needs it.
pub(crate) fn load(
    path: &Path,
    file: impl Read,
    again: impl FnOnce() -> Result<Vec<u8>, TokenizerError>,
    config: &TokenizerConfig,
) -> Result<Loaded, TokenizerError> {
    let invalid = |reason| TokenizerError::Invalid { path: path.to_owned(), reason };
    let unsupported = |what| TokenizerError::Unsupported { path: path.to_owned(), what };
    let mut scanned = scan(file, MAX_FILE_BYTES).map_err(|stop| match stop {
        Stop::Read(source) => TokenizerError::Read { path: path.to_owned(), source },
        Stop::TooLarge => too_large(path),
        Stop::Invalid(reason) => invalid(reason),
    })?;
    let file: File = serde_json::from_slice(&scanned.rest).map_err(|error| invalid(error.to_string()))?;
    scanned.rest = Vec::new();
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
    let engine: Box<dyn Engine> = match own(file, scanned, config) {
        Some(pipeline) => Box::new(pipeline),
        None => Box::new(Fallback::read(&again()?, config).map_err(invalid)?),
    };
    Ok((engine, detokenizer))
}

/// The file as our own pipeline; none if it asks for what that does not cover.
fn own(file: File, scanned: Scanned, config: &TokenizerConfig) -> Option<Pipeline> {
    let words = Words::read(&file.pre_tokenizer)?;
    let normalizer = match &file.normalizer {
        Value::Null => None,
        value => Some(Normalizer::read(value)?),
    };
    let layout = Layout::read(&file.post_processor)?;
    let model = file.model;
    let vocab = scanned.vocab?;
    let added = added_tokens(file.added_tokens, config, |token| vocab.get(token.as_bytes()).is_some());
    let empty = |text: &Option<String>| text.as_ref().is_none_or(String::is_empty);
    let byte_level = words.byte_level;
    let parts = Parts { normalizer, words, layout, added };
    match model.kind.as_deref()? {
        "BPE" => {
            if !empty(&model.continuing_subword_prefix) || !empty(&model.end_of_word_suffix) || !vocab.is_one_to_one() {
                return None;
            }
            let options = Options {
                byte_level,
                ignore_merges: model.ignore_merges.unwrap_or(false),
                byte_fallback: model.byte_fallback.unwrap_or(false),
                fuse_unknown: model.fuse_unk.unwrap_or(false),
                unknown: model.unk_token,
            };
            let bpe = Bpe::new(vocab, scanned.merges?, &options).ok()?;
            bpe.has_all_bytes().then(|| Pipeline::new(bpe, parts))
        }
        _ if byte_level => None,
        "WordPiece" => {
            let (unknown, mark) = (model.unk_token?, model.continuing_subword_prefix?);
            let longest = model.max_input_chars_per_word?;
            if !vocab.is_one_to_one() {
                return None;
            }
            Some(Pipeline::wordpiece(WordPiece::new(vocab, &unknown, &mark, longest).ok()?, parts))
        }
        "Unigram" => {
            let scores = Some(scanned.scores).filter(|s| s.len() == vocab.len() && s.iter().all(|s| s.is_finite()))?;
            let byte_fallback = model.byte_fallback.unwrap_or(false);
            Some(Pipeline::new(Unigram::new(vocab, scores, model.unk_id, byte_fallback).ok()?, parts))
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

/// A model as the file writes it, whichever its kind, without vocabulary and merges.
#[derive(Deserialize)]
struct ModelFile {
    #[serde(rename = "type")]
    kind: Option<String>,
    dropout: Option<f32>,
    unk_token: Option<String>,
    unk_id: Option<u32>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    max_input_chars_per_word: Option<usize>,
    fuse_unk: Option<bool>,
    byte_fallback: Option<bool>,
    ignore_merges: Option<bool>,
}
