//! A sequence under a grammar: which tokens may come next, and which can only come?
//!
//! The engine asks a [`Guide`] before each token and tells it each token. A model that reasons first is free until its
//! block of reasoning closes; the grammar holds the answer.

use crate::encoder::InferenceError;
use grammar::{Compiler, Constraint, GrammarError, Vocabulary};
use std::sync::Arc;
use tokenizer::Tokenizer;

/// Holds one sequence to a grammar. A clone goes on by itself.
pub struct Guide {
    constraint: Box<dyn Constraint>,
    reasoning: Option<ReasoningIds>,
    /// Tokens taken.
    taken: usize,
    /// How many of them came before the answer; none while it has not begun.
    before_answer: Option<usize>,
    allowed: Vec<u32>,
}

/// The tokens around a block of reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasoningIds {
    /// Opens the block.
    pub open: u32,
    /// Closes it.
    pub close: u32,
    /// Whether the prompt opened it; else the sequence may, with its first token.
    pub inside: bool,
}

impl Guide {
    /// The whole sequence under a grammar.
    pub fn new(constraint: Box<dyn Constraint>) -> Guide {
        Guide { constraint, reasoning: None, taken: 0, before_answer: Some(0), allowed: Vec::new() }
    }

    /// The answer under a grammar, a block of reasoning before it free.
    pub fn after_reasoning(constraint: Box<dyn Constraint>, ids: ReasoningIds) -> Guide {
        Guide { reasoning: Some(ids), before_answer: None, ..Guide::new(constraint) }
    }

    /// A bit for each of `vocab` tokens that may come next; none where all may.
    ///
    /// # Errors
    /// As [`Constraint::mask`].
    pub fn mask(&mut self, vocab: usize) -> Result<Option<&[u32]>, GrammarError> {
        if self.is_reasoning() {
            return Ok(None);
        }
        self.allowed.resize(vocab.div_ceil(32), 0);
        self.constraint.mask(&mut self.allowed)?;
        if let (None, Some(ids)) = (self.before_answer, self.reasoning)
            && let Some(word) = self.allowed.get_mut(ids.open as usize / 32)
        {
            *word |= 1 << (ids.open % 32);
        }
        Ok(Some(&self.allowed))
    }

    /// Takes the next token.
    ///
    /// # Errors
    /// As [`Constraint::accept`].
    pub fn take(&mut self, token: u32) -> Result<(), GrammarError> {
        let reasoning = self.is_reasoning();
        match (self.before_answer, self.reasoning) {
            (None, Some(ids)) if reasoning || token == ids.open => {
                if reasoning && token == ids.close {
                    self.before_answer = Some(self.taken + 1);
                }
            }
            _ => {
                self.constraint.accept(token)?;
                self.before_answer.get_or_insert(0);
            }
        }
        self.taken += 1;
        Ok(())
    }

    /// The tokens that can only come next; they are not taken yet.
    pub fn forced(&mut self) -> Vec<u32> {
        if self.before_answer.is_some() { self.constraint.forced() } else { Vec::new() }
    }

    /// Whether nothing can come any more.
    pub fn is_finished(&self) -> bool {
        self.before_answer.is_some() && self.constraint.is_finished()
    }

    /// Takes back the last `tokens` tokens.
    ///
    /// # Errors
    /// As [`Constraint::rollback`].
    pub fn rollback(&mut self, tokens: usize) -> Result<(), GrammarError> {
        let Some(left) = self.taken.checked_sub(tokens) else {
            return Err(GrammarError::Rollback { asked: tokens, taken: self.taken });
        };
        let before = self.before_answer.unwrap_or(self.taken);
        self.constraint.rollback(self.taken - before.max(left))?;
        // An answer without a block before it began with its first token; one with a block, with the block's end.
        let begun = if before == 0 { self.reasoning.is_none() || left > 0 } else { left >= before };
        self.before_answer = self.before_answer.filter(|_| begun);
        self.taken = left;
        Ok(())
    }

    /// Inside of a block of reasoning.
    fn is_reasoning(&self) -> bool {
        self.before_answer.is_none() && self.reasoning.is_some_and(|ids| ids.inside || self.taken > 0)
    }
}

