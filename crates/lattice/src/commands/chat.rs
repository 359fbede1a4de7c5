//! `lattice chat`: what does the model answer?

use super::json_line;
use crate::conversation::{Conversation, Thinking};
use crate::error::CliError;
use crate::language::{ContextArgs, ModelArgs, Opened, Times, Usage, summary};
use crate::repl;
use crate::sampling_args::SamplingArgs;
use crate::speaker::Speaker;
use crate::terminal::Terminal;
use ::serve::TokenLogprob;
use serde::Serialize;
use std::io::Write;
use std::ops::ControlFlow;

/// Talk with a model
///
/// With --prompt, one answer on stdout as it comes: the prompt is taken literally, and nothing is read from stdin. Without
/// it, a conversation; /help tells what can be typed.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  lattice chat -p \"Why is the sky blue?\"
  lattice chat --system \"Answer in rhymes.\" --temperature 0.7
  lattice chat -p \"Name a colour\" --stop \".\" --json")]
pub(crate) struct Args {
    /// One question, instead of a conversation
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<String>,
    /// What the model is told first
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    system: Option<String>,
    /// Whether a model that can think before it answers does
    #[arg(long, value_enum, default_value_t = Thinking::Auto)]
    think: Thinking,
    /// Write reasoning to a pipe too; a terminal has it anyway, dimmed
    #[arg(long)]
    show_reasoning: bool,
    /// One object: {"text","reasoning","finish_reason","usage","timings","logprobs"}
    #[arg(long, requires = "prompt")]
    json: bool,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    context: ContextArgs,
}

#[derive(Serialize)]
struct Report {
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
    finish_reason: &'static str,
    usage: Usage,
    timings: Times,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<TokenLogprob>>,
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<(), CliError> {
    args.sampling.check()?;
    let spec = args.sampling.spec()?;
    let opened = args.model.open(terminal)?;
    let params = args.sampling.params(&opened.model, terminal)?;
    let engine = opened.engine(&args.context, terminal)?;
    let conversation = Conversation::new(&opened.model, engine, params, args.system.clone(), args.think)?;
    let conversation = conversation.held_to(spec)?;
    match &args.prompt {
        Some(prompt) => answer(&args, &opened, conversation, prompt, terminal),
        None => repl::run(&opened, conversation, args.show_reasoning, terminal),
    }
}

fn answer(
    args: &Args,
    opened: &Opened,
    mut conversation: Conversation,
    prompt: &str,
    terminal: &Terminal,
) -> Result<(), CliError> {
    let mut speaker = (!args.json).then(|| Speaker::new(terminal, args.show_reasoning));
    let made = conversation.ask(prompt, &mut |segments| match speaker.as_mut().is_none_or(|s| s.say(segments)) {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    })?;
    if let Some(speaker) = speaker {
        speaker.end()?;
    } else {
        let wanted = conversation.params().logprobs;
        let report = Report {
            finish_reason: made.finish.name(),
            usage: Usage::of(&made),
            timings: Times::of(&made, opened.load),
            logprobs: wanted.map(|_| TokenLogprob::all(opened.model.tokenizer(), &made.tokens)),
            text: made.text.clone(),
            reasoning: made.reasoning.clone(),
        };
        let mut out = terminal.out();
        json_line(&mut out, &report)?;
        out.flush()?;
    }
    terminal.detail(summary(&made, opened.load));
    Ok(())
}
