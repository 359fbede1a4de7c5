//! Text of any kind in every form of tool calls: never a panic, the same whole as in pieces, no text lost.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: (u64, &str)| lattice_serve::any_text_in_pieces_is_read_as_the_whole(input.1, input.0));
