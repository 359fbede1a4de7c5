//! Tools: what a request declares, how a model is told of it, and in which form it writes its calls.

mod blocks;
#[cfg(any(test, fuzzing))]
pub(crate) mod claim;
mod held;
mod json;
mod prompt;
mod tagged;
#[cfg(test)]
mod tests;

pub(crate) use blocks::Blocks;
pub(crate) use json::{Forced, Objects};
pub(crate) use prompt::tell;

use crate::answer::{Part, Plain, Reader};
use crate::app::fresh_id;
use crate::error::Fault;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most tools of a request, as in OpenAI's API.
pub(crate) const MAX_TOOLS: usize = 128;
/// Longest name of a tool.
const MAX_NAME: usize = 64;

/// A tool that a model may call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    /// JSON Schema of the arguments.
    pub(crate) parameters: Map<String, Value>,
    /// Whether arguments must fit it.
    pub(crate) strict: bool,
}

/// A tool as OpenAI's chat API declares it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", deny_unknown_fields)]
pub(crate) enum ToolDeclaration {
    /// A function.
    #[serde(rename = "function")]
    Function {
        /// The function.
        function: FunctionDeclaration,
    },
}

/// A function that a model may call.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FunctionDeclaration {
    /// Its name: letters, digits, `_`, `-` and `.`, at most 64.
    name: String,
    /// What it does.
    description: Option<String>,
    /// JSON Schema of its arguments, an object.
    parameters: Option<Map<String, Value>>,
    /// Whether arguments must fit the schema. They do so anyway where a call is forced (`tool_choice`).
    strict: Option<bool>,
}

/// Whether and which tool is called.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected auto, none, required, or {\"type\": \"function\", \"function\": {\"name\": …}}"
)]
pub(crate) enum ToolChoice {
    /// In general.
    Mode(Mode),
    /// This one.
    Named(Named),
}

/// Whether tools are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// As the model likes.
    Auto,
    /// Not at all: the model is not told of them.
    None,
    /// One is.
    Required,
}

/// The tool that is called.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", deny_unknown_fields)]
pub(crate) enum Named {
    /// A function.
    #[serde(rename = "function")]
    Function {
        /// Which.
        function: Name,
    },
}

/// A name.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Name {
    /// The name.
    name: String,
}

/// Which calls an answer may have.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Toolbox {
    pub(crate) tools: Arc<[Tool]>,
    /// Exactly one call, of one of these: places in `tools`. None: calls or text, as the model likes.
    pub(crate) forced: Option<Vec<usize>>,
    /// Whether there may be more than one call.
    pub(crate) parallel: bool,
    /// The field of the first tool whose arguments must fit, where no call is forced.
    pub(crate) strict: Option<String>,
}

impl Toolbox {
    /// What a request of OpenAI's chat API says.
    ///
    /// # Errors
    /// What is wrong with a declaration, by its path, or a choice that has no tool.
    pub(crate) fn new(
        declared: Option<Vec<ToolDeclaration>>,
        choice: Option<ToolChoice>,
        parallel: Option<bool>,
    ) -> Result<Toolbox, Fault> {
        let tool = |ToolDeclaration::Function { function }| Tool {
            name: function.name,
            description: function.description,
            parameters: function.parameters.unwrap_or_else(no_parameters),
            strict: function.strict.unwrap_or(false),
        };
        let tools = declared.into_iter().flatten().map(tool).collect();
        let choice = match choice {
            None => Choice::Auto,
            Some(ToolChoice::Mode(Mode::Auto)) => Choice::Auto,
            Some(ToolChoice::Mode(Mode::None)) => Choice::None,
            Some(ToolChoice::Mode(Mode::Required)) => Choice::Required,
            Some(ToolChoice::Named(Named::Function { function })) => Choice::Named(function.name),
        };
        Toolbox::of(tools, choice, parallel, |index| format!("tools[{index}].function"))
    }

    /// From the tools and the choice of any API; `path` names a tool in errors.
    pub(crate) fn of(
        tools: Vec<Tool>,
        choice: Choice,
        parallel: Option<bool>,
        path: impl Fn(usize) -> String,
    ) -> Result<Toolbox, Fault> {
        check(&tools, &path)?;
        let needs_tools = |param: &str| Fault::field(param, format!("{param} needs tools"));
        if tools.is_empty() {
            return match choice {
                Choice::Auto | Choice::None if parallel.is_none() => Ok(Toolbox::default()),
                Choice::Auto | Choice::None => Err(needs_tools("parallel_tool_calls")),
                Choice::Required | Choice::Named(_) => Err(needs_tools("tool_choice")),
            };
        }
        let forced = match choice {
            Choice::None => return Ok(Toolbox::default()),
            Choice::Auto => None,
            Choice::Required => Some((0..tools.len()).collect()),
            Choice::Named(name) => {
                let at = tools.iter().position(|tool| tool.name == name);
                let message = || format!("tool_choice names {:.80?}, which is none of the tools", name);
                Some(vec![at.ok_or_else(|| Fault::field("tool_choice", message()))?])
            }
        };
        let strict = tools.iter().position(|tool| tool.strict && forced.is_none());
        let strict = strict.map(|index| format!("{}.strict", path(index)));
        Ok(Toolbox { tools: tools.into(), forced, parallel: parallel.unwrap_or(true), strict })
    }

