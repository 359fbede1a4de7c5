//! What Anthropic's API asks: a conversation in blocks, tools, and how the answer is made.

use crate::body::Fields;
use crate::conversation::{CalledFunction, Message, Never, Role, ToolCall};
use crate::error::Fault;
use crate::tools::{Choice, Tool, Toolbox};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

/// A conversation.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Talk {
    /// The conversation so far.
    pub(super) messages: Vec<Turn>,
    /// Name of a served language model. Without it, the first one.
    pub(super) model: Option<String>,
    /// What the model is told first.
    pub(super) system: Option<Blocks>,
    /// Tools that the model may call.
    pub(super) tools: Option<Vec<ToolDeclaration>>,
    /// Whether and which tool is called.
    pub(super) tool_choice: Option<ToolChoice>,
    /// Whether a model that can think first does, and at most how much.
    pub(super) thinking: Option<ThinkingOptions>,
}

impl Fields for Talk {
    const REFUSED: &'static [(&'static str, &'static str)] = &[
        (
            "cache_control",
            "put it on a block, where it has no effect: prompts that begin alike are found by their text",
        ),
        ("container", "no code is run"),
        ("context_management", "what does not fit is refused"),
        ("mcp_servers", "tools are run by the client"),
    ];
}

/// How the answer is made.
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
pub(crate) struct Making {
    /// Most tokens of the answer, thinking included.
    #[schemars(range(min = 1))]
    pub(super) max_tokens: usize,
    /// Divides the logits; 0 is greedy.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub(super) temperature: Option<f64>,
    /// Keep the fewest tokens whose probability reaches this; 1 is off.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub(super) top_p: Option<f64>,
    /// Keep the k most likely tokens.
    pub(super) top_k: Option<u32>,
    /// The answer ends before the earliest of these.
    pub(super) stop_sequences: Option<Vec<String>>,
    /// Server-sent events while the answer is being made.
    pub(super) stream: Option<bool>,
    /// Who asks: stands in the log.
    pub(super) metadata: Option<Metadata>,
    /// Only `auto` or `standard_only`: there is one tier.
    pub(super) service_tier: Option<Tier>,
}

impl Fields for Making {}

/// Who asks.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Metadata {
    /// Who.
    pub(super) user_id: Option<String>,
}

/// A service tier.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Tier {
    /// The only one.
    Auto,
    /// The only one.
    StandardOnly,
}

/// A message.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Turn {
    /// Who speaks.
    role: Speaks,
    /// What is said.
    content: Blocks,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Speaks {
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// Text, or blocks.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a string, or a list of blocks of type text, tool_use, tool_result or thinking")]
pub(super) enum Blocks {
    /// Text.
    Text(String),
    /// Blocks.
    Many(Vec<Block>),
}

/// A block.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
pub(super) enum Block {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// Only null.
        citations: Option<Never>,
        /// Accepted without effect.
        cache_control: Option<CacheControl>,
    },
    /// A call of a tool.
    ToolUse {
        /// Its id.
        id: String,
        /// What was called.
        name: String,
        /// Its arguments.
        input: Map<String, Value>,
        /// Accepted without effect.
        cache_control: Option<CacheControl>,
    },
    /// What a tool gave.
    ToolResult {
        /// Which call it answers.
        tool_use_id: String,
        /// What it gave.
        content: Option<Results>,
        /// Whether it failed: the model reads "Error: " before it.
        is_error: Option<bool>,
        /// Accepted without effect.
        cache_control: Option<CacheControl>,
    },
    /// What was thought.
    Thinking {
        /// The text.
        thinking: String,
        /// Not checked: thinking is given as it is.
        signature: Option<String>,
    },
}

/// What a tool gave.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a string, or a list of blocks of type text")]
pub(super) enum Results {
    /// Text.
    Text(String),
    /// Blocks of text.
    Many(Vec<ResultBlock>),
}

/// A block of a result.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ResultBlock {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
}

/// A hint for a cache.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
pub(super) struct CacheControl {
    /// How long.
    #[serde(rename = "type")]
    kind: Ephemeral,
    /// How long.
    ttl: Option<String>,
}

/// The only kind.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Ephemeral {
    /// Kept for a while.
    Ephemeral,
}

/// A tool that the model may call.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
pub(super) struct ToolDeclaration {
    /// Only `custom`: tools are run by the client.
    #[serde(rename = "type")]
    kind: Option<Custom>,
    /// Its name.
    name: String,
    /// What it does.
    description: Option<String>,
    /// JSON Schema of its arguments.
    input_schema: Map<String, Value>,
    /// Whether arguments must fit the schema. They do so anyway where a call is forced.
    strict: Option<bool>,
    /// Accepted without effect.
    cache_control: Option<CacheControl>,
}

/// The only kind.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Custom {
    /// Run by the client.
    Custom,
}

