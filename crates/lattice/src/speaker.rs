//! How does a text reach the reader while it is being made? At once and unbuffered, reasoning dimmed on a terminal and
//! left out of a pipe.

use crate::terminal::Terminal;
use inference::text::{Kind, Segment};
use std::io::{self, Write};

/// Writes a text to stdout as it comes.
pub(crate) struct Speaker {
    /// Whether reasoning is written.
    reasoning: bool,
    /// Whether reasoning is dimmed.
    dims: bool,
    dimmed: bool,
    /// Whether the last line is unfinished.
    open: bool,
    failed: Option<io::Error>,
}

impl Speaker {
    /// Reasoning is written to a terminal, and to a pipe if `show_reasoning`.
    pub(crate) fn new(terminal: &Terminal, show_reasoning: bool) -> Speaker {
        let dims = terminal.out_is_terminal();
        Speaker { reasoning: dims || show_reasoning, dims, dimmed: false, open: false, failed: None }
    }

    /// Writes pieces of text; false if nobody reads any more.
    pub(crate) fn say(&mut self, segments: &[Segment]) -> bool {
        let shown = segments.iter().filter(|s| s.kind == Kind::Answer || self.reasoning).collect::<Vec<_>>();
        for segment in shown {
            let dimmed = self.dims && segment.kind != Kind::Answer;
            let change = match (self.dimmed, dimmed) {
                (false, true) => "\x1b[2m",
                (true, false) => "\x1b[0m",
                _ => "",
            };
            self.dimmed = dimmed;
            self.open = !segment.text.ends_with('\n');
            self.write(change);
            self.write(&segment.text);
        }
        self.failed.is_none()
    }

    /// Ends the text with a line's end.
    pub(crate) fn end(mut self) -> io::Result<()> {
        if self.dimmed {
            self.write("\x1b[0m");
        }
        if self.open {
            self.write("\n");
        }
        self.failed.map_or(Ok(()), Err)
    }

    fn write(&mut self, text: &str) {
        let mut out = io::stdout().lock();
        if self.failed.is_none() && !text.is_empty() {
            self.failed = out.write_all(text.as_bytes()).and_then(|()| out.flush()).err();
        }
    }
}
