//! What the server says of itself: `/openapi.json` and `/v1/capabilities`, both made of the table of endpoints.

use crate::app::App;
use crate::endpoints::{ENDPOINTS, Endpoint, generator};
use axum::Json;
use axum::extract::State;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// `/openapi.json`.
pub(crate) async fn openapi() -> Json<Value> {
    Json(document())
}

/// `/v1/capabilities`.
pub(crate) async fn capabilities(State(app): State<Arc<App>>) -> Json<Value> {
    let endpoints: Map<String, Value> = ENDPOINTS
        .iter()
        .map(|endpoint| {
            let mut fields = Map::new();
            for field in endpoint.fields() {
                let about = json!({"supported": true, "required": field.required, "description": field.help});
                fields.insert(field.name, about);
            }
            for (name, why) in endpoint.request.iter().flat_map(|request| (request.refused)()) {
                fields.insert(name.to_owned(), json!({"supported": false, "description": why}));
            }
            let about = json!({"summary": endpoint.summary, "streams": endpoint.streams, "fields": fields});
            (endpoint.path.to_owned(), about)
        })
        .collect();
    let limits = json!({
        "max_body_bytes": app.limits.body,
        "timeout_seconds": app.limits.answer.as_secs_f64(),
        "read_timeout_seconds": app.limits.read.as_secs_f64(),
    });
    Json(json!({"version": env!("CARGO_PKG_VERSION"), "endpoints": endpoints, "limits": limits}))
}

fn document() -> Value {
    let mut generator = generator();
    let mut paths = Map::new();
    for endpoint in ENDPOINTS.iter() {
        let schema = endpoint.request.as_ref().map(|request| (request.schema)(&mut generator).to_value());
        paths.insert(endpoint.path.to_owned(), path(endpoint, schema));
    }
    let mut schemas = generator.take_definitions(true);
    schemas.insert("Error".into(), error());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Lattice",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Language models, embedders and rerankers. A field that is not listed is refused.",
        },
        "security": [{}, {"key": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    })
}

fn path(endpoint: &Endpoint, schema: Option<Value>) -> Value {
    let content = |kind: &str, schema: Value| json!({kind: {"schema": schema}});
    let mut whole = match endpoint.path {
        "/metrics" => content("application/openmetrics-text", json!({"type": "string"})),
        _ => content("application/json", json!({"type": "object"})),
    };
    if endpoint.streams {
        whole["text/event-stream"] = json!({"schema": {"type": "string"}});
    }
    let fault = content("application/json", json!({"$ref": "#/components/schemas/Error"}));
    let mut responses = json!({
        "200": {"description": "Done.", "content": whole},
        "default": {"description": "Refused or failed.", "content": fault},
    });
    if endpoint.path == "/health" {
        responses["503"] =
            json!({"description": "Not ready.", "content": content("application/json", json!({"type": "object"}))});
    }
    let id = endpoint.path.trim_matches('/').replace(['/', '-'], "_").replace(['{', '}', '.'], "");
    let mut operation = json!({"operationId": id, "summary": endpoint.summary, "responses": responses});
    if endpoint.path.contains("{model}") {
        operation["parameters"] =
            json!([{"name": "model", "in": "path", "required": true, "schema": {"type": "string"}}]);
    }
    match schema {
        Some(schema) => {
            let body = content("application/json", schema);
            operation["requestBody"] = json!({"required": true, "content": body});
            json!({"post": operation})
        }
        None => json!({"get": operation}),
    }
}

/// OpenAI's envelope, or Anthropic's.
fn error() -> Value {
    json!({
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type"],
                "properties": {
                    "message": {"type": "string"},
                    "type": {"type": "string"},
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                },
            },
        },
    })
}
