//! Sequences of tokens: prompts in chunks and single next tokens of several sequences share each forward pass.
//!
//! The engine works on ids; [`crate::generate`] turns them into text. A step plans a ragged batch (next tokens of all
//! running sequences first, then chunks of prompts, up to a budget), runs the model once, and samples for every sequence
//! whose tokens are all in. At precision exact, with keys and values in float32, a sequence's tokens depend neither on
//! its batch mates nor on the size of the chunks.

use crate::encoder::InferenceError;
use crate::sampling::{History, Sampled, Sampler, SamplingParams};
use models::{Batch, Caches, Forward, Loaded};
use ops::{KvFormat, Ops, Past};
use std::collections::VecDeque;
use std::sync::Arc;

/// The sizes of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Longest sequence in tokens, prompt and output; `None` is the model's window, or [`EngineOptions::CONTEXT`] if that
    /// is shorter.
    pub context: Option<usize>,
    /// Sequences that run side by side; further ones wait.
    pub parallel: usize,
    /// Most tokens of a forward pass.
    pub step_tokens: usize,
    /// Tokens of a page of keys and values, a multiple of 16.
    pub page_tokens: usize,
    /// How keys and values are stored.
    pub kv: KvFormat,
}

impl EngineOptions {
    /// Context where none is asked for and the model could take more.
    pub const CONTEXT: usize = 8192;
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions { context: None, parallel: 8, step_tokens: 512, page_tokens: 256, kv: KvFormat::F16 }
    }
}

/// Names a sequence of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(u64);

/// What happened to a sequence in a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Which sequence.
    pub sequence: SequenceId,
    /// Its next token, unless it ended without one.
    pub token: Option<Sampled>,
    /// Why it ended, if it did; no further event follows then.
    pub finish: Option<Finish>,
}

/// Why a sequence ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// A token that ends the text: the event's token, which is not part of the text.
    Stop,
    /// As many tokens as asked for.
    Length,
    /// The context is full.
    Context,
    /// It cannot go on: its logits are not finite, or its filters leave no token.
    Failed(String),
}

/// Runs sequences on one model.
pub struct Engine {
    loaded: Arc<Loaded>,
    ops: Arc<dyn Ops>,
    caches: Caches,
    context: usize,
    step_tokens: usize,
    free_pages: Vec<u32>,
    free_slots: Vec<u32>,
    waiting: VecDeque<Running>,
    running: Vec<Running>,
    next: u64,
}

/// A sequence.
struct Running {
    id: SequenceId,
    /// Prompt and output.
    tokens: Vec<u32>,
    prompt: usize,
    /// Tokens whose keys and values are in the caches.
    cached: usize,
    pages: Arc<[u32]>,
    slot: u32,
    sampler: Sampler,
    stop_ids: Vec<u32>,
    /// Longest in tokens, prompt and output.
    limit: usize,
    full: Finish,
}

