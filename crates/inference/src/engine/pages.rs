//! Which tokens does each page hold, after which others, and who needs it?
//!
//! Pages form trees: a page holds up to `page_tokens` tokens that follow those of the page before it, and sequences that
//! begin alike share the pages of their beginning. A sequence holds a chain from a first page to its newest. Pages that
//! nobody holds stay, for sequences to come, until room is needed: then the one goes that was let go longest ago, among
//! those that no page follows. Slots of recurrent states that were kept on the way (snapshots) go with their page.
//!
//! Only numbers are dealt with here; the executor's memory is the caller's business.

/// All pages and slots of an engine.
pub(super) struct Pages {
    pub(super) page_tokens: usize,
    pages: Vec<Page>,
    /// Pages that hold the first tokens of a sequence.
    first: Vec<u32>,
    free: Vec<u32>,
    /// Pages with holders.
    held: usize,
    /// Whether pages stay that nobody holds.
    keep: bool,
    slots: Slots,
    clock: u64,
    evictions: u64,
}

#[derive(Clone, Default)]
struct Page {
    tokens: Vec<u32>,
    before: Option<u32>,
    next: Vec<u32>,
    holders: usize,
    /// When it was let go.
    used: u64,
    states: Vec<Snapshot>,
}

/// A recurrent state after the first `tokens` tokens of its page.
#[derive(Clone, Copy)]
struct Snapshot {
    tokens: usize,
    slot: u32,
    /// When a sequence last went on from it.
    used: u64,
}

/// Slots of recurrent states.
struct Slots {
    free: Vec<u32>,
    /// Slots that are snapshots, or will be after this step.
    kept: usize,
    limit: usize,
}

/// What is there already of a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reuse {
    /// Tokens that need not be computed.
    pub(super) tokens: usize,
    /// Tokens whose keys and values are there; more than `tokens` where no recurrent state was kept that far.
    pub(super) common: usize,
    /// Pages that can be shared, in order.
    pub(super) full: Vec<u32>,
    /// A page whose first tokens, up to `tokens`, follow those of the `full` ones: to be copied.
    pub(super) partial: Option<u32>,
    /// Slot of the recurrent state after `tokens` tokens.
    pub(super) state: Option<u32>,
}

impl Pages {
    /// `slots` are those of running sequences, `snapshots` as many again.
    pub(super) fn new(pages: usize, page_tokens: usize, slots: usize, snapshots: usize, keep: bool) -> Pages {
        Pages {
            page_tokens,
            pages: vec![Page::default(); pages],
            first: Vec::new(),
            free: (0..pages as u32).rev().collect(),
            held: 0,
            keep,
            slots: Slots { free: (0..(slots + snapshots) as u32).rev().collect(), kept: 0, limit: snapshots },
            clock: 0,
            evictions: 0,
        }
    }

    pub(super) fn total(&self) -> usize {
        self.pages.len()
    }

    /// Whether pages stay that nobody holds.
    pub(super) fn keeps(&self) -> bool {
        self.keep
    }

    /// Pages with holders.
    pub(super) fn used(&self) -> usize {
        self.held
    }

    /// Pages without holders that hold something.
    pub(super) fn cached(&self) -> usize {
        self.pages.len() - self.held - self.free.len()
    }

