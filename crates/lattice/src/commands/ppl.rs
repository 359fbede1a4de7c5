//! `lattice ppl`: how well does a model foresee a text?

use super::json_line;
use crate::error::CliError;
use crate::language::ModelArgs;
use crate::terminal::Terminal;
use crate::texts::read_text;
use inference::perplexity;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

/// Perplexity of a text with its standard error
///
/// As llama-perplexity has it: the text in chunks of --ctx tokens, each on its own, of which the second half is scored;
/// special tokens in the text are plain text.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The text (- is stdin), UTF-8
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Tokens of a chunk
    #[arg(long, value_name = "N", default_value_t = 512)]
    ctx: usize,
    /// Take the first N tokens of the text only, in whole chunks
    #[arg(long, value_name = "N", conflicts_with = "chunks")]
    tokens: Option<usize>,
    /// Take the first N chunks only
    #[arg(long, value_name = "N")]
    chunks: Option<usize>,
    /// One object: {"ppl","stderr","tokens","seconds"}
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model: ModelArgs,
}

#[derive(Serialize)]
struct Report {
    ppl: f64,
    stderr: f64,
    /// Tokens that were scored.
    tokens: usize,
    seconds: f64,
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<(), CliError> {
    let text = read_text(&args.file)?;
    let chunks = match (args.tokens, args.chunks) {
        (Some(tokens), _) if tokens < args.ctx => {
            return Err(inference::InferenceError::TextTooShort { tokens, context: args.ctx }.into());
        }
        (Some(tokens), _) => Some(tokens / args.ctx.max(1)),
        (None, Some(0)) => return Err(CliError::NoChunks),
        (None, chunks) => chunks,
    };
    let opened = args.model.open(terminal)?;
    let start = Instant::now();
    let mut count = None;
    let got = perplexity(&opened.model, &text, args.ctx, chunks, &mut |_, all, so_far| {
        let count = count.get_or_insert_with(|| terminal.count("chunks", Some(all as u64)));
        count.say(format!("chunks, perplexity {:.4}", so_far.value));
        count.one();
    })?;
    drop(count);
    let seconds = start.elapsed().as_secs_f64();
    let mut out = terminal.out();
    if args.json {
        json_line(&mut out, &Report { ppl: got.value, stderr: got.stderr, tokens: got.tokens, seconds })?;
    } else {
        writeln!(
            out,
            "perplexity {:.4} ± {:.4} ({} tokens scored in {seconds:.1} s)",
            got.value, got.stderr, got.tokens
        )?;
    }
    Ok(out.flush()?)
}
