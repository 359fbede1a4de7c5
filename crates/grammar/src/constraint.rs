//! What does an engine need to know of a grammar, whatever is behind it?

use crate::error::GrammarError;

/// The state of one text under a grammar.
pub trait Constraint: Send + Sync {
    /// Sets the bit of each token that may come next (bit `i % 32` of word `i / 32`) and clears all others. Where the text
    /// may end, the tokens that end it are among them; where it must, they are the only ones.
    ///
    /// # Errors
    /// [`GrammarError::Exhausted`] if the grammar is too ambiguous to go on, or nothing may come next.
    fn mask(&mut self, allowed: &mut [u32]) -> Result<(), GrammarError>;

    /// Takes the next token.
    ///
    /// # Errors
    /// [`GrammarError::Rejected`] if it may not come here; the state stays as it was.
    fn accept(&mut self, token: u32) -> Result<(), GrammarError>;

    /// The tokens that the grammar leaves no choice about, as the tokenizer would write their text; none where there is a
    /// choice. They are not taken yet.
    fn forced(&mut self) -> Vec<u32>;

    /// Whether the text may end here.
    fn may_end(&mut self) -> bool;

    /// Whether nothing can come any more: the text is whole, or a token that ends it was taken.
    fn is_finished(&self) -> bool;

    /// Takes back the last `tokens` tokens.
    ///
    /// # Errors
    /// [`GrammarError::Rollback`] if there were fewer.
    fn rollback(&mut self, tokens: usize) -> Result<(), GrammarError>;

    /// A copy that goes on by itself.
    fn boxed(&self) -> Box<dyn Constraint>;
}
