//! The walk over a schema that says it in fewer keywords.

use super::arrays;
use super::document::{Document, MAX_DEPTH, Place};
use super::ecma;
use super::formats::{self, Format};
use super::kinds::{Kinds, not_or};
use super::objects;
use super::productive;
use super::reason::Budget;
use super::strings;
use super::values::{Result, array, count, finite, object, refuse, short, strings_of, too_large};
use crate::error::GrammarError;
use crate::limits;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Most schemas in a document, counted as often as they are said.
const MAX_SCHEMAS: usize = 20_000;
/// Most keys of one object, or the root of the sum of squares for several.
const MAX_PROPERTIES: usize = 1_500;
/// Most values of one `enum`.
const MAX_VALUES: usize = 20_000;
/// Most bytes of all patterns.
const MAX_PATTERNS: usize = 64 << 10;
/// Longest array in which `contains` is said.
const MAX_CONTAINS: u64 = 8;
/// What is measured where a schema is too deep.
pub(crate) const DEPTH: &str = "its depth";

pub(super) type Out = Map<String, Value>;

/// A schema in the keywords that the parser knows.
pub(crate) struct Narrow {
    pub(crate) schema: Value,
    /// The most keys of an object, or parts of a list.
    pub(crate) widest: usize,
}

/// Says a schema in the keywords that the parser knows. Schemas deeper than `depth` are refused: the stack of a thread is
/// finite.
pub(crate) fn narrow(schema: &Value, depth: usize) -> Result<Narrow> {
    let document = Document::new(schema);
    let mut walk = Walk {
        document: &document,
        names: HashMap::new(),
        definitions: Map::new(),
        owner: None,
        edges: Vec::new(),
        depth: 0,
        limit: depth.min(MAX_DEPTH),
        widest: 0,
        squares: 0,
        schemas: 0,
        patterns: 0,
        budget: Budget::default(),
    };
    let mut root = walk.schema(&document.root())?;
    walk.check_circles()?;
    let (mut definitions, widest) = (walk.definitions, walk.widest);
    productive::prune(&mut root, &mut definitions)?;
    match &mut root {
        Value::Object(map) if !definitions.is_empty() => {
            map.insert("$defs".into(), Value::Object(definitions));
        }
        _ => {}
    }
    Ok(Narrow { schema: root, widest })
}

pub(super) struct Walk<'a> {
    document: &'a Document<'a>,
    /// Of the schemas that are referred to, by pointer.
    names: HashMap<String, String>,
    pub(super) definitions: Out,
    /// The definition whose own value is at hand, not a part of it.
    owner: Option<String>,
    /// References from a definition's own value to another one.
    edges: Vec<(String, String, String)>,
    depth: usize,
    /// The deepest that may be.
    limit: usize,
    widest: usize,
    /// Squares of the numbers of keys.
    squares: usize,
    schemas: usize,
    /// Bytes of patterns.
    patterns: usize,
    pub(super) budget: Budget,
}

impl<'a> Walk<'a> {
    pub(super) fn schema(&mut self, place: &Place<'a>) -> Result<Value> {
        self.schemas += 1;
        if self.schemas > MAX_SCHEMAS {
            return too_large("its number of schemas", self.schemas, MAX_SCHEMAS);
        }
        self.depth += 1;
        if self.depth > self.limit {
            return too_large(DEPTH, self.depth, self.limit);
        }
        let out = match place.value {
            Value::Bool(fits) => Ok(Value::Bool(*fits)),
            Value::Object(map) => self.object(place, map).map(Value::Object),
            other => refuse(place, "schema", format!("expected an object or a boolean, got {}", short(other))),
        };
        self.depth -= 1;
        out
    }

    /// A schema of a part of the value: what is referred to there is not the value itself.
    fn part(&mut self, place: &Place<'a>) -> Result<Value> {
        let owner = self.owner.take();
        let out = self.schema(place);
        self.owner = owner;
        out
    }

    fn object(&mut self, place: &Place<'a>, map: &'a Map<String, Value>) -> Result<Out> {
        let mut out = Out::new();
        let mut more = Vec::new();
        for (keyword, value) in map {
            self.keyword(place, map, keyword, value, &mut out, &mut more)?;
        }
        self.combinations(place, map, &mut out, &mut more)?;
        if !more.is_empty() {
            match out.entry("allOf").or_insert_with(|| json!([])) {
                Value::Array(parts) => parts.extend(more),
                _ => unreachable!("an array was put there"),
            }
        }
        Ok(out)
    }

