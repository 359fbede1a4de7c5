//! `lattice embed`: a vector for each text.

use super::{DEFAULT_EMBEDDER, MODEL_HELP, is_false, json_line, locate};
use crate::error::CliError;
use crate::executor::{ExecutorArgs, PrecisionArgs};
use crate::npy::Npy;
use crate::terminal::{Count, Terminal, label, table};
use crate::texts::TextArgs;
use ::embed::{EmbedError, EmbedOptions, Embedder, Embedding, OpenOptions, Pooling, Prompt, cosine};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

/// A vector for each text
///
/// Without --json, a terminal gets a line about each text, and a pipe each vector as numbers separated by spaces, a line a
/// text. Results come in the order of the texts. A text's vector does not depend on the other texts.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  lattice embed --similarity \"A cat sits on the mat\" \"A feline rests on a rug\"
  lattice embed -f texts.txt --out vectors.npy
  lattice embed --model multilingual-e5-small --prompt-name query --json \"wie hoch ist der Mount Everest\"")]
pub(crate) struct Args {
    #[command(flatten)]
    texts: TextArgs,
    #[arg(long, default_value = DEFAULT_EMBEDDER, help = MODEL_HELP)]
    model: String,
    /// The model's prompt of this name before each text (query, passage, …); `inspect` lists them
    #[arg(long, value_name = "NAME")]
    prompt_name: Option<String>,
    /// Keep the first N features and normalise again (Matryoshka models)
    #[arg(long, value_name = "N")]
    dimensions: Option<usize>,
    /// Cut texts that are longer than the window, and say so, instead of refusing them
    #[arg(long)]
    truncate: bool,
    /// How to pool where the model's folder does not say
    #[arg(long, value_name = "MODE", value_parser = parse_pooling)]
    pooling: Option<Pooling>,
    /// Write the vectors to a NumPy file, float32 [texts, dimensions], in constant memory
    #[arg(long, value_name = "FILE.npy", conflicts_with = "similarity")]
    out: Option<PathBuf>,
    /// Print the cosine of every pair of texts instead of the vectors
    #[arg(long)]
    similarity: bool,
    /// One object a text: {"index":i,"tokens":n,"embedding":[…]}, with "truncated":true where the text was cut
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    executor: ExecutorArgs,
    #[command(flatten)]
    precision: PrecisionArgs,
}

#[derive(Serialize)]
struct Line<'a> {
    index: usize,
    tokens: usize,
    #[serde(skip_serializing_if = "is_false")]
    truncated: bool,
    embedding: &'a [f32],
}

#[derive(Serialize)]
struct Similarity<'a> {
    texts: &'a [String],
    similarity: Vec<Vec<f32>>,
}

#[derive(Serialize)]
struct Written<'a> {
    file: &'a str,
    texts: usize,
    dimensions: usize,
    truncated: usize,
}

