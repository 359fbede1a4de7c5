//! Which architectures are there, and how does a model directory become a model?

use crate::blocks::{Classifier, LanguageHead};
use crate::config::Config;
use crate::error::{ModelError, Result};
use crate::loader::Loader;
use crate::model::Model;
use crate::{bert, distilbert, gemma, gemma4, llama, modernbert, mpnet, nomic, qwen2, qwen3, qwen3_5};
use ops::Ops;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use weights::{Checkpoint, WeightsError};

/// A row of the table of architectures.
pub struct Arch {
    /// What the family is called; also [`crate::Shape::architecture`].
    pub family: &'static str,
    /// Hugging Face's class names and `model_type`s.
    pub names: &'static [&'static str],
    /// Builds the model from its configuration and the loader at the root of its checkpoint.
    pub load: fn(&Config, &Loader) -> Result<Built>,
}

/// Every architecture; adding one is one line.
pub const ARCHITECTURES: &[Arch] = &[
    bert::BERT,
    bert::ROBERTA,
    distilbert::ARCH,
    mpnet::ARCH,
    nomic::ARCH,
    modernbert::ARCH,
    llama::LLAMA,
    llama::MISTRAL,
    qwen2::ARCH,
    qwen3::ARCH,
    qwen3_5::DENSE,
    qwen3_5::MOE,
    gemma::GEMMA2,
    gemma::GEMMA3,
    gemma4::ARCH,
];

/// What a row of the table builds.
pub struct Built {
    /// The trunk.
    pub model: Box<dyn Model>,
    /// The head of a `…ForSequenceClassification` checkpoint.
    pub classifier: Option<Classifier>,
    /// The head of a language model.
    pub head: Option<LanguageHead>,
}

/// A model that is ready to run on the executor it was loaded for.
pub struct Loaded {
    /// The trunk.
    pub model: Box<dyn Model>,
    /// The head of a `…ForSequenceClassification` checkpoint.
    pub classifier: Option<Classifier>,
    /// The head of a language model; a checkpoint of its trunk alone has none.
    pub head: Option<LanguageHead>,
    /// Names of the classifier's outputs; empty without one.
    pub labels: Vec<String>,
    /// Its config.json.
    pub config: Config,
    /// Tensors of the checkpoint that nothing reads, by name: a language model's head under an encoder, say. Position
    /// counters and poolers, which encoders carry around unused, are not listed. Worth a line in the log.
    pub unused: Vec<String>,
}

/// The row for a configuration: by `architectures[0]`, then by `model_type`.
///
/// # Errors
/// [`ModelError::Architecture`], which lists the families there are.
pub fn find(config: &Config) -> Result<&'static Arch> {
    let (architecture, model_type) = (config.architecture(), config.text_or("model_type", "")?);
    let row = |name: &str| ARCHITECTURES.iter().find(|arch| arch.names.contains(&name));
    row(architecture).or_else(|| row(model_type)).ok_or_else(|| ModelError::Architecture {
        architecture: or_none(architecture),
        model_type: or_none(model_type),
        built: ARCHITECTURES.iter().map(|arch| arch.family).collect::<Vec<_>>().join(", "),
    })
}

fn or_none(name: &str) -> String {
    if name.is_empty() { "(none)".into() } else { name.chars().take(80).collect() }
}

/// Loads the model at a path: a directory with `config.json` beside `model.safetensors` or its shards, one of these
/// files, or a GGUF file, which brings its configuration along.
///
/// # Errors
/// [`ModelError`]: whatever does not fit is named; nothing is guessed.
pub fn load(path: impl AsRef<Path>, ops: &dyn Ops) -> Result<Loaded> {
    let (config, checkpoint) = open(path.as_ref())?;
    load_checkpoint(config, &checkpoint, ops)
}

/// [`load`] without the head of a language model, whose matrix is as large as the table of words: for embedding.
///
/// # Errors
/// As [`load`].
pub fn load_trunk(path: impl AsRef<Path>, ops: &dyn Ops) -> Result<Loaded> {
    let (config, checkpoint) = open(path.as_ref())?;
    build(config, &checkpoint, ops, false)
}

/// Loads a model from an open checkpoint.
///
/// # Errors
/// As [`load`].
pub fn load_checkpoint(config: Config, checkpoint: &Checkpoint, ops: &dyn Ops) -> Result<Loaded> {
    build(config, checkpoint, ops, true)
}

/// The configuration and the checkpoint of a model, under Hugging Face's names.
///
/// # Errors
/// As [`load`], about files.
pub fn open(path: &Path) -> Result<(Config, Checkpoint)> {
    let dir = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
    // "Not built" is a better answer than what is wrong with the weights.
    let config = Config::read(dir).and_then(|config| find(&config).map(|_| config));
    match (config, Checkpoint::open(path)) {
        (_, Ok(checkpoint)) if checkpoint.metadata().is_some() => {
            let view = checkpoint.as_hugging_face()?;
            let config = Config::from_value(view.config).expect("a GGUF file's configuration is an object");
            Ok((config, view.checkpoint))
        }
        (Err(ModelError::Read { .. }), Err(error))
            if path.exists() && !matches!(error, WeightsError::NoWeights { .. }) =>
        {
            Err(error.into())
        }
        (config, checkpoint) => Ok((config?, checkpoint?)),
    }
}

fn build(config: Config, checkpoint: &Checkpoint, ops: &dyn Ops, generates: bool) -> Result<Loaded> {
    let arch = find(&config)?;
    if config.get("quantization_config").is_some() {
        return Err(config.not_built("quantization_config", "none: load the unquantized checkpoint"));
    }
    let used = RefCell::new(BTreeSet::new());
    let root = Loader::new(&config, checkpoint, ops, &used, generates);
    let Built { model, classifier, head } = (arch.load)(&config, &root)?;
    let used = used.into_inner();
    let unused = checkpoint.names().filter(|name| !used.contains(*name) && !harmless(name));
    let labels = if classifier.is_some() { config.labels()? } else { Vec::new() };
    Ok(Loaded { model, classifier, head, labels, unused: unused.map(str::to_owned).collect(), config })
}

/// Saved by some versions of the reference, read by none; or, of GGUF files, in their configuration already.
fn harmless(name: &str) -> bool {
    let buffer =
        ["position_ids", "token_type_ids", "inv_freq", "rope_freqs.weight"].iter().any(|end| name.ends_with(end));
    buffer || name.split('.').any(|part| part == "pooler")
}
