//! What is in the cache, and is it whole? One folder a model, readable and fillable by hand; a record that we leave in
//! it makes the next look cheap, and its absence (somebody copied the files) only means that we look closer.

use crate::names::{self, Repo, Spec};
use crate::{Entry, Event, HubError, Place, Progress, disk};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// The record's file name.
pub(crate) const RECORD: &str = ".lattice.json";
/// The file that stands for the shards it lists.
pub(crate) const INDEX: &str = "model.safetensors.index.json";
/// Where a fetch keeps what is not part of the model.
pub(crate) const SCRATCH: &str = ".fetch";
/// The source of files that we did not fetch.
pub(crate) const BY_HAND: &str = "put there by hand";
const LOCKS: &str = ".locks";

pub(crate) const MAX_JSON: u64 = 64 << 20;
const MAX_SHARDS: usize = 4096;
const MAX_WALK: usize = 100_000;

/// What a folder of the cache is for.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) entry: Option<&'static Entry>,
    pub(crate) repo: Repo,
    pub(crate) folder: PathBuf,
}

/// How much of a model is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// All of it.
    Complete,
    /// Some of it: a download broke off or files are missing.
    Partial,
    /// Nothing.
    Absent,
}

/// What we know of a complete folder, written when it became so.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) repo: String,
    pub(crate) revision: String,
    /// The commit that the revision stood for.
    #[serde(default)]
    pub(crate) commit: Option<String>,
    pub(crate) source: String,
    pub(crate) files: BTreeMap<String, Recorded>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Recorded {
    pub(crate) bytes: u64,
    #[serde(default)]
    pub(crate) sha256: Option<String>,
}

impl Target {
    pub(crate) fn new(cache: &Path, spec: Spec) -> Target {
        match spec {
            Spec::Known(entry) => Target {
                name: entry.name.into(),
                entry: Some(entry),
                repo: Repo { id: entry.hub.into(), revision: entry.revision.into(), file: None },
                folder: cache.join(entry.name),
            },
            Spec::Repo(repo) => Target { name: repo.name(), entry: None, folder: cache.join(repo.folder()), repo },
            Spec::Local(_) => unreachable!("a local path has no folder in the cache"),
        }
    }

    /// How a person puts this model in place; `endpoint` is the Hub's address.
    pub(crate) fn place(&self, endpoint: &str) -> Place {
        let files = match (self.entry, &self.repo.file) {
            (Some(entry), _) => entry
                .files
                .iter()
                .filter(|f| f.required)
                .map(|f| if f.path == INDEX { format!("{INDEX} and the files it names") } else { f.path.to_owned() })
                .collect(),
            (None, Some(file)) => vec![file.clone()],
            (None, None) => vec![
                "config.json".into(),
                "tokenizer.json (or the tokenizer files that the model has instead)".into(),
                format!("model.safetensors (or {INDEX} and the files it names)"),
                "modules.json, *_Pooling/config.json and the like, if it is an embedder that has them".into(),
            ],
        };
        let wheels = self.entry.and_then(|e| e.package).map_or(&[][..], |p| p.wheels);
        Place {
            folder: self.folder.clone(),
            files,
            page: format!("{endpoint}/{}/tree/{}", self.repo.id, self.repo.revision),
            wheels: wheels.iter().map(|(spec, _)| (*spec).to_owned()).collect(),
        }
    }

    /// The record, whatever became of the files.
    fn written(&self) -> Option<Record> {
        let bytes = disk::read_bounded(&self.folder.join(RECORD), MAX_JSON).ok()?;
        let record: Record = serde_json::from_slice(&bytes).ok()?;
        (record.repo == self.repo.id && record.revision == self.repo.revision).then_some(record)
    }

    /// The record, if it is there and every file it names still is, in its size.
    pub(crate) fn record(&self) -> Option<Record> {
        let record = self.written()?;
        let whole = !record.files.is_empty()
            && self.repo.file.as_ref().is_none_or(|f| record.files.contains_key(f))
            && record.files.iter().all(|(name, file)| {
                names::check_path(name).is_ok() && size(&names::inside(&self.folder, name)) == Some(file.bytes)
            });
        whole.then_some(record)
    }

    /// The files of a folder that holds, without a record of our own fetching, all that the model needs: somebody filled it.
    pub(crate) fn filled_by_hand(&self) -> Option<Vec<String>> {
        if self.written().is_some_and(|r| r.source != BY_HAND) {
            return None;
        }
        let has = |name: &str| size(&names::inside(&self.folder, name)).is_some_and(|n| n > 0);
        if let Some(file) = &self.repo.file {
            return has(file).then(|| vec![file.clone()]);
        }
        let Some(entry) = self.entry else { return self.looks_whole(&has) };
        if let Some(package) = entry.package
            && package.files.iter().all(|f| size(&names::inside(&self.folder, f.path)) == Some(f.bytes))
        {
            return Some(package.files.iter().map(|f| f.path.to_owned()).collect());
        }
        if !entry.files.iter().all(|f| !f.required || has(f.path)) {
            return None;
        }
        let mut files: Vec<String> = entry.files.iter().filter(|f| has(f.path)).map(|f| f.path.to_owned()).collect();
        if files.iter().any(|f| f == INDEX) {
            files.extend(shards(&self.folder).ok()?);
        }
        files.iter().all(|f| has(f)).then_some(files)
    }

