//! From a normalised text to words: the pre-tokenizers of `tokenizer.json`, one after another.

use memchr::memmem::Finder;
use serde_json::Value;

use crate::normalize::{prepend, replace};
use crate::text::Text;
use crate::words::{GPT2, Split};

/// A step.
pub(crate) enum Step {
    Cut(Split),
    /// Puts a space in front of a word that does not begin with one.
    PrefixSpace,
    /// A mark for each space, and in front of words that do not begin with it.
    Mark {
        mark: String,
        spaces: Box<Finder<'static>>,
        front: Front,
    },
}

/// In front of which words a mark is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Front {
    /// The one that begins the text.
    First,
    Every,
    None,
}

/// The steps, and whether the model then reads bytes.
pub(crate) struct Words {
    steps: Vec<Step>,
    pub(crate) byte_level: bool,
}

impl Words {
    /// The text is one word.
    pub(crate) fn whole() -> Self {
        Self { steps: Vec::new(), byte_level: false }
    }

    pub(crate) fn bert() -> Self {
        Self { steps: vec![Step::Cut(Split::Bert)], byte_level: false }
    }

    /// Words by patterns, one after another, of which the model reads the bytes.
    ///
    /// # Errors
    /// A pattern that is none.
    pub(crate) fn bytes(patterns: &[&str], prefix_space: bool) -> Result<Self, String> {
        let mut steps = Vec::new();
        if prefix_space {
            steps.push(Step::PrefixSpace);
        }
        for pattern in patterns {
            steps.push(Step::Cut(Split::pattern(pattern)?));
        }
        Ok(Self { steps, byte_level: true })
    }

    /// Whether these are BERT's words.
    pub(crate) fn is_bert(&self) -> bool {
        matches!(self.steps.as_slice(), [Step::Cut(Split::Bert)])
    }

    /// The pre-tokenizer that `tokenizer.json` describes; none for one that is not built here.
    pub(crate) fn read(value: &Value) -> Option<Self> {
        let mut words = Self::whole();
        if !value.is_null() {
            words.add(value)?;
        }
        Some(words)
    }

    fn add(&mut self, value: &Value) -> Option<()> {
        if self.byte_level {
            return None; // further steps would see characters that stand for bytes
        }
        let text = |key: &str| value.get(key)?.as_str();
        let flag = |key: &str, default: bool| value.get(key).map_or(Some(default), Value::as_bool);
        let cut = match text("type")? {
            "Sequence" => return value.get("pretokenizers")?.as_array()?.iter().try_for_each(|step| self.add(step)),
            "ByteLevel" => {
                if flag("add_prefix_space", true)? {
                    self.steps.push(Step::PrefixSpace);
                }
                if flag("use_regex", true)? {
                    self.steps.push(Step::Cut(Split::pattern(GPT2).ok()?));
                }
                self.byte_level = true;
                return Some(());
            }
            "Split" => {
                let pattern = value.get("pattern")?;
                match (text("behavior")?, flag("invert", false)?) {
                    ("Isolated", false) => Split::pattern(pattern.get("Regex")?.as_str()?).ok()?,
                    ("MergedWithPrevious", false) => {
                        Split::After(pattern.get("String")?.as_str().filter(|p| !p.is_empty())?.to_owned())
                    }
                    _ => return None,
                }
            }
            "Digits" if flag("individual_digits", false)? => Split::Digits(crate::classes::NUMERIC),
            "WhitespaceSplit" => Split::Spaces,
            "BertPreTokenizer" => Split::Bert,
            "Metaspace" => {
                let front = match text("prepend_scheme").unwrap_or("always") {
                    "first" => Front::First,
                    "always" => Front::Every,
                    "never" => Front::None,
                    _ => return None,
                };
                if value.get("add_prefix_space").is_some_and(|flag| flag != &Value::Bool(true)) && front != Front::None
                {
                    return None;
                }
                let mark = text("replacement")?;
                let mut chars = mark.chars();
                let (Some(first), None) = (chars.next(), chars.next()) else { return None };
                let spaces = Box::new(Finder::new(" ").into_owned());
                self.steps.push(Step::Mark { mark: mark.to_owned(), spaces, front });
                if !flag("split", true)? {
                    return Some(());
                }
                Split::Before(first)
            }
            _ => return None,
        };
        self.steps.push(Step::Cut(cut));
        Some(())
    }

    /// Gives every word of a text.
    pub(crate) fn run(
        &self,
        text: Text<'_>,
        each: &mut dyn FnMut(Text<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        run(&self.steps, text, each)
    }
}

fn run(steps: &[Step], text: Text<'_>, each: &mut dyn FnMut(Text<'_>) -> Result<(), String>) -> Result<(), String> {
    if text.text.is_empty() {
        return Ok(());
    }
    let Some((step, rest)) = steps.split_first() else { return each(text) };
    match step {
        Step::Cut(split) if rest.is_empty() => split.run(text.text, |start, end| each(text.slice(start, end))),
        Step::Cut(split) => split.run(text.text, |start, end| run(rest, text.slice(start, end), each)),
        Step::PrefixSpace => match text.text.starts_with(' ') {
            true => run(rest, text, each),
            false => match prepend(text, " ") {
                Some(changed) => run(rest, changed.as_text(text.start), each),
                None => Ok(()),
            },
        },
        Step::Mark { mark, spaces, front } => {
            let marked = replace(text, spaces, mark);
            let now = marked.as_ref().map_or(text, |changed| changed.as_text(text.start));
            let front = match front {
                Front::Every => true,
                Front::First => text.start == 0,
                Front::None => false,
            };
            match front && !now.text.starts_with(mark.as_str()) {
                true => match prepend(now, mark) {
                    Some(changed) => run(rest, changed.as_text(text.start), each),
                    None => Ok(()),
                },
                false => run(rest, now, each),
            }
        }
    }
}
