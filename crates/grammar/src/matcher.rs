//! The state of one text under a grammar that `llguidance` parses.

use crate::constraint::Constraint;
use crate::error::GrammarError;

/// A text under a grammar; see [`Constraint`] for what it can do. A clone goes on by itself.
#[derive(Clone)]
pub struct Matcher {
    inner: llguidance::Matcher,
    taken: usize,
}

impl Matcher {
    pub(crate) fn new(inner: llguidance::Matcher) -> Matcher {
        Matcher { inner, taken: 0 }
    }

    /// Tokens taken so far.
    pub fn taken(&self) -> usize {
        self.taken
    }

    fn exhausted(&self, error: impl std::fmt::Display) -> GrammarError {
        let reason = match error.to_string().lines().next().unwrap_or_default() {
            "" | "NoExtensionBias" => "no token fits".to_owned(),
            line => line.to_owned(),
        };
        GrammarError::Exhausted { after: self.taken, reason }
    }
}

impl Constraint for Matcher {
    fn mask(&mut self, allowed: &mut [u32]) -> Result<(), GrammarError> {
        let mask = self.inner.compute_mask_or_eos().map_err(|e| self.exhausted(e))?;
        let words = mask.as_slice();
        let shared = words.len().min(allowed.len());
        allowed[..shared].copy_from_slice(&words[..shared]);
        allowed[shared..].fill(0);
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<(), GrammarError> {
        let rejected = GrammarError::Rejected { token, after: self.taken };
        if self.inner.is_stopped() {
            return Err(rejected);
        }
        match self.inner.try_consume_tokens(&[token]) {
            Ok(1) => {
                self.taken += 1;
                Ok(())
            }
            Ok(_) => Err(rejected),
            Err(error) => Err(self.exhausted(error)),
        }
    }

    fn forced(&mut self) -> Vec<u32> {
        if self.inner.is_stopped() { Vec::new() } else { self.inner.compute_ff_tokens() }
    }

    fn may_end(&mut self) -> bool {
        match self.inner.is_stopped() {
            true => self.inner.stop_reason().is_ok(),
            false => self.inner.is_accepting().unwrap_or(false),
        }
    }

    fn is_finished(&self) -> bool {
        self.inner.is_stopped()
    }

    fn rollback(&mut self, tokens: usize) -> Result<(), GrammarError> {
        if tokens > self.taken {
            return Err(GrammarError::Rollback { asked: tokens, taken: self.taken });
        }
        self.inner.rollback(tokens).map_err(|e| self.exhausted(e))?;
        self.taken -= tokens;
        Ok(())
    }

    fn boxed(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matcher")
            .field("taken", &self.taken)
            .field("finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}
