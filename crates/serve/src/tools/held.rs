//! What holds an answer to calls: to the one that must come, or where the model makes some of its own accord.

use super::{Format, Toolbox};
use crate::ask::Held;
use crate::error::Fault;
use grammar::{GrammarSpec, Tag, Tagged};
use serde_json::{Map, Value, json};

impl Toolbox {
    /// What holds an answer whose text is held to `text`, if no call is made. A call that must come leaves no text.
    ///
    /// # Errors
    /// Something to be held, in a form of calls that cannot be.
    pub(crate) fn held(&self, format: Format, text: Option<Held>) -> Result<Option<Held>, Fault> {
        if self.is_empty() {
            return Ok(text);
        }
        if let Some(forced) = &self.forced {
            return Ok(Some(Held { grammar: self.one_of(forced), param: "tools" }));
        }
        let Some(param) = text.as_ref().map(|held| held.param).or(self.strict.as_deref()) else { return Ok(None) };
        let Some((trigger, tags)) = self.tags(format) else {
            let message = format!(
                "{param} is supported together with tools that this model may call or not only where calls are JSON: its calls are written in another form; set tool_choice"
            );
            return Err(Fault::unsupported(param, message));
        };
        let text = match text.map(|held| held.grammar) {
            None => None,
            Some(GrammarSpec::JsonObject) => Some(json!({"type": "object"})),
            Some(GrammarSpec::JsonSchema(schema)) => Some(schema),
            Some(_) => {
                let message = format!("{param} together with tools is not supported: leave one of them out");
                return Err(Fault::unsupported(param, message));
            }
        };
        Ok(Some(Held { grammar: GrammarSpec::Tagged(Tagged { trigger, tags, text }), param: "tools" }))
    }

    /// A call of one of these tools as the whole answer.
    fn one_of(&self, places: &[usize]) -> GrammarSpec {
        let mut definitions = Map::new();
        let mut calls = Vec::new();
        for &place in places {
            let (tool, key) = (&self.tools[place], format!("tool{place}"));
            // A schema refers to its own parts from its own root.
            let mut parameters = Value::Object(tool.parameters.clone());
            moved(&mut parameters, &format!("#/$defs/{key}"), MAX_DEPTH);
            definitions.insert(key.clone(), parameters);
            calls.push(json!({
                "type": "object",
                "properties": {"name": {"const": tool.name}, "arguments": {"$ref": format!("#/$defs/{key}")}},
                "required": ["name", "arguments"],
                "additionalProperties": false,
            }));
        }
        let mut schema = match <[Value; 1]>::try_from(calls) {
            Ok([call]) => call,
            Err(calls) => json!({"anyOf": calls}),
        };
        schema["$defs"] = Value::Object(definitions);
        GrammarSpec::JsonSchema(schema)
    }

    /// Calls as tags in a text, with what opens each, where their inside is JSON.
    fn tags(&self, format: Format) -> Option<(String, Vec<Tag>)> {
        if format != Format::Hermes {
            return None;
        }
        let tag = |tool: &super::Tool| Tag {
            begin: format!("\n{{\"name\": {}, \"arguments\": ", json!(tool.name)),
            schema: if tool.strict { Value::Object(tool.parameters.clone()) } else { json!({"type": "object"}) },
            end: "}\n</tool_call>".into(),
        };
        Some(("<tool_call>".into(), self.tools.iter().map(tag).collect()))
    }
}

/// Deepest nesting of a schema in which references are looked for.
const MAX_DEPTH: usize = 128;

/// References of a schema that has moved from the root to a place inside of another one.
fn moved(schema: &mut Value, to: &str, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match schema {
        Value::Object(object) => {
            for (key, value) in object {
                match value {
                    Value::String(text) if key == "$ref" && text.starts_with('#') => {
                        *text = format!("{to}{}", &text[1..])
                    }
                    value => moved(value, to, depth),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| moved(value, to, depth)),
        _ => {}
    }
}