    /// The keywords that need no look at what the others say.
    fn keyword(
        &mut self,
        place: &Place<'a>,
        map: &'a Map<String, Value>,
        keyword: &str,
        value: &'a Value,
        out: &mut Out,
        more: &mut Vec<Value>,
    ) -> Result<()> {
        let here = place.child(keyword, value);
        match keyword {
            "type" => {
                if Kinds::of_keyword(value).is_none_or(Kinds::is_empty) {
                    return refuse(place, keyword, format!("expected names of types, got {}", short(value)));
                }
                out.insert(keyword.into(), value.clone());
            }
            "enum" => {
                let values = array(place, keyword, value)?;
                if values.len() > MAX_VALUES {
                    return too_large("an enum's number of values", values.len(), MAX_VALUES);
                }
                out.insert(keyword.into(), value.clone());
            }
            "const" => drop(out.insert(keyword.into(), value.clone())),
            "properties" | "patternProperties" => {
                let schemas = object(place, keyword, value)?;
                self.widest = self.widest.max(schemas.len());
                // The parser's work grows so.
                self.squares += schemas.len().pow(2);
                if self.squares > MAX_PROPERTIES.pow(2) {
                    return too_large("an object's number of properties", schemas.len(), MAX_PROPERTIES);
                }
                let mut parts = Out::new();
                for (name, schema) in schemas {
                    let key = match keyword {
                        "patternProperties" => match self.translated(place, keyword, name)?.as_slice() {
                            [one] => one.clone(),
                            _ => return refuse(place, keyword, format!("{name:?}: look-around is not built")),
                        },
                        _ => name.clone(),
                    };
                    parts.insert(key, self.part(&here.child(name, schema))?);
                }
                out.insert(keyword.into(), parts.into());
            }
            "additionalProperties" => drop(out.insert(keyword.into(), self.part(&here)?)),
            "prefixItems" if !map.get("items").is_some_and(Value::is_array) => {
                out.insert(keyword.into(), self.list(&here, keyword, value)?);
            }
            "prefixItems" => return refuse(place, keyword, "it stands beside a list of items"),
            "items" if value.is_array() => {
                out.insert("prefixItems".into(), self.list(&here, keyword, value)?);
                if let Some(rest) = map.get("additionalItems") {
                    out.insert("items".into(), self.part(&place.child("additionalItems", rest))?);
                }
            }
            "items" => drop(out.insert(keyword.into(), self.part(&here)?)),
            "minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties" | "maxProperties" => {
                let Some(count) = count(value) else {
                    return refuse(place, keyword, format!("expected a whole number from 0, got {}", short(value)));
                };
                out.insert(keyword.into(), json!(count));
            }
            "pattern" => {
                let Some(pattern) = value.as_str() else {
                    return refuse(place, keyword, format!("expected a string, got {}", short(value)));
                };
                let mut patterns = self.translated(place, keyword, pattern)?;
                out.insert(keyword.into(), patterns.pop().unwrap_or_default().into());
                more.extend(patterns.into_iter().map(|pattern| json!({"pattern": pattern})));
            }
            "format" => match formats::of(place, value)? {
                Format::Pattern(pattern) if out.contains_key("pattern") || map.contains_key("pattern") => {
                    more.push(json!({"pattern": pattern}));
                }
                Format::Pattern(pattern) => drop(out.insert("pattern".into(), pattern.into())),
                Format::Known => drop(out.insert(keyword.into(), value.clone())),
                Format::Numbers(bounds) => more.push(bounds),
                Format::Anything => {}
            },
            "minimum" | "maximum" => {
                let exclusive = if keyword == "minimum" { "exclusiveMinimum" } else { "exclusiveMaximum" };
                let bound = finite(place, keyword, value)?;
                let name = if map.get(exclusive) == Some(&json!(true)) { exclusive } else { keyword };
                out.insert(name.into(), bound);
            }
            "exclusiveMinimum" | "exclusiveMaximum" if value.is_boolean() => {}
            "exclusiveMinimum" | "exclusiveMaximum" => {
                out.insert(keyword.into(), finite(place, keyword, value)?);
            }
            "multipleOf" | "divisibleBy" => match value.as_f64() {
                Some(x) if x > 0.0 && x.is_finite() => drop(out.insert("multipleOf".into(), value.clone())),
                _ => return refuse(place, keyword, format!("expected a number above 0, got {}", short(value))),
            },
            "required" => {
                // A flag in drafts up to 3, and a common slip.
                if value.is_boolean() {
                    return refuse(
                        place,
                        keyword,
                        "expected a list of keys, got a boolean: name the key in the object's own list",
                    );
                }
                strings_of(place, keyword, value)?;
                out.insert(keyword.into(), value.clone());
            }
            "allOf" | "anyOf" => {
                let parts = self.schemas(&here, keyword, value)?;
                if parts.is_empty() {
                    return refuse(place, keyword, "expected at least one schema");
                }
                out.insert(keyword.into(), parts.into());
            }
            // Its place among the keywords is that of its properties in the text.
            "oneOf" if !map.contains_key("anyOf") => drop(out.insert("anyOf".into(), json!([]))),
            "$ref" => drop(out.insert(keyword.into(), self.reference(place, keyword, value)?)),
            "$recursiveRef" | "$dynamicRef" => {
                let name = value.as_str().unwrap_or_default().trim_start_matches('#');
                let plain = match keyword {
                    "$recursiveRef" => self.document.root().value.get("$recursiveAnchor") != Some(&json!(true)),
                    _ => self.document.is_plain_anchor(name),
                };
                if !plain {
                    return refuse(place, keyword, "where it leads depends on where one comes from");
                }
                let reference = self.reference(place, keyword, value)?;
                more.push(json!({"$ref": reference}));
            }
            "maxContains" => return refuse(place, keyword, "items that fit cannot be counted"),
            "unevaluatedItems" if value != &json!(true) => {
                return refuse(place, keyword, "which items are evaluated is not followed; use items: false");
            }
            _ => {}
        }
        Ok(())
    }

