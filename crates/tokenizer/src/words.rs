//! Where does a word end? The pre-tokenizers of byte-level models by hand, and any other pattern by its regular
//! expression.
//!
//! The patterns of GPT-2, Llama 3, Qwen 2 and Qwen 3.5 are scanned: a few comparisons a character where the expression
//! backtracks. Each scanner is tested against its expression.

use crate::classes::{Classes, LETTER, MARK, NUMBER, SPACE, classes};

pub(crate) const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
pub(crate) const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(crate) const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(crate) const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(crate) const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// One way of cutting a text into words. All are cuts: nothing of the text is lost, except by [`Split::Spaces`].
pub(crate) enum Split {
    /// Words as the pattern `GPT2` matches them.
    Gpt2,
    /// Words as `LLAMA3`, `QWEN2` or `QWEN35` match them: with up to so many digits, and letters of these classes.
    Tiktoken { digits: usize, letters: u8 },
    /// Each number character by itself: of class `NUMBER`, or of class `NUMERIC`.
    Digits(u8),
    /// White space, which is dropped.
    Spaces,
    /// After each of these texts.
    After(String),
    /// Before each of these characters.
    Before(char),
    /// At white space, which is dropped, and around each punctuation mark.
    Bert,
    /// The matches of an expression and what lies between them.
    Regex(Box<fancy_regex::Regex>),
}

impl Split {
    /// The matches of a pattern and what lies between them.
    pub(crate) fn pattern(pattern: &str) -> Result<Self, String> {
        Ok(match pattern {
            GPT2 => Self::Gpt2,
            LLAMA3 => Self::Tiktoken { digits: 3, letters: LETTER },
            QWEN2 => Self::Tiktoken { digits: 1, letters: LETTER },
            QWEN35 => Self::Tiktoken { digits: 1, letters: LETTER | MARK },
            r"\p{N}" => Self::Digits(NUMBER),
            _ => Self::Regex(Box::new(fancy_regex::Regex::new(pattern).map_err(|e| e.to_string())?)),
        })
    }

    /// Gives the start and the end of each word, in order; words are not empty.
    pub(crate) fn run(
        &self,
        text: &str,
        mut each: impl FnMut(usize, usize) -> Result<(), String>,
    ) -> Result<(), String> {
        let bytes = text.as_bytes();
        let table = classes();
        match self {
            Self::Gpt2 => {
                let mut at = 0;
                while at < bytes.len() {
                    let end = gpt2(table, bytes, at);
                    each(at, end)?;
                    at = end;
                }
            }
            &Self::Tiktoken { digits, letters } => {
                let mut at = 0;
                while at < bytes.len() {
                    let end = tiktoken(table, bytes, at, digits, letters);
                    each(at, end)?;
                    at = end;
                }
            }
            &Self::Digits(class) => {
                let (mut start, mut at) = (0, 0);
                while at < bytes.len() {
                    let (found, length) = table.at(bytes, at);
                    if found & class != 0 {
                        if start < at {
                            each(start, at)?;
                        }
                        start = at + length;
                        each(at, start)?;
                    }
                    at += length;
                }
                if start < at {
                    each(start, at)?;
                }
            }
            Self::Spaces => {
                let (mut start, mut at) = (0, 0);
                while at < bytes.len() {
                    let (found, length) = table.at(bytes, at);
                    if found & SPACE != 0 {
                        if start < at {
                            each(start, at)?;
                        }
                        start = at + length;
                    }
                    at += length;
                }
                if start < at {
                    each(start, at)?;
                }
            }
            Self::After(delimiter) => {
                let mut start = 0;
                for at in memchr::memmem::find_iter(bytes, delimiter.as_bytes()) {
                    each(start, at + delimiter.len())?;
                    start = at + delimiter.len();
                }
                if start < bytes.len() {
                    each(start, bytes.len())?;
                }
            }
            Self::Before(mark) => {
                let mut buffer = [0; 4];
                let mark = mark.encode_utf8(&mut buffer).as_bytes();
                let mut start = 0;
                for at in memchr::memmem::find_iter(bytes, mark) {
                    if start < at {
                        each(start, at)?;
                    }
                    start = at;
                }
                if start < bytes.len() {
                    each(start, bytes.len())?;
                }
            }
            Self::Bert => {
                let mut start = 0;
                for (at, c) in text.char_indices() {
                    let space = c.is_whitespace();
                    if space || is_punctuation(c) {
                        if start < at {
                            each(start, at)?;
                        }
                        start = at + c.len_utf8();
                        if !space {
                            each(at, start)?;
                        }
                    }
                }
                if start < bytes.len() {
                    each(start, bytes.len())?;
                }
            }
            Self::Regex(regex) => {
                let mut start = 0;
                // Where the expression gives up, the rest is one word, as in `tokenizers`.
                for found in regex.find_iter(text).map_while(Result::ok) {
                    if start < found.start() {
                        each(start, found.start())?;
                    }
                    if found.start() < found.end() {
                        each(found.start(), found.end())?;
                    }
                    start = found.end();
                }
                if start < bytes.len() {
                    each(start, bytes.len())?;
                }
            }
        }
        Ok(())
    }
}

