//! Arrays of different items, said by listing them.

use super::document::Place;
use super::kinds::{Kinds, not_or};
use super::reason::same;
use super::values::{Result, refuse};
use serde_json::{Map, Value, json};

type Out = Map<String, Value>;

/// Most arrays that a `uniqueItems` stands for.
const MAX_UNIQUE: usize = 2_000;

/// Arrays of different items, where they are few or trivial.
pub(super) fn unique(place: &Place, out: &Out) -> Result<Option<Value>> {
    let most = out.get("maxItems").and_then(Value::as_u64);
    let prefix = out.get("prefixItems").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if most.is_some_and(|most| most <= 1) {
        return Ok(None);
    }
    let listed = |schema: &Value| match (schema.get("const"), schema.get("enum"), schema.get("type")) {
        (Some(value), _, None) => Some(vec![value.clone()]),
        (None, Some(Value::Array(values)), kind) => {
            let kinds = kind.and_then(Kinds::of_keyword).unwrap_or(Kinds::ALL);
            Some(values.iter().filter(|v| kinds.has(Kinds::of_value(v))).cloned().collect())
        }
        (None, None, Some(kind)) if kind == "boolean" => Some(vec![json!(true), json!(false)]),
        _ => None,
    };
    let plain = |schema: &Value| {
        let combined = ["allOf", "anyOf", "$ref", "pattern", "properties", "required"];
        !combined.iter().any(|key| schema.get(key).is_some())
    };
    let values = match (prefix, out.get("items")) {
        ([], Some(items)) if plain(items) => listed(items),
        _ => None,
    };
    let Some(mut values) = values else {
        return refuse(place, "uniqueItems", "different items are told apart in arrays of few listed values only");
    };
    let mut different: Vec<Value> = Vec::new();
    for value in values.drain(..) {
        if !different.iter().any(|other| same(other, &value)) {
            different.push(value);
        }
    }
    let least = out.get("minItems").and_then(Value::as_u64).unwrap_or(0) as usize;
    let most = most.unwrap_or(u64::MAX).min(different.len() as u64) as usize;
    // Every order of every choice, as a tree of arrays said by their beginnings.
    let mut arrays: Vec<Vec<usize>> = vec![Vec::new()];
    let mut begin = 0;
    for _ in 0..most {
        let end = arrays.len();
        for at in begin..end {
            for i in 0..different.len() {
                if !arrays[at].contains(&i) {
                    arrays.push(arrays[at].iter().copied().chain([i]).collect());
                }
            }
            if arrays.len() > MAX_UNIQUE {
                return refuse(
                    place,
                    "uniqueItems",
                    format!("its {} values can be ordered in too many ways", different.len()),
                );
            }
        }
        begin = end;
    }
    let arrays = arrays.into_iter().filter(|array| array.len() >= least);
    let ways: Vec<Value> = arrays.map(|array| array.into_iter().map(|i| different[i].clone()).collect()).collect();
    Ok(Some(not_or(out, Kinds::ARRAY, vec![json!({"enum": ways})])))
}
