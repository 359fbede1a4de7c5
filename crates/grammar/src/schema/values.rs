//! How are the values of keywords read, and how is it said what is wrong with them?

use super::document::Place;
use crate::error::GrammarError;
use serde_json::{Map, Value};

pub(super) type Result<T> = std::result::Result<T, GrammarError>;

/// A keyword that is wrong or not built.
pub(super) fn refuse<T>(place: &Place, keyword: &str, reason: impl Into<String>) -> Result<T> {
    Err(GrammarError::Schema { keyword: keyword.into(), pointer: place.pointer.clone(), reason: reason.into() })
}

pub(super) fn too_large<T>(what: &'static str, got: usize, limit: usize) -> Result<T> {
    Err(GrammarError::TooLarge { kind: "JSON Schema", what, got, limit })
}

pub(super) fn finite(place: &Place, keyword: &str, value: &Value) -> Result<Value> {
    match value.as_f64() {
        Some(x) if x.is_finite() => Ok(value.clone()),
        _ => refuse(place, keyword, format!("expected a number, got {}", short(value))),
    }
}

pub(super) fn count(value: &Value) -> Option<u64> {
    let whole = |x: f64| (x >= 0.0 && x.fract() == 0.0 && x < 1e15).then_some(x as u64);
    value.as_u64().or_else(|| value.as_f64().and_then(whole))
}

pub(super) fn array<'a>(place: &Place, keyword: &str, value: &'a Value) -> Result<&'a [Value]> {
    match value {
        Value::Array(items) => Ok(items),
        _ => refuse(place, keyword, format!("expected an array, got {}", short(value))),
    }
}

pub(super) fn object<'a>(place: &Place, keyword: &str, value: &'a Value) -> Result<&'a Map<String, Value>> {
    match value {
        Value::Object(map) => Ok(map),
        _ => refuse(place, keyword, format!("expected an object, got {}", short(value))),
    }
}

pub(super) fn strings_of(place: &Place, keyword: &str, value: &Value) -> Result<()> {
    match array(place, keyword, value)?.iter().find(|item| !item.is_string()) {
        None => Ok(()),
        Some(item) => refuse(place, keyword, format!("expected strings, got {}", short(item))),
    }
}

/// A value for a message.
pub(super) fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}
