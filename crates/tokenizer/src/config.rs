//! What stands beside the vocabulary: `tokenizer_config.json`, `special_tokens_map.json`, `added_tokens.json`, the chat
//! template. All are optional; what they say is read here and used by whoever builds the pipeline.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde_json::{Map, Value};

use crate::error::TokenizerError;
use crate::open::read_text;

/// A special token by its role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Special {
    /// Beginning of a text.
    Bos,
    /// End of a text.
    Eos,
    /// End of a turn, where it is another token than the end of a text.
    Eot,
    /// Stands for what the vocabulary lacks.
    Unk,
    /// Between or after texts (BERT).
    Sep,
    /// Padding.
    Pad,
    /// Before a text, its vector stands for the whole (BERT).
    Cls,
    /// A hidden word.
    Mask,
}

impl Special {
    /// All roles.
    pub const ALL: [Special; 8] =
        [Self::Bos, Self::Eos, Self::Eot, Self::Unk, Self::Sep, Self::Pad, Self::Cls, Self::Mask];

    /// The key in the configuration files: `bos_token`, …
    pub fn key(self) -> &'static str {
        match self {
            Self::Bos => "bos_token",
            Self::Eos => "eos_token",
            Self::Eot => "eot_token",
            Self::Unk => "unk_token",
            Self::Sep => "sep_token",
            Self::Pad => "pad_token",
            Self::Cls => "cls_token",
            Self::Mask => "mask_token",
        }
    }
}

/// A side of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Side {
    /// Before the tokens.
    Left,
    /// After the tokens.
    #[default]
    Right,
}

/// A token added to the vocabulary, as the files declare it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Added {
    pub(crate) content: String,
    pub(crate) id: Option<u32>,
    pub(crate) special: bool,
    pub(crate) normalized: bool,
    pub(crate) single_word: bool,
    pub(crate) lstrip: bool,
    pub(crate) rstrip: bool,
}

impl Added {
    pub(crate) fn special(content: &str) -> Self {
        Self {
            content: content.to_owned(),
            id: None,
            special: true,
            normalized: false,
            single_word: false,
            lstrip: false,
            rstrip: false,
        }
    }

    /// A token as the files write it: a string, or an object with `content` and flags.
    fn read(value: &Value, special: bool) -> Option<Self> {
        let content = match value {
            Value::String(s) => s,
            Value::Object(o) => o.get("content")?.as_str()?,
            _ => return None,
        };
        let flag = |key: &str, default: bool| value.get(key).and_then(Value::as_bool).unwrap_or(default);
        let special = flag("special", special);
        (!content.is_empty()).then(|| Self {
            content: content.to_owned(),
            id: None,
            special,
            normalized: flag("normalized", !special),
            single_word: flag("single_word", false),
            lstrip: flag("lstrip", false),
            rstrip: flag("rstrip", false),
        })
    }
}

/// The configuration of a tokenizer beside its vocabulary.
#[derive(Debug, Clone, Default)]
pub struct TokenizerConfig {
    /// `tokenizer_class`: the transformers class that the files were made for.
    pub tokenizer_class: Option<String>,
    /// `model_max_length`: the longest input in tokens, where one is set.
    pub model_max_length: Option<usize>,
    /// `padding_side`: where transformers would pad.
    pub padding_side: Side,
    /// The chat template's source (Jinja), if there is one.
    pub chat_template: Option<String>,
    /// Further chat templates by name (`tool_use`, `rag`, …).
    pub chat_templates: BTreeMap<String, String>,
    /// Texts of the special tokens by role.
    pub special: BTreeMap<Special, String>,
    pub(crate) added: Vec<Added>,
    /// Where in `added` a token stands.
    pub(crate) index: HashMap<String, usize>,
    pub(crate) raw: Map<String, Value>,
    /// `model_type` of config.json.
    pub(crate) model_type: Option<String>,
}

impl TokenizerConfig {
    /// Reads what a directory holds; a missing file says nothing, a broken one is an error.
    pub(crate) fn read(dir: &Path) -> Result<Self, TokenizerError> {
        let mut config = Self { raw: object(dir, "tokenizer_config.json")?.unwrap_or_default(), ..Self::default() };
        let map = object(dir, "special_tokens_map.json")?.unwrap_or_default();
        config.read_tokens(&map);
        let mut raw = std::mem::take(&mut config.raw);
        config.read_tokens(&raw);
        raw.remove("added_tokens_decoder");
        if let Some(added) = object(dir, "added_tokens.json")? {
            config.read_added_tokens(&added);
        }
        config.tokenizer_class = raw.get("tokenizer_class").and_then(Value::as_str).map(str::to_owned);
        // transformers writes 1e30 for "no limit".
        config.model_max_length =
            raw.get("model_max_length").and_then(Value::as_f64).filter(|n| (1.0..1e12).contains(n)).map(|n| n as usize);
        config.padding_side = match raw.get("padding_side").and_then(Value::as_str) {
            Some("left") => Side::Left,
            _ => Side::Right,
        };
        config.read_templates(dir, raw.get("chat_template"))?;
        config.raw = raw;
        config.model_type =
            object(dir, "config.json")?.and_then(|c| c.get("model_type").and_then(Value::as_str).map(str::to_owned));
        Ok(config)
    }

    /// Takes over the chat templates of another configuration, and its special tokens as far as they are `tokens`.
    pub(crate) fn prefer(&mut self, other: Self, tokens: &[String]) {
        if other.chat_template.is_some() {
            (self.chat_template, self.chat_templates) = (other.chat_template, other.chat_templates);
        }
        self.special.extend(other.special.into_iter().filter(|(_, text)| tokens.contains(text)));
    }

