//! What all handlers share.

use crate::metrics::Metrics;
use crate::options::Options;
use crate::shelf::Shelf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The server's state.
pub(crate) struct App {
    pub(crate) shelf: Shelf,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) limits: Limits,
    pub(crate) log_prompts: bool,
    /// Whether the models that are opened at the start are open.
    ready: AtomicBool,
    /// Whether the server was asked to end.
    draining: AtomicBool,
}

/// Bounds of a request.
pub(crate) struct Limits {
    /// Bytes of a body.
    pub(crate) body: usize,
    /// Until a body is there.
    pub(crate) read: Duration,
    /// Until an answer is there.
    pub(crate) answer: Duration,
}

impl App {
    pub(crate) fn new(shelf: Shelf, metrics: Arc<Metrics>, options: &Options) -> App {
        let limits = Limits { body: options.max_body, read: options.read_timeout, answer: options.timeout };
        let (ready, draining) = (AtomicBool::new(false), AtomicBool::new(false));
        App { shelf, metrics, limits, log_prompts: options.log_prompts, ready, draining }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed) && !self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn set_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}

/// The current time in seconds since 1970.
pub(crate) fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// A fresh id: the prefix and 32 hexadecimal digits.
pub(crate) fn fresh_id(prefix: &str) -> String {
    format!("{prefix}{}", uuid::Uuid::new_v4().simple())
}

/// What answers call this build.
pub(crate) const FINGERPRINT: &str = concat!("lattice-", env!("CARGO_PKG_VERSION"));
