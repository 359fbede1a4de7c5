//! The sampler of one sequence: its parameters in the order of the stages, and the draw.

use super::numeric::{max, not_finite, sum, sum_exp};
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

/// A guess at the next token, drawn from somebody else's distribution.
#[derive(Clone, Copy, Debug)]
pub struct Guess<'a> {
    /// The token.
    pub id: u32,
    /// The probabilities that it was drawn from, `[vocab]`.
    pub odds: &'a [f32],
}

/// Chooses the tokens of one sequence.
#[derive(Clone, Debug)]
pub struct Sampler {
    params: SamplingParams,
    vocab: usize,
    seed: u64,
}

/// Random sequences of their own, beside that of the draws.
const GUESSES: u64 = 0x6775_6573_7365_7321;
const VERDICTS: u64 = 0x7665_7264_6963_7473;

/// The token at `u` in [0, 1) of the cumulated probabilities, which need not sum to 1; None if all are 0.
fn pick_odds(odds: &[f32], u: f64) -> Option<u32> {
    let mut left = u * sum(odds);
    let mut last = None;
    for (id, &odds) in (0..).zip(odds).filter(|&(_, &odds)| odds > 0.0) {
        last = Some(id);
        left -= f64::from(odds);
        if left < 0.0 {
            break;
        }
    }
    last
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
        self.sample_guessed(logits, history, mask, None)
    }

    /// As [`Sampler::sample`], but keeps the guess as often as it can: the guess is right if its token is what comes out.
    /// Tokens come out as likely as without it (rejection sampling: Leviathan et al. 2023, "Fast Inference from
    /// Transformers via Speculative Decoding"), though others for the same seed.
    ///
    /// # Errors
    /// As [`Sampler::sample`].
    pub fn sample_guessed(
        &mut self,
        logits: &mut [f32],
        history: History,
        mask: Option<&[u32]>,
        guess: Option<Guess<'_>>,
    ) -> Result<Sampled, SamplingError> {
        if logits.len() != self.vocab {
            return Err(SamplingError::WrongLength { got: logits.len(), vocab: self.vocab });
        }
        if let Some(id) = not_finite(logits) {
            return Err(SamplingError::NotFinite { id, value: logits[id] });
        }
        let Some(count) = self.params.logprobs else {
            let id = self.choose(logits, history, mask, guess)?;
            return Ok(Sampled { id, logprob: None, top: Vec::new() });
        };
        let raw = logits.to_vec();
        let id = self.choose(logits, history, mask, guess)?;
        let largest_logit = max(&raw);
        let log_total = sum_exp(&raw, largest_logit).ln();
        let logprob = |x: f32| (f64::from(x) - f64::from(largest_logit) - log_total) as f32;
        let mut top = largest(&raw, count);
        top.sort_by(|a, b| b.1.total_cmp(&a.1));
        top.truncate(count);
        top.iter_mut().for_each(|(_, x)| *x = logprob(*x));
        Ok(Sampled { id, logprob: Some(logprob(raw[id as usize])), top })
    }

    /// Draws a guess for a sequence of this sampler from another model's logits, which it overwrites, and gives the
    /// probabilities it was drawn from; none if the most likely token is taken, and none is left if there is no guess.
    pub fn guess(&self, logits: &mut [f32], history: History) -> Option<(u32, Vec<f32>)> {
        if logits.len() != self.vocab || not_finite(logits).is_some() {
            return None;
        }
        let candidates = self.filtered(logits, history, None);
        if self.params.is_greedy() {
            return candidates.best().map(|id| (id, Vec::new()));
        }
        let odds = candidates.odds();
        let place = history.generated.len() as u64;
        let id = pick_odds(&odds, Random::new(self.seed ^ GUESSES).at(place))?;
        Some((id, odds))
    }

    fn choose(
        &self,
        logits: &mut [f32],
        history: History,
        mask: Option<&[u32]>,
        guess: Option<Guess<'_>>,
    ) -> Result<u32, SamplingError> {
        let nothing = SamplingError::NothingLeft { vocab: self.vocab };
        let place = history.generated.len() as u64;
        let draw = Random::new(self.seed).at(place);
        let candidates = self.filtered(logits, history, mask);
        if self.params.is_greedy() {
            return candidates.best().ok_or(nothing);
        }
        let Some(Guess { id, odds: theirs }) = guess else { return candidates.draw(draw).ok_or(nothing) };
        let mut odds = candidates.odds();
        let keep = f64::from(odds[id as usize]) / f64::from(theirs[id as usize]);
        if Random::new(self.seed ^ VERDICTS).at(place) < keep {
            return Ok(id);
        }
        // The share of each token that guesses do not reach.
        odds.iter_mut().zip(theirs).for_each(|(ours, theirs)| *ours = (*ours - theirs).max(0.0));
        match pick_odds(&odds, draw) {
            Some(id) => Ok(id),
            None => candidates.draw(draw).ok_or(nothing), // the two are equal but for rounding
        }
    }

    /// What the stages leave.
    fn filtered<'a>(&self, logits: &'a mut [f32], history: History, mask: Option<&[u32]>) -> Candidates<'a> {
        let p = &self.params;
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
            return candidates;
        }
        run(p.temperature != 1.0, Stage::Temperature(p.temperature));
        run(p.top_k > 0 && p.top_k < self.vocab, Stage::TopK(p.top_k));
        run(p.top_p < 1.0, Stage::TopP(p.top_p));
        run(p.min_p > 0.0, Stage::MinP(p.min_p));
        run(p.typical_p < 1.0, Stage::TypicalP(p.typical_p));
        candidates
    }
}