    /// The same for a repository of which we have no list.
    fn looks_whole(&self, has: &dyn Fn(&str) -> bool) -> Option<Vec<String>> {
        if let Some(gguf) = only_gguf(&self.folder) {
            return Some(vec![gguf]);
        }
        let mut files = vec!["config.json".to_owned()];
        if has(INDEX) {
            files.push(INDEX.into());
            files.extend(shards(&self.folder).ok()?);
        } else {
            files.push("model.safetensors".into());
        }
        let tokenizer: &[&[&str]] =
            &[&["tokenizer.json"], &["tokenizer.model"], &["vocab.txt"], &["vocab.json", "merges.txt"]];
        let tokenizer = tokenizer.iter().find(|names| names.iter().all(|n| has(n)))?;
        files.extend(tokenizer.iter().map(|n| (*n).to_owned()));
        files.iter().all(|f| has(f)).then_some(files)
    }

    pub(crate) fn state(&self) -> State {
        if self.record().is_some() || self.filled_by_hand().is_some() {
            State::Complete
        } else if fs::read_dir(&self.folder).is_ok_and(|mut d| d.next().is_some()) {
            State::Partial
        } else {
            State::Absent
        }
    }

    /// The checksum that the catalog pins `file` to.
    pub(crate) fn pinned(&self, file: &str) -> Option<&'static str> {
        let entry = self.entry?;
        let hub = entry.files.iter().find(|f| f.path == file).and_then(|f| f.sha256);
        hub.or_else(|| entry.package?.files.iter().find(|f| f.path == file).map(|f| f.sha256))
    }

    /// Leaves the record.
    pub(crate) fn write_record(&self, record: &Record) -> Result<(), HubError> {
        let text = serde_json::to_vec_pretty(record).expect("a record has only text and numbers");
        disk::write_atomic(&self.folder.join(RECORD), &text)
    }

    /// Deletes what unfinished fetches left. The lock must be held.
    pub(crate) fn sweep(&self) {
        let _ = fs::remove_dir_all(self.folder.join(SCRATCH));
        for path in walk(&self.folder) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.ends_with(".part") || name.ends_with(".part.etag") {
                let _ = fs::remove_file(&path);
            }
        }
    }

    /// Waits until no other process fetches or removes this model. The system lets go of the lock with its process.
    pub(crate) fn lock(&self, progress: &mut dyn Progress) -> Result<File, HubError> {
        let cache = self.folder.parent().unwrap_or(&self.folder);
        disk::create_dir(&cache.join(LOCKS))?;
        let path = cache.join(LOCKS).join(self.folder.file_name().unwrap_or_default());
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|e| HubError::io("write", &path, e))?;
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => progress.on(&Event::Waiting { lock: &path }),
            Err(TryLockError::Error(error)) => return Err(HubError::Lock { path, error }),
        }
        match file.lock() {
            Ok(()) => Ok(file),
            Err(error) => Err(HubError::Lock { path, error }),
        }
    }
}

/// What to open of a complete folder: the folder, or the one GGUF file that is all of its weights.
pub(crate) fn weights_of(folder: &Path) -> PathBuf {
    let safetensors = folder.join("model.safetensors").exists() || folder.join(INDEX).exists();
    match only_gguf(folder) {
        Some(file) if !safetensors => folder.join(file),
        _ => folder.to_owned(),
    }
}

/// The name of the GGUF file of a folder that has exactly one (the projector of a vision model aside).
fn only_gguf(folder: &Path) -> Option<String> {
    let mut found = fs::read_dir(folder)
        .ok()?
        .take(MAX_WALK)
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|n| n.ends_with(".gguf") && !n.starts_with("mmproj"));
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// The shards that the index in `folder` names, each once, in order.
pub(crate) fn shards(folder: &Path) -> Result<Vec<String>, HubError> {
    let path = folder.join(INDEX);
    let bytes = disk::read_bounded(&path, MAX_JSON).map_err(|e| HubError::io("read", &path, e))?;
    parse_shards(&bytes, &path)
}

fn parse_shards(bytes: &[u8], path: &Path) -> Result<Vec<String>, HubError> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let index: Index = serde_json::from_slice(bytes)
        .map_err(|e| HubError::io("understand", path, io::Error::new(io::ErrorKind::InvalidData, e)))?;
    let mut shards: Vec<String> = index.weight_map.into_values().collect();
    shards.sort();
    shards.dedup();
    for name in &shards {
        let problem = match names::check_path(name) {
            Err(problem) => problem,
            Ok(()) if !name.ends_with(".safetensors") => "is not a .safetensors file",
            Ok(()) => continue,
        };
        return Err(HubError::HostileName { origin: path.display().to_string(), name: name.clone(), problem });
    }
    if shards.is_empty() || shards.len() > MAX_SHARDS {
        let error = io::Error::new(io::ErrorKind::InvalidData, format!("it names {} shards", shards.len()));
        return Err(HubError::io("use", path, error));
    }
    Ok(shards)
}

