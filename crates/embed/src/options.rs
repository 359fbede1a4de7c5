//! What a caller may ask for when it opens a model and when it embeds.

use crate::error::EmbedError;
use inference::Pooling;
use ops::{Cpu, CpuOptions, Ops};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How to open a model.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// What computes; `None` is the CPU with all its cores.
    pub ops: Option<Arc<dyn Ops>>,
    /// How to pool where the model's folder does not say.
    pub pooling: Option<Pooling>,
}

impl OpenOptions {
    pub(crate) fn executor(&self) -> Result<Arc<dyn Ops>, EmbedError> {
        Ok(match &self.ops {
            Some(ops) => ops.clone(),
            None => Arc::new(Cpu::new(&CpuOptions::default())?),
        })
    }
}

/// How to embed texts.
#[derive(Clone, Debug, Default)]
pub struct EmbedOptions {
    /// What is put before each text.
    pub prompt: Prompt,
    /// Keep the first so many features (Matryoshka models), and make the length 1 again if the model does.
    pub dimensions: Option<usize>,
    /// Cut texts that are longer than the window, and say so, instead of refusing them.
    pub truncate: bool,
    /// Make the length 1, or not, whatever the model does.
    pub normalize: Option<bool>,
    /// Stops the call.
    pub cancel: Cancel,
}

/// What is put before each text: retrieval models want to know which side of the search it is on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Prompt {
    /// The model's default prompt, if it has one.
    #[default]
    Default,
    /// Nothing.
    None,
    /// The model's prompt of this name: `query`, `passage`, ….
    Name(String),
    /// This text.
    Text(String),
}

/// How to score passages.
#[derive(Clone, Debug, Default)]
pub struct RerankOptions {
    /// Cut pairs that are longer than the window, and say so, instead of refusing them.
    pub truncate: bool,
    /// Stops the call.
    pub cancel: Cancel,
}

/// A switch that stops calls at the next forward pass; copies share it.
#[derive(Clone, Debug, Default)]
pub struct Cancel {
    own: Arc<AtomicBool>,
    outer: Option<Arc<AtomicBool>>,
}

impl Cancel {
    /// Stops the calls that hold a copy.
    pub fn cancel(&self) {
        self.own.store(true, Ordering::Relaxed);
    }

    /// Whether it was switched.
    pub fn is_cancelled(&self) -> bool {
        self.own.load(Ordering::Relaxed) || self.outer.as_ref().is_some_and(|outer| outer.load(Ordering::Relaxed))
    }

    /// A switch of its own that `outer` switches too.
    pub(crate) fn linked(outer: &Cancel) -> Cancel {
        Cancel { own: Arc::default(), outer: Some(outer.own.clone()) }
    }

    pub(crate) fn check(&self) -> Result<(), EmbedError> {
        if self.is_cancelled() { Err(EmbedError::Cancelled) } else { Ok(()) }
    }
}
