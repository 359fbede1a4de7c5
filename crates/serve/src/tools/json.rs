//! Calls as JSON: inside of tags, as the whole answer, or because a grammar made them so.

use super::{Calls, Read, Tool};
use crate::answer::{Part, Reader};
use serde::de::IgnoredAny;
use serde_json::{Deserializer, Map, Value};

/// `{"name": …, "arguments": …}`, one or several one after another, or a list of them.
pub(crate) fn hermes(text: &str, _: &[Tool]) -> Option<Vec<Read>> {
    let mut calls = Vec::new();
    for value in Deserializer::from_str(text).into_iter::<Value>() {
        match value.ok()? {
            Value::Array(list) => calls.extend(list.into_iter().map(one).collect::<Option<Vec<Read>>>()?),
            value => calls.push(one(value)?),
        }
    }
    Some(calls)
}

/// A call as an object: arguments are an object, or one in a string.
fn one(value: Value) -> Option<Read> {
    let Value::Object(mut object) = value else { return None };
    let Some(Value::String(name)) = object.remove("name") else { return None };
    let arguments = object.remove("arguments").or_else(|| object.remove("parameters"));
    let arguments = match arguments {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(arguments)) => arguments,
        Some(Value::String(text)) => serde_json::from_str(&text).ok()?,
        Some(_) => return None,
    };
    Some(Read { name, arguments })
}

/// Calls that are the whole answer, as Llama 3 writes them: objects, perhaps with `;` between. An answer that begins with
/// anything else is text.
pub(crate) struct Objects {
    calls: Calls,
    held: String,
    is_text: bool,
}

impl Objects {
    pub(crate) fn new(calls: Calls) -> Objects {
        Objects { calls, held: String::new(), is_text: false }
    }
}

impl Reader for Objects {
    fn push(&mut self, text: &str, out: &mut Vec<Part>) {
        self.held.push_str(text);
        let start = self.held.trim_start();
        if self.is_text || !(start.is_empty() || start.starts_with('{')) {
            self.is_text = true;
            out.push(Part::Text(std::mem::take(&mut self.held)));
        }
    }

    fn finish(&mut self, out: &mut Vec<Part>) {
        let mut calls = Some(Vec::new());
        let mut rest = self.held.trim();
        while !rest.is_empty() && calls.is_some() {
            let mut values = Deserializer::from_str(rest).into_iter::<Value>();
            let call = values.next().and_then(Result::ok).and_then(one);
            rest = rest[values.byte_offset()..].trim_start().trim_start_matches(';').trim_start();
            calls = calls.zip(call).map(|(mut calls, call)| {
                calls.push(call);
                calls
            });
        }
        match calls.filter(|calls| self.calls.know(calls)) {
            Some(calls) => self.calls.give(calls, out),
            None if self.held.is_empty() => {}
            None => out.push(Part::Text(std::mem::take(&mut self.held))),
        }
    }

    fn called(&self) -> bool {
        self.calls.count > 0
    }
}

/// The one call that a grammar allows: `{"name": …, "arguments": …}` is the whole answer. Its arguments come as they are
/// written; one that is cut off has a part of them, and one that is cut off before its name is nothing.
pub(crate) struct Forced {
    calls: Calls,
    /// Not given out yet.
    held: String,
    /// Arguments so far, once they have begun.
    arguments: Option<String>,
}

impl Forced {
    pub(crate) fn new(calls: Calls) -> Forced {
        Forced { calls, held: String::new(), arguments: None }
    }

    /// Gives out the first `bytes` that are held.
    fn give(&mut self, bytes: usize, out: &mut Vec<Part>) {
        let Some(arguments) = self.arguments.as_mut().filter(|_| bytes > 0) else { return };
        let text: String = self.held.drain(..bytes).collect();
        arguments.push_str(&text);
        out.push(Part::Arguments { index: 0, text });
    }
}

/// The name of a call, and what comes after it.
fn name(text: &str) -> Option<(&str, &str)> {
    let rest = text.trim_start().strip_prefix('{')?.trim_start().strip_prefix("\"name\"")?;
    rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?.split_once('"')
}

/// What comes after the name, from the first character of the arguments on.
fn arguments(text: &str) -> Option<&str> {
    let rest = text.trim_start().strip_prefix(',')?.trim_start().strip_prefix("\"arguments\"")?;
    Some(rest.trim_start().strip_prefix(':')?.trim_start()).filter(|rest| !rest.is_empty())
}

impl Reader for Forced {
    fn push(&mut self, text: &str, out: &mut Vec<Part>) {
        self.held.push_str(text);
        if self.arguments.is_none() {
            let Some((name, rest)) = name(&self.held) else { return };
            let Some(rest) = arguments(rest) else { return };
            self.calls.begin(name.to_owned(), out);
            self.held = rest.to_owned();
            self.arguments = Some(String::new());
        }
        // The last bracket is the call's own.
        let sure = self.held.trim_end_matches(|c: char| c == '}' || c.is_ascii_whitespace()).len();
        self.give(sure, out);
    }

    fn finish(&mut self, out: &mut Vec<Part>) {
        let Some(given) = &self.arguments else {
            if let Some((name, _)) = name(&self.held) {
                self.calls.begin(name.to_owned(), out);
            }
            return;
        };
        let whole = self.held.trim_end().strip_suffix('}').map(str::trim_end);
        let whole = whole.filter(|rest| serde_json::from_str::<IgnoredAny>(&format!("{given}{rest}")).is_ok());
        let bytes = whole.unwrap_or(&self.held).len();
        self.give(bytes, out);
    }

    fn called(&self) -> bool {
        self.calls.count > 0
    }
}
