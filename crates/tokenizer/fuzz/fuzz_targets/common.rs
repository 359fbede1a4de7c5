//! What every target does with a tokenizer that could be loaded: everything once.

use lattice_tokenizer::{Tokenizer, TokenizerError};

/// libFuzzer aborts in the panic hook, before the crate's guard turns a panic of the `tokenizers` crate into an error;
/// so panics there are let through, and only ours stop the run.
pub fn forgive_the_tokenizers_crate() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let abort = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let ours = info.location().is_none_or(|l| l.file().contains("crates/tokenizer/") || l.file().starts_with("src/"));
            if ours {
                abort(info);
            }
        }));
    });
}

pub fn exercise(tokenizer: Result<Tokenizer, TokenizerError>) {
    let Ok(tokenizer) = tokenizer else { return };
    for text in ["Hello, wörld!  <s> 123\n", "", "\u{301}\u{1F469}\u{200D}\u{1F4BB} a"] {
        if let Ok(encoding) = tokenizer.encode_pair(text, "b", true) {
            tokenizer.decode(&encoding.ids, true);
        }
        let _ = tokenizer.encode_ids(text, true);
        let _ = tokenizer.encode_plain(text);
    }
    let ids: Vec<u32> = (0..tokenizer.vocab_size().min(300) as u32).collect();
    tokenizer.decode(&ids, false);
    for &id in &ids {
        tokenizer.piece_bytes(id);
    }
}
