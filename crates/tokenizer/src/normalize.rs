//! What happens to a text before it is cut into words: the normalisers of `tokenizer.json`, and SentencePiece's own.
//!
//! Each gives what the one of the same name in the `tokenizers` crate gives, in characters and in offsets. What is not
//! here ([`Normalizer::read`] gives none) is left to that crate.

use std::borrow::Cow;
use std::sync::OnceLock;

use memchr::memmem::Finder;
use serde_json::Value;
use unicode_categories::UnicodeCategories;
use unicode_normalization_alignments::char::{canonical_combining_class, is_combining_mark};
use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, is_nfc_quick};
use unicode_segmentation::UnicodeSegmentation;

use crate::base64;
use crate::sentencepiece::{self, Charsmap};
use crate::text::{Changed, Now, Text, replace_plain, transform};

/// One step, or several.
pub(crate) enum Normalizer {
    Sequence(Vec<Normalizer>),
    /// Unicode form NFC.
    Nfc,
    /// Another form of Unicode.
    Form(Form),
    /// Without white space at the start, at the end.
    Strip(bool, bool),
    /// Without combining marks.
    StripAccents,
    /// Puts a text in front of what is not empty.
    Prepend(String),
    /// Puts a text in place of another.
    Replace(Box<Finder<'static>>, String),
    /// Puts a text in place of what an expression matches.
    ReplaceMatches(Box<fancy_regex::Regex>, String),
    Lowercase,
    Bert(Bert),
    /// A table of SentencePiece, as the `tokenizers` crate applies it: grapheme by grapheme.
    Precompiled(Charsmap),
    /// The SentencePiece library's own steps.
    SentencePiece(sentencepiece::Normalizer),
}

/// A form of Unicode that is reached by going through all characters.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    Nfd,
    Nfkc,
    Nfkd,
}

/// BERT's cleaning.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bert {
    pub(crate) clean: bool,
    pub(crate) space_chinese: bool,
    pub(crate) strip_accents: bool,
    pub(crate) lowercase: bool,
}

impl Normalizer {
    /// The normaliser that `tokenizer.json` describes; none for one that is not built here.
    pub(crate) fn read(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key)?.as_str();
        let flag = |key: &str| value.get(key)?.as_bool();
        Some(match text("type")? {
            "Sequence" => {
                Self::Sequence(value.get("normalizers")?.as_array()?.iter().map(Self::read).collect::<Option<_>>()?)
            }
            "NFC" => Self::Nfc,
            "NFD" => Self::Form(Form::Nfd),
            "NFKC" => Self::Form(Form::Nfkc),
            "NFKD" => Self::Form(Form::Nfkd),
            "Strip" => Self::Strip(flag("strip_left")?, flag("strip_right")?),
            "StripAccents" => Self::StripAccents,
            "Prepend" => Self::Prepend(text("prepend")?.to_owned()),
            "Lowercase" => Self::Lowercase,
            "Replace" => {
                let content = text("content")?.to_owned();
                let pattern = value.get("pattern")?;
                match (pattern.get("String"), pattern.get("Regex")) {
                    (Some(plain), None) if !plain.as_str()?.is_empty() => {
                        Self::Replace(Box::new(Finder::new(plain.as_str()?).into_owned()), content)
                    }
                    (None, Some(regex)) => {
                        Self::ReplaceMatches(Box::new(fancy_regex::Regex::new(regex.as_str()?).ok()?), content)
                    }
                    _ => return None,
                }
            }
            "BertNormalizer" => {
                let lowercase = flag("lowercase")?;
                Self::Bert(Bert {
                    clean: flag("clean_text")?,
                    space_chinese: flag("handle_chinese_chars")?,
                    strip_accents: match value.get("strip_accents") {
                        None | Some(Value::Null) => lowercase,
                        Some(flag) => flag.as_bool()?,
                    },
                    lowercase,
                })
            }
            "Precompiled" => Self::Precompiled(Charsmap::read(&base64::decode(text("precompiled_charsmap")?)?).ok()?),
            _ => return None,
        })
    }

    /// The normalised text.
    pub(crate) fn run<'a>(&self, from: Text<'a>) -> Now<'a> {
        let start = from.start;
        let changed = match self {
            Self::Sequence(steps) => {
                let mut now = Now::Same(from);
                for step in steps {
                    if let Now::Changed(changed, start) = step.run(now.as_text()) {
                        now = Now::Changed(changed, start);
                    }
                }
                return now;
            }
            Self::Nfc => nfc(from),
            Self::Form(_) if from.text.is_ascii() => None,
            Self::Form(Form::Nfd) => Some(transform(from, from.text.nfd(), 0)),
            Self::Form(Form::Nfkc) => Some(transform(from, from.text.nfkc(), 0)),
            Self::Form(Form::Nfkd) => Some(transform(from, from.text.nfkd(), 0)),
            &Self::Strip(left, right) => strip(from, left, right),
            Self::StripAccents => Some(filter(from, |c| !is_combining_mark(c))),
            Self::Prepend(prefix) => prepend(from, prefix),
            Self::Replace(pattern, content) => replace(from, pattern, content),
            Self::ReplaceMatches(regex, content) => {
                let matches = regex.find_iter(from.text).map_while(Result::ok);
                replace_all(from, matches.map(|m| (m.start(), m.end())), content)
            }
            Self::Lowercase => lowercase(from),
            Self::Bert(bert) => bert.run(from),
            Self::Precompiled(charsmap) => precompiled(from, charsmap),
            Self::SentencePiece(normalizer) => Some(normalizer.apply(from)),
        };
        changed.map_or(Now::Same(from), |changed| Now::Changed(changed, start))
    }
}

