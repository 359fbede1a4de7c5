//! Chat templates: from messages to the text that a model was trained to see.
//!
//! Templates are Jinja as transformers sets it up (`trim_blocks`, `lstrip_blocks`, loop controls, `tojson` in Python's
//! form, `raise_exception`, `strftime_now`, Python's string methods, `{% generation %}`). They come with a model and are
//! not trusted: they see nothing but what they are given, and their steps are counted.

use std::fmt::Write as _;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use crate::error::TokenizerError;

/// More steps than any conversation needs; a template that takes more is stopped.
const MAX_STEPS: u64 = 10_000_000;

/// A compiled template.
pub struct ChatTemplate {
    environment: Environment<'static>,
}

/// What a template is given.
#[derive(Debug, Clone, Default)]
pub struct ChatInput<'a> {
    /// The conversation: an array of objects with `role` and `content`, as the OpenAI API has them.
    pub messages: &'a [serde_json::Value],
    /// Tool declarations, an array of objects.
    pub tools: Option<&'a [serde_json::Value]>,
    /// End with what begins the assistant's answer.
    pub add_generation_prompt: bool,
    /// Further variables: `bos_token`, `eos_token`, `enable_thinking`, `date_string`, …
    pub variables: serde_json::Map<String, serde_json::Value>,
}

impl ChatTemplate {
    /// Compiles a template.
    ///
    /// # Errors
    /// Not valid Jinja, with the line.
    pub fn new(source: &str) -> Result<Self, TokenizerError> {
        let mut environment = Environment::new();
        environment
            .set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(|e| failed(&e))?);
        environment.set_fuel(Some(MAX_STEPS));
        environment.set_unknown_method_callback(methods);
        environment.add_filter("tojson", tojson);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        // In Jinja2 strings, mappings and undefined values are both.
        environment
            .add_test("iterable", |v: &Value| !v.is_none() && (v.kind() == ValueKind::String || v.try_iter().is_ok()));
        environment.add_test("sequence", |v: &Value| {
            matches!(v.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Undefined)
        });
        environment.add_template_owned("chat", without_generation_tags(source)).map_err(|e| failed(&e))?;
        Ok(Self { environment })
    }

    /// The text of a conversation.
    ///
    /// # Errors
    /// What the template raises (roles that do not alternate, …), or its own mistakes, with the line.
    pub fn render(&self, input: &ChatInput<'_>) -> Result<String, TokenizerError> {
        let mut context = input.variables.clone();
        context.insert("messages".into(), input.messages.into());
        context.insert("tools".into(), input.tools.map_or(serde_json::Value::Null, Into::into));
        context.insert("documents".into(), serde_json::Value::Null);
        context.insert("add_generation_prompt".into(), input.add_generation_prompt.into());
        let template = self.environment.get_template("chat").map_err(|e| failed(&e))?;
        template.render(Value::from(Serde(&context))).map_err(|e| failed(&e))
    }
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate").finish_non_exhaustive()
    }
}

fn failed(error: &Error) -> TokenizerError {
    let reason = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    TokenizerError::Template { line: error.line().unwrap_or(0), reason }
}

/// `{% generation %}` marks the assistant's text for training and changes nothing in it.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let Some(length) = rest[at..].find("%}") else { break };
        let inner = &rest[at + 2..at + length];
        let name = inner.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']);
        let block = match name.trim() {
            "generation" => Some("if true"),
            "endgeneration" => Some("endif"),
            _ => None,
        };
        out.push_str(&rest[..at + 2]);
        match block {
            Some(block) => out.push_str(&inner.replace(name.trim(), block)),
            None => out.push_str(inner),
        }
        rest = &rest[at + length..];
    }
    out + rest
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

fn strftime_now(format: &str) -> Result<String, Error> {
    let now = jiff::Zoned::now();
    jiff::fmt::strtime::format(format, &now)
        .map_err(|e| Error::new(ErrorKind::InvalidOperation, format!("strftime_now({format:?}): {e}")))
}

