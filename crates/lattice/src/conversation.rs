//! What has been said so far, and what does the model say next?

use crate::error::CliError;
use clap::ValueEnum;
use grammar::GrammarSpec;
use inference::sampling::SamplingParams;
use inference::text::{Reasoning, Segment};
use inference::{Chat, Engine, Generation, InferenceError, LanguageModel, generate_guided};
use serde_json::{Value, json};
use std::ops::ControlFlow;

/// Whether a model that can think first does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Thinking {
    /// As its template has it.
    Auto,
    On,
    Off,
}

/// A conversation with a model.
pub(crate) struct Conversation<'a> {
    model: &'a LanguageModel,
    engine: Engine,
    params: SamplingParams,
    thinking: Option<bool>,
    system: Option<String>,
    /// What each answer is held to.
    spec: Option<GrammarSpec>,
    /// Questions and answers.
    messages: Vec<Value>,
}

impl<'a> Conversation<'a> {
    /// A conversation in which nothing was said.
    ///
    /// # Errors
    /// A model without a chat template, or one that is to think and cannot.
    pub(crate) fn new(
        model: &'a LanguageModel,
        engine: Engine,
        params: SamplingParams,
        system: Option<String>,
        thinking: Thinking,
    ) -> Result<Conversation<'a>, CliError> {
        if !model.has_template() {
            return Err(InferenceError::NoTemplate.into());
        }
        let thinking = match thinking {
            Thinking::Auto => None,
            Thinking::On if model.tags().is_none() => return Err(CliError::NoReasoning),
            Thinking::On => Some(true),
            Thinking::Off => Some(false),
        };
        Ok(Conversation { model, engine, params, thinking, system, spec: None, messages: Vec::new() })
    }

    /// Holds each answer to a grammar.
    ///
    /// # Errors
    /// What the grammar asks for and cannot be had.
    pub(crate) fn held_to(self, spec: Option<GrammarSpec>) -> Result<Conversation<'a>, CliError> {
        if let Some(spec) = &spec {
            self.model.guide(spec, None)?;
        }
        Ok(Conversation { spec, ..self })
    }

    /// Asks, and takes question and answer into the conversation; of one that fails nothing stays.
    pub(crate) fn ask(
        &mut self,
        question: &str,
        on: &mut dyn FnMut(&[Segment]) -> ControlFlow<()>,
    ) -> Result<Generation, CliError> {
        self.messages.push(json!({"role": "user", "content": question}));
        let made = self.next(on);
        match &made {
            Ok(made) => self.messages.push(json!({"role": "assistant", "content": made.text})),
            Err(_) => drop(self.messages.pop()),
        }
        made
    }

    fn next(&mut self, on: &mut dyn FnMut(&[Segment]) -> ControlFlow<()>) -> Result<Generation, CliError> {
        let messages = self.messages();
        let prompt = self.model.render(&Chat { messages: &messages, tools: None, thinking: self.thinking })?;
        let ids = self.model.encode_rendered(&prompt)?;
        // A block of reasoning that the template has closed is not the model's.
        let inside = self.model.tags().filter(|_| self.thinking != Some(false)).map(|tags| tags.opened_by(&prompt));
        let guide = self.spec.as_ref().map(|spec| self.model.guide(spec, inside)).transpose()?;
        let reasoning = self.model.tags().map(|tags| Reasoning::new(tags, tags.opened_by(&prompt)));
        let on = &mut |_: Option<&_>, segments: &[Segment]| on(segments);
        Ok(generate_guided(self.model, &mut self.engine, &ids, &self.params, guide, reasoning, on)?)
    }

    /// All that was said, the system's message first.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let system = self.system.iter().map(|text| json!({"role": "system", "content": text}));
        system.chain(self.messages.iter().cloned()).collect()
    }

    /// Forgets what was said, not what the model was told first.
    pub(crate) fn clear(&mut self) {
        self.messages.clear();
    }

    /// What the model is told first.
    pub(crate) fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// Tells the model something else first; what was said stays.
    pub(crate) fn set_system(&mut self, text: Option<String>) {
        self.system = text;
    }

    pub(crate) fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// Longest text in tokens.
    pub(crate) fn context(&self) -> usize {
        self.engine.context()
    }
}
