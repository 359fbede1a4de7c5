//! The older forms of a vocabulary, brought to the pipeline that transformers makes of them: BERT's `vocab.txt`, GPT-2's
//! `vocab.json` with `merges.txt`.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Value, json};
use tokenizers::models::bpe::BPE;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::{DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper};

use crate::config::{Added, Special, TokenizerConfig};
use crate::detokenize::Detokenizer;
use crate::error::TokenizerError;
use crate::open::read_text;
use crate::pipeline::{Model, Normalizer, Parts, Pipeline, guard};

/// The words of Qwen 2 and 3.
pub(crate) const QWEN2_PATTERN: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// A part of the pipeline from its description in `tokenizer.json`'s own terms.
pub(crate) fn part<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, String> {
    guard(|| Ok(serde_json::from_value(value)?))
}

/// A post-processor that puts special tokens around texts: `$A` and `$B` stand for them, `$B:1` for the second one with
/// type 1, which its closing token then has too.
pub(crate) fn template(
    single: &[&str],
    pair: &[&str],
    id: impl Fn(&str) -> Option<u32>,
) -> Result<PostProcessorWrapper, String> {
    let mut special = serde_json::Map::new();
    let mut items = |pieces: &[&str]| -> Result<Vec<Value>, String> {
        let mut kind = 0;
        let mut out = Vec::new();
        for &piece in pieces {
            out.push(match piece {
                "$A" => json!({"Sequence": {"id": "A", "type_id": 0}}),
                "$B" => json!({"Sequence": {"id": "B", "type_id": 0}}),
                "$B:1" => {
                    kind = 1;
                    json!({"Sequence": {"id": "B", "type_id": 1}})
                }
                token => {
                    let id = id(token).ok_or_else(|| format!("the vocabulary has no token {token}"))?;
                    special.insert(token.into(), json!({"id": token, "ids": [id], "tokens": [token]}));
                    json!({"SpecialToken": {"id": token, "type_id": kind}})
                }
            });
        }
        Ok(out)
    };
    let (single, pair) = (items(single)?, items(pair)?);
    part(json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}))
}

/// BERT's `vocab.txt`: one token a line, the line number is the id.
pub(crate) fn wordpiece(path: &Path, config: &mut TokenizerConfig) -> Result<Pipeline, TokenizerError> {
    let invalid = |reason| TokenizerError::Invalid { path: path.to_owned(), reason };
    let mpnet = match config.class() {
        "" | "BertTokenizer" | "DistilBertTokenizer" | "ElectraTokenizer" => false,
        "MPNetTokenizer" => true,
        class => {
            return Err(TokenizerError::Unsupported {
                path: path.to_owned(),
                what: format!("tokenizer_class {class} over a vocab.txt"),
            });
        }
    };
    let names: &[(Special, &str)] = if mpnet {
        &[
            (Special::Bos, "<s>"),
            (Special::Eos, "</s>"),
            (Special::Pad, "<pad>"),
            (Special::Unk, "[UNK]"),
            (Special::Cls, "<s>"),
            (Special::Sep, "</s>"),
            (Special::Mask, "<mask>"),
        ]
    } else {
        &[
            (Special::Pad, "[PAD]"),
            (Special::Unk, "[UNK]"),
            (Special::Cls, "[CLS]"),
            (Special::Sep, "[SEP]"),
            (Special::Mask, "[MASK]"),
        ]
    };
    name_defaults(config, names);
    let text = read_text(path)?;
    let vocab: HashMap<String, u32> =
        text.lines().zip(0..).map(|(token, id)| (token.trim_end().to_owned(), id)).collect();
    let special = |role: Special| config.special.get(&role).map_or("", String::as_str).to_owned();
    let (unk, cls, sep) = (special(Special::Unk), special(Special::Cls), special(Special::Sep));
    if !vocab.contains_key(&unk) {
        return Err(invalid(format!("no line is the unknown token {unk}")));
    }
    let post_processor = if mpnet {
        template(&[&cls, "$A", &sep], &[&cls, "$A", &sep, &sep, "$B", &sep], |t| vocab.get(t).copied())
    } else {
        template(&[&cls, "$A", &sep], &[&cls, "$A", &sep, "$B:1", &sep], |t| vocab.get(t).copied())
    }
    .map_err(invalid)?;
    let added = added(config, |token| vocab.contains_key(token));
    let model = guard(|| WordPiece::builder().vocab(vocab.into_iter().collect::<Vocab>()).unk_token(unk).build());
    let lowercase = config.flag("do_lower_case").unwrap_or(true);
    Pipeline::new(Parts {
        normalizer: Some(Normalizer::Hf(
            part::<NormalizerWrapper>(json!({
                "type": "BertNormalizer", "clean_text": true, "lowercase": lowercase,
                "handle_chinese_chars": config.flag("tokenize_chinese_chars").unwrap_or(true),
                "strip_accents": config.flag("strip_accents"),
            }))
            .map_err(invalid)?,
        )),
        pre_tokenizer: Some(part::<PreTokenizerWrapper>(json!({"type": "BertPreTokenizer"})).map_err(invalid)?),
        model: Model::Hf(model.map_err(invalid)?.into()),
        post_processor: Some(post_processor),
        detokenizer: Detokenizer::hf(Some(
            part::<DecoderWrapper>(json!({"type": "WordPiece", "prefix": "##", "cleanup": true})).map_err(invalid)?,
        )),
        added,
    })
    .map_err(invalid)
}

