//! `/v1/completions`: a raw continuation, no chat template.

use super::logprobs;
use super::sampling::{MAX_CHOICES, Sampling};
use super::sse::{self, Writer};
use crate::answer::{Heard, Hearing, Part, Plain, Reader, Usage};
use crate::app::{App, FINGERPRINT, fresh_id, now};
use crate::ask::{Held, of_choice};
use crate::body::{Body, Fields};
use crate::error::Fault;
use crate::format::held;
use crate::speaker::{Speaker, Start};
use axum::Json;
use axum::extract::State;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use inference::Guide;
use inference::sampling::{MAX_LOGPROBS, Sampled};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Tokens of an answer where a request does not say, as in OpenAI's API.
const MAX_TOKENS: usize = 16;

/// A text to be continued.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct CompletionRequest {
    /// A text, token ids, or a list of either: each is continued.
    prompt: Prompts,
    /// Most tokens of an answer.
    max_tokens: Option<usize>,
    /// Log-probabilities of the tokens, and of so many of the likeliest in their place.
    #[schemars(range(min = 0, max = 20))]
    logprobs: Option<usize>,
    /// Put the prompt before the answer; not together with `logprobs`.
    echo: Option<bool>,
    /// Only 1, or what `n` is: all answers are given.
    best_of: Option<usize>,
}

impl Fields for CompletionRequest {
    const REFUSED: &'static [(&'static str, &'static str)] =
        &[("suffix", "these models continue a text, they do not fill a gap")];
}

/// One text or several, as text or as tokens.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a string, a list of strings, a list of token ids, or a list of lists of token ids"
)]
pub(crate) enum Prompts {
    /// One text.
    Text(String),
    /// Several texts.
    Texts(Vec<String>),
    /// The tokens of one text.
    Ids(Vec<u32>),
    /// The tokens of several texts.
    Lists(Vec<Vec<u32>>),
}

/// Continues texts.
pub(crate) async fn handle(
    State(app): State<Arc<App>>,
    Body(request, sampling): Body<CompletionRequest, Sampling>,
) -> Result<Response, Fault> {
    let (n, streams) = (sampling.choices()?, sampling.streams()?);
    let echo = request.echo.unwrap_or(false);
    if request.best_of.is_some_and(|best| best != n) {
        return Err(Fault::unsupported("best_of", "best_of is not supported beside n: all answers are given"));
    }
    if let Some(count) = request.logprobs.filter(|&n| n > MAX_LOGPROBS) {
        return Err(Fault::field("logprobs", format!("logprobs is {count}, expected 0 to {MAX_LOGPROBS}")));
    }
    if echo && request.logprobs.is_some() {
        let message = "echo together with logprobs is not supported: log-probabilities are of the answer only";
        return Err(Fault::unsupported("echo", message));
    }
    if let Some(user) = &sampling.user {
        tracing::info!(user, "asks");
    }
    let speaker = app.shelf.chat(sampling.model.as_deref()).await?;
    let mut params = sampling.over(speaker.defaults())?;
    params.logprobs = request.logprobs;
    params.max_tokens = Some(request.max_tokens.unwrap_or(MAX_TOKENS));
    speaker.check_params(&params)?;
    let held = held(None, sampling.grammar.clone())?;
    let (prompts, guide) = prompts(&speaker, request.prompt, held).await?;
    let count = prompts.len() * n;
    if count > MAX_CHOICES {
        let message =
            format!("{} prompts with n = {n} are {count} answers, expected at most {MAX_CHOICES}", prompts.len());
        return Err(Fault::field("prompt", message));
    }
    let start = |choice: usize| Start {
        prompt: prompts[choice / n].ids.clone(),
        params: of_choice(&params, choice),
        reasoning: None,
        budget: None,
        guide: guide.clone(),
    };
    let running = speaker.start((0..count).map(start).collect())?;
    let readers = (0..count).map(|_| Box::new(Plain) as Box<dyn Reader>).collect();
    for prompt in prompts.iter().filter(|_| app.log_prompts) {
        tracing::info!(prompt = prompt.text, "is asked");
    }
    let hearing = Hearing::new(running, readers, &app);
    let head = |choice: usize| if echo { prompts[choice / n].text.clone() } else { String::new() };
    let heads: Vec<String> = (0..count).map(head).collect();
    let reply = Reply {
        id: fresh_id("cmpl-"),
        created: now(),
        logprobs: request.logprobs.is_some(),
        offsets: heads.iter().map(|head| head.chars().count()).collect(),
        usage: Usage::of_prompt(prompts.iter().map(|p| p.ids.len()).sum()),
        speaker,
    };
    match streams {
        None => Ok(Json(reply.whole(heads, hearing).await?).into_response()),
        Some(with_usage) => {
            let heads = heads.into_iter().enumerate().filter(|(_, head)| !head.is_empty()).collect();
            Ok(sse::respond(Chunks { reply, with_usage, heads }, hearing))
        }
    }
}

