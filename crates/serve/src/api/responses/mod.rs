//! `/v1/responses`: OpenAI's newer form of a conversation.

mod request;
mod writer;

pub(crate) use request::ResponseRequest;

use super::chat::{self, Effort};
use super::sse::{self, Writer};
use crate::answer::Usage;
use crate::app::App;
use crate::ask::Ask;
use crate::body::Body;
use crate::conversation::for_template;
use crate::error::Fault;
use crate::format::TextFormat;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use request::{choice_name, messages, tool_object, toolbox};
use serde_json::json;
use std::sync::Arc;
use writer::ResponseWriter;

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
    let messages = for_template(messages(request.instructions, request.input)?, "input")?;
    let user = request.user.or(request.safety_identifier);
    let ask = Ask { messages, toolbox, held: format.held(), thinking, params, choices: 1, user };
    let (hearing, tokens) = ask.start(&app, &speaker, "input").await?;
    let mut writer = ResponseWriter::new(&speaker.name, echo, Usage::of_prompt(tokens));
    if request.stream.unwrap_or(false) {
        return Ok(sse::respond(writer, hearing));
    }
    let mut hearing = hearing;
    while let Some(heard) = hearing.next().await {
        writer.take(heard?);
    }
    Ok(Json(writer.response()).into_response())
}
