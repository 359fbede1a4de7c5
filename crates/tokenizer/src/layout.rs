//! What goes around a text, or between two: the post-processors of `tokenizer.json`.

use serde_json::Value;

/// A part of what a post-processor makes: a token of its own or a text, with their type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// A token: id, type.
    Token(u32, u32),
    /// The first text, with its type.
    First(u32),
    /// The second text, with its type.
    Second(u32),
}

/// What is made of one text and of two, with and without special tokens.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    single: Vec<Slot>,
    pair: Vec<Slot>,
    /// The same, with no special tokens asked for.
    bare_pair: Vec<Slot>,
    bare_single: Vec<Slot>,
    /// Whether white space at the ends of tokens is taken off their offsets.
    pub(crate) trim: Option<Trim>,
}

/// How white space is taken off: whether the first token's one leading space was put in before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trim {
    pub(crate) prefix_space: bool,
}

impl Layout {
    /// Nothing goes around the texts.
    pub(crate) fn bare() -> Self {
        Self::new(vec![Slot::First(0)], vec![Slot::First(0), Slot::Second(1)])
    }

    fn new(single: Vec<Slot>, pair: Vec<Slot>) -> Self {
        let bare = |slots: &[Slot]| slots.iter().copied().filter(|s| !matches!(s, Slot::Token(..))).collect();
        let (bare_single, bare_pair) = (bare(&single), bare(&pair));
        Self { single, pair, bare_single, bare_pair, trim: None }
    }

    /// Special tokens around texts: `$A` and `$B` stand for them, `$B:1` for the second one with type 1, which its closing
    /// token then has too.
    ///
    /// # Errors
    /// A token that has no id.
    pub(crate) fn around(single: &[&str], pair: &[&str], id: impl Fn(&str) -> Option<u32>) -> Result<Self, String> {
        let slots = |pieces: &[&str]| {
            let mut kind = 0;
            let slot = |&piece: &&str| match piece {
                "$A" => Ok(Slot::First(0)),
                "$B" => Ok(Slot::Second(0)),
                "$B:1" => {
                    kind = 1;
                    Ok(Slot::Second(1))
                }
                token => match id(token) {
                    Some(id) => Ok(Slot::Token(id, kind)),
                    None => Err(format!("the vocabulary has no token {token}")),
                },
            };
            pieces.iter().map(slot).collect::<Result<Vec<_>, _>>()
        };
        Ok(Self::new(slots(single)?, slots(pair)?))
    }

    pub(crate) fn trimmed(self, prefix_space: bool) -> Self {
        Self { trim: Some(Trim { prefix_space }), ..self }
    }

    pub(crate) fn slots(&self, pair: bool, special: bool) -> &[Slot] {
        match (pair, special) {
            (false, true) => &self.single,
            (true, true) => &self.pair,
            (false, false) => &self.bare_single,
            (true, false) => &self.bare_pair,
        }
    }

    /// The post-processor that `tokenizer.json` describes; none for one that is not built here.
    pub(crate) fn read(value: &Value) -> Option<Self> {
        if value.is_null() {
            return Some(Self::bare());
        }
        let flag = |key: &str, default: bool| value.get(key).map_or(Some(default), Value::as_bool);
        let token = |key: &str| u32::try_from(value.get(key)?.get(1)?.as_u64()?).ok();
        match value.get("type")?.as_str()? {
            "ByteLevel" => {
                let (trim, prefix) = (flag("trim_offsets", true)?, flag("add_prefix_space", true)?);
                Some(if trim { Self::bare().trimmed(prefix) } else { Self::bare() })
            }
            "BertProcessing" => {
                let (sep, cls) = (token("sep")?, token("cls")?);
                let single = vec![Slot::Token(cls, 0), Slot::First(0), Slot::Token(sep, 0)];
                let pair = [single.clone(), vec![Slot::Second(1), Slot::Token(sep, 1)]].concat();
                Some(Self::new(single, pair))
            }
            "RobertaProcessing" => {
                let (sep, cls) = (token("sep")?, token("cls")?);
                let single = vec![Slot::Token(cls, 0), Slot::First(0), Slot::Token(sep, 0)];
                let second = vec![Slot::Token(sep, 0), Slot::Second(0), Slot::Token(sep, 0)];
                let layout = Self::new(single.clone(), [single, second].concat());
                let (trim, prefix) = (flag("trim_offsets", true)?, flag("add_prefix_space", true)?);
                Some(if trim { layout.trimmed(prefix) } else { layout })
            }
            "TemplateProcessing" => {
                let special = value.get("special_tokens");
                let (single, pair) = (template(value.get("single")?, special)?, template(value.get("pair")?, special)?);
                let count = |slots: &[Slot], first: bool| {
                    slots
                        .iter()
                        .filter(|s| matches!(s, Slot::First(_)) && first || matches!(s, Slot::Second(_)) && !first)
                        .count()
                };
                let once = count(&single, true) == 1 && count(&single, false) == 0;
                let once = once && count(&pair, true) == 1 && count(&pair, false) == 1;
                once.then(|| Self::new(single, pair))
            }
            "Sequence" => {
                // Steps that only take white space off, then at most one that adds tokens.
                let mut layout = Self::bare();
                let mut adds = false;
                for step in value.get("processors")?.as_array()? {
                    let step = Self::read(step)?;
                    if adds || layout.trim.is_some() && step.trim.is_some() {
                        return None;
                    }
                    adds = step.single != [Slot::First(0)];
                    layout = Self { trim: step.trim.or(layout.trim), ..step };
                }
                Some(layout)
            }
            _ => None,
        }
    }
}

/// The slots of a template.
fn template(pieces: &Value, special: Option<&Value>) -> Option<Vec<Slot>> {
    let mut slots = Vec::new();
    for piece in pieces.as_array()? {
        let (name, piece) = piece.as_object()?.iter().next()?;
        let id = piece.get("id")?.as_str()?;
        let kind = u32::try_from(piece.get("type_id")?.as_u64()?).ok()?;
        match (name.as_str(), id) {
            ("Sequence", "A") => slots.push(Slot::First(kind)),
            ("Sequence", "B") => slots.push(Slot::Second(kind)),
            ("SpecialToken", _) => {
                for id in special?.get(id)?.get("ids")?.as_array()? {
                    slots.push(Slot::Token(u32::try_from(id.as_u64()?).ok()?, kind));
                }
            }
            _ => return None,
        }
    }
    Some(slots)
}
