//! What is served, and whether it is ready: `/v1/models`, `/health`, `/metrics`.

use crate::app::App;
use crate::error::Fault;
use crate::shelf::Slot;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::sync::Arc;

fn describe(slot: &Slot) -> Value {
    json!({
        "id": slot.spec.name,
        "object": "model",
        "created": 0,
        "owned_by": slot.spec.located.entry.and_then(|e| e.hub.split('/').next()).unwrap_or("local"),
        "aliases": slot.spec.aliases,
        "type": slot.kind_name(),
        "loaded": slot.is_open(),
        "bytes": slot.bytes(),
    })
}

/// `/v1/models`.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Json<Value> {
    let models: Vec<Value> = app.shelf.slots().iter().map(describe).collect();
    Json(json!({"object": "list", "data": models}))
}

/// `/v1/models/NAME`, where a name may have slashes.
pub(crate) async fn one(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Json<Value>, Fault> {
    let slot = app.shelf.slots().iter().find(|slot| slot.names().any(|other| other == name));
    let short: String = name.chars().take(100).collect();
    let names: Vec<&str> = app.shelf.slots().iter().map(|slot| slot.spec.name.as_str()).collect();
    slot.map(|slot| Json(describe(slot))).ok_or_else(|| Fault::no_model(&short, &names.join(", ")))
}

/// `/health`: 200 once the models that are opened at the start are open, 503 before and while the server ends.
pub(crate) async fn health(State(app): State<Arc<App>>) -> Response {
    let (status, text) = match (app.is_ready(), app.is_draining()) {
        (true, _) => (StatusCode::OK, "ok"),
        (_, true) => (StatusCode::SERVICE_UNAVAILABLE, "ending"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "loading"),
    };
    (status, Json(json!({"status": text}))).into_response()
}

/// `/metrics`, in Prometheus' text form.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], app.metrics.text()).into_response()
}
