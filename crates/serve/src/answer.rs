//! What a request hears of its texts: reasoning, text and tool calls, piece by piece or as a whole, whichever API asked.

use crate::app::App;
use crate::error::Fault;
use crate::speaker::Running;
use crate::worker::{Done, Update};
use inference::FinishReason;
use inference::sampling::Sampled;
use inference::text::{Kind, Segment};
use serde::Serialize;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    /// What was thought.
    Reasoning(String),
    /// What is said.
    Text(String),
    /// A tool call begins.
    Call { index: usize, id: String, name: String },
    /// More of the arguments of a call, JSON in pieces.
    Arguments { index: usize, text: String },
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Stop,
    Length,
    ToolCalls,
}

impl Reason {
    /// OpenAI's name of it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Stop => "stop",
            Reason::Length => "length",
            Reason::ToolCalls => "tool_calls",
        }
    }
}

/// What is heard next.
#[derive(Debug)]
pub(crate) enum Heard {
    /// New parts of an answer, and the tokens that have come since the last of them.
    Parts { choice: usize, parts: Vec<Part>, tokens: Vec<Sampled> },
    /// An answer ended.
    End { choice: usize, reason: Reason, done: Done },
}

/// What turns the text of one answer into parts: tells tool calls apart from it.
pub(crate) trait Reader: Send {
    /// Takes more of the answer's text.
    fn push(&mut self, text: &str, out: &mut Vec<Part>);
    /// The text has ended.
    fn finish(&mut self, out: &mut Vec<Part>);
    /// Whether a call was read.
    fn called(&self) -> bool {
        false
    }
}

/// No tools: text is text.
pub(crate) struct Plain;

impl Reader for Plain {
    fn push(&mut self, text: &str, out: &mut Vec<Part>) {
        out.push(Part::Text(text.to_owned()));
    }

    fn finish(&mut self, _: &mut Vec<Part>) {}
}

/// The answers to one request.
pub(crate) struct Hearing {
    running: Running,
    choices: Vec<Choice>,
    left: usize,
    limit: Duration,
    deadline: Instant,
    /// Whether answers stand in the log.
    logs: bool,
}

struct Choice {
    reader: Box<dyn Reader>,
    tokens: Vec<Sampled>,
    /// Whether its text has ended.
    ended: bool,
    /// The text so far, for the log.
    said: String,
}

impl Hearing {
    /// Hears running texts, one reader each, for as long as a request may take.
    pub(crate) fn new(running: Running, readers: Vec<Box<dyn Reader>>, app: &App) -> Hearing {
        let (limit, logs) = (app.limits.answer, app.log_prompts);
        let choice = |reader| Choice { reader, tokens: Vec::new(), ended: false, said: String::new() };
        let choices: Vec<Choice> = readers.into_iter().map(choice).collect();
        let (left, deadline) = (choices.len(), Instant::now() + limit);
        Hearing { running, choices, left, limit, deadline, logs }
    }

    /// The next piece; none after the end of the last answer.
    ///
    /// # Errors
    /// What went wrong; nothing comes after it.
    pub(crate) async fn next(&mut self) -> Option<Result<Heard, Fault>> {
        while self.left > 0 {
            let update = match timeout_at(self.deadline, self.running.next()).await {
                Err(_) => return Some(Err(self.fail(Fault::timeout(self.limit.as_secs_f64())))),
                Ok(None) => {
                    let fault =
                        Fault::internal("the answer broke off: its client reads too slowly, or the model was closed");
                    return Some(Err(self.fail(fault)));
                }
                Ok(Some(update)) => update,
            };
            let (index, update) = update;
            let choice = &mut self.choices[index];
            match update {
                Update::Failed(fault) => return Some(Err(self.fail(fault))),
                Update::Text { segments, token } => {
                    choice.tokens.extend(token);
                    if self.logs {
                        segments.iter().for_each(|segment| choice.said.push_str(&segment.text));
                    }
                    let parts = choice.read(&segments);
                    if !parts.is_empty() {
                        let tokens = std::mem::take(&mut choice.tokens);
                        return Some(Ok(Heard::Parts { choice: index, parts, tokens }));
                    }
                }
                Update::Done(done) => {
                    if !choice.ended {
                        choice.ended = true;
                        let mut parts = Vec::new();
                        choice.reader.finish(&mut parts);
                        if !parts.is_empty() || !choice.tokens.is_empty() {
                            // The end itself comes next time.
                            let tokens = std::mem::take(&mut choice.tokens);
                            self.running.again((index, Update::Done(done)));
                            return Some(Ok(Heard::Parts { choice: index, parts, tokens }));
                        }
                    }
                    self.left -= 1;
                    if self.logs {
                        tracing::info!(answer = choice.said, "is said");
                    }
                    let reason = match (done.finish, choice.reader.called()) {
                        (FinishReason::Length, _) => Reason::Length,
                        (_, true) => Reason::ToolCalls,
                        _ => Reason::Stop,
                    };
                    return Some(Ok(Heard::End { choice: index, reason, done }));
                }
            }
        }
        None
    }

