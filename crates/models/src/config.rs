//! What does config.json say? Typed, bounded reads of it, with errors that name the key, what stands there and what
//! could stand there.
//!
//! `null` counts as absent, as it does for Hugging Face's own classes. Numbers are bounded where they enter: whatever
//! passes here can be multiplied and allocated without further checks of its own.

use crate::error::{ModelError, Result};
use ops::Activation;
use serde_json::{Map, Value};
use std::io::Read;
use std::path::Path;

/// Bytes of a config.json; label lists of large classifiers take a few hundred kilobytes.
pub const MAX_CONFIG_BYTES: u64 = 16 << 20;
/// Features of a row.
pub const MAX_HIDDEN: usize = 1 << 16;
/// Inner features of a feed-forward network.
pub const MAX_INNER: usize = 1 << 20;
/// Layers of a model.
pub const MAX_LAYERS: usize = 1024;
/// Attention heads of a layer.
pub const MAX_HEADS: usize = 4096;
/// Rows of a token table.
pub const MAX_VOCAB: usize = 4 << 20;
/// Positions of a window.
pub const MAX_POSITIONS: usize = 16 << 20;
/// Token types, labels.
pub const MAX_KINDS: usize = 1 << 16;

/// Experts of a layer.
pub const MAX_EXPERTS: usize = 1 << 12;

/// config.json, or an object inside of it.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The keys that lead here, each with a dot after it.
    at: String,
    map: Map<String, Value>,
}

impl Config {
    /// Reads `config.json` in a model directory.
    ///
    /// # Errors
    /// [`ModelError::Read`], [`ModelError::TooLarge`] or [`ModelError::NotJson`].
    pub fn read(dir: &Path) -> Result<Config> {
        let path = dir.join("config.json");
        let read = |source| ModelError::Read { path: path.clone(), source };
        let mut bytes = Vec::new();
        let file = std::fs::File::open(&path).map_err(read)?;
        file.take(MAX_CONFIG_BYTES + 1).read_to_end(&mut bytes).map_err(read)?;
        if bytes.len() as u64 > MAX_CONFIG_BYTES {
            return Err(ModelError::TooLarge { path, limit: MAX_CONFIG_BYTES });
        }
        Config::from_json(&bytes).map_err(|reason| ModelError::NotJson { path, reason })
    }

    /// Parses the text of a config.json; the error says where it stops being a JSON object.
    pub fn from_json(bytes: &[u8]) -> Result<Config, String> {
        let map = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        Ok(Config { at: String::new(), map })
    }

    /// A configuration that is JSON already; `None` unless it is an object.
    pub fn from_value(value: Value) -> Option<Config> {
        let Value::Object(map) = value else { return None };
        Some(Config { at: String::new(), map })
    }