/// Size of a file, links followed; `None` if it is none.
pub(crate) fn size(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|m| m.len())
}

/// All files under `folder`; links to folders are not followed, and the count is bounded.
pub(crate) fn walk(folder: &Path) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for item in fs::read_dir(&folder).into_iter().flatten().flatten() {
            match item.file_type() {
                Ok(t) if t.is_dir() => folders.push(item.path()),
                Ok(_) => files.push(item.path()),
                Err(_) => {}
            }
            if files.len() + folders.len() > MAX_WALK {
                return files;
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn target(cache: &Path, text: &str) -> Target {
        Target::new(cache, Spec::parse(text).unwrap())
    }

    fn fill(folder: &Path, files: &[&str]) {
        for file in files {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
    }

    #[test]
    fn a_folder_filled_by_hand_is_whole_when_nothing_needed_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let bge = target(dir.path(), "bge-small-en-v1.5");
        assert_eq!(bge.state(), State::Absent);
        fill(&bge.folder, &["config.json", "tokenizer.json", "modules.json", "model.safetensors"]);
        assert_eq!(bge.state(), State::Partial);
        fill(&bge.folder, &["1_Pooling/config.json"]);
        assert_eq!(bge.state(), State::Complete);
        fs::write(bge.folder.join("model.safetensors"), "").unwrap();
        assert_eq!(bge.state(), State::Partial);

        let any = target(dir.path(), "org/name");
        fill(&any.folder, &["config.json", "vocab.txt"]);
        assert_eq!(any.state(), State::Partial);
        fill(&any.folder, &["model.safetensors"]);
        assert_eq!(any.state(), State::Complete);
        assert_eq!(weights_of(&any.folder), any.folder);

        let gguf = target(dir.path(), "org/other");
        fill(&gguf.folder, &["m.Q4_0.gguf", "mmproj-m.gguf"]);
        assert_eq!(gguf.state(), State::Complete);
        assert_eq!(weights_of(&gguf.folder), gguf.folder.join("m.Q4_0.gguf"));
        fill(&gguf.folder, &["n.Q4_0.gguf"]);
        assert_eq!(gguf.state(), State::Partial);
        let one = target(dir.path(), "org/other/n.Q4_0.gguf");
        assert_eq!(one.state(), State::Absent);
        fill(&one.folder, &["n.Q4_0.gguf"]);
        assert_eq!(one.state(), State::Complete);
    }

    #[test]
    fn an_index_needs_its_shards() {
        let dir = tempfile::tempdir().unwrap();
        let t = target(dir.path(), "qwen3-embedding-4b");
        fill(&t.folder, &["config.json", "tokenizer.json", "modules.json", "1_Pooling/config.json"]);
        fs::write(
            t.folder.join(INDEX),
            r#"{"weight_map": {"a": "s1.safetensors", "b": "s2.safetensors", "c": "s1.safetensors"}}"#,
        )
        .unwrap();
        fill(&t.folder, &["s1.safetensors"]);
        assert_eq!(t.state(), State::Partial);
        fill(&t.folder, &["s2.safetensors"]);
        assert_eq!(t.state(), State::Complete);
    }

    #[test]
    fn an_index_cannot_name_a_file_outside() {
        for name in ["../x.safetensors", "/etc/x.safetensors", "a\\\\x.safetensors", "config.json"] {
            let text = format!(r#"{{"weight_map": {{"a": "{name}"}}}}"#);
            let error = parse_shards(text.as_bytes(), Path::new(INDEX)).unwrap_err();
            assert!(matches!(error, HubError::HostileName { .. }), "{name}: {error}");
        }
    }

    #[test]
    fn a_record_vouches_only_for_what_is_still_there() {
        let dir = tempfile::tempdir().unwrap();
        let t = target(dir.path(), "org/name@v1");
        fill(&t.folder, &["weird.bin", "weird.bin.part", ".fetch/x"]);
        let mut record = Record { repo: "org/name".into(), revision: "v1".into(), ..Default::default() };
        record.files.insert("weird.bin".into(), Recorded { bytes: 1, sha256: None });
        t.write_record(&record).unwrap();
        t.sweep();
        assert_eq!(t.state(), State::Complete);
        assert_eq!(walk(&t.folder).len(), 2, "leftovers are swept away");
        fs::write(t.folder.join("weird.bin"), "xx").unwrap();
        assert_eq!(t.state(), State::Partial);
        // What we fetched and somebody cut short is not taken for a model that somebody put there.
        fill(&t.folder, &["config.json", "vocab.txt", "model.safetensors"]);
        assert_eq!(t.state(), State::Partial);
        record.files = BTreeMap::from([("../../etc/hostname".to_owned(), Recorded::default())]);
        t.write_record(&record).unwrap();
        assert!(t.record().is_none());
    }

    proptest! {
        #[test]
        fn no_index_makes_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let _ = parse_shards(&bytes, Path::new(INDEX));
        }
    }
}
