//! What OpenAI's responses API asks: items, tools, and the form of the answer.

use crate::api::chat::{self, Effort};
use crate::body::Fields;
use crate::conversation::{CalledFunction, FunctionKind, Message, Never, Role, ToolCall};
use crate::error::Fault;
use crate::format::TextFormat;
use crate::tools::{Choice, Mode, Tool, Toolbox, no_parameters};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A conversation to be continued.
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
pub(crate) struct ResponseRequest {
    /// A question, or the conversation so far.
    pub(super) input: Input,
    /// Name of a served language model. Without it, the first one.
    pub(super) model: Option<String>,
    /// What the model is told first.
    pub(super) instructions: Option<String>,
    /// Most tokens of the answer, reasoning included. Without it, until the context is full.
    pub(super) max_output_tokens: Option<usize>,
    /// Divides the logits; 0 is greedy.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub(super) temperature: Option<f64>,
    /// Keep the fewest tokens whose probability reaches this; 1 is off.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub(super) top_p: Option<f64>,
    /// Server-sent events while the answer is being made.
    pub(super) stream: Option<bool>,
    /// Only without padding.
    pub(super) stream_options: Option<StreamOptions>,
    /// Functions that the model may call.
    pub(super) tools: Option<Vec<FunctionTool>>,
    /// Whether and which tool is called: `auto`, `none`, `required`, or one by name.
    pub(super) tool_choice: Option<ToolChoice>,
    /// False: at most one call.
    pub(super) parallel_tool_calls: Option<bool>,
    /// The form of the answer.
    pub(super) text: Option<TextOptions>,
    /// How much a model that can think first does.
    pub(super) reasoning: Option<ReasoningOptions>,
    /// Only false: answers are not kept.
    pub(super) store: Option<bool>,
    /// Only `disabled`: what does not fit is refused.
    pub(super) truncation: Option<Truncation>,
    /// Only false.
    pub(super) background: Option<bool>,
    /// Only empty.
    pub(super) include: Option<Vec<Never>>,
    /// Only `auto` or `default`: there is one tier.
    pub(super) service_tier: Option<chat::Tier>,
    /// Accepted without effect: prompts that begin alike are found by their text.
    pub(super) prompt_cache_key: Option<String>,
    /// Who asks, by a hash: stands in the log.
    pub(super) safety_identifier: Option<String>,
    /// Who asks: stands in the log.
    pub(super) user: Option<String>,
}

impl Fields for ResponseRequest {
    const REFUSED: &'static [(&'static str, &'static str)] = &[
        ("conversation", "conversations are not kept: send the messages as input"),
        ("max_tool_calls", "tools are run by the client, which can count them"),
        ("metadata", "answers are not kept, so nothing could be found by it"),
        ("previous_response_id", "answers are not kept: send the conversation as input"),
        ("prompt", "there are no stored prompts: send the text as instructions and input"),
        ("prompt_cache_retention", "the cache keeps what fits"),
        ("top_logprobs", "log-probabilities are given by /v1/chat/completions"),
        ("verbosity", "these models know of none: ask for a short answer in the prompt"),
    ];
}

/// How a stream comes.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamOptions {
    /// Only false.
    pub(super) include_obfuscation: Option<bool>,
}

/// What to do with what does not fit.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Truncation {
    /// Refuse it.
    Disabled,
}

/// A function that the model may call.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
pub(super) struct FunctionTool {
    /// Only functions.
    #[serde(rename = "type")]
    kind: FunctionKind,
    /// Its name.
    name: String,
    /// What it does.
    description: Option<String>,
    /// JSON Schema of its arguments.
    parameters: Option<Map<String, Value>>,
    /// Whether arguments must fit the schema. They do so anyway where a call is forced.
    strict: Option<bool>,
}

/// Whether and which tool is called.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected auto, none, required, or {\"type\": \"function\", \"name\": …}")]
pub(super) enum ToolChoice {
    /// In general.
    Mode(Mode),
    /// This one.
    Named(NamedTool),
}

/// The tool that is called.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
pub(super) struct NamedTool {
    /// Only functions.
    #[serde(rename = "type")]
    kind: FunctionKind,
    /// Its name.
    name: String,
}

/// The form of the answer.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
pub(super) struct TextOptions {
    /// Text, or JSON.
    pub(super) format: Option<TextFormat>,
    /// Only null.
    pub(super) verbosity: Option<Never>,
}

/// How much is thought.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
pub(super) struct ReasoningOptions {
    /// How much.
    pub(super) effort: Option<Effort>,
    /// Only null: what was thought is given as it is.
    pub(super) summary: Option<Never>,
}

/// What was said so far.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a string, or a list of messages, function_calls, function_call_outputs and reasonings with texts"
)]
pub(super) enum Input {
    /// A question.
    Text(String),
    /// Messages, calls and their results.
    Items(Vec<Item>),
}

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ItemKind {
    /// A message: `role` and `content`.
    Message,
    /// A call: `call_id`, `name` and `arguments`.
    FunctionCall,
    /// Its result: `call_id` and `output`.
    FunctionCallOutput,
    /// What was thought: `content`.
    Reasoning,
}

