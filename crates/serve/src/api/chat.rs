//! `/v1/chat/completions`.

use super::logprobs;
use super::sampling::Sampling;
use super::sse::{self, Writer};
use crate::answer::{Call, Heard, Part, Usage, Whole};
use crate::app::{App, FINGERPRINT, fresh_id, now};
use crate::ask::{Ask, Thinking};
use crate::body::{Body, Fields};
use crate::conversation::{Message, Never, for_template};
use crate::error::Fault;
use crate::format::{ResponseFormat, held};
use crate::speaker::Speaker;
use crate::tools::{ToolChoice, ToolDeclaration, Toolbox};
use axum::Json;
use axum::extract::State;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use inference::sampling::{MAX_LOGPROBS, Sampled};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// A conversation to be continued.
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "some fields are only checked, by their types")]
pub(crate) struct ChatRequest {
    /// The conversation so far.
    messages: Vec<Message>,
    /// Most tokens of an answer, reasoning included. Without it, until the context is full.
    max_completion_tokens: Option<usize>,
    /// The older name of `max_completion_tokens`.
    max_tokens: Option<usize>,
    /// Whether the tokens of the answer come with their log-probabilities.
    logprobs: Option<bool>,
    /// How many of the likeliest tokens come in the place of each token; only with `logprobs`.
    #[schemars(range(min = 0, max = 20))]
    top_logprobs: Option<usize>,
    /// Tools that the model may call.
    tools: Option<Vec<ToolDeclaration>>,
    /// Whether and which tool is called: `auto`, `none`, `required`, or one by name.
    tool_choice: Option<ToolChoice>,
    /// False: at most one call in an answer; what the model writes after it is left out.
    parallel_tool_calls: Option<bool>,
    /// How much a model that can think first does: `none` not at all, `minimal` 256 tokens, `low` 1024, `medium` 4096, `high`
    /// as many as it likes.
    reasoning_effort: Option<Effort>,
    /// Most tokens of thinking: after them its closing tag is put in. Goes over that of `reasoning_effort`. (Not OpenAI's.)
    thinking_budget: Option<usize>,
    /// Variables of the template: only `enable_thinking` is known. (Not OpenAI's.)
    chat_template_kwargs: Option<TemplateVariables>,
    /// Holds the answer to JSON: `text`, `json_object`, or `json_schema` with a schema. Beside tools, calls may come instead.
    response_format: Option<ResponseFormat>,
    /// Only `["text"]`.
    modalities: Option<Vec<Modality>>,
    /// Only false: answers are not kept.
    store: Option<bool>,
    /// Only `auto` or `default`: there is one tier.
    service_tier: Option<Tier>,
    /// Accepted without effect: prompts that begin alike are found by their text.
    prompt_cache_key: Option<String>,
    /// Who asks, by a hash: stands in the log.
    safety_identifier: Option<String>,
    /// Only null.
    functions: Option<Never>,
}

/// How much is thought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Effort {
    /// Not at all.
    None,
    /// 256 tokens.
    Minimal,
    /// 1024 tokens.
    Low,
    /// 4096 tokens.
    Medium,
    /// As many as it likes.
    High,
    /// As many as it likes.
    Xhigh,
}

impl Effort {
    /// Its name in requests.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Effort::None => "none",
            Effort::Minimal => "minimal",
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
            Effort::Xhigh => "xhigh",
        }
    }
}

/// Variables of a template.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TemplateVariables {
    /// Whether a model that can think first does.
    pub(crate) enable_thinking: Option<bool>,
}

/// A kind of answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Modality {
    /// Text.
    Text,
}

/// A service tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tier {
    /// The only one.
    Auto,
    /// The only one.
    Default,
}

impl Fields for ChatRequest {
    const REFUSED: &'static [(&'static str, &'static str)] = &[
        ("audio", "answers are text"),
        ("function_call", "it is the older form of tool_choice: use that"),
        ("functions", "they are the older form of tools: use those"),
        ("metadata", "answers are not kept, so nothing could be found by it"),
        ("prediction", "there is no predicted output"),
        ("verbosity", "these models know of none: ask for a short answer in the prompt"),
        ("web_search_options", "nothing is looked up"),
    ];
}

