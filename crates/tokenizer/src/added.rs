//! Tokens that are cut out of a text before anything else is done to it: special tokens, and words that were added to a
//! vocabulary.
//!
//! Follows `AddedVocabulary` of the `tokenizers` crate: the leftmost, then longest match counts; ids come from the model
//! where it knows the token, else they go on from the model's last one.

use std::collections::HashMap;

use crate::classes::{SPACE, WORD, classes};
use crate::config::Added;
use crate::model::Model;
use crate::normalize::Normalizer;
use crate::text::Text;
use crate::trie::Trie;

/// The tokens and what finds them.
pub(crate) struct AddedTokens {
    tokens: Vec<Token>,
    by_content: HashMap<String, usize>,
    by_id: HashMap<u32, usize>,
    /// Those that are looked for in the text as it is, and those in the normalised text.
    raw: Matcher,
    normalized: Matcher,
}

/// An added token.
pub(crate) struct Token {
    pub(crate) declared: Added,
    pub(crate) id: u32,
    /// What it is looked for as, and what decoding makes of it.
    pub(crate) surface: String,
}

impl AddedTokens {
    pub(crate) fn new(declared: Vec<Added>, model: &dyn Model, normalizer: Option<&Normalizer>) -> Self {
        let mut tokens: Vec<Token> = Vec::with_capacity(declared.len());
        let mut by_content: HashMap<String, usize> = HashMap::with_capacity(declared.len());
        let mut next = model.size() as u32;
        for declared in declared.into_iter().filter(|t| !t.content.is_empty()) {
            let place = by_content.get(&declared.content).copied();
            let id = place.map(|at| tokens[at].id).or_else(|| model.id(&declared.content));
            let id = id.unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            let text = Text { text: &declared.content, spans: &[], start: 0 };
            let surface = match normalizer {
                Some(normalizer) if declared.normalized => normalizer.run(text).as_text().text.to_owned(),
                _ => declared.content.clone(),
            };
            let token = Token { declared, id, surface };
            match place {
                Some(at) => tokens[at] = token,
                None => {
                    by_content.insert(token.declared.content.clone(), tokens.len());
                    tokens.push(token);
                }
            }
        }
        let by_id = tokens.iter().enumerate().map(|(at, token)| (token.id, at)).collect();
        let matcher = |normalized: bool| {
            let chosen = tokens.iter().zip(0..).filter(|(t, _)| t.declared.normalized == normalized);
            let keys: HashMap<&str, u32> =
                chosen.filter(|(t, _)| !t.surface.is_empty()).map(|(t, at)| (t.surface.as_str(), at)).collect();
            Matcher::new(keys)
        };
        let (raw, normalized) = (matcher(false), matcher(true));
        Self { tokens, by_content, by_id, raw, normalized }
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Token> {
        self.by_id.get(&id).map(|&at| &self.tokens[at])
    }

    pub(crate) fn id(&self, content: &str) -> Option<u32> {
        self.by_content.get(content).map(|&at| self.tokens[at].id)
    }

    /// The largest id among them.
    pub(crate) fn last_id(&self) -> Option<u32> {
        self.by_id.keys().max().copied()
    }

    /// Whether any is looked for in normalised text.
    pub(crate) fn any_normalized(&self) -> bool {
        !self.normalized.is_empty()
    }

    /// Tokens that are looked for in the text as it is.
    pub(crate) fn raw_contents(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().filter(|t| !t.declared.normalized).map(|t| t.declared.content.as_str())
    }

    /// Cuts a text (`normalized` or not) at the tokens that are looked for in it; special ones are text if `plain`.
    /// Gives each part with its token, if it is one.
    pub(crate) fn cut<'t>(
        &self,
        text: Text<'t>,
        normalized: bool,
        plain: bool,
        mut each: impl FnMut(Text<'t>, Option<&Token>) -> Result<(), String>,
    ) -> Result<(), String> {
        let matcher = if normalized { &self.normalized } else { &self.raw };
        let sentence = text.text;
        let (mut from, mut copied) = (0, 0);
        while let Some((mut start, length, at)) = matcher.find(sentence, from) {
            let mut end = start + length;
            from = end;
            let token = &self.tokens[at as usize];
            let declared = &token.declared;
            if plain && declared.special {
                continue;
            }
            if declared.single_word {
                let word = |c: Option<char>| c.is_some_and(|c| classes().of(c) & WORD != 0);
                if word(sentence[..start].chars().next_back()) || word(sentence[end..].chars().next()) {
                    continue;
                }
            }
            let space = |c: char| classes().of(c) & SPACE != 0;
            if declared.lstrip {
                start = sentence[..start].trim_end_matches(space).len().max(copied);
            }
            if declared.rstrip {
                end = sentence.len() - sentence[end..].trim_start_matches(space).len();
            }
            if copied < start {
                each(text.slice(copied, start), None)?;
            }
            each(text.slice(start, end), Some(token))?;
            copied = end;
        }
        if copied < sentence.len() {
            each(text.slice(copied, sentence.len()), None)?;
        }
        Ok(())
    }
}

/// Finds the leftmost of several texts, the longest where several begin.
struct Matcher {
    trie: Trie,
    /// Their first bytes; and again, where there are few.
    first: Box<[bool; 256]>,
    few: Vec<u8>,
}

impl Matcher {
    fn new(keys: HashMap<&str, u32>) -> Self {
        let mut first = Box::new([false; 256]);
        keys.keys().for_each(|key| first[usize::from(key.as_bytes()[0])] = true);
        let few = (0..=255).filter(|&b| first[usize::from(b)]).collect();
        Self { trie: Trie::new(keys), first, few }
    }

    fn is_empty(&self) -> bool {
        self.few.is_empty()
    }

    /// Start, length and value of the first match from `from` on.
    fn find(&self, text: &str, mut from: usize) -> Option<(usize, usize, u32)> {
        let bytes = text.as_bytes();
        while from < bytes.len() {
            let rest = &bytes[from..];
            let next = match *self.few.as_slice() {
                [] => None,
                [a] => memchr::memchr(a, rest),
                [a, b] => memchr::memchr2(a, b, rest),
                [a, b, c] => memchr::memchr3(a, b, c, rest),
                _ => rest.iter().position(|&b| self.first[usize::from(b)]),
            };
            from += next?;
            if let Some((length, value)) = self.trie.longest(&bytes[from..]) {
                return Some((from, length, value));
            }
            from += 1;
        }
        None
    }
}
