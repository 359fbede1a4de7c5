//! Is it certain that nothing fits these schemas together? Asked of schemas that [`super::rewrite`] has made.
//!
//! A schema is opened into alternatives, each of them plain keyword maps that hold together; an alternative is empty if for
//! each type that is left something contradicts. All answers err on one side: "certain" is certain.

use super::kinds::Kinds;
use super::strings::{self, Matching};
use serde_json::{Map, Value};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// Keyword maps that hold together.
type Together<'a> = Vec<&'a Map<String, Value>>;

/// Most alternatives of a schema that are looked at.
const MAX_ALTERNATIVES: usize = 256;
/// Deepest nesting that is looked at.
const MAX_DEPTH: usize = 12;
/// What reasoning over a document may cost.
pub(super) struct Budget {
    /// Schemas that are looked at.
    schemas: Cell<usize>,
    /// Regular expressions that are looked at.
    expressions: Cell<usize>,
    /// Patterns that texts were matched with.
    known: RefCell<HashMap<String, Option<Matching>>>,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { schemas: Cell::new(300_000), expressions: Cell::new(500), known: RefCell::default() }
    }
}

impl Budget {
    fn spend(cell: &Cell<usize>) -> Option<()> {
        cell.set(cell.get().checked_sub(1)?);
        Some(())
    }

    /// Takes note of a schema that is looked at; none if there were too many.
    pub(super) fn look(&self) -> Option<()> {
        Budget::spend(&self.schemas)
    }

    /// The schemas that a map has for a key; those that may hold, and no more, where a pattern cannot be told.
    fn property<'a>(&self, map: &'a Map<String, Value>, key: &str) -> Vec<&'a Value> {
        let named = map.get("properties").and_then(|p| p.get(key));
        let mut found: Vec<&Value> = named.into_iter().collect();
        let mut certain = true;
        for (pattern, schema) in map.get("patternProperties").and_then(Value::as_object).into_iter().flatten() {
            match self.matches(pattern, key) {
                Some(true) => found.push(schema),
                Some(false) => {}
                None => certain = false,
            }
        }
        if found.is_empty() && certain {
            found.extend(map.get("additionalProperties"));
        }
        found
    }

    fn matches(&self, pattern: &str, text: &str) -> Option<bool> {
        let mut known = self.known.borrow_mut();
        if !known.contains_key(pattern) {
            Budget::spend(&self.expressions)?;
            known.insert(pattern.to_owned(), Matching::new(strings::pattern(pattern)));
        }
        Some(known.get_mut(pattern)?.as_mut()?.fits(text))
    }

    fn no_string(&self, together: &Together) -> bool {
        let (least, most) = (largest(together, "minLength").unwrap_or(0), smallest(together, "maxLength"));
        if most.is_some_and(|most| most < least) {
            return true;
        }
        let mut all: Vec<_> =
            together.iter().filter_map(|map| Some(strings::pattern(map.get("pattern")?.as_str()?))).collect();
        if all.is_empty() || Budget::spend(&self.expressions).is_none() {
            return false;
        }
        if least > 0 || most.is_some() {
            all.push(strings::length(least.min(1000), most.filter(|&most| most < 1000)));
        }
        strings::is_empty(all)
    }
}

/// Reasons over schemas whose references lead into `definitions`.
pub(super) struct Reason<'a> {
    definitions: &'a Map<String, Value>,
    pub(super) budget: &'a Budget,
}

