//! `lattice rm`: delete models from the cache.

use super::json_line;
use crate::error::CliError;
use crate::terminal::{Terminal, size};
use hub::Hub;
use serde::Serialize;
use std::io::Write;

/// Delete models from the cache
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Names as `lattice models` lists them
    #[arg(value_name = "MODEL", required = true)]
    models: Vec<String>,
    /// An array of rows
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    name: String,
    bytes: u64,
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<(), CliError> {
    let hub = Hub::from_env()?;
    let mut rows = Vec::new();
    let mut out = terminal.out();
    for name in args.models {
        let bytes = hub.remove(&name)?;
        if !args.json {
            writeln!(out, "{name}: {} freed", size(bytes))?;
            out.flush()?;
        }
        rows.push(Row { name, bytes });
    }
    if args.json {
        json_line(&mut out, &rows)?;
    }
    Ok(out.flush()?)
}
