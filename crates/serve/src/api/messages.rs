//! `/v1/messages` and `/v1/messages/count_tokens`: Anthropic's shape.

use super::chat;
use super::sse::{self, Script};
use crate::answer::{Heard, Hearing, Part, Reason, Usage};
use crate::app::{App, fresh_id};
use crate::ask::{Ask, Thinking, render};
use crate::body::{Body, Fields};
use crate::conversation::{CalledFunction, Message, Never, Role, ToolCall, for_template};
use crate::error::Fault;
use crate::speaker::Speaker;
use crate::tools::{Choice, Tool, Toolbox};
use axum::Json;
use axum::extract::State;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// A conversation.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Talk {
    /// The conversation so far.
    messages: Vec<Turn>,
    /// Name of a served language model. Without it, the first one.
    model: Option<String>,
    /// What the model is told first.
    system: Option<Blocks>,
    /// Tools that the model may call.
    tools: Option<Vec<ToolDeclaration>>,
    /// Whether and which tool is called.
    tool_choice: Option<ToolChoice>,
    /// Whether a model that can think first does, and at most how much.
    thinking: Option<ThinkingOptions>,
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
    max_tokens: usize,
    /// Divides the logits; 0 is greedy.
    #[schemars(range(min = 0.0, max = 100.0))]
    temperature: Option<f64>,
    /// Keep the fewest tokens whose probability reaches this; 1 is off.
    #[schemars(range(min = 0.0, max = 1.0))]
    top_p: Option<f64>,
    /// Keep the k most likely tokens.
    top_k: Option<u32>,
    /// The answer ends before the earliest of these.
    stop_sequences: Option<Vec<String>>,
    /// Server-sent events while the answer is being made.
    stream: Option<bool>,
    /// Who asks: stands in the log.
    metadata: Option<Metadata>,
    /// Only `auto` or `standard_only`: there is one tier.
    service_tier: Option<Tier>,
}

impl Fields for Making {}

/// Who asks.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Metadata {
    /// Who.
    user_id: Option<String>,
}

/// A service tier.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Tier {
    /// The only one.
    Auto,
    /// The only one.
    StandardOnly,
}

/// A message.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Turn {
    /// Who speaks.
    role: Speaks,
    /// What is said.
    content: Blocks,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Speaks {
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// Text, or blocks.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a string, or a list of blocks of type text, tool_use, tool_result or thinking")]
enum Blocks {
    /// Text.
    Text(String),
    /// Blocks.
    Many(Vec<Block>),
}

/// A block.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
enum Block {
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
enum Results {
    /// Text.
    Text(String),
    /// Blocks of text.
    Many(Vec<ResultBlock>),
}

/// A block of a result.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum ResultBlock {
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
struct CacheControl {
    /// How long.
    #[serde(rename = "type")]
    kind: Ephemeral,
    /// How long.
    ttl: Option<String>,
}

/// The only kind.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Ephemeral {
    /// Kept for a while.
    Ephemeral,
}

/// A tool that the model may call.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
struct ToolDeclaration {
    /// Only `custom`: tools are run by the client.
    #[serde(rename = "type")]
    kind: Option<Custom>,
    /// Its name.
    name: String,
    /// What it does.
    description: Option<String>,
    /// JSON Schema of its arguments.
    input_schema: Map<String, Value>,
    /// Accepted without effect.
    cache_control: Option<CacheControl>,
}

/// The only kind.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Custom {
    /// Run by the client.
    Custom,
}

