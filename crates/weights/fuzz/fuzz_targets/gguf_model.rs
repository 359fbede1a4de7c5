//! Whatever a GGUF file says of its model: no panic, and what the view under Hugging Face's names gives is whole.
#![no_main]

use lattice_weights::Checkpoint;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

/// Where the bytes become a file; in memory, where the system has such a folder.
static FILE: LazyLock<std::path::PathBuf> = LazyLock::new(|| {
    let memory = std::path::Path::new("/dev/shm");
    let folder = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    folder.join(format!("lattice-fuzz-{}.gguf", std::process::id()))
});

fuzz_target!(|bytes: &[u8]| {
    std::fs::write(&*FILE, bytes).expect("a scratch file");
    let Ok(checkpoint) = Checkpoint::open(&*FILE) else { return };
    let _ = checkpoint.metadata().map(|metadata| lattice_weights::gguf::Vocab::read(metadata));
    let Ok(model) = checkpoint.as_hugging_face() else { return };
    assert!(model.config.is_object());
    for tensor in model.checkpoint.tensors() {
        let _ = tensor.to_f32();
    }
});
