//! Merging neighbours, the best pair first, until no pair is left: the loop of every kind of byte-pair encoding.
//!
//! Of all neighbours that can be merged, those with the lowest rank are, the leftmost among equals. Short words are
//! searched again after each merge, which is fastest while everything fits into two cache lines; long ones keep their
//! pairs in a heap, so that a word of a megabyte takes n log n steps.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Neighbouring parts of a word and what they are.
#[derive(Default)]
pub(crate) struct Parts {
    /// What a part is, in the caller's terms.
    pub(crate) ids: Vec<u32>,
    /// Where in the word a part ends; it begins where the one before ends.
    pub(crate) ends: Vec<u32>,
    /// Rank of each part with the next one, and what the two become.
    ranks: Vec<u32>,
    merged: Vec<u32>,
    next: Vec<u32>,
    previous: Vec<u32>,
    heap: BinaryHeap<Reverse<Pair>>,
}

/// A part as it is offered for merging: `id`, and the bytes `start..end` of the word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) id: u32,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// A pair in the heap; the order of the fields is the order of merging. It is stale once the two parts are not `length`
/// bytes together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    rank: u32,
    left: u32,
    length: u32,
    id: u32,
}

/// The rank of a pair that is not merged.
const NEVER: u32 = u32::MAX;
/// Words of more parts than this go through the heap.
const SHORT: usize = 48;

impl Parts {
    pub(crate) fn clear(&mut self) {
        self.ids.clear();
        self.ends.clear();
    }

    /// Adds a part of `length` bytes.
    pub(crate) fn push(&mut self, id: u32, length: usize) {
        let start = self.ends.last().copied().unwrap_or(0);
        self.ids.push(id);
        self.ends.push(start + length as u32);
    }

    /// Merges all that `merge` gives a rank (below `u32::MAX`) and an id for.
    pub(crate) fn merge(&mut self, mut merge: impl FnMut(Part, Part) -> Option<(u32, u32)>) {
        match self.ids.len() {
            0 | 1 => {}
            2..=SHORT => self.scan(&mut merge),
            _ => self.queue(&mut merge),
        }
    }

    fn part(&self, at: usize) -> Part {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]) as usize;
        Part { id: self.ids[at], start, end: self.ends[at] as usize }
    }

    fn scan(&mut self, merge: &mut impl FnMut(Part, Part) -> Option<(u32, u32)>) {
        let count = self.ids.len();
        self.ranks.clear();
        self.merged.clear();
        for at in 0..count - 1 {
            let (rank, id) = merge(self.part(at), self.part(at + 1)).unwrap_or((NEVER, 0));
            self.ranks.push(rank);
            self.merged.push(id);
        }
        loop {
            let mut best = (NEVER, 0);
            for (at, &rank) in self.ranks.iter().enumerate() {
                if rank < best.0 {
                    best = (rank, at);
                }
            }
            let (rank, at) = best;
            if rank == NEVER {
                return;
            }
            self.ids[at] = self.merged[at];
            self.ids.remove(at + 1);
            self.ends.remove(at);
            self.ranks.remove(at);
            self.merged.remove(at);
            let mut offer = |at: usize| {
                if at < self.ranks.len() {
                    (self.ranks[at], self.merged[at]) = merge(self.part(at), self.part(at + 1)).unwrap_or((NEVER, 0));
                }
            };
            if at > 0 {
                offer(at - 1);
            }
            offer(at);
        }
    }

    fn queue(&mut self, merge: &mut impl FnMut(Part, Part) -> Option<(u32, u32)>) {
        let count = self.ids.len() as u32;
        const END: u32 = u32::MAX;
        // A part that was merged into its left neighbour is dead: its `previous` is itself.
        self.next.clear();
        self.next.extend((1..count).chain([END]));
        self.previous.clear();
        self.previous.extend([END].into_iter().chain(0..count - 1));
        // Where a part begins does not change, so its bytes end where the next living one begins.
        let starts: Vec<u32> = [0].into_iter().chain(self.ends.iter().copied()).collect();
        let total = starts[count as usize];
        let mut heap = std::mem::take(&mut self.heap);
        heap.clear();
        let mut offer = |ids: &[u32], next: &[u32], left: u32, heap: &mut BinaryHeap<Reverse<Pair>>| {
            let right = next[left as usize];
            if right == END {
                return;
            }
            let after = next[right as usize];
            let end = if after == END { total } else { starts[after as usize] };
            let (start, middle) = (starts[left as usize], starts[right as usize]);
            let a = Part { id: ids[left as usize], start: start as usize, end: middle as usize };
            let b = Part { id: ids[right as usize], start: middle as usize, end: end as usize };
            if let Some((rank, id)) = merge(a, b) {
                heap.push(Reverse(Pair { rank, left, length: end - start, id }));
            }
        };
        for left in 0..count {
            offer(&self.ids, &self.next, left, &mut heap);
        }
        while let Some(Reverse(pair)) = heap.pop() {
            let left = pair.left as usize;
            let right = self.next[left];
            if right == END || self.previous[left] == pair.left {
                continue;
            }
            let after = self.next[right as usize];
            let end = if after == END { total } else { starts[after as usize] };
            if end - starts[left] != pair.length {
                continue;
            }
            self.ids[left] = pair.id;
            self.next[left] = after;
            self.previous[right as usize] = right;
            if after != END {
                self.previous[after as usize] = pair.left;
            }
            if self.previous[left] != END {
                offer(&self.ids, &self.next, self.previous[left], &mut heap);
            }
            offer(&self.ids, &self.next, pair.left, &mut heap);
        }
        self.heap = heap;
        let mut kept = 0;
        let mut at = 0;
        while at != END {
            let next = self.next[at as usize];
            self.ids[kept] = self.ids[at as usize];
            self.ends[kept] = if next == END { total } else { starts[next as usize] };
            kept += 1;
            at = next;
        }
        self.ids.truncate(kept);
        self.ends.truncate(kept);
        // A word of a megabyte leaves nothing behind.
        if count > 1 << 16 {
            *self =
                Self { ids: std::mem::take(&mut self.ids), ends: std::mem::take(&mut self.ends), ..Self::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Ids of two make an id up to 40; the rank depends on both, so that order matters.
    fn rule(a: Part, b: Part) -> Option<(u32, u32)> {
        let id = a.id + b.id;
        (id < 40 && !(a.id * 7 + b.id * 3).is_multiple_of(5)).then_some(((a.id * 31 + b.id * 17) % 11, id))
    }

    proptest! {
        #[test]
        fn the_heap_merges_as_the_scan_does(word in prop::collection::vec((1u32..4, 1usize..5), 2..200)) {
            let (mut a, mut b) = (Parts::default(), Parts::default());
            for &(id, length) in &word {
                a.push(id, length);
                b.push(id, length);
            }
            a.scan(&mut rule);
            b.queue(&mut rule);
            prop_assert_eq!((a.ids, a.ends), (b.ids, b.ends));
        }
    }
}
