//! Does this engine compute what the reference implementations compute? Runs golden case folders and compares.
//!
//! A case is a folder with `meta.json`. What it is stands there in `family`, never in its name; `compare` names the
//! outputs that are held to the reference and how far they may be from it. Nothing that is named there is left out in
//! silence: what is not computed fails, what is not built is refused by name, what lacks its files is skipped by name.

mod case;
mod causal;
mod compare;
mod files;
mod generation;
mod ggml;
mod sampling;
mod sentences;
mod templates;
mod tokenizers;
mod tokens;

pub(crate) use case::find;
pub(crate) use files::Files;

use case::{Case, Stop};
use compare::Tolerance;
use ops::Ops;
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weights::{Checkpoint, Tensor, write_safetensors};

/// What computes the outputs of a case.
type Run = fn(&Case, &Context) -> Result<Outputs, Stop>;

/// Families and what computes them; adding one is one line.
const FAMILIES: &[(&[&str], Run)] = &[
    (&["bert", "roberta", "xlm_roberta", "distilbert", "mpnet", "nomic_bert", "modernbert", "encoder"], tokens::run),
    (&["cross_encoder", "qwen3_embedding", "gemma3_embedding"], tokens::run),
    (
        &["llama", "mistral", "qwen2", "qwen3", "qwen3_5", "qwen3_5_moe", "gemma2", "gemma3", "gemma4", "causal_lm"],
        causal::run,
    ),
    (&["gguf"], causal::run_gguf),
    (&["real_generation"], generation::run),
    (&["sentence_transformers"], sentences::run),
    (&["real_embedding"], sentences::run_real),
    (&["tokenizers"], tokenizers::run),
    (&["chat_templates"], templates::run),
    (&["ggml"], ggml::run),
    (&["sampling"], sampling::run),
];

/// What cases run with.
pub(crate) struct Context {
    /// The executor under test.
    pub(crate) ops: Arc<dyn Ops>,
    /// Where real tokenizers and weights lie.
    pub(crate) files: Files,
    /// Where outputs are written to.
    pub(crate) dump: Option<PathBuf>,
}

/// What a case gave.
#[derive(Default)]
struct Outputs {
    /// Named outputs, to be compared and dumped.
    tensors: Vec<Tensor>,
    /// What was compared already: outputs that are no tensors.
    rows: Vec<Row>,
    /// Texts to be dumped: file name and content.
    texts: Vec<(String, Value)>,
}

/// A line of the report: an output, or a whole case that gave none.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) case: String,
    pub(crate) output: String,
    /// Largest absolute difference, or how many items of a text case differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_abs_error: Option<f64>,
    #[serde(flatten)]
    pub(crate) tolerance: Option<Tolerance>,
    pub(crate) status: Status,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Ok,
    #[serde(rename = "FAIL")]
    Fail,
    Skipped,
    Refused,
}

impl Row {
    fn new(case: &str, output: &str, status: Status, reason: impl Into<String>) -> Row {
        let (case, output, reason) = (case.to_owned(), output.to_owned(), reason.into());
        Row { case, output, max_abs_error: None, tolerance: None, status, reason }
    }

    /// Items of which `wrong` differ from the reference; the first of them is described.
    fn items(case: &str, output: &str, wrong: usize, first: Option<String>) -> Row {
        let status = if wrong == 0 { Status::Ok } else { Status::Fail };
        let row = Row::new(case, output, status, first.unwrap_or_default());
        Row { max_abs_error: Some(wrong as f64), tolerance: Some(Tolerance::EXACT), ..row }
    }

    fn stopped(case: &str, output: &str, stop: Stop) -> Row {
        let (status, reason) = match stop {
            Stop::Failed(reason) => (Status::Fail, reason),
            Stop::Skipped(reason) => (Status::Skipped, reason),
            Stop::Refused(reason) => (Status::Refused, reason),
        };
        Row::new(case, output, status, reason)
    }
}

/// Runs the case in a folder.
pub(crate) fn run(dir: &Path, cx: &Context) -> Vec<Row> {
    let name = case::name(dir);
    let outputs = Case::read(dir).and_then(|case| {
        let row = FAMILIES.iter().find(|(names, _)| names.contains(&case.family.as_str()));
        let (_, run) = row.ok_or_else(|| Stop::Refused(format!("family {} is not built yet", case.family)))?;
        let outputs = run(&case, cx)?;
        dump(&name, &outputs, cx)?;
        Ok((case, outputs))
    });
    match outputs {
        Err(stop) => vec![Row::stopped(&name, "", stop)],
        Ok((case, outputs)) => judge(&case, outputs),
    }
}

/// Holds every output that `compare` names to the reference.
fn judge(case: &Case, outputs: Outputs) -> Vec<Row> {
    let Outputs { tensors, mut rows, .. } = outputs;
    if !case.compare.is_empty() {
        match Checkpoint::open(case.dir.join("expected.safetensors")) {
            Err(error) => rows.push(Row::stopped(&case.name, "", Stop::failed(error))),
            Ok(expected) => rows.extend(case.compare.iter().map(|(output, tolerance)| {
                let ours = tensors.iter().find(|t| t.name() == output);
                compare::row(case, output, *tolerance, ours, expected.find(output).as_ref())
            })),
        }
    }
    if rows.is_empty() {
        rows.push(Row::new(&case.name, "", Status::Fail, "meta.json names nothing to compare"));
    }
    rows
}

fn dump(case: &str, outputs: &Outputs, cx: &Context) -> Result<(), Stop> {
    let Some(dir) = &cx.dump else { return Ok(()) };
    let io = |path: &Path, error: std::io::Error| Stop::Failed(format!("cannot write {}: {error}", path.display()));
    std::fs::create_dir_all(dir).map_err(|e| io(dir, e))?;
    if !outputs.tensors.is_empty() {
        write_safetensors(dir.join(format!("{case}.safetensors")), &outputs.tensors).map_err(Stop::failed)?;
    }
    for (name, content) in &outputs.texts {
        let path = dir.join(case).join(name);
        std::fs::create_dir_all(dir.join(case)).map_err(|e| io(&path, e))?;
        std::fs::write(&path, format!("{content}\n")).map_err(|e| io(&path, e))?;
    }
    Ok(())
}