/// Python's methods; those that differ from it in `minijinja-contrib` are done here.
fn methods(state: &mut State<'_, '_>, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    match (value.as_str(), method) {
        (Some(text), "removeprefix" | "removesuffix") => {
            let (part,): (&str,) = minijinja::value::from_args(args)?;
            let cut = if method == "removeprefix" { text.strip_prefix(part) } else { text.strip_suffix(part) };
            Ok(cut.unwrap_or(text).into())
        }
        (Some(text), "rsplit") => {
            let (separator, most): (&str, Option<i64>) = minijinja::value::from_args(args)?;
            let most = most.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX - 1);
            let mut parts: Vec<&str> = text.rsplitn(most + 1, separator).collect();
            parts.reverse();
            Ok(parts.into_iter().map(Value::from).collect())
        }
        (Some(text), "partition" | "rpartition") => {
            let (separator,): (&str,) = minijinja::value::from_args(args)?;
            let found = if method == "partition" { text.split_once(separator) } else { text.rsplit_once(separator) };
            let parts = match (found, method) {
                (Some((a, b)), _) => [a, separator, b],
                (None, "partition") => [text, "", ""],
                (None, _) => ["", "", text],
            };
            Ok(parts.into_iter().map(Value::from).collect())
        }
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args),
    }
}

/// Python's `json.dumps`: insertion order, `", "` and `": "` between, non-ASCII as it is unless `ensure_ascii`.
fn tojson(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let indent = match kwargs.get::<Option<Value>>("indent")? {
        None => None,
        Some(v) if v.is_none() => None,
        Some(v) => Some(match v.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(v.as_i64().unwrap_or(0).clamp(0, 64) as usize),
        }),
    };
    let separators: Option<Vec<String>> = kwargs.get("separators")?;
    let (comma, colon) = match separators.as_deref() {
        Some([comma, colon]) => (comma.clone(), colon.clone()),
        Some(_) => return Err(Error::new(ErrorKind::InvalidOperation, "tojson: separators must be two strings")),
        None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
    };
    let style = Style {
        indent,
        comma,
        colon,
        ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    kwargs.assert_all_used()?;
    let mut out = String::new();
    style.write(value, 0, &mut out)?;
    Ok(Value::from_safe_string(out))
}

struct Style {
    indent: Option<String>,
    comma: String,
    colon: String,
    ascii: bool,
    sort: bool,
}

/// Deeper values are refused; Python's own limit is a thousand.
const MAX_DEPTH: usize = 200;

impl Style {
    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        let refuse = |what: String| Err(Error::new(ErrorKind::InvalidOperation, format!("tojson: {what}")));
        if depth > MAX_DEPTH {
            return refuse(format!("more than {MAX_DEPTH} levels deep"));
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => drop(write!(out, "{value}")),
            ValueKind::Number => out.push_str(&float(f64::try_from(value.clone())?)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.list(('[', ']'), items.len(), depth, out, |i, out| self.write(&items[i], depth + 1, out))?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort {
                    keys.sort();
                }
                self.list(('{', '}'), keys.len(), depth, out, |i, out| {
                    match keys[i].as_str() {
                        Some(key) => self.string(key, out),
                        None => self.string(&keys[i].to_string(), out),
                    }
                    out.push_str(&self.colon);
                    self.write(&value.get_item(&keys[i])?, depth + 1, out)
                })?;
            }
            kind => return refuse(format!("a value of type {kind} is not JSON")),
        }
        Ok(())
    }

    fn list(
        &self,
        (open, close): (char, char),
        length: usize,
        depth: usize,
        out: &mut String,
        mut item: impl FnMut(usize, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let line = |depth: usize, out: &mut String| {
            if let Some(indent) = &self.indent {
                out.push('\n');
                (0..depth).for_each(|_| out.push_str(indent));
            }
        };
        out.push(open);
        for i in 0..length {
            if i > 0 {
                out.push_str(&self.comma);
            }
            line(depth + 1, out);
            item(i, out)?;
        }
        if length > 0 {
            line(depth, out);
        }
        out.push(close);
        Ok(())
    }

    fn string(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if c < ' ' || self.ascii && c > '~' => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

/// Python's `repr` of a float: the shortest digits, an exponent of at least two.
fn float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    let text = format!("{number:?}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}
