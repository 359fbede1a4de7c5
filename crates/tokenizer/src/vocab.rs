//! Tokens by id and ids by token: all texts in one arena, found by an open-addressing table.
//!
//! A vocabulary of 262,144 words takes 2 MB of text, 1 MB of borders and 2 MB of table; as a hash map of owned strings
//! and its reverse it took ten times as much and most of the time of loading.

use std::hash::{BuildHasher, Hasher};

/// Which id does a token have, which token an id? Tokens are byte strings, most of them UTF-8; no token is empty.
pub(crate) struct Vocab {
    bytes: Vec<u8>,
    /// Where the token of each id ends; it begins where the one before ends. Ids without token are empty.
    ends: Vec<u32>,
    /// Ids in their low bits and parts of the hashes above; [`EMPTY`] where there is none. A power of two long.
    table: Vec<u32>,
    seed: u64,
    one_to_one: bool,
}

/// No id is so large: a table has twice as many places as there are ids.
const EMPTY: u32 = u32::MAX;
/// An arena is no longer: its borders are 32 bits.
const MAX_BYTES: usize = u32::MAX as usize;

impl Vocab {
    /// Tokens in the order of their ids, from 0 on. An empty one stands for an id without token; of equal ones the last
    /// is found by its text.
    ///
    /// # Errors
    /// More than 4 GiB of text.
    pub(crate) fn new<'a, T>(tokens: impl IntoIterator<Item = &'a T>) -> Result<Self, String>
    where
        T: AsRef<[u8]> + ?Sized + 'a,
    {
        let mut builder = Builder::default();
        for token in tokens {
            builder.push(token.as_ref())?;
        }
        Ok(builder.build())
    }

    /// What stands in the table for a token, without its id.
    fn mark(&self, hash: u64) -> u32 {
        (hash >> 32) as u32 & !(self.table.len() - 1) as u32
    }

    /// The id of a token.
    pub(crate) fn get(&self, token: &[u8]) -> Option<u32> {
        self.find(token, hash(token, self.seed)).ok()
    }

    /// The id of a token, or the place in the table where it would be.
    fn find(&self, token: &[u8], hash: u64) -> Result<u32, usize> {
        let mask = self.table.len() - 1;
        let mark = self.mark(hash);
        let mut at = hash as usize & mask;
        loop {
            let entry = self.table[at];
            if entry == EMPTY {
                return Err(at);
            }
            let id = entry & mask as u32;
            if entry ^ id == mark && self.bytes(id) == token {
                return Ok(id);
            }
            at = (at + 1) & mask;
        }
    }

    /// The ids of many tokens, which lie in `text` one after another and end at `ends`. Each step is done for all of them
    /// before the next, so that the processor waits for many places of the table at once and not for one after another.
    pub(crate) fn get_all(&self, text: &[u8], ends: &[u32], ids: &mut Vec<Option<u32>>) {
        let mask = self.table.len() - 1;
        let token = |i: usize| &text[i.checked_sub(1).map_or(0, |before| ends[before]) as usize..ends[i] as usize];
        let hashes: Vec<u64> = (0..ends.len()).map(|i| hash(token(i), self.seed)).collect();
        let entries: Vec<u32> = hashes.iter().map(|&hash| self.table[hash as usize & mask]).collect();
        let found: Vec<&[u8]> = entries.iter().map(|&entry| self.bytes(entry & mask as u32)).collect();
        let first: Vec<Option<u8>> = found.iter().map(|found| found.first().copied()).collect();
        ids.clear();
        ids.extend((0..ends.len()).map(|i| {
            let (entry, token) = (entries[i], token(i));
            let same = entry != EMPTY && first[i] == token.first().copied() && found[i] == token;
            if same { Some(entry & mask as u32) } else { self.find(token, hashes[i]).ok() }
        }));
    }

    /// The token of an id; empty if it has none.
    pub(crate) fn bytes(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else { return &[] };
        let start = id.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..end as usize]
    }

    /// The token of an id, if it has one that is UTF-8.
    pub(crate) fn text(&self, id: u32) -> Option<&str> {
        std::str::from_utf8(self.bytes(id)).ok().filter(|text| !text.is_empty())
    }

    /// Whether every id has a token and no two tokens are equal.
    pub(crate) fn is_one_to_one(&self) -> bool {
        self.one_to_one
    }

    /// Number of ids.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Length of all tokens together.
    pub(crate) fn total_bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl Default for Vocab {
    fn default() -> Self {
        Builder::default().build()
    }
}

/// Tokens as they are read from a file.
#[derive(Default)]
pub(crate) struct Builder {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    /// Ids of the tokens, once they are not in order.
    ids: Option<Vec<u32>>,
}

impl Builder {
    /// The token of the next id.
    pub(crate) fn push(&mut self, token: &[u8]) -> Result<(), String> {
        self.insert(token, self.ends.len() as u32)
    }

    /// A token with its id.
    pub(crate) fn insert(&mut self, token: &[u8], id: u32) -> Result<(), String> {
        self.text(token);
        self.number(id)
    }

    /// The text of a token whose id comes next.
    pub(crate) fn text(&mut self, token: &[u8]) {
        self.bytes.extend_from_slice(token);
    }

