//! What does a smaller model think comes next?
//!
//! It sees the same tokens as the model that it guesses for, and what it keeps of them lies under the same numbers of pages
//! and slots in caches of its own: so it shares beginnings, copies and snapshots with the model. Where what lies there is
//! not of these tokens (the last guess of a step is checked, but never put into the model that made it), guesses get worse,
//! and nothing else.

use super::Entry;
use super::sequence::Running;
use crate::encoder::InferenceError;
use crate::sampling::History;
use models::{Batch, Caches, Forward, Loaded};
use ops::{Ops, Past, Save};
use std::sync::Arc;

/// A model that guesses for another.
pub(super) struct Draft {
    pub(super) loaded: Arc<Loaded>,
    pub(super) caches: Caches,
}

/// Can it guess for `model`?
pub(super) fn check(draft: &Loaded, model: &Loaded, context: usize) -> Result<(), InferenceError> {
    let architecture = draft.model.shape().architecture;
    let Some(head) = &draft.head else { return Err(InferenceError::NoHead { architecture }) };
    let outputs = |loaded: &Loaded| loaded.head.as_ref().map_or(0, |head| head.out.outputs);
    let (vocab, window) = (draft.model.shape().vocab, draft.model.shape().max_positions);
    let needed = model.model.shape().vocab;
    let pairs = [
        ("logits", head.out.outputs, outputs(model), head.out.outputs == outputs(model)),
        ("words", vocab, needed, vocab >= needed),
        ("positions", window, context, window >= context),
    ];
    match pairs.into_iter().find(|&(.., fits)| !fits) {
        Some((what, got, expected, _)) => Err(InferenceError::Draft { what, got, expected }),
        None => Ok(()),
    }
}

impl Draft {
    /// Puts in what it has not seen yet of each entry, and gives each as many guesses as `lengths` say, as far as it has
    /// any.
    pub(super) fn guess(
        &self,
        ops: &dyn Ops,
        running: &mut [Running],
        entries: &mut [Entry],
        lengths: &[usize],
    ) -> Result<(), InferenceError> {
        let mut batch = Batch::default();
        let mut rows = Vec::new();
        let mut open = Vec::new();
        for (at, (entry, &length)) in entries.iter().zip(lengths).enumerate() {
            let s = &running[entry.index];
            let end = s.cached + entry.count;
            let kept = entry.saves.iter().map(|&(at, slot)| Save { rows: at - s.drafted, slot });
            let before = entry.before.first().map(|&slot| Save { rows: end - s.drafted, slot });
            let past = Past { tokens: s.drafted, saves: kept.chain(before).collect(), ..s.past() };
            batch.push_after(&s.tokens[s.drafted..end], past)?;
            if length > 0 {
                rows.push(batch.tokens() as u32 - 1);
                open.push(at);
            }
        }
        for made in 0.. {
            let mut logits = self.forward(ops, &batch, &rows)?;
            let width = logits.len() / rows.len().max(1);
            (batch, rows) = (Batch::default(), Vec::new());
            let guessing = std::mem::take(&mut open);
            for (at, logits) in guessing.into_iter().zip(logits.chunks_exact_mut(width.max(1))) {
                let entry = &mut entries[at];
                let s = &mut running[entry.index];
                let sure = s.tokens.len();
                s.tokens.extend(&entry.draft);
                let (prompt, generated) = s.tokens.split_at(s.prompt);
                let guess = s.sampler.guess(logits, History { prompt, generated });
                s.tokens.truncate(sure);
                let Some((id, odds)) = guess else { continue };
                entry.draft.push(id);
                entry.odds.push(odds);
                if made + 1 < lengths[at] {
                    let saves = entry.before.get(made + 1).map(|&slot| Save { rows: 1, slot });
                    let past = Past { tokens: sure + made, saves: saves.into_iter().collect(), ..s.past() };
                    batch.push_after(&[id], past)?;
                    rows.push(batch.tokens() as u32 - 1);
                    open.push(at);
                }
            }
            if open.is_empty() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Logits of some rows, `[rows, vocab]`.
    fn forward(&self, ops: &dyn Ops, batch: &Batch, rows: &[u32]) -> Result<Vec<f32>, InferenceError> {
        self.loaded.model.shape().check(batch)?;
        self.caches.check(batch)?;
        let cx = Forward::cached(ops, batch, &self.caches);
        let head = self.loaded.head.as_ref().expect("checked by `check`");
        let hidden = self.loaded.model.forward(&cx);
        let out = if rows.is_empty() { hidden } else { head.logits(&cx, &ops.rows(&hidden, rows)) };
        let out = ops.read(&out)?;
        Ok(if rows.is_empty() { Vec::new() } else { out })
    }
}
