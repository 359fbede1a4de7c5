//! From a prompt to text: runs one sequence of an engine and turns its tokens into text as they come.

use crate::encoder::InferenceError;
use crate::engine::{Counts, Engine, Finish, SequenceId};
use crate::guide::Guide;
use crate::language::LanguageModel;
use crate::sampling::{Sampled, SamplingParams};
use crate::text::{Kind, Reasoning, Segment, StopStrings};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use tokenizer::{Stream, Tokenizer};

/// The text of one sequence as its tokens come: whole characters, up to the first stop string, reasoning apart.
pub struct TextStream {
    decoder: Stream,
    /// Special tokens that are text, where there are any.
    shown: Option<(Tokenizer, Vec<u32>)>,
    stops: StopStrings,
    reasoning: Option<Reasoning>,
}

/// New text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewText {
    /// Reasoning and answer, in order; never empty pieces.
    pub segments: Vec<Segment>,
    /// Index of the stop string that ended the text.
    pub stop: Option<usize>,
}

impl TextStream {
    /// A stream for a model's tokens, which ends at the `stops`. With `reasoning`, blocks of it are told apart.
    pub fn new(tokenizer: &Tokenizer, stops: &[String], reasoning: Option<Reasoning>) -> TextStream {
        TextStream { decoder: tokenizer.stream(true), shown: None, stops: StopStrings::new(stops), reasoning }
    }

    /// With some special tokens as text: the tags of a tool call, say. Before the first token.
    pub fn showing(self, tokenizer: &Tokenizer, ids: &[u32]) -> TextStream {
        match ids {
            [] => self,
            ids => {
                let shown = Some((tokenizer.clone(), ids.to_vec()));
                TextStream { decoder: tokenizer.stream(false), shown, ..self }
            }
        }
    }

    /// Whether it is inside of a block of reasoning, as far as the text is clear.
    pub fn is_reasoning(&self) -> bool {
        self.reasoning.as_ref().is_some_and(Reasoning::is_inside)
    }

    /// Takes the next token.
    pub fn push(&mut self, id: u32) -> NewText {
        if let Some((tokenizer, ids)) = &self.shown
            && tokenizer.is_special(id)
            && !ids.contains(&id)
        {
            return NewText::default();
        }
        let text = self.decoder.push(id).unwrap_or_default();
        self.text(&text)
    }

    /// The tokens have ended: what was held back.
    pub fn finish(&mut self) -> NewText {
        let rest = self.decoder.flush().unwrap_or_default();
        let mut new = self.text(&rest);
        if new.stop.is_none() {
            let piece = self.stops.finish();
            new.stop = piece.stop;
            new.segments.extend(self.split(&piece.text));
        }
        if let Some(reasoning) = &mut self.reasoning {
            new.segments.extend(reasoning.finish());
        }
        new
    }

    fn text(&mut self, text: &str) -> NewText {
        let piece = self.stops.push(text);
        NewText { segments: self.split(&piece.text), stop: piece.stop }
    }

    fn split(&mut self, text: &str) -> Vec<Segment> {
        match &mut self.reasoning {
            Some(reasoning) => reasoning.push(text),
            None if text.is_empty() => Vec::new(),
            None => vec![Segment { kind: Kind::Answer, text: text.to_owned() }],
        }
    }
}

/// Why a text ended, as OpenAI's API names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended it, or a stop string did.
    Stop,
    /// As many tokens as asked for, or as the context holds.
    Length,
    /// The caller stopped it.
    Cancelled,
}

impl FinishReason {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::Cancelled => "cancelled",
        }
    }
}

/// How long the parts took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// Until the first token was there.
    pub first_token: Duration,
    /// From the first token to the last.
    pub decode: Duration,
}

/// A finished text.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// The answer.
    pub text: String,
    /// What was thought before it; `None` without a block of reasoning.
    pub reasoning: Option<String>,
    /// Ids of all tokens, the one that ended the text included.
    pub tokens: Vec<Sampled>,
    /// Why it ended.
    pub finish: FinishReason,
    /// What the engine counted: tokens of the prompt, how many of them were there already, guesses.
    pub counts: Counts,
    /// How long it took.
    pub timings: Timings,
}

