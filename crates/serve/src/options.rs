//! What a server is started with.

use crate::error::ServeError;
use hub::Located;
use inference::EngineOptions;
use inference::sampling::SamplingParams;
use ops::Ops;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A model to be served.
#[derive(Clone, Debug)]
pub struct ModelSpec {
    /// The name that requests use.
    pub name: String,
    /// Further names.
    pub aliases: Vec<String>,
    /// Where it lies.
    pub located: Located,
}

impl ModelSpec {
    /// A model by what its user typed: that is its name (the file's or the folder's for a path), and the catalog's names
    /// of it are further ones.
    pub fn new(spec: &str, located: Located) -> ModelSpec {
        let path = std::path::Path::new(spec);
        let file = || path.file_name().map(|name| name.to_string_lossy().trim_end_matches(".gguf").to_owned());
        let is_path = located.entry.is_none() && located.commit.is_none() && path.exists();
        let name = if is_path { file().unwrap_or_else(|| spec.to_owned()) } else { spec.to_owned() };
        let mut aliases: Vec<String> = match located.entry {
            Some(entry) => [entry.name, entry.hub].iter().chain(entry.aliases).map(|s| (*s).to_owned()).collect(),
            None => Vec::new(),
        };
        aliases.retain(|alias| *alias != name);
        aliases.dedup();
        ModelSpec { name, aliases, located }
    }
}

/// A certificate chain and its key, both PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The chain, the server's own certificate first.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Goes over what a model recommends, before what a request says.
pub type Defaults = dyn Fn(SamplingParams) -> SamplingParams + Send + Sync;

/// How to serve.
#[derive(Clone)]
pub struct Options {
    /// What computes.
    pub ops: Arc<dyn Ops>,
    /// The models, the default one of each kind first.
    pub models: Vec<ModelSpec>,
    /// Address to listen on.
    pub host: String,
    /// Port to listen on; 0 takes a free one.
    pub port: u16,
    /// Any of these keys lets a request in; none lets everybody in.
    pub keys: Vec<String>,
    /// Origins whose pages may ask, `*` for all. Without any: all if there are keys, else pages of this machine.
    pub origins: Vec<String>,
    /// TLS, if wanted.
    pub tls: Option<TlsFiles>,
    /// The engine of each language model.
    pub engine: EngineOptions,
    /// What goes over the sampling that a model recommends.
    pub defaults: Arc<Defaults>,
    /// Requests that may wait for each model beside those that run.
    pub max_queue: usize,
    /// Largest body in bytes.
    pub max_body: usize,
    /// Longest time of a request, its answer included.
    pub timeout: Duration,
    /// Longest time until a request's head, and then its body, is there.
    pub read_timeout: Duration,
    /// Longest time that a client may take nothing of its answer.
    pub write_timeout: Duration,
    /// How long running requests may go on after the server was asked to end.
    pub drain: Duration,
    /// Whether models are opened at their first request, not at the start.
    pub lazy: bool,
    /// A model that nobody asked for this long is closed.
    pub idle: Option<Duration>,
    /// Most bytes that open models take together; the one that was not used for longest is closed first.
    pub memory: Option<u64>,
    /// Whether prompts and answers stand in the log.
    pub log_prompts: bool,
}

impl Options {
    /// The usual server of these models on 127.0.0.1:8080.
    pub fn new(ops: Arc<dyn Ops>, models: Vec<ModelSpec>) -> Options {
        Options {
            ops,
            models,
            host: "127.0.0.1".into(),
            port: 8080,
            keys: Vec::new(),
            origins: Vec::new(),
            tls: None,
            engine: EngineOptions::default(),
            defaults: Arc::new(|params| params),
            max_queue: 128,
            max_body: 16 << 20,
            timeout: Duration::from_secs(600),
            read_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
            drain: Duration::from_secs(30),
            lazy: false,
            idle: None,
            memory: None,
            log_prompts: false,
        }
    }

    /// # Errors
    /// Names that clash, keys and origins that could not be sent.
    pub(crate) fn check(&self) -> Result<(), ServeError> {
        if self.models.is_empty() {
            return Err(ServeError::NoModel);
        }
        for (at, model) in self.models.iter().enumerate() {
            if self.models[..at].iter().any(|other| other.name == model.name) {
                return Err(ServeError::SameName { name: model.name.clone() });
            }
        }
        let sound = |key: &String| !key.is_empty() && key.bytes().all(|b| b.is_ascii_graphic());
        if let Some(index) = self.keys.iter().position(|key| !sound(key)) {
            return Err(ServeError::Key { index });
        }
        let sound = |origin: &String| origin == "*" || origin.split_once("://").is_some_and(|(_, h)| !h.contains('/'));
        match self.origins.iter().find(|origin| !sound(origin)) {
            Some(origin) => Err(ServeError::Origin { origin: origin.clone() }),
            None => Ok(()),
        }
    }
}
