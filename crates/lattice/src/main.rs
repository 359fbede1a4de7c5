//! The `lattice` command.

// Comments of arguments are the help texts: their brackets are what a terminal shows, not links.
#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags, rustdoc::bare_urls)]

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
