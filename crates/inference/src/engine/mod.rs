//! Sequences of tokens: prompts in chunks and single next tokens of several sequences share each forward pass, and what
//! sequences begin with alike is computed once.
//!
//! The engine works on ids; [`crate::generate`] turns them into text. A step plans a ragged batch (next tokens first, then
//! chunks of prompts, up to a budget), runs the model once, and samples for every sequence whose tokens are all in. At
//! precision exact, with keys and values in float32, a sequence's tokens depend on nothing but itself: neither on its batch
//! mates, nor on the size of the chunks, nor on what was there already of its beginning, nor on its having been computed
//! again after its pages were taken.

mod draft;
mod interface;
mod pages;
mod schedule;
mod sequence;
mod speculation;

pub use interface::{Counts, EngineOptions, Event, Finish, SequenceId, Speculate, Totals};

use crate::encoder::InferenceError;
use crate::guide::Guide;
use crate::sampling::{Sampler, SamplingParams};
use draft::Draft;
use models::{Batch, Caches, Forward, Loaded};
use ops::{Ops, Save};
use pages::{Pages, Reuse, alike};
use sequence::Running;
use speculation::{Cost, Pace, follow};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

/// A sequence waits for one that runs to compute what both begin with, if that spares it as many tokens.
const WORTH_WAITING: usize = 16;

/// A step in which tokens are guessed has at most so many rows: those of the guesses cost little beside the weights, which
/// are read once.
const GUESSING_ROWS: usize = 16;

/// Tokens from the end of a long prompt at which recurrent states are kept.
const QUESTIONS: [usize; 3] = [32, 64, 128];

/// The price of a guess where it does not matter.
const CHEAP: f32 = 0.2;

/// Runs sequences on one model.
pub struct Engine {
    loaded: Arc<Loaded>,
    ops: Arc<dyn Ops>,
    caches: Caches,
    recurrent: bool,
    context: usize,
    parallel: usize,
    step_tokens: usize,
    pages: Pages,
    /// Borders of pages at which a prompt may keep its recurrent state.
    snapshots_each: usize,
    speculate: Speculate,
    draft: Option<Draft>,
    cost: Cost,
    /// Oldest first.
    waiting: VecDeque<Running>,
    /// Oldest first.
    running: Vec<Running>,
    /// Tokens that came before any step, because a grammar forced them.
    early: Vec<Event>,
    next: u64,
    totals: Totals,
}

/// What a sequence puts into a step.
#[derive(Default)]
struct Entry {
    /// Among the running ones.
    index: usize,
    /// Its tokens.
    count: usize,
    /// Guesses at those that follow.
    draft: Vec<u32>,
    /// What each was drawn from; empty where it was certain.
    odds: Vec<Vec<f32>>,
    /// Where its recurrent state is kept before each guess.
    before: Vec<u32>,
    /// States to keep: after how many of the sequence's tokens, and where.
    saves: Vec<(usize, u32)>,
}

impl Engine {
    /// An engine for a language model on the executor that it was loaded for.
    ///
    /// # Errors
    /// [`InferenceError::NoHead`] if the model gives no logits, [`InferenceError::Context`] for a context that it does not
    /// take, [`InferenceError::Pages`] for too few pages.
    pub fn new(loaded: Arc<Loaded>, ops: Arc<dyn Ops>, options: EngineOptions) -> Result<Engine, InferenceError> {
        Engine::build(loaded, None, ops, options)
    }

    /// As [`Engine::new`], with a smaller model of the same vocabulary on the same executor that guesses what the larger
    /// one will say. Guesses change no greedy text at precision exact, and no sampled text's distribution; for the same
    /// seed a sampled text may be another one than without them, or beside others.
    ///
    /// # Errors
    /// As [`Engine::new`], and [`InferenceError::Draft`] if the smaller model does not go with the larger one.
    pub fn with_draft(
        loaded: Arc<Loaded>,
        draft: Arc<Loaded>,
        ops: Arc<dyn Ops>,
        options: EngineOptions,
    ) -> Result<Engine, InferenceError> {
        Engine::build(loaded, Some(draft), ops, options)
    }

