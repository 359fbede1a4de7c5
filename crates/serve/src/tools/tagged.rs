//! Calls in forms of their own: Qwen's tags for each parameter, Gemma's `call:NAME{key:value}`.

use super::{Read, Tool};
use serde_json::{Map, Value};

/// Deepest nesting of a value.
const MAX_DEPTH: usize = 64;

/// `<function=NAME><parameter=KEY>\nVALUE\n</parameter>…</function>`.
pub(crate) fn qwen(text: &str, tools: &[Tool]) -> Option<Vec<Read>> {
    let (name, mut rest) = text.trim().strip_prefix("<function=")?.split_once('>')?;
    let name = name.trim().to_owned();
    let mut arguments = Map::new();
    while let Some((_, after)) = rest.split_once("<parameter=") {
        let (key, after) = after.split_once('>')?;
        let (value, after) = after.split_once("</parameter>").or_else(|| after.split_once("</function>"))?;
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        arguments.insert(key.trim().to_owned(), typed(value, schema_of(tools, &name, key.trim())));
        rest = after;
    }
    Some(vec![Read { name, arguments }])
}

/// The schema of a parameter.
fn schema_of<'t>(tools: &'t [Tool], name: &str, key: &str) -> Option<&'t Value> {
    let tool = tools.iter().find(|tool| tool.name == name)?;
    tool.parameters.get("properties")?.get(key)
}

/// A value that is written without quotes: a string where the schema wants one, else JSON if it is.
fn typed(text: &str, schema: Option<&Value>) -> Value {
    let kind = schema.and_then(|schema| schema.get("type"));
    let string = match kind {
        Some(Value::String(kind)) => kind == "string",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string") && !text.trim().eq("null"),
        _ => false,
    };
    if string {
        return text.into();
    }
    serde_json::from_str(text.trim()).unwrap_or_else(|_| text.into())
}

/// `call:NAME{key:value,…}`: strings stand between `<|"|>` or `<escape>` or quotes, lists in `[]`, objects in `{}`.
pub(crate) fn gemma(text: &str, _: &[Tool]) -> Option<Vec<Read>> {
    let rest = text.trim().strip_prefix("call:")?;
    let (name, _) = rest.split_once('{')?;
    let mut cursor = Cursor { rest: &rest[name.len()..] };
    let Value::Object(arguments) = cursor.value(MAX_DEPTH)? else { return None };
    cursor.rest.trim().is_empty().then(|| vec![Read { name: name.trim().to_owned(), arguments }])
}

struct Cursor<'t> {
    rest: &'t str,
}

/// What stands around strings.
const QUOTES: &[&str] = &["<|\"|>", "<escape>", "\""];

impl<'t> Cursor<'t> {
    fn take(&mut self, text: &str) -> bool {
        let rest = self.rest.trim_start();
        match rest.strip_prefix(text) {
            Some(after) => {
                self.rest = after;
                true
            }
            None => false,
        }
    }

    /// Up to the first of these characters, which stays.
    fn until(&mut self, ends: &[char]) -> Option<&'t str> {
        let at = self.rest.find(ends)?;
        let (text, rest) = self.rest.split_at(at);
        self.rest = rest;
        Some(text.trim())
    }

    fn quoted(&mut self) -> Option<String> {
        for quote in QUOTES {
            if self.take(quote) {
                let (text, rest) = self.rest.split_once(quote)?;
                self.rest = rest;
                return Some(text.to_owned());
            }
        }
        None
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth == 0 {
            return None;
        }
        if self.take("{") {
            let mut object = Map::new();
            while !self.take("}") {
                let key = match self.quoted() {
                    Some(key) => key,
                    None => self.until(&[':', ',', '}'])?.to_owned(),
                };
                if !self.take(":") {
                    return None;
                }
                object.insert(key, self.value(depth - 1)?);
                self.take(",");
            }
            return Some(Value::Object(object));
        }
        if self.take("[") {
            let mut list = Vec::new();
            while !self.take("]") {
                list.push(self.value(depth - 1)?);
                self.take(",");
            }
            return Some(Value::Array(list));
        }
        if let Some(text) = self.quoted() {
            return Some(text.into());
        }
        let text = self.until(&[',', '}', ']'])?;
        if text.is_empty() {
            return None;
        }
        Some(serde_json::from_str(text).unwrap_or_else(|_| text.into()))
    }
}