impl<'a> Reason<'a> {
    pub(super) fn new(definitions: &'a Map<String, Value>, budget: &'a Budget) -> Reason<'a> {
        Reason { definitions, budget }
    }

    /// Whether it is certain that no value fits all of `schemas`.
    pub(super) fn is_empty(&self, schemas: &[&'a Value]) -> bool {
        self.empty(schemas, 0)
    }

    /// The types of the values that fit, and maybe more.
    pub(super) fn kinds(&self, schema: &'a Value) -> Kinds {
        match self.open(schema, 0) {
            Some(ways) => ways.iter().fold(Kinds::NONE, |all, together| all.or(kinds_of(together))),
            None => Kinds::ALL,
        }
    }

    /// The schema that a reference leads to, if it is made already.
    pub(super) fn target(&self, map: &Map<String, Value>) -> Option<&'a Value> {
        let name = map.get("$ref")?.as_str()?.strip_prefix("#/$defs/")?;
        self.definitions.get(name)
    }

    fn empty(&self, schemas: &[&'a Value], depth: usize) -> bool {
        let mut ways: Vec<Together> = vec![Vec::new()];
        for schema in schemas {
            let Some(more) = self.open(schema, depth) else { continue };
            let Some(product) = self.product(&ways, &more) else { continue };
            ways = product;
        }
        ways.iter().all(|together| self.contradicts(together, depth))
    }

    /// The alternatives of a schema; none if there are too many, or it is not made yet.
    fn open(&self, schema: &'a Value, depth: usize) -> Option<Vec<Together<'a>>> {
        self.budget.look()?;
        if depth > MAX_DEPTH {
            return None;
        }
        let map = match schema {
            Value::Bool(true) => return Some(vec![Vec::new()]),
            Value::Bool(false) => return Some(Vec::new()),
            Value::Object(map) => map,
            _ => return None,
        };
        let mut ways = vec![vec![map]];
        if map.contains_key("$ref") {
            // A part that is not known allows anything.
            if let Some(more) = self.target(map).and_then(|target| self.open(target, depth + 1)) {
                ways = self.product(&ways, &more)?;
            }
        }
        for part in list(map, "allOf") {
            if let Some(more) = self.open(part, depth + 1) {
                ways = self.product(&ways, &more)?;
            }
        }
        if map.contains_key("anyOf") {
            let mut either = Vec::new();
            for part in list(map, "anyOf") {
                either.extend(self.open(part, depth + 1)?);
                if either.len() > MAX_ALTERNATIVES {
                    return None;
                }
            }
            ways = self.product(&ways, &either)?;
        }
        Some(ways)
    }

    /// Each of the left ways with each of the right ones; none if they are too many.
    fn product(&self, left: &[Together<'a>], right: &[Together<'a>]) -> Option<Vec<Together<'a>>> {
        if left.len() * right.len() > MAX_ALTERNATIVES {
            return None;
        }
        let both = |(a, b): (&Together<'a>, &Together<'a>)| {
            self.budget.look()?;
            Some(a.iter().chain(b).copied().collect())
        };
        left.iter().flat_map(|a| right.iter().map(move |b| (a, b))).map(both).collect()
    }

    fn contradicts(&self, together: &Together<'a>, depth: usize) -> bool {
        let values = together.iter().find_map(|map| match (map.get("const"), map.get("enum")) {
            (Some(value), _) => Some(std::slice::from_ref(value)),
            (None, Some(Value::Array(values))) => Some(values.as_slice()),
            _ => None,
        });
        if let Some(values) = values {
            return values.iter().all(|value| together.iter().any(|map| self.excludes(map, value, depth)));
        }
        let kinds = kinds_of(together);
        let numbers = kinds.and(Kinds::NUMBER);
        !kinds.has(Kinds::NULL.or(Kinds::BOOLEAN))
            && (numbers.is_empty() || no_number(together, !numbers.has(Kinds::FRACTION)))
            && (!kinds.has(Kinds::STRING) || self.budget.no_string(together))
            && (!kinds.has(Kinds::ARRAY) || self.no_array(together, depth))
            && (!kinds.has(Kinds::OBJECT) || self.no_object(together, depth))
    }

    fn no_array(&self, together: &Together<'a>, depth: usize) -> bool {
        let least = largest(together, "minItems").unwrap_or(0);
        if smallest(together, "maxItems").is_some_and(|most| most < least) {
            return true;
        }
        let longest = together.iter().map(|map| list(map, "prefixItems").len() as u64 + 1).max().unwrap_or(0);
        (0..least.min(longest)).any(|at| {
            let items =
                together.iter().filter_map(|map| list(map, "prefixItems").get(at as usize).or(map.get("items")));
            self.empty(&items.collect::<Vec<_>>(), depth + 1)
        })
    }

    fn no_object(&self, together: &Together<'a>, depth: usize) -> bool {
        let mut keys: Vec<&str> = Vec::new();
        for map in together {
            keys.extend(list(map, "required").iter().filter_map(Value::as_str));
        }
        keys.sort_unstable();
        keys.dedup();
        let least = largest(together, "minProperties").unwrap_or(0).max(keys.len() as u64);
        if smallest(together, "maxProperties").is_some_and(|most| most < least) {
            return true;
        }
        keys.into_iter().any(|key| {
            let schemas: Vec<&Value> = together.iter().flat_map(|map| self.budget.property(map, key)).collect();
            self.empty(&schemas, depth + 1)
        })
    }

    /// Whether it is certain that a value does not fit a schema.
    fn refutes(&self, schema: &'a Value, value: &Value, depth: usize) -> bool {
        if depth > MAX_DEPTH || self.budget.look().is_none() {
            return false;
        }
        let map = match schema {
            Value::Bool(fits) => return !fits,
            Value::Object(map) => map,
            _ => return false,
        };
        self.excludes(map, value, depth)
            || self.target(map).is_some_and(|target| self.refutes(target, value, depth + 1))
            || list(map, "allOf").iter().any(|part| self.refutes(part, value, depth + 1))
            || map.contains_key("anyOf") && list(map, "anyOf").iter().all(|part| self.refutes(part, value, depth + 1))
    }

    /// Whether it is certain that a value does not fit a map's own keywords.
    fn excludes(&self, map: &'a Map<String, Value>, value: &Value, depth: usize) -> bool {
        let wrong_type = map.get("type").and_then(Kinds::of_keyword).is_some_and(|k| !k.has(Kinds::of_value(value)));
        let not_listed = map.get("const").is_some_and(|other| !same(other, value))
            || map.contains_key("enum") && !list(map, "enum").iter().any(|other| same(other, value));
        if wrong_type || not_listed {
            return true;
        }
        match value {
            Value::Number(n) => {
                let x = n.as_f64().unwrap_or(f64::NAN);
                let bound = |key: &str| map.get(key).and_then(Value::as_f64);
                bound("minimum").is_some_and(|b| x < b)
                    || bound("maximum").is_some_and(|b| x > b)
                    || bound("exclusiveMinimum").is_some_and(|b| x <= b)
                    || bound("exclusiveMaximum").is_some_and(|b| x >= b)
            }
            Value::String(text) => {
                let count = text.chars().count() as u64;
                let pattern = map.get("pattern").and_then(Value::as_str);
                number(map, "minLength").is_some_and(|n| count < n)
                    || number(map, "maxLength").is_some_and(|n| count > n)
                    || pattern.is_some_and(|p| self.budget.matches(p, text) == Some(false))
            }
            Value::Array(items) => {
                let count = items.len() as u64;
                let prefix = list(map, "prefixItems");
                number(map, "minItems").is_some_and(|n| count < n)
                    || number(map, "maxItems").is_some_and(|n| count > n)
                    || items.iter().enumerate().any(|(at, item)| {
                        let schema = prefix.get(at).or(map.get("items"));
                        schema.is_some_and(|schema| self.refutes(schema, item, depth + 1))
                    })
            }
            Value::Object(object) => {
                let count = object.len() as u64;
                let lacks = |key: &Value| key.as_str().is_some_and(|key| !object.contains_key(key));
                number(map, "minProperties").is_some_and(|n| count < n)
                    || number(map, "maxProperties").is_some_and(|n| count > n)
                    || list(map, "required").iter().any(lacks)
                    || object.iter().any(|(key, inner)| {
                        self.budget.property(map, key).iter().any(|schema| self.refutes(schema, inner, depth + 1))
                    })
            }
            Value::Null | Value::Bool(_) => false,
        }
    }
}

