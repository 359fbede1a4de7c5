//! The ragged encode step: sequences of ids go into one forward pass without padding, and come out as one row each.

use crate::plan::plan;
use crate::pooling::Pooling;
use models::{Batch, Classifier, Forward, Loaded, ModelError, Shape};
use ops::{Act, Ops, OpsError};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Why sequences could not be encoded.
#[derive(Debug, thiserror::Error)]
pub enum InferenceError {
    /// The model could not be loaded, or does not take this input.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The executor failed.
    #[error(transparent)]
    Ops(#[from] OpsError),
    /// The model is a trunk only.
    #[error(
        "{architecture} checkpoint without a classification head: it gives hidden states, not scores; use a cross-encoder"
    )]
    NoClassifier {
        /// Family of the model.
        architecture: &'static str,
    },
    /// The model is a trunk only.
    #[error("{architecture} checkpoint without a language model's head: it gives hidden states, not text")]
    NoHead {
        /// Family of the model.
        architecture: &'static str,
    },
    /// A context that the model does not take.
    #[error("a context of {asked} tokens was asked for, expected 1 to {window}, the model's window")]
    Context {
        /// Asked for.
        asked: usize,
        /// The model's.
        window: usize,
    },
    /// Too few pages of keys and values.
    #[error(
        "{pages} pages of {page_tokens} tokens do not hold a sequence of {context}, expected at least {needed}: give more pages, or a shorter context (--ctx)"
    )]
    Pages {
        /// Asked for.
        pages: usize,
        /// What the longest sequence takes.
        needed: usize,
        /// Tokens of a page.
        page_tokens: usize,
        /// The longest sequence.
        context: usize,
    },
    /// A model that cannot guess for another.
    #[error(
        "the draft model has {got} {what}, expected {expected} as the model it guesses for: take a smaller model of the same family"
    )]
    Draft {
        /// What there is another number of.
        what: &'static str,
        /// How many it has.
        got: usize,
        /// How many are needed.
        expected: usize,
    },
    /// A model that cannot guess for another.
    #[error("token {id} of the draft model is {got:?}, expected {expected:?}: take a smaller model of the same family")]
    DraftWords {
        /// The first token that differs.
        id: u32,
        /// What it is to the draft model.
        got: String,
        /// What it is to the model it guesses for.
        expected: String,
    },
    /// Nothing to go on from.
    #[error("the prompt has no tokens: give it some text")]
    EmptyPrompt,
    /// A prompt that leaves no room.
    #[error(
        "the prompt has {tokens} tokens, but the context is {context}, and one more must fit: shorten it, or raise the context (--ctx)"
    )]
    PromptTooLong {
        /// Its tokens.
        tokens: usize,
        /// The most that fit, output included.
        context: usize,
    },
    /// A model that is not made for conversations.
    #[error("the model has no chat template: use generate for a raw continuation, or an instruct model for a chat")]
    NoTemplate,
    /// A file of weights only.
    #[error("{} holds no tokenizer: give the folder that it lies in", path.display())]
    NoTokenizer {
        /// The file.
        path: std::path::PathBuf,
    },
    /// A text cannot go on.
    #[error("generation failed: {reason}")]
    Failed {
        /// What sampling said.
        reason: String,
    },
    /// A text that does not fill one chunk.
    #[error("the text has {tokens} tokens, but one chunk has {context}: give more text, or a shorter context (--ctx)")]
    TextTooShort {
        /// Its tokens.
        tokens: usize,
        /// Tokens of a chunk.
        context: usize,
    },
    /// Sampling parameters out of range, or a settings file that is wrong.
    #[error(transparent)]
    Sampling(#[from] crate::sampling::SamplingError),
    /// The tokenizer could not be loaded, or a text not be encoded.
    #[error(transparent)]
    Tokenizer(#[from] tokenizer::TokenizerError),
    /// A grammar is refused, or the vocabulary cannot be held to one.
    #[error(transparent)]
    Grammar(#[from] grammar::GrammarError),
    /// A result is NaN or infinite.
    #[error(
        "sequence {sequence} gave a value that is not finite: its activations overflow float32, or the weights hold NaN or infinity"
    )]
    NotFinite {
        /// Index of the sequence in the call.
        sequence: usize,
    },
}

/// The tokens of one input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// Token ids, special tokens included.
    pub ids: Vec<u32>,
    /// Token types, or none if all are 0.
    pub types: Vec<u32>,
}

impl From<Vec<u32>> for Sequence {
    fn from(ids: Vec<u32>) -> Sequence {
        Sequence { ids, types: Vec::new() }
    }
}

/// Passes that each thread has before results are handed out: enough that none waits long for the others.
const PASSES_PER_THREAD: usize = 8;

/// What turns hidden states `[tokens, hidden]` into results on the executor: acts of one row a sequence (or a token).
/// The results of several acts are concatenated, feature by feature.
type Tail<'a> = &'a (dyn Fn(&Forward, Act) -> Vec<Act> + Sync);

/// A loaded encoder with the executor that holds its weights.
pub struct Encoder {
    loaded: Loaded,
    ops: Arc<dyn Ops>,
}

