//! Text cases: complete sentence-transformers folders, and real embedding models found by their checksum.
//!
//! Outputs: `embeddings` `[texts, dim]` with the prompt that inputs.json names, else the folder's default one;
//! `embeddings.{prompt}` for each of `prompt_names`; `pair_cosines` `[pairs]` where inputs.json has `pairs`. The stored
//! `token_ids` are compared exactly.

use super::case::{Case, Stop};
use super::tokens;
use super::{Context, Outputs, Row};
use embed::{EmbedError, EmbedOptions, Embedder, OpenOptions, Prompt};
use hub::Entry;
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;
use tokenizer::{EncodeOptions, Truncation};
use weights::Tensor;

#[derive(Deserialize)]
struct Inputs {
    texts: Vec<String>,
    max_seq_length: Option<usize>,
    token_ids: Option<Vec<Vec<u32>>>,
    prompt: Option<String>,
    prompt_name: Option<String>,
    #[serde(default)]
    prompt_names: Vec<String>,
    #[serde(default)]
    pairs: Vec<(usize, usize)>,
}

/// The case is the model's folder.
pub(crate) fn run(case: &Case, cx: &Context) -> Result<Outputs, Stop> {
    outputs(case, &case.dir, cx)
}

/// The model's folder is where the weights with the checksum lie that meta.json gives as `sha256`; without one they are
/// those of the default embedder.
pub(crate) fn run_real(case: &Case, cx: &Context) -> Result<Outputs, Stop> {
    let given = case.meta.get("sha256").and_then(Value::as_str);
    let pinned = || Entry::default_embedder().files.iter().rev().find_map(|file| file.sha256);
    let sha256 = given.or_else(pinned).ok_or_else(|| Stop::Failed("meta.json: no sha256 of the weights".into()))?;
    let file = cx.files.find(&case.dir, sha256)?;
    outputs(case, file.parent().unwrap_or(&file), cx)
}

fn outputs(case: &Case, model: &Path, cx: &Context) -> Result<Outputs, Stop> {
    let inputs: Inputs = case.inputs()?;
    let options = OpenOptions { ops: Some(cx.ops.clone()), pooling: None };
    let embedder = Embedder::from_dir(model, &options).map_err(stop)?;
    let default = match (&inputs.prompt, &inputs.prompt_name) {
        (Some(text), _) => Prompt::Text(text.clone()),
        (None, Some(name)) => Prompt::Name(name.clone()),
        (None, None) => Prompt::Default,
    };
    let mut outputs = Outputs::default();
    if let Some(expected) = &inputs.token_ids {
        outputs.rows.push(token_ids(case, &embedder, &inputs, &default, expected)?);
    }
    let embed = |prompt: Prompt| -> Result<Vec<Vec<f32>>, Stop> {
        let options = EmbedOptions { prompt, truncate: inputs.max_seq_length.is_some(), ..Default::default() };
        let embeddings = embedder.embed(&inputs.texts, &options).map_err(stop)?;
        Ok(embeddings.into_iter().map(|e| e.vector).collect())
    };
    let mut put = |name: String, vectors: &[Vec<f32>]| {
        let shape = vec![vectors.len(), embedder.dimensions()];
        outputs.tensors.push(Tensor::from_f32(&name, shape, vectors.concat()));
    };
    let vectors = embed(default)?;
    put("embeddings".into(), &vectors);
    for name in &inputs.prompt_names {
        put(format!("embeddings.{name}"), &embed(Prompt::Name(name.clone()))?);
    }
    if !inputs.pairs.is_empty() {
        let vector = |i: usize| vectors.get(i).ok_or_else(|| Stop::Failed(format!("inputs.json: pair with text {i}")));
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let cosines = inputs.pairs.iter().map(|&(a, b)| Ok(dot(vector(a)?, vector(b)?) as f32));
        let cosines = cosines.collect::<Result<Vec<f32>, Stop>>()?;
        outputs.tensors.push(Tensor::from_f32("pair_cosines", vec![cosines.len()], cosines));
    }
    Ok(outputs)
}

/// How many texts have other ids than the reference.
fn token_ids(
    case: &Case,
    embedder: &Embedder,
    inputs: &Inputs,
    prompt: &Prompt,
    expected: &[Vec<u32>],
) -> Result<Row, Stop> {
    let modules = embedder.modules();
    let prompt = match (prompt, &modules.default_prompt) {
        (Prompt::Text(text), _) => text.as_str(),
        (Prompt::Name(name), _) | (_, Some(name)) => modules.prompts.get(name).map_or("", String::as_str),
        _ => "",
    };
    let truncation = inputs.max_seq_length.map(Truncation::to);
    let options = EncodeOptions { truncation, ..Default::default() };
    let (mut wrong, mut first) = (expected.len().abs_diff(inputs.texts.len()), None);
    for (i, (text, expected)) in inputs.texts.iter().zip(expected).enumerate() {
        let text = [prompt, text].concat();
        let text = if modules.lower_case { text.to_lowercase() } else { text };
        let (ids, _) = embedder.tokenizer().encode_ids_with(&text, &options).map_err(Stop::failed)?;
        if ids != *expected {
            wrong += 1;
            first.get_or_insert_with(|| format!("text {i} has ids {ids:?}, expected {expected:?}"));
        }
    }
    Ok(Row::items(&case.name, "token_ids", wrong, first))
}

fn stop(error: EmbedError) -> Stop {
    match error {
        EmbedError::Inference(error) => tokens::stop(error),
        EmbedError::Module { .. } => Stop::Refused(error.to_string()),
        _ => Stop::failed(error),
    }
}