    /// The keywords that say how others belong together; their parts are said already.
    fn combinations(
        &mut self,
        place: &Place<'a>,
        map: &'a Map<String, Value>,
        out: &mut Out,
        more: &mut Vec<Value>,
    ) -> Result<()> {
        if let Some(value) = map.get("oneOf") {
            let either = self.one_of(place, value, out)?;
            match map.contains_key("anyOf") {
                true => more.push(json!({"anyOf": either})),
                false => drop(out.insert("anyOf".into(), either.into())),
            }
        }
        if let Some(value) = map.get("not") {
            let inner = self.schema(&place.child("not", value))?;
            more.push(self.complement(place, "not", &inner, out)?);
        }
        if let Some(value) = map.get("if") {
            more.extend(self.condition(place, map, value, out)?);
        }
        for keyword in ["dependencies", "dependentRequired", "dependentSchemas"] {
            if let Some(value) = map.get(keyword) {
                for (key, needed) in object(place, keyword, value)? {
                    let needed = match needed {
                        Value::Array(_) => {
                            strings_of(place, keyword, needed)?;
                            json!({"type": "object", "required": needed})
                        }
                        _ => self.schema(&place.child(keyword, value).child(key, needed))?,
                    };
                    let absent = json!({"type": "object", "properties": {key: false}});
                    let present = json!({"allOf": [{"type": "object", "required": [key]}, needed]});
                    more.push(not_or(out, Kinds::OBJECT, vec![absent, present]));
                }
            }
        }
        if let Some(value) = map.get("propertyNames") {
            let names = self.schema(&place.child("propertyNames", value))?;
            more.extend(objects::names(place, &names)?);
        }
        if let Some(value) = map.get("unevaluatedProperties") {
            more.extend(self.unevaluated(place, map, value, out)?);
        }
        more.extend(objects::count(place, out)?);
        if let Some(value) = map.get("contains") {
            more.extend(self.contains(place, map, value, out)?);
        }
        if map.get("uniqueItems") == Some(&json!(true)) {
            more.extend(arrays::unique(place, out)?);
        }
        Ok(())
    }

    /// Keys that no keyword has spoken of, where that can be told without the value.
    fn unevaluated(
        &mut self,
        place: &Place<'a>,
        map: &'a Map<String, Value>,
        value: &'a Value,
        out: &Out,
    ) -> Result<Option<Value>> {
        let rest = self.part(&place.child("unevaluatedProperties", value))?;
        if rest == json!(true) || rest == json!({}) {
            return Ok(None);
        }
        let telling =
            ["anyOf", "oneOf", "if", "not", "dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef"];
        if let Some(other) = telling.iter().find(|key| map.contains_key(**key)) {
            return refuse(place, "unevaluatedProperties", format!("which keys are evaluated depends on {other}"));
        }
        let mut spoken = objects::Spoken::default();
        match spoken.collect(out, &self.definitions, 0) {
            Ok(()) => Ok(spoken.rest(rest)),
            Err(other) => {
                refuse(place, "unevaluatedProperties", format!("which keys are evaluated depends on {other}"))
            }
        }
    }