    /// Slots that are snapshots.
    pub(super) fn snapshots(&self) -> usize {
        self.slots.kept
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Pages that can be taken, if none of `wanted` is.
    pub(super) fn available(&self, wanted: &Reuse) -> usize {
        let idle = |page: &&u32| self.pages[**page as usize].holders == 0;
        self.pages.len() - self.held - wanted.full.iter().chain(&wanted.partial).filter(idle).count()
    }

    /// What is there of a sequence. `recurrent`: it also needs a state to go on from.
    pub(super) fn find(&self, tokens: &[u32], recurrent: bool) -> Reuse {
        let mut reuse = Reuse::default();
        if !self.keep {
            return reuse;
        }
        let (mut path, mut next) = (Vec::new(), &self.first);
        loop {
            let at = path.len() * self.page_tokens;
            let alike = next.iter().map(|&page| (page, alike(&self.pages[page as usize].tokens, &tokens[at..])));
            if recurrent {
                for (page, alike) in alike.clone() {
                    let kept = self.pages[page as usize].states.iter().filter(|state| state.tokens <= alike);
                    if let Some(state) = kept.max_by_key(|state| state.tokens)
                        && at + state.tokens > reuse.tokens
                    {
                        let whole = state.tokens == self.page_tokens;
                        reuse.tokens = at + state.tokens;
                        reuse.state = Some(state.slot);
                        reuse.partial = (!whole).then_some(page);
                        reuse.full = path.iter().copied().chain(whole.then_some(page)).collect();
                    }
                }
            }
            let Some((page, alike)) = alike.max_by_key(|&(_, alike)| alike).filter(|&(_, alike)| alike > 0) else {
                break;
            };
            reuse.common = at + alike;
            if alike < self.page_tokens {
                if !recurrent {
                    reuse.partial = Some(page);
                }
                break;
            }
            path.push(page);
            next = &self.pages[page as usize].next;
        }
        if !recurrent {
            (reuse.tokens, reuse.full) = (reuse.common, path);
        }
        reuse
    }

    /// An empty page after `before`, held once; `None` if all are held.
    pub(super) fn take(&mut self, before: Option<u32>) -> Option<u32> {
        if self.free.is_empty() {
            self.evict()?;
        }
        let page = self.free.pop()?;
        self.siblings(before).push(page);
        self.pages[page as usize].before = before;
        self.hold(page);
        Some(page)
    }

    /// Holds a page that ends where the caller goes on and that nobody else holds: it needs no copy.
    pub(super) fn adopt(&mut self, page: u32, tokens: usize) -> bool {
        let own = &self.pages[page as usize];
        let ends = own.holders == 0 && own.tokens.len() == tokens;
        if ends {
            self.hold(page);
        }
        ends
    }

    pub(super) fn hold(&mut self, page: u32) {
        let page = &mut self.pages[page as usize];
        page.holders += 1;
        self.held += usize::from(page.holders == 1);
    }

    /// Lets go of a page; if nobody else holds it and it is of no use to others, it is empty now. A chain is let go from
    /// its newest page on.
    pub(super) fn release(&mut self, page: u32) {
        self.clock += 1;
        let (keep, clock) = (self.keep, self.clock);
        let own = &mut self.pages[page as usize];
        own.holders -= 1;
        own.used = clock;
        if own.holders == 0 {
            self.held -= 1;
            let own = &self.pages[page as usize];
            if own.next.is_empty() && (!keep || own.tokens.is_empty() || self.twin(page).is_some()) {
                self.move_states(page);
                self.remove(page);
            }
        }
    }

    /// The tokens that a page holds.
    pub(super) fn tokens(&self, page: u32) -> &[u32] {
        &self.pages[page as usize].tokens
    }

    /// Notes further tokens that a page holds now.
    pub(super) fn extend(&mut self, page: u32, tokens: &[u32]) {
        let own = &mut self.pages[page as usize].tokens;
        own.extend_from_slice(tokens);
        debug_assert!(own.len() <= self.page_tokens, "a page holds {} tokens", self.page_tokens);
    }

    /// The page that its holder should use from now on: `page`, which became full, or one that held the same before.
    pub(super) fn settle(&mut self, page: u32) -> u32 {
        let Some(twin) = self.twin(page).filter(|_| self.keep) else { return page };
        let next = std::mem::take(&mut self.pages[page as usize].next);
        next.iter().for_each(|&next| self.pages[next as usize].before = Some(twin));
        self.pages[twin as usize].next.extend(next);
        self.hold(twin);
        self.release(page);
        twin
    }

    /// A page beside this one that holds its tokens, and perhaps more.
    fn twin(&self, page: u32) -> Option<u32> {
        let own = &self.pages[page as usize];
        let beside = own.before.map_or(&self.first, |before| &self.pages[before as usize].next);
        beside
            .iter()
            .copied()
            .find(|&other| other != page && self.pages[other as usize].tokens.starts_with(&own.tokens))
    }

    fn siblings(&mut self, before: Option<u32>) -> &mut Vec<u32> {
        match before {
            Some(before) => &mut self.pages[before as usize].next,
            None => &mut self.first,
        }
    }

    /// Empties a page that nobody holds and none follows.
    fn remove(&mut self, page: u32) {
        let own = std::mem::take(&mut self.pages[page as usize]);
        assert!(own.holders == 0 && own.next.is_empty(), "a page that others need");
        self.siblings(own.before).retain(|&other| other != page);
        self.slots.kept -= own.states.len();
        self.slots.free.extend(own.states.iter().map(|state| state.slot));
        self.free.push(page);
    }

    /// Empties the page that was let go longest ago.
    fn evict(&mut self) -> Option<()> {
        let idle = |page: &Page| page.holders == 0 && page.next.is_empty() && !page.tokens.is_empty();
        let pages = (0u32..).zip(&self.pages).filter(|(_, page)| idle(page));
        let (page, _) = pages.min_by_key(|(_, page)| page.used)?;
        self.evictions += 1;
        self.remove(page);
        Some(())
    }

    /// A slot for a running sequence.
    pub(super) fn take_slot(&mut self) -> u32 {
        self.slots.free.pop().expect("slots for all running sequences, besides the snapshots")
    }

    /// Gives a running sequence's slot back.
    pub(super) fn free_slot(&mut self, slot: u32) {
        self.slots.free.push(slot);
    }

    /// A slot for a snapshot, taken from the one that was used longest ago if there are as many as may be. It is to be
    /// given to [`Pages::keep_state`] or [`Pages::drop_snapshot`].
    pub(super) fn take_snapshot(&mut self) -> Option<u32> {
        self.room_for_snapshot().then(|| {
            self.slots.kept += 1;
            self.slots.free.pop().expect("slots for all snapshots, besides the running sequences")
        })
    }

    /// Makes a running sequence's slot one for a snapshot, which is to be given to [`Pages::keep_state`]; false if there
    /// may be none.
    pub(super) fn slot_to_snapshot(&mut self) -> bool {
        let room = self.room_for_snapshot();
        self.slots.kept += usize::from(room);
        room
    }

    fn room_for_snapshot(&mut self) -> bool {
        if self.slots.kept < self.slots.limit {
            return true;
        }
        let all = self.pages.iter_mut().filter(|page| !page.states.is_empty());
        let oldest = all.min_by_key(|page| page.states.iter().map(|state| state.used).min());
        let Some(page) = oldest.filter(|_| self.slots.limit > 0) else { return false };
        let index = (0..page.states.len()).min_by_key(|&i| page.states[i].used).expect("it has states");
        self.slots.free.push(page.states.swap_remove(index).slot);
        self.slots.kept -= 1;
        true
    }

    /// Gives back the slot of a snapshot that was not taken.
    pub(super) fn drop_snapshot(&mut self, slot: u32) {
        self.slots.kept -= 1;
        self.slots.free.push(slot);
    }

    /// Keeps a snapshot: the state after the first `tokens` tokens of a page, and all before it.
    pub(super) fn keep_state(&mut self, page: u32, tokens: usize, slot: u32) {
        debug_assert!(
            tokens > 0 && tokens <= self.pages[page as usize].tokens.len(),
            "a state of tokens that are there"
        );
        self.clock += 1;
        let used = self.clock;
        let states = &mut self.pages[page as usize].states;
        match states.iter_mut().find(|state| state.tokens == tokens) {
            Some(state) => {
                state.used = used;
                self.drop_snapshot(slot);
            }
            None => states.push(Snapshot { tokens, slot, used }),
        }
    }

    /// Notes that a sequence goes on from a snapshot.
    pub(super) fn use_state(&mut self, slot: u32) {
        self.clock += 1;
        let states = self.pages.iter_mut().flat_map(|page| &mut page.states);
        states.filter(|state| state.slot == slot).for_each(|state| state.used = self.clock);
    }

    /// Gives a page's snapshots to the page that makes it superfluous.
    fn move_states(&mut self, page: u32) {
        let Some(twin) = self.twin(page).filter(|_| self.keep) else { return };
        for state in std::mem::take(&mut self.pages[page as usize].states) {
            match self.pages[twin as usize].states.iter().any(|other| other.tokens == state.tokens) {
                true => self.drop_snapshot(state.slot),
                false => self.pages[twin as usize].states.push(state),
            }
        }
    }
}

/// How many tokens two sequences have in common at their beginning.
pub(super) fn alike(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Pages {
        /// Everything is somewhere, once.
        fn check(&self) {
            let reachable = |first: &[u32]| {
                let (mut seen, mut open) = (Vec::new(), first.to_vec());
                while let Some(page) = open.pop() {
                    seen.push(page);
                    open.extend(&self.pages[page as usize].next);
                }
                seen
            };
            let mut all = [reachable(&self.first), self.free.clone()].concat();
            all.sort_unstable();
            assert_eq!(all, (0..self.pages.len() as u32).collect::<Vec<_>>());
            assert_eq!(self.held, self.pages.iter().filter(|page| page.holders > 0).count());
            for (index, page) in (0..).zip(&self.pages) {
                assert!(page.next.iter().all(|&next| self.pages[next as usize].before == Some(index)));
                assert!(page.next.is_empty() || page.tokens.len() == self.page_tokens);
                let parent = page.before.map(|before| &self.pages[before as usize]);
                assert!(page.holders == 0 || parent.is_none_or(|parent| parent.holders >= page.holders));
            }
            let kept: Vec<u32> = self.pages.iter().flat_map(|page| &page.states).map(|state| state.slot).collect();
            assert_eq!(kept.len(), self.slots.kept);
            assert!(self.slots.kept <= self.slots.limit);
        }

        /// A chain that holds these tokens, let go at once.
        fn put(&mut self, tokens: &[u32], state: bool) -> bool {
            let reuse = self.find(tokens, false);
            let mut chain = reuse.full;
            chain.iter().for_each(|&page| self.hold(page));
            let mut whole = true;
            for part in tokens[chain.len() * self.page_tokens..].chunks(self.page_tokens) {
                let Some(page) = self.take(chain.last().copied()) else {
                    whole = false;
                    break;
                };
                self.extend(page, part);
                chain.push(if part.len() == self.page_tokens { self.settle(page) } else { page });
                self.check();
            }
            if let (Some(&page), true) = (chain.last(), state && whole)
                && let Some(slot) = self.take_snapshot()
            {
                self.keep_state(page, self.tokens(page).len(), slot);
            }
            chain.into_iter().rev().for_each(|page| self.release(page));
            self.check();
            whole
        }
    }

    #[test]
    fn what_was_put_in_is_found_up_to_where_it_differs() {
        let mut pages = Pages::new(8, 4, 1, 2, true);
        assert!(pages.put(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], true));
        assert!(pages.put(&[1, 2, 3, 4, 5, 6, 0], true));
        let found = |pages: &Pages, tokens: &[u32], recurrent| {
            let reuse = pages.find(tokens, recurrent);
            (reuse.tokens, reuse.common, reuse.full.len(), reuse.partial.is_some(), reuse.state.is_some())
        };
        assert_eq!(found(&pages, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 9], false), (9, 9, 2, true, false));
        assert_eq!(found(&pages, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], true), (10, 10, 2, true, true));
        assert_eq!(found(&pages, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 9], true), (0, 9, 0, false, false));
        assert_eq!(found(&pages, &[1, 2, 3, 4, 5, 6, 0, 1], true), (7, 7, 1, true, true));
        assert_eq!(found(&pages, &[2], false), (0, 0, 0, false, false));
        assert_eq!(pages.cached(), 4);
        assert!(pages.put(&[1, 2, 3, 4, 5], false));
        assert_eq!(pages.cached(), 4, "what another page holds too does not stay twice");
    }

    proptest! {
        #[test]
        fn every_page_is_in_one_place(
            puts in prop::collection::vec((prop::collection::vec(0..2u32, 1..24), any::<bool>()), 1..40),
            count in 6..20usize,
            snapshots in 0..5usize,
            keep in any::<bool>(),
        ) {
            let mut pages = Pages::new(count, 4, 1, snapshots, keep);
            for (tokens, state) in puts {
                prop_assert!(pages.put(&tokens, state));
                prop_assert_eq!(pages.used(), 0);
                let reuse = pages.find(&tokens, false);
                prop_assert_eq!(reuse.tokens, if keep { tokens.len() } else { 0 });
            }
        }
    }
}
