//! `inference_config.json`: what the owner of a model directory tells Lattice about it, and reading such files.

use super::SamplingError;
use serde_json::{Map, Value};
use std::io::Read;
use std::path::Path;

const FILE: &str = "inference_config.json";
const KEYS: &str = "eos_token_id, rope_table_max_seq_len, gpu_max_seq_len";
/// Largest file that is read.
const MAX_BYTES: u64 = 4 << 20;
/// Longest list of end-of-sequence ids.
const MAX_EOS: usize = 4096;

/// A model directory's `inference_config.json`: a JSON object, all keys optional, unknown keys refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InferenceConfig {
    /// The ids that end a text, instead of those of the other files (a number or a list in the file).
    pub eos_token_id: Option<Vec<u32>>,
    /// Longest sequence in tokens for which rotary tables are made.
    pub rope_table_max_seq_len: Option<usize>,
    /// Longest sequence in tokens on a GPU.
    pub gpu_max_seq_len: Option<usize>,
}

impl InferenceConfig {
    /// Reads the file of a model's directory; no file says nothing.
    ///
    /// # Errors
    /// [`SamplingError::Read`], [`SamplingError::TooLarge`], [`SamplingError::NotJson`], and those of
    /// [`InferenceConfig::from_value`].
    pub fn read(dir: &Path) -> Result<InferenceConfig, SamplingError> {
        let file = File::read(dir, FILE)?;
        file.map_or_else(|| Ok(InferenceConfig::default()), |file| InferenceConfig::from_file(&file))
    }

    /// Takes the content of the file.
    ///
    /// # Errors
    /// [`SamplingError::NotJson`] if it is not an object, [`SamplingError::UnknownKey`], or [`SamplingError::Config`] for
    /// a value of another type.
    pub fn from_value(value: &Value) -> Result<InferenceConfig, SamplingError> {
        InferenceConfig::from_file(&File::from_value(FILE, value)?)
    }

    fn from_file(file: &File) -> Result<InferenceConfig, SamplingError> {
        if let Some(key) = file.map.keys().find(|key| !KEYS.split(", ").any(|known| known == key.as_str())) {
            return Err(SamplingError::UnknownKey { file: FILE, key: shortened(key), known: KEYS });
        }
        let length = |key| {
            let positive = |value: &Value| count(value).filter(|&n| n > 0);
            file.parse(key, "a length in tokens", positive)
        };
        Ok(InferenceConfig {
            eos_token_id: file.parse("eos_token_id", "a token id or a list of them", ids)?,
            rope_table_max_seq_len: length("rope_table_max_seq_len")?,
            gpu_max_seq_len: length("gpu_max_seq_len")?,
        })
    }
}

/// A JSON object with the name of its file, for errors.
pub(super) struct File {
    name: &'static str,
    map: Map<String, Value>,
}

impl File {
    /// The file of this name in a directory, if there is one.
    pub(super) fn read(dir: &Path, name: &'static str) -> Result<Option<File>, SamplingError> {
        let path = dir.join(name);
        let mut bytes = Vec::new();
        match std::fs::File::open(&path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes)) {
            Ok(_) if bytes.len() as u64 > MAX_BYTES => return Err(SamplingError::TooLarge { path, limit: MAX_BYTES }),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(SamplingError::Read { path, source }),
        }
        match serde_json::from_slice::<Value>(&bytes) {
            Ok(value) => File::from_value(name, &value).map(Some),
            Err(error) => Err(SamplingError::NotJson { file: path.display().to_string(), reason: error.to_string() }),
        }
    }

    pub(super) fn from_value(name: &'static str, value: &Value) -> Result<File, SamplingError> {
        match value {
            Value::Object(map) => Ok(File { name, map: map.clone() }),
            other => {
                let reason = format!("it is {}", shortened(&other.to_string()));
                Err(SamplingError::NotJson { file: name.into(), reason })
            }
        }
    }

    /// What stands at a key, unless it is `null`.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn parse<T>(
        &self,
        key: &str,
        expected: &'static str,
        parse: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, SamplingError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let error =
            || SamplingError::Config { file: self.name, key: key.into(), got: shortened(&value.to_string()), expected };
        parse(value).map(Some).ok_or_else(error)
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, SamplingError> {
        self.parse(key, "a number", Value::as_f64)
    }

    pub(super) fn count(&self, key: &str) -> Result<Option<usize>, SamplingError> {
        self.parse(key, "a whole number from 0 up", count)
    }
}

fn count(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|n| usize::try_from(n).ok())
}

/// A token id or a list of them.
pub(super) fn ids(value: &Value) -> Option<Vec<u32>> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Value::Array(list) if list.len() <= MAX_EOS => list.iter().map(id).collect(),
        other => Some(vec![id(other)?]),
    }
}

/// At most 60 characters of it.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_key_is_optional() {
        assert_eq!(InferenceConfig::from_value(&json!({})).unwrap(), InferenceConfig::default());
        let value = json!({"eos_token_id": 3, "rope_table_max_seq_len": 4096, "gpu_max_seq_len": null});
        let config = InferenceConfig::from_value(&value).unwrap();
        assert_eq!(config.eos_token_id, Some(vec![3]));
        assert_eq!((config.rope_table_max_seq_len, config.gpu_max_seq_len), (Some(4096), None));
        let config = InferenceConfig::from_value(&json!({"eos_token_id": [3, 9]})).unwrap();
        assert_eq!(config.eos_token_id, Some(vec![3, 9]));
    }

    #[test]
    fn refuses_unknown_keys_and_wrong_types() {
        let message = |value| InferenceConfig::from_value(&value).unwrap_err().to_string();
        assert_eq!(
            message(json!({"eos_token": 3})),
            "inference_config.json: unknown key eos_token, expected some of eos_token_id, rope_table_max_seq_len, \
             gpu_max_seq_len"
        );
        assert_eq!(
            message(json!({"gpu_max_seq_len": 0})),
            "inference_config.json: gpu_max_seq_len is 0, expected a length in tokens"
        );
        let long = "x".repeat(100);
        assert!(message(json!({"eos_token_id": long})).contains("xxx…, expected a token id"));
        assert_eq!(message(json!(3)), "inference_config.json: not a JSON object: it is 3");
    }

    #[test]
    fn reads_the_directory_and_says_where_it_is_no_json() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(InferenceConfig::read(dir.path()).unwrap(), InferenceConfig::default());
        std::fs::write(dir.path().join(FILE), r#"{"gpu_max_seq_len": 64}"#).unwrap();
        assert_eq!(InferenceConfig::read(dir.path()).unwrap().gpu_max_seq_len, Some(64));
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        let message = InferenceConfig::read(dir.path()).unwrap_err().to_string();
        assert!(
            message
                .ends_with("inference_config.json: not a JSON object: EOF while parsing an object at line 1 column 1"),
            "{message}"
        );
        std::fs::write(dir.path().join(FILE), vec![b' '; MAX_BYTES as usize + 1]).unwrap();
        let message = InferenceConfig::read(dir.path()).unwrap_err().to_string();
        assert!(message.ends_with("larger than 4194304 bytes, not a configuration file"), "{message}");
    }
}
