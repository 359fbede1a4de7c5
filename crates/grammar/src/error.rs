//! Everything that can go wrong with a grammar, in words for the person who wrote it.

/// Why a grammar is refused, or a text cannot go on under it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GrammarError {
    /// A schema asks for something that cannot be honoured exactly.
    #[error("schema keyword {keyword} at {}: {reason}", place(pointer))]
    Schema {
        /// The keyword.
        keyword: String,
        /// JSON pointer of the subschema that has it.
        pointer: String,
        /// What is wrong with it or not built.
        reason: String,
    },
    /// No JSON at all fits the schema.
    #[error("no JSON fits this schema: {reason}")]
    Unsatisfiable {
        /// What contradicts what.
        reason: String,
    },
    /// A grammar is not written as it should be, or uses something that is not built.
    #[error("{kind}{}: {reason}", line.map(|l| format!(", line {l}")).unwrap_or_default())]
    Syntax {
        /// What it is: `Lark grammar`, `GBNF grammar`, `regular expression`.
        kind: &'static str,
        /// Line, from 1; none where unknown.
        line: Option<usize>,
        /// What is wrong.
        reason: String,
    },
    /// A grammar is larger, deeper or costlier than any that is taken.
    #[error("the {kind} is too large: {what} is {got}, at most {limit} are taken")]
    TooLarge {
        /// What it is.
        kind: &'static str,
        /// What was measured.
        what: &'static str,
        /// How much there is, or more.
        got: usize,
        /// How much may be.
        limit: usize,
    },
    /// A grammar costs too much to compile.
    #[error("the {kind} is too complex: {reason}; make it smaller, or bound its repetitions")]
    TooComplex {
        /// What it is.
        kind: &'static str,
        /// Which limit was reached.
        reason: String,
    },
    /// A vocabulary cannot be used with grammars.
    #[error("this vocabulary cannot be held to grammars: {reason}")]
    Vocabulary {
        /// Why.
        reason: String,
    },
    /// A token that may not come here.
    #[error("token {token} does not fit the grammar after {after} tokens")]
    Rejected {
        /// The token.
        token: u32,
        /// Tokens taken before.
        after: usize,
    },
    /// The text cannot go on: the grammar is too ambiguous here, or leaves no token.
    #[error("the grammar cannot go on after {after} tokens: {reason}")]
    Exhausted {
        /// Tokens taken before.
        after: usize,
        /// Why.
        reason: String,
    },
    /// More tokens were to be taken back than there are.
    #[error("cannot take back {asked} tokens of {taken}")]
    Rollback {
        /// How many were to be taken back.
        asked: usize,
        /// How many there are.
        taken: usize,
    },
}

fn place(pointer: &str) -> &str {
    if pointer.is_empty() { "the root" } else { pointer }
}

impl GrammarError {
    /// The schema keyword at fault, if it is one.
    pub fn keyword(&self) -> Option<&str> {
        match self {
            GrammarError::Schema { keyword, .. } => Some(keyword),
            GrammarError::TooLarge { kind: "pattern", .. } => Some("pattern"),
            _ => None,
        }
    }
}
