//! From a grammar to the state of a text, with what is built once a model.

use crate::error::GrammarError;
use crate::gbnf;
use crate::limits;
use crate::matcher::Matcher;
use crate::schema::{DEPTH, MAX_DEPTH, narrow};
use crate::spec::GrammarSpec;
use crate::vocabulary::{Tokens, Vocabulary};
use llguidance::ParserFactory;
use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};
use std::sync::Arc;

/// Schemas that are deeper are compiled with a stack of their own.
const SHALLOW: usize = 40;
/// Schemas of objects with more keys too.
const NARROW: usize = 256;
/// Stack for the recursion over large grammars.
const STACK: usize = 256 << 20;
/// Whitespace between the parts of JSON: a model that goes astray here could go on without end.
const WHITESPACE: &str = r"[ \t]{1,4}|\r?\n[ \t]{0,60}";

/// Compiles grammars for one vocabulary. Clones share everything.
#[derive(Clone)]
pub struct Compiler(Arc<ParserFactory>);

impl Compiler {
    /// Builds the trie of a vocabulary, which takes a moment: once a model. `ends` are the ids that end a text.
    ///
    /// # Errors
    /// [`GrammarError::Vocabulary`].
    pub fn new(vocabulary: Arc<dyn Vocabulary>, ends: &[u32]) -> Result<Compiler, GrammarError> {
        let tokens = Tokens::build(vocabulary, ends)?;
        let mut factory =
            ParserFactory::new_simple(&tokens).map_err(|e| GrammarError::Vocabulary { reason: e.to_string() })?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(Compiler(Arc::new(factory)))
    }

    /// The tokens of a text, as forced ones are written.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        self.0.tok_env().tokenize_bytes(text.as_bytes())
    }

    /// A text under this grammar, of which no token was taken.
    ///
    /// # Errors
    /// What the grammar asks for and cannot be had, by name.
    pub fn compile(&self, spec: &GrammarSpec) -> Result<Matcher, GrammarError> {
        match spec {
            GrammarSpec::JsonObject => return self.build(spec, source(spec)?),
            GrammarSpec::Regex(regex) if regex.len() < 1000 => return self.build(spec, source(spec)?),
            GrammarSpec::JsonSchema(schema) => match narrow(schema, SHALLOW) {
                Ok(narrow) if narrow.widest <= NARROW => return self.build(spec, json_grammar(narrow.schema)),
                Ok(_) | Err(GrammarError::TooLarge { what: DEPTH, .. }) => {}
                Err(error) => return Err(error),
            },
            _ => {}
        }
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("grammar".into()).stack_size(STACK);
            let built = thread.spawn_scoped(scope, || self.build(spec, source(spec)?)).map(|thread| thread.join());
            match built {
                Ok(Ok(built)) => built,
                Ok(Err(_)) => Err(complex(spec, "the compiler failed")),
                Err(error) => Err(complex(spec, &format!("no thread for it: {error}"))),
            }
        })
    }

    fn build(&self, spec: &GrammarSpec, grammar: TopLevelGrammar) -> Result<Matcher, GrammarError> {
        let parser = self.0.create_parser(grammar).map_err(|error| refused(spec, &format!("{error:#}")))?;
        Ok(Matcher::new(llguidance::Matcher::new(Ok(parser))))
    }
}

/// A grammar in the parser's own words.
fn source(spec: &GrammarSpec) -> Result<TopLevelGrammar, GrammarError> {
    Ok(match spec {
        GrammarSpec::JsonSchema(schema) => json_grammar(narrow(schema, MAX_DEPTH)?.schema),
        GrammarSpec::JsonObject => json_grammar(json!({"type": "object"})),
        GrammarSpec::Regex(regex) => {
            limits::regex(spec.kind(), regex)?;
            TopLevelGrammar::from_regex(regex)
        }
        GrammarSpec::Lark(text) => {
            limits::lark(spec.kind(), text)?;
            TopLevelGrammar::from_lark(text.clone())
        }
        GrammarSpec::Gbnf(text) => TopLevelGrammar::from_lark(gbnf::to_lark(text)?),
        GrammarSpec::Tagged(tagged) => TopLevelGrammar::from_lark(tagged.to_lark(MAX_DEPTH, whole)?),
    })
}

fn json_grammar(schema: Value) -> TopLevelGrammar {
    TopLevelGrammar::from_json_schema(whole(schema))
}

/// A schema with what the parser is told of all of them.
fn whole(schema: Value) -> Value {
    let mut schema = match schema {
        Value::Object(map) => Value::Object(map),
        Value::Bool(fits) => json!({"anyOf": [fits]}),
        other => other,
    };
    schema["x-guidance"] = json!({"whitespace_flexible": true, "whitespace_pattern": WHITESPACE});
    schema
}

/// What the parser refuses, by the keyword or the place that it speaks of.
fn refused(spec: &GrammarSpec, message: &str) -> GrammarError {
    let reason = message.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let reason = reason.strip_prefix("panic: ").unwrap_or(reason);
    const COSTS: &[&str] =
        &["too big", "too large", "too many", "fuel", "limit", "precomputation failed", "stack level"];
    if COSTS.iter().any(|cost| message.contains(cost)) {
        return complex(spec, reason);
    }
    if !matches!(spec, GrammarSpec::JsonSchema(_) | GrammarSpec::Tagged(_)) {
        let line = reason.split_once('(').and_then(|(line, _)| line.parse().ok());
        return GrammarError::Syntax { kind: spec.kind(), line, reason: reason.to_owned() };
    }
    if message.contains("nsatisfiable") {
        return GrammarError::Unsatisfiable { reason: reason.to_owned() };
    }
    const KEYWORDS: &[(&str, &str)] = &[
        ("min/maxProperties", "minProperties"),
        ("patternProperty", "patternProperties"),
        ("circular references", "$ref"),
        ("oneOf", "oneOf"),
        ("multipleOf", "multipleOf"),
        ("integer range", "minimum"),
        ("float range", "minimum"),
        ("maxLength", "maxLength"),
        ("minLength", "minLength"),
        ("regex", "pattern"),
        ("enum", "enum"),
    ];
    let keyword = KEYWORDS.iter().find(|(sign, _)| message.contains(sign)).map_or("schema", |(_, keyword)| keyword);
    GrammarError::Schema { keyword: keyword.into(), pointer: String::new(), reason: reason.to_owned() }
}

fn complex(spec: &GrammarSpec, reason: &str) -> GrammarError {
    GrammarError::TooComplex { kind: spec.kind(), reason: reason.to_owned() }
}

impl std::fmt::Debug for Compiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compiler").field("vocabulary", &self.0.tok_env().tok_trie().vocab_size()).finish()
    }
}
