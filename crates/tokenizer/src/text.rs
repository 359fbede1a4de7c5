//! A text on its way through normalisation, with the way back: where in the original does each of its bytes come from?
//!
//! The way back is only kept where offsets are asked for; then it follows `NormalizedString` of the `tokenizers` crate,
//! change by change, since offsets are compared with it.

use std::borrow::Cow;

/// Bytes of the original text, half open.
pub(crate) type Span = (u32, u32);

/// A part of a text. `spans` holds the origin of each byte of `text`, or nothing where nobody asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text<'a> {
    pub(crate) text: &'a str,
    pub(crate) spans: &'a [Span],
    /// Where in the original the part begins that this was made of.
    pub(crate) start: u32,
}

impl<'a> Text<'a> {
    /// A part of this text, `start` and `end` being borders of characters.
    pub(crate) fn slice(self, start: usize, end: usize) -> Self {
        let spans = if self.spans.is_empty() { self.spans } else { &self.spans[start..end] };
        let origin = spans.first().map_or(self.start + start as u32, |s| s.0);
        Self { text: &self.text[start..end], spans, start: origin }
    }

    pub(crate) fn traced(&self) -> bool {
        !self.spans.is_empty()
    }
}

/// The origins of the bytes of a text that is its own original.
pub(crate) fn identity(text: &str) -> Vec<Span> {
    let mut spans = Vec::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        let end = at + c.len_utf8();
        spans.resize(end, (at as u32, end as u32));
    }
    spans
}

/// A changed text and the origins of its bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changed {
    pub(crate) text: String,
    pub(crate) spans: Vec<Span>,
}

impl Changed {
    pub(crate) fn with_capacity(bytes: usize, like: &Text<'_>) -> Self {
        let traced = if like.traced() { bytes } else { 0 };
        Self { text: String::with_capacity(bytes), spans: Vec::with_capacity(traced) }
    }

    pub(crate) fn as_text(&self, start: u32) -> Text<'_> {
        Text { text: &self.text, spans: &self.spans, start }
    }

    /// Copies bytes of `from`.
    pub(crate) fn copy(&mut self, from: Text<'_>, start: usize, end: usize) {
        self.text.push_str(&from.text[start..end]);
        if from.traced() {
            self.spans.extend_from_slice(&from.spans[start..end]);
        }
    }

    /// Adds a text all of whose bytes come from the same place, if `from` is traced.
    pub(crate) fn push(&mut self, text: &str, from: Text<'_>, span: impl FnOnce(&[Span]) -> Span) {
        self.text.push_str(text);
        if from.traced() {
            self.spans.resize(self.text.len(), span(from.spans));
        }
    }
}

/// A text that may have been changed.
pub(crate) enum Now<'a> {
    Same(Text<'a>),
    Changed(Changed, u32),
}

impl Now<'_> {
    pub(crate) fn as_text(&self) -> Text<'_> {
        match self {
            Self::Same(text) => *text,
            Self::Changed(changed, start) => changed.as_text(*start),
        }
    }
}

/// New characters for a text, each with a change: 0 if it stands for the next character of the text, 1 if it is put in,
/// -n if it stands for the next one and n more, which go. The first `dropped` characters of the text go.
pub(crate) fn transform(from: Text<'_>, new: impl IntoIterator<Item = (char, isize)>, dropped: usize) -> Changed {
    let mut out = Changed::with_capacity(from.text.len(), &from);
    if !from.traced() {
        out.text.extend(new.into_iter().map(|(c, _)| c));
        return out;
    }
    let mut old = from.text.chars().map(char::len_utf8);
    let mut at: usize = old.by_ref().take(dropped).sum();
    for (c, change) in new {
        let span = match change {
            1.. => at.checked_sub(1).map_or((from.start, from.start), |before| from.spans[before]),
            _ => from.spans.get(at).copied().unwrap_or((from.start, from.start)),
        };
        if change <= 0 {
            at += old.by_ref().take(1 + change.unsigned_abs()).sum::<usize>();
        }
        out.text.push(c);
        out.spans.resize(out.text.len(), span);
    }
    out
}

/// A text with every occurrence of `from` replaced; borrowed where there is none.
pub(crate) fn replace_plain<'a>(text: &'a str, finder: &memchr::memmem::Finder<'_>, to: &str) -> Cow<'a, str> {
    let mut out = String::new();
    let mut copied = 0;
    for at in finder.find_iter(text.as_bytes()) {
        if out.is_empty() {
            out.reserve(text.len() + text.len() / 2);
        }
        out.push_str(&text[copied..at]);
        out.push_str(to);
        copied = at + finder.needle().len();
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}