/// The types that keyword maps leave.
fn kinds_of(together: &Together) -> Kinds {
    together.iter().fold(Kinds::ALL, |all, map| {
        let named = map.get("type").and_then(Kinds::of_keyword).unwrap_or(Kinds::ALL);
        let of = |values: &[Value]| values.iter().fold(Kinds::NONE, |kinds, v| kinds.or(Kinds::of_value(v)));
        let listed = match (map.get("const"), map.get("enum")) {
            (Some(value), _) => Kinds::of_value(value),
            (None, Some(Value::Array(values))) => of(values),
            _ => Kinds::ALL,
        };
        all.and(named).and(listed)
    })
}

fn no_number(together: &Together, whole: bool) -> bool {
    let bounds = |key: &str| together.iter().filter_map(|map| map.get(key)?.as_f64()).collect::<Vec<_>>();
    let max = |values: Vec<f64>| values.into_iter().fold(f64::NEG_INFINITY, f64::max);
    let min = |values: Vec<f64>| values.into_iter().fold(f64::INFINITY, f64::min);
    let (from, after) = (max(bounds("minimum")), max(bounds("exclusiveMinimum")));
    let (to, before) = (min(bounds("maximum")), min(bounds("exclusiveMaximum")));
    if whole && [from, after, to, before].iter().all(|x| x.abs() < 1e15 || x.is_infinite()) {
        let least = from.ceil().max(after.floor() + 1.0);
        let most = to.floor().min(before.ceil() - 1.0);
        return least > most;
    }
    from > to || after >= to || from >= before || after >= before
}

