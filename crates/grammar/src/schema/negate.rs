//! The schema of all that does not fit a schema, where it can be said. Asked of schemas that [`super::rewrite`] has made.

use super::kinds::Kinds;
use super::reason::{Reason, list};
use super::strings;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The keyword whose complement cannot be said, and why.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Unsayable {
    pub(super) keyword: String,
    pub(super) why: &'static str,
}

/// Deepest nesting of schemas whose complement is said.
const MAX_DEPTH: usize = 24;

/// A schema for the values of the types `within` that do not fit `schema`.
pub(super) fn negate(schema: &Value, within: Kinds, reason: &Reason) -> Result<Value, Unsayable> {
    at(schema, within, reason, 0)
}

fn at(schema: &Value, within: Kinds, reason: &Reason, depth: usize) -> Result<Value, Unsayable> {
    let map = match schema {
        Value::Bool(fits) => return Ok(Value::Bool(!fits)),
        Value::Object(map) => map,
        _ => return Ok(Value::Bool(false)),
    };
    if depth > MAX_DEPTH || reason.budget.look().is_none() {
        return unsayable("$ref", "its complement is nested too deeply, or too large");
    }
    let own = map.get("type").and_then(Kinds::of_keyword).unwrap_or(Kinds::ALL);
    let mut ways = Vec::new();
    push_kinds(&mut ways, within.without(own), "type")?;
    let left = within.and(own);
    for (keyword, value) in map {
        if Kinds::of_constraint(keyword).is_some_and(|kinds| !kinds.has(left)) {
            continue; // no value of the types that are left can violate it
        }
        match keyword.as_str() {
            "type" => {}
            "enum" => values(&mut ways, list(map, keyword), left)?,
            "const" => values(&mut ways, std::slice::from_ref(value), left)?,
            "allOf" => {
                for part in list(map, keyword) {
                    ways.push(at(part, left, reason, depth + 1)?);
                }
            }
            "anyOf" => {
                let parts = list(map, keyword).iter().map(|part| at(part, left, reason, depth + 1));
                ways.push(json!({"allOf": parts.collect::<Result<Vec<_>, _>>()?}));
            }
            "$ref" => match reason.target(map) {
                Some(target) => ways.push(at(target, left, reason, depth + 1)?),
                None => return unsayable("$ref", "it refers to itself"),
            },
            "required" => {
                let names = list(map, keyword).iter().filter_map(Value::as_str);
                ways.extend(names.map(|name| json!({"type": "object", "properties": {name: false}})));
            }
            "properties" => {
                for (name, inner) in value.as_object().into_iter().flatten() {
                    let inner = at(inner, Kinds::ALL, reason, depth + 1)?;
                    ways.push(json!({"type": "object", "properties": {name: inner}, "required": [name]}));
                }
            }
            "items" if value == &json!(false) => {
                ways.push(json!({"type": "array", "minItems": list(map, "prefixItems").len() + 1}));
            }
            "items" | "additionalProperties" if is_everything(value) => {}
            "prefixItems" => {
                for (i, inner) in list(map, keyword).iter().enumerate() {
                    let inner = at(inner, Kinds::ALL, reason, depth + 1)?;
                    let before = vec![json!(true); i].into_iter().chain([inner]).collect::<Vec<_>>();
                    ways.push(json!({"type": "array", "prefixItems": before, "minItems": i + 1}));
                }
            }
            "minimum" => ways.push(json!({"type": "number", "exclusiveMaximum": value})),
            "maximum" => ways.push(json!({"type": "number", "exclusiveMinimum": value})),
            "exclusiveMinimum" => ways.push(json!({"type": "number", "maximum": value})),
            "exclusiveMaximum" => ways.push(json!({"type": "number", "minimum": value})),
            "minLength" => below(&mut ways, "string", "maxLength", value),
            "minItems" => below(&mut ways, "array", "maxItems", value),
            "minProperties" => below(&mut ways, "object", "maxProperties", value),
            "maxLength" => above(&mut ways, "string", "minLength", value),
            "maxItems" => above(&mut ways, "array", "minItems", value),
            "maxProperties" => above(&mut ways, "object", "minProperties", value),
            other => return unsayable(other, "its complement cannot be said"),
        }
    }
    ways.retain(|way| way != &json!(false));
    Ok(match ways.len() {
        0 => json!(false),
        1 => ways.remove(0),
        _ => json!({"anyOf": ways}),
    })
}

