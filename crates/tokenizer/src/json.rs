//! From `tokenizer.json` to a pipeline.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokenizers::models::ModelWrapper;
use tokenizers::models::bpe::BPE;
use tokenizers::models::unigram::Unigram;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::tokenizer::Model as _;
use tokenizers::{DecoderWrapper, NormalizerWrapper};

use crate::config::{Added, TokenizerConfig};
use crate::detokenize::Detokenizer;
use crate::error::TokenizerError;
use crate::pipeline::{Model, Normalizer, Parts, Pipeline, guard};
use crate::{files, vet};

/// The file; truncation and padding are the caller's affair and not read.
#[derive(Deserialize)]
struct File<M> {
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
    model: M,
}

/// A first look: which model it is. Read as that type, a vocabulary is not copied through a tree of JSON values.
#[derive(Deserialize)]
struct Kind {
    model: KindOfModel,
}

#[derive(Deserialize)]
struct KindOfModel {
    #[serde(rename = "type")]
    name: Option<String>,
}

#[derive(Deserialize)]
struct AddedEntry {
    id: u32,
    content: String,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
}

/// Reads the bytes of a `tokenizer.json` and adds the tokens that `config` declares beyond it.
pub(crate) fn load(path: &Path, bytes: &[u8], config: &TokenizerConfig) -> Result<Pipeline, TokenizerError> {
    let kind = serde_json::from_slice::<Kind>(bytes).ok().and_then(|k| k.model.name);
    match kind.as_deref() {
        Some("BPE") => read::<BPE>(path, bytes, config),
        Some("WordPiece") => read::<WordPiece>(path, bytes, config),
        Some("Unigram") => read::<Unigram>(path, bytes, config),
        _ => read::<ModelWrapper>(path, bytes, config),
    }
}

fn read<M>(path: &Path, bytes: &[u8], config: &TokenizerConfig) -> Result<Pipeline, TokenizerError>
where
    M: DeserializeOwned + Into<ModelWrapper>,
{
    let invalid = |reason| TokenizerError::Invalid { path: path.to_owned(), reason };
    let file: File<M> = guard(|| Ok(serde_json::from_slice(bytes)?)).map_err(invalid)?;
    let model: ModelWrapper = file.model.into();
    if file.version.as_deref().is_some_and(|v| v != "1.0") {
        return Err(TokenizerError::Unsupported {
            path: path.to_owned(),
            what: format!("tokenizer.json version {}", file.version.unwrap_or_default()),
        });
    }
    if matches!(&model, ModelWrapper::BPE(bpe) if bpe.dropout.is_some_and(|p| p > 0.0)) {
        return Err(TokenizerError::Unsupported {
            path: path.to_owned(),
            what: "BPE dropout, which encodes the same text differently each time,".into(),
        });
    }
    let mut added: Vec<Added> = file
        .added_tokens
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
    // Tokens that only the configuration knows; it also decides which of the file's are special.
    let known: HashMap<String, usize> = added.iter().zip(0..).map(|(t, i)| (t.content.clone(), i)).collect();
    for token in &config.added {
        match known.get(&token.content) {
            Some(&at) => added[at].special |= token.special,
            None if token.id.is_some() || model.token_to_id(&token.content).is_some() => added.push(token.clone()),
            None => {}
        }
    }
    let parts = Parts {
        normalizer: step::<NormalizerWrapper>("normalizer", file.normalizer).map_err(invalid)?.map(Normalizer::Hf),
        pre_tokenizer: step("pre_tokenizer", file.pre_tokenizer).map_err(invalid)?,
        model: Model::Hf(model),
        post_processor: step("post_processor", file.post_processor).map_err(invalid)?,
        detokenizer: Detokenizer::hf(step::<DecoderWrapper>("decoder", file.decoder).map_err(invalid)?),
        added,
    };
    Pipeline::new(parts).map_err(invalid)
}

/// A part of the file, if it has it.
fn step<T: DeserializeOwned>(name: &str, value: Value) -> Result<Option<T>, String> {
    if value.is_null() {
        return Ok(None);
    }
    vet::part(name, &value)?;
    files::part(value).map(Some).map_err(|error| format!("{name}: {error}"))
}
