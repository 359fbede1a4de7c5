//! A GBNF grammar of any text: an error or a grammar, never a panic, never without end.
#![no_main]

mod common;

libfuzzer_sys::fuzz_target!(|text: &str| {
    common::exercise(lattice_grammar::GrammarSpec::Gbnf(text.into()));
});