/// Whether and which tool is called.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum ToolChoice {
    /// As the model likes.
    Auto {
        /// At most one call.
        disable_parallel_tool_use: Option<bool>,
    },
    /// One is.
    Any {
        /// At most one call, as it is anyway.
        disable_parallel_tool_use: Option<bool>,
    },
    /// This one is.
    Tool {
        /// Its name.
        name: String,
        /// At most one call, as it is anyway.
        disable_parallel_tool_use: Option<bool>,
    },
    /// None is.
    None {},
}

/// How much is thought.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum ThinkingOptions {
    /// At most so much.
    Enabled {
        /// Most tokens.
        budget_tokens: usize,
    },
    /// Nothing.
    Disabled {},
}

/// The conversation as OpenAI's messages.
pub(super) fn messages(system: Option<Blocks>, turns: Vec<Turn>) -> Result<Vec<Message>, Fault> {
    let mut messages = Vec::new();
    if let Some(system) = system {
        messages.push(Message::text(Role::System, plain(system, "system")?));
    }
    for (index, turn) in turns.into_iter().enumerate() {
        let blocks = match turn.content {
            Blocks::Text(text) => {
                let role = if turn.role == Speaks::User { Role::User } else { Role::Assistant };
                messages.push(Message::text(role, text));
                continue;
            }
            Blocks::Many(blocks) => blocks,
        };
        let (mut text, mut thought, mut calls) = (String::new(), None, Vec::new());
        let mut said = false;
        for (at, block) in blocks.into_iter().enumerate() {
            let misplaced = |what: &str, whose: &str| {
                let param = format!("messages[{index}].content[{at}]");
                Fault::field(param.clone(), format!("{param} is a {what}, which only the {whose} has"))
            };
            match (block, turn.role) {
                (Block::Text { text: more, citations: _, cache_control: _ }, _) => {
                    text.push_str(&more);
                    said = true;
                }
                (Block::ToolUse { id, name, input, cache_control: _ }, Speaks::Assistant) => {
                    let function = CalledFunction { name, arguments: Value::Object(input).to_string() };
                    calls.push(ToolCall { id: Some(id), kind: None, index: None, function });
                }
                (Block::Thinking { thinking, signature: _ }, Speaks::Assistant) => thought = Some(thinking),
                (Block::ToolResult { tool_use_id, content, is_error, cache_control: _ }, Speaks::User) => {
                    let content = match content {
                        None => String::new(),
                        Some(Results::Text(text)) => text,
                        Some(Results::Many(blocks)) => {
                            blocks.into_iter().map(|ResultBlock::Text { text }| text).collect()
                        }
                    };
                    let content = if is_error == Some(true) { format!("Error: {content}") } else { content };
                    let mut message = Message::text(Role::Tool, content);
                    message.tool_call_id = Some(tool_use_id);
                    messages.push(message);
                }
                (Block::ToolUse { .. }, Speaks::User) => return Err(misplaced("tool_use", "assistant")),
                (Block::Thinking { .. }, Speaks::User) => return Err(misplaced("thinking", "assistant")),
                (Block::ToolResult { .. }, Speaks::Assistant) => return Err(misplaced("tool_result", "user")),
            }
        }
        if turn.role == Speaks::User {
            if said {
                messages.push(Message::text(Role::User, text));
            }
        } else {
            let mut message = Message::text(Role::Assistant, text);
            message.reasoning_content = thought;
            message.tool_calls = (!calls.is_empty()).then_some(calls);
            messages.push(message);
        }
    }
    Ok(messages)
}

/// Blocks that can only be text.
fn plain(blocks: Blocks, param: &str) -> Result<String, Fault> {
    let blocks = match blocks {
        Blocks::Text(text) => return Ok(text),
        Blocks::Many(blocks) => blocks,
    };
    let text = |block| match block {
        Block::Text { text, .. } => Ok(text),
        _ => Err(Fault::field(param, format!("{param} has a block that is no text"))),
    };
    blocks.into_iter().map(text).collect::<Result<Vec<_>, _>>().map(|texts| texts.join("\n"))
}

/// The tools and the choice.
pub(super) fn toolbox(declared: Option<Vec<ToolDeclaration>>, choice: Option<ToolChoice>) -> Result<Toolbox, Fault> {
    let tools = declared.into_iter().flatten().map(|tool| Tool {
        name: tool.name,
        description: tool.description,
        parameters: tool.input_schema,
        strict: tool.strict.unwrap_or(false),
    });
    let (choice, single) = match choice {
        None => (Choice::Auto, None),
        Some(ToolChoice::Auto { disable_parallel_tool_use }) => (Choice::Auto, disable_parallel_tool_use),
        Some(ToolChoice::Any { disable_parallel_tool_use }) => (Choice::Required, disable_parallel_tool_use),
        Some(ToolChoice::Tool { name, disable_parallel_tool_use }) => (Choice::Named(name), disable_parallel_tool_use),
        Some(ToolChoice::None {}) => (Choice::None, None),
    };
    Toolbox::of(tools.collect(), choice, single.map(|single| !single), |index| format!("tools[{index}]"))
}
