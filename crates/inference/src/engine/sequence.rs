//! What does the engine know of a sequence, and which token comes next in it?

use super::interface::{Counts, Event, Finish, SequenceId};
use super::speculation::Pace;
use crate::guide::Guide;
use crate::sampling::{Guess, History, Sampled, Sampler};
use ops::Past;
use std::any::Any;

/// A sequence that waits or runs.
pub(super) struct Running {
    pub(super) id: SequenceId,
    /// Prompt and output.
    pub(super) tokens: Vec<u32>,
    pub(super) prompt: usize,
    /// Tokens whose keys and values, and recurrent state, are there.
    pub(super) cached: usize,
    /// The pages that hold them, and room for those to come.
    pub(super) pages: Vec<u32>,
    /// Where its recurrent state is while it runs.
    pub(super) slot: u32,
    /// Numbers of tokens after which its recurrent state is to be kept.
    pub(super) keep_at: Vec<usize>,
    /// It is kept at every so many page borders too.
    pub(super) stride: usize,
    pub(super) sampler: Sampler,
    pub(super) stop_ids: Vec<u32>,
    /// What holds it to a grammar.
    pub(super) guide: Option<Guide>,
    /// Longest in tokens, prompt and output.
    pub(super) limit: usize,
    pub(super) full: Finish,
    pub(super) counts: Counts,
    /// How many of its next tokens to guess, if any.
    pub(super) pace: Option<Pace>,
    /// Tokens that the model which guesses has seen.
    pub(super) drafted: usize,
}

impl Running {
    /// Tokens to be put in.
    pub(super) fn pending(&self) -> usize {
        self.tokens.len() - self.cached
    }

    /// Where its past lies.
    pub(super) fn past(&self) -> Past {
        Past { tokens: self.cached, pages: self.pages.as_slice().into(), slot: self.slot, saves: Vec::new() }
    }

    /// Numbers of tokens in `from + 1..=to` after which its recurrent state is to be kept, in order.
    pub(super) fn keeps(&self, from: usize, to: usize, page_tokens: usize) -> Vec<usize> {
        let every = self.stride * page_tokens;
        let borders = (from / every + 1..=to / every).map(|border| border * every);
        let asked = self.keep_at.iter().copied().filter(|&at| at > from && at <= to);
        let mut all: Vec<usize> = borders.chain(asked).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Chooses the next token from its logits `[vocab]`, which are overwritten.
    fn take(&mut self, logits: &mut [f32], guess: Option<Guess<'_>>) -> Event {
        if self.tokens.len() >= self.limit {
            return self.event(None, Some(self.full.clone()));
        }
        match self.choose(logits, guess) {
            Ok(token) => self.push(token),
            Err(reason) => self.event(None, Some(Finish::Failed(reason))),
        }
    }

    fn choose(&mut self, logits: &mut [f32], guess: Option<Guess<'_>>) -> Result<Sampled, String> {
        let (prompt, generated) = self.tokens.split_at(self.prompt);
        // What may come next at all is the first stage: a mask of allowed tokens.
        let mask = match &mut self.guide {
            Some(guide) => guide.mask(logits.len()).map_err(|e| e.to_string())?,
            None => None,
        };
        let history = History { prompt, generated };
        let token = self.sampler.sample_guessed(logits, history, mask, guess).map_err(|e| e.to_string())?;
        if let Some(guide) = &mut self.guide {
            guide.take(token.id).map_err(|e| e.to_string())?;
        }
        Ok(token)
    }

    /// The tokens that the grammar leaves no choice about.
    pub(super) fn jump(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        if self.sampler.params().logprobs.is_some() {
            return events;
        }
        let forced = self.guide.as_mut().map(Guide::forced).unwrap_or_default();
        for id in forced.into_iter().take(self.limit - self.tokens.len()) {
            if self.guide.as_mut().is_some_and(|guide| guide.take(id).is_err()) {
                break; // it is chosen like any other token
            }
            events.push(self.push(Sampled { id, logprob: None, top: Vec::new() }));
        }
        events
    }

    fn push(&mut self, token: Sampled) -> Event {
        self.tokens.push(token.id);
        self.counts.generated += 1;
        let finish = match () {
            () if self.stop_ids.contains(&token.id) => Some(Finish::Stop),
            () if self.guide.as_ref().is_some_and(Guide::is_finished) => Some(Finish::Complete),
            () if self.tokens.len() >= self.limit => Some(self.full.clone()),
            () => None,
        };
        self.event(Some(token), finish)
    }

    /// Chooses the next tokens from the logits after its last token and after each of the guesses `draft`: one, and one
    /// more for each guess that is right; those that a grammar forces come along. Gives the number of right guesses. `odds`
    /// are what each guess was drawn from, if it was.
    pub(super) fn take_all(
        &mut self,
        mut rows: Vec<&mut [f32]>,
        draft: &[u32],
        odds: &[Vec<f32>],
        events: &mut Vec<Event>,
    ) -> usize {
        let mut right = 0;
        self.counts.drafted += draft.len();
        while let Some(row) = rows.get_mut(right) {
            let odds = odds.get(right).filter(|odds| !odds.is_empty());
            let event = self.take(row, odds.map(|odds| Guess { id: draft[right], odds }));
            let forced = if event.finish.is_none() { self.jump() } else { Vec::new() };
            let mut goes_on = true;
            for mut event in std::iter::once(event).chain(forced) {
                let id = event.token.as_ref().map(|token| token.id);
                goes_on &= event.finish.is_none() && id.is_some() && draft.get(right).copied() == id;
                right += usize::from(goes_on);
                self.counts.accepted += usize::from(goes_on);
                event.counts.accepted = self.counts.accepted;
                events.push(event);
            }
            if !goes_on {
                break;
            }
        }
        right
    }

    /// It cannot go on: choosing its token panicked.
    pub(super) fn failed(&self, panic: &(dyn Any + Send)) -> Event {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        self.event(None, Some(Finish::Failed(format!("an internal error: {text}"))))
    }

    fn event(&self, token: Option<Sampled>, finish: Option<Finish>) -> Event {
        Event { sequence: self.id, token, finish, counts: self.counts }
    }
}