    /// Whether the model is told of any tool.
    pub(crate) fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// What reads the calls out of an answer's text.
    pub(crate) fn reader(&self, format: Format) -> Box<dyn Reader> {
        let calls = Calls::new(self);
        match format {
            _ if self.is_empty() => Box::new(Plain),
            _ if self.forced.is_some() => Box::new(Forced::new(calls)),
            Format::Llama => Box::new(Objects::new(calls)),
            Format::Hermes => Box::new(Blocks::new(calls, "<tool_call>", "</tool_call>", json::hermes)),
            Format::QwenXml => Box::new(Blocks::new(calls, "<tool_call>", "</tool_call>", tagged::qwen)),
            Format::Gemma => Box::new(Blocks::new(calls, "<|tool_call>", "<tool_call|>", tagged::gemma)),
            Format::FunctionGemma => {
                Box::new(Blocks::new(calls, "<start_function_call>", "<end_function_call>", tagged::gemma))
            }
            Format::Unknown => Box::new(Plain),
        }
    }
}

/// Which call is wanted, whichever API says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// As the model likes.
    Auto,
    /// None.
    None,
    /// One.
    Required,
    /// This one.
    Named(String),
}

/// The schema of a function without arguments.
pub(crate) fn no_parameters() -> Map<String, Value> {
    let schema = json!({"type": "object", "properties": {}});
    schema.as_object().cloned().unwrap_or_default()
}

fn check(tools: &[Tool], path: &impl Fn(usize) -> String) -> Result<(), Fault> {
    if tools.len() > MAX_TOOLS {
        return Err(Fault::field("tools", format!("tools has {} entries, expected at most {MAX_TOOLS}", tools.len())));
    }
    let mut seen = BTreeSet::new();
    for (index, tool) in tools.iter().enumerate() {
        let param = format!("{}.name", path(index));
        let sound = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
        if tool.name.is_empty() || tool.name.len() > MAX_NAME || !tool.name.bytes().all(sound) {
            let message = format!("{param} has other than 1 to {MAX_NAME} letters, digits, _, - and .");
            return Err(Fault::field(param, message));
        }
        if !seen.insert(&tool.name) {
            return Err(Fault::field(param.clone(), format!("{param} is {}, as of a tool before it", tool.name)));
        }
        if tool.parameters.get("type").is_some_and(|kind| kind != "object") {
            let param = format!("{}.parameters", path(index));
            let message = format!("{param} is no schema of an object: its type is something else");
            return Err(Fault::field(param, message));
        }
    }
    Ok(())
}

/// How a model writes tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// `<tool_call>{"name": …, "arguments": …}</tool_call>`: Qwen, Hermes; also models that are told so in the prompt
    /// because their template has no place for tools.
    Hermes,
    /// `<tool_call><function=NAME><parameter=KEY>…</parameter></function></tool_call>`: Qwen3.5, Qwen3-Coder.
    QwenXml,
    /// `{"name": …, "parameters": …}` as the whole answer: Llama 3.
    Llama,
    /// `<|tool_call>call:NAME{key:value}<tool_call|>`: Gemma 4.
    Gemma,
    /// `<start_function_call>call:NAME{key:value}<end_function_call>`: FunctionGemma.
    FunctionGemma,
    /// The template tells of tools in a form whose answers are not known.
    Unknown,
}

impl Format {
    /// The form that a chat template teaches.
    pub(crate) fn of_template(source: &str) -> Format {
        let has = |text: &str| source.contains(text);
        match () {
            () if has("<tool_call>") && has("<function=") => Format::QwenXml,
            () if has("<tool_call>") => Format::Hermes,
            () if has("<|tool_call>") => Format::Gemma,
            () if has("<start_function_call>") => Format::FunctionGemma,
            () if has("\"parameters\"") && (has("<|python_tag|>") || has("ipython")) => Format::Llama,
            () if has("tools") => Format::Unknown,
            () => Format::Hermes,
        }
    }

    /// What a call begins with, where its inside is the same JSON.
    pub(crate) fn opening(self) -> &'static str {
        match self {
            Format::Hermes => "<tool_call>\n",
            _ => "",
        }
    }

    /// Special tokens that stand in its calls: they are text here.
    pub(crate) fn tokens(self) -> &'static [&'static str] {
        match self {
            Format::Gemma => &["<|tool_call>", "<tool_call|>", "<|\"|>"],
            Format::FunctionGemma => &["<start_function_call>", "<end_function_call>", "<escape>"],
            _ => &[],
        }
    }
}

/// A call that was read from a text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Read {
    pub(crate) name: String,
    pub(crate) arguments: Map<String, Value>,
}

/// Numbers the calls of an answer, and knows which there may be.
pub(crate) struct Calls {
    tools: Arc<[Tool]>,
    parallel: bool,
    count: usize,
}

impl Calls {
    fn new(toolbox: &Toolbox) -> Calls {
        Calls { tools: toolbox.tools.clone(), parallel: toolbox.parallel, count: 0 }
    }

    fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Whether all of them are tools that were declared.
    fn know(&self, calls: &[Read]) -> bool {
        !calls.is_empty() && calls.iter().all(|call| self.tool(&call.name).is_some())
    }

    /// Gives calls out; only the first one of an answer where one was asked for.
    fn give(&mut self, calls: Vec<Read>, out: &mut Vec<Part>) {
        for call in calls {
            if self.is_full() {
                return;
            }
            let index = self.begin(call.name, out);
            out.push(Part::Arguments { index, text: Value::Object(call.arguments).to_string() });
        }
    }

    /// Begins a call, whose arguments follow; its number.
    fn begin(&mut self, name: String, out: &mut Vec<Part>) -> usize {
        let index = self.count;
        self.count += 1;
        out.push(Part::Call { index, id: fresh_id("call_"), name });
        index
    }

    fn is_full(&self) -> bool {
        self.count > 0 && !self.parallel
    }
}
