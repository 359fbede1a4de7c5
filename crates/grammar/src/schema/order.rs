//! In which order does a grammar take the keys of an object? JSON gives them none; a grammar that forces text has to have
//! one, and it is that of `properties`.

use super::document::MAX_DEPTH;
use super::reason::list;
use super::rewrite::narrow;
use super::strings;
use crate::error::GrammarError;
use serde_json::{Map, Value};

/// Deepest nesting of data and references that is followed.
const DEEPEST: usize = 128;

/// `data` with the keys of its objects in the order in which a grammar of `schema` takes them, as far as that can be told
/// where branches of a schema differ.
///
/// # Errors
/// As [`crate::Compiler::compile`].
pub fn in_schema_order(schema: &Value, data: &Value) -> Result<Value, GrammarError> {
    let schema = narrow(schema, MAX_DEPTH)?.schema;
    let none = Map::new();
    let definitions = schema.get("$defs").and_then(Value::as_object).unwrap_or(&none);
    Ok(Order { definitions }.sorted(&[&schema], data, 0))
}

struct Order<'a> {
    definitions: &'a Map<String, Value>,
}

impl<'a> Order<'a> {
    fn sorted(&self, schemas: &[&'a Value], data: &Value, depth: usize) -> Value {
        if depth > DEEPEST {
            return data.clone();
        }
        let mut maps = Vec::new();
        schemas.iter().for_each(|schema| self.open(schema, &mut maps, depth));
        match data {
            Value::Array(items) => {
                let item = |(i, item): (usize, &Value)| {
                    let schema = |map: &&'a Map<String, Value>| list(map, "prefixItems").get(i).or(map.get("items"));
                    let schemas: Vec<&Value> = maps.iter().filter_map(schema).collect();
                    self.sorted(&schemas, item, depth + 1)
                };
                items.iter().enumerate().map(item).collect()
            }
            Value::Object(object) => {
                let mut known: Vec<&str> = Vec::new();
                let named = maps.iter().filter_map(|map| map.get("properties")?.as_object());
                for keys in named {
                    // A key that only another branch has stands after the one that it follows there.
                    let mut at = 0;
                    for key in keys.keys().filter(|key| object.contains_key(*key)) {
                        match known.iter().position(|other| other == key) {
                            Some(place) => at = place + 1,
                            None => {
                                known.insert(at, key);
                                at += 1;
                            }
                        }
                    }
                }
                let required = maps.iter().flat_map(|map| list(map, "required")).filter_map(|key| key.as_str());
                known.extend(required);
                let mut out = Map::new();
                for key in known.into_iter().chain(object.keys().map(String::as_str)) {
                    if let Some(value) = object.get(key).filter(|_| !out.contains_key(key)) {
                        let schemas: Vec<&Value> = maps.iter().flat_map(|map| property(map, key)).collect();
                        out.insert(key.to_owned(), self.sorted(&schemas, value, depth + 1));
                    }
                }
                Value::Object(out)
            }
            other => other.clone(),
        }
    }

    /// The keyword maps of a schema, those of branches too, in the order of the text.
    fn open(&self, schema: &'a Value, maps: &mut Vec<&'a Map<String, Value>>, depth: usize) {
        let Value::Object(map) = schema else { return };
        if depth > DEEPEST || maps.len() > 1000 {
            return;
        }
        for (keyword, value) in map {
            match (keyword.as_str(), value) {
                ("properties" | "required" | "items" | "prefixItems", _)
                    if !maps.iter().any(|m| std::ptr::eq(*m, map)) =>
                {
                    maps.push(map);
                }
                ("allOf" | "anyOf", Value::Array(parts)) => {
                    parts.iter().for_each(|part| self.open(part, maps, depth + 1));
                }
                ("$ref", Value::String(reference)) => {
                    if let Some(target) = self.definitions.get(reference.trim_start_matches("#/$defs/")) {
                        self.open(target, maps, depth + 1);
                    }
                }
                _ => {}
            }
        }
        if !maps.iter().any(|m| std::ptr::eq(*m, map)) {
            maps.push(map);
        }
    }
}

fn property<'a>(map: &'a Map<String, Value>, key: &str) -> Vec<&'a Value> {
    if let Some(schema) = map.get("properties").and_then(|p| p.get(key)) {
        return vec![schema];
    }
    let patterns = map.get("patternProperties").and_then(Value::as_object).into_iter().flatten();
    let found: Vec<_> = patterns
        .filter(|(pattern, _)| strings::matches(strings::pattern(pattern), key) == Some(true))
        .map(|(_, schema)| schema)
        .collect();
    if found.is_empty() { map.get("additionalProperties").into_iter().collect() } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_in_the_order_of_properties_at_every_depth() {
        let schema = json!({
            "properties": {"b": {"$ref": "#/$defs/t"}, "a": {"type": "array", "items": {"$ref": "#/$defs/t"}}},
            "required": ["z"],
            "$defs": {"t": {"anyOf": [{"type": "null"}, {"properties": {"y": true, "x": true}}]}},
        });
        let data = json!({"q": 1, "z": 2, "a": [{"x": 1, "y": 2}], "b": {"x": 1, "w": 0, "y": 2}});
        let sorted = in_schema_order(&schema, &data).unwrap().to_string();
        assert_eq!(sorted, r#"{"b":{"y":2,"x":1,"w":0},"a":[{"y":2,"x":1}],"z":2,"q":1}"#);
    }
}
