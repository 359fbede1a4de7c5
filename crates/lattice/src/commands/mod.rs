//! The commands, a module each, and what several of them do alike.

pub(crate) mod batch;
pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod detokenize;
pub(crate) mod doctor;
pub(crate) mod embed;
pub(crate) mod generate;
pub(crate) mod grammar;
pub(crate) mod inspect;
pub(crate) mod models;
pub(crate) mod parity;
pub(crate) mod ppl;
pub(crate) mod pull;
pub(crate) mod rerank;
pub(crate) mod rm;
pub(crate) mod serve;
pub(crate) mod tokenize;

use crate::error::CliError;
use crate::terminal::Terminal;
use hub::{Hub, Located};
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use tokenizer::Tokenizer;

/// The embedder that is used when none is named.
pub(crate) const DEFAULT_EMBEDDER: &str = "all-minilm-l6-v2";

/// What `--model` takes, in help texts.
pub(crate) const MODEL_HELP: &str = "A name of the catalog (`lattice models`), org/name on the Hub, or a folder";

/// Finds a model, and fetches it if it is not here.
pub(crate) fn locate(model: &str, terminal: &Terminal) -> Result<Located, CliError> {
    Ok(Hub::from_env()?.resolve(model, &mut terminal.downloads())?)
}

/// Opens the tokenizer of a model, or the one that a folder or file holds.
pub(crate) fn open_tokenizer(model: &str, terminal: &Terminal) -> Result<Tokenizer, CliError> {
    let path = locate(model, terminal)?.path;
    if is_gguf(&path) {
        return Ok(inference::gguf_tokenizer(&path)?);
    }
    Ok(Tokenizer::open(path)?)
}

pub(crate) fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "gguf")
}

/// One line of JSON.
pub(crate) fn json_line(out: &mut impl Write, value: &impl Serialize) -> Result<(), CliError> {
    serde_json::to_writer(&mut *out, value).map_err(std::io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}

/// Whether a field is left out of JSON.
pub(crate) fn is_false(flag: &bool) -> bool {
    !flag
}