    fn build(
        loaded: Arc<Loaded>,
        draft: Option<Arc<Loaded>>,
        ops: Arc<dyn Ops>,
        options: EngineOptions,
    ) -> Result<Engine, InferenceError> {
        let shape = loaded.model.shape();
        if loaded.head.is_none() {
            return Err(InferenceError::NoHead { architecture: shape.architecture });
        }
        let context = options.context.unwrap_or(EngineOptions::CONTEXT.min(shape.max_positions));
        if context == 0 || context > shape.max_positions {
            return Err(InferenceError::Context { asked: context, window: shape.max_positions });
        }
        // Where a sequence's length changes its earlier tokens, nothing of them holds for another, and guesses change it.
        let alone = loaded.model.depends_on_length();
        let reuse = options.reuse && !alone;
        let speculate = if alone { Speculate::Never } else { options.speculate };
        let (parallel, page_tokens) = (options.parallel.max(1), options.page_tokens);
        let longest = context.div_ceil(page_tokens);
        let pages = options.pages.unwrap_or(parallel * (longest + 1));
        if pages < longest {
            return Err(InferenceError::Pages { pages, needed: longest, page_tokens, context });
        }
        if let Some(draft) = &draft {
            draft::check(draft, &loaded, context)?;
        }
        let states = loaded.model.states();
        let theirs = draft.as_ref().map_or_else(Vec::new, |draft| draft.model.states());
        let state_bytes: usize = states.iter().chain(&theirs).map(|state| state.slot_bytes()).sum();
        let snapshots = match state_bytes {
            0 => 0,
            bytes if reuse => {
                options.snapshots.unwrap_or((EngineOptions::SNAPSHOT_BYTES / bytes).min(EngineOptions::SNAPSHOTS))
            }
            _ => 0,
        };
        let guessing = if speculate == Speculate::Never || state_bytes == 0 { 0 } else { GUESSING_ROWS };
        let slots = parallel + guessing;
        let room = |states: &[_]| Caches::new(&*ops, states, pages, page_tokens, slots + snapshots, options.kv);
        let caches = room(&states);
        let draft = draft.map(|loaded| Draft { loaded, caches: room(&theirs) });
        Ok(Engine {
            loaded,
            ops,
            recurrent: state_bytes > 0,
            caches,
            context,
            parallel,
            step_tokens: options.step_tokens.max(parallel),
            pages: Pages::new(pages, page_tokens, slots, snapshots, reuse),
            snapshots_each: (snapshots / 4).max(1),
            speculate,
            draft,
            cost: Cost::default(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            early: Vec::new(),
            next: 0,
            totals: Totals::default(),
        })
    }

    /// Longest sequence in tokens.
    pub fn context(&self) -> usize {
        self.context
    }

    /// The model.
    pub fn loaded(&self) -> &Arc<Loaded> {
        &self.loaded
    }

    /// The executor.
    pub fn ops(&self) -> &Arc<dyn Ops> {
        &self.ops
    }

    /// Whether any sequence runs or waits.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty() && self.early.is_empty()
    }

    /// What is counted.
    pub fn totals(&self) -> Totals {
        Totals {
            running: self.running.len(),
            waiting: self.waiting.len(),
            pages: self.pages.total(),
            pages_used: self.pages.used(),
            pages_cached: self.pages.cached(),
            snapshots: self.pages.snapshots(),
            evictions: self.pages.evictions(),
            ..self.totals
        }
    }

    /// Takes a prompt. `stop_ids` end the text, besides those of `params`. Several with the same prompt share what is
    /// computed of it.
    ///
    /// # Errors
    /// [`InferenceError::EmptyPrompt`], [`InferenceError::PromptTooLong`], an id outside the vocabulary, or parameters out
    /// of range.
    pub fn add(
        &mut self,
        prompt: &[u32],
        params: SamplingParams,
        stop_ids: &[u32],
    ) -> Result<SequenceId, InferenceError> {
        self.add_guided(prompt, params, stop_ids, None)
    }

