//! A tokenizer.json of any bytes: an error or a tokenizer, never a panic, never without end.
#![no_main]

mod common;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    common::forgive_the_tokenizers_crate();
    common::exercise(lattice_tokenizer::Tokenizer::from_json(data));
});
