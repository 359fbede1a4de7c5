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

    /// Whether a block is open.
    pub fn is_inside(&self) -> bool {
        matches!(self.state, State::Opened { .. } | State::Inside)
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All segments of a text in pieces, neighbours of one kind put together.
    fn split<'a>(inside: bool, pieces: impl IntoIterator<Item = &'a str>) -> Vec<(Kind, String)> {
        let mut splitter = Reasoning::new(Tags::default(), inside);
        let mut segments: Vec<Segment> = pieces.into_iter().flat_map(|piece| splitter.push(piece)).collect();
        segments.extend(splitter.finish());
        let mut out: Vec<(Kind, String)> = Vec::new();
        for Segment { kind, text } in segments {
            assert!(!text.is_empty());
            match out.last_mut() {
                Some((last, joined)) if *last == kind => joined.push_str(&text),
                _ => out.push((kind, text)),
            }
        }
        out
    }

    fn of(kind: Kind, segments: &[(Kind, String)]) -> String {
        segments.iter().filter(|(k, _)| *k == kind).map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn a_block_at_the_start_is_reasoning_and_the_rest_the_answer() {
        use Kind::*;
        let right = [(Tag, "<think>\n"), (Reasoning, "2 + 2\n\nis 4"), (Tag, "\n</think>\n\n"), (Answer, "Four.\n")];
        let right = right.map(|(kind, text)| (kind, text.to_string()));
        let text: String = right.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(split(false, [text.as_str()]), right);
        let letters: Vec<String> = text.chars().map(String::from).collect();
        assert_eq!(split(false, letters.iter().map(String::as_str)), right);
    }

    #[test]
    fn a_block_that_the_prompt_opened_starts_inside() {
        let tags = Tags::default();
        assert!(tags.opened_by("<|im_start|>assistant\n<think>\n"));
        assert!(!tags.opened_by("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
        let segments = split(true, ["Hm.</thi", "nk>Yes"]);
        assert_eq!((of(Kind::Reasoning, &segments), of(Kind::Answer, &segments)), ("Hm.".into(), "Yes".into()));
        // Some models repeat the tag.
        let segments = split(true, ["<thi", "nk>Hm.</think>Yes"]);
        assert_eq!((of(Kind::Reasoning, &segments), of(Kind::Answer, &segments)), ("Hm.".into(), "Yes".into()));
    }

    #[test]
    fn an_answer_that_speaks_of_the_tags_stays_an_answer() {
        for text in ["Use <think> and </think>.", "<thinking>", " <b", "</think> alone"] {
            assert_eq!(split(false, [text]), [(Kind::Answer, text.to_string())]);
        }
        let segments = split(false, ["<think>a</think>b <think>c</think>"]);
        assert_eq!(of(Kind::Answer, &segments), "b <think>c</think>");
    }

    #[test]
    fn blocks_one_after_another_and_empty_ones() {
        let segments = split(false, ["<think></think>\n<think>a < b</think>", "\n c"]);
        assert_eq!((of(Kind::Reasoning, &segments), of(Kind::Answer, &segments)), ("a < b".into(), "c".into()));
    }

    #[test]
    fn a_block_that_never_closes_is_reasoning_to_the_end() {
        let segments = split(false, ["<think>so </thi"]);
        assert_eq!(of(Kind::Reasoning, &segments), "so </thi");
    }

    #[test]
    fn text_that_is_clear_is_given_out_at_once() {
        let mut splitter = Reasoning::new(Tags::default(), true);
        let texts = |segments: Vec<Segment>| segments.into_iter().map(|s| s.text).collect::<String>();
        assert_eq!(texts(splitter.push("one two ")), "one two");
        assert_eq!(texts(splitter.push("a < b")), " a < b");
    }

    #[test]
    fn templates_name_their_tags() {
        assert_eq!(Tags::of_template("{{ '<think>\n\n</think>' }}"), Some(Tags::default()));
        assert_eq!(Tags::of_template("[THINK]x[/THINK]").unwrap().open, "[THINK]");
        assert_eq!(Tags::of_template("{{ messages }}"), None);
    }

    proptest! {
        #[test]
        fn reasoning_answer_and_tags_are_the_text_however_it_is_cut(
            inside in any::<bool>(),
            pieces in prop::collection::vec(
                prop_oneof!["[ \n<t日]{0,3}", Just("<think>".into()), Just("</think>".into()), Just("</thi".into()), Just("nk>".into())],
                0..10,
            ),
        ) {
            let text: String = pieces.concat();
            let whole = split(inside, [text.as_str()]);
            prop_assert_eq!(whole.iter().map(|(_, text)| text.as_str()).collect::<String>(), text.clone());
            prop_assert_eq!(&split(inside, pieces.iter().map(String::as_str)), &whole);
            let letters: Vec<String> = text.chars().map(String::from).collect();
            prop_assert_eq!(&split(inside, letters.iter().map(String::as_str)), &whole);
        }
    }
}