    fn contains(
        &mut self,
        place: &Place<'a>,
        map: &'a Map<String, Value>,
        value: &'a Value,
        out: &Out,
    ) -> Result<Option<Value>> {
        match map.get("minContains").map(count) {
            Some(Some(0)) => return Ok(None),
            None | Some(Some(1)) => {}
            _ => return refuse(place, "minContains", "items that fit cannot be counted"),
        }
        let wanted = self.part(&place.child("contains", value))?;
        let most = match out.get("maxItems").and_then(Value::as_u64) {
            Some(most) if most <= MAX_CONTAINS => most,
            _ if wanted == json!(true) || wanted == json!({}) => {
                return Ok(Some(not_or(out, Kinds::ARRAY, vec![json!({"type": "array", "minItems": 1})])));
            }
            _ => {
                let reason = format!("it is said in arrays of at most {MAX_CONTAINS} items only: give maxItems");
                return refuse(place, "contains", reason);
            }
        };
        let ways = (0..most).map(|i| {
            let before = vec![json!(true); i as usize].into_iter().chain([wanted.clone()]).collect::<Vec<_>>();
            json!({"type": "array", "prefixItems": before, "minItems": i + 1})
        });
        Ok(Some(not_or(out, Kinds::ARRAY, ways.collect())))
    }

    fn reference(&mut self, place: &Place<'a>, keyword: &str, value: &'a Value) -> Result<Value> {
        let Some(reference) = value.as_str() else {
            return refuse(place, keyword, format!("expected a string, got {}", short(value)));
        };
        let target = match self.document.resolve(reference, place) {
            Ok(target) => target,
            Err(reason) => return refuse(place, keyword, reason),
        };
        let known = self.names.get(&target.pointer).cloned();
        let name = known.clone().unwrap_or_else(|| format!("r{}", self.names.len()));
        if let Some(owner) = &self.owner {
            self.edges.push((owner.clone(), name.clone(), place.pointer.clone()));
        }
        if known.is_none() {
            self.names.insert(target.pointer.clone(), name.clone());
            let owner = self.owner.replace(name.clone());
            let schema = self.schema(&target)?;
            self.owner = owner;
            self.definitions.insert(name.clone(), schema);
        }
        Ok(format!("#/$defs/{name}").into())
    }

    /// A pattern in the syntax of the parser, which may take several that hold together.
    fn translated(&mut self, place: &Place, keyword: &str, pattern: &str) -> Result<Vec<String>> {
        self.patterns += pattern.len();
        if self.patterns > MAX_PATTERNS {
            return too_large("its patterns' length", self.patterns, MAX_PATTERNS);
        }
        limits::regex("pattern", pattern)?;
        let checked = ecma::translate(pattern).and_then(|all| {
            all.iter().try_for_each(|one| strings::check(one))?;
            Ok(all)
        });
        checked.or_else(|reason| refuse(place, keyword, format!("{}: {reason}", short(&pattern.into()))))
    }

    /// A definition whose own value is, through others, itself says nothing.
    fn check_circles(&self) -> Result<()> {
        let mut next: HashMap<&str, Vec<(&str, &str)>> = HashMap::new();
        for (from, to, pointer) in &self.edges {
            next.entry(from).or_default().push((to, pointer));
        }
        // Depth first; a definition is open while the ones that it leads to are looked at.
        let mut state: HashMap<&str, bool> = HashMap::new();
        for start in next.keys() {
            let mut stack = vec![(*start, 0)];
            while let Some((name, at)) = stack.pop() {
                if at == 0 && state.insert(name, true).is_some() {
                    continue;
                }
                match next.get(name).and_then(|all| all.get(at)) {
                    Some((to, pointer)) => {
                        stack.push((name, at + 1));
                        match state.get(to) {
                            Some(true) => {
                                return Err(GrammarError::Schema {
                                    keyword: "$ref".into(),
                                    pointer: (*pointer).into(),
                                    reason: "it refers to itself without end".into(),
                                });
                            }
                            Some(false) => {}
                            None => stack.push((to, 0)),
                        }
                    }
                    None => drop(state.insert(name, false)),
                }
            }
        }
        Ok(())
    }

    /// Schemas of the same value.
    pub(super) fn schemas(&mut self, here: &Place<'a>, keyword: &str, value: &'a Value) -> Result<Vec<Value>> {
        let parts = array(here, keyword, value)?;
        self.widest = self.widest.max(parts.len());
        parts.iter().enumerate().map(|(i, schema)| self.schema(&here.child(&i.to_string(), schema))).collect()
    }

    /// Schemas of parts of the value.
    fn list(&mut self, here: &Place<'a>, keyword: &str, value: &'a Value) -> Result<Value> {
        let owner = self.owner.take();
        let out = self.schemas(here, keyword, value);
        self.owner = owner;
        Ok(out?.into())
    }
}