impl Encoder {
    /// Tokens of a forward pass by default: its activations stay in the last-level cache, and are enough to keep every
    /// thread busy.
    pub const TOKENS_PER_PASS: usize = 1024;
    /// The same where each thread has passes of its own: what stays in a core's cache.
    pub const TOKENS_APART: usize = 256;

    /// Loads the model of a directory.
    pub fn open(dir: impl AsRef<Path>, ops: Arc<dyn Ops>) -> Result<Encoder, InferenceError> {
        Ok(Encoder { loaded: models::load_trunk(dir, &*ops)?, ops })
    }

    /// The model's sizes.
    pub fn shape(&self) -> &Shape {
        self.loaded.model.shape()
    }

    /// The model with its configuration and head.
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// The executor.
    pub fn ops(&self) -> &Arc<dyn Ops> {
        &self.ops
    }

    /// Hidden states of every token, one row-major `[tokens, hidden]` for each sequence.
    pub fn hidden(&self, sequences: &[Sequence]) -> Result<Vec<Vec<f32>>, InferenceError> {
        let values = self.pass(&sequences.iter().collect::<Vec<_>>(), &|_, hidden| vec![hidden])?;
        let mut rest = values.as_slice();
        let mut take = |s: &Sequence| {
            let (own, others) = rest.split_at(s.ids.len() * self.shape().hidden);
            rest = others;
            own.to_vec()
        };
        Ok(sequences.iter().map(&mut take).collect())
    }

    /// One vector a sequence: its hidden states pooled in each of `modes`, then `stages` on the executor; the acts that
    /// these give are joined. The first `skip` tokens of each sequence take no part in the pooling. Results are handed
    /// to `done` by the sequence's index, in the order of the passes; `done` may stop the rest.
    pub fn embed(
        &self,
        sequences: &[Sequence],
        modes: &[Pooling],
        skip: usize,
        stages: &(dyn Fn(&Forward, Vec<Act>) -> Vec<Act> + Sync),
        done: &mut dyn FnMut(usize, &[f32]) -> ControlFlow<()>,
    ) -> Result<(), InferenceError> {
        let tail = |cx: &Forward, x: Act| stages(cx, modes.iter().map(|mode| mode.apply(cx, &x, skip)).collect());
        self.each(sequences, &tail, done)
    }

    /// Logits `[labels]` of each sequence; `done` as in [`Encoder::embed`].
    pub fn classify(
        &self,
        sequences: &[Sequence],
        done: &mut dyn FnMut(usize, &[f32]) -> ControlFlow<()>,
    ) -> Result<(), InferenceError> {
        let head: &Classifier = self
            .loaded
            .classifier
            .as_ref()
            .ok_or(InferenceError::NoClassifier { architecture: self.shape().architecture })?;
        self.each(sequences, &|cx, hidden| vec![head.forward(cx, &hidden)], done)
    }

    /// Runs all sequences in as few passes as the token budget allows: one after another on all threads, or, where there are
    /// many, a pass on each thread, whose activations then stay in its own cache.
    fn each(
        &self,
        sequences: &[Sequence],
        tail: Tail,
        done: &mut dyn FnMut(usize, &[f32]) -> ControlFlow<()>,
    ) -> Result<(), InferenceError> {
        let lengths: Vec<usize> = sequences.iter().map(|s| s.ids.len()).collect();
        let threads = self.ops.threads();
        let apart = threads > 1 && lengths.iter().sum::<usize>() >= 2 * threads * Self::TOKENS_APART;
        let batches = plan(&lengths, if apart { Self::TOKENS_APART } else { Self::TOKENS_PER_PASS });
        let run = |batch: &[usize]| self.pass(&batch.iter().map(|&i| &sequences[i]).collect::<Vec<_>>(), tail);
        for wave in batches.chunks(if apart { PASSES_PER_THREAD * threads } else { 1 }) {
            let results: Vec<OnceLock<_>> = wave.iter().map(|_| OnceLock::new()).collect();
            self.ops.host_tasks(wave.len(), &|i| {
                let _ = results[i].set(run(&wave[i])); // each is set once
            });
            for (batch, values) in wave.iter().zip(results) {
                let values = values.into_inner().expect("each task ran")?;
                for (&sequence, row) in batch.iter().zip(values.chunks_exact(values.len() / batch.len())) {
                    if !row.iter().all(|v| v.is_finite()) {
                        return Err(InferenceError::NotFinite { sequence });
                    }
                    if done(sequence, row).is_break() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// One forward pass. The rows of the tail's acts are joined.
    fn pass(&self, sequences: &[&Sequence], tail: Tail) -> Result<Vec<f32>, InferenceError> {
        let mut batch = Batch::default();
        for sequence in sequences {
            batch.push(&sequence.ids, &sequence.types)?;
        }
        self.shape().check(&batch)?;
        let cx = Forward::new(&*self.ops, &batch);
        let acts = tail(&cx, self.loaded.model.forward(&cx));
        let mut parts = Vec::with_capacity(acts.len());
        for act in &acts {
            parts.push((act.cols(), self.ops.read(act)?));
        }
        if let [(_, values)] = &mut parts[..] {
            return Ok(std::mem::take(values));
        }
        let rows = acts.first().map_or(0, Act::rows);
        Ok((0..rows).flat_map(|r| parts.iter().flat_map(move |(cols, v)| &v[r * cols..][..*cols])).copied().collect())
    }
}
