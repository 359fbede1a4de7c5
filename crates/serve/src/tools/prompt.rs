//! How a model is told of its tools: by its template, or in a system message where the template has no place for them.

use super::{Format, Tool, Toolbox};
use crate::error::Fault;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use serde_json::{Value, json};
use std::io::{self, Write};

/// What a template is given.
#[derive(Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) messages: Vec<Value>,
    /// Declarations, where the template has a place for them.
    pub(crate) tools: Option<Vec<Value>>,
}

/// Tells of tools. `has_place` says whether the template knows of any.
///
/// # Errors
/// A template whose model writes calls in a form that is not known here.
pub(crate) fn tell(
    mut messages: Vec<Value>,
    toolbox: &Toolbox,
    format: Format,
    has_place: bool,
) -> Result<Told, Fault> {
    if !has_place {
        messages.iter_mut().for_each(as_text);
        if !toolbox.is_empty() {
            let block = block(&toolbox.tools);
            match messages.first_mut().filter(|message| message["role"] == "system") {
                Some(system) => {
                    let text = format!("{}\n\n{block}", system["content"].as_str().unwrap_or_default());
                    system["content"] = text.into();
                }
                None => messages.insert(0, json!({"role": "system", "content": block})),
            }
        }
        return Ok(Told { messages, tools: None });
    }
    if toolbox.is_empty() {
        return Ok(Told { messages, tools: None });
    }
    if format == Format::Unknown {
        let message =
            "tools are not supported for this model: the form in which its template has it write calls is not known";
        return Err(Fault::unsupported("tools", message));
    }
    Ok(Told { messages, tools: Some(toolbox.tools.iter().map(declaration).collect()) })
}

/// A tool as templates expect it.
fn declaration(tool: &Tool) -> Value {
    let mut function = json!({"name": tool.name});
    if let Some(description) = &tool.description {
        function["description"] = description.as_str().into();
    }
    function["parameters"] = Value::Object(tool.parameters.clone());
    json!({"type": "function", "function": function})
}

/// The system message for templates without a place for tools: the words of Qwen and Hermes.
fn block(tools: &[Tool]) -> String {
    let tools: String = tools.iter().map(|tool| format!("\n{}", spaced(&declaration(tool)))).collect();
    format!(
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n\
         You are provided with function signatures within <tools></tools> XML tags:\n<tools>{tools}\n</tools>\n\n\
         For each function call, return a json object with function name and arguments within \
         <tool_call></tool_call> XML tags:\n<tool_call>\n\
         {{\"name\": <function-name>, \"arguments\": <args-json-object>}}\n</tool_call>"
    )
}

/// Calls and results as text, for templates that know of neither.
fn as_text(message: &mut Value) {
    if message["role"] == "tool" {
        let content = message["content"].as_str().unwrap_or_default();
        *message = json!({"role": "user", "content": format!("<tool_response>\n{content}\n</tool_response>")});
    }
    let calls = message.as_object_mut().and_then(|message| message.remove("tool_calls"));
    if let Some(Value::Array(calls)) = calls {
        let mut text = message["content"].as_str().unwrap_or_default().to_owned();
        for call in calls {
            if !text.is_empty() {
                text.push('\n');
            }
            let call = json!({"name": call["function"]["name"], "arguments": call["function"]["arguments"]});
            text += &format!("<tool_call>\n{}\n</tool_call>", spaced(&call));
        }
        message["content"] = text.into();
    }
}

/// JSON as Python writes it, which is what models were trained on: `", "` and `": "`.
fn spaced(value: &Value) -> String {
    let mut out = Vec::new();
    match value.serialize(&mut Serializer::with_formatter(&mut out, Spaced)) {
        Ok(()) => String::from_utf8(out).unwrap_or_default(),
        Err(_) => value.to_string(),
    }
}

struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_for_models_has_blanks_and_keeps_characters() {
        let value = json!({"name": "f", "x": [1, "é>"], "y": {}});
        assert_eq!(spaced(&value), r#"{"name": "f", "x": [1, "é>"], "y": {}}"#);
    }
}
