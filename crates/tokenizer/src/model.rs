//! What a model is to the pipeline: it turns a word into ids. And what models work with: a memory of words seen.

use crate::merge::Parts;
use crate::text::{Span, Text};
use crate::unigram::Best;
use crate::vocab::{fold, random};

/// A vocabulary that words are segmented into.
pub(crate) trait Model: Send + Sync {
    /// Adds the tokens of a word (not empty).
    ///
    /// # Errors
    /// Only if the model's own file is inconsistent.
    fn segment(&self, word: Text<'_>, scratch: &mut Scratch, out: &mut Tokens) -> Result<(), String>;

    /// The id of a token as the vocabulary writes it.
    fn id(&self, token: &str) -> Option<u32>;

    /// A token as the vocabulary writes it.
    fn token(&self, id: u32) -> Option<String>;

    /// How many ids there are.
    fn size(&self) -> usize;

    /// Whether an id has no text of its own, like `<s>` of a SentencePiece model.
    fn is_control(&self, _id: u32) -> bool {
        false
    }
}

/// Tokens of a text; their spans where the text is traced.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    pub(crate) ids: Vec<u32>,
    pub(crate) spans: Vec<Span>,
}

impl Tokens {
    /// Adds a token that is the bytes `start..end` of `word`.
    pub(crate) fn push(&mut self, id: u32, word: Text<'_>, start: usize, end: usize) {
        self.ids.push(id);
        if let (Some(first), Some(last)) = (word.spans.get(start), word.spans.get(end.wrapping_sub(1))) {
            self.spans.push((first.0, last.1));
        } else if word.traced() {
            self.spans.push((word.start, word.start));
        }
    }
}

/// What encoding needs beside the model; kept from text to text.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) parts: Parts,
    pub(crate) words: Memory,
    pub(crate) text: String,
    pub(crate) best: Vec<Best>,
}

/// The tokens of short words seen lately. A word has one place, which a newer one takes.
pub(crate) struct Memory {
    places: Vec<Place>,
    seed: [u64; 2],
}

/// A word, padded, its length in the last byte; and its ids. One cache line.
#[derive(Clone)]
#[repr(align(64))]
struct Place {
    word: [u64; 4],
    ids: [u32; LONGEST_IDS],
    count: u32,
}

const PLACES_LOG2: u32 = 15;
const LONGEST_WORD: usize = 31;
const LONGEST_IDS: usize = 7;

impl Default for Memory {
    fn default() -> Self {
        Self { places: Vec::new(), seed: [random(), random()] }
    }
}

/// Where a word is remembered.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    word: [u64; 4],
    place: usize,
}

impl Memory {
    /// Where a word would be; none for long ones.
    #[inline]
    pub(crate) fn key(&self, word: &[u8]) -> Option<Key> {
        if word.len() > LONGEST_WORD {
            return None;
        }
        let mut padded = [0u8; 32];
        padded[..word.len()].copy_from_slice(word);
        padded[31] = word.len() as u8;
        let part = |i: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&padded[i * 8..i * 8 + 8]);
            u64::from_le_bytes(bytes)
        };
        let word = [part(0), part(1), part(2), part(3)];
        let hash = fold(word[0] ^ self.seed[0], word[1] ^ self.seed[1]);
        let hash = fold(hash ^ word[2], word[3] ^ self.seed[0]);
        Some(Key { word, place: (hash >> (64 - PLACES_LOG2)) as usize })
    }

    /// The ids of the word, if it is remembered.
    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&[u32]> {
        let place = self.places.get(key.place)?;
        (place.word == key.word).then(|| &place.ids[..place.count as usize])
    }

    /// Remembers the ids of a word, if they are few.
    pub(crate) fn put(&mut self, key: Key, ids: &[u32]) {
        if ids.len() > LONGEST_IDS {
            return;
        }
        if self.places.is_empty() {
            self.places = vec![Place { word: [0; 4], ids: [0; LONGEST_IDS], count: 0 }; 1 << PLACES_LOG2];
        }
        let place = &mut self.places[key.place];
        place.word = key.word;
        place.ids[..ids.len()].copy_from_slice(ids);
        place.count = ids.len() as u32;
    }
}

/// Segments a word by `run`, or takes what is remembered of it where offsets are not asked for.
#[inline]
pub(crate) fn remembered(
    word: Text<'_>,
    scratch: &mut Scratch,
    out: &mut Tokens,
    run: impl FnOnce(&mut Scratch, &mut Tokens) -> Result<(), String>,
) -> Result<(), String> {
    if word.traced() {
        return run(scratch, out);
    }
    let key = scratch.words.key(word.text.as_bytes());
    if let Some(ids) = key.and_then(|key| scratch.words.get(key)) {
        out.ids.extend_from_slice(ids);
        return Ok(());
    }
    let before = out.ids.len();
    run(scratch, out)?;
    if let Some(key) = key {
        scratch.words.put(key, &out.ids[before..]);
    }
    Ok(())
}
