//! `lattice grammar`: which JSON does a schema let a model write?

use super::{json_line, open_tokenizer};
use crate::error::CliError;
use crate::language::DEFAULT;
use crate::terminal::{Terminal, table};
use grammar::{Compiler, Constraint, GrammarError, GrammarSpec, in_schema_order};
use inference::grammar_compiler;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokenizer::{Special, Tokenizer};

/// Compile JSON Schemas for a model's vocabulary, and walk instances through them token by token
///
/// A file is a schema, or an object with "schema" and "tests": [{"valid": true, "data": …}, …], as MaskBench has them. Each
/// instance is written with ", " and ": " and again without spaces, and its keys are in the order that the schema gives
/// them where they are not already. Exit status 1 if an invalid instance was accepted.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files, or folders with .json files
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// A name of the catalog, org/name on the Hub, a folder with a tokenizer, or a tokenizer or .gguf file
    #[arg(short, long, default_value = DEFAULT)]
    model: String,
    /// One object a file, then a summary
    #[arg(long)]
    json: bool,
}

/// One file.
#[derive(Serialize, Default)]
struct Row {
    file: String,
    /// `passed`, `refused`, `failed`, or `compiled` without instances.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    keyword: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    tests: usize,
    /// Indices of tests.
    wrongly_accepted: Vec<usize>,
    wrongly_rejected: Vec<usize>,
    /// Those that are accepted with their keys in the order of the schema, not in their own.
    reordered: Vec<usize>,
    /// Compiling and the first mask.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_mask_us: Option<f64>,
}

#[derive(Serialize)]
struct Summary {
    files: usize,
    passed: usize,
    refused: usize,
    refused_share: f64,
    refused_keywords: BTreeMap<String, usize>,
    wrongly_accepted: usize,
    wrongly_rejected: usize,
    masks: usize,
    mask_us: Quantiles,
    first_mask_us: Quantiles,
}

#[derive(Serialize, Clone, Copy)]
struct Quantiles {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Quantiles {
    fn of(mut times: Vec<Duration>) -> Quantiles {
        times.sort_unstable();
        let at = |share: f64| {
            let index = (times.len() as f64 * share) as usize;
            times.get(index.min(times.len().saturating_sub(1))).map_or(0.0, |t| micros(*t))
        };
        Quantiles { p50: at(0.5), p99: at(0.99), max: at(1.0) }
    }
}

fn micros(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<(), CliError> {
    let files = files(&args.paths)?;
    let tokenizer = open_tokenizer(&args.model, terminal)?;
    // A folder with a tokenizer only may not say what ends a text; any one token will do to see where it may end.
    let ends =
        [Special::Eos, Special::Sep, Special::Pad, Special::Unk].into_iter().find_map(|role| tokenizer.special(role));
    let start = Instant::now();
    let compiler = grammar_compiler(&tokenizer, &[ends.unwrap_or(0)])?;
    terminal.detail(format!(
        "vocabulary of {} tokens ready in {:.2} s",
        tokenizer.vocab_size(),
        start.elapsed().as_secs_f64()
    ));
    let mut check = Check { compiler, tokenizer, masks: Vec::new(), first: Vec::new() };
    let mut out = terminal.out();
    let mut rows = Vec::new();
    let mut count = terminal.count("schemas", Some(files.len() as u64));
    for file in &files {
        let row = check.file(file)?;
        count.one();
        if args.json {
            json_line(&mut out, &row)?;
        }
        rows.push(row);
    }
    drop(count);
    let summary = check.summary(&rows);
    match args.json {
        true => json_line(&mut out, &summary)?,
        false => print(&mut out, &rows, &summary)?,
    }
    out.flush()?;
    if summary.wrongly_accepted > 0 { Err(CliError::Reported) } else { Ok(()) }
}

/// The files, and those in the folders, in order.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).map_err(CliError::file("read", path))?;
        let mut inside: Vec<PathBuf> = entries
            .map(|entry| Ok(entry.map_err(CliError::file("read", path))?.path()))
            .collect::<Result<_, CliError>>()?;
        inside.retain(|file| file.extension().is_some_and(|e| e == "json"));
        inside.sort();
        if inside.is_empty() {
            return Err(CliError::NoSchema { path: path.clone() });
        }
        files.extend(inside);
    }
    Ok(files)
}

struct Check {
    compiler: Compiler,
    tokenizer: Tokenizer,
    masks: Vec<Duration>,
    first: Vec<Duration>,
}