    /// Forgets what only the building of a pipeline asks for.
    pub(crate) fn settle(&mut self) {
        (self.added, self.index, self.raw) = (Vec::new(), HashMap::new(), Map::new());
    }

    /// A boolean of `tokenizer_config.json`.
    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        self.raw.get(key).and_then(Value::as_bool)
    }

    /// The class that the files were made for, without `Fast`; by `model_type` where no class is named.
    pub(crate) fn class(&self) -> &str {
        match (&self.tokenizer_class, self.model_type.as_deref()) {
            (Some(class), _) if class != "PreTrainedTokenizerFast" && class != "TokenizersBackend" => {
                class.strip_suffix("Fast").unwrap_or(class)
            }
            (_, Some("bert" | "distilbert")) => "BertTokenizer",
            (_, Some("mpnet")) => "MPNetTokenizer",
            (_, Some("roberta")) => "RobertaTokenizer",
            (_, Some("xlm-roberta")) => "XLMRobertaTokenizer",
            (_, Some("qwen2" | "qwen3")) => "Qwen2Tokenizer",
            (_, Some("t5" | "mt5")) => "T5Tokenizer",
            (_, Some("gpt2")) => "GPT2Tokenizer",
            (_, Some("llama" | "mistral")) => "LlamaTokenizer",
            (_, Some("gemma" | "gemma2" | "gemma3_text" | "gemma3")) => "GemmaTokenizer",
            (_, Some("albert")) => "AlbertTokenizer",
            (_, Some("deberta-v2")) => "DebertaV2Tokenizer",
            _ => "",
        }
    }

    fn add(&mut self, token: Added) {
        match self.index.get(&token.content) {
            Some(&at) => {
                let id = token.id.or(self.added[at].id);
                self.added[at] = Added { id, ..token };
            }
            None => {
                self.index.insert(token.content.clone(), self.added.len());
                self.added.push(token);
            }
        }
    }

    /// `bos_token` …, `additional_special_tokens` and `added_tokens_decoder` of a configuration file.
    fn read_tokens(&mut self, map: &Map<String, Value>) {
        for role in Special::ALL {
            if let Some(token) = map.get(role.key()).and_then(|v| Added::read(v, true)) {
                self.special.insert(role, token.content.clone());
                self.add(token);
            }
        }
        for key in ["additional_special_tokens", "extra_special_tokens"] {
            let tokens: Vec<&Value> = match map.get(key) {
                Some(Value::Array(list)) => list.iter().collect(),
                Some(Value::Object(by_name)) => by_name.values().collect(),
                _ => continue,
            };
            for token in tokens.into_iter().filter_map(|v| Added::read(v, true)) {
                self.add(token);
            }
        }
        if let Some(Value::Object(decoder)) = map.get("added_tokens_decoder") {
            let mut tokens: Vec<Added> = decoder
                .iter()
                .filter_map(|(id, v)| Some(Added { id: Some(id.parse().ok()?), ..Added::read(v, false)? }))
                .collect();
            tokens.sort_by_key(|t| t.id);
            for token in tokens {
                self.add(token);
            }
        }
    }

    /// The older `added_tokens.json`: text to id.
    fn read_added_tokens(&mut self, map: &Map<String, Value>) {
        let mut tokens: Vec<(&String, u32)> =
            map.iter().filter_map(|(text, id)| Some((text, u32::try_from(id.as_u64()?).ok()?))).collect();
        tokens.sort_by_key(|t| t.1);
        for (text, id) in tokens {
            match self.index.get(text) {
                Some(&at) => self.added[at].id = self.added[at].id.or(Some(id)),
                None => self.add(Added { id: Some(id), special: false, normalized: true, ..Added::special(text) }),
            }
        }
    }

    /// `chat_template` of the configuration (a text, or a list of named ones), overridden by `chat_template.jinja`.
    fn read_templates(&mut self, dir: &Path, value: Option<&Value>) -> Result<(), TokenizerError> {
        match value {
            Some(Value::String(text)) => self.chat_template = Some(text.clone()),
            Some(Value::Array(list)) => {
                for entry in list {
                    let part = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
                    if let (Some(name), Some(template)) = (part("name"), part("template")) {
                        if name == "default" {
                            self.chat_template = Some(template);
                        } else {
                            self.chat_templates.insert(name, template);
                        }
                    }
                }
            }
            _ => {}
        }
        let file = dir.join("chat_template.jinja");
        if file.is_file() {
            self.chat_template = Some(read_text(&file)?);
        } else if self.chat_template.is_none()
            && let Some(object) = object(dir, "chat_template.json")?
        {
            self.chat_template = object.get("chat_template").and_then(Value::as_str).map(str::to_owned);
        }
        Ok(())
    }
}

fn object(dir: &Path, name: &str) -> Result<Option<Map<String, Value>>, TokenizerError> {
    let path = dir.join(name);
    if !path.is_file() {
        return Ok(None);
    }
    match serde_json::from_str(&read_text(&path)?) {
        Ok(Value::Object(map)) => Ok(Some(map)),
        Ok(_) => Err(TokenizerError::Invalid { path, reason: "expected a JSON object".into() }),
        Err(error) => Err(TokenizerError::Invalid { path, reason: format!("not valid JSON: {error}") }),
    }
}
