//! `lattice generate`: how does a text go on?

use super::json_line;
use crate::error::CliError;
use crate::language::{ContextArgs, ModelArgs, Opened, Times, Usage, summary};
use crate::sampling_args::SamplingArgs;
use crate::speaker::Speaker;
use crate::terminal::Terminal;
use ::models::{Batch, Forward};
use ::serve::TokenLogprob;
use inference::sampling::{Sampled, SamplingParams};
use inference::text::{Kind, Segment};
use inference::{InferenceError, LanguageModel, generate_guided};
use serde::Serialize;
use std::io::Write;
use std::ops::ControlFlow;

/// A raw continuation of a text, without a chat template
///
/// The text comes as it is made. Without --max-tokens, and where the model's generation_config.json does not say, it ends
/// after 128 tokens.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  lattice generate --prompt \"Once upon a time\" --temperature 0
  lattice generate --ids 504,282 --max-tokens 5 --logprobs 3 --json")]
pub(crate) struct Args {
    #[command(flatten)]
    given: Given,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Put the prompt in front; with --logprobs, its tokens' log-probabilities too
    #[arg(long)]
    echo: bool,
    /// One object: {"text","ids","finish_reason","usage","timings","logprobs"}
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    context: ContextArgs,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Given {
    /// The text to continue; the model's own special tokens are put around it
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<String>,
    /// Its token ids, as they are, separated by commas or spaces
    #[arg(long, value_name = "IDS")]
    ids: Option<String>,
}

/// Tokens where neither the user nor the model says how many.
const MAX_TOKENS: usize = 128;
/// Rows of logits that are held at once.
const ROWS_TOGETHER: usize = 32;

#[derive(Serialize)]
struct Report {
    text: String,
    ids: Vec<u32>,
    finish_reason: &'static str,
    usage: Usage,
    timings: Times,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<TokenLogprob>>,
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<(), CliError> {
    args.sampling.check()?;
    let given = args.given.ids.as_deref().map(super::detokenize::ids).transpose()?;
    let spec = args.sampling.spec()?;
    let opened = args.model.open(terminal)?;
    let model = &opened.model;
    let mut params = args.sampling.params(model, terminal)?;
    params.max_tokens.get_or_insert(MAX_TOKENS);
    let prompt = match (given, &args.given.prompt) {
        (Some(ids), _) => ids,
        (None, text) => model.encode_text(text.as_deref().unwrap_or_default())?,
    };
    let echo = args.echo.then(|| match &args.given.prompt {
        Some(text) => text.clone(),
        None => model.tokenizer().decode(&prompt, true),
    });
    let guide = spec.map(|spec| model.guide(&spec, None)).transpose()?;
    let mut engine = opened.engine(&args.context, terminal)?;
    let mut speaker = (!args.json).then(|| Speaker::new(terminal, true));
    let mut say = |segments: &[Segment]| match speaker.as_mut().is_none_or(|s| s.say(segments)) {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    };
    if let Some(text) = &echo {
        let _ = say(&[Segment { kind: Kind::Answer, text: text.clone() }]);
    }
    let made = generate_guided(model, &mut engine, &prompt, &params, guide, None, &mut |_, segments| say(segments))?;
    if let Some(speaker) = speaker {
        speaker.end()?;
    } else {
        let mut ids: Vec<u32> = made.tokens.iter().map(|t| t.id).collect();
        let mut logprobs = params.logprobs.map(|_| TokenLogprob::all(model.tokenizer(), &made.tokens));
        if echo.is_some() {
            ids.splice(0..0, prompt.iter().copied());
            if let Some(logprobs) = &mut logprobs {
                logprobs.splice(0..0, of_prompt(&opened, &prompt, &params)?);
            }
        }
        let report = Report {
            text: echo.unwrap_or_default() + &made.text,
            ids,
            finish_reason: made.finish.name(),
            usage: Usage::of(&made),
            timings: Times::of(&made, opened.load),
            logprobs,
        };
        let mut out = terminal.out();
        json_line(&mut out, &report)?;
        out.flush()?;
    }
    terminal.detail(summary(&made, opened.load));
    Ok(())
}

/// What the model foretold of each token of the prompt, by one forward pass; nothing foretold the first.
fn of_prompt(opened: &Opened, prompt: &[u32], params: &SamplingParams) -> Result<Vec<TokenLogprob>, CliError> {
    let model = &opened.model;
    let tokenizer = model.tokenizer();
    let mut all = vec![TokenLogprob::new(tokenizer, prompt[0], None, &[])];
    let top = params.logprobs.unwrap_or(0);
    for (sampled, &id) in foretold(model, prompt, top)?.iter().zip(&prompt[1..]) {
        all.push(TokenLogprob::new(tokenizer, id, sampled.logprob, &sampled.top));
    }
    Ok(all)
}

/// Log-probabilities of every token of `ids` but the first, and of the `top` likeliest in its place.
fn foretold(model: &LanguageModel, ids: &[u32], top: usize) -> Result<Vec<Sampled>, InferenceError> {
    let batch = Batch::new(&[ids])?;
    let shape = model.loaded().model.shape();
    shape.check(&batch)?;
    let head = model.loaded().head.as_ref().ok_or(InferenceError::NoHead { architecture: shape.architecture })?;
    let ops = &**model.ops();
    let cx = Forward::new(ops, &batch);
    let hidden = model.loaded().model.forward(&cx);
    let rows: Vec<u32> = (0..ids.len() as u32 - 1).collect();
    let mut all = Vec::with_capacity(rows.len());
    for rows in rows.chunks(ROWS_TOGETHER) {
        let logits = ops.read(&head.logits(&cx, &ops.rows(&hidden, rows)))?;
        for (row, &at) in logits.chunks_exact(head.out.outputs).zip(rows) {
            all.push(log_probabilities(row, ids[at as usize + 1], top));
        }
    }
    Ok(all)
}

/// Natural logs of the softmax at `id`, and at the `top` largest, the lower id first among equals.
fn log_probabilities(logits: &[f32], id: u32, top: usize) -> Sampled {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total = logits.iter().map(|&x| f64::from(x - max).exp()).sum::<f64>().ln();
    let logprob = |id: u32| (f64::from(logits[id as usize]) - f64::from(max) - total) as f32;
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    let best = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    if top > 0 && top < order.len() {
        order.select_nth_unstable_by(top - 1, best);
    }
    order.truncate(top);
    order.sort_unstable_by(best);
    Sampled { id, logprob: Some(logprob(id)), top: order.into_iter().map(|id| (id, logprob(id))).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_probabilities_are_those_of_the_softmax_best_first() {
        let logits = [0.0, 2.0, 1.0, 2.0];
        let got = log_probabilities(&logits, 2, 3);
        let total: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
        assert!((f64::from(got.logprob.unwrap()) - (1.0 - total.ln())).abs() < 1e-6);
        assert_eq!(got.top.iter().map(|t| t.0).collect::<Vec<_>>(), [1, 3, 2]);
        assert_eq!(log_probabilities(&logits, 2, 0).top, []);
        assert_eq!(log_probabilities(&logits, 2, 9).top.len(), 4);
    }
}
