//! How do the commands open a language model, and what do they tell about a text that it gave?

use crate::commands::locate;
use crate::error::CliError;
use crate::executor::{ExecutorArgs, PrecisionArgs};
use crate::terminal::Terminal;
use inference::{Engine, EngineOptions, Generation, LanguageModel, Speculate};
use ops::KvFormat;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The model that is used when none is named.
pub(crate) const DEFAULT: &str = "smollm2-135m-instruct";

/// Recurrent states that stay for the next turn of a conversation: its ends, and some places on the way.
const SNAPSHOTS: usize = 8;

/// Which language model, and how it computes.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct ModelArgs {
    /// A name of the catalog (`lattice models`), org/name on the Hub, a folder, or a .gguf file
    #[arg(short, long, default_value = DEFAULT)]
    model: String,
    #[command(flatten)]
    executor: ExecutorArgs,
    #[command(flatten)]
    precision: PrecisionArgs,
}

/// The longest text.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct ContextArgs {
    /// Longest text in tokens, prompt and answer; without it the model's window, at most 8192
    #[arg(long, value_name = "N", help_heading = "Computing")]
    ctx: Option<usize>,
    /// A smaller model of the same family that guesses ahead; the text stays the same without sampling, and as likely with it
    #[arg(long, value_name = "MODEL", help_heading = "Computing")]
    draft: Option<String>,
}

/// An open model.
pub(crate) struct Opened {
    pub(crate) model: LanguageModel,
    /// What was asked for.
    pub(crate) name: String,
    /// Where it lies.
    pub(crate) path: PathBuf,
    pub(crate) kv: KvFormat,
    pub(crate) threads: usize,
    pub(crate) isa: ops::Isa,
    /// How long opening it took, fetching aside.
    pub(crate) load: Duration,
}

impl ModelArgs {
    /// Finds the model, fetches it if it is not here, and opens it.
    pub(crate) fn open(&self, terminal: &Terminal) -> Result<Opened, CliError> {
        let (cpu, kv) = (self.executor.cpu(self.precision.level())?, self.precision.kv());
        let path = locate(&self.model, terminal)?.path;
        let (threads, isa, start) = (cpu.threads(), cpu.isa(), Instant::now());
        let model = LanguageModel::open(&path, Arc::new(cpu))?;
        let load = start.elapsed();
        tracing::info!(model = self.model, seconds = load.as_secs_f64(), "opened");
        Ok(Opened { model, name: self.model.clone(), path, kv, threads, isa, load })
    }
}

impl Opened {
    /// An engine for one text at a time.
    pub(crate) fn engine(&self, context: &ContextArgs, terminal: &Terminal) -> Result<Engine, CliError> {
        let options = EngineOptions {
            context: context.ctx,
            parallel: 1,
            kv: self.kv,
            snapshots: Some(SNAPSHOTS),
            ..EngineOptions::default()
        };
        let Some(draft) = &context.draft else { return Ok(self.model.engine(options)?) };
        let draft = LanguageModel::open(locate(draft, terminal)?.path, self.model.ops().clone())?;
        Ok(self.model.engine_with(&draft, EngineOptions { speculate: Speculate::All, ..options })?)
    }
}

/// Tokens of a text.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    prompt_tokens: usize,
    /// Tokens of the prompt that were computed before, in an earlier turn.
    cached_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
}

impl Usage {
    pub(crate) fn of(generation: &Generation) -> Usage {
        let (prompt_tokens, completion_tokens) = (generation.counts.prompt, generation.tokens.len());
        let cached_tokens = generation.counts.cached;
        Usage { prompt_tokens, cached_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens }
    }
}

/// How long a text took; speeds where there is enough to tell.
#[derive(Serialize, Clone, Copy, Debug)]
pub(crate) struct Times {
    load_seconds: f64,
    /// From the prompt to the first token.
    prefill_seconds: f64,
    /// From the first token to the last.
    decode_seconds: f64,
    prefill_tokens_per_second: Option<f64>,
    decode_tokens_per_second: Option<f64>,
}

impl Times {
    pub(crate) fn of(generation: &Generation, load: Duration) -> Times {
        let timings = generation.timings;
        let speed =
            |tokens: usize, time: Duration| (tokens > 0 && !time.is_zero()).then(|| tokens as f64 / time.as_secs_f64());
        Times {
            load_seconds: load.as_secs_f64(),
            prefill_seconds: timings.first_token.as_secs_f64(),
            decode_seconds: timings.decode.as_secs_f64(),
            prefill_tokens_per_second: speed(generation.counts.prompt - generation.counts.cached, timings.first_token),
            decode_tokens_per_second: speed(generation.tokens.len().saturating_sub(1), timings.decode),
        }
    }
}

/// What `-v` tells at the end.
pub(crate) fn summary(generation: &Generation, load: Duration) -> String {
    let (usage, times) = (Usage::of(generation), Times::of(generation, load));
    let speed = |speed: Option<f64>| speed.map_or_else(|| "-".into(), |s| format!("{s:.1} tokens/s"));
    format!(
        "load {:.2} s; prompt {} tokens, {} of them known, in {:.2} s, {}; answer {} tokens in {:.2} s, {}",
        times.load_seconds,
        usage.prompt_tokens,
        usage.cached_tokens,
        times.prefill_seconds,
        speed(times.prefill_tokens_per_second),
        usage.completion_tokens,
        times.decode_seconds,
        speed(times.decode_tokens_per_second),
    )
}