    /// As [`Engine::add`], under a grammar. Tokens that it forces come without being sampled, several in a step, unless
    /// log-probabilities are asked for.
    ///
    /// # Errors
    /// As [`Engine::add`].
    pub fn add_guided(
        &mut self,
        prompt: &[u32],
        params: SamplingParams,
        stop_ids: &[u32],
        guide: Option<Guide>,
    ) -> Result<SequenceId, InferenceError> {
        let head = self.loaded.head.as_ref().expect("checked by `new`");
        let (tokens, context) = (prompt.len(), self.context);
        if prompt.is_empty() {
            return Err(InferenceError::EmptyPrompt);
        }
        if tokens >= context {
            return Err(InferenceError::PromptTooLong { tokens, context });
        }
        self.loaded.model.shape().check(&Batch::new(&[prompt])?)?;
        let mut stop_ids = if params.ignore_eos { Vec::new() } else { stop_ids.to_vec() };
        stop_ids.extend(&params.stop_ids);
        let wanted = params.max_tokens.map(|most| tokens.saturating_add(most));
        let (limit, full) = match wanted {
            Some(limit) if limit <= context => (limit, Finish::Length),
            _ => (context, Finish::Context),
        };
        let guesses = match self.speculate {
            Speculate::Never => false,
            Speculate::Greedy => params.is_greedy(),
            Speculate::All | Speculate::Always => true,
        };
        let id = SequenceId(self.next);
        self.next += 1;
        let mut sequence = Running {
            id,
            tokens: prompt.to_vec(),
            prompt: tokens,
            cached: 0,
            pages: Vec::new(),
            slot: 0,
            keep_at: Vec::new(),
            stride: 1,
            sampler: Sampler::new(params, head.out.outputs)?,
            stop_ids,
            guide,
            limit,
            full,
            counts: Counts { prompt: tokens, ..Counts::default() },
            pace: guesses.then(Pace::default),
            drafted: 0,
        };
        let forced = sequence.jump();
        let ended = forced.last().is_some_and(|event| event.finish.is_some());
        self.early.extend(forced);
        if !ended {
            self.waiting.push_back(sequence);
        }
        Ok(id)
    }

    /// Ends a sequence wherever it is, and says what was counted of it; what it held is free at once.
    pub fn cancel(&mut self, id: SequenceId) -> Option<Counts> {
        self.early.retain(|event| event.sequence != id);
        if let Some(at) = self.waiting.iter().position(|s| s.id == id) {
            return self.waiting.remove(at).map(|s| s.counts);
        }
        let at = self.running.iter().position(|s| s.id == id)?;
        let mut sequence = self.running.remove(at);
        self.let_go(&mut sequence, true);
        Some(sequence.counts)
    }

    /// One forward pass. No events while prompts are still going in, or if there is nothing to do.
    ///
    /// # Errors
    /// What the executor says; the sequences of the step will be computed again.
    pub fn step(&mut self) -> Result<Vec<Event>, InferenceError> {
        self.admit();
        let mut entries = self.entries();
        if entries.is_empty() {
            return Ok(std::mem::take(&mut self.early));
        }
        let start = Instant::now();
        let logits = self.guess(&mut entries).and_then(|()| self.forward(&entries));
        let mut logits = match logits {
            Ok(logits) => logits,
            Err(error) => {
                self.give_up(&entries);
                return Err(error);
            }
        };
        let rows = entries.iter().map(|entry| entry.count + entry.draft.len()).sum();
        if rows <= GUESSING_ROWS {
            self.cost.learn(rows, start.elapsed().as_secs_f64());
        }
        let head = self.loaded.head.as_ref().expect("checked by `new`");
        let mut rows = logits.chunks_exact_mut(head.out.outputs);
        let mut events = std::mem::take(&mut self.early);
        for entry in &entries {
            let s = &mut self.running[entry.index];
            let mut right = 0;
            if s.pending() == entry.count {
                let own: Vec<_> = rows.by_ref().take(1 + entry.draft.len()).collect();
                let choose = AssertUnwindSafe(|| s.take_all(own, &entry.draft, &entry.odds, &mut events));
                // What goes wrong in choosing one sequence's token is that sequence's end.
                right = catch_unwind(choose).unwrap_or_else(|panic| {
                    events.push(s.failed(&*panic));
                    0
                });
            }
            self.put_in(entry, right);
        }
        self.totals.steps += 1;
        for entry in &entries {
            self.totals.computed += (entry.count + entry.draft.len()) as u64;
            self.totals.drafted += entry.draft.len() as u64;
        }
        self.totals.generated += events.iter().filter(|event| event.token.is_some()).count() as u64;
        for event in events.iter().filter(|e| e.finish.is_some()) {
            self.cancel(event.sequence);
        }
        Ok(events)
    }

