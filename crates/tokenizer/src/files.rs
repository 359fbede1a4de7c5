//! The older forms of a vocabulary, brought to the pipeline that transformers makes of them: BERT's `vocab.txt`, GPT-2's
//! `vocab.json` with `merges.txt`.

use std::collections::HashMap;
use std::path::Path;

use crate::bpe::{Bpe, MergeList, Options};
use crate::config::{Added, Special, TokenizerConfig};
use crate::detokenize::Detokenizer;
use crate::error::TokenizerError;
use crate::layout::Layout;
use crate::normalize::{Bert, Normalizer};
use crate::open::{Loaded, read_text};
use crate::pipeline::{Parts, Pipeline};
use crate::pretokenize::Words;
use crate::vocab::{Builder, Vocab};
use crate::wordpiece::WordPiece;
use crate::words::{GPT2, QWEN2};

/// The most characters of a word that BERT looks at.
pub(crate) const LONGEST_WORD: usize = 100;

/// BERT's `vocab.txt`: one token a line, the line number is the id.
pub(crate) fn wordpiece(path: &Path, config: &mut TokenizerConfig) -> Result<Loaded, TokenizerError> {
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
    let vocab = Vocab::new(text.lines().map(str::trim_end)).map_err(invalid)?;
    let special = |role: Special| config.special.get(&role).map_or("", String::as_str).to_owned();
    let (unk, cls, sep) = (special(Special::Unk), special(Special::Cls), special(Special::Sep));
    let id = |token: &str| vocab.get(token.as_bytes());
    if id(&unk).is_none() {
        return Err(invalid(format!("no line is the unknown token {unk}")));
    }
    let layout = if mpnet {
        Layout::around(&[&cls, "$A", &sep], &[&cls, "$A", &sep, &sep, "$B", &sep], id)
    } else {
        Layout::around(&[&cls, "$A", &sep], &[&cls, "$A", &sep, "$B:1", &sep], id)
    }
    .map_err(invalid)?;
    let added = added(config, |token| id(token).is_some());
    let lowercase = config.flag("do_lower_case").unwrap_or(true);
    let bert = Bert {
        clean: true,
        space_chinese: config.flag("tokenize_chinese_chars").unwrap_or(true),
        strip_accents: config.flag("strip_accents").unwrap_or(lowercase),
        lowercase,
    };
    let model = WordPiece::new(vocab, &unk, "##", LONGEST_WORD).map_err(invalid)?;
    let parts = Parts { normalizer: Some(Normalizer::Bert(bert)), words: Words::bert(), layout, added };
    Ok((Box::new(Pipeline::wordpiece(model, parts)), Detokenizer::wordpiece()))
}

/// GPT-2's `vocab.json` and `merges.txt` in `dir`.
pub(crate) fn byte_level(dir: &Path, config: &mut TokenizerConfig) -> Result<Loaded, TokenizerError> {
    let path = dir.join("vocab.json");
    let merges_path = dir.join("merges.txt");
    let invalid = |reason| TokenizerError::Invalid { path: path.clone(), reason };
    let ids: HashMap<String, u32> =
        serde_json::from_str(&read_text(&path)?).map_err(|e| invalid(format!("not a JSON object of ids: {e}")))?;
    let mut builder = Builder::default();
    for (token, &id) in &ids {
        builder.insert(token.as_bytes(), id).map_err(invalid)?;
    }
    let clash = || invalid(format!("two tokens have the same id, or an id is far beyond their number, {}", ids.len()));
    let vocab = builder.sorted(MAX_GAP).ok_or_else(clash)?.build();
    let merges = read_merges(&vocab, &merges_path, &read_text(&merges_path)?)?;
    let prefix_space = config.flag("add_prefix_space").unwrap_or(false);
    let class = config.class().to_owned();
    let (names, normalizer, pattern): (&[(Special, &str)], _, _) = match class.as_str() {
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
            None,
            GPT2,
        ),
        "" | "GPT2Tokenizer" => (&[], None, GPT2),
        "Qwen2Tokenizer" => (&[(Special::Pad, "<|endoftext|>")], Some(Normalizer::Nfc), QWEN2),
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
    let id = |token: &str| vocab.get(token.as_bytes());
    let layout = if roberta {
        let (cls, sep) = (special(Special::Cls), special(Special::Sep));
        let (cls, sep) = (cls.as_str(), sep.as_str());
        let pair = [cls, "$A", sep, sep, "$B", sep];
        Layout::around(&[cls, "$A", sep], &pair, id).map_err(invalid)?.trimmed(prefix_space)
    } else {
        Layout::bare()
    };
    let added = added(config, |token| id(token).is_some());
    let prefix_space = prefix_space && class != "Qwen2Tokenizer";
    let words = Words::bytes(&[pattern], prefix_space).map_err(invalid)?;
    let model = Bpe::new(vocab, merges, &Options { byte_level: true, ..Options::default() }).map_err(invalid)?;
    let pipeline = Pipeline::new(model, Parts { normalizer, words, layout, added });
    Ok((Box::new(pipeline), Detokenizer::byte_level()))
}

/// Ids of a vocabulary may leave out so many numbers.
const MAX_GAP: usize = 1 << 16;

fn read_merges(vocab: &Vocab, path: &Path, text: &str) -> Result<MergeList, TokenizerError> {
    let mut merges = MergeList::default();
    for (number, line) in text.lines().map(str::trim_end).enumerate() {
        if line.is_empty() || line.starts_with("#version") {
            continue;
        }
        let invalid = |reason| TokenizerError::Invalid {
            path: path.to_owned(),
            reason: format!("line {}: {reason}", number + 1),
        };
        let pair = line.split_once(' ').filter(|(_, b)| !b.contains(' '));
        let (left, right) = pair.ok_or_else(|| invalid(format!("expected two tokens, got {line:?}")))?;
        merges.push(vocab, left.as_bytes(), right.as_bytes()).map_err(invalid)?;
    }
    Ok(merges)
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