/// Answers a conversation.
pub(crate) async fn handle(
    State(app): State<Arc<App>>,
    Body(request, sampling): Body<ChatRequest, Sampling>,
) -> Result<Response, Fault> {
    let (choices, streams) = (sampling.choices()?, sampling.streams()?);
    if request.store == Some(true) {
        return Err(Fault::unsupported("store", "store is true, but answers are not kept: leave it out"));
    }
    let logprobs = wanted_logprobs(&request)?;
    let speaker = app.shelf.chat(sampling.model.as_deref()).await?;
    let mut params = sampling.over(speaker.defaults())?;
    params.logprobs = logprobs;
    params.max_tokens = request.max_completion_tokens.or(request.max_tokens).or(params.max_tokens);
    if params.max_tokens == Some(0) {
        return Err(Fault::field("max_tokens", "max_tokens is 0, expected at least 1"));
    }
    let ask = Ask {
        messages: for_template(request.messages, "messages")?,
        toolbox: Toolbox::new(request.tools, request.tool_choice, request.parallel_tool_calls)?,
        held: held(request.response_format, sampling.grammar)?,
        thinking: thinking(&speaker, request.reasoning_effort, request.chat_template_kwargs, request.thinking_budget)?,
        params,
        choices,
        user: sampling.user.or(request.safety_identifier),
    };
    let (hearing, tokens) = ask.start(&app, &speaker, "messages").await?;
    let reply = Reply {
        id: fresh_id("chatcmpl-"),
        created: now(),
        logprobs: logprobs.is_some(),
        usage: Usage::of_prompt(tokens),
        speaker,
    };
    match streams {
        None => Ok(Json(reply.whole(hearing.collect().await?)).into_response()),
        Some(with_usage) => Ok(sse::respond(Chunks { reply, with_usage, begun: vec![false; choices] }, hearing)),
    }
}

fn wanted_logprobs(request: &ChatRequest) -> Result<Option<usize>, Fault> {
    match (request.logprobs.unwrap_or(false), request.top_logprobs) {
        (false, Some(_)) => Err(Fault::field("top_logprobs", "top_logprobs needs logprobs: true")),
        (_, Some(n)) if n > MAX_LOGPROBS => {
            Err(Fault::field("top_logprobs", format!("top_logprobs is {n}, expected 0 to {MAX_LOGPROBS}")))
        }
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None) => Ok(None),
    }
}

/// How a model is to think, by the fields that say so.
pub(crate) fn thinking(
    speaker: &Speaker,
    effort: Option<Effort>,
    variables: Option<TemplateVariables>,
    budget: Option<usize>,
) -> Result<Thinking, Fault> {
    let variable = variables.and_then(|variables| variables.enable_thinking);
    let (on, most) = match effort {
        None => (variable, None),
        Some(Effort::None) => (Some(false), None),
        Some(Effort::Minimal) => (Some(true), Some(256)),
        Some(Effort::Low) => (Some(true), Some(1024)),
        Some(Effort::Medium) => (Some(true), Some(4096)),
        Some(Effort::High | Effort::Xhigh) => (Some(true), None),
    };
    if effort.is_some() && variable.is_some_and(|variable| Some(variable) != on) {
        let message = "chat_template_kwargs.enable_thinking says otherwise than reasoning_effort";
        return Err(Fault::field("chat_template_kwargs", message));
    }
    let (budget, thinks) = (budget.or(most), speaker.model.tags().is_some());
    let param = match (effort, variable, budget) {
        _ if thinks => None,
        (Some(effort), ..) if effort != Effort::None => Some("reasoning_effort"),
        (None, Some(true), _) => Some("chat_template_kwargs"),
        (None, _, Some(_)) => Some("thinking_budget"),
        _ => None,
    };
    match param {
        Some(param) => {
            Err(Fault::unsupported(param, format!("{} does not reason in blocks: leave {param} out", speaker.name)))
        }
        // A template that does not know the variable is not given it.
        None if !thinks => Ok(Thinking::default()),
        None => Ok(Thinking { on, budget }),
    }
}

