//! How OpenAI's responses API answers: items, whole or in events.

use crate::answer::{Heard, Part, Reason, Usage};
use crate::api::sse::{self, Writer};
use crate::app::{fresh_id, now};
use crate::error::Fault;
use axum::response::sse::Event;
use serde_json::{Value, json};

/// Writes an answer: its items, and the events that tell of them.
pub(super) struct ResponseWriter {
    id: String,
    created: u64,
    model: String,
    /// Fields of the request that answers repeat.
    echo: Value,
    usage: Usage,
    output: Vec<Value>,
    /// The item that is being written, with its text.
    open: Option<(Kind, String)>,
    events: Vec<Event>,
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

impl ResponseWriter {
    /// Writes an answer of a model; `echo` are the fields of the request that it repeats.
    pub(super) fn new(model: &str, echo: Value, usage: Usage) -> ResponseWriter {
        ResponseWriter {
            id: fresh_id("resp_"),
            created: now(),
            model: model.to_owned(),
            echo,
            usage,
            output: Vec::new(),
            open: None,
            events: Vec::new(),
            sequence: 0,
            end: None,
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
        self.events.push(sse::named(name, &event));
    }

    /// The response as it is now.
    pub(super) fn response(&self) -> Value {
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

impl Writer for ResponseWriter {
    fn begin(&mut self) -> Vec<Event> {
        for name in ["response.created", "response.in_progress"] {
            let response = self.response();
            self.event(name, json!({"response": response}));
        }
        std::mem::take(&mut self.events)
    }

    fn take(&mut self, heard: Heard) -> Vec<Event> {
        match heard {
            Heard::Parts { parts, .. } => parts.into_iter().for_each(|part| self.part(part)),
            Heard::End { reason, done, .. } => {
                self.close(reason == Reason::Length);
                self.usage.add(done);
                self.end = Some(reason);
            }
        }
        std::mem::take(&mut self.events)
    }

    fn fail(&mut self, fault: &Fault) -> Vec<Event> {
        let mut response = self.response();
        response["status"] = json!("failed");
        response["error"] = json!({"code": fault.code.unwrap_or("server_error"), "message": fault.message});
        self.event("response.failed", json!({"response": response}));
        std::mem::take(&mut self.events)
    }

    fn end(&mut self) -> Vec<Event> {
        let name = if self.end == Some(Reason::Length) { "response.incomplete" } else { "response.completed" };
        let response = self.response();
        self.event(name, json!({"response": response}));
        std::mem::take(&mut self.events)
    }
}

fn content(kind: Kind, text: &str) -> Value {
    match kind {
        Kind::Reasoning => json!({"type": "reasoning_text", "text": text}),
        _ => json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []}),
    }
}
