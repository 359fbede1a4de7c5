//! `/v1/responses`: what is asked, and what is answered, whole or in events.

use super::chat::{self, Effort};
use super::sse::{self, Script};
use crate::answer::{Heard, Hearing, Part, Reason, Usage};
use crate::app::{App, fresh_id, now};
use crate::ask::Ask;
use crate::body::{Body, Fields};
use crate::conversation::{
    CalledFunction, Content, FunctionKind, Message, Never, Role, TextPart, ToolCall, for_template,
};
use crate::error::Fault;
use crate::format::TextFormat;
use crate::tools::{Choice, Mode, Tool, Toolbox, no_parameters};
use axum::Json;
use axum::extract::State;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::sync::Arc;

/// A conversation to be continued.
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
pub(crate) struct ResponseRequest {
    /// A question, or the conversation so far.
    input: Input,
    /// Name of a served language model. Without it, the first one.
    model: Option<String>,
    /// What the model is told first.
    instructions: Option<String>,
    /// Most tokens of the answer, reasoning included. Without it, until the context is full.
    max_output_tokens: Option<usize>,
    /// Divides the logits; 0 is greedy.
    #[schemars(range(min = 0.0, max = 100.0))]
    temperature: Option<f64>,
    /// Keep the fewest tokens whose probability reaches this; 1 is off.
    #[schemars(range(min = 0.0, max = 1.0))]
    top_p: Option<f64>,
    /// Server-sent events while the answer is being made.
    stream: Option<bool>,
    /// Only without padding.
    stream_options: Option<StreamOptions>,
    /// Functions that the model may call.
    tools: Option<Vec<FunctionTool>>,
    /// Whether and which tool is called: `auto`, `none`, `required`, or one by name.
    tool_choice: Option<ToolChoice>,
    /// False: at most one call.
    parallel_tool_calls: Option<bool>,
    /// The form of the answer.
    text: Option<TextOptions>,
    /// How much a model that can think first does.
    reasoning: Option<ReasoningOptions>,
    /// Only false: answers are not kept.
    store: Option<bool>,
    /// Only `disabled`: what does not fit is refused.
    truncation: Option<Truncation>,
    /// Only false.
    background: Option<bool>,
    /// Only empty.
    include: Option<Vec<Never>>,
    /// Only `auto` or `default`: there is one tier.
    service_tier: Option<chat::Tier>,
    /// Accepted without effect: prompts that begin alike are found by their text.
    prompt_cache_key: Option<String>,
    /// Who asks, by a hash: stands in the log.
    safety_identifier: Option<String>,
    /// Who asks: stands in the log.
    user: Option<String>,
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
struct StreamOptions {
    /// Only false.
    include_obfuscation: Option<bool>,
}

/// What to do with what does not fit.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Truncation {
    /// Refuse it.
    Disabled,
}

/// A function that the model may call.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
struct FunctionTool {
    /// Only functions.
    #[serde(rename = "type")]
    kind: FunctionKind,
    /// Its name.
    name: String,
    /// What it does.
    description: Option<String>,
    /// JSON Schema of its arguments.
    parameters: Option<Map<String, Value>>,
    /// Whether arguments must fit the schema: only where a call is forced.
    strict: Option<bool>,
}

/// Whether and which tool is called.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected auto, none, required, or {\"type\": \"function\", \"name\": …}")]
enum ToolChoice {
    /// In general.
    Mode(Mode),
    /// This one.
    Named(NamedTool),
}

