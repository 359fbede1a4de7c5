//! Server-sent events: an answer while it is being made.

use crate::error::Fault;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, unfold};
use serde::Serialize;
use serde_json::Value;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

/// Seconds of silence after which a comment shows that the connection is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What makes the events of an answer, some at a time.
pub(crate) trait Script: Send + 'static {
    /// Further events; none at the end.
    fn next(&mut self) -> impl Future<Output = Option<Vec<Event>>> + Send;
}

/// Answers with the events of a script. If the client goes away the script is dropped, and what it holds is given up.
pub(crate) fn respond(script: impl Script) -> Response {
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("keep-alive");
    let mut response = Sse::new(events(script)).keep_alive(keep_alive).into_response();
    // A proxy that collects the stream would turn it into a pause.
    response.headers_mut().insert("x-accel-buffering", axum::http::HeaderValue::from_static("no"));
    response
}

fn events<S: Script>(script: S) -> impl Stream<Item = Result<Event, Infallible>> {
    unfold((script, VecDeque::new()), |(mut script, mut ready): (S, VecDeque<Event>)| async move {
        loop {
            if let Some(event) = ready.pop_front() {
                return Some((Ok(event), (script, ready)));
            }
            ready.extend(script.next().await?);
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