impl Clone for Guide {
    fn clone(&self) -> Guide {
        Guide { constraint: self.constraint.boxed(), allowed: Vec::new(), ..*self }
    }
}

/// Compiles grammars for the tokens of a tokenizer; `ends` end a text. Takes a moment: once a model.
///
/// # Errors
/// As [`Compiler::new`].
pub fn grammar_compiler(tokenizer: &Tokenizer, ends: &[u32]) -> Result<Compiler, InferenceError> {
    let size = tokenizer.vocab_size();
    let ends: Vec<u32> = ends.iter().copied().filter(|&id| (id as usize) < size).collect();
    Ok(Compiler::new(Arc::new(Words(tokenizer.clone())), &ends)?)
}

struct Words(Tokenizer);

impl Vocabulary for Words {
    fn size(&self) -> usize {
        self.0.vocab_size()
    }

    fn bytes(&self, id: u32) -> Option<Vec<u8>> {
        self.0.piece_bytes(id)
    }

    fn is_special(&self, id: u32) -> bool {
        self.0.is_special(id)
    }

    fn encode(&self, text: &str) -> Vec<u32> {
        let ids = self.0.encode_ids(text, false).unwrap_or_default();
        // A text that only looks like a sign of control is a text.
        match ids.iter().any(|&id| self.0.is_special(id)) {
            true => self.0.encode_plain(text).unwrap_or_default(),
            false => ids,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grammar::{Bytes, GrammarSpec};

    const OPEN: u32 = 1;
    const CLOSE: u32 = 2;

    fn guide(inside: bool) -> Guide {
        let compiler = Compiler::new(Bytes::shared(), &[Bytes::END]).expect("bytes");
        let matcher = compiler.compile(&GrammarSpec::Regex("ab?".into())).expect("a regex");
        Guide::after_reasoning(Box::new(matcher), ReasoningIds { open: OPEN, close: CLOSE, inside })
    }

    fn may(guide: &mut Guide, id: u32) -> bool {
        guide.mask(257).expect("a mask").is_none_or(|mask| mask[id as usize / 32] >> (id % 32) & 1 == 1)
    }

    #[test]
    fn reasoning_is_free_and_the_answer_is_held() {
        for inside in [false, true] {
            let mut guide = guide(inside);
            assert!(may(&mut guide, OPEN), "inside {inside}");
            assert_eq!(may(&mut guide, u32::from(b'z')), inside);
            guide.take(OPEN).unwrap();
            guide.take(u32::from(b'z')).unwrap();
            assert!(guide.forced().is_empty());
            guide.take(CLOSE).unwrap();
            assert!(may(&mut guide, u32::from(b'a')) && !may(&mut guide, u32::from(b'z')) && !may(&mut guide, OPEN));
            assert_eq!(guide.forced(), [u32::from(b'a')]);
            guide.take(u32::from(b'a')).unwrap();
            assert!(!guide.is_finished());
            guide.take(u32::from(b'b')).unwrap();
            assert!(guide.is_finished());
        }
    }

    #[test]
    fn an_answer_without_reasoning_begins_at_once() {
        let mut guide = guide(false);
        guide.take(u32::from(b'a')).unwrap();
        assert!(!may(&mut guide, OPEN));
        assert!(guide.take(OPEN).is_err());
    }

    #[test]
    fn taking_back_undoes_taking_at_every_place() {
        let reasoned = [OPEN, 7, 9, CLOSE, 97, 98];
        for (inside, tokens) in [(false, &reasoned[..]), (true, &reasoned[1..]), (false, &[97, 98])] {
            for left in 0..=tokens.len() {
                let mut guide = guide(inside);
                tokens.iter().for_each(|&t| guide.take(t).unwrap());
                guide.rollback(tokens.len() - left).unwrap();
                let mut fresh = self::guide(inside);
                tokens[..left].iter().for_each(|&t| fresh.take(t).unwrap());
                assert_eq!(guide.mask(257), fresh.mask(257), "{left} of {tokens:?}");
                tokens[left..].iter().for_each(|&t| guide.take(t).unwrap());
                assert!(guide.is_finished());
                assert!(guide.rollback(tokens.len() + 1).is_err());
            }
        }
    }
}