pub(super) fn list<'a>(map: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    map.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn number(map: &Map<String, Value>, key: &str) -> Option<u64> {
    map.get(key)?.as_u64()
}

fn largest(together: &Together, key: &str) -> Option<u64> {
    together.iter().filter_map(|map| number(map, key)).max()
}

fn smallest(together: &Together, key: &str) -> Option<u64> {
    together.iter().filter_map(|map| number(map, key)).min()
}

/// Whether two values are the same to JSON Schema: 1 is 1.0, and keys have no order.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, value)| b.get(key).is_some_and(|other| same(value, other)))
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_excludes_each_other_is_told_and_nothing_else() {
        let definitions = json!({
            "cat": {"type": "object", "properties": {"kind": {"const": "cat"}}, "required": ["kind"]},
            "loop": {"anyOf": [{"$ref": "#/$defs/loop"}]},
        });
        let definitions = definitions.as_object().unwrap();
        let rows = [
            (json!({"type": "string"}), json!({"type": "number"}), true),
            (json!({"type": "integer"}), json!({"type": "number"}), false),
            (json!({"minimum": 3}), json!({"type": "number", "maximum": 2}), true),
            (json!({"minimum": 3}), json!({"maximum": 2}), false),
            (json!({"type": "integer", "exclusiveMinimum": 3}), json!({"exclusiveMaximum": 4}), true),
            (json!({"type": "number", "exclusiveMinimum": 3}), json!({"exclusiveMaximum": 4}), false),
            (json!({"enum": ["a", "b"]}), json!({"enum": ["c", 1]}), true),
            (json!({"enum": ["a", "b"]}), json!({"pattern": "b"}), false),
            (json!({"const": 1.0}), json!({"enum": [1]}), false),
            (json!({"const": "a"}), json!({"type": "string", "pattern": "^[b-z]"}), true),
            (json!({"type": "string", "pattern": "^a"}), json!({"type": "string", "pattern": "^b"}), true),
            (json!({"type": "string", "maxLength": 2}), json!({"type": "string", "minLength": 3}), true),
            (json!({"type": "array", "maxItems": 2}), json!({"type": "array", "minItems": 3}), true),
            (
                json!({"type": "array", "minItems": 1, "items": {"type": "string"}}),
                json!({"type": "array", "minItems": 1, "items": {"type": "null"}}),
                true,
            ),
            (json!({"type": "array", "items": {"type": "string"}}), json!({"items": {"type": "null"}}), false),
            (json!({"$ref": "#/$defs/cat"}), json!({"properties": {"kind": {"const": "dog"}}}), true),
            (json!({"$ref": "#/$defs/cat"}), json!({"type": "object", "additionalProperties": false}), true),
            (json!({"$ref": "#/$defs/cat"}), json!({"type": "object", "patternProperties": {"^k": false}}), true),
            (json!({"$ref": "#/$defs/loop"}), json!({"type": "string"}), false),
            (json!({"$ref": "#/$defs/unmade"}), json!({"type": "string"}), false),
            (json!({"type": "object", "required": ["a"]}), json!({"properties": {"a": false}}), true),
            (json!({"anyOf": [{"type": "null"}, {"const": 3}]}), json!({"type": ["string", "boolean"]}), true),
            (json!(true), json!(true), false),
            (json!(true), json!(false), true),
        ];
        for (a, b, expected) in &rows {
            let budget = Budget::default();
            let reason = Reason::new(definitions, &budget);
            assert_eq!(reason.is_empty(&[a, b]), *expected, "{a} and {b}");
            assert_eq!(reason.is_empty(&[b, a]), *expected, "{b} and {a}");
        }
    }
}
