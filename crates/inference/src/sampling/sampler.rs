//! The sampler of one sequence: its parameters in the order of the stages, and the draw.

use super::numeric::{max, not_finite, sum_exp};
use super::random::{Random, random_seed};
use super::select::largest;
use super::{Candidates, SamplingError, SamplingParams, Stage};

/// The tokens before the one to choose.
#[derive(Clone, Copy, Debug, Default)]
pub struct History<'a> {
    /// Ids of the prompt.
    pub prompt: &'a [u32],
    /// Ids generated so far. Their number is the position of the draw in the random sequence.
    pub generated: &'a [u32],
}

/// A chosen token.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// Its id.
    pub id: u32,
    /// Natural log of its probability under the model itself (no stage applied); None unless asked for.
    pub logprob: Option<f32>,
    /// The most likely tokens under the model itself with their log-probabilities, best first, the lower id first among
    /// equals; as many as asked for.
    pub top: Vec<(u32, f32)>,
}

/// Chooses the tokens of one sequence.
#[derive(Clone, Debug)]
pub struct Sampler {
    params: SamplingParams,
    vocab: usize,
    seed: u64,
}

impl Sampler {
    /// A sampler for rows of `vocab` logits.
    ///
    /// # Errors
    /// What [`SamplingParams::check`] and [`SamplingParams::check_ids`] say.
    pub fn new(params: SamplingParams, vocab: usize) -> Result<Sampler, SamplingError> {
        params.check()?;
        params.check_ids(vocab)?;
        let seed = params.seed.unwrap_or_else(random_seed);
        Ok(Sampler { params, vocab, seed })
    }

    /// Its parameters.
    pub fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// The seed in use: the one asked for, or the random one that was taken.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Chooses the next token from `logits` `[vocab]`, which it overwrites. `mask` has a bit for each allowed token (see
    /// [`Stage::Mask`]).
    ///
    /// # Errors
    /// [`SamplingError::WrongLength`], [`SamplingError::NotFinite`] or [`SamplingError::NothingLeft`].
    pub fn sample(
        &mut self,
        logits: &mut [f32],
        history: History,
        mask: Option<&[u32]>,
    ) -> Result<Sampled, SamplingError> {
        if logits.len() != self.vocab {
            return Err(SamplingError::WrongLength { got: logits.len(), vocab: self.vocab });
        }
        if let Some(id) = not_finite(logits) {
            return Err(SamplingError::NotFinite { id, value: logits[id] });
        }
        let Some(count) = self.params.logprobs else {
            let id = self.choose(logits, history, mask)?;
            return Ok(Sampled { id, logprob: None, top: Vec::new() });
        };
        let raw = logits.to_vec();
        let id = self.choose(logits, history, mask)?;
        let largest_logit = max(&raw);
        let log_total = sum_exp(&raw, largest_logit).ln();
        let logprob = |x: f32| (f64::from(x) - f64::from(largest_logit) - log_total) as f32;
        let mut top = largest(&raw, count);
        top.sort_by(|a, b| b.1.total_cmp(&a.1));
        top.truncate(count);
        top.iter_mut().for_each(|(_, x)| *x = logprob(*x));
        Ok(Sampled { id, logprob: Some(logprob(raw[id as usize])), top })
    }

    fn choose(&self, logits: &mut [f32], history: History, mask: Option<&[u32]>) -> Result<u32, SamplingError> {
        let p = &self.params;
        let nothing = SamplingError::NothingLeft { vocab: self.vocab };
        let mut candidates = Candidates::new(logits);
        let mut run = |on: bool, stage: Stage| {
            if on {
                candidates.apply(&stage, history);
            }
        };
        run(mask.is_some(), Stage::Mask(mask.unwrap_or_default()));
        run(!p.logit_bias.is_empty(), Stage::Bias(&p.logit_bias));
        run(p.repetition_penalty != 1.0, Stage::Repetition(p.repetition_penalty));
        let (presence, frequency) = (p.presence_penalty, p.frequency_penalty);
        run(presence != 0.0 || frequency != 0.0, Stage::Penalties { presence, frequency });
        if p.is_greedy() {
            return candidates.best().ok_or(nothing);
        }
        run(p.temperature != 1.0, Stage::Temperature(p.temperature));
        run(p.top_k > 0 && p.top_k < self.vocab, Stage::TopK(p.top_k));
        run(p.top_p < 1.0, Stage::TopP(p.top_p));
        run(p.min_p > 0.0, Stage::MinP(p.min_p));
        run(p.typical_p < 1.0, Stage::TypicalP(p.typical_p));
        candidates.draw(Random::new(self.seed).at(history.generated.len() as u64)).ok_or(nothing)
    }
}
