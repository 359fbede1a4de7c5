//! From a grammar to the state of a text, with what is built once a model.

use crate::error::GrammarError;
use crate::matcher::Matcher;
use crate::schema::narrow;
use crate::spec::GrammarSpec;
use crate::vocabulary::{Tokens, Vocabulary};
use llguidance::ParserFactory;
use llguidance::api::TopLevelGrammar;
use serde_json::json;
use std::sync::Arc;

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
        let kind = spec.kind();
        let grammar = match spec {
            GrammarSpec::JsonSchema(schema) => TopLevelGrammar::from_json_schema(narrow(schema)?),
            GrammarSpec::JsonObject => TopLevelGrammar::from_json_schema(json!({"type": "object"})),
            GrammarSpec::Regex(regex) => TopLevelGrammar::from_regex(regex),
            GrammarSpec::Lark(text) => TopLevelGrammar::from_lark(text.clone()),
            GrammarSpec::Gbnf(_) => {
                return Err(GrammarError::Syntax { kind, line: None, reason: "not built".into() });
            }
        };
        let parser = self.0.create_parser(grammar).map_err(|e| {
            let reason = e.to_string().lines().next().unwrap_or_default().to_owned();
            GrammarError::Syntax { kind, line: None, reason }
        })?;
        Ok(Matcher::new(llguidance::Matcher::new(Ok(parser))))
    }
}

impl std::fmt::Debug for Compiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compiler").field("vocabulary", &self.0.tok_env().tok_trie().vocab_size()).finish()
    }
}
