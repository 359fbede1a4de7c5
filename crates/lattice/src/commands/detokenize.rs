//! `lattice detokenize`: which text do these ids stand for?

use super::{DEFAULT_EMBEDDER, json_line, open_tokenizer};
use crate::error::CliError;
use crate::terminal::Terminal;
use crate::texts::TextArgs;
use serde::Serialize;
use std::io::Write;

/// The text of token ids
///
/// Ids as arguments are one text: `lattice detokenize 7592 2088`. In a file or on stdin, each line is one.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    ids: TextArgs,
    /// A name of the catalog, org/name on the Hub, a folder with a tokenizer, or a tokenizer file
    #[arg(long, default_value = DEFAULT_EMBEDDER)]
    model: String,
    /// Leave special tokens out of the text
    #[arg(long)]
    skip_special: bool,
    /// One object a text: {"index":i,"text":"…"}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Line {
    index: usize,
    text: String,
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<(), CliError> {
    let tokenizer = open_tokenizer(&args.model, terminal)?;
    let given = args.ids.is_given();
    let mut lists = args.ids.open(terminal)?.collect::<Result<Vec<_>, _>>()?;
    if given {
        lists = vec![lists.join(" ")];
    }
    let mut out = terminal.out();
    for (index, list) in lists.iter().enumerate() {
        let text = tokenizer.decode(&ids(list)?, args.skip_special);
        if args.json {
            json_line(&mut out, &Line { index, text })?;
        } else {
            writeln!(out, "{text}")?;
        }
    }
    Ok(out.flush()?)
}

/// Ids as people write them: `1 2 3`, `1,2,3`, `[1, 2, 3]`.
pub(crate) fn ids(list: &str) -> Result<Vec<u32>, CliError> {
    let words = list.split(|c: char| c.is_whitespace() || ",[]".contains(c)).filter(|word| !word.is_empty());
    words.map(|word| word.parse().map_err(|_| CliError::NotAnId { word: word.to_owned() })).collect()
}
