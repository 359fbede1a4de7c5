//! How Anthropic's API answers: blocks, whole or in events.

use crate::answer::{Heard, Part, Reason, Usage};
use crate::api::sse::{self, Writer};
use crate::app::fresh_id;
use crate::error::Fault;
use axum::response::sse::Event;
use serde_json::{Value, json};

/// Writes an answer: its blocks, and the events that tell of them.
pub(super) struct MessageWriter {
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

impl MessageWriter {
    /// Writes an answer of a model to a prompt of so many tokens; `stops` are what may end it.
    pub(super) fn new(model: &str, prompt: usize, stops: Vec<String>) -> MessageWriter {
        MessageWriter {
            id: fresh_id("msg_"),
            model: model.to_owned(),
            usage: Usage::of_prompt(prompt),
            stops,
            content: Vec::new(),
            open: None,
            events: Vec::new(),
            end: None,
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

    /// The message as it is now.
    pub(super) fn message(&self) -> Value {
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

impl Writer for MessageWriter {
    fn begin(&mut self) -> Vec<Event> {
        let event = json!({"type": "message_start", "message": self.message()});
        self.event(&event);
        std::mem::take(&mut self.events)
    }

    fn take(&mut self, heard: Heard) -> Vec<Event> {
        match heard {
            Heard::Parts { parts, .. } => parts.into_iter().for_each(|part| self.part(part)),
            Heard::End { reason, done, .. } => {
                self.close();
                self.usage.add(done);
                self.end = Some((reason, done.stop));
            }
        }
        std::mem::take(&mut self.events)
    }

    fn fail(&mut self, fault: &Fault) -> Vec<Event> {
        self.event(&fault.anthropic());
        std::mem::take(&mut self.events)
    }

    fn end(&mut self) -> Vec<Event> {
        let (reason, sequence) = self.stop();
        self.event(&json!({
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": sequence},
            "usage": {"output_tokens": self.usage.completion_tokens},
        }));
        self.event(&json!({"type": "message_stop"}));
        std::mem::take(&mut self.events)
    }
}
