//! What goes into an engine and what comes out of it: its sizes, the events of a step, and what it counts.

use crate::sampling::Sampled;
use ops::KvFormat;

/// The sizes of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Longest sequence in tokens, prompt and output; `None` is the model's window, or [`EngineOptions::CONTEXT`] if that
    /// is shorter.
    pub context: Option<usize>,
    /// Sequences that run side by side; further ones wait.
    pub parallel: usize,
    /// Most tokens of a forward pass; at least one for each of the sequences side by side.
    pub step_tokens: usize,
    /// Tokens of a page of keys and values, a multiple of 16. One as long as the context makes the cache of a single
    /// sequence flat.
    pub page_tokens: usize,
    /// Pages of keys and values, at least as many as the longest sequence takes; `None` is enough for all sequences side
    /// by side, and one more for each, to copy a shared one. Memory is taken as pages are first used.
    pub pages: Option<usize>,
    /// How keys and values are stored.
    pub kv: KvFormat,
    /// Whether keys, values and states stay when their sequence has ended, for those that begin like it.
    pub reuse: bool,
    /// Whose next tokens are guessed.
    pub speculate: Speculate,
    /// Recurrent states that are kept for sequences that begin alike, in models that have such states; `None` is what
    /// fits into [`EngineOptions::SNAPSHOT_BYTES`].
    pub snapshots: Option<usize>,
}

impl EngineOptions {
    /// Context where none is asked for and the model could take more.
    pub const CONTEXT: usize = 8192;
    /// What snapshots of recurrent states take at most, unless their number is asked for.
    pub const SNAPSHOT_BYTES: usize = 512 << 20;
    /// The most snapshots, unless their number is asked for.
    pub const SNAPSHOTS: usize = 64;
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            context: None,
            parallel: 8,
            step_tokens: 256,
            page_tokens: 256,
            pages: None,
            kv: KvFormat::F16,
            reuse: true,
            speculate: Speculate::default(),
            snapshots: None,
        }
    }
}

/// Whose next tokens are guessed, from what followed their last tokens earlier or by a smaller model, and checked side by
/// side. It changes no greedy text at precision exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speculate {
    /// Nobody's.
    Never,
    /// Those of sequences that take the most likely token, where it pays: as often as guesses were right lately, against
    /// what further rows of a step are measured to cost.
    #[default]
    Greedy,
    /// Everybody's, where it pays.
    All,
    /// Everybody's, whatever it costs.
    Always,
}

/// Names a sequence of an engine. Later ones are larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(pub(super) u64);

/// What happened to a sequence in a step. A step may give a sequence several, in the order of its tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Which sequence.
    pub sequence: SequenceId,
    /// Its next token, unless it ended without one.
    pub token: Option<Sampled>,
    /// Why it ended, if it did; no further event follows then.
    pub finish: Option<Finish>,
    /// What was counted of it so far, this token included.
    pub counts: Counts,
}

/// Why a sequence ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// A token that ends the text: the event's token, which is not part of the text.
    Stop,
    /// The grammar's text is whole: the event's token is part of it.
    Complete,
    /// As many tokens as asked for.
    Length,
    /// The context is full.
    Context,
    /// It cannot go on: its logits are not finite, or its filters leave no token.
    Failed(String),
}

/// What is counted of a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tokens of its prompt.
    pub prompt: usize,
    /// Tokens of its prompt that others had computed already.
    pub cached: usize,
    /// Tokens that it was given.
    pub generated: usize,
    /// Tokens that were guessed and checked.
    pub drafted: usize,
    /// Guesses that were right.
    pub accepted: usize,
    /// How often it made room for an older one.
    pub preemptions: usize,
}

/// What is counted of an engine: the first fields are as of now, the others since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Sequences that run.
    pub running: usize,
    /// Sequences that wait.
    pub waiting: usize,
    /// Pages of keys and values.
    pub pages: usize,
    /// Pages that running sequences hold.
    pub pages_used: usize,
    /// Pages that hold what a sequence left, for those that begin like it.
    pub pages_cached: usize,
    /// Recurrent states kept for sequences that begin alike.
    pub snapshots: usize,
    /// Forward passes.
    pub steps: u64,
    /// Tokens that went through a forward pass.
    pub computed: u64,
    /// Sequences that began to run.
    pub started: u64,
    /// Sequences whose beginning was there already.
    pub hits: u64,
    /// Tokens of their prompts.
    pub prompt: u64,
    /// Tokens of their prompts that were there already.
    pub cached: u64,
    /// Tokens given to sequences.
    pub generated: u64,
    /// Tokens that were guessed and checked.
    pub drafted: u64,
    /// Guesses that were right.
    pub accepted: u64,
    /// Pages that were given away although they held what a sequence left.
    pub evictions: u64,
    /// Sequences that made room for an older one, and were computed again.
    pub preemptions: u64,
}

impl Totals {
    /// Pages that hold nothing.
    pub fn pages_free(&self) -> usize {
        self.pages - self.pages_used - self.pages_cached
    }
}
