//! GBNF, the grammars of llama.cpp, as Lark.
//!
//! GBNF has no tokens: each character is one. Lark's terminals are matched greedily, so that what is put into one matters.
//! A rule that does not reach itself is regular; each longest regular stretch of a rule becomes a terminal, and the
//! translation is refused where a greedy match could take a character that belongs to what follows ([`translate`]).

mod parse;
mod translate;

use crate::error::GrammarError;

/// A character grammar as Lark.
///
/// # Errors
/// What is wrong with it, or cannot be translated, with its line.
pub(crate) fn to_lark(text: &str) -> Result<String, GrammarError> {
    translate::translate(&parse::parse(text)?)
}

fn refuse<T>(line: usize, reason: impl Into<String>) -> Result<T, GrammarError> {
    Err(GrammarError::Syntax { kind: "GBNF grammar", line: Some(line), reason: reason.into() })
}
