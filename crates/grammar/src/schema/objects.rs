//! Keywords about an object's keys, said with properties that are allowed or not.

use super::document::Place;
use super::kinds::{Kinds, not_or};
use super::strings;
use super::values::refuse;
use crate::error::GrammarError;
use serde_json::{Map, Value, json};

type Out = Map<String, Value>;

/// Most named keys of which every choice is said.
const MAX_CHOICES: usize = 6;
/// Most named keys of which at least one is said.
const MAX_NAMED: usize = 64;

/// `propertyNames` as `patternProperties`: a key that matches none of the patterns of its schema is not allowed.
pub(super) fn names(place: &Place, schema: &Value) -> Result<Option<Value>, GrammarError> {
    let map = match schema {
        Value::Bool(true) => return Ok(None),
        Value::Bool(false) => return Ok(Some(json!({"maxProperties": 0}))),
        Value::Object(map) => map,
        _ => return Ok(None),
    };
    let mut parts = Vec::new();
    let allow = |pattern: String| json!({"patternProperties": {pattern: true}, "additionalProperties": false});
    let (mut least, mut most) = (0, None);
    for (keyword, value) in map {
        match keyword.as_str() {
            "type" if Kinds::of_keyword(value).is_some_and(|kinds| kinds.has(Kinds::STRING)) => {}
            "type" => parts.push(json!({"maxProperties": 0})),
            "pattern" => parts.push(allow(value.as_str().unwrap_or_default().into())),
            "const" | "enum" => {
                let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
                let texts: Vec<String> = values.iter().filter_map(Value::as_str).map(strings::escaped).collect();
                parts.push(allow(format!("^(?:{})$", texts.join("|"))));
            }
            "minLength" => least = value.as_u64().unwrap_or(0),
            "maxLength" => most = value.as_u64(),
            "allOf" => {
                for part in value.as_array().into_iter().flatten() {
                    parts.extend(names(place, part)?);
                }
            }
            keyword if Kinds::of_constraint(keyword).is_some_and(|kinds| !kinds.has(Kinds::STRING)) => {}
            other => return refuse(place, "propertyNames", format!("its {other} is not built; give a pattern")),
        }
    }
    if least > 0 || most.is_some() {
        let most = most.map(|n| n.to_string()).unwrap_or_default();
        parts.push(allow(format!("^(?s:.{{{least},{most}}})$")));
    }
    let patterns = parts.iter().filter(|part| part.get("patternProperties").is_some()).count();
    if patterns > 1 || parts.iter().any(|part| part.get("allOf").is_some()) {
        return refuse(place, "propertyNames", "several constraints on names are not built; give one pattern");
    }
    Ok(match parts.len() {
        0 => None,
        1 => parts.pop(),
        _ => Some(json!({"allOf": parts})),
    })
}

