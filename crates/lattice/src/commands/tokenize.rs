//! `lattice tokenize`: what does a model see of a text?

use super::{DEFAULT_EMBEDDER, json_line, open_tokenizer};
use crate::error::CliError;
use crate::terminal::{Terminal, table};
use crate::texts::TextArgs;
use serde::Serialize;
use std::io::Write;

/// Token ids, pieces and offsets of texts
///
/// Offsets are in Unicode characters of the text, half open; a token that was added (such as [CLS]) has 0..0.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    texts: TextArgs,
    /// A name of the catalog, org/name on the Hub, a folder with a tokenizer, or a tokenizer file
    #[arg(long, default_value = DEFAULT_EMBEDDER)]
    model: String,
    /// Without the special tokens that the tokenizer adds
    #[arg(long)]
    no_special: bool,
    /// One object a text: {"index":i,"ids":[…],"pieces":[…],"offsets":[[start,end],…]}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Line {
    index: usize,
    ids: Vec<u32>,
    pieces: Vec<String>,
    offsets: Vec<(usize, usize)>,
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<(), CliError> {
    let tokenizer = open_tokenizer(&args.model, terminal)?;
    let mut out = terminal.out();
    for (index, text) in args.texts.open(terminal)?.enumerate() {
        let encoding = tokenizer.encode(&text?, !args.no_special)?;
        let pieces = tokenizer.pieces(&encoding.ids);
        if args.json {
            json_line(&mut out, &Line { index, ids: encoding.ids, pieces, offsets: encoding.offsets })?;
            continue;
        }
        let rows: Vec<Vec<String>> = (encoding.ids.iter().zip(&encoding.offsets).zip(pieces))
            .map(|((id, (start, end)), piece)| vec![id.to_string(), format!("{start}..{end}"), piece])
            .collect();
        let gap = if index > 0 { "\n" } else { "" };
        write!(out, "{gap}{}", table(&rows, &[0]))?;
    }
    Ok(out.flush()?)
}
