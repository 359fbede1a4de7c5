//! `lattice parity`: golden cases, and how far ours is from the reference.

use super::json_line;
use crate::error::CliError;
use crate::executor::ExecutorArgs;
use crate::parity::{Context, Files, Row, Status, find, run as run_case};
use crate::terminal::{Terminal, table};
use hub::Options;
use ops::Precision;
use std::io::Write;
use std::path::PathBuf;

/// Run golden cases and compare with the reference
///
/// A case is a folder with meta.json; folders of cases are looked through. Exit status 1 if any output differs. A case
/// whose family is not built is refused by name, one whose real files are not here is skipped by name: neither counts as
/// passed, and neither fails.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folders of cases, or cases
    #[arg(value_name = "CASE_DIR", required = true)]
    cases: Vec<PathBuf>,
    /// Where real tokenizers and weights lie, which are found by SHA-256; the model cache is looked through anyway
    #[arg(long, value_name = "DIR")]
    files: Vec<PathBuf>,
    /// Write our outputs as DIR/CASE.safetensors, under the names of the reference's
    #[arg(long, value_name = "DIR")]
    dump: Option<PathBuf>,
    /// An array of rows
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    executor: ExecutorArgs,
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<(), CliError> {
    let mut dirs = Vec::new();
    for path in args.cases {
        match find(&path) {
            found if found.is_empty() => return Err(CliError::NoCase { path }),
            found => dirs.extend(found),
        }
    }
    for path in &args.files {
        std::fs::read_dir(path).map_err(CliError::file("read", path))?;
    }
    let mut folders = args.files;
    folders.push(Options::from_env()?.cache);
    let cx = Context { ops: args.executor.open(Precision::Exact)?, files: Files::new(folders), dump: args.dump };
    let mut count = terminal.count("cases", Some(dirs.len() as u64));
    let mut rows = Vec::new();
    for dir in &dirs {
        rows.extend(run_case(dir, &cx));
        count.one();
    }
    drop(count);
    let mut out = terminal.out();
    let of = |status| rows.iter().filter(|row| row.status == status).count();
    let summary = format!(
        "passed {}, failed {}, skipped {}, refused {} (outputs of {} cases)",
        of(Status::Ok),
        of(Status::Fail),
        of(Status::Skipped),
        of(Status::Refused),
        dirs.len()
    );
    if args.json {
        json_line(&mut out, &rows)?;
        out.flush()?;
        terminal.note(summary);
    } else {
        let head = ["case", "output", "max abs error", "tolerance", ""].map(str::to_owned).to_vec();
        let lines: Vec<Vec<String>> = std::iter::once(head).chain(rows.iter().map(cells)).collect();
        out.write_all(table(&lines, &[2, 3]).as_bytes())?;
        writeln!(out, "{summary}")?;
        out.flush()?;
    }
    if of(Status::Fail) > 0 { Err(CliError::Reported) } else { Ok(()) }
}

fn cells(row: &Row) -> Vec<String> {
    let number = |n: f64| if n == 0.0 { "0".into() } else { format!("{n:.1e}") };
    let tolerance = row.tolerance.map_or_else(String::new, |t| match t.rtol {
        0.0 => number(t.atol),
        rtol => format!("{} + {}·|x|", number(t.atol), number(rtol)),
    });
    let status = match row.status {
        Status::Ok => "ok",
        Status::Fail => "FAIL",
        Status::Skipped => "skipped",
        Status::Refused => "refused",
    };
    let status = if row.reason.is_empty() { status.to_owned() } else { format!("{status}: {}", row.reason) };
    vec![row.case.clone(), row.output.clone(), row.max_abs_error.map_or_else(String::new, number), tolerance, status]
}
