//! A schema of any JSON: an error or a grammar, never a panic, never without end.
#![no_main]

mod common;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(schema) = serde_json::from_slice(data) {
        common::exercise(lattice_grammar::GrammarSpec::JsonSchema(schema));
    }
});