/// A message, a call, its result, or what was thought.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
pub(super) struct Item {
    /// What it is; a message if it is not said.
    #[serde(rename = "type")]
    kind: Option<ItemKind>,
    /// Its id, in an answer sent back.
    id: Option<String>,
    /// Of an answer sent back.
    status: Option<String>,
    /// Who speaks.
    role: Option<Role>,
    /// What is said or thought.
    content: Option<ItemContent>,
    /// Which call.
    call_id: Option<String>,
    /// What is called.
    name: Option<String>,
    /// Its arguments as JSON.
    arguments: Option<String>,
    /// What a tool gave.
    output: Option<ItemContent>,
    /// Of what was thought: empty.
    summary: Option<Vec<Never>>,
    /// Only null.
    encrypted_content: Option<Never>,
}

/// Text, or parts of it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a string, or a list of parts of type input_text, output_text, refusal or reasoning_text"
)]
pub(super) enum ItemContent {
    /// As it is.
    Text(String),
    /// In parts.
    Parts(Vec<ItemPart>),
}

/// A part of a message.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
pub(super) enum ItemPart {
    /// What a person says.
    InputText {
        /// The text.
        text: String,
    },
    /// What the model said.
    OutputText {
        /// The text.
        text: String,
        /// Empty.
        annotations: Option<Vec<Never>>,
        /// Empty.
        logprobs: Option<Vec<Never>>,
    },
    /// What the model refused.
    Refusal {
        /// The text.
        refusal: String,
    },
    /// What was thought.
    ReasoningText {
        /// The text.
        text: String,
    },
}

impl ItemContent {
    fn into_text(self) -> String {
        match self {
            ItemContent::Text(text) => text,
            ItemContent::Parts(parts) => parts
                .into_iter()
                .map(|part| match part {
                    ItemPart::InputText { text }
                    | ItemPart::OutputText { text, annotations: _, logprobs: _ }
                    | ItemPart::ReasoningText { text }
                    | ItemPart::Refusal { refusal: text } => text,
                })
                .collect(),
        }
    }
}

/// Input as messages.
pub(super) fn messages(instructions: Option<String>, input: Input) -> Result<Vec<Message>, Fault> {
    let mut messages = Vec::new();
    messages.extend(instructions.map(|text| Message::text(Role::System, text)));
    let items = match input {
        Input::Text(text) => {
            messages.push(Message::text(Role::User, text));
            return Ok(messages);
        }
        Input::Items(items) => items,
    };
    let mut thought: Option<String> = None;
    for (index, item) in items.into_iter().enumerate() {
        let need = |field: &str, value: Option<String>| {
            let param = format!("input[{index}].{field}");
            value.ok_or_else(|| Fault::field(param.clone(), format!("{param} is missing")))
        };
        match item.kind.unwrap_or(ItemKind::Message) {
            ItemKind::Message => {
                let param = format!("input[{index}].role");
                let role = item.role.ok_or_else(|| Fault::field(param.clone(), format!("{param} is missing")))?;
                let text = need("content", item.content.map(ItemContent::into_text))?;
                let mut message = Message::text(role, text);
                if role == Role::Assistant {
                    message.reasoning_content = thought.take();
                }
                messages.push(message);
            }
            ItemKind::FunctionCall => {
                let call = ToolCall {
                    id: Some(need("call_id", item.call_id)?),
                    kind: None,
                    index: None,
                    function: CalledFunction {
                        name: need("name", item.name)?,
                        arguments: need("arguments", item.arguments)?,
                    },
                };
                match messages.last_mut().filter(|message| message.role == Role::Assistant) {
                    Some(message) => message.tool_calls.get_or_insert_default().push(call),
                    None => {
                        let mut message = Message::text(Role::Assistant, String::new());
                        message.reasoning_content = thought.take();
                        message.tool_calls = Some(vec![call]);
                        messages.push(message);
                    }
                }
            }
            ItemKind::FunctionCallOutput => {
                let mut message = Message::text(Role::Tool, need("output", item.output.map(ItemContent::into_text))?);
                message.tool_call_id = Some(need("call_id", item.call_id)?);
                messages.push(message);
            }
            ItemKind::Reasoning => thought = item.content.map(ItemContent::into_text),
        }
    }
    Ok(messages)
}

/// The tools and the choice.
pub(super) fn toolbox(
    declared: Option<Vec<FunctionTool>>,
    choice: Option<ToolChoice>,
    parallel: Option<bool>,
) -> Result<Toolbox, Fault> {
    let tool = |tool: FunctionTool| Tool {
        name: tool.name,
        description: tool.description,
        parameters: tool.parameters.unwrap_or_else(no_parameters),
        strict: tool.strict.unwrap_or(false),
    };
    let tools = declared.into_iter().flatten().map(tool).collect();
    let choice = match choice {
        None | Some(ToolChoice::Mode(Mode::Auto)) => Choice::Auto,
        Some(ToolChoice::Mode(Mode::None)) => Choice::None,
        Some(ToolChoice::Mode(Mode::Required)) => Choice::Required,
        Some(ToolChoice::Named(named)) => Choice::Named(named.name),
    };
    Toolbox::of(tools, choice, parallel, |index| format!("tools[{index}]"))
}

/// A tool, as answers repeat it.
pub(super) fn tool_object(tool: &FunctionTool) -> Value {
    json!({
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict.unwrap_or(false),
    })
}

/// A choice, as answers repeat it.
pub(super) fn choice_name(choice: Option<&ToolChoice>) -> Value {
    match choice {
        None | Some(ToolChoice::Mode(Mode::Auto)) => json!("auto"),
        Some(ToolChoice::Mode(Mode::None)) => json!("none"),
        Some(ToolChoice::Mode(Mode::Required)) => json!("required"),
        Some(ToolChoice::Named(named)) => json!({"type": "function", "name": named.name}),
    }
}
