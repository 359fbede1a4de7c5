//! Server-sent events: an answer while it is being made.

use crate::answer::{Heard, Hearing};
use crate::error::Fault;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, unfold};
use serde::Serialize;
use serde_json::Value;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

/// Seconds of silence after which a comment shows that the connection is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What turns what is heard of an answer into the events of an API.
pub(crate) trait Writer: Send + 'static {
    /// What comes before everything else.
    fn begin(&mut self) -> Vec<Event> {
        Vec::new()
    }

    /// What tells of a piece, or of an answer's end.
    fn take(&mut self, heard: Heard) -> Vec<Event>;

    /// What tells that it cannot go on; nothing comes after it.
    fn fail(&mut self, fault: &Fault) -> Vec<Event>;

    /// What comes after the last answer's end.
    fn end(&mut self) -> Vec<Event>;
}

/// Answers with events. If the client goes away the hearing is dropped, and what it holds is given up.
pub(crate) fn respond(writer: impl Writer, hearing: Hearing) -> Response {
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("keep-alive");
    let mut response = Sse::new(events(writer, hearing)).keep_alive(keep_alive).into_response();
    // A proxy that collects the stream would turn it into a pause.
    response.headers_mut().insert("x-accel-buffering", axum::http::HeaderValue::from_static("no"));
    response
}

enum Stage {
    Begins,
    Hears,
    Ended,
}

fn events<W: Writer>(writer: W, hearing: Hearing) -> impl Stream<Item = Result<Event, Infallible>> {
    let ready = VecDeque::new();
    unfold((writer, hearing, Stage::Begins, ready), |(mut writer, mut hearing, mut stage, mut ready)| async move {
        loop {
            if let Some(event) = ready.pop_front() {
                return Some((Ok(event), (writer, hearing, stage, ready)));
            }
            let (next, events) = match stage {
                Stage::Begins => (Stage::Hears, writer.begin()),
                Stage::Hears => match hearing.next().await {
                    Some(Ok(heard)) => (Stage::Hears, writer.take(heard)),
                    Some(Err(fault)) => (Stage::Ended, writer.fail(&fault)),
                    None => (Stage::Ended, writer.end()),
                },
                Stage::Ended => return None,
            };
            stage = next;
            ready.extend(events);
        }
    })
}

/// An event without a name, as OpenAI's older APIs send them.
pub(crate) fn data(value: &impl Serialize) -> Event {
    Event::default()
        .data(serde_json::to_string(value).unwrap_or_else(|e| Fault::internal(e.to_string()).body().to_string()))
}

/// An event with a name.
pub(crate) fn named(name: &str, value: &impl Serialize) -> Event {
    data(value).event(name)
}

/// The last events of an answer: `chunk` with the tokens that it took, if they were asked for, and the end.
pub(crate) fn end(mut chunk: Value, usage: Option<Value>) -> Vec<Event> {
    let usage = usage.map(|usage| {
        chunk["usage"] = usage;
        data(&chunk)
    });
    usage.into_iter().chain([done()]).collect()
}

/// What ends a stream of OpenAI's.
pub(crate) fn done() -> Event {
    Event::default().data("[DONE]")
}
