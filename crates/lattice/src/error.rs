//! What can end a command: the errors of the crates below, and those of reading and writing here.

use std::io;
use std::path::{Path, PathBuf};

/// Why a command failed; the message is what the user reads after `error: `.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error(transparent)]
    Hub(#[from] hub::HubError),
    #[error(transparent)]
    Embed(#[from] embed::EmbedError),
    #[error(transparent)]
    Serve(#[from] serve::ServeError),
    #[error(transparent)]
    Tokenizer(#[from] tokenizer::TokenizerError),
    #[error(transparent)]
    Weights(#[from] weights::WeightsError),
    #[error(transparent)]
    Model(#[from] models::ModelError),
    #[error(transparent)]
    Ops(#[from] ops::OpsError),
    #[error(transparent)]
    Inference(#[from] inference::InferenceError),
    /// An error about one text, with the place that the text came from.
    #[error("{place}: {error}")]
    At { place: String, error: Box<embed::EmbedError> },
    #[error("cannot write to stdout: {0}")]
    Stdout(#[from] io::Error),
    #[error("cannot {verb} {}: {error}", path.display())]
    File { verb: &'static str, path: PathBuf, error: io::Error },
    #[error("{place} is not UTF-8 (byte {byte} of the line): convert the text to UTF-8 first")]
    NotUtf8 { place: String, byte: usize },
    #[error("there is no GPU executor in this build: use --device cpu, or auto")]
    NoGpu,
    #[error("no chunk would be scored: give --chunks at least 1, or leave it out")]
    NoChunks,
    #[error("{flag} is not built yet: leave it out")]
    FlagNotBuilt { flag: &'static str },
    #[error("{flag} is not for all requests of a server: each says so itself; leave it out")]
    OfRequests { flag: &'static str },
    #[error("the model's chat template knows of no reasoning: leave --think out")]
    NoReasoning,
    #[error("cannot read from the keyboard: {reason}; give the question with -p, or lines on stdin")]
    Keyboard { reason: String },
    #[error("there is no text to {verb}: give texts as arguments, in a file (-f FILE), or on stdin")]
    NoTexts { verb: &'static str },
    #[error("{word:?} is not a token id: ids are whole numbers, separated by spaces or commas")]
    NotAnId { word: String },
    #[error("there is nothing to inspect in {}: neither config.json, nor weights, nor a tokenizer", path.display())]
    NothingThere { path: PathBuf },
    #[error("no golden case in {}: a case is a folder with meta.json", path.display())]
    NoCase { path: PathBuf },
    #[error("{} is not JSON: {error}", path.display())]
    NotJson { path: PathBuf, error: serde_json::Error },
    #[error("no schema in {}: expected .json files", path.display())]
    NoSchema { path: PathBuf },
    /// What failed stands in the output already.
    #[error("failed")]
    Reported,
}

impl CliError {
    /// For `map_err` on what reads and writes files.
    pub(crate) fn file(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CliError {
        let path = path.to_owned();
        move |error| CliError::File { verb, path, error }
    }
}
