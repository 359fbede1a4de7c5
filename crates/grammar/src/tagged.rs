//! Text in which tags may stand, as calls of tools do: free up to a tag, held to a schema inside of it.

use crate::error::GrammarError;
use crate::schema::narrow;
use serde_json::Value;
use std::fmt::Write;

/// A text with tags.
#[derive(Clone, Debug, PartialEq)]
pub struct Tagged {
    /// What every tag begins with. It stands nowhere else in the text.
    pub trigger: String,
    /// The tags that there may be, as many and as often as the model likes.
    pub tags: Vec<Tag>,
    /// The schema of a text without any tag; without it that text is free, and text may stand between tags.
    pub text: Option<Value>,
}

/// A tag: trigger, `begin`, JSON, `end`.
#[derive(Clone, Debug, PartialEq)]
pub struct Tag {
    /// What comes between the trigger and the JSON.
    pub begin: String,
    /// What the JSON fits.
    pub schema: Value,
    /// What comes after the JSON.
    pub end: String,
}

impl Tagged {
    /// In the parser's own words. `json` finishes a schema that was said in the keywords that the parser knows.
    ///
    /// # Errors
    /// A schema that cannot be honoured; its pointer begins with the number of its tag.
    pub(crate) fn to_lark(&self, depth: usize, json: impl Fn(Value) -> Value) -> Result<String, GrammarError> {
        let trigger = quoted(&self.trigger);
        let mut lark = String::from("%llguidance {}\n");
        match &self.text {
            None => {
                lark += "start: (open tag)* tail\ntail: TAIL |\n";
                let _ = writeln!(lark, "open[suffix={trigger}]: /(?s:.*)/");
                let _ = writeln!(lark, "TAIL: /(?s:.+)/ & ~( /(?s:.*)/ {trigger} /(?s:.*)/ )");
            }
            Some(schema) => {
                lark += "start: text | call (\"\\n\" call)*\n";
                let _ = writeln!(lark, "text: %json {}", json(narrow(schema, depth)?.schema));
                let _ = writeln!(lark, "call: {trigger} tag");
            }
        }
        let names: Vec<String> = (0..self.tags.len()).map(|index| format!("tag{index}")).collect();
        let _ = writeln!(lark, "tag: {}", names.join(" | "));
        for (index, tag) in self.tags.iter().enumerate() {
            let schema = narrow(&tag.schema, depth).map_err(|error| of_tag(error, index))?.schema;
            let (begin, end) = (quoted(&tag.begin), quoted(&tag.end));
            let _ = writeln!(lark, "tag{index}: {begin} json{index} {end}");
            let _ = writeln!(lark, "json{index}: %json {}", json(schema));
        }
        Ok(lark)
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn of_tag(error: GrammarError, index: usize) -> GrammarError {
    match error {
        GrammarError::Schema { keyword, pointer, reason } => {
            GrammarError::Schema { keyword, pointer: format!("/{index}{pointer}"), reason }
        }
        other => other,
    }
}
