//! The stages of sampling: each takes a row of candidates and leaves fewer, or changes their logits.
//!
//! Results are those of Hugging Face's logits processors in float32 (the source of the order among filters, of what
//! happens to ties, and of keeping at least one token). A whole vocabulary is never sorted: a filter first drops what
//! cannot survive in one pass, then halves the rest until the border is found.

use super::History;
use super::numeric::{exp, max, sum, sum_exp};
use super::ties::ascending;

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

/// A candidate on its way through a filter.
#[derive(Clone, Copy)]
struct Item {
    key: f32,
    weight: f32,
    id: u32,
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

    /// The most likely token, the lowest id among equals; None if nothing is left.
    pub fn best(&self) -> Option<u32> {
        let best = self.max();
        if best == f32::NEG_INFINITY {
            return None;
        }
        match &self.alive {
            None => self.logits.iter().position(|&x| x == best).map(|id| id as u32),
            Some(alive) => alive.iter().copied().filter(|&id| self.logits[id as usize] == best).min(),
        }
    }

    /// The token at `u` in [0, 1) of the cumulated probabilities; None if nothing is left. Overwrites the logits.
    pub(super) fn draw(self, u: f64) -> Option<u32> {
        match self.alive {
            None => pick(self.logits, u).map(|i| i as u32),
            Some(alive) => {
                let mut logits: Vec<f32> = alive.iter().map(|&id| self.logits[id as usize]).collect();
                pick(&mut logits, u).map(|i| alive[i])
            }
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
        let kept = match &self.alive {
            None => largest(self.logits, k),
            Some(alive) => {
                let logits: Vec<f32> = alive.iter().map(|&id| self.logits[id as usize]).collect();
                largest(&logits, k).into_iter().map(|(i, x)| (alive[i as usize], x)).collect()
            }
        };
        self.alive = Some(kept.into_iter().map(|(id, _)| id).collect());
    }

    fn top_p(&mut self, p: f64) {
        let dropped = (1.0 - p) as f32;
        let (max, total) = self.max_and_total();
        // Tokens below this cannot reach 1 − p, even all together; a little less, so that the most likely one is above.
        let floor = 0.99 * dropped / self.len() as f32;
        let mut below = 0.0;
        let mut items = Vec::new();
        self.each(|id, x| {
            let weight = (f64::from(exp(x - max)) / total) as f32;
            if weight < floor {
                below += f64::from(weight);
            } else if x > f32::NEG_INFINITY {
                items.push(Item { key: x, weight, id });
            }
        });
        let border = border(&mut items, below, |cumulative| cumulative <= dropped);
        let (dropped, kept) = items.split_at(border);
        let border_is_unclear = kept.first().is_some_and(|item| dropped.iter().any(|other| other.key == item.key));
        self.alive = Some(match border_is_unclear {
            true => ascending(&self.row()).split_off(self.logits.len() - kept.len()),
            false => kept.iter().map(|item| item.id).collect(),
        });
    }

    fn min_p(&mut self, p: f32) {
        let max = self.max();
        // A rough bound first, so that few candidates cost an exponential.
        let bound = max + p.ln() - 1e-2;
        let mut kept = Vec::new();
        self.each(|id, x| {
            if x >= bound && exp(x - max) >= p {
                kept.push(id);
            }
        });
        self.alive = Some(kept);
    }

    fn typical_p(&mut self, mass: f32) {
        let (max, total) = self.max_and_total();
        let log_total = total.ln() as f32;
        let mut items = Vec::new();
        let mut entropy = 0.0;
        self.each(|id, x| {
            if x > f32::NEG_INFINITY {
                let log = x - max - log_total;
                let weight = (f64::from(exp(x - max)) / total) as f32;
                entropy -= f64::from(log) * f64::from(weight);
                items.push(Item { key: log, weight, id });
            }
        });
        let entropy = entropy as f32;
        items.iter_mut().for_each(|item| item.key = (-item.key - entropy).abs());
        let border = border(&mut items, 0.0, |cumulative| cumulative < mass);
        if let Some(limit) = items.get(border).map(|item| item.key) {
            items.retain(|item| item.key <= limit);
        }
        self.alive = Some(items.into_iter().map(|item| item.id).collect());
    }

    fn len(&self) -> usize {
        self.alive.as_ref().map_or(self.logits.len(), Vec::len)
    }

    fn each(&self, mut visit: impl FnMut(u32, f32)) {
        match &self.alive {
            None => self.logits.iter().enumerate().for_each(|(id, &x)| visit(id as u32, x)),
            Some(alive) => alive.iter().for_each(|&id| visit(id, self.logits[id as usize])),
        }
    }

    fn max(&self) -> f32 {
        match &self.alive {
            None => max(self.logits),
            Some(alive) => alive.iter().map(|&id| self.logits[id as usize]).fold(f32::NEG_INFINITY, f32::max),
        }
    }

    /// The largest logit, and the sum of exp(logit − largest).
    fn max_and_total(&self) -> (f32, f64) {
        let max = self.max();
        let total = match &self.alive {
            None => sum_exp(self.logits, max),
            Some(alive) => alive.iter().map(|&id| f64::from(exp(self.logits[id as usize] - max))).sum(),
        };
        (max, total)
    }
}

/// The `k` largest values above −∞ with their indices, in order of index, and those equal to the last of them.
pub(super) fn largest(row: &[f32], k: usize) -> Vec<(u32, f32)> {
    const BLOCK: usize = 64;
    let mut kept: Vec<(u32, f32)> = Vec::new();
    if k == 0 {
        return kept;
    }
    let descending = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1);
    // At least k values seen so far are ≥ this one.
    let mut threshold = f32::NEG_INFINITY;
    let mut shrink_at = 2 * k.max(BLOCK);
    let shrink = |kept: &mut Vec<(u32, f32)>| {
        if kept.len() > k {
            let kth = kept.clone().select_nth_unstable_by(k - 1, descending).1.1;
            kept.retain(|&(_, x)| x >= kth);
            return kth;
        }
        f32::NEG_INFINITY
    };
    for (block, values) in row.chunks(BLOCK).enumerate() {
        if max(values) < threshold {
            continue;
        }
        for (i, &x) in values.iter().enumerate() {
            if x >= threshold && x > f32::NEG_INFINITY {
                kept.push(((block * BLOCK + i) as u32, x));
            }
        }
        if kept.len() >= shrink_at {
            threshold = shrink(&mut kept);
            shrink_at = 2 * kept.len().max(BLOCK);
        }
    }
    shrink(&mut kept);
    kept
}

