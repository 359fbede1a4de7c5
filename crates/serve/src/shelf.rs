//! Several models in one process: found by name, opened at their first request (once, however many ask), closed when
//! nobody asked for a while or another one needs their memory.

use crate::error::{Fault, ServeError};
use crate::metrics::Metrics;
use crate::options::{ModelSpec, Options};
use crate::speaker::Speaker;
use embed::{Embedder, OpenOptions, Reranker};
use hub::Kind;
use models::Config;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Semaphore};

/// An open model of one of the kinds. Requests hold it while they run, so it is closed after the last of them.
#[derive(Clone)]
pub(crate) enum Opened {
    Chat(Arc<Speaker>),
    Embedder(Arc<Turn<Embedder>>),
    Reranker(Arc<Turn<Reranker>>),
}

/// A model whose calls run one after another, each on all threads.
pub(crate) struct Turn<T> {
    pub(crate) name: String,
    pub(crate) model: Arc<T>,
    /// Who may run.
    pub(crate) turn: Arc<Semaphore>,
    /// Who may run or wait.
    pub(crate) queue: Arc<Semaphore>,
}

impl Opened {
    /// Whether a request has it.
    fn is_used(&self) -> bool {
        1 < match self {
            Opened::Chat(model) => Arc::strong_count(model),
            Opened::Embedder(model) => Arc::strong_count(model),
            Opened::Reranker(model) => Arc::strong_count(model),
        }
    }
}

/// One of the served models.
pub(crate) struct Slot {
    pub(crate) spec: ModelSpec,
    pub(crate) kind: Kind,
    opened: Mutex<Option<Opened>>,
    /// Milliseconds after the start when it was last asked for.
    used: AtomicU64,
    /// Bytes that it takes when open; of its files before it was open once.
    bytes: AtomicU64,
}

/// The served models.
pub(crate) struct Shelf {
    slots: Vec<Slot>,
    options: Options,
    metrics: Arc<Metrics>,
    start: Instant,
    /// Held while room is made and a model opened.
    opening: Mutex<()>,
}

/// Seconds after which a request that found no memory may try again.
const MEMORY_RETRY: u64 = 10;

