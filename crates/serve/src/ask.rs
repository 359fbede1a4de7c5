//! A conversation to be continued, whichever API it came by: told to the model, and running.

use crate::answer::{Hearing, Reader};
use crate::app::App;
use crate::error::Fault;
use crate::speaker::{Speaker, Start};
use crate::tools::{Toolbox, tell};
use crate::worker::Budget;
use grammar::GrammarSpec;
use inference::sampling::SamplingParams;
use inference::text::Reasoning;
use inference::{Chat, Guide, InferenceError};
use serde_json::Value;
use std::sync::Arc;

/// A conversation, and how its answers are to be made.
pub(crate) struct Ask {
    /// As templates know them.
    pub(crate) messages: Vec<Value>,
    pub(crate) toolbox: Toolbox,
    /// What the answer is held to.
    pub(crate) held: Option<Held>,
    pub(crate) thinking: Thinking,
    pub(crate) params: SamplingParams,
    /// How many answers.
    pub(crate) choices: usize,
    /// Who asks, if they say so.
    pub(crate) user: Option<String>,
}

/// What an answer is held to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Held {
    pub(crate) grammar: GrammarSpec,
    /// The field that says so.
    pub(crate) param: &'static str,
}

/// How a model that can think first does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Thinking {
    /// Whether it does; none leaves it to the template.
    pub(crate) on: Option<bool>,
    /// Most tokens of it.
    pub(crate) budget: Option<usize>,
}

/// Text of a closing tag that ends thinking whose budget is spent.
fn closing(close: &str) -> String {
    format!("\n{close}\n\n")
}

/// What a model sees, and how its text is read.
struct Prompt {
    text: String,
    ids: Arc<[u32]>,
    reasoning: Option<Reasoning>,
    budget: Option<Budget>,
    guide: Option<Guide>,
}

impl Ask {
    /// Renders, encodes and starts; also how many tokens the prompt has. `param` is the field that messages came by.
    pub(crate) async fn start(
        self,
        app: &App,
        speaker: &Arc<Speaker>,
        param: &'static str,
    ) -> Result<(Hearing, usize), Fault> {
        speaker.check_params(&self.params)?;
        if let Some(user) = &self.user {
            tracing::info!(user, "asks");
        }
        let (params, choices, toolbox) = (self.params, self.choices, self.toolbox.clone());
        let (messages, thinking, held, with) = (self.messages, self.thinking, self.held, speaker.clone());
        let work = tokio::task::spawn_blocking(move || prompt(&with, messages, &self.toolbox, thinking, held, param));
        let prompt = work
            .await
            .unwrap_or_else(|error| Err(Fault::internal(format!("the prompt could not be made: {error}"))))?;
        if app.log_prompts {
            tracing::info!(prompt = prompt.text, "is asked");
        }
        let start = |choice| Start {
            prompt: prompt.ids.clone(),
            params: of_choice(&params, choice),
            reasoning: prompt.reasoning.clone(),
            budget: prompt.budget.clone(),
            guide: prompt.guide.clone(),
        };
        let running = speaker.start((0..choices).map(start).collect())?;
        let readers: Vec<Box<dyn Reader>> = (0..choices).map(|_| toolbox.reader(speaker.tools)).collect();
        Ok((Hearing::new(running, readers, app), prompt.ids.len()))
    }
}

/// The text that a model sees of a conversation.
pub(crate) fn render(
    speaker: &Speaker,
    messages: Vec<Value>,
    toolbox: &Toolbox,
    thinking: Option<bool>,
    param: &str,
) -> Result<String, Fault> {
    let told = tell(messages, toolbox, speaker.tools, speaker.tells_tools)?;
    let chat = Chat { messages: &told.messages, tools: told.tools.as_deref(), thinking };
    speaker.model.render(&chat).map_err(|error| Fault::of_inference(&error, param))
}

fn prompt(
    speaker: &Speaker,
    messages: Vec<Value>,
    toolbox: &Toolbox,
    mut thinking: Thinking,
    held: Option<Held>,
    param: &str,
) -> Result<Prompt, Fault> {
    let (model, tags) = (&speaker.model, speaker.model.tags());
    let fault = |error: InferenceError| Fault::of_inference(&error, param);
    let guided = |held: &Held, inside| {
        model.guide(&held.grammar, inside).map_err(|error| Fault::of_inference(&error, held.param))
    };
    // What the text alone is held to is at fault by its own name.
    if let (Some(text), false) = (&held, toolbox.is_empty()) {
        guided(text, None)?;
    }
    let held = toolbox.held(speaker.tools, held)?;
    let forced = toolbox.forced.is_some();
    // A call that must come needs no thinking first, unless it was asked for.
    if forced && tags.is_some() && thinking.on.is_none() {
        thinking.on = Some(false);
    }
    let mut text = render(speaker, messages, toolbox, thinking.on, param)?;
    let opened = tags.is_some_and(|tags| tags.opened_by(&text));
    let thinks = tags.is_some() && thinking.on != Some(false);
    if forced && !thinks && !opened {
        text += speaker.tools.opening();
    }
    let ids = speaker.encode(&text, true, param)?;
    let guide = |inside: Option<bool>| held.as_ref().map(|held| guided(held, inside)).transpose();
    let inside = (thinks || opened).then_some(opened);
    let budget = match (tags, thinking.budget) {
        (Some(tags), Some(tokens)) => {
            let close = model.encode_rendered(&closing(tags.close)).map_err(fault)?;
            Some(Budget { tokens, close: close.into(), guide: guide(None)? })
        }
        _ => None,
    };
    let reasoning = tags.map(|tags| Reasoning::new(tags, opened));
    Ok(Prompt { ids: ids.into(), reasoning, budget, guide: guide(inside)?, text })
}

/// The parameters of each of several answers: with a seed, each has its own.
pub(crate) fn of_choice(params: &SamplingParams, choice: usize) -> SamplingParams {
    SamplingParams { seed: params.seed.map(|seed| seed.wrapping_add(choice as u64)), ..params.clone() }
}