/// Puts the items in such an order that those before the returned index are smaller (by key, then id), the item there
/// is the first whose cumulated weight (with all before it and `cumulative`) does not `pass`, and the others follow. The
/// last one counts as that if all pass.
fn border(items: &mut [Item], mut cumulative: f64, pass: impl Fn(f32) -> bool) -> usize {
    let order = |a: &Item, b: &Item| (a.key + 0.0).total_cmp(&(b.key + 0.0)).then(a.id.cmp(&b.id));
    let (mut start, mut end) = (0, items.len());
    while end - start > 32 {
        let half = (end - start) / 2;
        items[start..end].select_nth_unstable_by(half - 1, order);
        let weight: f64 = items[start..start + half].iter().map(|item| f64::from(item.weight)).sum();
        if pass((cumulative + weight) as f32) {
            cumulative += weight;
            start += half;
        } else {
            end = start + half;
        }
    }
    items[start..end].sort_unstable_by(order);
    for (i, item) in items[start..end].iter().enumerate() {
        cumulative += f64::from(item.weight);
        if !pass(cumulative as f32) {
            return start + i;
        }
    }
    items.len().saturating_sub(1).min(end)
}

/// Index at `u` in [0, 1) of the cumulated softmax; None if all are −∞. Overwrites the logits with weights.
fn pick(logits: &mut [f32], u: f64) -> Option<usize> {
    const BLOCK: usize = 1024;
    let max = max(logits);
    if max == f32::NEG_INFINITY {
        return None;
    }
    logits.iter_mut().for_each(|x| *x = exp(*x - max));
    let sums: Vec<f64> = logits.chunks(BLOCK).map(sum).collect();
    let mut left = u * sums.iter().sum::<f64>();
    let mut last = None;
    for (block, (weights, total)) in logits.chunks(BLOCK).zip(sums).enumerate() {
        if left >= total {
            // Rounding may put the border behind the last block: then the last token of any weight is it.
            left -= total;
            last = weights.iter().rposition(|&w| w > 0.0).map(|i| block * BLOCK + i).or(last);
            continue;
        }
        for (i, &weight) in weights.iter().enumerate() {
            if weight > 0.0 {
                last = Some(block * BLOCK + i);
                left -= f64::from(weight);
                if left < 0.0 {
                    return last;
                }
            }
        }
        left = left.max(0.0);
    }
    last
}