impl Check {
    fn file(&mut self, path: &Path) -> Result<Row, CliError> {
        let bytes = std::fs::read(path).map_err(CliError::file("read", path))?;
        let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let mut row = Row { file, ..Row::default() };
        let (schema, tests) = match serde_json::from_slice(&bytes) {
            Ok(value) => parts(value),
            Err(error) => {
                row.state = "refused";
                row.reason = Some(format!("not JSON: {error}"));
                return Ok(row);
            }
        };
        row.tests = tests.len();
        let start = Instant::now();
        let spec = GrammarSpec::JsonSchema(schema);
        let mut matcher = match self.compiler.compile(&spec) {
            Ok(matcher) => matcher,
            Err(error) => {
                row.state = "refused";
                row.keyword = Some(error.keyword().unwrap_or("schema").to_owned());
                row.reason = Some(error.to_string());
                return Ok(row);
            }
        };
        let mut words = vec![0; self.tokenizer.vocab_size().div_ceil(32)];
        if let Err(error) = matcher.mask(&mut words) {
            row.state = "failed";
            row.reason = Some(error.to_string());
            return Ok(row);
        }
        let time = start.elapsed();
        self.first.push(time);
        row.first_mask_us = Some(micros(time));
        for (i, test) in tests.iter().enumerate() {
            let valid = test.get("valid").and_then(Value::as_bool).unwrap_or(true);
            let data = test.get("data").unwrap_or(&Value::Null);
            for write in [spaced as fn(&Value) -> String, Value::to_string] {
                let mut text = write(data);
                let mut why = self.walk(&mut matcher.clone(), &text, &mut words)?;
                if let (Some(_), GrammarSpec::JsonSchema(schema)) = (&why, &spec) {
                    let ordered = in_schema_order(schema, data).map_or_else(|_| text.clone(), |data| write(&data));
                    if ordered != text {
                        let again = self.walk(&mut matcher.clone(), &ordered, &mut words)?;
                        if again.is_none() && row.reordered.last() != Some(&i) {
                            row.reordered.push(i);
                        }
                        (text, why) = (ordered, again);
                    }
                }
                match (valid, why) {
                    (true, Some(why)) if row.wrongly_rejected.last() != Some(&i) => {
                        row.wrongly_rejected.push(i);
                        row.reason.get_or_insert(format!("test {i} rejected: {why}"));
                    }
                    (false, None) if row.wrongly_accepted.last() != Some(&i) => {
                        row.wrongly_accepted.push(i);
                        row.reason.get_or_insert(format!("test {i} accepted: {}", shortened(&text)));
                    }
                    _ => {}
                }
            }
        }
        let right = row.wrongly_accepted.is_empty() && row.wrongly_rejected.is_empty();
        row.state = match (right, tests.is_empty()) {
            (true, true) => "compiled",
            (true, false) => "passed",
            (false, _) => "failed",
        };
        Ok(row)
    }

    /// Why a text is rejected; none if it is accepted.
    fn walk(
        &mut self,
        matcher: &mut impl Constraint,
        text: &str,
        words: &mut [u32],
    ) -> Result<Option<String>, CliError> {
        let mut done = String::new();
        for id in self.compiler.encode(text) {
            let piece = String::from_utf8_lossy(&self.tokenizer.piece_bytes(id).unwrap_or_default()).into_owned();
            let place = |what: &str| Some(format!("{what} {piece:?} after {:?}", tail(&done)));
            if matcher.is_finished() {
                return Ok(place("nothing may come, but"));
            }
            let start = Instant::now();
            let masked = matcher.mask(words);
            self.masks.push(start.elapsed());
            if let Err(error) = masked {
                return Ok(Some(error.to_string()));
            }
            // Where the grammar forces tokens, the mask holds the next of them; other ways to write the text are taken too.
            let allowed = words[id as usize / 32] >> (id % 32) & 1 == 1 || !matcher.forced().is_empty();
            match matcher.accept(id) {
                Ok(()) if allowed => done.push_str(&piece),
                Ok(()) => return Ok(place("the mask lacks a token that fits:")),
                Err(GrammarError::Rejected { .. }) => return Ok(place("there is no")),
                Err(error) => return Ok(Some(error.to_string())),
            }
        }
        Ok((!matcher.may_end()).then(|| format!("it may not end after {:?}", tail(&done))))
    }