/// What all parts of a reply say.
struct Reply {
    id: String,
    created: u64,
    speaker: Arc<Speaker>,
    logprobs: bool,
    usage: Usage,
}

impl Reply {
    fn whole(mut self, answers: Vec<Whole>) -> Value {
        let choices: Vec<Value> = answers
            .into_iter()
            .enumerate()
            .map(|(index, answer)| {
                answer.done().into_iter().for_each(|done| self.usage.add(done));
                let mut message = json!({"role": "assistant", "content": answer.text, "refusal": null});
                if !answer.calls.is_empty() {
                    message["tool_calls"] = answer.calls.iter().map(call).collect();
                    if answer.text.is_empty() {
                        message["content"] = Value::Null;
                    }
                }
                if let Some(reasoning) = &answer.reasoning {
                    message["reasoning_content"] = json!(reasoning);
                }
                json!({
                    "index": index,
                    "message": message,
                    "logprobs": self.logprobs(&answer.tokens),
                    "finish_reason": answer.reason().name(),
                })
            })
            .collect();
        json!({
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.speaker.name,
            "choices": choices,
            "usage": self.usage,
            "system_fingerprint": FINGERPRINT,
        })
    }

    fn logprobs(&self, tokens: &[Sampled]) -> Value {
        if self.logprobs { logprobs::chat(self.speaker.model.tokenizer(), tokens) } else { Value::Null }
    }

    fn chunk(&self, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.speaker.name,
            "choices": choices,
            "system_fingerprint": FINGERPRINT,
        })
    }
}

/// A reply in chunks.
struct Chunks {
    reply: Reply,
    with_usage: bool,
    /// Whether the role of each answer was told.
    begun: Vec<bool>,
}

impl Writer for Chunks {
    fn take(&mut self, heard: Heard) -> Vec<Event> {
        match heard {
            Heard::Parts { choice, parts, tokens } => self.parts(choice, parts, &tokens),
            Heard::End { choice, reason, done } => {
                self.reply.usage.add(done);
                let delta = self.delta(choice, json!({}));
                vec![self.event(choice, delta, &[], json!(reason.name()))]
            }
        }
    }

    fn fail(&mut self, fault: &Fault) -> Vec<Event> {
        vec![sse::data(&fault.body())]
    }

    fn end(&mut self) -> Vec<Event> {
        sse::end(self.reply.chunk(json!([])), self.with_usage.then(|| json!(self.reply.usage)))
    }
}

impl Chunks {
    fn parts(&mut self, choice: usize, parts: Vec<Part>, tokens: &[Sampled]) -> Vec<Event> {
        let mut tokens = Some(tokens);
        let deltas: Vec<Value> = parts.into_iter().map(delta).collect();
        let deltas = if deltas.is_empty() { vec![json!({})] } else { deltas };
        let mut events = Vec::new();
        for delta in deltas {
            let delta = self.delta(choice, delta);
            events.push(self.event(choice, delta, tokens.take().unwrap_or_default(), Value::Null));
        }
        events
    }

    /// The first delta of an answer tells the role.
    fn delta(&mut self, choice: usize, mut delta: Value) -> Value {
        if !std::mem::replace(&mut self.begun[choice], true) {
            delta["role"] = json!("assistant");
        }
        delta
    }

    fn event(&self, choice: usize, delta: Value, tokens: &[Sampled], finish: Value) -> Event {
        let logprobs = if tokens.is_empty() { Value::Null } else { self.reply.logprobs(tokens) };
        let choice = json!({"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": finish});
        let mut chunk = self.reply.chunk(json!([choice]));
        if self.with_usage {
            chunk["usage"] = Value::Null;
        }
        sse::data(&chunk)
    }
}

fn call(call: &Call) -> Value {
    json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}})
}

fn delta(part: Part) -> Value {
    match part {
        Part::Reasoning(text) => json!({"reasoning_content": text}),
        Part::Text(text) => json!({"content": text}),
        Part::Call { index, id, name } => json!({"tool_calls": [
            {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
        ]}),
        Part::Arguments { index, text } => {
            json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
        }
    }
}
