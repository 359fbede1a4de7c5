//! Which names do we let near the disk? Those of models as people type them, and those of files as a hub lists them:
//! the latter are untrusted, and one that could leave its folder or mean something special to a system is refused.

use crate::{Entry, HubError};
use std::path::{Path, PathBuf};

const MAX_PATH: usize = 512;
const MAX_DEPTH: usize = 8;

/// What a person meant.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Spec {
    /// A file or folder of their own.
    Local(PathBuf),
    /// A row of the catalog.
    Known(&'static Entry),
    /// Anything else at the Hub.
    Repo(Repo),
}

/// A repository at the Hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repo {
    /// `org/name`.
    pub(crate) id: String,
    /// Branch, tag or commit.
    pub(crate) revision: String,
    /// The one file that is asked for, if only one is.
    pub(crate) file: Option<String>,
}

impl Spec {
    /// Reads `text`: what looks like a path is one; then the catalog; then what exists on disk; then the Hub.
    pub(crate) fn parse(text: &str) -> Result<Spec, HubError> {
        let unknown = || HubError::Unknown { spec: text.to_owned(), similar: similar(text) };
        let path = expand_home(text);
        if looks_like_path(text) || (is_weights(text) && path.exists()) {
            return if path.exists() { Ok(Spec::Local(path)) } else { Err(HubError::NoSuchPath { path }) };
        }
        let (name, revision) = match text.split_once('@') {
            Some((name, revision)) => (name, Some(revision)),
            None => (text, None),
        };
        if let Some(entry) = Entry::find(name)
            && revision.is_none_or(|r| r == entry.revision)
        {
            return Ok(Spec::Known(entry));
        }
        if revision.is_none() && path.exists() {
            return Ok(Spec::Local(path));
        }
        let revision = revision.unwrap_or("main");
        // A catalog name at another revision is that repository.
        let name = Entry::find(name).map_or(name, |e| e.hub);
        let mut parts = name.splitn(3, '/');
        let (Some(org), Some(repo)) = (parts.next(), parts.next()) else { return Err(unknown()) };
        let file = parts.next();
        let sound = is_repo_part(org)
            && is_repo_part(repo)
            && is_revision(revision)
            && file.is_none_or(|f| f.ends_with(".gguf") && check_path(f).is_ok());
        if !sound {
            return Err(unknown());
        }
        Ok(Spec::Repo(Repo { id: format!("{org}/{repo}"), revision: revision.into(), file: file.map(Into::into) }))
    }
}

impl Repo {
    /// The folder in the cache: the name with `--` for `/`.
    pub(crate) fn folder(&self) -> String {
        self.name().replace('/', "--")
    }

    /// How a person would ask for it.
    pub(crate) fn name(&self) -> String {
        let file = self.file.as_ref().map_or(String::new(), |f| format!("/{f}"));
        let revision = if self.revision == "main" { String::new() } else { format!("@{}", self.revision) };
        format!("{}{file}{revision}", self.id)
    }
}

fn looks_like_path(text: &str) -> bool {
    text.starts_with(['/', '.', '~', '\\'])
        || text.ends_with('/')
        || text.contains('\\')
        || text.get(1..3) == Some(":/")
}

/// Whether the name is that of a weights file that can stand alone.
pub(crate) fn is_weights(name: &str) -> bool {
    name.ends_with(".gguf") || name.ends_with(".safetensors")
}

fn expand_home(text: &str) -> PathBuf {
    match (text.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(text),
    }
}

/// The Hub's own rule for the halves of `org/name`.
fn is_repo_part(part: &str) -> bool {
    !part.is_empty()
        && part.len() <= 96
        && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && !part.starts_with(['-', '.'])
        && !part.ends_with(['-', '.'])
        && !part.contains("--")
        && !part.contains("..")
}

fn is_revision(revision: &str) -> bool {
    check_path(revision).is_ok() && revision.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b))
}

/// Names from the catalog that `text` may have meant, closest first.
fn similar(text: &str) -> Vec<&'static str> {
    let text = text.to_ascii_lowercase();
    let text = text.rsplit('/').next().unwrap_or(&text);
    let mut scored: Vec<(usize, &str)> = crate::CATALOG
        .iter()
        .map(|e| (if e.name.contains(text) && text.len() > 2 { 0 } else { distance(text, e.name) }, e.name))
        .filter(|(d, name)| *d <= name.len() * 2 / 5)
        .collect();
    scored.sort();
    scored.into_iter().map(|(_, name)| name).take(3).collect()
}

/// Levenshtein distance in bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().take(256).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let next = (diagonal + usize::from(x != y)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = row[j + 1];
            row[j + 1] = next;
        }
    }
    row[b.len()]
}