impl Engine {
    /// An engine for a language model on the executor that it was loaded for.
    ///
    /// # Errors
    /// [`InferenceError::NoHead`] if the model gives no logits.
    pub fn new(loaded: Arc<Loaded>, ops: Arc<dyn Ops>, options: EngineOptions) -> Result<Engine, InferenceError> {
        let shape = loaded.model.shape();
        if loaded.head.is_none() {
            return Err(InferenceError::NoHead { architecture: shape.architecture });
        }
        let asked = options.context.unwrap_or(EngineOptions::CONTEXT.min(shape.max_positions));
        if asked == 0 || asked > shape.max_positions {
            return Err(InferenceError::Context { asked, window: shape.max_positions });
        }
        let (parallel, step_tokens) = (options.parallel.max(1), options.step_tokens.max(1));
        let pages = parallel * asked.div_ceil(options.page_tokens);
        let states = loaded.model.states();
        let caches = Caches::new(&*ops, &states, pages, options.page_tokens, parallel, options.kv);
        Ok(Engine {
            loaded,
            ops,
            caches,
            context: asked,
            step_tokens,
            free_pages: (0..pages as u32).rev().collect(),
            free_slots: (0..parallel as u32).rev().collect(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            next: 0,
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
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Takes a prompt. `stop_ids` end the text, besides those of `params`.
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
        let id = SequenceId(self.next);
        self.next += 1;
        self.waiting.push_back(Running {
            id,
            tokens: prompt.to_vec(),
            prompt: tokens,
            cached: 0,
            pages: [].into(),
            slot: 0,
            sampler: Sampler::new(params, head.out.outputs)?,
            stop_ids,
            limit,
            full,
        });
        Ok(id)
    }

    /// Ends a sequence wherever it is; its pages are free at once.
    pub fn cancel(&mut self, id: SequenceId) {
        self.waiting.retain(|s| s.id != id);
        if let Some(at) = self.running.iter().position(|s| s.id == id) {
            let sequence = self.running.remove(at);
            self.free(sequence);
        }
    }

    /// One forward pass. No events while prompts are still going in, or if there is nothing to do.
    ///
    /// # Errors
    /// What the executor says; the sequences stay as they were.
    pub fn step(&mut self) -> Result<Vec<Event>, InferenceError> {
        self.admit();
        let plan = self.plan();
        if plan.is_empty() {
            return Ok(Vec::new());
        }
        let mut batch = Batch::default();
        for &(index, count) in &plan {
            let s = &mut self.running[index];
            let needed = (s.cached + count).div_ceil(self.caches.page_tokens);
            if needed > s.pages.len() {
                let more = self.free_pages.split_off(self.free_pages.len() - (needed - s.pages.len()));
                s.pages = s.pages.iter().copied().chain(more.into_iter().rev()).collect();
            }
            let past = Past { tokens: s.cached, pages: s.pages.clone(), slot: s.slot };
            batch.push_after(&s.tokens[s.cached..s.cached + count], past)?;
        }
        self.loaded.model.shape().check(&batch)?;
        self.caches.check(&batch)?;
        let ready: Vec<usize> = (0..plan.len())
            .filter(|&i| self.running[plan[i].0].cached + plan[i].1 == self.running[plan[i].0].tokens.len())
            .collect();
        let mut logits = self.forward(&batch, &ready)?;
        for &(index, count) in &plan {
            self.running[index].cached += count;
        }
        let vocab = (logits.len() / ready.len().max(1)).max(1);
        let rows = logits.chunks_exact_mut(vocab).zip(&ready);
        let events: Vec<Event> = rows.map(|(row, &i)| self.running[plan[i].0].take(row)).collect();
        for event in events.iter().filter(|e| e.finish.is_some()) {
            self.cancel(event.sequence);
        }
        Ok(events)
    }

    /// Logits of the last rows of the batch's spans `ready`, `[ready, vocab]`.
    fn forward(&self, batch: &Batch, ready: &[usize]) -> Result<Vec<f32>, InferenceError> {
        let cx = Forward::cached(&*self.ops, batch, &self.caches);
        let rows: Vec<u32> = ready.iter().map(|&i| (batch.spans[i].start + batch.spans[i].len - 1) as u32).collect();
        let head = self.loaded.head.as_ref().expect("checked by `new`");
        let hidden = self.loaded.model.forward(&cx);
        let out = if rows.is_empty() { hidden } else { head.logits(&cx, &self.ops.rows(&hidden, &rows)) };
        let out = self.ops.read(&out)?;
        Ok(if ready.is_empty() { Vec::new() } else { out })
    }

    fn admit(&mut self) {
        while let Some(slot) = if self.waiting.is_empty() { None } else { self.free_slots.pop() } {
            let mut sequence = self.waiting.pop_front().expect("not empty");
            sequence.slot = slot;
            self.running.push(sequence);
        }
    }

    /// Which running sequence puts in how many tokens.
    fn plan(&self) -> Vec<(usize, usize)> {
        let pending = |s: &Running| s.tokens.len() - s.cached;
        let mut budget = self.step_tokens;
        let mut plan = Vec::new();
        let next = self.running.iter().enumerate().filter(|(_, s)| pending(s) == 1);
        let prompts = self.running.iter().enumerate().filter(|(_, s)| pending(s) > 1);
        for (index, sequence) in next.chain(prompts) {
            let count = pending(sequence).min(budget);
            if count == 0 {
                break;
            }
            budget -= count;
            plan.push((index, count));
        }
        plan
    }

    fn free(&mut self, sequence: Running) {
        self.free_pages.extend(sequence.pages.iter().rev());
        self.free_slots.push(sequence.slot);
    }
}

impl Running {
    /// Chooses the next token.
    fn take(&mut self, logits: &mut [f32]) -> Event {
        let sequence = self.id;
        if self.tokens.len() >= self.limit {
            return Event { sequence, token: None, finish: Some(self.full.clone()) };
        }
        let (prompt, generated) = self.tokens.split_at(self.prompt);
        let token = match self.sampler.sample(logits, History { prompt, generated }, None) {
            Ok(token) => token,
            Err(error) => return Event { sequence, token: None, finish: Some(Finish::Failed(error.to_string())) },
        };
        self.tokens.push(token.id);
        let finish = match () {
            () if self.stop_ids.contains(&token.id) => Some(Finish::Stop),
            () if self.tokens.len() >= self.limit => Some(self.full.clone()),
            () => None,
        };
        Event { sequence, token: Some(token), finish }
    }
}