fn is_everything(schema: &Value) -> bool {
    schema == &json!(true) || schema.as_object().is_some_and(Map::is_empty)
}

fn below(ways: &mut Vec<Value>, kind: &str, keyword: &str, value: &Value) {
    if let Some(most) = value.as_u64().and_then(|n| n.checked_sub(1)) {
        ways.push(json!({"type": kind, keyword: most}));
    }
}

fn above(ways: &mut Vec<Value>, kind: &str, keyword: &str, value: &Value) {
    if let Some(least) = value.as_u64().and_then(|n| n.checked_add(1)) {
        ways.push(json!({"type": kind, keyword: least}));
    }
}

fn push_kinds(ways: &mut Vec<Value>, kinds: Kinds, keyword: &str) -> Result<(), Unsayable> {
    if !kinds.is_empty() {
        let Some(name) = kinds.keyword() else {
            return unsayable(keyword, "numbers that are not whole cannot be said");
        };
        ways.push(json!({"type": name}));
    }
    Ok(())
}

/// All values of the types `kinds` but these.
fn values(ways: &mut Vec<Value>, values: &[Value], kinds: Kinds) -> Result<(), Unsayable> {
    let mut whole = Kinds::NONE;
    let any = |f: fn(&Value) -> bool| values.iter().any(f);
    if !any(Value::is_null) {
        whole = whole.or(Kinds::NULL);
    }
    match (values.contains(&json!(true)), values.contains(&json!(false))) {
        (false, false) => whole = whole.or(Kinds::BOOLEAN),
        (true, true) => {}
        (has_true, _) if kinds.has(Kinds::BOOLEAN) => ways.push(json!({"const": !has_true})),
        _ => {}
    }
    let mut numbers: Vec<f64> = values.iter().filter_map(Value::as_f64).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    if numbers.is_empty() {
        whole = whole.or(Kinds::NUMBER);
    } else if kinds.has(Kinds::NUMBER) {
        let Some(name) = kinds.and(Kinds::NUMBER).keyword() else {
            return unsayable("type", "numbers that are not whole cannot be said");
        };
        ways.push(json!({"type": name, "exclusiveMaximum": numbers[0]}));
        let between =
            numbers.windows(2).map(|w| json!({"type": name, "exclusiveMinimum": w[0], "exclusiveMaximum": w[1]}));
        // A gap without a whole number is no way for whole numbers.
        let gap = |w: &&[f64]| name != "integer" || w[1].ceil() - w[0].floor() > 1.0;
        let filled: Vec<bool> = numbers.windows(2).map(|w| gap(&w)).collect();
        ways.extend(between.zip(filled).filter(|(_, filled)| *filled).map(|(way, _)| way));
        ways.push(json!({"type": name, "exclusiveMinimum": numbers[numbers.len() - 1]}));
    }
    let texts: BTreeSet<&str> = values.iter().filter_map(Value::as_str).collect();
    if texts.is_empty() {
        whole = whole.or(Kinds::STRING);
    } else if kinds.has(Kinds::STRING) {
        let Some(pattern) = strings::all_but(&texts) else {
            return unsayable("enum", "it has too many values for a complement");
        };
        ways.push(json!({"type": "string", "pattern": pattern}));
    }
    for (kind, name, least, is) in [
        (Kinds::ARRAY, "array", "minItems", Value::is_array as fn(&Value) -> bool),
        (Kinds::OBJECT, "object", "minProperties", Value::is_object),
    ] {
        let empty = |v: &Value| v == &json!([]) || v == &json!({});
        if !any(is) {
            whole = whole.or(kind);
        } else if kinds.has(kind) {
            if values.iter().any(|v| is(v) && !empty(v)) {
                return unsayable("enum", "the complement of an array or object cannot be said");
            }
            ways.push(json!({"type": name, least: 1}));
        }
    }
    push_kinds(ways, whole.and(kinds), "type")
}

fn unsayable<T>(keyword: &str, why: &'static str) -> Result<T, Unsayable> {
    Err(Unsayable { keyword: keyword.to_owned(), why })
}
