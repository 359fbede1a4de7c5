//! What can be typed after `lattice`, and what happens to errors and interrupts: the frame around the commands.

use crate::commands::{
    batch, bench, chat, detokenize, doctor, embed, generate, grammar, inspect, models, parity, ppl, pull, rerank, rm,
    serve, tokenize,
};
use crate::error::CliError;
use crate::interrupt;
use crate::terminal::Terminal;
use clap::{ArgAction, Parser, Subcommand};
use std::process::ExitCode;

/// Transformer models in pure Rust: text generation, embeddings, reranking, tokenization.
///
/// Results go to stdout, progress and notes to stderr. Exit status: 0 done, 1 it failed, 2 wrong usage.
#[derive(Parser)]
#[command(name = "lattice", version, after_help = ENVIRONMENT, arg_required_else_help = true, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Log what is done to stderr
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "quiet")]
    verbose: u8,
    /// No progress and no notes
    #[arg(short, long, global = true)]
    quiet: bool,
}

#[derive(Subcommand)]
enum Command {
    Pull(pull::Args),
    Models(models::Args),
    Rm(rm::Args),
    Inspect(inspect::Args),
    Chat(chat::Args),
    Generate(generate::Args),
    Ppl(ppl::Args),
    Bench(bench::Args),
    Doctor(doctor::Args),
    Embed(embed::Args),
    Rerank(rerank::Args),
    Grammar(grammar::Args),
    Tokenize(tokenize::Args),
    Detokenize(detokenize::Args),
    Serve(Box<serve::Args>),
    Batch(Box<batch::Args>),
    Parity(parity::Args),
}

const ENVIRONMENT: &str = "\
Environment:
  LATTICE_MODEL_CACHE  folder that holds models (else ~/.lattice/models)
  LATTICE_OFFLINE      1: use only what is in the cache
  LATTICE_ISA          instruction set: scalar, avx2, avx512, neon (else the best of this machine)
  LATTICE_NO_GPU       1: never use a GPU
  HF_ENDPOINT          address of the Hugging Face Hub or a mirror of it
  HF_TOKEN             token for private and gated models";

pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    let serves = matches!(cli.command, Command::Serve(_));
    let terminal = Terminal::new(cli.quiet, cli.verbose, serves);
    interrupt::install();
    let result = match cli.command {
        Command::Pull(args) => pull::run(args, &terminal),
        Command::Models(args) => models::run(args, &terminal),
        Command::Rm(args) => rm::run(args, &terminal),
        Command::Inspect(args) => inspect::run(args, &terminal),
        Command::Chat(args) => chat::run(args, &terminal),
        Command::Generate(args) => generate::run(args, &terminal),
        Command::Ppl(args) => ppl::run(args, &terminal),
        Command::Bench(args) => bench::run(args, &terminal),
        Command::Doctor(args) => doctor::run(args, &terminal),
        Command::Embed(args) => embed::run(args, &terminal),
        Command::Rerank(args) => rerank::run(args, &terminal),
        Command::Grammar(args) => grammar::run(args, &terminal),
        Command::Tokenize(args) => tokenize::run(args, &terminal),
        Command::Detokenize(args) => detokenize::run(args, &terminal),
        Command::Serve(args) => serve::run(*args, &terminal),
        Command::Batch(args) => batch::run(*args, &terminal),
        Command::Parity(args) => parity::run(args, &terminal),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of our output has what it wanted.
        Err(CliError::Stdout(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(CliError::Reported) => ExitCode::FAILURE,
        Err(error) => {
            terminal.error(&error);
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
