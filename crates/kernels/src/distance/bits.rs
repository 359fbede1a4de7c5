//! How many bits of two vectors differ, or are set in both? Plain code over 64 bits at a time: compiled for an instruction
//! set, it becomes that one's way of counting bits. (With AVX2 alone that is one word at a time: a few words are the rule,
//! and vectors win only where there are many.)

use super::{COSINE, DOT, EUCLIDEAN, SQUARED, cosine};

/// Where others have the proof of an instruction set. Plain words need none.
#[derive(Clone, Copy)]
pub(super) struct Words(());

impl Words {
    /// # Safety
    /// On any machine.
    #[inline(always)]
    pub(super) unsafe fn new() -> Self {
        Self(())
    }
}

#[inline(always)]
pub(super) fn one<const M: usize>(_: Words, a: &[u8], b: &[u8]) -> f32 {
    match M {
        COSINE => {
            let [both, a, b] = count(a, b, |a, b| [a & b, a, b]);
            measure::<M>(both, a, b)
        }
        DOT => count(a, b, |a, b| [a & b])[0] as f32,
        EUCLIDEAN => (count(a, b, |a, b| [a ^ b])[0] as f32).sqrt(),
        _ => count(a, b, |a, b| [a ^ b])[0] as f32,
    }
}

#[inline(always)]
pub(super) fn many<const M: usize>(words: Words, query: &[u8], rows: &[u8], out: &mut [f32]) {
    rows.chunks_exact(query.len()).zip(out).for_each(|(row, out)| *out = one::<M>(words, query, row));
}

/// A measure by the numbers of bits that are set in both, in the first and in the second.
pub(super) fn measure<const M: usize>(both: u64, a: u64, b: u64) -> f32 {
    let different = (a + b - 2 * both) as f32;
    match M {
        COSINE => cosine(both as f32, a as f32, b as f32).unwrap_or(0.0),
        DOT => both as f32,
        SQUARED => different,
        EUCLIDEAN => different.sqrt(),
        _ => different,
    }
}

/// Numbers of set bits of `N` words made of each two.
#[inline(always)]
fn count<const N: usize>(a: &[u8], b: &[u8], of: impl Fn(u64, u64) -> [u64; N]) -> [u64; N] {
    let mut sums = [0u64; N];
    let mut add = |a: u64, b: u64| {
        for (sum, word) in sums.iter_mut().zip(of(a, b)) {
            *sum += u64::from(word.count_ones());
        }
    };
    let ((words_a, rest_a), (words_b, rest_b)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in words_a.iter().zip(words_b) {
        add(u64::from_le_bytes(*a), u64::from_le_bytes(*b));
    }
    if !rest_a.is_empty() {
        add(last(a, rest_a), last(b, rest_b));
    }
    sums
}

/// What is left of a vector behind its whole words, as a word.
#[inline(always)]
fn last(all: &[u8], rest: &[u8]) -> u64 {
    match all.last_chunk() {
        // The last eight bytes, without those that a word had.
        Some(word) => u64::from_le_bytes(*word) >> (8 * (8 - rest.len())),
        None => rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}
