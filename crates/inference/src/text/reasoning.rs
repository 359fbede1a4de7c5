//! Reasoning apart from the answer: `<think>` blocks in streamed text.

/// The tags around a reasoning block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tags {
    /// Opens a block.
    pub open: &'static str,
    /// Closes it.
    pub close: &'static str,
}

impl Tags {
    /// The pairs in use among models, the commonest first.
    pub const KNOWN: &[Tags] = &[
        Tags { open: "<think>", close: "</think>" },
        Tags { open: "[THINK]", close: "[/THINK]" },
        Tags { open: "<seed:think>", close: "</seed:think>" },
    ];

    /// The tags that a chat template speaks of: a model whose template has none does not reason in blocks.
    pub fn of_template(template: &str) -> Option<Tags> {
        Tags::KNOWN.iter().copied().find(|tags| template.contains(tags.close))
    }

    /// Does the rendered prompt end inside a block that it opened? Then the model's text starts there.
    pub fn opened_by(&self, prompt: &str) -> bool {
        prompt.trim_end().ends_with(self.open)
    }
}

impl Default for Tags {
    fn default() -> Tags {
        Tags::KNOWN[0]
    }
}

/// What a stretch of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Inside of a block.
    Reasoning,
    /// Outside.
    Answer,
    /// A tag, or the whitespace between a tag and the text beside it.
    Tag,
}

/// A stretch of text of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// What it is.
    pub kind: Kind,
    /// The text, never empty.
    pub text: String,
}

/// Splits a text that comes in pieces. The segments put together are the text, character for character.
///
/// A block opens only where nothing of an answer has come yet: at the start, or after another block. An answer that
/// speaks of `<think>` stays an answer. A block that never closes is reasoning to the end.
#[derive(Clone, Debug)]
pub struct Reasoning {
    tags: Tags,
    state: State,
    held: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but whitespace so far: a tag opens a block, other text is an answer.
    Start,
    /// After an opening tag; the flag says that the prompt had it, so that the model may repeat it.
    Opened { by_prompt: bool },
    /// In a block.
    Inside,
    /// After a closing tag: whitespace belongs to it, then as at the start.
    Closed,
    /// In the answer, to the end.
    Answer,
}

impl Reasoning {
    /// A splitter for these tags; `inside` if the prompt opened a block ([`Tags::opened_by`]).
    pub fn new(tags: Tags, inside: bool) -> Reasoning {
        let state = if inside { State::Opened { by_prompt: true } } else { State::Start };
        Reasoning { tags, state, held: String::new() }
    }

    /// Takes the next piece of text, and gives out what is clear.
    pub fn push(&mut self, text: &str) -> Vec<Segment> {
        self.held.push_str(text);
        let mut out = Vec::new();
        while self.step(&mut out) {}
        out
    }

    /// Ends the text: gives out what was held back. Push nothing after this.
    pub fn finish(&mut self) -> Vec<Segment> {
        let kind = match self.state {
            State::Start | State::Answer => Kind::Answer,
            State::Opened { .. } | State::Inside => Kind::Reasoning,
            // Whitespace, or a piece of an opening tag that did not come.
            State::Closed if self.held.trim_start().is_empty() => Kind::Tag,
            State::Closed => Kind::Answer,
        };
        let mut out = Vec::new();
        let all = self.held.len();
        self.give(kind, all, &mut out);
        out
    }

    /// Gives out the next stretch; false if more text is needed.
    fn step(&mut self, out: &mut Vec<Segment>) -> bool {
        let space = self.held.len() - self.held.trim_start().len();
        let rest = &self.held[space..];
        match self.state {
            _ if self.held.is_empty() => false,
            State::Answer => self.give(Kind::Answer, self.held.len(), out),
            State::Start | State::Closed | State::Opened { by_prompt: true } if rest.starts_with(self.tags.open) => {
                self.state = State::Opened { by_prompt: false };
                self.give(Kind::Tag, space + self.tags.open.len(), out)
            }
            State::Start | State::Opened { by_prompt: true } if self.tags.open.starts_with(rest) => false,
            State::Start => {
                self.state = State::Answer;
                true
            }
            State::Closed if space > 0 => self.give(Kind::Tag, space, out),
            State::Closed if self.tags.open.starts_with(rest) => false,
            State::Closed => {
                self.state = State::Answer;
                true
            }
            State::Opened { .. } if space > 0 => self.give(Kind::Tag, space, out),
            State::Opened { .. } => {
                self.state = State::Inside;
                true
            }
            State::Inside => self.inside(out),
        }
    }

    /// Gives out reasoning up to the closing tag, and the tag; whitespace before it belongs to it.
    fn inside(&mut self, out: &mut Vec<Segment>) -> bool {
        if let Some(at) = self.held.find(self.tags.close) {
            let end = self.held[..at].trim_end().len();
            self.give(Kind::Reasoning, end, out);
            self.state = State::Closed;
            return self.give(Kind::Tag, at - end + self.tags.close.len(), out);
        }
        let begins_tag = |&(at, _): &(usize, char)| self.tags.close.starts_with(&self.held[at..]);
        let clear = self.held.char_indices().find(begins_tag).map_or(self.held.len(), |(at, _)| at);
        let clear = self.held[..clear].trim_end().len();
        self.give(Kind::Reasoning, clear, out);
        false
    }

    /// Gives out the first `bytes` that are held.
    fn give(&mut self, kind: Kind, bytes: usize, out: &mut Vec<Segment>) -> bool {
        let text: String = self.held.drain(..bytes).collect();
        match out.last_mut() {
            _ if text.is_empty() => {}
            Some(last) if last.kind == kind => last.text.push_str(&text),
            _ => out.push(Segment { kind, text }),
        }
        true
    }
}
