//! `lattice rerank`: which passages answer a query best?

use super::embed::at;
use super::{DEFAULT_EMBEDDER, is_false, json_line, locate};
use crate::error::CliError;
use crate::executor::{ExecutorArgs, PrecisionArgs};
use crate::terminal::{Terminal, label};
use crate::texts::TextArgs;
use ::embed::{Embedder, OpenOptions, RerankOptions, Reranker, Score};
use ::models::Config;
use hub::{Hub, State};
use serde::Serialize;
use std::io::Write;

/// The cross-encoder that is used when none is named and it is in the cache.
const DEFAULT_RERANKER: &str = "ms-marco-minilm-l6-v2";

/// Scores of passages for a query, best first
///
/// A cross-encoder reads query and passage together. An embedder is ranked by the cosine of its vectors instead, which is
/// said on stderr; its query and passage prompts are used where it has them.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  lattice rerank --query \"how do cats land on their feet\" \"Cats twist in the air\" \"Rates rose again\"
  lattice rerank --query \"opening hours\" -f passages.txt --top 3 --model bge-reranker-base")]
pub(crate) struct Args {
    /// What is asked
    #[arg(long, value_name = "QUERY")]
    query: String,
    #[command(flatten)]
    texts: TextArgs,
    /// A name of the catalog (`lattice models`), org/name on the Hub, or a folder; without it ms-marco-minilm-l6-v2 if it
    /// was pulled, else all-minilm-l6-v2
    #[arg(long)]
    model: Option<String>,
    /// Only the N best
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Cut pairs that are longer than the window, and say so, instead of refusing them
    #[arg(long)]
    truncate: bool,
    /// One object a passage, best first: {"index":i,"score":s}
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    executor: ExecutorArgs,
    #[command(flatten)]
    precision: PrecisionArgs,
}

#[derive(Serialize)]
struct Line {
    index: usize,
    score: f32,
    #[serde(skip_serializing_if = "is_false")]
    truncated: bool,
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<(), CliError> {
    let options = OpenOptions { ops: Some(args.executor.open(args.precision.level())?), pooling: None };
    let texts = args.texts.clone().open(terminal)?.all("rank")?;
    let model = match &args.model {
        Some(model) => model.clone(),
        None => default_model(terminal)?,
    };
    let located = locate(&model, terminal)?;
    let cross_encoder = Config::read(&located.path).is_ok_and(|config| config.classifies());
    let ranking = RerankOptions { truncate: args.truncate, ..Default::default() };
    let (scores, window) = if cross_encoder {
        let reranker = Reranker::open(&located, &options)?;
        (reranker.score(&args.query, &texts, &ranking), reranker.window())
    } else {
        let embedder = Embedder::open(&located, &options)?;
        if args.model.is_some() {
            terminal.note(format!("{model} is an embedder: passages are ranked by cosine"));
        }
        (embedder.score(&args.query, &texts, &ranking), embedder.window())
    };
    let mut scores = scores.map_err(|error| at(&args.texts, error))?;
    Score::sort(&mut scores);
    let line = |s: Score| Line { index: s.index, score: s.score, truncated: s.truncated };
    let mut lines: Vec<Line> = scores.into_iter().map(line).collect();
    lines.truncate(args.top.unwrap_or(usize::MAX));
    let mut out = terminal.out();
    for line in &lines {
        if args.json {
            json_line(&mut out, line)?;
        } else {
            let text = &texts[line.index];
            let columns = if terminal.out_is_terminal() { 80 } else { usize::MAX };
            let cut = if line.truncated { " (truncated)" } else { "" };
            writeln!(out, "{:>9.4}  {:>4}  {}{cut}", line.score, line.index, label(text, columns))?;
        }
    }
    out.flush()?;
    match lines.iter().filter(|line| line.truncated).count() {
        0 => {}
        n => terminal.note(format!("{n} of {} were cut to {window} tokens", lines.len())),
    }
    Ok(())
}

fn default_model(terminal: &Terminal) -> Result<String, CliError> {
    let here = |row: &hub::Row| row.name == DEFAULT_RERANKER && row.state == State::Complete;
    if Hub::from_env()?.list()?.iter().any(here) {
        return Ok(DEFAULT_RERANKER.to_owned());
    }
    terminal.note(format!(
        "ranking by the cosine of {DEFAULT_EMBEDDER}; a cross-encoder ranks better: \
         `lattice pull {DEFAULT_RERANKER}` once, or --model NAME"
    ));
    Ok(DEFAULT_EMBEDDER.to_owned())
}