pub(crate) type Vocab = tokenizers::models::bpe::Vocab;

/// GPT-2's `vocab.json` and `merges.txt` in `dir`.
pub(crate) fn byte_level(dir: &Path, config: &mut TokenizerConfig) -> Result<Pipeline, TokenizerError> {
    let path = dir.join("vocab.json");
    let merges_path = dir.join("merges.txt");
    let invalid = |reason| TokenizerError::Invalid { path: path.clone(), reason };
    let vocab: HashMap<String, u32> =
        serde_json::from_str(&read_text(&path)?).map_err(|e| invalid(format!("not a JSON object of ids: {e}")))?;
    let merges = read_merges(&merges_path, &read_text(&merges_path)?)?;
    let prefix_space = config.flag("add_prefix_space").unwrap_or(false);
    let split = json!({"type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": true, "use_regex": true});
    let class = config.class().to_owned();
    let (names, normalizer, pre_tokenizer): (&[(Special, &str)], Value, Value) = match class.as_str() {
        "RobertaTokenizer" | "BartTokenizer" | "LongformerTokenizer" => (
            &[
                (Special::Bos, "<s>"),
                (Special::Eos, "</s>"),
                (Special::Sep, "</s>"),
                (Special::Cls, "<s>"),
                (Special::Unk, "<unk>"),
                (Special::Pad, "<pad>"),
                (Special::Mask, "<mask>"),
            ],
            Value::Null,
            split,
        ),
        "" | "GPT2Tokenizer" => (&[], Value::Null, split),
        "Qwen2Tokenizer" => {
            (&[(Special::Pad, "<|endoftext|>")], json!({"type": "NFC"}), byte_level_words(&[QWEN2_PATTERN]))
        }
        _ => {
            return Err(TokenizerError::Unsupported {
                path,
                what: format!("tokenizer_class {class} over a vocab.json"),
            });
        }
    };
    let roberta = !matches!(class.as_str(), "" | "GPT2Tokenizer" | "Qwen2Tokenizer");
    name_defaults(config, names);
    let special = |role: Special| config.special.get(&role).cloned().unwrap_or_default();
    let post_processor = if roberta {
        let id = |token: &str| vocab.get(token).ok_or_else(|| invalid(format!("no token {token}")));
        let (cls, sep) = (special(Special::Cls), special(Special::Sep));
        json!({"type": "RobertaProcessing", "sep": [sep, id(&sep)?], "cls": [cls, id(&cls)?],
               "trim_offsets": true, "add_prefix_space": prefix_space})
    } else {
        json!({"type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": false, "use_regex": true})
    };
    let added = added(config, |token| vocab.contains_key(token));
    let model = guard(|| BPE::builder().vocab_and_merges(vocab.into_iter().collect::<Vocab>(), merges).build());
    Pipeline::new(Parts {
        normalizer: part::<Option<NormalizerWrapper>>(normalizer).map_err(invalid)?.map(Normalizer::Hf),
        pre_tokenizer: part(pre_tokenizer).map_err(invalid)?,
        model: Model::Hf(model.map_err(invalid)?.into()),
        post_processor: part(post_processor).map_err(invalid)?,
        detokenizer: Detokenizer::byte_level(),
        added,
    })
    .map_err(invalid)
}

/// Words by patterns, one after another, then bytes as characters.
pub(crate) fn byte_level_words(patterns: &[&str]) -> Value {
    let split = |p: &&str| json!({"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": false});
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
    let steps: Vec<Value> = patterns.iter().map(split).chain([bytes]).collect();
    json!({"type": "Sequence", "pretokenizers": steps})
}

fn read_merges(path: &Path, text: &str) -> Result<Vec<(String, String)>, TokenizerError> {
    let merge = |(number, line): (usize, &str)| {
        let pair = line.split_once(' ').filter(|(_, b)| !b.contains(' '));
        let (a, b) = pair.ok_or_else(|| TokenizerError::Invalid {
            path: path.to_owned(),
            reason: format!("line {}: expected two tokens, got {line:?}", number + 1),
        })?;
        Ok((a.to_owned(), b.to_owned()))
    };
    text.lines()
        .map(str::trim_end)
        .enumerate()
        .filter(|(_, line)| !line.is_empty() && !line.starts_with("#version"))
        .map(merge)
        .collect()
}

fn name_defaults(config: &mut TokenizerConfig, names: &[(Special, &str)]) {
    for &(role, token) in names {
        config.special.entry(role).or_insert_with(|| token.to_owned());
    }
}

/// The special tokens by role and the declared added tokens, as far as the vocabulary has them or they bring an id.
fn added(config: &TokenizerConfig, known: impl Fn(&str) -> bool) -> Vec<Added> {
    let mut tokens: Vec<Added> = config.added.iter().filter(|t| t.id.is_some() || known(&t.content)).cloned().collect();
    for token in config.special.values() {
        if known(token) && !tokens.iter().any(|t| t.content == *token) {
            tokens.push(Added::special(token));
        }
    }
    tokens
}
