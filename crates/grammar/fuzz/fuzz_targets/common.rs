//! What every target does with a grammar: compiles it and asks for a first mask.

use lattice_grammar::{Bytes, Compiler, Constraint, GrammarSpec};
use std::sync::{LazyLock, Once};

static COMPILER: LazyLock<Compiler> = LazyLock::new(|| Compiler::new(Bytes::shared(), &[Bytes::END]).expect("bytes"));

/// libFuzzer aborts in the panic hook, before `llguidance` turns its own panics into errors; so only ours stop the run.
fn forgive_llguidance() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let abort = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let ours = info.location().is_none_or(|l| l.file().contains("crates/grammar/") || l.file().starts_with("src/"));
            if ours {
                abort(info);
            }
        }));
    });
}

pub fn exercise(spec: GrammarSpec) {
    forgive_llguidance();
    if let Ok(mut matcher) = COMPILER.compile(&spec) {
        let _ = matcher.mask(&mut [0; 9]);
    }
}
