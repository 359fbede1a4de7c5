//! Which vocabulary does a GGUF file carry? The values of its `tokenizer.*` keys, for whoever builds a tokenizer of them.

use super::metadata::{Metadata, Numbers, Strings, Value};
use crate::{Result, WeightsError};

/// The most tokens of a vocabulary.
pub const MAX_TOKENS: usize = 1 << 22;

/// The `tokenizer.*` keys of a GGUF file, as plain values. Lists are empty and options `None` where a key is absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vocab {
    /// `tokenizer.ggml.model`: `gpt2`, `llama`, `bert`, `t5`, …
    pub model: String,
    /// `tokenizer.ggml.pre`: how text is split before byte-level merging.
    pub pre: Option<String>,
    /// `tokenizer.ggml.tokens`, by id.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.scores`, by id.
    pub scores: Vec<f32>,
    /// `tokenizer.ggml.token_type`, by id: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub types: Vec<i32>,
    /// `tokenizer.ggml.merges`, the best first: two tokens with a space between them.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.bos_token_id`.
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.eot_token_id`: the end of a turn, where it is another token than `eos`.
    pub eot: Option<u32>,
    /// `tokenizer.ggml.unknown_token_id`.
    pub unk: Option<u32>,
    /// `tokenizer.ggml.seperator_token_id` (spelled so).
    pub sep: Option<u32>,
    /// `tokenizer.ggml.padding_token_id`.
    pub pad: Option<u32>,
    /// `tokenizer.ggml.cls_token_id`.
    pub cls: Option<u32>,
    /// `tokenizer.ggml.mask_token_id`.
    pub mask: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`.
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_eos_token`.
    pub add_eos: Option<bool>,
    /// `tokenizer.ggml.add_sep_token`.
    pub add_sep: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`.
    pub add_space_prefix: Option<bool>,
    /// `tokenizer.ggml.remove_extra_whitespaces`.
    pub remove_extra_spaces: Option<bool>,
    /// `tokenizer.ggml.precompiled_charsmap`: sentencepiece's normalization rules.
    pub charsmap: Vec<u8>,
    /// `tokenizer.chat_template`.
    pub chat_template: Option<String>,
}

impl Vocab {
    /// Reads the keys. Special ids were checked to be ids of `tokens` when the file was parsed.
    ///
    /// # Errors
    /// [`WeightsError::GgufKey`] without a vocabulary, [`WeightsError::GgufField`] for a value of another type or a list
    /// of another length than `tokens`, [`WeightsError::GgufBound`] beyond [`MAX_TOKENS`].
    pub fn read(metadata: &Metadata) -> Result<Vocab> {
        let text = |key: &str| Ok::<_, WeightsError>(metadata.find::<&str>(&full(key))?.map(str::to_string));
        let list = |key: &str| Ok::<_, WeightsError>(metadata.find::<&Strings>(&full(key))?.map_or(vec![], strings));
        let id = |key: &str| metadata.find::<u32>(&full(&format!("{key}_token_id")));
        let flag = |key: &str| metadata.find::<bool>(&full(key));
        let tokens = strings(metadata.get(&full("tokens"))?);
        if tokens.len() > MAX_TOKENS {
            let (got, limit) = (tokens.len() as u64, MAX_TOKENS as u64);
            return Err(WeightsError::GgufBound { field: full("tokens"), got, limit });
        }
        let n = tokens.len();
        Ok(Vocab {
            model: metadata.get::<&str>(&full("model"))?.to_string(),
            pre: text("pre")?,
            scores: numbers(metadata, "scores", Some(n), "a float", |v| match v {
                Value::Float(v) => Some(*v as f32),
                _ => None,
            })?,
            types: numbers(metadata, "token_type", Some(n), "a 32-bit integer", |v| match v {
                Value::Unsigned(v) => (*v).try_into().ok(),
                Value::Signed(v) => (*v).try_into().ok(),
                _ => None,
            })?,
            tokens,
            merges: list("merges")?,
            bos: id("bos")?,
            eos: id("eos")?,
            eot: id("eot")?,
            unk: id("unknown")?,
            sep: id("seperator")?,
            pad: id("padding")?,
            cls: id("cls")?,
            mask: id("mask")?,
            add_bos: flag("add_bos_token")?,
            add_eos: flag("add_eos_token")?,
            add_sep: flag("add_sep_token")?,
            add_space_prefix: flag("add_space_prefix")?,
            remove_extra_spaces: flag("remove_extra_whitespaces")?,
            charsmap: numbers(metadata, "precompiled_charsmap", None, "a byte", |v| match v {
                Value::Unsigned(v) => (*v).try_into().ok(),
                Value::Signed(v) => i8::try_from(*v).ok().map(|v| v as u8), // some writers say that bytes have a sign
                _ => None,
            })?,
            chat_template: metadata.find::<&str>("tokenizer.chat_template")?.map(str::to_string),
        })
    }
}