    fn fail(&mut self, fault: Fault) -> Fault {
        self.left = 0;
        fault
    }

    /// All answers, when they are whole.
    ///
    /// # Errors
    /// What went wrong with any of them.
    pub(crate) async fn collect(mut self) -> Result<Vec<Whole>, Fault> {
        let mut all: Vec<Whole> = self.choices.iter().map(|_| Whole::default()).collect();
        while let Some(heard) = self.next().await {
            match heard? {
                Heard::Parts { choice, parts, tokens } => {
                    all[choice].tokens.extend(tokens);
                    parts.into_iter().for_each(|part| all[choice].take(part));
                }
                Heard::End { choice, reason, done } => all[choice].end = Some((reason, done)),
            }
        }
        Ok(all)
    }
}

impl Choice {
    fn read(&mut self, segments: &[Segment]) -> Vec<Part> {
        let mut parts = Vec::new();
        for segment in segments {
            match segment.kind {
                Kind::Reasoning => parts.push(Part::Reasoning(segment.text.clone())),
                Kind::Answer => self.reader.push(&segment.text, &mut parts),
                Kind::Tag => {}
            }
        }
        parts
    }
}

/// A tool call that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    /// JSON.
    pub(crate) arguments: String,
}

/// A whole answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Whole {
    pub(crate) reasoning: Option<String>,
    pub(crate) text: String,
    pub(crate) calls: Vec<Call>,
    pub(crate) tokens: Vec<Sampled>,
    end: Option<(Reason, Done)>,
}

impl Whole {
    fn take(&mut self, part: Part) {
        match part {
            Part::Reasoning(text) => self.reasoning.get_or_insert_default().push_str(&text),
            Part::Text(text) => self.text.push_str(&text),
            Part::Call { id, name, .. } => self.calls.push(Call { id, name, arguments: String::new() }),
            Part::Arguments { index, text } => {
                if let Some(call) = self.calls.get_mut(index) {
                    call.arguments.push_str(&text);
                }
            }
        }
    }

    pub(crate) fn reason(&self) -> Reason {
        self.end.map_or(Reason::Stop, |(reason, _)| reason)
    }

    pub(crate) fn done(&self) -> Option<Done> {
        self.end.map(|(_, done)| done)
    }
}

/// Tokens of a request, as OpenAI counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: usize,
    pub(crate) completion_tokens: usize,
    pub(crate) total_tokens: usize,
    pub(crate) prompt_tokens_details: PromptDetails,
    pub(crate) completion_tokens_details: Details,
}

/// Tokens of prompts that are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct PromptDetails {
    /// Were there already.
    pub(crate) cached_tokens: usize,
}

/// Tokens of answers that are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Details {
    pub(crate) reasoning_tokens: usize,
}

impl Usage {
    pub(crate) fn of_prompt(prompt: usize) -> Usage {
        Usage { prompt_tokens: prompt, total_tokens: prompt, ..Usage::default() }
    }

    /// Takes in an answer's tokens.
    pub(crate) fn add(&mut self, done: Done) {
        self.completion_tokens += done.tokens;
        self.total_tokens += done.tokens;
        self.completion_tokens_details.reasoning_tokens += done.reasoning;
        // Several answers to one prompt share it; what one of them found is what was there before.
        let cached = &mut self.prompt_tokens_details.cached_tokens;
        *cached = (*cached).max(done.cached);
    }
}
