//! What does a case folder say? Its `meta.json`, checked; and the ways in which a case can end without outputs.

use super::compare::Tolerance;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A golden case.
pub(crate) struct Case {
    pub(crate) dir: PathBuf,
    /// The name of its folder.
    pub(crate) name: String,
    pub(crate) family: String,
    /// Outputs that are compared.
    pub(crate) compare: Vec<(String, Tolerance)>,
    /// The share of values that may be further away.
    pub(crate) may_differ: f64,
    pub(crate) meta: Map<String, Value>,
}

/// Why a case, or a part of it, gave no outputs.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Something is wrong: with the engine, or with the folder.
    Failed(String),
    /// A file that the case is about is not here.
    Skipped(String),
    /// It needs what is not built.
    Refused(String),
}

impl Stop {
    pub(crate) fn failed(error: impl Display) -> Stop {
        Stop::Failed(error.to_string())
    }
}

/// The longest JSON file that is read.
const MAX_JSON: u64 = 256 << 20;
/// Folders in folders that are looked through for cases.
const MAX_DEPTH: usize = 8;

/// The case folders in `path`, which may be one itself, sorted by path.
pub(crate) fn find(path: &Path) -> Vec<PathBuf> {
    fn walk(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) {
        if dir.join("meta.json").is_file() {
            return found.push(dir.to_owned());
        }
        let Ok(items) = std::fs::read_dir(dir) else { return };
        let mut dirs: Vec<PathBuf> = items.flatten().map(|item| item.path()).filter(|path| path.is_dir()).collect();
        dirs.sort();
        dirs.iter().filter(|_| depth > 0).for_each(|dir| walk(dir, depth - 1, found));
    }
    let mut found = Vec::new();
    walk(path, MAX_DEPTH, &mut found);
    found
}

/// What a case folder is called.
pub(crate) fn name(dir: &Path) -> String {
    let full = std::fs::canonicalize(dir);
    let full = full.as_deref().unwrap_or(dir);
    full.file_name().map_or_else(|| "case".into(), |name| name.to_string_lossy().into_owned())
}

impl Case {
    /// Reads and checks `meta.json`.
    pub(crate) fn read(dir: &Path) -> Result<Case, Stop> {
        let meta: Map<String, Value> = read(&dir.join("meta.json"))?;
        let wrong = |what: String| Stop::Failed(format!("meta.json: {what}"));
        let family = meta.get("family").and_then(Value::as_str).ok_or_else(|| wrong("no family".into()))?.to_owned();
        let compare = match meta.get("compare") {
            None => Vec::new(),
            Some(Value::Object(map)) => {
                let one = |(name, value): (&String, &Value)| match serde_json::from_value::<Tolerance>(value.clone()) {
                    Ok(tolerance) if tolerance.is_sound() => Ok((name.clone(), tolerance)),
                    Ok(_) => Err(wrong(format!("compare.{name} is {value}, expected numbers from 0"))),
                    Err(error) => Err(wrong(format!("compare.{name}: {error}"))),
                };
                map.iter().map(one).collect::<Result<_, _>>()?
            }
            Some(_) => return Err(wrong("compare is not an object".into())),
        };
        let may_differ = match meta.get("may_differ_fraction") {
            None => 0.0,
            Some(value) => (value.as_f64().filter(|f| (0.0..1.0).contains(f)))
                .ok_or_else(|| wrong(format!("may_differ_fraction is {value}, expected a share from 0 to 1")))?,
        };
        Ok(Case { dir: dir.to_owned(), name: name(dir), family, compare, may_differ, meta })
    }

    /// Its `inputs.json`.
    pub(crate) fn inputs<T: DeserializeOwned>(&self) -> Result<T, Stop> {
        read(&self.dir.join("inputs.json"))
    }
}

/// Reads a JSON file of bounded size.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Stop> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| Stop::Failed(format!("{name}: {e}")))?;
    file.take(MAX_JSON + 1).read_to_end(&mut bytes).map_err(|e| Stop::Failed(format!("{name}: {e}")))?;
    if bytes.len() as u64 > MAX_JSON {
        return Err(Stop::Failed(format!("{name} has more than {MAX_JSON} bytes")));
    }
    serde_json::from_slice(&bytes).map_err(|e| Stop::Failed(format!("{name}: {e}")))
}

impl Stop {
    pub(crate) fn words(&self) -> &str {
        let (Stop::Failed(words) | Stop::Skipped(words) | Stop::Refused(words)) = self;
        words
    }
}