/// Punctuation as BERT has it.
pub(crate) fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation() || !c.is_ascii() && unicode_categories::UnicodeCategories::is_punctuation(c)
}

/// The end of the run of characters from `at` that are in one of the `classes`.
#[inline]
fn run_of(table: &Classes, bytes: &[u8], mut at: usize, classes: u8) -> usize {
    while at < bytes.len() {
        let (found, length) = table.at(bytes, at);
        if found & classes == 0 {
            break;
        }
        at += length;
    }
    at
}

/// The end of the run of characters from `at` that are in none of the `classes`.
#[inline]
fn run_without(table: &Classes, bytes: &[u8], mut at: usize, classes: u8) -> usize {
    while at < bytes.len() {
        let (found, length) = table.at(bytes, at);
        if found & classes != 0 {
            break;
        }
        at += length;
    }
    at
}

/// `\s+(?!\S)|\s+` at white space: the run without its last character, unless that is all or the text ends.
#[inline]
fn spaces(table: &Classes, bytes: &[u8], at: usize) -> usize {
    let end = run_of(table, bytes, at, SPACE);
    if end == bytes.len() {
        return end;
    }
    let last = (at..end).rev().find(|&i| bytes[i] & 0xC0 != 0x80).unwrap_or(at);
    if last > at { last } else { end }
}

/// The end of the match of [`GPT2`] at `at`.
fn gpt2(table: &Classes, bytes: &[u8], at: usize) -> usize {
    let first = bytes[at];
    if first == b'\''
        && let Some(length) = contraction(&bytes[at + 1..], false)
    {
        return at + 1 + length;
    }
    let from = if first == b' ' && at + 1 < bytes.len() { at + 1 } else { at };
    let (found, length) = table.at(bytes, from);
    if found & LETTER != 0 {
        run_of(table, bytes, from + length, LETTER)
    } else if found & NUMBER != 0 {
        run_of(table, bytes, from + length, NUMBER)
    } else if found & SPACE == 0 {
        run_without(table, bytes, from + length, LETTER | NUMBER | SPACE)
    } else {
        spaces(table, bytes, at)
    }
}