    /// What stands at a key, unless it is `null`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|v| !v.is_null())
    }

    /// Does `null` stand at a key? For the few options where that is not the same as absent.
    pub fn is_null(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(Value::is_null)
    }

    /// The same with these numbers where their keys are absent.
    pub fn with_defaults(mut self, defaults: &[(&str, usize)]) -> Config {
        for &(key, number) in defaults {
            self.map.entry(key).or_insert_with(|| number.into());
        }
        self
    }

    /// Has it no keys?
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The first of these keys that is there, or else the first: one option under its several names.
    pub fn either<'k>(&self, keys: &[&'k str]) -> &'k str {
        keys.iter().copied().find(|k| self.get(k).is_some()).unwrap_or(keys[0])
    }

    /// The object at a key.
    pub fn section(&self, key: &str) -> Result<Option<Config>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(Config { at: format!("{}{key}.", self.at), map: map.clone() })),
            Some(_) => Err(self.wrong(key, "an object")),
        }
    }

    /// A count from 1 to `max`.
    pub fn size(&self, key: &str, max: usize) -> Result<usize> {
        self.count(key, 1, max)
    }

    /// [`Config::size`], or `default` where the key is absent.
    pub fn size_or(&self, key: &str, max: usize, default: usize) -> Result<usize> {
        if self.get(key).is_some() { self.count(key, 1, max) } else { Ok(default) }
    }

    /// A number from 0 to `max`, or `default` where the key is absent.
    pub fn index_or(&self, key: &str, max: usize, default: usize) -> Result<usize> {
        if self.get(key).is_some() { self.count(key, 0, max) } else { Ok(default) }
    }

    fn count(&self, key: &str, min: usize, max: usize) -> Result<usize> {
        let number = self.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        number
            .filter(|n| (min..=max).contains(n))
            .ok_or_else(|| self.wrong(key, format!("a whole number from {min} to {max}")))
    }

    /// A positive number that an f32 can hold, or `default` where the key is absent.
    pub fn float_or(&self, key: &str, default: f64) -> Result<f64> {
        let Some(value) = self.get(key) else { return Ok(default) };
        let ok = |v: &f64| (f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX)).contains(v);
        value.as_f64().filter(ok).ok_or_else(|| self.wrong(key, "a positive number"))
    }

    /// `true` or `false`, or `default` where the key is absent.
    pub fn flag_or(&self, key: &str, default: bool) -> Result<bool> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.wrong(key, "true or false"))
    }

    /// A string, or `default` where the key is absent.
    pub fn text_or<'a>(&'a self, key: &str, default: &'a str) -> Result<&'a str> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_str().ok_or_else(|| self.wrong(key, "a string"))
    }

    /// The activation that a string names, or `default` where the key is absent.
    ///
    /// # Errors
    /// [`ModelError::Option`] for one that is not in [`ACTIVATIONS`].
    pub fn activation(&self, key: &str, default: &str) -> Result<Activation> {
        let name = self.text_or(key, default)?;
        let known = ACTIVATIONS.iter().find(|(n, _)| *n == name);
        let names = || ACTIVATIONS.iter().map(|(n, _)| *n).collect::<Vec<_>>().join(", ");
        known.map(|(_, kind)| *kind).ok_or_else(|| self.not_built(key, names()))
    }

    /// Refuses an option that changes the numbers, unless it is absent or has the one value that is built.
    ///
    /// # Errors
    /// [`ModelError::Option`].
    pub fn only(&self, key: &str, built: impl Into<Value>) -> Result<()> {
        let built = built.into();
        match self.get(key) {
            Some(got) if *got != built && (got.as_f64().is_none() || got.as_f64() != built.as_f64()) => {
                Err(self.not_built(key, built.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Features of a head, where the heads share a row of `hidden` features evenly.
    ///
    /// # Errors
    /// [`ModelError::Config`] if `heads` (read from `key`) does not divide `hidden`.
    pub fn head_dim(&self, key: &str, hidden: usize, heads: usize) -> Result<usize> {
        if hidden.is_multiple_of(heads) {
            Ok(hidden / heads)
        } else {
            Err(self.wrong(key, format!("a divisor of {hidden}")))
        }
    }

    /// The base frequency of plain rotary positions, in both styles of config.json: `rope_parameters`, there under the
    /// layers' type if they differ, or `theta` beside `rope_scaling`.
    ///
    /// # Errors
    /// [`ModelError::Option`] for scaled or partial rotary positions.
    pub fn rope_base(&self, layers: Option<&str>, theta: &str, default: f64) -> Result<f64> {
        if let Some(scaling) = self.section("rope_scaling")? {
            scaling.plain_rope()?;
        }
        let default = self.float_or(theta, default)?;
        let Some(mut rope) = self.section("rope_parameters")? else { return Ok(default) };
        if let Some(layers) = layers {
            let Some(inner) = rope.section(layers)? else { return Ok(default) };
            rope = inner;
        }
        rope.plain_rope()?;
        rope.float_or("rope_theta", default)
    }

    fn plain_rope(&self) -> Result<()> {
        self.only("rope_type", "default")?;
        self.only("type", "default")?;
        self.only("partial_rotary_factor", 1.0)
    }

    /// The class that saved the checkpoint: `architectures[0]`, or nothing.
    pub fn architecture(&self) -> &str {
        self.get("architectures").and_then(|a| a.get(0)).and_then(Value::as_str).unwrap_or_default()
    }

    /// Does the checkpoint end in a sequence-classification head?
    pub fn classifies(&self) -> bool {
        self.architecture().ends_with("ForSequenceClassification")
    }

    /// Names of a classifier's outputs, in order: `id2label`, or `LABEL_0`, … for `num_labels` of them (2 if neither is
    /// there, as for Hugging Face's classes).
    pub fn labels(&self) -> Result<Vec<String>> {
        let Some(named) = self.section("id2label")? else {
            let key = self.either(&["num_labels", "_num_labels"]);
            return Ok((0..self.size_or(key, MAX_KINDS, 2)?).map(|i| format!("LABEL_{i}")).collect());
        };
        if named.map.is_empty() || named.map.len() > MAX_KINDS {
            return Err(self.wrong("id2label", format!("from 1 to {MAX_KINDS} labels")));
        }
        (0..named.map.len())
            .map(|i| {
                let key = i.to_string();
                let label = named.get(&key).and_then(Value::as_str);
                label.map(str::to_owned).ok_or_else(|| named.wrong(&key, "a label"))
            })
            .collect()
    }

    /// The keys at this level whose value is this number: where a wrong size may have come from.
    pub(crate) fn keys_of(&self, size: usize) -> Vec<&str> {
        let is = |v: &Value| v.as_u64() == u64::try_from(size).ok();
        self.map.iter().filter(|(_, v)| is(v)).map(|(k, _)| k.as_str()).take(3).collect()
    }

    /// [`ModelError::Config`] about a key.
    pub fn wrong(&self, key: &str, expected: impl Into<String>) -> ModelError {
        ModelError::Config { key: format!("{}{key}", self.at), got: self.shown(key), expected: expected.into() }
    }

    /// [`ModelError::Option`] about a key.
    pub fn not_built(&self, key: &str, built: impl Into<String>) -> ModelError {
        ModelError::Option { key: format!("{}{key}", self.at), got: self.shown(key), built: built.into() }
    }

    fn shown(&self, key: &str) -> String {
        let Some(value) = self.map.get(key) else { return "missing".into() };
        let text = value.to_string();
        let short: String = text.chars().take(80).collect();
        if short.len() < text.len() { short + "…" } else { short }
    }
}

/// The activations by their names in config.json.
pub const ACTIVATIONS: &[(&str, Activation)] = &[
    ("gelu", Activation::Gelu),
    ("gelu_python", Activation::Gelu),
    ("gelu_new", Activation::GeluTanh),
    ("gelu_fast", Activation::GeluTanh),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("gelu_accurate", Activation::GeluTanh),
    ("quick_gelu", Activation::QuickGelu),
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
    ("relu", Activation::Relu),
    ("relu2", Activation::Relu2),
    ("tanh", Activation::Tanh),
    ("sigmoid", Activation::Sigmoid),
];