/// Puts `prefix` in front of a text that is not empty.
pub(crate) fn prepend(from: Text<'_>, prefix: &str) -> Option<Changed> {
    if from.text.is_empty() {
        return None;
    }
    let mut out = Changed::with_capacity(prefix.len() + from.text.len(), &from);
    out.push(prefix, from, |spans| spans[0]);
    out.copy(from, 0, from.text.len());
    Some(out)
}

fn strip(from: Text<'_>, left: bool, right: bool) -> Option<Changed> {
    let text = from.text;
    let start = if left { text.len() - text.trim_start().len() } else { 0 };
    let end = if right { text.trim_end().len().max(start) } else { text.len() };
    if (start, end) == (0, text.len()) {
        return None;
    }
    let mut out = Changed::with_capacity(end - start, &from);
    out.copy(from, start, end);
    Some(out)
}

pub(crate) fn replace(from: Text<'_>, pattern: &Finder<'_>, content: &str) -> Option<Changed> {
    if from.traced() {
        let length = pattern.needle().len();
        let matches: Vec<usize> = pattern.find_iter(from.text.as_bytes()).collect();
        return replace_all(from, matches.into_iter().map(|at| (at, at + length)), content);
    }
    match replace_plain(from.text, pattern, content) {
        Cow::Borrowed(_) => None,
        Cow::Owned(text) => Some(Changed { text, spans: Vec::new() }),
    }
}

/// What is put in comes from where the last byte of the match came from.
fn replace_all(from: Text<'_>, matches: impl Iterator<Item = (usize, usize)>, content: &str) -> Option<Changed> {
    let mut out: Option<Changed> = None;
    let mut copied = 0;
    for (start, end) in matches {
        let out = out.get_or_insert_with(|| Changed::with_capacity(from.text.len(), &from));
        out.copy(from, copied, start);
        out.push(content, from, |spans| end.checked_sub(1).map_or((from.start, from.start), |last| spans[last]));
        copied = end;
    }
    if let Some(out) = &mut out {
        out.copy(from, copied, from.text.len());
    }
    out
}

fn lowercase(from: Text<'_>) -> Option<Changed> {
    let lower = |c: char| c.to_lowercase().enumerate().map(|(i, c)| (c, isize::from(i > 0)));
    Some(transform(from, from.text.chars().flat_map(lower), 0))
}

/// Whether a character begins and stays itself in NFC, whatever comes before it.
fn is_stable(c: char) -> bool {
    let slow = |c: char| canonical_combining_class(c) == 0 && is_nfc_quick(std::iter::once(c)) == IsNormalized::Yes;
    static BASIC_PLANE: OnceLock<Box<[u64]>> = OnceLock::new();
    match c as u32 {
        0..0x300 => true,
        code @ 0x300..0x1_0000 => {
            let table = BASIC_PLANE.get_or_init(|| {
                let bit = |code: u32| u64::from(char::from_u32(code).is_some_and(slow));
                (0..0x400).map(|word| (0..64).fold(0, |bits, i| bits | bit(word * 64 + i) << i)).collect()
            });
            table[code as usize / 64] >> (code % 64) & 1 != 0
        }
        _ => slow(c),
    }
}

/// NFC. Without offsets only the stretches around characters that may change are composed: from the stable character
/// before to the next stable one.
fn nfc(from: Text<'_>) -> Option<Changed> {
    if from.text.is_ascii() || from.text.chars().all(is_stable) {
        return None;
    }
    if from.traced() {
        return Some(transform(from, from.text.nfc(), 0));
    }
    let text = from.text;
    let mut out = String::with_capacity(text.len());
    let (mut copied, mut stable) = (0, 0);
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        if is_stable(c) {
            stable = at;
            continue;
        }
        out.push_str(&text[copied..stable]);
        let end = chars.by_ref().find(|&(_, c)| is_stable(c)).map_or(text.len(), |(at, _)| at);
        out.extend(text[stable..end].nfc().map(|(c, _)| c));
        (copied, stable) = (end, end);
    }
    out.push_str(&text[copied..]);
    Some(Changed { text: out, spans: Vec::new() })
}

