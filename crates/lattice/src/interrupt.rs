//! What does Ctrl-C do? It ends the command with status 130, unless an answer is being given that it should stop.

use std::sync::atomic::{AtomicU8, Ordering};

/// Interrupts end the command.
const EXIT: u8 = 0;
/// The next one stops what is going on.
const STOP: u8 = 1;
/// It came.
const STOPPED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(EXIT);

/// Installs the handler, once.
pub(crate) fn install() {
    // 130 is what a shell reports for an interrupted program. Files get their names only when they are complete.
    let handler = || {
        if STATE.compare_exchange(STOP, STOPPED, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            std::process::exit(130);
        }
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        tracing::warn!(%error, "interrupts are not handled");
    }
}

/// While it lives, an interrupt is noted; a second one ends the command.
pub(crate) struct Catch(());

impl Catch {
    pub(crate) fn new() -> Catch {
        STATE.store(STOP, Ordering::SeqCst);
        Catch(())
    }

    /// Whether one came.
    pub(crate) fn came(&self) -> bool {
        STATE.load(Ordering::SeqCst) == STOPPED
    }
}

impl Drop for Catch {
    fn drop(&mut self) {
        STATE.store(EXIT, Ordering::SeqCst);
    }
}