    fn summary(self, rows: &[Row]) -> Summary {
        let count = |state: &str| rows.iter().filter(|row| row.state == state).count();
        let mut keywords = BTreeMap::new();
        for keyword in rows.iter().filter_map(|row| row.keyword.clone()) {
            *keywords.entry(keyword).or_default() += 1;
        }
        Summary {
            files: rows.len(),
            passed: count("passed") + count("compiled"),
            refused: count("refused"),
            refused_share: count("refused") as f64 / rows.len().max(1) as f64,
            refused_keywords: keywords,
            wrongly_accepted: rows.iter().map(|row| row.wrongly_accepted.len()).sum(),
            wrongly_rejected: rows.iter().map(|row| row.wrongly_rejected.len()).sum(),
            masks: self.masks.len(),
            mask_us: Quantiles::of(self.masks),
            first_mask_us: Quantiles::of(self.first),
        }
    }
}

/// A schema and its tests; another value is a schema without tests.
fn parts(mut value: Value) -> (Value, Vec<Value>) {
    match (value.get("schema").is_some(), value.get_mut("tests").map(Value::take)) {
        (true, Some(Value::Array(tests))) => (value["schema"].take(), tests),
        (_, tests) => {
            if let (Some(tests), Some(place)) = (tests, value.get_mut("tests")) {
                *place = tests;
            }
            (value, Vec::new())
        }
    }
}

/// A value with a space after each comma and colon, as Python writes it.
fn spaced(value: &Value) -> String {
    struct Spaces;
    impl serde_json::ser::Formatter for Spaces {
        fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> std::io::Result<()> {
            if first { Ok(()) } else { out.write_all(b", ") }
        }
        fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> std::io::Result<()> {
            if first { Ok(()) } else { out.write_all(b", ") }
        }
        fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> std::io::Result<()> {
            out.write_all(b": ")
        }
    }
    let mut out = Vec::new();
    let mut to = serde_json::Serializer::with_formatter(&mut out, Spaces);
    value.serialize(&mut to).expect("a value can be written");
    String::from_utf8(out).expect("JSON is UTF-8")
}

fn print(out: &mut impl Write, rows: &[Row], summary: &Summary) -> Result<(), CliError> {
    let shown = rows.iter().filter(|row| !matches!(row.state, "passed"));
    let lines: Vec<Vec<String>> =
        shown.map(|row| vec![row.file.clone(), row.state.into(), row.reason.clone().unwrap_or_default()]).collect();
    write!(out, "{}", table(&lines, &[]))?;
    let s = summary;
    writeln!(
        out,
        "{} schemas: {} passed, {} refused ({:.1} %)",
        s.files,
        s.passed,
        s.refused,
        s.refused_share * 100.0
    )?;
    if !s.refused_keywords.is_empty() {
        let mut keywords: Vec<_> = s.refused_keywords.iter().collect();
        keywords.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let keywords: Vec<String> = keywords.iter().map(|(keyword, count)| format!("{keyword} {count}")).collect();
        writeln!(out, "refused by keyword: {}", keywords.join(", "))?;
    }
    writeln!(out, "instances: {} wrongly accepted, {} wrongly rejected", s.wrongly_accepted, s.wrongly_rejected)?;
    let times = |q: Quantiles| format!("p50 {:.1} µs, p99 {:.1} µs, max {:.1} µs", q.p50, q.p99, q.max);
    writeln!(out, "mask: {} ({} masks)", times(s.mask_us), s.masks)?;
    writeln!(out, "compiling and the first mask: {}", times(s.first_mask_us))?;
    Ok(())
}

fn tail(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    chars[chars.len().saturating_sub(60)..].iter().collect()
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(200) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn instances_are_written_as_python_writes_them() {
        let value = json!({"a": [1, 2.5, "ü\n"], "b": {}, "c": [], "d": {"e": null}});
        assert_eq!(spaced(&value), r#"{"a": [1, 2.5, "ü\n"], "b": {}, "c": [], "d": {"e": null}}"#);
    }

    #[test]
    fn a_file_is_a_case_or_a_schema() {
        let tests = json!([{"valid": true, "data": 1}]);
        assert_eq!(parts(json!({"schema": true, "tests": tests})), (json!(true), vec![tests[0].clone()]));
        let schema = json!({"type": "object", "properties": {}});
        assert_eq!(parts(schema.clone()), (schema, vec![]));
        let odd = json!({"tests": [1]});
        assert_eq!(parts(odd.clone()), (odd, vec![]));
    }
}
