//! The `lattice` command.

mod cli;
mod commands;
mod error;
mod executor;
mod npy;
mod parity;
mod terminal;
mod texts;

fn main() -> std::process::ExitCode {
    cli::main()
}