impl Shelf {
    pub(crate) fn new(options: &Options, metrics: Arc<Metrics>) -> Result<Shelf, ServeError> {
        let mut slots = Vec::new();
        for spec in &options.models {
            let kind = kind(spec)?;
            let bytes = AtomicU64::new(weight_bytes(&spec.located.path));
            metrics.loaded(&spec.name, false);
            slots.push(Slot { spec: spec.clone(), kind, opened: Mutex::new(None), used: AtomicU64::new(0), bytes });
        }
        Ok(Shelf { slots, options: options.clone(), metrics, start: Instant::now(), opening: Mutex::new(()) })
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The slot of a name; without one, the first of the kind.
    pub(crate) fn find(&self, name: Option<&str>, kinds: &[Kind]) -> Result<&Slot, Fault> {
        let served = || {
            let of_kind = self.slots.iter().filter(|slot| kinds.contains(&slot.kind));
            let names: Vec<&str> = of_kind.map(|slot| slot.spec.name.as_str()).collect();
            if names.is_empty() { "none of this kind".to_owned() } else { names.join(", ") }
        };
        let Some(name) = name else {
            let first = kinds.iter().find_map(|kind| self.slots.iter().find(|slot| slot.kind == *kind));
            return first.ok_or_else(|| Fault::no_model("", &served()));
        };
        let own = self.slots.iter().find(|slot| slot.spec.name == name);
        let slot = own.or_else(|| self.slots.iter().find(|slot| slot.spec.aliases.iter().any(|alias| alias == name)));
        let short: String = name.chars().take(100).collect();
        let slot = slot.ok_or_else(|| Fault::no_model(&short, &served()))?;
        if !kinds.contains(&slot.kind) {
            let message = format!("{short} is {}: served for this are {}", of_kind(slot.kind), served());
            return Err(Fault::field("model", message).with_code("model_not_supported"));
        }
        Ok(slot)
    }

    /// The language model of a name.
    pub(crate) async fn chat(&self, name: Option<&str>) -> Result<Arc<Speaker>, Fault> {
        match self.open(self.find(name, &[Kind::Chat])?).await? {
            Opened::Chat(model) => Ok(model),
            _ => Err(Fault::internal("a language model that is none")),
        }
    }

    /// Opens a model if it is not open.
    pub(crate) async fn open(&self, slot: &Slot) -> Result<Opened, Fault> {
        slot.used.store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
        let mut opened = slot.opened.lock().await;
        if let Some(opened) = &*opened {
            return Ok(opened.clone());
        }
        let _opening = self.opening.lock().await;
        self.make_room(slot).await?;
        let start = Instant::now();
        let (spec, kind, options, metrics) = (slot.spec.clone(), slot.kind, self.options.clone(), self.metrics.clone());
        let work = tokio::task::spawn_blocking(move || open(&spec, kind, &options, metrics));
        let result = work.await.unwrap_or_else(|error| Err(format!("opening it failed: {error}")));
        let (model, bytes) = result.map_err(|reason| {
            tracing::error!(model = slot.spec.name, reason, "a model cannot be opened");
            Fault::internal(format!("{}: {reason}", slot.spec.name)).with_code("model_not_loaded")
        })?;
        // Only now is it known what its caches take.
        slot.bytes.store(bytes, Ordering::Relaxed);
        self.make_room(slot).await?;
        self.metrics.loaded(&slot.spec.name, true);
        tracing::info!(model = slot.spec.name, bytes, seconds = start.elapsed().as_secs_f64(), "opened");
        *opened = Some(model.clone());
        Ok(model)
    }

    /// Closes models until there is room for one more.
    async fn make_room(&self, wanted: &Slot) -> Result<(), Fault> {
        let Some(budget) = self.options.memory else { return Ok(()) };
        let need = wanted.bytes.load(Ordering::Relaxed);
        loop {
            let (mut taken, mut oldest) = (0, None::<(&Slot, u64)>);
            for slot in self.slots.iter().filter(|slot| !std::ptr::eq(*slot, wanted)) {
                // One that is being opened waits for this very lock: it takes nothing yet.
                let Ok(opened) = slot.opened.try_lock() else { continue };
                let Some(model) = &*opened else { continue };
                taken += slot.bytes.load(Ordering::Relaxed);
                let used = slot.used.load(Ordering::Relaxed);
                if !model.is_used() && oldest.is_none_or(|(_, other)| used < other) {
                    oldest = Some((slot, used));
                }
            }
            if taken + need <= budget {
                return Ok(());
            }
            let Some((slot, _)) = oldest else {
                let name = &wanted.spec.name;
                let message = format!(
                    "{name} needs {need} bytes; {taken} of {budget} are taken by models that are in use: try again later, or raise the budget (--memory)"
                );
                return Err(Fault::unavailable(message, MEMORY_RETRY).with_code("out_of_memory"));
            };
            self.close(slot, "another model needs its memory").await;
            tokio::task::yield_now().await;
        }
    }

    async fn close(&self, slot: &Slot, why: &str) {
        // Whoever holds it is about to use it, or waits for the room that is being made.
        let Ok(mut opened) = slot.opened.try_lock() else { return };
        if opened.as_ref().is_some_and(|model| !model.is_used()) {
            let model = opened.take();
            // Giving memory back takes a while.
            let _ = tokio::task::spawn_blocking(move || drop(model)).await;
            self.metrics.loaded(&slot.spec.name, false);
            tracing::info!(model = slot.spec.name, why, "closed");
        }
    }

    /// Closes what nobody asked for, for ever.
    pub(crate) async fn close_idle(&self) {
        let Some(idle) = self.options.idle else { return };
        let pause = (idle / 4).clamp(Duration::from_millis(50), Duration::from_secs(30));
        loop {
            tokio::time::sleep(pause).await;
            for slot in &self.slots {
                let used = Duration::from_millis(slot.used.load(Ordering::Relaxed));
                if self.start.elapsed().saturating_sub(used) >= idle && slot.is_open() {
                    self.close(slot, "nobody asked for it").await;
                }
            }
        }
    }
}

impl Slot {
    /// Whether it is in memory; one that is being opened is not.
    pub(crate) fn is_open(&self) -> bool {
        self.opened.try_lock().is_ok_and(|opened| opened.is_some())
    }

