//! Messages as OpenAI's API has them: what is accepted, and what a chat template is given of them.

use crate::error::Fault;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Most messages of a request.
const MAX_MESSAGES: usize = 4096;

/// A value that must be null: what this server's own answers, sent back, have there.
#[derive(Clone, Debug)]
pub(crate) enum Never {}

impl<'de> Deserialize<'de> for Never {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom("is not supported: leave it out"))
    }
}

impl JsonSchema for Never {
    fn schema_name() -> Cow<'static, str> {
        "Never".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "null"})
    }
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Instructions.
    System,
    /// The newer name of instructions.
    Developer,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// What a tool gave.
    Tool,
}

/// The text of a message.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a string, or a list of parts {\"type\": \"text\", \"text\": …}; images, audio and files are not supported"
)]
pub(crate) enum Content {
    /// As it is.
    Text(String),
    /// In parts, which are put together.
    Parts(Vec<TextPart>),
}

/// A part of a message.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", deny_unknown_fields)]
pub(crate) enum TextPart {
    /// Text.
    #[serde(rename = "text")]
    Text {
        /// The text.
        text: String,
    },
    /// What the model refused to do, in an answer sent back.
    #[serde(rename = "refusal")]
    Refusal {
        /// The text.
        refusal: String,
    },
}

impl Content {
    pub(crate) fn into_text(self) -> String {
        match self {
            Content::Text(text) => text,
            Content::Parts(parts) => parts
                .into_iter()
                .map(|part| match part {
                    TextPart::Text { text } => text,
                    TextPart::Refusal { refusal } => refusal,
                })
                .collect(),
        }
    }
}

/// A call of a tool.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
pub(crate) struct ToolCall {
    /// Its id.
    pub(crate) id: Option<String>,
    /// What kind of tool: only functions.
    #[serde(rename = "type")]
    pub(crate) kind: Option<FunctionKind>,
    /// Its place among the calls of an answer, in a stream sent back.
    pub(crate) index: Option<usize>,
    /// What was called.
    pub(crate) function: CalledFunction,
}

/// A kind of tool.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FunctionKind {
    /// A function.
    Function,
}

/// A function that was called.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CalledFunction {
    /// Its name.
    pub(crate) name: String,
    /// Its arguments as JSON.
    pub(crate) arguments: String,
}

/// A message.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
pub(crate) struct Message {
    /// Who speaks.
    pub(crate) role: Role,
    /// What is said; may be missing beside tool calls.
    pub(crate) content: Option<Content>,
    /// Who of several speaks, or which tool: templates that know names are given it.
    pub(crate) name: Option<String>,
    /// What the model had thought, for templates that want it back.
    pub(crate) reasoning_content: Option<String>,
    /// The tools that the model called.
    pub(crate) tool_calls: Option<Vec<ToolCall>>,
    /// Which call a message of role tool answers.
    pub(crate) tool_call_id: Option<String>,
    /// Of an answer sent back: stands for its content.
    pub(crate) refusal: Option<String>,
    /// Of an answer sent back: null.
    pub(crate) audio: Option<Never>,
    /// Of an answer sent back: null.
    pub(crate) function_call: Option<Never>,
    /// Of an answer sent back: empty.
    pub(crate) annotations: Option<Vec<Never>>,
}

impl Message {
    /// A message of a role.
    pub(crate) fn text(role: Role, text: String) -> Message {
        Message {
            role,
            content: Some(Content::Parts(vec![TextPart::Text { text }])),
            name: None,
            reasoning_content: None,
            tool_calls: None,
            tool_call_id: None,
            refusal: None,
            audio: None,
            function_call: None,
            annotations: None,
        }
    }
}

/// What a chat template is given of messages that came by the field `param`.
///
/// # Errors
/// No message, too many, or one without content.
pub(crate) fn for_template(messages: Vec<Message>, param: &str) -> Result<Vec<Value>, Fault> {
    if messages.is_empty() || messages.len() > MAX_MESSAGES {
        let message = format!("{param} has {} entries, expected 1 to {MAX_MESSAGES}", messages.len());
        return Err(Fault::field(param, message));
    }
    messages.into_iter().enumerate().map(|(index, message)| one(index, message)).collect()
}

fn one(index: usize, message: Message) -> Result<Value, Fault> {
    let role = match message.role {
        Role::System | Role::Developer => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let content = message.content.map(Content::into_text).or(message.refusal);
    let missing = |field: &str, why: &str| {
        let param = format!("messages[{index}].{field}");
        Err(Fault::field(param.clone(), format!("{param} is missing: {why}")))
    };
    let calls = message.tool_calls.unwrap_or_default();
    if !calls.is_empty() && message.role != Role::Assistant {
        let param = format!("messages[{index}].tool_calls");
        return Err(Fault::field(param.clone(), format!("{param} is of a message that is not the assistant's")));
    }
    if message.role == Role::Tool && message.tool_call_id.is_none() {
        return missing("tool_call_id", "a message of role tool says which call it answers");
    }
    let content = match content {
        Some(content) => content,
        None if !calls.is_empty() => String::new(),
        None => return missing("content", "a message has content, or calls of tools"),
    };
    let mut object = Map::new();
    object.insert("role".into(), role.into());
    object.insert("content".into(), content.into());
    if let Some(name) = message.name {
        object.insert("name".into(), name.into());
    }
    if let Some(reasoning) = message.reasoning_content {
        object.insert("reasoning_content".into(), json!(reasoning));
    }
    if let Some(id) = message.tool_call_id {
        object.insert("tool_call_id".into(), id.into());
    }
    if !calls.is_empty() {
        let calls: Vec<Value> = calls
            .into_iter()
            .map(|call| {
                // Templates write the arguments as an object.
                let arguments = serde_json::from_str::<Map<String, Value>>(&call.function.arguments);
                let arguments = arguments.map_or_else(|_| call.function.arguments.into(), Value::Object);
                json!({
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.function.name, "arguments": arguments},
                })
            })
            .collect();
        object.insert("tool_calls".into(), calls.into());
    }
    Ok(Value::Object(object))
}
