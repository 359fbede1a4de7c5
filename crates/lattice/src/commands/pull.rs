//! `lattice pull`: fetch models before they are needed.

use super::json_line;
use crate::error::CliError;
use crate::terminal::{Terminal, size};
use hub::Hub;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Fetch models, going on where a download broke off, and verify their checksums
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Names of the catalog (`lattice models`), or org/name[@revision] on the Hub
    #[arg(value_name = "MODEL", required = true)]
    models: Vec<String>,
    /// An array of rows
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    name: String,
    path: PathBuf,
    bytes: u64,
    commit: Option<String>,
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<(), CliError> {
    let hub = Hub::from_env()?;
    let mut rows = Vec::new();
    let mut out = terminal.out();
    for name in args.models {
        let located = hub.pull(&name, &mut terminal.downloads())?;
        let name = located.entry.map_or(name, |e| e.name.to_owned());
        let row = Row { name, bytes: bytes(&located.path), path: located.path, commit: located.commit };
        if !args.json {
            writeln!(out, "{}: {} in {}", row.name, size(row.bytes), row.path.display())?;
            out.flush()?;
        }
        rows.push(row);
    }
    if args.json {
        json_line(&mut out, &rows)?;
    }
    Ok(out.flush()?)
}

/// Bytes of a model's files.
fn bytes(path: &Path) -> u64 {
    let Ok(items) = std::fs::read_dir(path) else { return std::fs::metadata(path).map_or(0, |m| m.len()) };
    items.flatten().map(|item| bytes(&item.path())).sum()
}
