//! OpenAI's batch files without a server: each line is a request to one of the endpoints, each answer a line. What was
//! stopped goes on where it was.

use crate::app::fresh_id;
use crate::endpoints::ENDPOINTS;
use crate::error::ServeError;
use crate::options::Options;
use crate::server::service;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use futures_util::StreamExt;
use futures_util::stream::iter;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::time::Instant;
use tower::ServiceExt;

/// Largest answer in bytes.
const MAX_ANSWER: usize = 1 << 30;

/// A line of the input.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    custom_id: String,
    method: String,
    url: String,
    body: Map<String, Value>,
}

/// How a batch went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Lines of the input.
    pub lines: usize,
    /// Of these, lines whose answers were there already.
    pub resumed: usize,
    /// Lines answered now.
    pub answered: usize,
    /// Of these, lines whose answer is an error.
    pub failed: usize,
    /// Tokens of the prompts of what was answered now.
    pub prompt_tokens: u64,
    /// Tokens made.
    pub completion_tokens: u64,
    /// How long it took.
    pub seconds: f64,
}

/// Answers the lines of `input` that have no answer in `output` yet; `on` hears after each line how it goes.
///
/// # Errors
/// [`ServeError::BatchLine`] if a line is no request, before anything is run; [`ServeError::BatchFile`] if a file cannot be
/// read or written, or `output` is of another input.
pub fn batch(
    options: Options,
    input: &Path,
    output: &Path,
    on: &mut dyn FnMut(&Summary),
) -> Result<Summary, ServeError> {
    let ids = check(input)?;
    let done = resume(output, &ids)?;
    let mut summary = Summary { lines: ids.len(), resumed: done.len(), ..Summary::default() };
    drop(ids);
    let side_by_side = 2 * options.engine.parallel.max(1);
    // No line waits in a queue that could be full.
    let options =
        Options { lazy: true, max_queue: options.max_queue.max(256 * side_by_side), keys: Vec::new(), ..options };
    let (app, router) = service(&options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (start, mut out) = (Instant::now(), append(output)?);
    on(&summary);
    runtime.block_on(async {
        let lines = lines(input)?.filter(|line| line.as_ref().map_or(true, |line| !done.contains(&line.custom_id)));
        let answers = iter(lines).map(|line| {
            let router = router.clone();
            async move { Ok::<_, ServeError>(answer(router, line?).await) }
        });
        let mut answers = std::pin::pin!(answers.buffer_unordered(side_by_side));
        while let Some(answer) = answers.next().await {
            let answer = answer?;
            let mut text = answer.to_string();
            text.push('\n');
            // As one piece: what a kill leaves is a line or the beginning of one.
            out.write_all(text.as_bytes()).map_err(|e| file("write", output, e))?;
            summary.answered += 1;
            summary.failed += usize::from(answer["response"]["status_code"] != 200);
            let usage = &answer["response"]["body"]["usage"];
            let count = |names: [&str; 2]| names.iter().find_map(|name| usage[*name].as_u64()).unwrap_or(0);
            summary.prompt_tokens += count(["prompt_tokens", "input_tokens"]);
            summary.completion_tokens += count(["completion_tokens", "output_tokens"]);
            summary.seconds = start.elapsed().as_secs_f64();
            on(&summary);
        }
        Ok::<_, ServeError>(())
    })?;
    drop(app);
    Ok(summary)
}

/// Runs a request of the file.
async fn answer(router: Router, line: Line) -> Value {
    let answered = |status: u16, request: &str, body: Value| {
        json!({
            "id": fresh_id("batch_req_"),
            "custom_id": line.custom_id,
            "response": {"status_code": status, "request_id": request, "body": body},
            "error": null,
        })
    };
    if line.body.get("stream").is_some_and(|stream| stream == true) {
        let message = "stream is not supported in a batch: leave it out";
        let fault = crate::error::Fault::unsupported("stream", message);
        return answered(400, "", fault.body());
    }
    let request = Request::post(&line.url).header(header::CONTENT_TYPE, "application/json");
    let Ok(request) = request.body(Body::from(Value::Object(line.body.clone()).to_string())) else {
        return answered(400, "", crate::error::Fault::field("url", "url is no path").body());
    };
    let response = match router.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let status = response.status().as_u16();
    let id = response.headers().get("x-request-id").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
    let body = to_bytes(response.into_body(), MAX_ANSWER).await.unwrap_or_default();
    answered(status, &id, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

fn file(verb: &'static str, path: &Path, error: impl std::fmt::Display) -> ServeError {
    ServeError::BatchFile { verb, path: path.to_owned(), reason: error.to_string() }
}

/// The requests of a file, one at a time.
fn lines(path: &Path) -> Result<impl Iterator<Item = Result<Line, ServeError>> + '_, ServeError> {
    let reader = BufReader::new(File::open(path).map_err(|e| file("read", path, e))?);
    let lines = reader.lines().enumerate().filter(|(_, line)| line.as_ref().map_or(true, |l| !l.trim().is_empty()));
    Ok(lines.map(move |(index, line)| {
        let fail = |reason: String| ServeError::BatchLine { path: path.to_owned(), line: index + 1, reason };
        let line: Line =
            serde_json::from_str(&line.map_err(|e| fail(e.to_string()))?).map_err(|e| fail(e.to_string()))?;
        if line.method != "POST" {
            return Err(fail(format!("method is {:.40?}, expected POST", line.method)));
        }
        if !ENDPOINTS.iter().any(|endpoint| endpoint.path == line.url && endpoint.request.is_some()) {
            let all: Vec<&str> = ENDPOINTS.iter().filter(|e| e.request.is_some()).map(|e| e.path).collect();
            return Err(fail(format!("url is {:.80?}, expected one of {}", line.url, all.join(", "))));
        }
        Ok(line)
    }))
}

/// The ids of all requests; each is a request, and no id comes twice.
fn check(path: &Path) -> Result<BTreeSet<String>, ServeError> {
    let mut ids = BTreeSet::new();
    for (index, line) in lines(path)?.enumerate() {
        let id = line?.custom_id;
        if !ids.insert(id.clone()) {
            let reason = format!("custom_id {id:.80?} is of a line before it: each has its own");
            return Err(ServeError::BatchLine { path: path.to_owned(), line: index + 1, reason });
        }
    }
    Ok(ids)
}

/// The ids that have their answer; what a kill left of a line is cut off.
fn resume(path: &Path, ids: &BTreeSet<String>) -> Result<BTreeSet<String>, ServeError> {
    let mut done = BTreeSet::new();
    let reader = match File::open(path) {
        Ok(reader) => reader,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(done),
        Err(error) => return Err(file("read", path, error)),
    };
    let (mut reader, mut whole, mut line) = (BufReader::new(reader), 0, Vec::new());
    loop {
        line.clear();
        let bytes = reader.read_until(b'\n', &mut line).map_err(|e| file("read", path, e))?;
        if bytes == 0 {
            return Ok(done);
        }
        if line.last() != Some(&b'\n') {
            let out = OpenOptions::new().write(true).open(path).map_err(|e| file("write", path, e))?;
            out.set_len(whole).map_err(|e| file("write", path, e))?;
            return Ok(done);
        }
        whole += bytes as u64;
        let answer: Option<Value> = serde_json::from_slice(&line).ok();
        let id = answer.as_ref().and_then(|answer| answer["custom_id"].as_str());
        match id.filter(|id| ids.contains(*id)) {
            Some(id) => _ = done.insert(id.to_owned()),
            None => {
                let reason = "it has a line that answers none of the input: name another file, or remove this one";
                return Err(file("go on with", path, reason));
            }
        }
    }
}

fn append(path: &Path) -> Result<File, ServeError> {
    OpenOptions::new().create(true).append(true).open(path).map_err(|e| file("write", path, e))
}