/// The tool that is called.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
struct NamedTool {
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
struct TextOptions {
    /// Text, or JSON.
    format: Option<TextFormat>,
    /// Only null.
    verbosity: Option<Never>,
}

/// How much is thought.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
struct ReasoningOptions {
    /// How much.
    effort: Option<Effort>,
    /// Only null: what was thought is given as it is.
    summary: Option<Never>,
}

/// What was said so far.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a string, or a list of messages, function_calls, function_call_outputs and reasonings with texts"
)]
enum Input {
    /// A question.
    Text(String),
    /// Messages, calls and their results.
    Items(Vec<Item>),
}

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ItemKind {
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
struct Item {
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
enum ItemContent {
    /// As it is.
    Text(String),
    /// In parts.
    Parts(Vec<ItemPart>),
}

/// A part of a message.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
enum ItemPart {
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
fn messages(instructions: Option<String>, input: Input) -> Result<Vec<Message>, Fault> {
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

/// Answers a conversation.
pub(crate) async fn handle(
    State(app): State<Arc<App>>,
    Body(request, _): Body<ResponseRequest>,
) -> Result<Response, Fault> {
    for (param, value) in [("store", request.store), ("background", request.background)] {
        if value == Some(true) {
            return Err(Fault::unsupported(param, format!("{param} is true, but answers are not kept: leave it out")));
        }
    }
    if request.stream_options.is_some_and(|options| options.include_obfuscation == Some(true)) {
        let message = "stream_options.include_obfuscation is not supported: leave it out";
        return Err(Fault::unsupported("stream_options.include_obfuscation", message));
    }
    let speaker = app.shelf.chat(request.model.as_deref()).await?;
    let mut params = speaker.defaults();
    params.temperature = request.temperature.unwrap_or(params.temperature);
    params.top_p = request.top_p.unwrap_or(params.top_p);
    params.max_tokens = request.max_output_tokens.or(params.max_tokens);
    if params.max_tokens == Some(0) {
        return Err(Fault::field("max_output_tokens", "max_output_tokens is 0, expected at least 1"));
    }
    let effort = request.reasoning.as_ref().and_then(|reasoning| reasoning.effort);
    let thinking = chat::thinking(&speaker, effort, None, None);
    let thinking = thinking.map_err(|fault| Fault { param: Some("reasoning.effort".into()), ..fault })?;
    let format = request.text.and_then(|text| text.format).unwrap_or(TextFormat::Text {});
    let echo = json!({
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "parallel_tool_calls": request.parallel_tool_calls.unwrap_or(true),
        "tool_choice": choice_name(request.tool_choice.as_ref()),
        "tools": request.tools.iter().flatten().map(tool_object).collect::<Vec<_>>(),
        "text": {"format": format.object()},
        "reasoning": {"effort": effort.map(Effort::name), "summary": null},
    });
    let toolbox = toolbox(request.tools, request.tool_choice, request.parallel_tool_calls)?;
    let messages = for_template(messages(request.instructions, request.input)?)?;
    let user = request.user.or(request.safety_identifier);
    let ask = Ask { messages, toolbox, held: format.held(), thinking, params, choices: 1, user };
    let (hearing, tokens) = ask.start(&app, &speaker, "input").await?;
    let mut writer = Writer::new(&speaker.name, echo, Usage::of_prompt(tokens));
    if request.stream.unwrap_or(false) {
        return Ok(sse::respond(Stream { writer, hearing, begun: false, ended: false }));
    }
    let mut hearing = hearing;
    while let Some(heard) = hearing.next().await {
        writer.take(heard?);
    }
    Ok(Json(writer.response()).into_response())
}

fn toolbox(
    declared: Option<Vec<FunctionTool>>,
    choice: Option<ToolChoice>,
    parallel: Option<bool>,
) -> Result<Toolbox, Fault> {
    let mut strict = None;
    let mut tools = Vec::new();
    for (index, tool) in declared.into_iter().flatten().enumerate() {
        if tool.strict == Some(true) {
            strict.get_or_insert(format!("tools[{index}].strict"));
        }
        tools.push(Tool {
            name: tool.name,
            description: tool.description,
            parameters: tool.parameters.unwrap_or_else(no_parameters),
        });
    }
    let choice = match choice {
        None | Some(ToolChoice::Mode(Mode::Auto)) => Choice::Auto,
        Some(ToolChoice::Mode(Mode::None)) => Choice::None,
        Some(ToolChoice::Mode(Mode::Required)) => Choice::Required,
        Some(ToolChoice::Named(named)) => Choice::Named(named.name),
    };
    Toolbox::of(tools, choice, parallel, |index| format!("tools[{index}]"), strict)
}

fn tool_object(tool: &FunctionTool) -> Value {
    json!({
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict.unwrap_or(false),
    })
}

fn choice_name(choice: Option<&ToolChoice>) -> Value {
    match choice {
        None | Some(ToolChoice::Mode(Mode::Auto)) => json!("auto"),
        Some(ToolChoice::Mode(Mode::None)) => json!("none"),
        Some(ToolChoice::Mode(Mode::Required)) => json!("required"),
        Some(ToolChoice::Named(named)) => json!({"type": "function", "name": named.name}),
    }
}

/// Writes an answer: its items, and the events that tell of them.
struct Writer {
    id: String,
    created: u64,
    model: String,
    /// Fields of the request that answers repeat.
    echo: Value,
    usage: Usage,
    output: Vec<Value>,
    /// The item that is being written, with its text.
    open: Option<(Kind, String)>,
    events: VecDeque<Event>,
    sequence: u64,
    end: Option<Reason>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Message,
    Call,
}

impl Kind {
    /// The name of the content of an item.
    fn content(self) -> &'static str {
        match self {
            Kind::Reasoning => "reasoning_text",
            Kind::Message | Kind::Call => "output_text",
        }
    }
}

impl Writer {
    fn new(model: &str, echo: Value, usage: Usage) -> Writer {
        Writer {
            id: fresh_id("resp_"),
            created: now(),
            model: model.to_owned(),
            echo,
            usage,
            output: Vec::new(),
            open: None,
            events: VecDeque::new(),
            sequence: 0,
            end: None,
        }
    }

    fn take(&mut self, heard: Heard) {
        match heard {
            Heard::Parts { parts, .. } => parts.into_iter().for_each(|part| self.part(part)),
            Heard::End { reason, done, .. } => {
                self.close(reason == Reason::Length);
                self.usage.add(done);
                self.end = Some(reason);
            }
        }
    }

    fn part(&mut self, part: Part) {
        match part {
            Part::Reasoning(text) => self.text(Kind::Reasoning, &text),
            Part::Text(text) => self.text(Kind::Message, &text),
            Part::Call { id, name, .. } => {
                self.close(false);
                let item = json!({"type": "function_call", "id": fresh_id("fc_"), "call_id": id, "name": name,
                    "arguments": "", "status": "in_progress"});
                self.add(Kind::Call, item);
            }
            Part::Arguments { text, .. } => {
                if let Some((_, all)) = &mut self.open {
                    all.push_str(&text);
                }
                let event = self.of_item(json!({"delta": text}));
                self.event("response.function_call_arguments.delta", event);
            }
        }
    }

    fn text(&mut self, kind: Kind, text: &str) {
        if self.open.as_ref().is_none_or(|(open, _)| *open != kind) {
            self.close(false);
            let item = match kind {
                Kind::Reasoning => json!({"type": "reasoning", "id": fresh_id("rs_"), "summary": [], "content": [],
                    "status": "in_progress"}),
                _ => json!({"type": "message", "id": fresh_id("msg_"), "role": "assistant", "content": [],
                    "status": "in_progress"}),
            };
            self.add(kind, item);
            let event = self.of_content(json!({"part": content(kind, "")}));
            self.event("response.content_part.added", event);
        }
        if let Some((_, all)) = &mut self.open {
            all.push_str(text);
        }
        let mut event = self.of_content(json!({"delta": text}));
        if kind == Kind::Message {
            event["logprobs"] = json!([]);
        }
        self.event(&format!("response.{}.delta", kind.content()), event);
    }

    fn add(&mut self, kind: Kind, item: Value) {
        self.output.push(item.clone());
        self.open = Some((kind, String::new()));
        let event = json!({"output_index": self.output.len() - 1, "item": item});
        self.event("response.output_item.added", event);
    }

    /// Ends the item that is being written.
    fn close(&mut self, cut: bool) {
        let Some((kind, text)) = self.open.take() else { return };
        let index = self.output.len() - 1;
        if kind == Kind::Call {
            self.output[index]["arguments"] = json!(text);
            let name = self.output[index]["name"].clone();
            let event = self.of_item(json!({"name": name, "arguments": text}));
            self.event("response.function_call_arguments.done", event);
        } else {
            let part = content(kind, &text);
            let mut event = self.of_content(json!({"text": text}));
            if kind == Kind::Message {
                event["logprobs"] = json!([]);
            }
            self.event(&format!("response.{}.done", kind.content()), event);
            let event = self.of_content(json!({"part": part}));
            self.event("response.content_part.done", event);
            self.output[index]["content"] = json!([part]);
        }
        self.output[index]["status"] = json!(if cut { "incomplete" } else { "completed" });
        let event = json!({"output_index": index, "item": self.output[index]});
        self.event("response.output_item.done", event);
    }

    fn of_item(&self, mut event: Value) -> Value {
        let index = self.output.len().saturating_sub(1);
        event["item_id"] = self.output.get(index).map_or(Value::Null, |item| item["id"].clone());
        event["output_index"] = json!(index);
        event
    }

    fn of_content(&self, event: Value) -> Value {
        let mut event = self.of_item(event);
        event["content_index"] = json!(0);
        event
    }

    fn event(&mut self, name: &str, mut event: Value) {
        event["type"] = json!(name);
        event["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        self.events.push_back(sse::named(name, &event));
    }

    fn response(&self) -> Value {
        let (status, why) = match self.end {
            None => ("in_progress", Value::Null),
            Some(Reason::Length) => ("incomplete", json!({"reason": "max_output_tokens"})),
            Some(_) => ("completed", Value::Null),
        };
        let usage = json!({
            "input_tokens": self.usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": self.usage.prompt_tokens_details.cached_tokens},
            "output_tokens": self.usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": self.usage.completion_tokens_details.reasoning_tokens},
            "total_tokens": self.usage.total_tokens,
        });
        let mut response = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": null,
            "incomplete_details": why,
            "model": self.model,
            "output": self.output,
            "previous_response_id": null,
            "store": false,
            "truncation": "disabled",
            "metadata": {},
            "usage": if self.end.is_some() { usage } else { Value::Null },
        });
        if let (Some(response), Some(echo)) = (response.as_object_mut(), self.echo.as_object()) {
            response.extend(echo.clone());
        }
        response
    }
}

fn content(kind: Kind, text: &str) -> Value {
    match kind {
        Kind::Reasoning => json!({"type": "reasoning_text", "text": text}),
        _ => json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []}),
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
            for name in ["response.created", "response.in_progress"] {
                let response = writer.response();
                writer.event(name, json!({"response": response}));
            }
            return Some(writer.events.drain(..).collect());
        }
        match self.hearing.next().await {
            Some(Ok(heard)) => writer.take(heard),
            Some(Err(fault)) => {
                self.ended = true;
                let mut response = writer.response();
                response["status"] = json!("failed");
                response["error"] = json!({"code": fault.code.unwrap_or("server_error"), "message": fault.message});
                writer.event("response.failed", json!({"response": response}));
            }
            None => {
                self.ended = true;
                let name = match writer.end {
                    Some(Reason::Length) => "response.incomplete",
                    _ => "response.completed",
                };
                let response = writer.response();
                writer.event(name, json!({"response": response}));
            }
        }
        Some(writer.events.drain(..).collect())
    }
}