/// Hears each new piece of text, with the token that brought it unless the text ends with the piece; may end the text.
pub type Listener<'a> = dyn FnMut(Option<&Sampled>, &[Segment]) -> ControlFlow<()> + 'a;

/// Generates one text. `on` hears each new piece with the token that brought it, and may end it.
///
/// # Errors
/// What [`Engine::add`] and [`Engine::step`] say, and [`InferenceError::Failed`].
pub fn generate(
    model: &LanguageModel,
    engine: &mut Engine,
    prompt: &[u32],
    params: &SamplingParams,
    reasoning: Option<Reasoning>,
    on: &mut Listener<'_>,
) -> Result<Generation, InferenceError> {
    generate_guided(model, engine, prompt, params, None, reasoning, on)
}

/// As [`generate`], under a grammar.
///
/// # Errors
/// As [`generate`].
pub fn generate_guided(
    model: &LanguageModel,
    engine: &mut Engine,
    prompt: &[u32],
    params: &SamplingParams,
    guide: Option<Guide>,
    reasoning: Option<Reasoning>,
    on: &mut Listener<'_>,
) -> Result<Generation, InferenceError> {
    let start = Instant::now();
    let id = engine.add_guided(prompt, params.clone(), model.stop_ids(), guide)?;
    let mut run = Run {
        stream: TextStream::new(model.tokenizer(), &params.stop, reasoning),
        generation: Generation {
            text: String::new(),
            reasoning: None,
            tokens: Vec::new(),
            finish: FinishReason::Length,
            counts: Counts { prompt: prompt.len(), ..Counts::default() },
            timings: Timings::default(),
        },
    };
    let outcome = run.tokens(engine, id, start, on);
    engine.cancel(id); // a text that a stop string or the caller ended is still running
    outcome?;
    let rest = run.stream.finish();
    if rest.stop.is_some() {
        run.generation.finish = FinishReason::Stop;
    }
    run.take(&rest.segments);
    let _ = on(None, &rest.segments);
    Ok(run.generation)
}

struct Run {
    stream: TextStream,
    generation: Generation,
}

impl Run {
    fn tokens(
        &mut self,
        engine: &mut Engine,
        id: SequenceId,
        start: Instant,
        on: &mut Listener<'_>,
    ) -> Result<(), InferenceError> {
        let mut first = None;
        loop {
            for event in engine.step()?.into_iter().filter(|event| event.sequence == id) {
                let now = Instant::now();
                let first = *first.get_or_insert(now);
                self.generation.timings = Timings { first_token: first - start, decode: now - first };
                self.generation.counts = event.counts;
                if let Some(Finish::Failed(reason)) = event.finish {
                    return Err(InferenceError::Failed { reason });
                }
                if let Some(token) = event.token {
                    let ends = event.finish == Some(Finish::Stop);
                    let new = if ends { NewText::default() } else { self.stream.push(token.id) };
                    self.take(&new.segments);
                    let go_on = on(Some(&token), &new.segments);
                    self.generation.tokens.push(token);
                    if new.stop.is_some() {
                        self.generation.finish = FinishReason::Stop;
                        return Ok(());
                    }
                    if go_on.is_break() {
                        self.generation.finish = FinishReason::Cancelled;
                        return Ok(());
                    }
                }
                match event.finish {
                    None => {}
                    Some(Finish::Stop | Finish::Complete) => {
                        self.generation.finish = FinishReason::Stop;
                        return Ok(());
                    }
                    Some(_) => return Ok(()),
                }
            }
        }
    }

    fn take(&mut self, segments: &[Segment]) {
        for segment in segments {
            match segment.kind {
                Kind::Answer => self.generation.text.push_str(&segment.text),
                Kind::Reasoning => self.generation.reasoning.get_or_insert_default().push_str(&segment.text),
                Kind::Tag => {}
            }
        }
    }
}
