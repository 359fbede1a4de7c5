//! The `lattice` command.

mod cli;
mod commands;
mod conversation;
mod error;
mod executor;
mod interrupt;
mod language;
mod machine;
mod npy;
mod parity;
mod repl;
mod sampling_args;
mod scales;
mod speaker;
mod terminal;
mod texts;

fn main() -> std::process::ExitCode {
    cli::main()
}
