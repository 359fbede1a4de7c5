//! `lattice inspect`: what do a model's files say, and what will Lattice do with them?

use super::{is_gguf, json_line, locate};
use crate::error::CliError;
use crate::executor::ExecutorArgs;
use crate::terminal::{Terminal, size, table};
use ::embed::{Embedder, OpenOptions, Reranker, Stage};
use ::models::{Config, ModelError, Shape};
use hub::Located;
use inference::{InferenceError, LanguageModel};
use ops::Precision;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use tokenizer::{Special, Tokenizer};
use weights::gguf::{self, Metadata};
use weights::{Checkpoint, Tensor};

/// What a model's files say, and what Lattice will do with them
///
/// Architecture, tensors and their formats, tokenizer, pooling, prompts, window. The model is loaded to see whether it can
/// run; if it cannot, the reason is told, and the rest is printed all the same.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A name of the catalog (`lattice models`), org/name on the Hub, a folder, or a .gguf file
    #[arg(value_name = "MODEL")]
    model: String,
    /// One object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    executor: ExecutorArgs,
}

#[derive(Serialize)]
struct Report {
    model: String,
    path: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    licence: Option<&'static str>,
    /// What config.json says, or why it does not; a GGUF file has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gguf: Option<Map<String, Value>>,
    weights: Value,
    tokenizer: Value,
    /// What Lattice will do.
    lattice: Value,
}

/// Tensors of one shape and format whose names differ in numbers only.
#[derive(Serialize)]
struct Group {
    name: String,
    tensors: usize,
    shape: Vec<usize>,
    format: &'static str,
    bytes: u64,
}

/// Keys of config.json that describe positions.
const ROPE: [&str; 8] = [
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "global_rope_theta",
    "local_rope_theta",
    "rotary_emb_base",
    "rotary_emb_fraction",
    "partial_rotary_factor",
];
/// Further keys of config.json that people look for.
const FACTS: [&str; 16] = [
    "architectures",
    "model_type",
    "torch_dtype",
    "dtype",
    "hidden_size",
    "dim",
    "n_embd",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "hidden_act",
    "vocab_size",
    "max_position_embeddings",
    "type_vocab_size",
];

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<(), CliError> {
    let options = OpenOptions { ops: Some(args.executor.open(Precision::Exact)?), pooling: None };
    let located = locate(&args.model, terminal)?;
    let path = &located.path;
    let (config, checkpoint) = (Config::read(path), Checkpoint::open(path));
    let tokenizer =
        if is_gguf(path) { inference::gguf_tokenizer(path).map_err(CliError::from) } else { tokenizer_of(path) };
    if config.is_err() && checkpoint.is_err() && tokenizer.is_err() {
        // A broken file is worth more words than "nothing there".
        return Err(match checkpoint {
            Err(error) if path.is_file() => error.into(),
            _ => CliError::NothingThere { path: path.clone() },
        });
    }
    let report = Report {
        model: located.entry.map_or(args.model, |e| e.name.to_owned()),
        path: path.clone(),
        commit: located.commit.clone(),
        licence: located.entry.map(|e| e.licence),
        gguf: checkpoint.as_ref().ok().and_then(Checkpoint::metadata).map(describe_gguf),
        config: (!is_gguf(path)).then(|| config.as_ref().map_or_else(|e| absent(&e), describe_config)),
        weights: checkpoint.as_ref().map_or_else(|e| absent(&e), describe_weights),
        tokenizer: tokenizer.as_ref().map_or_else(|e| absent(&e), describe_tokenizer),
        lattice: plan(&located, config, &options).unwrap_or_else(|e| json!({"runs": false, "reason": e.to_string()})),
    };
    let mut out = terminal.out();
    if args.json {
        json_line(&mut out, &report)?;
    } else {
        print(&mut out, &report)?;
    }
    Ok(out.flush()?)
}

fn tokenizer_of(path: &std::path::Path) -> Result<Tokenizer, CliError> {
    Ok(Tokenizer::open(path)?)
}

fn absent(error: &dyn std::fmt::Display) -> Value {
    json!({"error": error.to_string()})
}

fn describe_config(config: &Config) -> Value {
    let of = |keys: &[&str]| -> Map<String, Value> {
        keys.iter().filter_map(|key| Some(((*key).to_owned(), config.get(key)?.clone()))).collect()
    };
    let mut facts = of(&FACTS);
    let rope = of(&ROPE);
    if !rope.is_empty() {
        facts.insert("rope".into(), rope.into());
    }
    facts.into()
}

fn describe_gguf(metadata: &Metadata) -> Map<String, Value> {
    let value = |value: &gguf::Value| match value {
        gguf::Value::Unsigned(v) => json!(v),
        gguf::Value::Signed(v) => json!(v),
        gguf::Value::Float(v) => json!(v),
        gguf::Value::Bool(v) => json!(v),
        gguf::Value::Text(v) if v.len() <= 200 => json!(v),
        long => json!(long.to_string()),
    };
    metadata.iter().map(|(key, v)| (key.to_owned(), value(v))).collect()
}

