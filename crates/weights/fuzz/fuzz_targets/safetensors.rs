//! Whatever the bytes: no panic, and tensors that are accepted lie one after another up to the end of the file.
#![no_main]

use lattice_weights::safetensors::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let Ok(entries) = parse(file) else { return };
    let mut at = entries.first().map_or(file.len(), |entry| entry.range.start);
    for entry in entries {
        assert_eq!(entry.range.start, at);
        assert_eq!(entry.format.tensor_bytes(&entry.shape), Some(entry.range.len()));
        at = entry.range.end;
    }
    assert_eq!(at, file.len());
});
