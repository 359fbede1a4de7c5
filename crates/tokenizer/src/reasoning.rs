//! What a model thinks before it answers, told apart from the answer.
//!
//! Reasoning models begin with `<think> … </think>`; some templates already open the block in the prompt. Only a block
//! at the very beginning counts: a model that writes about `<think>` later is answering. White space around the marks
//! belongs to neither part.

/// Tells reasoning from answer while the text arrives in pieces; what may still become a mark is held back.
#[derive(Debug, Clone)]
pub struct ReasoningSplitter {
    open: String,
    close: String,
    state: State,
    held: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing but white space so far.
    Start,
    /// Within the block, before its first character and after.
    ReasoningStart,
    Reasoning,
    /// After the block, before the answer's first character.
    AnswerStart,
    Answer,
}

/// What a piece of text added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Split {
    /// To the reasoning.
    pub reasoning: String,
    /// To the answer.
    pub answer: String,
}

impl ReasoningSplitter {
    /// For `<think>` and `</think>`, to follow `prompt` (which may end within an open block).
    pub fn new(prompt: &str) -> Self {
        Self::with_marks(prompt, "<think>", "</think>")
    }

    /// For other marks; neither may be empty.
    pub fn with_marks(prompt: &str, open: &str, close: &str) -> Self {
        let opened = prompt.trim_end().ends_with(open);
        Self {
            open: open.to_owned(),
            close: close.to_owned(),
            state: if opened { State::ReasoningStart } else { State::Start },
            held: String::new(),
        }
    }

    /// Takes the next piece of text.
    pub fn push(&mut self, text: &str) -> Split {
        self.held.push_str(text);
        self.advance(false)
    }

    /// What was held back, at the end of the text.
    pub fn flush(&mut self) -> Split {
        self.advance(true)
    }

    fn advance(&mut self, end: bool) -> Split {
        let mut split = Split::default();
        loop {
            match self.state {
                State::Start => {
                    let begun = self.held.trim_start();
                    if let Some(rest) = begun.strip_prefix(&self.open) {
                        self.held = rest.to_owned();
                        self.state = State::ReasoningStart;
                    } else if self.open.starts_with(begun) && !end {
                        return split;
                    } else {
                        self.state = State::Answer;
                    }
                }
                State::ReasoningStart | State::AnswerStart => {
                    self.held = self.held.trim_start().to_owned();
                    if self.held.is_empty() {
                        return split;
                    }
                    let reasoning = self.state == State::ReasoningStart;
                    self.state = if reasoning { State::Reasoning } else { State::Answer };
                }
                State::Reasoning => {
                    if let Some((before, after)) = self.held.split_once(&self.close) {
                        split.reasoning.push_str(before.trim_end());
                        self.held = after.to_owned();
                        self.state = State::AnswerStart;
                        continue;
                    }
                    // The end of what is certain: before a mark that may be coming, and before white space that may
                    // precede it.
                    let partial = (1..self.close.len())
                        .rev()
                        .filter(|&n| self.close.is_char_boundary(n))
                        .find(|&n| self.held.ends_with(&self.close[..n]))
                        .unwrap_or(0);
                    let keep = if end { self.held.len() } else { self.held.len() - partial };
                    let certain = self.held[..keep].trim_end().len();
                    split.reasoning.push_str(&self.held[..certain]);
                    self.held = if end { String::new() } else { self.held.split_off(certain) };
                    return split;
                }
                State::Answer => {
                    split.answer.push_str(&std::mem::take(&mut self.held));
                    return split;
                }
            }
        }
    }
}

/// Reasoning, if there is any, and answer of a complete text that follows `prompt`.
pub fn split_reasoning(prompt: &str, text: &str) -> (Option<String>, String) {
    let mut splitter = ReasoningSplitter::new(prompt);
    let (first, last) = (splitter.push(text), splitter.flush());
    let reasoning = first.reasoning + &last.reasoning;
    ((!reasoning.is_empty()).then_some(reasoning), first.answer + &last.answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASES: &[(&str, &str, Option<&str>, &str)] = &[
        ("", "<think>\nwhy\n\nnot\n</think>\n\nBecause.\n", Some("why\n\nnot"), "Because.\n"),
        ("", " \n<think>a</think>b", Some("a"), "b"),
        ("… <think>\n", "a < b\n</thin </think>\n\nb", Some("a < b\n</thin"), "b"),
        ("", "<think>\n\n</think>\n\nPlain.", None, "Plain."),
        ("", "Use <think>x</think> here", None, "Use <think>x</think> here"),
        ("", "  indented", None, "  indented"),
        ("", "<thin", None, "<thin"),
        ("", "<think>cut off </thi", Some("cut off </thi"), ""),
        ("", "", None, ""),
    ];

    #[test]
    fn reasoning_and_answer_come_apart() {
        for (prompt, text, reasoning, answer) in CASES {
            let (r, a) = split_reasoning(prompt, text);
            assert_eq!((r.as_deref(), a.as_str()), (*reasoning, *answer), "{text:?}");
        }
    }

    #[test]
    fn pieces_of_any_size_give_the_same() {
        for (prompt, text, reasoning, answer) in CASES {
            for size in 1..6 {
                let mut splitter = ReasoningSplitter::new(prompt);
                let (mut r, mut a) = (String::new(), String::new());
                let bytes: Vec<char> = text.chars().collect();
                let pieces =
                    bytes.chunks(size).map(|c| splitter.push(&c.iter().collect::<String>())).collect::<Vec<_>>();
                for split in pieces.into_iter().chain([splitter.flush()]) {
                    r += &split.reasoning;
                    a += &split.answer;
                }
                assert_eq!((r.as_str(), a.as_str()), (reasoning.unwrap_or(""), *answer), "{text:?} by {size}");
            }
        }
    }
}
