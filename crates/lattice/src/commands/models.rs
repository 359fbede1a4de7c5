//! `lattice models`: which models are known, and which are here?

use super::json_line;
use crate::error::CliError;
use crate::terminal::{Terminal, size, table};
use hub::{Entry, Hub, Kind, State};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

/// The catalog and what else is in the cache, with size and state
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only models that are here
    #[arg(long)]
    local: bool,
    /// An array of rows
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    name: String,
    kind: Option<&'static str>,
    state: &'static str,
    bytes: u64,
    path: PathBuf,
    source: Option<String>,
    parameters: Option<u64>,
    dimensions: Option<usize>,
    window: Option<usize>,
    licence: Option<&'static str>,
    hub: Option<&'static str>,
    aliases: &'static [&'static str],
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<(), CliError> {
    let rows = Hub::from_env()?.list()?.into_iter().map(Row::from);
    let rows: Vec<Row> = rows.filter(|row| !args.local || row.state != "absent").collect();
    let mut out = terminal.out();
    if args.json {
        json_line(&mut out, &rows)?;
        return Ok(out.flush()?);
    }
    let head = ["name", "kind", "parameters", "dimensions", "window", "licence", "state", "on disk"];
    let mut cells = vec![head.map(str::to_owned).to_vec()];
    for row in &rows {
        let number = |n: Option<usize>| n.map_or_else(|| "-".into(), |n| n.to_string());
        cells.push(vec![
            row.name.clone(),
            row.kind.unwrap_or("-").into(),
            row.parameters.map_or_else(|| "-".into(), |n| format!("{} M", n.div_ceil(1_000_000))),
            number(row.dimensions),
            number(row.window),
            row.licence.unwrap_or("-").into(),
            row.state.into(),
            if row.bytes > 0 { size(row.bytes) } else { "-".into() },
        ]);
    }
    out.write_all(table(&cells, &[2, 3, 4, 7]).as_bytes())?;
    Ok(out.flush()?)
}

impl From<hub::Row> for Row {
    fn from(row: hub::Row) -> Row {
        let hub::Row { name, entry, state, bytes, path, source, .. } = row;
        let kind = |e: &Entry| match e.kind {
            Kind::Embedder => "embedder",
            Kind::Reranker => "reranker",
            Kind::Chat => "chat",
            _ => "other",
        };
        let state = match state {
            State::Complete => "here",
            State::Partial => "partial",
            State::Absent => "absent",
        };
        Row {
            name,
            kind: entry.map(kind),
            state,
            bytes,
            path,
            source,
            parameters: entry.map(|e| e.parameters),
            dimensions: entry.and_then(|e| e.dimensions),
            window: entry.map(|e| e.window),
            licence: entry.map(|e| e.licence),
            hub: entry.map(|e| e.hub),
            aliases: entry.map_or(&[], |e| e.aliases),
        }
    }
}
