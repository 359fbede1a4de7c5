//! Calls between tags, anywhere in a text: everything else is the answer's text.

use super::{Calls, Read, Tool};
use crate::answer::{Part, Reader};

/// Reads the inside of a block; none if it is no call.
pub(crate) type Parse = fn(&str, &[Tool]) -> Option<Vec<Read>>;

/// Tells blocks apart from text. A block that is no call of a declared tool, or never closes, stays text, tags included.
pub(crate) struct Blocks {
    calls: Calls,
    open: &'static str,
    close: &'static str,
    parse: Parse,
    held: String,
    /// Inside of a block: how many bytes of blanks are held before its tag.
    inside: Option<usize>,
}

impl Blocks {
    pub(crate) fn new(calls: Calls, open: &'static str, close: &'static str, parse: Parse) -> Blocks {
        Blocks { calls, open, close, parse, held: String::new(), inside: None }
    }

    /// Gives out the first `bytes` that are held; nothing after the only call that was asked for.
    fn text(&mut self, bytes: usize, out: &mut Vec<Part>) {
        let text: String = self.held.drain(..bytes).collect();
        // Beside calls, blanks are nobody's.
        let blank = self.calls.count > 0 && text.trim().is_empty();
        if !text.is_empty() && !blank && !self.calls.is_full() {
            out.push(Part::Text(text));
        }
    }

    fn outside(&mut self, out: &mut Vec<Part>) -> bool {
        if let Some(at) = self.held.find(self.open) {
            // Blanks before a block belong to it.
            let end = self.held[..at].trim_end().len();
            self.text(end, out);
            self.inside = Some(at - end);
            return true;
        }
        let begins = |&(at, _): &(usize, char)| self.open.starts_with(&self.held[at..]);
        let clear = self.held.char_indices().find(begins).map_or(self.held.len(), |(at, _)| at);
        self.text(self.held[..clear].trim_end().len(), out);
        false
    }

    fn block(&mut self, blanks: usize, out: &mut Vec<Part>) -> bool {
        let Some(at) = self.held.find(self.close) else { return false };
        self.inside = None;
        let calls = (self.parse)(&self.held[blanks + self.open.len()..at], &self.calls.tools);
        match calls.filter(|calls| self.calls.know(calls)) {
            Some(calls) => {
                self.held.drain(..at + self.close.len());
                self.calls.give(calls, out);
            }
            None => self.text(at + self.close.len(), out),
        }
        true
    }
}

impl Reader for Blocks {
    fn push(&mut self, text: &str, out: &mut Vec<Part>) {
        self.held.push_str(text);
        while match self.inside {
            Some(blanks) => self.block(blanks, out),
            None => self.outside(out),
        } {}
    }

    fn finish(&mut self, out: &mut Vec<Part>) {
        // Models leave the last tag out when they end right after a call.
        if let Some(blanks) = self.inside {
            let calls = (self.parse)(&self.held[blanks + self.open.len()..], &self.calls.tools);
            if let Some(calls) = calls.filter(|calls| self.calls.know(calls)) {
                self.held.clear();
                self.calls.give(calls, out);
            }
        }
        let all = self.held.len();
        self.text(all, out);
    }

    fn called(&self) -> bool {
        self.calls.count > 0
    }
}