fn describe_weights(checkpoint: &Checkpoint) -> Value {
    let mut formats: BTreeMap<&str, (usize, u64, u64)> = BTreeMap::new();
    let mut groups: BTreeMap<(String, &[usize], &'static str), (usize, u64)> = BTreeMap::new();
    for tensor in checkpoint.tensors() {
        let bytes = tensor.bytes().len() as u64;
        let (count, elements, sum) = formats.entry(tensor.format().name()).or_default();
        (*count, *elements, *sum) = (*count + 1, *elements + tensor.elements() as u64, *sum + bytes);
        let group = (pattern(tensor.name()), tensor.shape(), tensor.format().name());
        let (count, sum) = groups.entry(group).or_default();
        (*count, *sum) = (*count + 1, *sum + bytes);
    }
    let groups = groups.into_iter().map(|((name, shape, format), (tensors, bytes))| Group {
        name,
        tensors,
        shape: shape.to_vec(),
        format,
        bytes,
    });
    let formats = formats.into_iter().map(|(format, (tensors, elements, bytes))| {
        json!({"format": format, "tensors": tensors, "elements": elements, "bytes": bytes})
    });
    json!({
        "files": checkpoint.files().iter().filter_map(|f| f.file_name()?.to_str()).collect::<Vec<_>>(),
        "parameters": checkpoint.tensors().filter(|t| is_weight(t)).map(|t| t.elements() as u64).sum::<u64>(),
        "bytes": checkpoint.bytes(),
        "formats": formats.collect::<Vec<_>>(),
        "groups": groups.collect::<Vec<_>>(),
    })
}

/// Rather than a list of indices or flags.
fn is_weight(tensor: &Tensor) -> bool {
    tensor.format().row().decode.is_some()
}

/// A tensor's name with `*` for the numbers in it.
fn pattern(name: &str) -> String {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    name.split('.').map(|part| if number(part) { "*" } else { part }).collect::<Vec<_>>().join(".")
}

fn describe_tokenizer(tokenizer: &Tokenizer) -> Value {
    let config = tokenizer.config();
    let special = Special::ALL.into_iter().filter_map(|role| {
        let token = config.special.get(&role)?;
        Some((role.key().to_owned(), json!({"token": token, "id": tokenizer.special(role)})))
    });
    json!({
        "kind": tokenizer.source().kind.to_string(),
        "file": tokenizer.source().path.file_name().map(|n| n.to_string_lossy().into_owned()),
        "class": config.tokenizer_class,
        "vocab": tokenizer.vocab_size(),
        "max_length": config.model_max_length,
        "special": special.collect::<Map<_, _>>(),
        "added_to_a_text": tokenizer.added_special_count(false),
        "added_to_a_pair": tokenizer.added_special_count(true),
        "chat_template": config.chat_template.is_some(),
        "more_chat_templates": config.chat_templates.keys().collect::<Vec<_>>(),
    })
}

/// Opens the model as the commands would, and tells how it will be used, or why it will not.
fn plan(located: &Located, config: Result<Config, ModelError>, options: &OpenOptions) -> Result<Value, CliError> {
    if is_gguf(&located.path) {
        return language_plan(&located.path, options);
    }
    let config = config?;
    ::models::find(&config)?; // the better answer than what else may be missing
    if config.architecture().ends_with("ForCausalLM") || config.architecture().ends_with("ForConditionalGeneration") {
        return language_plan(&located.path, options);
    }
    if config.classifies() {
        let reranker = Reranker::open(located, options)?;
        let loaded = reranker.encoder().loaded();
        return Ok(json!({
            "runs": true,
            "as": "cross-encoder",
            "shape": shape(reranker.encoder().shape()),
            "window": reranker.window(),
            "labels": loaded.labels,
            "score": if reranker.is_sigmoid() { "sigmoid of the logit" } else { "logit" },
            "unused_tensors": loaded.unused,
        }));
    }
    let embedder = Embedder::open(located, options)?;
    let modules = embedder.modules();
    let dense = modules.stages.iter().filter_map(|stage| match stage {
        Stage::Dense(d) => Some(json!({"inputs": d.inputs, "outputs": d.outputs, "bias": d.bias})),
        Stage::Normalize => None,
    });
    Ok(json!({
        "runs": true,
        "as": "embedder",
        "shape": shape(embedder.encoder().shape()),
        "window": embedder.window(),
        "dimensions": embedder.dimensions(),
        "pooling": modules.pooling.iter().map(|p| p.name()).collect::<Vec<_>>(),
        "prompt_is_pooled": modules.include_prompt,
        "dense": dense.collect::<Vec<_>>(),
        "normalized": modules.normalizes(),
        "lower_case": modules.lower_case,
        "prompts": modules.prompts,
        "default_prompt": modules.default_prompt,
        "unused_tensors": embedder.encoder().loaded().unused,
    }))
}

/// What chat and generate make of it.
fn language_plan(path: &Path, options: &OpenOptions) -> Result<Value, CliError> {
    let ops = options.ops.clone().expect("`run` sets it");
    let model = LanguageModel::open(path, ops)?;
    let loaded = model.loaded();
    let (shape_of, defaults) = (loaded.model.shape(), model.defaults().params());
    if loaded.head.is_none() {
        return Err(InferenceError::NoHead { architecture: shape_of.architecture }.into());
    }
    Ok(json!({
        "runs": true,
        "as": "language model",
        "shape": shape(shape_of),
        "window": shape_of.max_positions,
        "chat": model.has_template(),
        "reasoning": model.tags().map(|tags| tags.open),
        "ends_at": model.stop_ids(),
        "sampling": {
            "temperature": defaults.temperature,
            "top_k": defaults.top_k,
            "top_p": defaults.top_p,
            "min_p": defaults.min_p,
            "repetition_penalty": defaults.repetition_penalty,
        },
        "sampling_not_built": model.defaults().not_built,
        "unused_tensors": loaded.unused,
    }))
}

fn shape(shape: &Shape) -> Value {
    json!({
        "family": shape.architecture,
        "layers": shape.layers,
        "hidden": shape.hidden,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab": shape.vocab,
        "token_types": shape.types,
        "max_positions": shape.max_positions,
    })
}

fn print(out: &mut impl Write, report: &Report) -> Result<(), CliError> {
    writeln!(out, "{}", report.model)?;
    writeln!(out, "  path: {}", report.path.display())?;
    if let Some(commit) = &report.commit {
        writeln!(out, "  commit: {commit}")?;
    }
    if let Some(licence) = report.licence {
        writeln!(out, "  licence: {licence}")?;
    }
    if let Some(config) = &report.config {
        section(out, "config.json", config)?;
    }
    if let Some(gguf) = &report.gguf {
        writeln!(out, "\nGGUF metadata")?;
        for (key, value) in gguf {
            writeln!(out, "  {key}: {}", plain(value))?;
        }
    }
    section(out, "tokenizer", &report.tokenizer)?;
    print_weights(out, &report.weights)?;
    section(out, "what Lattice does with it", &report.lattice)
}

fn print_weights(out: &mut impl Write, weights: &Value) -> Result<(), CliError> {
    let (Some(groups), Some(formats)) = (weights["groups"].as_array(), weights["formats"].as_array()) else {
        return section(out, "weights", weights);
    };
    let bytes = |value: &Value| size(value["bytes"].as_u64().unwrap_or(0));
    writeln!(out, "\nweights")?;
    writeln!(out, "  files: {}", plain(&weights["files"]))?;
    writeln!(out, "  parameters: {}", plain(&weights["parameters"]))?;
    for f in formats {
        let (name, tensors) = (plain(&f["format"]), plain(&f["tensors"]));
        writeln!(out, "  {name}: {tensors} tensors, {} elements, {}", plain(&f["elements"]), bytes(f))?;
    }
    let row = |g: &Value| {
        let shape = format!("[{}]", plain(&g["shape"]));
        vec![format!("  {}", plain(&g["name"])), format!("×{}", g["tensors"]), shape, plain(&g["format"]), bytes(g)]
    };
    Ok(out.write_all(table(&groups.iter().map(row).collect::<Vec<_>>(), &[1, 4]).as_bytes())?)
}

/// A heading and a line for each key that says something.
fn section(out: &mut impl Write, title: &str, value: &Value) -> Result<(), CliError> {
    writeln!(out, "\n{title}")?;
    for (key, value) in value.as_object().into_iter().flatten() {
        if !matches!(value, Value::Null) && *value != json!([]) && *value != json!({}) {
            writeln!(out, "  {}: {}", key.replace('_', " "), plain(value))?;
        }
    }
    Ok(())
}

/// A value in one line, without JSON's quotes where they are not needed.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(flag) => if *flag { "yes" } else { "no" }.into(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| match value {
                Value::String(text) => format!("{key} {text:?}"),
                Value::Object(_) => format!("{key} ({})", plain(value)),
                _ => format!("{key} {}", plain(value)),
            })
            .collect::<Vec<_>>()
            .join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_layers_are_one_group() {
        assert_eq!(pattern("encoder.layer.11.output.dense.weight"), "encoder.layer.*.output.dense.weight");
        assert_eq!(pattern("layer1.w2"), "layer1.w2");
    }
}