/// Says `minProperties` and `maxProperties` by which named keys are there, where some of them may be absent. Takes the two
/// out of `out` then.
pub(super) fn count(place: &Place, out: &mut Out) -> Result<Option<Value>, GrammarError> {
    let least = out.get("minProperties").and_then(Value::as_u64);
    let most = out.get("maxProperties").and_then(Value::as_u64);
    if least.is_none() && most.is_none() {
        return Ok(None);
    }
    let keyword = if least.is_some() { "minProperties" } else { "maxProperties" };
    let required: Vec<&str> = strings_in(out, "required");
    let named = out.get("properties").and_then(Value::as_object);
    let optional: Vec<String> = named
        .into_iter()
        .flatten()
        .filter(|(key, schema)| !required.contains(&key.as_str()) && *schema != &json!(false))
        .map(|(key, _)| key.clone())
        .collect();
    let needed = least.unwrap_or(0).saturating_sub(required.len() as u64);
    let open = out.get("additionalProperties") != Some(&json!(false)) || out.contains_key("patternProperties");
    if optional.is_empty() {
        if open && needed > 1 {
            return refuse(place, keyword, "keys without a name cannot be counted beyond one: name them in properties");
        }
        return Ok(None);
    }
    // Keys with no more to come, or at least as many as may be there anyway: nothing to say.
    if needed == 0 && most.is_none_or(|most| !open && most >= (required.len() + optional.len()) as u64) {
        out.shift_remove("minProperties");
        out.shift_remove("maxProperties");
        return Ok(None);
    }
    let forbidden = |keys: &mut dyn Iterator<Item = &String>| -> Value {
        Value::Object(keys.map(|key| (key.clone(), json!(false))).collect())
    };
    let mut ways = Vec::new();
    if needed <= 1 && most.is_none() && optional.len() <= MAX_NAMED {
        // The first of them that is there.
        for (i, key) in optional.iter().enumerate() {
            let before = forbidden(&mut optional[..i].iter());
            ways.push(json!({"type": "object", "properties": before, "required": [key]}));
        }
        if open {
            let none = forbidden(&mut optional.iter());
            ways.push(json!({"type": "object", "properties": none, "minProperties": required.len() + 1}));
        }
    } else if optional.len() <= MAX_CHOICES {
        for choice in 0..1usize << optional.len() {
            let (there, absent): (Vec<_>, Vec<_>) =
                optional.iter().enumerate().partition(|(i, _)| choice >> i & 1 == 1);
            let total = (required.len() + there.len()) as u64;
            if most.is_some_and(|most| total > most) {
                continue;
            }
            let missing = least.unwrap_or(0).saturating_sub(total);
            if missing > 0 && !open {
                continue;
            }
            if missing > 1 {
                return refuse(
                    place,
                    keyword,
                    "keys without a name cannot be counted beyond one: name them in properties",
                );
            }
            let absent = forbidden(&mut absent.into_iter().map(|(_, key)| key));
            let there: Vec<&String> = there.into_iter().map(|(_, key)| key).collect();
            let mut way = json!({"type": "object", "properties": absent, "required": there});
            if missing > 0 {
                way["minProperties"] = json!(total + 1);
            }
            if open && let Some(most) = most {
                way["maxProperties"] = json!(most);
            }
            ways.push(way);
        }
    } else {
        return refuse(
            place,
            keyword,
            format!("{} keys that may be absent can be chosen in too many ways", optional.len()),
        );
    }
    out.shift_remove("minProperties");
    out.shift_remove("maxProperties");
    Ok(Some(not_or(out, Kinds::OBJECT, ways)))
}

/// The keys that a schema and the ones that hold with it speak of.
#[derive(Default)]
pub(super) struct Spoken {
    names: Out,
    patterns: Out,
    rest: bool,
}

impl Spoken {
    /// Adds the keys of a schema; the error is the keyword that makes them depend on the value.
    pub(super) fn collect(&mut self, map: &Out, definitions: &Out, depth: usize) -> Result<(), String> {
        if depth > 20 {
            return Err("$ref".into());
        }
        if map.contains_key("anyOf") {
            return Err("anyOf".into());
        }
        let keys = |key: &str| map.get(key).and_then(Value::as_object).into_iter().flatten();
        self.names.extend(keys("properties").map(|(key, _)| (key.clone(), json!(true))));
        self.patterns.extend(keys("patternProperties").map(|(key, _)| (key.clone(), json!(true))));
        self.rest |= map.contains_key("additionalProperties");
        for part in map.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            if let Value::Object(part) = part {
                self.collect(part, definitions, depth + 1)?;
            }
        }
        if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
            match definitions.get(reference.trim_start_matches("#/$defs/")) {
                Some(Value::Object(target)) => self.collect(target, definitions, depth + 1)?,
                Some(_) => {}
                None => return Err("$ref".into()),
            }
        }
        Ok(())
    }

    /// A schema in which all other keys fit `rest`.
    pub(super) fn rest(self, rest: Value) -> Option<Value> {
        (!self.rest).then(
            || json!({"properties": self.names, "patternProperties": self.patterns, "additionalProperties": rest}),
        )
    }
}

fn strings_in<'a>(out: &'a Out, key: &str) -> Vec<&'a str> {
    out.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}
