//! What a model's `generation_config.json` recommends.

use super::inference_config::{File, ids};
use super::{SamplingError, SamplingParams};
use serde_json::Value;
use std::path::Path;

const FILE: &str = "generation_config.json";

/// Options that would change the result but are not built: each with the value at which it does nothing.
const NOT_BUILT: &[(&str, f64)] = &[
    ("num_beams", 1.0),
    ("num_beam_groups", 1.0),
    ("penalty_alpha", 0.0),
    ("top_h", 0.0),
    ("epsilon_cutoff", 0.0),
    ("eta_cutoff", 0.0),
    ("encoder_repetition_penalty", 1.0),
    ("no_repeat_ngram_size", 0.0),
    ("encoder_no_repeat_ngram_size", 0.0),
    ("guidance_scale", 1.0),
    ("min_length", 0.0),
    ("min_new_tokens", 0.0),
    ("exponential_decay_length_penalty", 0.0),
    ("bad_words_ids", 0.0),
    ("sequence_bias", 0.0),
    ("suppress_tokens", 0.0),
    ("begin_suppress_tokens", 0.0),
    ("forced_bos_token_id", -1.0),
    ("forced_eos_token_id", -1.0),
    ("watermarking_config", 0.0),
    ("dola_layers", 0.0),
];

/// The recommendations of a model's `generation_config.json`; None for what it does not say.
///
/// Hugging Face's own defaults for what is absent (greedy, top-k 50) are not taken over: servers do not either.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingDefaults {
    /// See [`SamplingParams::temperature`].
    pub temperature: Option<f64>,
    /// See [`SamplingParams::top_k`].
    pub top_k: Option<usize>,
    /// See [`SamplingParams::top_p`].
    pub top_p: Option<f64>,
    /// See [`SamplingParams::min_p`].
    pub min_p: Option<f64>,
    /// See [`SamplingParams::typical_p`].
    pub typical_p: Option<f64>,
    /// See [`SamplingParams::repetition_penalty`].
    pub repetition_penalty: Option<f64>,
    /// False asks for greedy choice.
    pub do_sample: Option<bool>,
    /// The ids that end a text; empty if it does not say.
    pub eos: Vec<u32>,
    /// See [`SamplingParams::max_tokens`].
    pub max_new_tokens: Option<usize>,
    /// Options it sets that are not built, for the caller to report: they have no effect.
    pub not_built: Vec<&'static str>,
}

impl SamplingDefaults {
    /// What a model gets whose files recommend nothing, a lone `.gguf` above all: the defaults of llama.cpp, where such files
    /// are at home. Small models ramble when sampled from their whole distribution.
    pub fn without_file() -> SamplingDefaults {
        SamplingDefaults {
            temperature: Some(0.8),
            top_k: Some(40),
            top_p: Some(0.95),
            min_p: Some(0.05),
            ..SamplingDefaults::default()
        }
    }

    /// Reads the file of a model's directory; without one, [`SamplingDefaults::without_file`].
    ///
    /// # Errors
    /// [`SamplingError::Read`], [`SamplingError::TooLarge`], [`SamplingError::NotJson`], and those of
    /// [`SamplingDefaults::from_generation_config`].
    pub fn read(dir: &Path) -> Result<SamplingDefaults, SamplingError> {
        let file = File::read(dir, FILE)?;
        file.map_or_else(|| Ok(SamplingDefaults::without_file()), |file| SamplingDefaults::from_file(&file))
    }

    /// Takes the content of the file.
    ///
    /// # Errors
    /// [`SamplingError::NotJson`] if it is not an object, [`SamplingError::Config`] for a value of another type, or what
    /// [`SamplingParams::check`] says of the values.
    pub fn from_generation_config(value: &Value) -> Result<SamplingDefaults, SamplingError> {
        SamplingDefaults::from_file(&File::from_value(FILE, value)?)
    }