/// A text to be continued.
struct Prompt {
    ids: Arc<[u32]>,
    text: String,
}

async fn prompts(
    speaker: &Arc<Speaker>,
    prompts: Prompts,
    held: Option<Held>,
) -> Result<(Vec<Prompt>, Option<Guide>), Fault> {
    let speaker = speaker.clone();
    let work = tokio::task::spawn_blocking(move || {
        let text = |text: String| {
            let ids = speaker.encode(&text, false, "prompt")?.into();
            Ok(Prompt { ids, text })
        };
        let ids = |ids: Vec<u32>| {
            speaker.check_prompt(&ids, "prompt")?;
            let text = speaker.model.tokenizer().decode(&ids, true);
            Ok(Prompt { ids: ids.into(), text })
        };
        let count = match &prompts {
            Prompts::Text(_) | Prompts::Ids(_) => 1,
            Prompts::Texts(texts) => texts.len(),
            Prompts::Lists(lists) => lists.len(),
        };
        if count == 0 || count > MAX_CHOICES {
            return Err(Fault::field("prompt", format!("prompt has {count} entries, expected 1 to {MAX_CHOICES}")));
        }
        let all: Result<Vec<Prompt>, Fault> = match prompts {
            Prompts::Text(one) => text(one).map(|one| vec![one]),
            Prompts::Texts(texts) => texts.into_iter().map(text).collect(),
            Prompts::Ids(one) => ids(one).map(|one| vec![one]),
            Prompts::Lists(lists) => lists.into_iter().map(ids).collect(),
        };
        let guide = held.map(|held| {
            let guide = speaker.model.guide(&held.grammar, None);
            guide.map_err(|error| Fault::of_inference(&error, held.param))
        });
        Ok((all?, guide.transpose()?))
    });
    work.await.unwrap_or_else(|error| Err(Fault::internal(format!("the prompt could not be made: {error}"))))
}

/// What all parts of a reply say.
struct Reply {
    id: String,
    created: u64,
    speaker: Arc<Speaker>,
    logprobs: bool,
    /// Characters of each answer so far.
    offsets: Vec<usize>,
    usage: Usage,
}

impl Reply {
    async fn whole(mut self, heads: Vec<String>, hearing: Hearing) -> Result<Value, Fault> {
        let mut choices = Vec::new();
        for (index, (answer, head)) in hearing.collect().await?.into_iter().zip(heads).enumerate() {
            answer.done().into_iter().for_each(|done| self.usage.add(done));
            let logprobs = self.logprobs(index, &answer.tokens);
            choices.push(choice(index, head + &answer.text, logprobs, json!(answer.reason().name())));
        }
        let mut whole = self.chunk(json!(choices));
        whole["usage"] = json!(self.usage);
        Ok(whole)
    }

    fn logprobs(&mut self, index: usize, tokens: &[Sampled]) -> Value {
        match self.logprobs && !tokens.is_empty() {
            true => logprobs::text(self.speaker.model.tokenizer(), tokens, &mut self.offsets[index]),
            false => Value::Null,
        }
    }

    fn chunk(&self, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.speaker.name,
            "choices": choices,
            "system_fingerprint": FINGERPRINT,
        })
    }
}

fn choice(index: usize, text: String, logprobs: Value, finish: Value) -> Value {
    json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish})
}

/// A reply in chunks.
struct Chunks {
    reply: Reply,
    with_usage: bool,
    /// Prompts to be echoed first.
    heads: Vec<(usize, String)>,
}

impl Writer for Chunks {
    fn begin(&mut self) -> Vec<Event> {
        let heads = std::mem::take(&mut self.heads);
        let event = |(index, head)| self.event(choice(index, head, Value::Null, Value::Null));
        heads.into_iter().map(event).collect()
    }

    fn take(&mut self, heard: Heard) -> Vec<Event> {
        match heard {
            Heard::Parts { choice: index, parts, tokens } => {
                let text = parts.into_iter().map(|part| if let Part::Text(text) = part { text } else { String::new() });
                let text: String = text.collect();
                let logprobs = self.reply.logprobs(index, &tokens);
                vec![self.event(choice(index, text, logprobs, Value::Null))]
            }
            Heard::End { choice: index, reason, done } => {
                self.reply.usage.add(done);
                vec![self.event(choice(index, String::new(), Value::Null, json!(reason.name())))]
            }
        }
    }

    fn fail(&mut self, fault: &Fault) -> Vec<Event> {
        vec![sse::data(&fault.body())]
    }

    fn end(&mut self) -> Vec<Event> {
        sse::end(self.reply.chunk(json!([])), self.with_usage.then(|| json!(self.reply.usage)))
    }
}

impl Chunks {
    fn event(&self, choice: Value) -> Event {
        let mut chunk = self.reply.chunk(json!([choice]));
        if self.with_usage {
            chunk["usage"] = Value::Null;
        }
        sse::data(&chunk)
    }
}