/// The end of the match of [`LLAMA3`] and its kin at `at`.
fn tiktoken(table: &Classes, bytes: &[u8], at: usize, digits: usize, letters: u8) -> usize {
    let first = bytes[at];
    if first == b'\''
        && let Some(length) = contraction(&bytes[at + 1..], true)
    {
        return at + 1 + length;
    }
    let (found, length) = table.at(bytes, at);
    let after = at + length;
    if found & letters != 0 {
        return run_of(table, bytes, after, letters);
    }
    if found & NUMBER != 0 {
        let mut end = after;
        for _ in 1..digits {
            match bytes.get(end).map(|_| table.at(bytes, end)) {
                Some((found, length)) if found & NUMBER != 0 => end += length,
                _ => break,
            }
        }
        return end;
    }
    let next = if after < bytes.len() { table.at(bytes, after) } else { (0, 0) };
    if next.0 & letters != 0 && !matches!(first, b'\r' | b'\n') {
        return run_of(table, bytes, after + next.1, letters);
    }
    let others = letters | NUMBER | SPACE;
    let marks = match found & SPACE {
        0 => Some(after),
        _ if first == b' ' && after < bytes.len() && next.0 & others == 0 => Some(after + next.1),
        _ => None,
    };
    if let Some(from) = marks {
        let mut end = run_without(table, bytes, from, others);
        while end < bytes.len() && matches!(bytes[end], b'\r' | b'\n') {
            end += 1;
        }
        return end;
    }
    let end = run_of(table, bytes, at, SPACE);
    match bytes[at..end].iter().rposition(|b| matches!(b, b'\r' | b'\n')) {
        Some(last) => at + last + 1,
        None => spaces(table, bytes, at),
    }
}

/// Length of `s`, `t`, `re`, `ve`, `m`, `ll` or `d` at the start of `rest`.
fn contraction(rest: &[u8], any_case: bool) -> Option<usize> {
    let at = |i: usize| rest.get(i).map(|b| if any_case { b.to_ascii_lowercase() } else { *b });
    match (at(0)?, at(1)) {
        (b's' | b't' | b'm' | b'd', _) => Some(1),
        (b'r' | b'v', Some(b'e')) | (b'l', Some(b'l')) => Some(2),
        // The long s is an s in another case.
        (0xC5, Some(0xBF)) if any_case => Some(2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(split: &Split, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        split
            .run(text, |a, b| {
                words.push(text[a..b].to_owned());
                Ok(())
            })
            .unwrap();
        words
    }

    #[test]
    fn scanners_cut_as_their_expressions_do() {
        let pairs: Vec<(Split, Split)> = [GPT2, LLAMA3, QWEN2, QWEN35, r"\p{N}"]
            .map(|p| {
                let slow = Split::Regex(Box::new(fancy_regex::Regex::new(p).unwrap()));
                (Split::pattern(p).unwrap(), slow)
            })
            .into();
        assert!(pairs.iter().all(|(fast, _)| !matches!(fast, Split::Regex(_))));
        let part = prop_oneof![
            "[ -~]{0,6}",
            "\\PC{0,4}",
            prop::sample::select(vec![
                "'",
                "'s",
                "'S",
                "'ſ",
                "'re",
                "'LL",
                "'v",
                " ",
                "  ",
                "\n",
                "\r\n",
                "\t",
                "\u{a0}",
                "\u{3000}",
                "1",
                "²",
                "Ⅷ",
                "12345",
                "é",
                "e\u{301}",
                "\u{301}",
                "中",
                "!",
                "…",
                "a",
                "\u{85}",
                "\u{200b}",
                "\u{1F600}",
                "ा",
                "'d"
            ])
            .prop_map(str::to_owned),
            any::<char>().prop_map(String::from),
        ];
        let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4000) };
        proptest!(config, |(parts in prop::collection::vec(part, 0..8))| {
            let text = parts.concat();
            for (fast, slow) in &pairs {
                prop_assert_eq!(words(fast, &text), words(slow, &text), "{:?}", text);
            }
        });
    }

    #[test]
    fn every_character_is_of_the_class_that_the_expression_gives_it() {
        let text: String = ('\0'..=char::MAX).flat_map(|c| ['a', c, '1', c, ' ', c, c, ' ', '!', c]).collect();
        for pattern in [GPT2, QWEN35] {
            let slow = Split::Regex(Box::new(fancy_regex::Regex::new(pattern).unwrap()));
            assert!(words(&Split::pattern(pattern).unwrap(), &text) == words(&slow, &text), "{pattern}");
        }
    }
}
