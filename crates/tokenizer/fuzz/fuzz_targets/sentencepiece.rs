//! A SentencePiece model of any bytes.
#![no_main]

mod common;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    common::forgive_the_tokenizers_crate();
    common::exercise(lattice_tokenizer::Tokenizer::from_sentencepiece(data));
});
