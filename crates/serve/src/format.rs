//! `response_format` and its like: what an answer is held to.

use crate::ask::Held;
use crate::error::Fault;
use grammar::GrammarSpec;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// The form of an answer, as OpenAI's chat API says it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ResponseFormat {
    /// Text.
    Text {},
    /// A JSON object.
    JsonObject {},
    /// JSON that fits a schema.
    JsonSchema {
        /// The schema.
        json_schema: NamedSchema,
    },
}

/// A schema with a name.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
pub(crate) struct NamedSchema {
    /// Its name: not shown to the model.
    name: Option<String>,
    /// What it is for: not shown to the model.
    description: Option<String>,
    /// The schema, of any draft from 4 to 2020-12. A keyword that cannot be honoured exactly is refused.
    schema: Value,
    /// Makes no difference: an answer always fits.
    strict: Option<bool>,
}

impl ResponseFormat {
    /// What the answer is held to.
    pub(crate) fn held(self) -> Option<Held> {
        let grammar = match self {
            ResponseFormat::Text {} => return None,
            ResponseFormat::JsonObject {} => GrammarSpec::JsonObject,
            ResponseFormat::JsonSchema { json_schema } => GrammarSpec::JsonSchema(json_schema.schema),
        };
        Some(Held { grammar, param: "response_format" })
    }
}

/// The form of an answer, as OpenAI's responses API says it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
pub(crate) enum TextFormat {
    /// Text.
    Text {},
    /// A JSON object.
    JsonObject {},
    /// JSON that fits a schema.
    JsonSchema {
        /// Its name: not shown to the model.
        name: Option<String>,
        /// What it is for: not shown to the model.
        description: Option<String>,
        /// The schema, of any draft from 4 to 2020-12. A keyword that cannot be honoured exactly is refused.
        schema: Value,
        /// Makes no difference: an answer always fits.
        strict: Option<bool>,
    },
}

impl TextFormat {
    /// It, as answers repeat it.
    pub(crate) fn object(&self) -> Value {
        match self {
            TextFormat::Text {} => json!({"type": "text"}),
            TextFormat::JsonObject {} => json!({"type": "json_object"}),
            TextFormat::JsonSchema { name, description, schema, strict: _ } => json!({
                "type": "json_schema",
                "name": name.as_deref().unwrap_or_default(),
                "description": description,
                "schema": schema,
                "strict": true,
            }),
        }
    }

    /// What the answer is held to.
    pub(crate) fn held(self) -> Option<Held> {
        let grammar = match self {
            TextFormat::Text {} => return None,
            TextFormat::JsonObject {} => GrammarSpec::JsonObject,
            TextFormat::JsonSchema { schema, .. } => GrammarSpec::JsonSchema(schema),
        };
        Some(Held { grammar, param: "text.format" })
    }
}

/// What the answer is held to, by the two fields that may say so.
///
/// # Errors
/// Both of them.
pub(crate) fn held(format: Option<ResponseFormat>, grammar: Option<String>) -> Result<Option<Held>, Fault> {
    match (format.and_then(ResponseFormat::held), grammar) {
        (Some(_), Some(_)) => {
            Err(Fault::field("grammar", "grammar together with response_format: leave one of them out"))
        }
        (held, None) => Ok(held),
        (None, Some(text)) => Ok(Some(Held { grammar: GrammarSpec::guess(text), param: "grammar" })),
    }
}
