//! From a body to a request: bounded, JSON, no unknown field; whatever is wrong is named by its path.

use crate::app::App;
use crate::error::Fault;
use axum::body::to_bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::sync::Arc;

/// A part of a request: the type whose fields are what is supported.
pub(crate) trait Fields: DeserializeOwned + JsonSchema {
    /// Fields that others have and this server refuses, each with the reason and what to do.
    const REFUSED: &'static [(&'static str, &'static str)] = &[];
}

/// No further fields.
#[derive(serde::Deserialize, JsonSchema)]
pub(crate) struct Nothing {}

impl Fields for Nothing {}

/// The JSON body of a request, whose fields are those of both parts.
pub(crate) struct Body<A, B = Nothing>(pub(crate) A, pub(crate) B);

impl<A: Fields, B: Fields> Body<A, B> {
    /// The supported fields as a JSON Schema; what it refers to is the generator's.
    pub(crate) fn schema(generator: &mut SchemaGenerator) -> Schema {
        let (mut schema, more) = (A::json_schema(generator), B::json_schema(generator));
        let fields = |schema: &Schema| schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
        let required = |schema: &Schema| schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        let (mut properties, mut needed) = (fields(&schema), required(&schema));
        properties.extend(fields(&more));
        needed.extend(required(&more));
        schema.insert("properties".into(), properties.into());
        schema.insert("required".into(), needed.into());
        schema.insert("additionalProperties".into(), false.into());
        schema
    }

    /// Takes a request apart.
    ///
    /// # Errors
    /// What is wrong with it, with the path of the field.
    pub(crate) fn parse(mut object: Map<String, Value>) -> Result<Body<A, B>, Fault> {
        let schema = Self::schema(&mut SchemaGenerator::default());
        let known = schema.get("properties").and_then(Value::as_object);
        object.retain(|_, value| !value.is_null()); // as if it were left out
        for key in object.keys() {
            if known.is_some_and(|known| known.contains_key(key)) {
                continue;
            }
            let why = A::REFUSED.iter().chain(B::REFUSED).find(|(name, _)| name == key);
            return Err(match why {
                Some((name, why)) => Fault::unsupported(*name, format!("{name} is not supported: {why}")),
                None => Fault::field(shortened(key), format!("there is no field {:?} here", shortened(key)))
                    .with_code("unknown_parameter"),
            });
        }
        let value = Value::Object(object);
        Ok(Body(part(&value)?, part(&value)?))
    }
}

/// One part of a request; other parts' fields are passed over.
fn part<T: DeserializeOwned>(value: &Value) -> Result<T, Fault> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let reason = plainly(error.inner().to_string());
        match path.as_str() {
            "." => match reason.strip_prefix("missing field `").and_then(|rest| rest.split('`').next()) {
                Some(field) => {
                    Fault::field(field, format!("{field} is missing")).with_code("missing_required_parameter")
                }
                None => Fault::invalid(reason),
            },
            _ => Fault::field(shortened(&path), format!("{}: {reason}", shortened(&path))),
        }
    })
}

/// What was expected, in the words of JSON instead of Rust's.
fn plainly(mut reason: String) -> String {
    const WORDS: &[(&str, &str)] = &[
        ("expected usize", "expected a whole number from 0"),
        ("expected u32", "expected a whole number from 0"),
        ("expected i64", "expected a whole number"),
        ("expected f64", "expected a number"),
        ("expected f32", "expected a number"),
        ("expected a sequence", "expected a list"),
        ("expected a map", "expected an object"),
        ("invalid type: sequence", "invalid type: list"),
        ("invalid type: map", "invalid type: object"),
        (", there are no fields", ""),
    ];
    for (from, to) in WORDS {
        reason = reason.replace(from, to);
    }
    for sign in ["expected internally tagged enum ", "expected struct "] {
        if let Some(at) = reason.find(sign) {
            reason.replace_range(at.., "expected an object");
        }
    }
    reason
}

/// What a stranger wrote, short enough to be sent back.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(128) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

impl<A, B> FromRequest<Arc<App>> for Body<A, B>
where
    A: Fields + Send + 'static,
    B: Fields + Send + 'static,
{
    type Rejection = Fault;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Fault> {
        let object = read_object(request, app).await?;
        Body::parse(object)
    }
}

/// The JSON object of a body.
pub(crate) async fn read_object(request: Request, app: &App) -> Result<Map<String, Value>, Fault> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    // A browser sends any other type to any address without asking first.
    if !kind.eq_ignore_ascii_case("application/json") {
        let message = format!("the body's Content-Type is {:?}, expected application/json", shortened(kind));
        return Err(Fault::invalid(message).with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    }
    let limits = &app.limits;
    let too_large = || {
        let message =
            format!("the body is larger than {} bytes: send less, or raise the limit (--max-body)", limits.body);
        Fault::invalid(message).with_status(StatusCode::PAYLOAD_TOO_LARGE).with_code("request_too_large")
    };
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > limits.body) {
        return Err(too_large());
    }
    let read = tokio::time::timeout(limits.read, to_bytes(request.into_body(), limits.body));
    let bytes = match read.await {
        Err(_) => {
            let message = format!("the body did not come within {} s", limits.read.as_secs_f64());
            return Err(Fault::invalid(message).with_status(StatusCode::REQUEST_TIMEOUT));
        }
        Ok(Err(error)) if error_is_length(&error) => return Err(too_large()),
        Ok(Err(error)) => return Err(Fault::invalid(format!("the body could not be read: {error}"))),
        Ok(Ok(bytes)) => bytes,
    };
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Fault::invalid("the body is no JSON object")),
        Err(error) => Err(Fault::invalid(format!("the body is not JSON: {error}"))),
    }
}

fn error_is_length(error: &axum::Error) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if error.to_string().contains("length limit exceeded") {
            return true;
        }
        source = error.source();
    }
    false
}