    fn from_file(file: &File) -> Result<SamplingDefaults, SamplingError> {
        let neutral = |value: &Value, off: f64| match value {
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            Value::Bool(on) => !on,
            other => other.as_f64() == Some(off),
        };
        let set = |&&(key, off): &&(&'static str, f64)| file.get(key).is_some_and(|value| !neutral(value, off));
        let defaults = SamplingDefaults {
            temperature: file.number("temperature")?,
            top_k: file.count("top_k")?,
            top_p: file.number("top_p")?,
            min_p: file.number("min_p")?,
            typical_p: file.number("typical_p")?,
            repetition_penalty: file.number("repetition_penalty")?,
            do_sample: file.parse("do_sample", "true or false", Value::as_bool)?,
            eos: file.parse("eos_token_id", "a token id or a list of them", ids)?.unwrap_or_default(),
            max_new_tokens: file.count("max_new_tokens")?,
            not_built: NOT_BUILT.iter().filter(set).map(|&(key, _)| key).collect(),
        };
        defaults.params().check()?;
        Ok(defaults)
    }

    /// The parameters to start from: these recommendations over [`SamplingParams::default`].
    pub fn params(&self) -> SamplingParams {
        let default = SamplingParams::default();
        let greedy = (self.do_sample == Some(false)).then_some(0.0);
        SamplingParams {
            temperature: greedy.or(self.temperature).unwrap_or(default.temperature),
            top_k: self.top_k.unwrap_or(default.top_k),
            top_p: self.top_p.unwrap_or(default.top_p),
            min_p: self.min_p.unwrap_or(default.min_p),
            typical_p: self.typical_p.unwrap_or(default.typical_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(default.repetition_penalty),
            max_tokens: self.max_new_tokens,
            ..default
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn takes_what_the_file_says_and_openai_defaults_for_the_rest() {
        let value = json!({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": [5, 7],
            "pad_token_id": 5, "min_p": null, "num_beams": 1, "transformers_version": "4.51.0"});
        let defaults = SamplingDefaults::from_generation_config(&value).unwrap();
        assert_eq!((defaults.eos.as_slice(), defaults.not_built.len()), ([5, 7].as_slice(), 0));
        let right = SamplingParams { temperature: 0.6, top_k: 20, top_p: 0.95, ..Default::default() };
        assert_eq!(defaults.params(), right);
        let empty = SamplingDefaults::from_generation_config(&json!({"eos_token_id": 2})).unwrap();
        assert_eq!((empty.params(), empty.eos), (SamplingParams::default(), vec![2]));
    }

    #[test]
    fn an_explicit_do_sample_false_is_greedy() {
        let value = json!({"do_sample": false, "temperature": 0.6, "max_new_tokens": 9});
        let params = SamplingDefaults::from_generation_config(&value).unwrap().params();
        assert_eq!((params.is_greedy(), params.max_tokens), (true, Some(9)));
    }

    #[test]
    fn names_what_it_sets_that_is_not_built() {
        let value = json!({"num_beams": 4, "no_repeat_ngram_size": 0, "suppress_tokens": [3], "bad_words_ids": []});
        let defaults = SamplingDefaults::from_generation_config(&value).unwrap();
        assert_eq!(defaults.not_built, ["num_beams", "suppress_tokens"]);
    }

    #[test]
    fn refuses_wrong_types_and_ranges_by_key() {
        let message = |value| SamplingDefaults::from_generation_config(&value).unwrap_err().to_string();
        assert_eq!(message(json!({"top_p": "high"})), r#"generation_config.json: top_p is "high", expected a number"#);
        assert_eq!(
            message(json!({"eos_token_id": [1, -2]})),
            "generation_config.json: eos_token_id is [1,-2], expected a token id or a list of them"
        );
        assert_eq!(message(json!({"top_p": 2.0})), "top_p is 2, expected a number from 0 to 1 (off)");
        assert_eq!(message(json!([])), "generation_config.json: not a JSON object: it is []");
    }
}
