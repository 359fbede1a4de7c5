//! What can a text be held to?

use crate::tagged::Tagged;
use serde_json::Value;

/// A grammar as a user gives it.
#[derive(Clone, Debug, PartialEq)]
pub enum GrammarSpec {
    /// JSON that fits this schema, of any draft from 4 to 2020-12.
    JsonSchema(Value),
    /// A JSON object.
    JsonObject,
    /// Text that this regular expression matches from start to end (the syntax of the `regex` crate, without look-around).
    Regex(String),
    /// A Lark grammar, as `llguidance` has it.
    Lark(String),
    /// A GBNF grammar, as llama.cpp has it.
    Gbnf(String),
    /// Text in which tags may stand, whose inside is held to schemas.
    Tagged(Tagged),
}

impl GrammarSpec {
    /// A grammar of a file whose kind is not said: GBNF if it defines its rules with `::=`, else Lark.
    pub fn guess(text: String) -> GrammarSpec {
        match text.contains("::=") {
            true => GrammarSpec::Gbnf(text),
            false => GrammarSpec::Lark(text),
        }
    }

    /// What it is called in messages.
    pub fn kind(&self) -> &'static str {
        match self {
            GrammarSpec::JsonSchema(_) => "JSON Schema",
            GrammarSpec::JsonObject => "JSON object",
            GrammarSpec::Regex(_) => "regular expression",
            GrammarSpec::Lark(_) => "Lark grammar",
            GrammarSpec::Gbnf(_) => "GBNF grammar",
            GrammarSpec::Tagged(_) => "text with tags",
        }
    }
}