    /// Lets waiting sequences run, in their order. One whose beginning is being computed by another waits for that one,
    /// and keeps its place.
    fn admit(&mut self) {
        let mut at = 0;
        while self.running.len() + at < self.parallel && at < self.waiting.len() {
            let tokens = &self.waiting[at].tokens;
            let known = &tokens[..tokens.len() - 1]; // the last one is computed for its logits
            let reuse = self.pages.find(known, self.recurrent);
            if let Some((leader, common)) = self.leader(known, reuse.tokens) {
                let keep_at = &mut self.running[leader].keep_at;
                if !keep_at.contains(&common) {
                    keep_at.push(common);
                }
                at += 1;
                continue;
            }
            if !self.fits(tokens.len(), &reuse) {
                break;
            }
            let sequence = self.waiting.remove(at).expect("it is there");
            self.start(sequence, reuse);
        }
    }

    /// Which running sequence is about to compute more of these tokens than the `have` first ones, and how many?
    fn leader(&self, tokens: &[u32], have: usize) -> Option<(usize, usize)> {
        if !self.pages.keeps() {
            return None;
        }
        let prompts = self.running.iter().enumerate().filter(|(_, s)| s.pending() > 1);
        let common = prompts.map(|(i, s)| (i, alike(&s.tokens, tokens), s.cached));
        let ahead = common.filter(|&(_, common, cached)| common >= have + WORTH_WAITING && common > cached);
        ahead.map(|(i, common, _)| (i, common)).max_by_key(|&(_, common)| common)
    }

    /// Is there room for a sequence of so many tokens, the next one, and what those that run will need soon?
    fn fits(&self, tokens: usize, reuse: &Reuse) -> bool {
        let pages = |tokens: usize| (tokens + 1).div_ceil(self.pages.page_tokens);
        let needed = pages(tokens) - reuse.full.len();
        let soon = |s: &Running| (pages(s.tokens.len()) + 1).saturating_sub(s.pages.len());
        let soon: usize = self.running.iter().map(soon).sum();
        self.running.is_empty() || needed + soon <= self.pages.available(reuse)
    }

    /// Lets a sequence run, from what is there of it.
    fn start(&mut self, mut s: Running, mut reuse: Reuse) {
        reuse.full.iter().for_each(|&page| self.pages.hold(page));
        while let Some(source) = reuse.partial {
            if self.pages.adopt(source, reuse.tokens % self.pages.page_tokens) {
                reuse.full.push(source);
                break;
            }
            self.pages.hold(source);
            let copy = self.pages.take(reuse.full.last().copied());
            if let Some(copy) = copy {
                let tokens = self.pages.tokens(source)[..reuse.tokens % self.pages.page_tokens].to_vec();
                self.pages.extend(copy, &tokens);
                self.caches.copy_page(&*self.ops, source, copy);
                if let Some(draft) = &self.draft {
                    draft.caches.copy_page(&*self.ops, source, copy);
                }
                reuse.full.push(copy);
                reuse.partial = None;
            }
            self.pages.release(source);
            if copy.is_none() {
                // No room for a copy: what is left are whole pages, and a state at their end or before.
                reuse.full.iter().rev().for_each(|&page| self.pages.release(page));
                let whole = reuse.full.len() * self.pages.page_tokens;
                reuse = self.pages.find(&s.tokens[..whole], self.recurrent);
                reuse.full.iter().for_each(|&page| self.pages.hold(page));
            }
        }
        s.slot = self.pages.take_slot();
        if let Some(state) = reuse.state {
            self.pages.use_state(state);
            self.copy_state(state, s.slot);
        }
        (s.cached, s.drafted, s.pages) = (reuse.tokens, reuse.tokens, reuse.full);
        // States are kept where others may branch off: before the last token of the prompt, and where others did; and before
        // the end of a long prompt, since the next one may have the same beginning and another question behind it.
        let (last, borders) = (s.tokens.len() - 1, s.tokens.len() / self.pages.page_tokens);
        s.keep_at = vec![last];
        s.keep_at.extend((reuse.common > reuse.tokens).then_some(reuse.common));
        s.keep_at.extend(QUESTIONS.iter().filter(|_| borders > 0).map(|tokens| last.saturating_sub(*tokens)));
        s.stride = borders.div_ceil(self.snapshots_each).next_power_of_two();
        if s.counts.preemptions == 0 {
            s.counts.cached = s.cached;
            self.totals.started += 1;
            self.totals.hits += u64::from(s.cached > 0);
            self.totals.prompt += s.prompt as u64;
            self.totals.cached += s.cached as u64;
        }
        let at = self.running.partition_point(|other| other.id < s.id);
        self.running.insert(at, s);
    }

