//! The stages of sampling: each takes a row of candidates and leaves fewer, or changes their logits.
//!
//! Results are those of Hugging Face's logits processors in float32 (the source of the order among filters, of what
//! happens to ties, and of keeping at least one token). A whole vocabulary is not sorted: a filter finds roughly where its
//! border lies in one pass, and then sorts what is there.

use super::History;
use super::numeric::{exp, max, softmax, sum_exp};
use super::select::{Item, border, border_place, largest, pick, place};
use super::ties::ascending;
use std::borrow::Cow;
use std::cmp::Ordering;

/// One step of the chain, with its parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stage<'a> {
    /// Leaves the tokens whose bit is set: token `i` is bit `i % 32` of word `i / 32`. Ids past the end are not allowed.
    Mask(&'a [u32]),
    /// Adds to single logits.
    Bias(&'a [(u32, f32)]),
    /// Divides positive and multiplies negative logits of every id in the history, once.
    Repetition(f64),
    /// Subtracts `frequency · count + presence` from every id in the generated part of the history.
    Penalties {
        /// Once for each id.
        presence: f64,
        /// For each occurrence.
        frequency: f64,
    },
    /// Divides the logits.
    Temperature(f64),
    /// Leaves the k largest, and those equal to the last of them.
    TopK(usize),
    /// Drops the least likely tokens as long as their probability together is at most 1 − p, all but one. Which of equals
    /// at the border go is arbitrary, but the same as in the reference.
    TopP(f64),
    /// Leaves tokens with at least this share of the largest probability.
    MinP(f64),
    /// Leaves the tokens whose information is nearest to the entropy, up to this mass, and those as near as the last.
    TypicalP(f64),
}

/// A row of logits of which some may be filtered out.
pub struct Candidates<'a> {
    logits: &'a mut [f32],
    /// What the filters left; None as long as that is everything that is not −∞.
    alive: Option<Vec<u32>>,
}

