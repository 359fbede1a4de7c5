//! Regular expressions over strings, as far as schemas need to reason about them.

use llguidance::derivre::{Regex, RegexAst, RegexBuilder};
use llguidance::regex_to_lark;
use std::collections::{BTreeMap, BTreeSet};

/// Work that one question may cost.
const FUEL: u64 = 50_000;
/// Longest expression that is written for a complement.
const MAX_COMPLEMENT: usize = 16 << 10;

/// A pattern that [`super::ecma`] has translated: found anywhere in the string, `\d` and `\w` for ASCII only.
pub(super) fn pattern(text: &str) -> RegexAst {
    RegexAst::SearchRegex(regex_to_lark(text, "dw"))
}

/// Whether a translated pattern can be used.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(text: &str) -> Result<(), String> {
    let last = |text: String| text.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or_default().trim().to_owned();
    RegexBuilder::new().mk(&pattern(text)).map(drop).map_err(|e| last(e.to_string()))
}

/// Strings of a length in characters.
pub(super) fn length(least: u64, most: Option<u64>) -> RegexAst {
    RegexAst::Regex(format!("(?s:.{{{least},{}}})", most.map(|n| n.to_string()).unwrap_or_default()))
}

/// Whether it is certain that no string fits all of these.
pub(super) fn is_empty(all: Vec<RegexAst>) -> bool {
    let mut builder = RegexBuilder::new();
    let Ok(root) = builder.mk(&RegexAst::And(all)) else { return false };
    builder.to_regex_limited(root, FUEL).is_ok_and(|mut regex| regex.always_empty())
}

/// An expression that many strings are matched with.
pub(super) struct Matching(Regex);

impl Matching {
    /// None where it is too complex.
    pub(super) fn new(ast: RegexAst) -> Option<Matching> {
        let mut builder = RegexBuilder::new();
        let root = builder.mk(&ast).ok()?;
        builder.to_regex_limited(root, FUEL).ok().map(Matching)
    }

    pub(super) fn fits(&mut self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

/// Whether a string fits; none where that cannot be told.
pub(super) fn matches(ast: RegexAst, text: &str) -> Option<bool> {
    matches_within(ast, text, FUEL)
}

/// As [`matches`], at any cost.
#[cfg(test)]
pub(super) fn matches_surely(ast: RegexAst, text: &str) -> Option<bool> {
    matches_within(ast, text, u64::MAX)
}

fn matches_within(ast: RegexAst, text: &str, fuel: u64) -> Option<bool> {
    let mut builder = RegexBuilder::new();
    let root = builder.mk(&ast).ok()?;
    Some(builder.to_regex_limited(root, fuel).ok()?.is_match(text))
}

/// A `pattern` for every string but these; none if it would be too long.
pub(super) fn all_but(texts: &BTreeSet<&str>) -> Option<String> {
    // From each beginning of a text another way is taken, or the string ends there.
    let mut beginnings: BTreeMap<&str, BTreeSet<char>> = BTreeMap::from([("", BTreeSet::new())]);
    for text in texts {
        for (at, c) in text.char_indices() {
            beginnings.entry(&text[..at]).or_default().insert(c);
            beginnings.entry(&text[..at + c.len_utf8()]).or_default();
        }
    }
    let mut ways = Vec::new();
    let mut length = 0;
    for (beginning, next) in &beginnings {
        let other = match next.is_empty() {
            true => "(?s:.)".to_owned(),
            false => format!("[^{}]", next.iter().map(|&c| escaped_char(c)).collect::<String>()),
        };
        let optional = if texts.contains(beginning) { "" } else { "?" };
        let way = format!("{}(?:{other}(?s:.*)){optional}", escaped(beginning));
        length += way.len();
        if length > MAX_COMPLEMENT {
            return None;
        }
        ways.push(way);
    }
    Some(format!("^(?:{})$", ways.join("|")))
}

/// A text as a regular expression that matches it alone.
pub(super) fn escaped(text: &str) -> String {
    text.chars().map(escaped_char).collect()
}

fn escaped_char(c: char) -> String {
    if c.is_ascii_alphanumeric() || (c > '\u{9f}' && c.is_alphabetic()) {
        c.to_string()
    } else {
        format!("\\u{{{:x}}}", u32::from(c))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_some_texts_is_every_other_text() {
        let texts = BTreeSet::from(["", "ab", "abc", "x/y", "ä\n", "ä\"\\"]);
        let ast = || pattern(&all_but(&texts).unwrap());
        for text in &texts {
            assert_eq!(matches(ast(), text), Some(false), "{text:?}");
        }
        for text in ["a", "abcd", "b", "x", "x/", "x/yz", "ä", "ä\"", "\n", "ac"] {
            assert_eq!(matches(ast(), text), Some(true), "{text:?}");
        }
        let one = BTreeSet::from(["a"]);
        assert_eq!(matches(pattern(&all_but(&one).unwrap()), ""), Some(true));
    }

    #[test]
    fn patterns_that_exclude_each_other_are_told_apart() {
        assert!(is_empty(vec![pattern("^a"), pattern("^b")]));
        assert!(!is_empty(vec![pattern("^a"), pattern("b$")]));
        assert!(is_empty(vec![pattern("^a+$"), length(0, Some(0))]));
        assert!(!is_empty(vec![pattern("(?=x)y")]), "what cannot be read is not certain");
    }
}
