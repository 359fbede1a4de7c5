//! Which definitions does any finite value fit? A schema that needs itself inside of itself has none; the parser would
//! walk into it without an end.

use super::reason::list;
use crate::error::GrammarError;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Puts `false` in the place of references to definitions that no finite value fits, and takes those out.
///
/// # Errors
/// [`GrammarError::Unsatisfiable`] if the root is one.
pub(super) fn prune(root: &mut Value, definitions: &mut Map<String, Value>) -> Result<(), GrammarError> {
    let mut fitting: BTreeSet<String> = BTreeSet::new();
    loop {
        let more: Vec<String> = definitions
            .iter()
            .filter(|(name, schema)| !fitting.contains(*name) && fits(schema, &fitting))
            .map(|(name, _)| name.clone())
            .collect();
        if more.is_empty() {
            break;
        }
        fitting.extend(more);
    }
    if !fits(root, &fitting) {
        return Err(GrammarError::Unsatisfiable {
            reason: "what it requires contradicts itself, or has no end".into(),
        });
    }
    if fitting.len() < definitions.len() {
        definitions.retain(|name, _| fitting.contains(name));
        definitions.values_mut().chain([root]).for_each(|schema| cut(schema, &fitting));
    }
    Ok(())
}

/// Puts `false` in the place of references to other definitions than the `fitting` ones.
fn cut(schema: &mut Value, fitting: &BTreeSet<String>) {
    match schema {
        Value::Array(parts) => parts.iter_mut().for_each(|part| cut(part, fitting)),
        Value::Object(map) => {
            let name = map.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix("#/$defs/"));
            if name.is_some_and(|name| !fitting.contains(name)) {
                *schema = json!(false);
                return;
            }
            // What stands in these is data.
            let schemas = map.iter_mut().filter(|(keyword, _)| !matches!(keyword.as_str(), "enum" | "const"));
            schemas.for_each(|(_, part)| cut(part, fitting));
        }
        _ => {}
    }
}

/// Whether a finite value may fit, given the definitions that are known to be fitted by one.
fn fits(schema: &Value, fitting: &BTreeSet<String>) -> bool {
    let map = match schema {
        Value::Bool(fits) => return *fits,
        Value::Object(map) => map,
        _ => return true,
    };
    if let Some(name) = map.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix("#/$defs/"))
        && !fitting.contains(name)
    {
        return false;
    }
    if !list(map, "allOf").iter().all(|part| fits(part, fitting)) {
        return false;
    }
    if map.contains_key("anyOf") && !list(map, "anyOf").iter().any(|part| fits(part, fitting)) {
        return false;
    }
    match map.get("type").and_then(Value::as_str) {
        Some("object") => list(map, "required").iter().filter_map(Value::as_str).all(|key| {
            let named = map.get("properties").and_then(|p| p.get(key));
            named.is_none_or(|schema| fits(schema, fitting))
        }),
        Some("array") => {
            let least = map.get("minItems").and_then(Value::as_u64).unwrap_or(0) as usize;
            let prefix = list(map, "prefixItems");
            prefix.iter().take(least).all(|schema| fits(schema, fitting))
                && (least <= prefix.len() || map.get("items").is_none_or(|schema| fits(schema, fitting)))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_that_needs_itself_has_no_value() {
        let node = json!({"type": "object", "properties": {"next": {"$ref": "#/$defs/r0"}}, "required": ["next"]});
        let mut definitions = Map::from_iter([("r0".to_owned(), node.clone())]);
        assert!(prune(&mut json!({"$ref": "#/$defs/r0"}), &mut definitions).is_err());
        let mut definitions = Map::from_iter([("r0".to_owned(), node)]);
        let mut either = json!({"anyOf": [{"$ref": "#/$defs/r0"}, {"type": "null"}]});
        prune(&mut either, &mut definitions).unwrap();
        assert_eq!((either, definitions.len()), (json!({"anyOf": [false, {"type": "null"}]}), 0));
        let list = json!({"type": "array", "items": {"$ref": "#/$defs/r0"}});
        let mut definitions = Map::from_iter([("r0".to_owned(), list.clone())]);
        prune(&mut json!({"$ref": "#/$defs/r0"}), &mut definitions).unwrap();
        assert_eq!(definitions["r0"], list);
    }
}