impl<'a> Candidates<'a> {
    /// All tokens of a row of logits `[vocab]`, which must hold no NaN and no +∞. The stages change it in place.
    pub fn new(logits: &'a mut [f32]) -> Candidates<'a> {
        Candidates { logits, alive: None }
    }

    /// Runs a stage. Ids outside of the row are ignored.
    pub fn apply(&mut self, stage: &Stage, history: History) {
        match *stage {
            Stage::Mask(allowed) => self.mask(allowed),
            Stage::Bias(bias) => self.bias(bias),
            Stage::Repetition(penalty) => self.repetition(penalty as f32, history),
            Stage::Penalties { presence, frequency } => self.penalties(presence as f32, frequency as f32, history),
            Stage::Temperature(temperature) => self.temperature(temperature as f32),
            Stage::TopK(k) => self.top_k(k),
            Stage::TopP(p) => self.top_p(p),
            Stage::MinP(p) => self.min_p(p as f32),
            Stage::TypicalP(p) => self.typical_p(p as f32),
        }
    }

    /// The row `[vocab]` with −∞ wherever a token was filtered out.
    pub fn row(&self) -> Vec<f32> {
        let Some(alive) = &self.alive else { return self.logits.to_vec() };
        let mut row = vec![f32::NEG_INFINITY; self.logits.len()];
        alive.iter().for_each(|&id| row[id as usize] = self.logits[id as usize]);
        row
    }

    /// The probabilities `[vocab]`: 0 for what was filtered out.
    pub(super) fn odds(&self) -> Vec<f32> {
        let row = self.row();
        let largest = max(&row);
        if largest == f32::NEG_INFINITY {
            return vec![0.0; row.len()];
        }
        let mut odds = softmax(&row, largest);
        odds.iter_mut().zip(&row).filter(|(_, x)| **x == f32::NEG_INFINITY).for_each(|(odds, _)| *odds = 0.0);
        odds
    }

    /// The most likely token, the lowest id among equals; None if nothing is left.
    pub fn best(&self) -> Option<u32> {
        let values = self.values();
        let best = Some(max(&values)).filter(|&best| best > f32::NEG_INFINITY)?;
        match &self.alive {
            None => values.iter().position(|&x| x == best).map(|id| id as u32),
            Some(alive) => alive.iter().zip(&*values).filter(|&(_, &x)| x == best).map(|(&id, _)| id).min(),
        }
    }

    /// The token at `u` in [0, 1) of the cumulated probabilities; None if nothing is left. Overwrites the logits.
    pub(super) fn draw(self, u: f64) -> Option<u32> {
        match &self.alive {
            None => pick(self.logits, u).map(|i| i as u32),
            Some(alive) => pick(&mut self.values().into_owned(), u).map(|i| alive[i]),
        }
    }

    fn mask(&mut self, allowed: &[u32]) {
        for (word, block) in self.logits.chunks_mut(32).enumerate() {
            match allowed.get(word).copied().unwrap_or(0) {
                u32::MAX => {}
                0 => block.fill(f32::NEG_INFINITY),
                bits => {
                    for (bit, x) in block.iter_mut().enumerate() {
                        if bits >> bit & 1 == 0 {
                            *x = f32::NEG_INFINITY;
                        }
                    }
                }
            }
        }
    }

    fn bias(&mut self, bias: &[(u32, f32)]) {
        for &(id, bias) in bias {
            if let Some(x) = self.logits.get_mut(id as usize) {
                *x += bias;
            }
        }
    }

    fn repetition(&mut self, penalty: f32, history: History) {
        let mut seen = vec![0u64; self.logits.len().div_ceil(64)];
        for &id in history.prompt.iter().chain(history.generated) {
            let Some(x) = self.logits.get_mut(id as usize) else { continue };
            let (word, bit) = (&mut seen[id as usize / 64], 1 << (id % 64));
            if *word & bit == 0 {
                *word |= bit;
                *x = if *x < 0.0 { *x * penalty } else { *x / penalty };
            }
        }
    }

    fn penalties(&mut self, presence: f32, frequency: f32, history: History) {
        let mut ids = history.generated.to_vec();
        ids.sort_unstable();
        for same in ids.chunk_by(|a, b| a == b) {
            if let Some(x) = self.logits.get_mut(same[0] as usize) {
                *x = *x - frequency * same.len() as f32 - presence;
            }
        }
    }

    fn temperature(&mut self, temperature: f32) {
        match &self.alive {
            None => self.logits.iter_mut().for_each(|x| *x /= temperature),
            Some(alive) => alive.iter().for_each(|&id| self.logits[id as usize] /= temperature),
        }
    }

    fn top_k(&mut self, k: usize) {
        let kept = largest(&self.values(), k);
        self.keep(kept.into_iter().map(|(i, _)| i));
    }

    fn top_p(&mut self, p: f64) {
        let dropped = (1.0 - p) as f32;
        let pass = |cumulative| cumulative <= dropped;
        let values = self.values();
        let weights = softmax(&values, max(&values));
        let (border_at, below) = border_place(&weights, &weights, pass);
        let mut kept = Vec::new();
        let mut items = Vec::new();
        for (index, (&weight, &key)) in (0u32..).zip(weights.iter().zip(&*values)) {
            match place(weight).cmp(&border_at) {
                Ordering::Less => {}
                Ordering::Equal => items.push(Item { key, weight, index }),
                Ordering::Greater => kept.push(index),
            }
        }
        let border = border(&mut items, below, pass);
        let (dropped, rest) = items.split_at(border);
        kept.extend(rest.iter().map(|item| item.index));
        // Equals on both sides of the border.
        if rest.first().is_some_and(|item| dropped.iter().any(|other| other.key == item.key)) {
            self.alive = Some(ascending(&self.row()).split_off(self.logits.len() - kept.len()));
        } else {
            self.keep(kept);
        }
    }

    fn min_p(&mut self, p: f32) {
        let values = self.values();
        let max = max(&values);
        // A rough bound first, so that few candidates cost an exponential.
        let bound = max + p.ln() - 1e-2;
        let kept = (0u32..).zip(&*values).filter(|&(_, &x)| x >= bound && exp(x - max) >= p);
        let kept: Vec<u32> = kept.map(|(i, _)| i).collect();
        self.keep(kept);
    }

    fn typical_p(&mut self, mass: f32) {
        let pass = |cumulative| cumulative < mass;
        let values = self.values();
        let max = max(&values);
        let weights = softmax(&values, max);
        let log_total = sum_exp(&values, max).ln() as f32;
        let log = |x: f32| x - max - log_total;
        let information = weights.iter().zip(&*values).filter(|&(&weight, _)| weight > 0.0);
        let entropy = -information.map(|(&weight, &x)| f64::from(weight * log(x))).sum::<f64>() as f32;
        let keys: Vec<f32> = values.iter().map(|&x| (-log(x) - entropy).abs()).collect();
        let (border_at, below) = border_place(&keys, &weights, pass);
        let at_border = (0u32..).zip(keys.iter().zip(&weights)).filter(|&(_, (&key, _))| place(key) == border_at);
        let mut items: Vec<Item> = at_border.map(|(index, (&key, &weight))| Item { key, weight, index }).collect();
        let border = border(&mut items, below, pass);
        let limit = items.get(border).map_or(f32::INFINITY, |item| item.key);
        let kept: Vec<u32> = (0u32..).zip(keys).filter(|&(_, key)| key <= limit).map(|(i, _)| i).collect();
        self.keep(kept);
    }

    /// The candidates' logits.
    fn values(&self) -> Cow<'_, [f32]> {
        match &self.alive {
            None => Cow::Borrowed(self.logits),
            Some(alive) => alive.iter().map(|&id| self.logits[id as usize]).collect(),
        }
    }

    /// Keeps the candidates at these indices among [`Candidates::values`].
    fn keep(&mut self, indices: impl IntoIterator<Item = u32>) {
        let indices = indices.into_iter();
        self.alive = Some(match &self.alive {
            None => indices.collect(),
            Some(alive) => indices.map(|i| alive[i as usize]).collect(),
        });
    }
}