    /// Bytes that it takes when open; of its files before it was open once.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// What kind of model it is, in answers.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Chat => "chat",
            Kind::Embedder => "embedding",
            _ => "rerank",
        }
    }

    /// All names that it answers to.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.spec.name).chain(&self.spec.aliases).map(String::as_str)
    }
}

fn of_kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Chat => "a language model",
        Kind::Embedder => "an embedder",
        _ => "a reranker",
    }
}

/// What kind of model lies there, as its files say.
fn kind(spec: &ModelSpec) -> Result<Kind, ServeError> {
    if let Some(entry) = spec.located.entry {
        return Ok(entry.kind);
    }
    let path = &spec.located.path;
    if !path.is_dir() {
        return Ok(Kind::Chat);
    }
    let config = Config::read(path).map_err(|error| ServeError::Kind {
        name: spec.name.clone(),
        path: path.clone(),
        reason: error.to_string(),
    })?;
    Ok(match config.architecture() {
        _ if config.classifies() => Kind::Reranker,
        _ if path.join("modules.json").exists() => Kind::Embedder,
        name if name.ends_with("ForCausalLM") || name.ends_with("ForConditionalGeneration") => Kind::Chat,
        _ => Kind::Embedder,
    })
}

/// Bytes of a model's weights on disk.
fn weight_bytes(path: &Path) -> u64 {
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.len());
    match std::fs::read_dir(path) {
        Err(_) => size(path),
        Ok(items) => items
            .flatten()
            .map(|item| item.path())
            .filter(|path| path.extension().is_some_and(|e| e == "safetensors" || e == "gguf"))
            .map(|path| size(&path))
            .sum(),
    }
}

/// Opens a model; how many bytes it takes.
fn open(spec: &ModelSpec, kind: Kind, options: &Options, metrics: Arc<Metrics>) -> Result<(Opened, u64), String> {
    let located = &spec.located;
    let weights = weight_bytes(&located.path);
    let open = OpenOptions { ops: Some(options.ops.clone()), pooling: None };
    match kind {
        Kind::Chat => {
            let speaker = Speaker::open(spec, options, metrics)?;
            let bytes = weights + speaker.cache_bytes();
            Ok((Opened::Chat(Arc::new(speaker)), bytes))
        }
        Kind::Embedder => {
            let model = Embedder::open(located, &open).map_err(|e| e.to_string())?;
            Ok((Opened::Embedder(Arc::new(Turn::new(&spec.name, model, options))), weights))
        }
        Kind::Reranker => {
            let model = Reranker::open(located, &open).map_err(|e| e.to_string())?;
            Ok((Opened::Reranker(Arc::new(Turn::new(&spec.name, model, options))), weights))
        }
        other => Err(format!("a model of kind {other:?} cannot be served")),
    }
}

impl<T: Send + Sync + 'static> Turn<T> {
    fn new(name: &str, model: T, options: &Options) -> Turn<T> {
        let queue = Arc::new(Semaphore::new(1 + options.max_queue));
        Turn { name: name.to_owned(), model: Arc::new(model), turn: Arc::new(Semaphore::new(1)), queue }
    }

    /// Runs a call in its turn, on a thread that may block.
    pub(crate) async fn run<R: Send + 'static>(&self, work: impl FnOnce(&T) -> R + Send + 'static) -> Result<R, Fault> {
        let place = self.queue.clone().try_acquire_owned();
        let place = place.map_err(|_| Fault::busy(1))?;
        let turn = self.turn.clone().acquire_owned().await.map_err(|_| Fault::internal("the model is closed"))?;
        let model = self.model.clone();
        let work = tokio::task::spawn_blocking(move || {
            let _held = (place, turn);
            work(&model)
        });
        work.await.map_err(|error| {
            tracing::error!(model = self.name, %error, "a call failed");
            Fault::internal("the model failed: an internal error")
        })
    }
}
