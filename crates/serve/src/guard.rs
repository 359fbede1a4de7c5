//! What every request passes: its key, the pages that may ask, the log, and the form of errors.

use crate::app::{App, fresh_id};
use crate::error::Fault;
use crate::worker::panic_text;
use axum::Json;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, header, request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};
use subtle::{Choice, ConstantTimeEq};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// The keys that let a request in.
pub(crate) struct Keys(pub(crate) Vec<String>);

/// Paths that need no key: what watches a server has none.
const OPEN: &[&str] = &["/health"];

impl Keys {
    /// Compares with every key, in time that depends on lengths only.
    fn has(&self, given: &str) -> bool {
        let equal = |key: &String| key.as_bytes().ct_eq(given.as_bytes());
        self.0.iter().fold(Choice::from(0), |found, key| found | equal(key)).into()
    }
}

/// Lets in whoever has a key, if there are any.
pub(crate) async fn check_key(State(keys): State<Arc<Keys>>, request: Request, next: Next) -> Response {
    if keys.0.is_empty() || OPEN.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    match given_key(request.headers()) {
        Some(key) if keys.has(key) => next.run(request).await,
        Some(_) => Fault::unauthorized("the API key is wrong").into_response(),
        None => {
            let message = "an API key is needed: Authorization: Bearer KEY, or x-api-key: KEY";
            Fault::unauthorized(message).into_response()
        }
    }
}

fn given_key(headers: &HeaderMap) -> Option<&str> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let bearer = text("authorization").and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
    });
    bearer.or_else(|| text("x-api-key").map(str::trim))
}

/// A request's panic is its own answer.
pub(crate) fn on_panic(panic: Box<dyn Any + Send>) -> Response {
    tracing::error!(reason = panic_text(&*panic), "a handler panicked");
    Fault::internal("the request failed: an internal error").into_response()
}

/// A line for each request, without what was said; an id for each answer.
pub(crate) async fn log(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let (start, id) = (Instant::now(), fresh_id("req_"));
    let path = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_owned();
    let method = request.method().clone();
    let mut response = next.run(request).await;
    let (status, time) = (response.status().as_u16(), start.elapsed());
    app.metrics.answered(&path, status, time);
    let milliseconds = time.as_millis() as u64;
    match response.extensions().get::<Fault>() {
        Some(fault) if status >= 500 => {
            tracing::error!(id, %method, path, status, milliseconds, reason = fault.message, "failed");
        }
        Some(fault) => {
            let param = fault.param.as_deref().unwrap_or_default();
            tracing::info!(id, %method, path, status, milliseconds, param, "refused");
        }
        None => tracing::info!(id, %method, path, status, milliseconds, "answered"),
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-request-id", value);
    }
    response
}

/// Errors of Anthropic's paths have Anthropic's form.
pub(crate) async fn dialect(request: Request, next: Next) -> Response {
    let anthropic = request.uri().path().starts_with("/v1/messages");
    let response = next.run(request).await;
    match response.extensions().get::<Fault>().cloned() {
        Some(fault) if anthropic => {
            let (mut parts, _) = response.into_parts();
            parts.headers.remove(header::CONTENT_LENGTH);
            let body = Json(fault.anthropic()).into_response().into_body();
            Response::from_parts(parts, body)
        }
        _ => response,
    }
}

/// How long a browser may remember what it was allowed.
const PREFLIGHT_AGE: Duration = Duration::from_secs(600);

/// Which pages may ask: those of `origins`; without any, all if a key protects the server, else those of this machine.
pub(crate) fn cors(origins: &[String], has_keys: bool) -> CorsLayer {
    let origins: Vec<HeaderValue> = origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect();
    let allowed = match origins.is_empty() {
        true if has_keys => AllowOrigin::any(),
        true => AllowOrigin::predicate(|origin: &HeaderValue, _: &request::Parts| is_local(origin)),
        false if origins.iter().any(|origin| origin == "*") => AllowOrigin::any(),
        false => AllowOrigin::list(origins),
    };
    CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([header::RETRY_AFTER, header::HeaderName::from_static("x-request-id")])
        .max_age(PREFLIGHT_AGE)
}

/// Whether a page was served by this machine.
fn is_local(origin: &HeaderValue) -> bool {
    let host = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map_or("", |(_, rest)| rest);
    let host = match host.strip_prefix('[') {
        Some(six) => six.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    matches!(host, "localhost" | "127.0.0.1" | "::1") || host.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_bearer_token_or_a_header_of_its_own() {
        let headers = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            headers
        };
        assert_eq!(given_key(&headers("authorization", "bearer  abc ")), Some("abc"));
        assert_eq!(given_key(&headers("x-api-key", "abc")), Some("abc"));
        assert_eq!(given_key(&headers("authorization", "Basic abc")), None);
        let keys = Keys(vec!["abc".into(), "de".into()]);
        assert!(keys.has("abc") && keys.has("de") && !keys.has("ab") && !keys.has(""));
    }

    #[test]
    fn pages_of_this_machine_are_local_and_names_that_look_like_it_are_not() {
        let local = |text| is_local(&HeaderValue::from_static(text));
        assert!(local("http://localhost:3000") && local("https://127.0.0.1") && local("http://[::1]:8080"));
        assert!(!local("http://localhost.evil.org") && !local("http://evil.org:80") && !local("null"));
    }
}