    /// What goes into this step, with pages for it: the oldest first, and if there are none left, the youngest makes room.
    fn entries(&mut self) -> Vec<Entry> {
        let pending: Vec<usize> = self.running.iter().map(Running::pending).collect();
        let plan = schedule::plan(&pending, self.step_tokens);
        let mut entries = Vec::new();
        for (index, count) in plan.into_iter().enumerate().filter(|&(_, count)| count > 0) {
            while self.running.len() > index && !self.room(index, count) {
                self.preempt(self.running.len() - 1, true);
            }
            if self.running.len() > index {
                entries.push(Entry { index, count, ..Entry::default() });
            }
        }
        entries.retain(|entry| entry.index < self.running.len());
        for entry in entries.iter_mut().filter(|_| self.recurrent) {
            let s = &self.running[entry.index];
            for at in s.keeps(s.cached, s.cached + entry.count, self.pages.page_tokens) {
                entry.saves.extend(self.pages.take_snapshot().map(|slot| (at, slot)));
            }
        }
        entries
    }

    /// Adds guesses to those that are given a token in this step, where there is room in their pages.
    fn guess(&mut self, entries: &mut [Entry]) -> Result<(), InferenceError> {
        let rows: usize = entries.iter().map(|entry| entry.count).sum();
        let mut left = GUESSING_ROWS.min(self.step_tokens).saturating_sub(rows);
        let price = if self.speculate == Speculate::Always { CHEAP } else { self.cost.price(rows) };
        let mut lengths = vec![0; entries.len()];
        for (entry, length) in entries.iter_mut().zip(&mut lengths) {
            let s = &mut self.running[entry.index];
            let Some(pace) = s.pace.as_mut().filter(|_| s.tokens.len() == s.cached + entry.count) else { continue };
            let room = s.pages.len() * self.pages.page_tokens - s.tokens.len();
            let most = left.min(room).min((s.limit - s.tokens.len()).saturating_sub(1));
            if self.draft.is_none() {
                entry.draft = follow(&s.tokens, most);
            }
            let possible = if self.draft.is_some() { most } else { entry.draft.len() };
            *length = if possible > 0 { pace.next(price).min(possible) } else { 0 };
            entry.draft.truncate(*length);
            left -= *length;
            if self.recurrent {
                entry.before = (0..*length).map(|_| self.pages.take_slot()).collect();
            }
        }
        match &self.draft {
            Some(draft) => draft.guess(&*self.ops, &mut self.running, entries, &lengths),
            None => Ok(()),
        }
    }

    /// Gives a sequence the pages for its next tokens, or as many of them as there are.
    fn room(&mut self, index: usize, count: usize) -> bool {
        let s = &mut self.running[index];
        let needed = (s.cached + count).div_ceil(self.pages.page_tokens);
        while s.pages.len() < needed {
            let Some(page) = self.pages.take(s.pages.last().copied()) else { return false };
            s.pages.push(page);
        }
        true
    }

    /// Logits after the last token of the entries whose tokens are all in after this step, and after each of their guesses,
    /// `[rows, vocab]`.
    fn forward(&self, entries: &[Entry]) -> Result<Vec<f32>, InferenceError> {
        let mut batch = Batch::default();
        let mut rows = Vec::new();
        for entry in entries {
            let s = &self.running[entry.index];
            let kept = entry.saves.iter().map(|&(at, slot)| Save { rows: at - s.cached, slot });
            let before = entry.before.iter().enumerate().map(|(i, &slot)| Save { rows: entry.count + i, slot });
            let past = ops::Past { saves: kept.chain(before).collect(), ..s.past() };
            let tokens = &s.tokens[s.cached..s.cached + entry.count];
            batch.push_after(&[tokens, &entry.draft].concat(), past)?;
            if entry.count == s.pending() {
                let end = batch.tokens() as u32;
                rows.extend(end - 1 - entry.draft.len() as u32..end);
            }
        }
        self.loaded.model.shape().check(&batch)?;
        self.caches.check(&batch)?;
        let cx = Forward::cached(&*self.ops, &batch, &self.caches);
        let head = self.loaded.head.as_ref().expect("checked by `new`");
        let hidden = self.loaded.model.forward(&cx);
        let out = if rows.is_empty() { hidden } else { head.logits(&cx, &self.ops.rows(&hidden, &rows)) };
        let out = self.ops.read(&out)?;
        Ok(if rows.is_empty() { Vec::new() } else { out })
    }

