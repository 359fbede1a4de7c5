//! `lattice serve`: models behind OpenAI's HTTP API.

use super::{DEFAULT_EMBEDDER, json_line, locate};
use crate::error::CliError;
use crate::executor::{ExecutorArgs, PrecisionArgs};
use crate::interrupt::Catch;
use crate::language;
use crate::sampling_args::SamplingArgs;
use crate::terminal::Terminal;
use ::serve::{ModelSpec, Options, ServeError, Server, TlsFiles};
use inference::EngineOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Serve models over HTTP, as OpenAI's API does
///
/// Prints its address on stdout, and a line for each request on stderr, without what was said. Ctrl-C and SIGTERM end it:
/// what runs may finish, a second Ctrl-C does not wait. docs/serving.md has every endpoint and field.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  lattice serve
  lattice serve --model smollm2-135m-instruct --model all-minilm-l6-v2 --alias gpt-4o-mini=smollm2-135m-instruct
  lattice serve --host 0.0.0.0 --api-key \"$KEY\" --tls-cert cert.pem --tls-key key.pem")]
pub(crate) struct Args {
    #[command(flatten)]
    models: ModelsArgs,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1", help_heading = SERVER)]
    host: String,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 8080, help_heading = SERVER)]
    port: u16,
    /// A key that requests must have; several times for several
    #[arg(long, value_name = "KEY", env = "LATTICE_API_KEY", hide_env_values = true, help_heading = SERVER)]
    api_key: Vec<String>,
    /// Pages that may ask, as scheme://host[:port], or * for all; without it all if there is a key, else pages of this
    /// machine
    #[arg(long, value_name = "ORIGIN", help_heading = SERVER)]
    cors_origin: Vec<String>,
    /// Certificate chain (PEM) for TLS
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = SERVER)]
    tls_cert: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = SERVER)]
    tls_key: Option<PathBuf>,
    /// Write prompts and answers to the log too
    #[arg(long, help_heading = SERVER)]
    log_prompts: bool,
    /// Texts that may wait for each model; further ones are refused with status 429
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(0..=1_000_000), help_heading = LIMITS)]
    max_queue: u32,
    /// Largest request in MiB
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096), help_heading = LIMITS)]
    max_body: u32,
    /// Longest time of a request in seconds, its answer included
    #[arg(long, value_name = "S", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..), help_heading = LIMITS)]
    timeout: u32,
    /// Longest time in seconds until a request's head, and then its body, is there
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..), help_heading = LIMITS)]
    read_timeout: u32,
    /// Longest time in seconds that a client may take nothing of its answer
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..), help_heading = LIMITS)]
    write_timeout: u32,
    /// How long running answers may go on after the server was asked to end, in seconds
    #[arg(long, value_name = "S", default_value_t = 30, help_heading = LIMITS)]
    drain: u32,
    /// The address as one object: {"url":…}
    #[arg(long)]
    json: bool,
    /// Open models at their first request, not at the start
    #[arg(long, help_heading = MEMORY)]
    lazy: bool,
    /// Close a model that nobody asked for so many seconds
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..), help_heading = MEMORY)]
    idle_unload: Option<u32>,
}

/// Which models, and how they compute: alike for a server and a batch.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct ModelsArgs {
    /// A model by name, org/name, folder or .gguf file; several times for several; without it the default language model and
    /// embedder
    #[arg(short, long, value_name = "MODEL")]
    model: Vec<String>,
    /// Another name for a model; several times
    #[arg(long, value_name = "NAME=MODEL", value_parser = alias)]
    alias: Vec<(String, String)>,
    /// Texts of a language model that are made side by side
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = LIMITS)]
    parallel: u16,
    /// Most tokens of a forward pass: with fewer, texts flow more evenly while prompts go in
    #[arg(long, value_name = "N", default_value_t = EngineOptions::default().step_tokens as u32, value_parser = clap::value_parser!(u32).range(1..=65536), help_heading = LIMITS)]
    step_tokens: u32,
    /// Longest text in tokens, prompt and answer; without it the model's window, at most 8192
    #[arg(long, value_name = "N", help_heading = LIMITS)]
    ctx: Option<usize>,
    /// Most memory in MiB that open models take together; the one that was not used for longest is closed first
    #[arg(long, value_name = "MIB", help_heading = MEMORY)]
    memory: Option<u32>,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    executor: ExecutorArgs,
    #[command(flatten)]
    precision: PrecisionArgs,
}

const SERVER: &str = "Server";
const LIMITS: &str = "Limits";
const MEMORY: &str = "Memory";

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<(), CliError> {
    let server = Server::bind(options(&args, terminal)?)?;
    let scheme = if args.tls_cert.is_some() { "https" } else { "http" };
    let (url, mut out) = (format!("{scheme}://{}", server.address()), terminal.out());
    match args.json {
        true => json_line(&mut out, &serde_json::json!({ "url": url }))?,
        false => writeln!(out, "{url}")?,
    }
    out.flush()?;
    drop(out);
    let catch = Catch::new();
    Ok(server.block(|| catch.came())?)
}

impl ModelsArgs {
    /// A server of these models, as usual otherwise.
    pub(crate) fn options(&self, default: &[&str], terminal: &Terminal) -> Result<Options, CliError> {
        self.sampling.check_default()?;
        let ops = self.executor.open(self.precision.level())?;
        let named: Vec<&str> = self.model.iter().map(String::as_str).collect();
        let mut models = Vec::new();
        for spec in if named.is_empty() { default } else { &named[..] } {
            models.push(ModelSpec::new(spec, locate(spec, terminal)?));
        }
        for (alias, model) in &self.alias {
            let named = |spec: &&mut ModelSpec| spec.name == *model || spec.aliases.contains(model);
            match models.iter_mut().find(named) {
                Some(spec) => spec.aliases.insert(0, alias.clone()),
                None => return Err(ServeError::AliasOfNothing { alias: alias.clone(), model: model.clone() }.into()),
            }
        }
        let sampling = self.sampling.clone();
        Ok(Options {
            engine: EngineOptions {
                context: self.ctx,
                parallel: self.parallel.into(),
                step_tokens: self.step_tokens as usize,
                kv: self.precision.kv(),
                ..EngineOptions::default()
            },
            defaults: Arc::new(move |params| sampling.over(params)),
            memory: self.memory.map(|mib| u64::from(mib) << 20),
            ..Options::new(ops, models)
        })
    }
}

fn options(args: &Args, terminal: &Terminal) -> Result<Options, CliError> {
    let seconds = |n: u32| Duration::from_secs(n.into());
    let tls = args.tls_cert.clone().zip(args.tls_key.clone());
    Ok(Options {
        host: args.host.clone(),
        port: args.port,
        keys: args.api_key.clone(),
        origins: args.cors_origin.clone(),
        tls: tls.map(|(certificate, key)| TlsFiles { certificate, key }),
        max_queue: args.max_queue as usize,
        max_body: (args.max_body as usize) << 20,
        timeout: seconds(args.timeout),
        read_timeout: seconds(args.read_timeout),
        write_timeout: seconds(args.write_timeout),
        drain: seconds(args.drain),
        lazy: args.lazy,
        idle: args.idle_unload.map(seconds),
        log_prompts: args.log_prompts,
        ..args.models.options(&[language::DEFAULT, DEFAULT_EMBEDDER], terminal)?
    })
}

fn alias(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(name, model)| !name.is_empty() && !model.is_empty());
    parts.map(|(name, model)| (name.to_owned(), model.to_owned())).ok_or_else(|| "expected NAME=MODEL".into())
}
