//! `/v1/messages` and `/v1/messages/count_tokens`: Anthropic's shape.

mod request;
mod writer;

pub(crate) use request::{Making, Talk};

use super::chat;
use super::sse::{self, Writer};
use crate::app::App;
use crate::ask::{Ask, Thinking, render};
use crate::body::Body;
use crate::conversation::for_template;
use crate::error::Fault;
use crate::speaker::Speaker;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use request::{ThinkingOptions, messages, toolbox};
use serde_json::{Value, json};
use std::sync::Arc;
use writer::MessageWriter;

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
        messages: for_template(messages(talk.system, talk.messages)?, "messages")?,
        toolbox: toolbox(talk.tools, talk.tool_choice)?,
        held: None,
        thinking: thinking(&speaker, talk.thinking)?,
        params,
        choices: 1,
        user: making.metadata.and_then(|metadata| metadata.user_id),
    };
    let (hearing, tokens) = ask.start(&app, &speaker, "messages").await?;
    let mut writer = MessageWriter::new(&speaker.name, tokens, stops);
    if making.stream.unwrap_or(false) {
        return Ok(sse::respond(writer, hearing));
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
    let messages = for_template(messages(talk.system, talk.messages)?, "messages")?;
    let (toolbox, thinking) = (toolbox(talk.tools, talk.tool_choice)?, thinking(&speaker, talk.thinking)?);
    let work = tokio::task::spawn_blocking(move || {
        let text = render(&speaker, messages, &toolbox, thinking.on, "messages")?;
        speaker.encode(&text, true, "messages")
    });
    let ids = work.await.unwrap_or_else(|error| Err(Fault::internal(format!("an internal error: {error}"))))?;
    Ok(Json(json!({"input_tokens": ids.len()})))
}