    /// The id of the token whose text came last.
    pub(crate) fn number(&mut self, id: u32) -> Result<(), String> {
        let count = self.ends.len() as u32;
        if id != count && self.ids.is_none() {
            self.ids = Some((0..count).collect());
        }
        if let Some(ids) = &mut self.ids {
            ids.push(id);
        }
        if self.bytes.len() > MAX_BYTES {
            return Err(format!("the vocabulary has more than {MAX_BYTES} bytes"));
        }
        self.ends.push(self.bytes.len() as u32);
        Ok(())
    }

    /// Number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Brings tokens that came in another order into that of their ids; none if two have the same id, or an id is beyond
    /// the number of tokens by more than `gap`.
    pub(crate) fn sorted(self, gap: usize) -> Option<Self> {
        let Some(ids) = self.ids else { return Some(self) };
        let last = ids.iter().max().map_or(0, |&id| id as usize);
        if last >= ids.len().saturating_add(gap) {
            return None;
        }
        const NONE: u32 = u32::MAX;
        let mut place = vec![NONE; last + 1];
        for (i, &id) in ids.iter().enumerate() {
            if std::mem::replace(&mut place[id as usize], i as u32) != NONE {
                return None;
            }
        }
        let mut sorted = Self { bytes: Vec::with_capacity(self.bytes.len()), ..Self::default() };
        for &i in &place {
            if i != NONE {
                let start = i.checked_sub(1).map_or(0, |before| self.ends[before as usize]);
                sorted.bytes.extend_from_slice(&self.bytes[start as usize..self.ends[i as usize] as usize]);
            }
            sorted.ends.push(sorted.bytes.len() as u32);
        }
        Some(sorted)
    }

    /// The vocabulary; tokens are in the order of their ids.
    pub(crate) fn build(self) -> Vocab {
        let Self { mut bytes, mut ends, .. } = self;
        bytes.shrink_to_fit();
        ends.shrink_to_fit();
        let table = vec![EMPTY; (ends.len() * 2).next_power_of_two().max(2)];
        let mut vocab = Vocab { bytes, ends, table, seed: random(), one_to_one: true };
        for id in 0..vocab.ends.len() as u32 {
            let token = vocab.bytes(id);
            if token.is_empty() {
                vocab.one_to_one = false;
                continue;
            }
            let hash = hash(token, vocab.seed);
            match vocab.find(token, hash) {
                Err(free) => vocab.table[free] = vocab.mark(hash) | id,
                // The last of equal tokens is found.
                Ok(earlier) => {
                    vocab.one_to_one = false;
                    let mask = vocab.table.len() - 1;
                    let mut at = hash as usize & mask;
                    while vocab.table[at] != vocab.mark(hash) | earlier {
                        at = (at + 1) & mask;
                    }
                    vocab.table[at] = vocab.mark(hash) | id;
                }
            }
        }
        vocab
    }
}

/// A number that nobody can know: files that are made to collide in our tables do not.
pub(crate) fn random() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// Multiplies to 128 bits and folds the halves.
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

fn hash(bytes: &[u8], seed: u64) -> u64 {
    let word = |at: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| bytes[at + i]));
    let mut state = seed ^ bytes.len() as u64;
    let length = bytes.len();
    if length >= 8 {
        let mut at = 0;
        while at + 8 < length {
            state = fold(state ^ word(at), MULTIPLIER);
            at += 8;
        }
        state = fold(state ^ word(length - 8), MULTIPLIER);
    } else {
        let tail = bytes.iter().fold(0, |all, &b| all << 8 | u64::from(b));
        state = fold(state ^ tail, MULTIPLIER);
    }
    fold(state, seed | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_is_found_and_nothing_else() {
        let tokens: Vec<String> = (0..5000).map(|i| format!("{}{i}", "x".repeat(i % 20))).collect();
        let vocab = Vocab::new(&tokens).unwrap();
        for (id, token) in (0..).zip(&tokens) {
            assert_eq!((vocab.get(token.as_bytes()), vocab.text(id)), (Some(id), Some(token.as_str())));
        }
        let (mut text, mut ends, mut ids) = (Vec::new(), Vec::new(), Vec::new());
        for token in tokens.iter().map(String::as_str).chain(["y", ""]) {
            text.extend_from_slice(token.as_bytes());
            ends.push(text.len() as u32);
        }
        vocab.get_all(&text, &ends, &mut ids);
        assert!(ids.iter().copied().eq((0..5000).map(Some).chain([None, None])));
        assert_eq!((vocab.get(b""), vocab.get(b"y"), vocab.text(5000)), (None, None, None));
        assert!(vocab.is_one_to_one());
        let twice = Vocab::new(["a", "b", "a", ""]).unwrap();
        assert_eq!((twice.get(b"a"), twice.text(0), twice.is_one_to_one()), (Some(2), Some("a"), false));
    }

    #[test]
    fn tokens_out_of_order_are_sorted_and_clashing_ids_refused() {
        let build = |pairs: &[(&str, u32)]| {
            let mut builder = Builder::default();
            pairs.iter().for_each(|(token, id)| builder.insert(token.as_bytes(), *id).unwrap());
            builder.sorted(1).map(Builder::build)
        };
        let vocab = build(&[("a", 3), ("b", 0), ("c", 1)]).unwrap();
        assert_eq!((vocab.len(), vocab.get(b"a"), vocab.text(2), vocab.text(1)), (4, Some(3), None, Some("c")));
        assert!(build(&[("a", 0), ("b", 0)]).is_none());
        assert!(build(&[("a", 9)]).is_none());
    }
}