fn full(key: &str) -> String {
    format!("tokenizer.ggml.{key}")
}

fn strings(list: &Strings) -> Vec<String> {
    list.iter().map(str::to_string).collect()
}

/// A list of numbers, as long as there are tokens where that is asked for; empty if the key is absent.
fn numbers<T>(
    metadata: &Metadata,
    key: &str,
    length: Option<usize>,
    each: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Vec<T>> {
    let Some(list) = metadata.find::<&Numbers>(&full(key))? else { return Ok(vec![]) };
    let other = |got: String, expected: String| WeightsError::GgufField { field: full(key), got, expected };
    if let Some(length) = length.filter(|&length| length != list.len()) {
        return Err(other(format!("a list of {}", list.len()), format!("{length}, one for each token")));
    }
    let read =
        |(i, v): (usize, Value)| read(&v).ok_or_else(|| other(format!("{v} at {i}"), format!("{each} for each")));
    list.iter().enumerate().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::parse;
    use crate::gguf::tests::Builder;

    fn vocab(builder: Builder) -> Result<Vocab> {
        Vocab::read(&parse(&builder.build()).unwrap().metadata)
    }

    fn small() -> Builder {
        Builder::default().text("tokenizer.ggml.model", "llama").strings("tokenizer.ggml.tokens", &["a", "b", "<s>"])
    }

    #[test]
    fn what_a_file_says_of_its_tokenizer_is_read_and_what_it_leaves_out_is_empty() {
        let full = small()
            .f32s("tokenizer.ggml.scores", &[0.0, -1.0, 0.5])
            .i32s("tokenizer.ggml.token_type", &[1, 1, 3])
            .strings("tokenizer.ggml.merges", &["a b"])
            .u32("tokenizer.ggml.bos_token_id", 2)
            .flag("tokenizer.ggml.add_bos_token", true)
            .text("tokenizer.chat_template", "{{ x }}");
        let expected = Vocab {
            model: "llama".into(),
            tokens: ["a", "b", "<s>"].map(String::from).into(),
            scores: vec![0.0, -1.0, 0.5],
            types: vec![1, 1, 3],
            merges: vec!["a b".into()],
            bos: Some(2),
            add_bos: Some(true),
            chat_template: Some("{{ x }}".into()),
            ..Vocab::default()
        };
        assert_eq!(vocab(full).unwrap(), expected);
        assert!(vocab(small()).unwrap().scores.is_empty());
    }

    #[test]
    fn lists_of_another_length_or_type_are_refused_by_key() {
        for (builder, expected) in [
            (Builder::default(), "the metadata have no tokenizer.ggml.tokens, expected a list of texts"),
            (
                small().f32s("tokenizer.ggml.scores", &[0.0]),
                "tokenizer.ggml.scores is a list of 1, expected 3, one for each token",
            ),
            (
                small().f32s("tokenizer.ggml.token_type", &[0.5; 3]),
                "tokenizer.ggml.token_type is 0.5 at 0, expected a 32-bit integer for each",
            ),
            (
                small().text("tokenizer.ggml.scores", "x"),
                "tokenizer.ggml.scores is \"x\", expected a list of numbers or flags",
            ),
        ] {
            assert_eq!(vocab(builder).unwrap_err().to_string(), expected);
        }
    }
}