/// Whether and which tool is called.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
enum ToolChoice {
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
enum ThinkingOptions {
    /// At most so much.
    Enabled {
        /// Most tokens.
        budget_tokens: usize,
    },
    /// Nothing.
    Disabled {},
}

fn messages(system: Option<Blocks>, turns: Vec<Turn>) -> Result<Vec<Message>, Fault> {
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

fn toolbox(declared: Option<Vec<ToolDeclaration>>, choice: Option<ToolChoice>) -> Result<Toolbox, Fault> {
    let tools = declared.into_iter().flatten().map(|tool| Tool {
        name: tool.name,
        description: tool.description,
        parameters: tool.input_schema,
    });
    let (choice, single) = match choice {
        None => (Choice::Auto, None),
        Some(ToolChoice::Auto { disable_parallel_tool_use }) => (Choice::Auto, disable_parallel_tool_use),
        Some(ToolChoice::Any { disable_parallel_tool_use }) => (Choice::Required, disable_parallel_tool_use),
        Some(ToolChoice::Tool { name, disable_parallel_tool_use }) => (Choice::Named(name), disable_parallel_tool_use),
        Some(ToolChoice::None {}) => (Choice::None, None),
    };
    Toolbox::of(tools.collect(), choice, single.map(|single| !single), |index| format!("tools[{index}]"), None)
}

fn thinking(speaker: &Speaker, options: Option<ThinkingOptions>) -> Result<Thinking, Fault> {
    let (on, budget) = match options {
        None => return Ok(Thinking::default()),
        Some(ThinkingOptions::Enabled { budget_tokens }) => (true, Some(budget_tokens)),
        Some(ThinkingOptions::Disabled {}) => (false, None),
    };
    let variables = chat::TemplateVariables { enable_thinking: Some(on) };
    let thinking = chat::thinking(speaker, None, Some(variables), budget);
    thinking.map_err(|fault| Fault { param: Some("thinking".into()), ..fault })
}

/// Answers a conversation.
pub(crate) async fn handle(
    State(app): State<Arc<App>>,
    Body(talk, making): Body<Talk, Making>,
) -> Result<Response, Fault> {
    let speaker = app.shelf.chat(talk.model.as_deref()).await?;
    let mut params = speaker.defaults();
    params.temperature = making.temperature.unwrap_or(params.temperature);
    params.top_p = making.top_p.unwrap_or(params.top_p);
    params.top_k = making.top_k.map_or(params.top_k, |k| k as usize);
    params.stop = making.stop_sequences.unwrap_or(params.stop);
    params.max_tokens = Some(making.max_tokens);
    if making.max_tokens == 0 {
        return Err(Fault::field("max_tokens", "max_tokens is 0, expected at least 1"));
    }
    let stops = params.stop.clone();
    let ask = Ask {
        messages: for_template(messages(talk.system, talk.messages)?)?,
        toolbox: toolbox(talk.tools, talk.tool_choice)?,
        held: None,
        thinking: thinking(&speaker, talk.thinking)?,
        params,
        choices: 1,
        user: making.metadata.and_then(|metadata| metadata.user_id),
    };
    let (hearing, tokens) = ask.start(&app, &speaker, "messages").await?;
    let mut writer = Writer {
        id: fresh_id("msg_"),
        model: speaker.name.clone(),
        usage: Usage::of_prompt(tokens),
        stops,
        content: Vec::new(),
        open: None,
        events: Vec::new(),
        end: None,
    };
    if making.stream.unwrap_or(false) {
        return Ok(sse::respond(Stream { writer, hearing, begun: false, ended: false }));
    }
    let mut hearing = hearing;
    while let Some(heard) = hearing.next().await {
        writer.take(heard?);
    }
    Ok(Json(writer.message()).into_response())
}

/// Counts the tokens of a conversation.
pub(crate) async fn count_tokens(State(app): State<Arc<App>>, Body(talk, _): Body<Talk>) -> Result<Json<Value>, Fault> {
    let speaker = app.shelf.chat(talk.model.as_deref()).await?;
    let messages = for_template(messages(talk.system, talk.messages)?)?;
    let (toolbox, thinking) = (toolbox(talk.tools, talk.tool_choice)?, thinking(&speaker, talk.thinking)?);
    let work = tokio::task::spawn_blocking(move || {
        let text = render(&speaker, messages, &toolbox, thinking.on, "messages")?;
        speaker.encode(&text, true, "messages")
    });
    let ids = work.await.unwrap_or_else(|error| Err(Fault::internal(format!("an internal error: {error}"))))?;
    Ok(Json(json!({"input_tokens": ids.len()})))
}

/// Writes an answer: its blocks, and the events that tell of them.
struct Writer {
    id: String,
    model: String,
    usage: Usage,
    stops: Vec<String>,
    content: Vec<Value>,
    /// The block that is being written: its kind, and its text.
    open: Option<(&'static str, String)>,
    events: Vec<Event>,
    end: Option<(Reason, Option<usize>)>,
}

impl Writer {
    fn take(&mut self, heard: Heard) {
        match heard {
            Heard::Parts { parts, .. } => parts.into_iter().for_each(|part| self.part(part)),
            Heard::End { reason, done, .. } => {
                self.close();
                self.usage.add(done);
                self.end = Some((reason, done.stop));
            }
        }
    }

    fn part(&mut self, part: Part) {
        match part {
            Part::Reasoning(text) => self.text("thinking", &text),
            Part::Text(text) => self.text("text", &text),
            Part::Call { id, name, .. } => {
                self.close();
                self.add("tool_use", json!({"type": "tool_use", "id": id, "name": name, "input": {}}));
            }
            Part::Arguments { text, .. } => {
                if let Some((_, all)) = &mut self.open {
                    all.push_str(&text);
                }
                self.delta(json!({"type": "input_json_delta", "partial_json": text}));
            }
        }
    }

    fn text(&mut self, kind: &'static str, text: &str) {
        if self.open.as_ref().is_none_or(|(open, _)| *open != kind) {
            self.close();
            let mut block = json!({"type": kind, kind: ""});
            if kind == "thinking" {
                block["signature"] = json!("");
            }
            self.add(kind, block);
        }
        if let Some((_, all)) = &mut self.open {
            all.push_str(text);
        }
        self.delta(json!({"type": format!("{kind}_delta"), kind: text}));
    }

    fn add(&mut self, kind: &'static str, block: Value) {
        let event = json!({"type": "content_block_start", "index": self.content.len(), "content_block": block});
        self.event(&event);
        self.content.push(block);
        self.open = Some((kind, String::new()));
    }

    fn delta(&mut self, delta: Value) {
        let event = json!({"type": "content_block_delta", "index": self.content.len() - 1, "delta": delta});
        self.event(&event);
    }

    fn close(&mut self) {
        let Some((kind, text)) = self.open.take() else { return };
        let index = self.content.len() - 1;
        match kind {
            "tool_use" => self.content[index]["input"] = serde_json::from_str(&text).unwrap_or_else(|_| json!({})),
            kind => self.content[index][kind] = json!(text),
        }
        self.event(&json!({"type": "content_block_stop", "index": index}));
    }

    fn event(&mut self, event: &Value) {
        let name = event["type"].as_str().unwrap_or_default().to_owned();
        self.events.push(sse::named(&name, event));
    }

    fn stop(&self) -> (Value, Value) {
        match self.end {
            None => (Value::Null, Value::Null),
            Some((Reason::ToolCalls, _)) => (json!("tool_use"), Value::Null),
            Some((Reason::Length, _)) => (json!("max_tokens"), Value::Null),
            Some((Reason::Stop, Some(stop))) => (json!("stop_sequence"), json!(self.stops.get(stop))),
            Some((Reason::Stop, None)) => (json!("end_turn"), Value::Null),
        }
    }

    fn message(&self) -> Value {
        let (reason, sequence) = self.stop();
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": self.content,
            "stop_reason": reason,
            "stop_sequence": sequence,
            "usage": {
                // Anthropic's input tokens are those that were not read from the cache.
                "input_tokens": self.usage.prompt_tokens - self.usage.prompt_tokens_details.cached_tokens,
                "cache_read_input_tokens": self.usage.prompt_tokens_details.cached_tokens,
                "output_tokens": self.usage.completion_tokens,
            },
        })
    }
}

/// An answer in events.
struct Stream {
    writer: Writer,
    hearing: Hearing,
    begun: bool,
    ended: bool,
}

impl Script for Stream {
    async fn next(&mut self) -> Option<Vec<Event>> {
        if self.ended {
            return None;
        }
        let writer = &mut self.writer;
        if !std::mem::replace(&mut self.begun, true) {
            let event = json!({"type": "message_start", "message": writer.message()});
            writer.event(&event);
            return Some(std::mem::take(&mut writer.events));
        }
        match self.hearing.next().await {
            Some(Ok(heard)) => writer.take(heard),
            Some(Err(fault)) => {
                self.ended = true;
                writer.event(&fault.anthropic());
            }
            None => {
                self.ended = true;
                let (reason, sequence) = writer.stop();
                writer.event(&json!({
                    "type": "message_delta",
                    "delta": {"stop_reason": reason, "stop_sequence": sequence},
                    "usage": {"output_tokens": writer.usage.completion_tokens},
                }));
                writer.event(&json!({"type": "message_stop"}));
            }
        }
        Some(std::mem::take(&mut writer.events))
    }
}
