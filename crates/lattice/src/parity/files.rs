//! Where are the real files that a case names by their SHA-256? In the case itself, in the folders of `--files`, in the
//! model cache.

use super::case::Stop;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Files by checksum. Each is hashed at most once, small ones first.
pub(crate) struct Files {
    folders: Vec<PathBuf>,
    hashes: RefCell<HashMap<PathBuf, Option<String>>>,
}

/// What tokenizers and weights are called.
const ENDINGS: [&str; 7] = ["jinja", "json", "model", "tiktoken", "txt", "gguf", "safetensors"];
/// Larger files are weights that no case is about.
const MAX_BYTES: u64 = 4 << 30;
const MAX_DEPTH: usize = 12;
/// Larger files hold no chat template.
const MAX_TEMPLATE_FILE: u64 = 16 << 20;

impl Files {
    /// Files below these folders; nothing is read yet.
    pub(crate) fn new(folders: Vec<PathBuf>) -> Files {
        Files { folders, hashes: RefCell::default() }
    }

    /// The file with this checksum, in `case` or in the folders.
    pub(crate) fn find(&self, case: &Path, sha256: &str) -> Result<PathBuf, Stop> {
        if sha256.len() != 64 || !sha256.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(Stop::Failed(format!("{sha256:?} is not a SHA-256 in hex")));
        }
        let mut files = Vec::new();
        for folder in std::iter::once(case).chain(self.folders.iter().map(PathBuf::as_path)) {
            walk(folder, MAX_DEPTH, &mut files);
        }
        files.sort();
        let found = files.into_iter().find(|(_, path)| self.hash(path).is_some_and(|h| h.eq_ignore_ascii_case(sha256)));
        found
            .map(|(_, path)| path)
            .ok_or_else(|| Stop::Skipped(format!("file SHA-256 {sha256} not found: name its folder with --files DIR")))
    }

    /// The chat template with this checksum: of a tokenizer_config.json, or a file of its own (chat_template.jinja).
    pub(crate) fn template(&self, sha256: &str) -> Result<String, Stop> {
        let mut files = Vec::new();
        self.folders.iter().for_each(|folder| walk(folder, MAX_DEPTH, &mut files));
        let is = |path: &Path, name: &str| path.file_name().is_some_and(|n| n == name);
        let mut templates = files.iter().filter(|(bytes, _)| *bytes <= MAX_TEMPLATE_FILE).filter_map(|(_, path)| {
            let text = || std::fs::read_to_string(path).ok();
            if is(path, "chat_template.jinja") {
                return text();
            }
            let config: Value =
                is(path, "tokenizer_config.json").then(text)?.and_then(|t| serde_json::from_str(&t).ok())?;
            config["chat_template"].as_str().map(str::to_owned)
        });
        let same = |text: &String| hex(Sha256::digest(text.as_bytes()).as_slice()).eq_ignore_ascii_case(sha256);
        templates.find(same).ok_or_else(|| {
            Stop::Skipped(format!("chat template SHA-256 {sha256} not found: name its folder with --files DIR"))
        })
    }

    fn hash(&self, path: &Path) -> Option<String> {
        let mut hashes = self.hashes.borrow_mut();
        hashes.entry(path.to_owned()).or_insert_with(|| hash(path).ok()).clone()
    }
}

/// Sizes and paths of the files that may be meant.
fn walk(dir: &Path, depth: usize, found: &mut Vec<(u64, PathBuf)>) {
    let Ok(items) = std::fs::read_dir(dir) else { return };
    for path in items.flatten().map(|item| item.path()) {
        let Ok(meta) = std::fs::metadata(&path) else { continue };
        if meta.is_dir() {
            if depth > 0 {
                walk(&path, depth - 1, found);
            }
        } else if meta.len() <= MAX_BYTES && path.extension().is_some_and(|e| ENDINGS.iter().any(|end| e == *end)) {
            found.push((meta.len(), path));
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hash(path: &Path) -> std::io::Result<String> {
    let (mut file, mut sha, mut buffer) = (File::open(path)?, Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(sha.finalize().as_slice())),
            n => sha.update(&buffer[..n]),
        }
    }
}