/// What was embedded so far.
#[derive(Default)]
struct Tally {
    texts: usize,
    truncated: usize,
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<(), CliError> {
    // Before a download: wrong flags are told at once.
    let options = OpenOptions { ops: Some(args.executor.open(args.precision.level())?), pooling: args.pooling };
    let embedder = &Embedder::open(&locate(&args.model, terminal)?, &options)?;
    let args = &args;
    let options = EmbedOptions {
        prompt: args.prompt_name.clone().map_or(Prompt::Default, Prompt::Name),
        dimensions: args.dimensions,
        truncate: args.truncate,
        ..Default::default()
    };
    let mut out = terminal.out();
    let tally = if args.similarity {
        let texts = args.texts.clone().open(terminal)?.all("compare")?;
        let vectors = embedder.embed(&texts, &options).map_err(|e| at(&args.texts, e))?;
        let similarity: Vec<Vec<f32>> =
            vectors.iter().map(|a| vectors.iter().map(|b| cosine(&a.vector, &b.vector)).collect()).collect();
        let truncated = vectors.iter().filter(|v| v.truncated).count();
        if args.json {
            json_line(&mut out, &Similarity { texts: &texts, similarity })?;
        } else {
            out.write_all(matrix(&texts, &similarity).as_bytes())?;
        }
        Tally { texts: texts.len(), truncated }
    } else if let Some(path) = &args.out {
        let dimensions = args.dimensions.unwrap_or(embedder.dimensions());
        let mut npy = Npy::create(path, dimensions)?;
        let tally = stream(args, embedder, &options, terminal, |e| npy.push(&e.vector))?;
        npy.finish()?;
        let file = path.to_string_lossy();
        if args.json {
            let (texts, truncated) = (tally.texts, tally.truncated);
            json_line(&mut out, &Written { file: &file, texts, dimensions, truncated })?;
        } else {
            writeln!(out, "{file}: {} texts, {dimensions} dimensions", tally.texts)?;
        }
        tally
    } else if args.json {
        stream(args, embedder, &options, terminal, |e| {
            let Embedding { index, tokens, truncated, vector } = e;
            json_line(&mut out, &Line { index: *index, tokens: *tokens, truncated: *truncated, embedding: vector })
        })?
    } else if terminal.out_is_terminal() {
        stream(args, embedder, &options, terminal, |e| Ok(writeln!(out, "{}", summary(e))?))?
    } else {
        stream(args, embedder, &options, terminal, |e| Ok(writeln!(out, "{}", numbers(&e.vector))?))?
    };
    out.flush()?;
    match tally.truncated {
        0 => {}
        n => terminal.note(format!("{n} of {} texts were cut to {} tokens", tally.texts, embedder.window())),
    }
    Ok(())
}

/// Embeds the texts as they are read and hands over each result, in order.
fn stream(
    args: &Args,
    embedder: &Embedder,
    options: &EmbedOptions,
    terminal: &Terminal,
    mut each: impl FnMut(&Embedding) -> Result<(), CliError>,
) -> Result<Tally, CliError> {
    let mut texts = args.texts.clone().open(terminal)?;
    let total = if terminal.shows_bars() { args.texts.count() } else { None };
    let mut count: Option<Count> = None;
    let mut tally = Tally::default();
    // Errors of reading and writing cross the library by hand.
    let (mut unread, mut unwritten) = (None, None);
    let readable = std::iter::from_fn(|| texts.next()?.map_err(|e| unread = Some(e)).ok());
    let result = embedder.embed_stream(readable, options, |embedding| {
        tally.texts += 1;
        tally.truncated += usize::from(embedding.truncated);
        each(&embedding).map_err(|e| {
            unwritten = Some(e);
            EmbedError::Cancelled
        })?;
        if total.is_none_or(|n| n > 1) {
            count.get_or_insert_with(|| terminal.count("texts", total)).one();
        }
        Ok(())
    });
    if let Some(error) = unread.or(unwritten) {
        return Err(error);
    }
    result.map_err(|e| at(&args.texts, e))?;
    if tally.texts == 0 {
        return Err(CliError::NoTexts { verb: "embed" });
    }
    Ok(tally)
}

/// An error about one text names the line it stands in.
pub(crate) fn at(texts: &TextArgs, error: EmbedError) -> CliError {
    if let EmbedError::Query(error) = error {
        return CliError::At { place: "the query".into(), error };
    }
    let index = match &error {
        EmbedError::TooLong { text, .. } | EmbedError::Empty { text } => Some(*text),
        _ => None,
    };
    match index.and_then(|i| texts.place(i)) {
        Some(place) => CliError::At { place, error: Box::new(error) },
        None => error.into(),
    }
}

fn parse_pooling(name: &str) -> Result<Pooling, String> {
    let known = || Pooling::ALL.map(Pooling::name).join(", ");
    Pooling::ALL.into_iter().find(|p| p.name() == name).ok_or_else(|| format!("known are {}", known()))
}

/// A vector in a line for people: `0: 7 tokens, 384 dimensions: 0.0312 −0.0107 …`.
fn summary(embedding: &Embedding) -> String {
    let Embedding { index, tokens, truncated, vector } = embedding;
    let first = vector.iter().take(6).map(|v| format!("{v:.4}")).collect::<Vec<_>>().join(" ");
    let cut = if *truncated { " (truncated)" } else { "" };
    let more = if vector.len() > 6 { " …" } else { "" };
    format!("{index}: {tokens} tokens{cut}, {} dimensions: {first}{more}", vector.len())
}

fn numbers(vector: &[f32]) -> String {
    vector.iter().map(f32::to_string).collect::<Vec<_>>().join(" ")
}

fn matrix(texts: &[String], similarity: &[Vec<f32>]) -> String {
    let mut rows = vec![vec![String::new(), String::new()]];
    rows[0].extend((0..texts.len()).map(|i| i.to_string()));
    for (i, (text, row)) in texts.iter().zip(similarity).enumerate() {
        let mut cells = vec![i.to_string(), label(text, 32)];
        cells.extend(row.iter().map(|v| format!("{v:.4}")));
        rows.push(cells);
    }
    table(&rows, &std::iter::once(0).chain(2..texts.len() + 2).collect::<Vec<_>>())
}