    /// Notes what a step has put in; of the guesses, the `right` first ones stay.
    fn put_in(&mut self, entry: &Entry, right: usize) {
        let s = &mut self.running[entry.index];
        let sure = s.cached + entry.count;
        let (page_tokens, from, to) = (self.pages.page_tokens, s.cached, sure + right);
        s.cached = to;
        self.totals.accepted += right as u64;
        // The last guess is not put into the model that made it.
        s.drafted = to.min(sure + entry.draft.len().saturating_sub(1));
        if let Some(pace) = s.pace.as_mut().filter(|_| !entry.draft.is_empty()) {
            pace.learn(entry.draft.len(), right);
        }
        for index in from / page_tokens..to.div_ceil(page_tokens) {
            let part = from.max(index * page_tokens)..to.min((index + 1) * page_tokens);
            self.pages.extend(s.pages[index], &s.tokens[part.clone()]);
            if part.end == (index + 1) * page_tokens {
                s.pages[index] = self.pages.settle(s.pages[index]);
            }
        }
        for &(at, slot) in &entry.saves {
            let page = (at - 1) / page_tokens;
            self.pages.keep_state(s.pages[page], at - page * page_tokens, slot);
        }
        for at in if self.recurrent { s.keeps(sure, to, page_tokens) } else { Vec::new() } {
            if let Some(slot) = self.pages.take_snapshot() {
                let source = entry.before.get(at - sure).copied().unwrap_or(s.slot);
                self.caches.copy_state(&*self.ops, source, slot);
                if let Some(draft) = &self.draft {
                    draft.caches.copy_state(&*self.ops, source, slot);
                }
                let page = (at - 1) / page_tokens;
                self.pages.keep_state(s.pages[page], at - page * page_tokens, slot);
            }
        }
        // The state is that after all guesses; the one before the first wrong guess takes its place.
        let mut before = entry.before.clone();
        if right < before.len() {
            std::mem::swap(&mut s.slot, &mut before[right]);
        }
        before.into_iter().for_each(|slot| self.pages.free_slot(slot));
    }

    /// Makes slot `to` hold the state that slot `from` holds.
    fn copy_state(&self, from: u32, to: u32) {
        self.caches.copy_state(&*self.ops, from, to);
        if let Some(draft) = &self.draft {
            draft.caches.copy_state(&*self.ops, from, to);
        }
    }

    /// Takes the place of a running sequence away; it waits again, in its old place in the queue.
    fn preempt(&mut self, index: usize, state_is_good: bool) {
        let mut s = self.running.remove(index);
        self.let_go(&mut s, state_is_good);
        s.counts.preemptions += 1;
        self.totals.preemptions += 1;
        let at = self.waiting.partition_point(|other| other.id < s.id);
        self.waiting.insert(at, s);
    }

    /// A step has failed half-way.
    fn give_up(&mut self, entries: &[Entry]) {
        for entry in entries.iter().rev() {
            entry.saves.iter().for_each(|&(_, slot)| self.pages.drop_snapshot(slot));
            entry.before.iter().for_each(|&slot| self.pages.free_slot(slot));
            self.preempt(entry.index, false);
        }
    }

    /// Lets go of the pages and the slot of a sequence. Its state stays as a snapshot, if it is that of its tokens.
    fn let_go(&mut self, s: &mut Running, state_is_good: bool) {
        if state_is_good && self.recurrent && s.cached > 0 && self.pages.slot_to_snapshot() {
            let page = (s.cached - 1) / self.pages.page_tokens;
            self.pages.keep_state(s.pages[page], s.cached - page * self.pages.page_tokens, s.slot);
        } else {
            self.pages.free_slot(s.slot);
        }
        s.pages.drain(..).rev().for_each(|page| self.pages.release(page));
        s.cached = 0;
    }
}
