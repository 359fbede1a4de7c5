//! `lattice batch`: OpenAI's batch files, without a server.

use super::serve::ModelsArgs;
use super::{DEFAULT_EMBEDDER, json_line};
use crate::error::CliError;
use crate::language;
use crate::terminal::Terminal;
use ::serve::{Options, Summary, batch};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Run a batch file of OpenAI's API
///
/// Each line of IN is {"custom_id", "method": "POST", "url", "body"}, for the endpoints of `lattice serve`. Answers are appended
/// to OUT as they come, in any order. Started again after it was stopped, it goes on with the lines that have none.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  lattice batch questions.jsonl answers.jsonl
  lattice batch --model qwen3-0.6b/ --parallel 16 questions.jsonl answers.jsonl --json")]
pub(crate) struct Args {
    /// The requests
    #[arg(value_name = "IN.jsonl")]
    input: PathBuf,
    /// The answers
    #[arg(value_name = "OUT.jsonl")]
    output: PathBuf,
    #[command(flatten)]
    models: ModelsArgs,
    /// The summary as one object
    #[arg(long)]
    json: bool,
}

/// Longest time of one line.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<(), CliError> {
    let options = args.models.options(&[language::DEFAULT, DEFAULT_EMBEDDER], terminal)?;
    let options = Options { timeout: PATIENCE, max_body: usize::MAX, ..options };
    let mut count = None;
    let summary = batch(options, &args.input, &args.output, &mut |summary: &Summary| match &mut count {
        None => {
            if summary.resumed > 0 {
                terminal.note(format!("{} of {} lines have their answers already", summary.resumed, summary.lines));
            }
            count = Some(terminal.count("requests", Some((summary.lines - summary.resumed) as u64)));
        }
        Some(count) => count.one(),
    })?;
    drop(count);
    let mut out = terminal.out();
    if args.json {
        json_line(&mut out, &summary)?;
    } else {
        let Summary { lines, resumed, answered, failed, prompt_tokens, completion_tokens, seconds } = summary;
        let rate = |tokens: u64| tokens as f64 / seconds.max(1e-9);
        writeln!(
            out,
            "{lines} lines: {answered} answered in {seconds:.1} s, {failed} of them with an error, {resumed} before; \
             {prompt_tokens} tokens in ({:.0}/s), {completion_tokens} tokens out ({:.0}/s)",
            rate(prompt_tokens),
            rate(completion_tokens),
        )?;
    }
    Ok(out.flush()?)
}