impl Bert {
    fn run(&self, from: Text<'_>) -> Option<Changed> {
        let mut now: Option<Changed> = None;
        let ascii = from.text.is_ascii();
        macro_rules! step {
            ($from:ident => $run:expr) => {{
                let $from = now.as_ref().map_or(from, |n| n.as_text(from.start));
                now = Some($run);
            }};
        }
        if self.clean {
            step!(text => filter(text, |c| !(c == '\0' || c == '\u{FFFD}' || is_control(c))));
            step!(text => transform(text, text.text.chars().map(|c| (if is_space(c) { ' ' } else { c }, 0)), 0));
        }
        if self.space_chinese && !ascii {
            step!(text => transform(text, text.text.chars().flat_map(spaced), 0));
        }
        if self.strip_accents && !ascii {
            step!(text => transform(text, text.text.nfd(), 0));
            step!(text => filter(text, |c| !c.is_mark_nonspacing()));
        }
        if self.lowercase {
            step!(text => lowercase(text)?);
        }
        now
    }
}

fn spaced(c: char) -> impl Iterator<Item = (char, isize)> {
    let (three, one) = if is_chinese(c) { ([(' ', 0), (c, 1), (' ', 1)], 3) } else { ([(c, 0); 3], 1) };
    three.into_iter().take(one)
}

/// Drops characters, as `NormalizedString::filter`: one that goes belongs to the one before it.
fn filter(from: Text<'_>, keep: impl Fn(char) -> bool) -> Changed {
    if !from.traced() {
        return Changed { text: from.text.chars().filter(|&c| keep(c)).collect(), spans: Vec::new() };
    }
    let mut kept: Vec<(char, isize)> = Vec::with_capacity(from.text.len());
    let mut dropped = 0;
    for c in from.text.chars() {
        match (keep(c), kept.last_mut()) {
            (true, _) => kept.push((c, 0)),
            (false, Some(last)) => last.1 -= 1,
            (false, None) => dropped += 1,
        }
    }
    transform(from, kept, dropped)
}

fn is_space(c: char) -> bool {
    c.is_whitespace()
}

fn is_control(c: char) -> bool {
    match c {
        '\t' | '\n' | '\r' => false,
        ' '..='~' => false,
        _ => c.is_other(),
    }
}

/// The blocks that BERT counts as Chinese.
fn is_chinese(c: char) -> bool {
    matches!(
        c as u32,
        0x4E00..=0x9FFF
            | 0x3400..=0x4DBF
            | 0x20000..=0x2A6DF
            | 0x2A700..=0x2B73F
            | 0x2B740..=0x2B81F
            | 0x2B920..=0x2CEAF
            | 0xF900..=0xFAFF
            | 0x2F800..=0x2FA1F
    )
}

/// Replaces graphemes of less than six bytes, and else single characters, by what the table has for the shortest of its
/// entries that they begin with.
fn precompiled(from: Text<'_>, charsmap: &Charsmap) -> Option<Changed> {
    let mut new: Vec<(char, isize)> = Vec::new();
    let mut out = String::with_capacity(from.text.len());
    let mut modified = false;
    let mut put = |old: &str, norm: Option<&str>| {
        let chars = norm.unwrap_or(old);
        modified |= norm.is_some();
        if !from.traced() {
            return out.push_str(chars);
        }
        let before = new.len();
        new.extend(chars.chars().map(|c| (c, 0)));
        if norm.is_some() {
            let (was, is) = (old.chars().count(), new.len() - before);
            if is > was {
                new.iter_mut().rev().take(is - was).for_each(|c| c.1 = 1);
            } else if let Some(last) = new.last_mut() {
                last.1 -= (was - is) as isize;
            }
        }
    };
    let mut grapheme = |part: &str| {
        if part.len() < 6
            && let Some(norm) = charsmap.shortest(part)
        {
            return put(part, Some(norm));
        }
        for (at, c) in part.char_indices() {
            let one = &part[at..at + c.len_utf8()];
            put(one, charsmap.shortest(one));
        }
    };
    let bytes = from.text.as_bytes();
    let ascii = |at: usize| bytes.get(at).is_none_or(u8::is_ascii);
    let mut at = 0;
    while at < bytes.len() {
        // Two ASCII characters are two graphemes, a line end of two characters aside.
        let mut end = at + 1;
        let pair = |end: usize| bytes[end - 1] == b'\r' && bytes.get(end) == Some(&b'\n');
        if ascii(at) && ascii(end) {
            end += usize::from(pair(end));
            grapheme(&from.text[at..end]);
        } else {
            while end < bytes.len() && (!(ascii(end - 1) && ascii(end)) || pair(end)) {
                end += 1;
            }
            from.text[at..end].graphemes(true).for_each(&mut grapheme);
        }
        at = end;
    }
    if !modified {
        return None;
    }
    Some(if from.traced() { transform(from, new, 0) } else { Changed { text: out, spans: Vec::new() } })
}