/// Whether `path`, with `/`, stays in its folder and is an ordinary name on every system; else why not.
pub(crate) fn check_path(path: &str) -> Result<(), &'static str> {
    if path.is_empty() || path.len() > MAX_PATH {
        return Err("is empty or too long");
    }
    if path.chars().any(|c| c.is_control() || r#"\:*?"<>|"#.contains(c)) {
        return Err("has a character that some systems treat specially");
    }
    if path.split('/').count() > MAX_DEPTH {
        return Err("is nested too deeply");
    }
    for part in path.split('/') {
        if part.is_empty() || part == "." || part == ".." {
            return Err("could leave its folder");
        }
        if part.ends_with(['.', ' ']) || part.starts_with(' ') {
            return Err("begins or ends with a blank or a dot");
        }
        let stem = part.split('.').next().unwrap_or(part).trim_end().to_ascii_uppercase();
        let numbered = (stem.starts_with("COM") || stem.starts_with("LPT")) && stem.chars().count() == 4;
        if numbered && !stem.ends_with(|c: char| c.is_ascii_alphabetic())
            || ["CON", "PRN", "AUX", "NUL"].contains(&stem.as_str())
        {
            return Err("is a device on some systems");
        }
    }
    Ok(())
}

/// `path`, already checked, inside `folder`.
pub(crate) fn inside(folder: &Path, path: &str) -> PathBuf {
    debug_assert!(check_path(path).is_ok(), "{path} was not checked");
    path.split('/').fold(folder.to_owned(), |p, part| p.join(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn repo(text: &str) -> Option<(String, String, Option<String>)> {
        match Spec::parse(text) {
            Ok(Spec::Repo(r)) => Some((r.id, r.revision, r.file)),
            _ => None,
        }
    }

    #[test]
    fn what_people_type_is_understood() {
        let known = |text| matches!(Spec::parse(text), Ok(Spec::Known(_)));
        for text in
            ["all-minilm-l6-v2", "MiniLM", "sentence-transformers/all-MiniLM-L6-v2", "BAAI/bge-small-en-v1.5@main"]
        {
            assert!(known(text), "{text}");
        }
        assert_eq!(repo("org/name"), Some(("org/name".into(), "main".into(), None)));
        assert_eq!(repo("org/name@refs/pr/1"), Some(("org/name".into(), "refs/pr/1".into(), None)));
        assert_eq!(repo("org/name/a.Q4_0.gguf@v1"), Some(("org/name".into(), "v1".into(), Some("a.Q4_0.gguf".into()))));
        assert_eq!(repo("minilm@abc").map(|r| r.0), Some("sentence-transformers/all-MiniLM-L6-v2".into()));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        assert_eq!(Spec::parse(path).unwrap(), Spec::Local(dir.path().to_owned()));
    }

    #[test]
    fn what_is_not_a_model_is_refused_in_words() {
        for text in [
            "",
            "nonsense",
            "org/na..me",
            "org/name@../x",
            "org/name@",
            "a/b/c",
            "org/-x",
            "org/a--b",
            "ö/x",
            "org/name/../x.gguf",
        ] {
            assert!(matches!(Spec::parse(text), Err(HubError::Unknown { .. })), "{text:?}: {:?}", Spec::parse(text));
        }
        let error = Spec::parse("bge-smal-en").unwrap_err().to_string();
        assert!(error.contains("bge-small-en-v1.5"), "{error}");
        let error = Spec::parse("./no/such/folder").unwrap_err().to_string();
        assert!(error.contains("./no/such/folder"), "{error}");
    }

    #[test]
    fn folders_of_repositories_and_revisions_differ() {
        let folder = |text| match Spec::parse(text) {
            Ok(Spec::Repo(r)) => r.folder(),
            other => panic!("{other:?}"),
        };
        assert_eq!(folder("org/name"), "org--name");
        assert_eq!(folder("org/name@refs/pr/1"), "org--name@refs--pr--1");
        assert_eq!(folder("org/name/a.gguf@v1"), "org--name--a.gguf@v1");
    }

    #[test]
    fn hostile_file_names_are_refused() {
        for bad in [
            "",
            "..",
            "../x",
            "a/../b",
            "/etc/passwd",
            "a//b",
            "a/",
            "./a",
            "C:\\x",
            "a\\b",
            "c:x",
            "a\0b",
            "a\nb",
            "nul",
            "NUL.txt",
            "con.json",
            "com1.json",
            "LPT9",
            "x.",
            "x ",
            " x",
            "a/b/c/d/e/f/g/h/i",
        ] {
            assert!(check_path(bad).is_err(), "{bad:?}");
        }
        assert!(check_path(&"x".repeat(600)).is_err());
        for good in [
            "config.json",
            "1_Pooling/config.json",
            "model-00001-of-00002.safetensors",
            ".gitattributes",
            "console.json",
            "comb.txt",
        ] {
            assert_eq!(check_path(good), Ok(()), "{good:?}");
        }
    }

    proptest! {
        #[test]
        fn an_accepted_name_stays_in_its_folder(name in r"[a-zA-Z0-9./\\: ~\x00-\x20]{0,24}") {
            if check_path(&name).is_ok() {
                let path = inside(Path::new("/cache/model"), &name);
                prop_assert!(path.starts_with("/cache/model"));
                prop_assert!(path.components().all(|c| !matches!(c, std::path::Component::ParentDir)));
            }
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,64}") {
            let _ = Spec::parse(&text);
        }
    }
}
