//! Calls as JSON: inside of tags, as the whole answer, or because a grammar made them so.

use super::{Calls, Read, Tool};
use crate::answer::{Part, Reader};
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

/// The one call that a grammar allows: `{"name": …, "arguments": …}` is the whole answer. One that was cut off is text.
pub(crate) struct Forced {
    calls: Calls,
    held: String,
}

impl Forced {
    pub(crate) fn new(calls: Calls) -> Forced {
        Forced { calls, held: String::new() }
    }
}

impl Reader for Forced {
    fn push(&mut self, text: &str, _: &mut Vec<Part>) {
        self.held.push_str(text);
    }

    fn finish(&mut self, out: &mut Vec<Part>) {
        match hermes(&self.held, &[]).filter(|calls| self.calls.know(calls)) {
            Some(calls) => self.calls.give(calls, out),
            None if self.held.is_empty() => {}
            None => out.push(Part::Text(std::mem::take(&mut self.held))),
        }
    }

    fn called(&self) -> bool {
        self.calls.count > 0
    }
}
