//! From a `.model` file to a pipeline; which special tokens go around a text is known by the transformers class only.

use std::path::Path;

use super::{Algorithm, Kind, ModelType, Normalizer, Proto, Segmenter, Surface};
use crate::config::{Added, Special, TokenizerConfig};
use crate::detokenize::Detokenizer;
use crate::error::TokenizerError;
use crate::layout::Layout;
use crate::model::Model as _;
use crate::normalize;
use crate::open::{Loaded, SourceKind};
use crate::pipeline::{Parts, Pipeline};
use crate::pretokenize::Words;

/// Reads a SentencePiece model. Without a `tokenizer_class` the ids are the library's own, nothing is put around the
/// text, and `<s>` in a text is three characters; with one, ids and special tokens are those of the class.
pub(crate) fn load(
    path: &Path,
    bytes: &[u8],
    config: &mut TokenizerConfig,
) -> Result<(Loaded, SourceKind), TokenizerError> {
    let invalid = |reason| TokenizerError::Invalid { path: path.to_owned(), reason };
    let unsupported = |what: String| TokenizerError::Unsupported { path: path.to_owned(), what };
    let proto = Proto::read(bytes).map_err(invalid)?;
    let (algorithm, kind) = match proto.model_type {
        ModelType::Unigram => (Algorithm::Unigram, SourceKind::SentencePieceUnigram),
        ModelType::Bpe => (Algorithm::Bpe, SourceKind::SentencePieceBpe),
    };
    let pieces = proto.pieces.iter().map(|p| (p.text.as_str(), p.score, p.kind));
    let mut segmenter = Segmenter::new(pieces, algorithm, proto.byte_fallback).map_err(invalid)?;
    let mut normalizer = Normalizer::new(&proto, segmenter.symbols()).map_err(invalid)?;

    let class = config.class().to_owned();
    if class != "XLMRobertaTokenizer" {
        name_roles(&proto, config);
    }
    let name = |role: Special, default: &str| config.special.get(&role).cloned().unwrap_or_else(|| default.into());
    let (bos, eos) = (name(Special::Bos, "<s>"), name(Special::Eos, "</s>"));
    let (cls, sep) = (name(Special::Cls, "[CLS]"), name(Special::Sep, "[SEP]"));
    let (bos, eos, cls, sep) = (bos.as_str(), eos.as_str(), cls.as_str(), sep.as_str());
    let (single, pair): (Vec<&str>, Vec<&str>) = match class.as_str() {
        "" => (vec![], vec![]),
        "LlamaTokenizer" | "CodeLlamaTokenizer" | "GemmaTokenizer" => {
            normalizer.first_only = config.flag("legacy") == Some(false);
            let first = config.flag("add_bos_token").unwrap_or(true).then_some(bos);
            let last = config.flag("add_eos_token").unwrap_or(false).then_some(eos);
            let around = |text| [first, Some(text), last].into_iter().flatten().collect::<Vec<_>>();
            (around("$A"), [around("$A"), around("$B")].concat())
        }
        "T5Tokenizer" | "MT5Tokenizer" => (vec!["$A", eos], vec!["$A", eos, "$B", eos]),
        "XLMRobertaTokenizer" => {
            // Fairseq's numbering: four tokens of its own, then the pieces from the fourth on.
            segmenter.renumber(|piece, kind, number| match (kind, piece) {
                (Kind::Unknown, _) => 3,
                (Kind::Control, "<s>") => 0,
                (Kind::Control, "</s>") => 2,
                _ => number + 1,
            });
            segmenter.add_extra("<pad>", 1);
            segmenter.add_extra("<mask>", segmenter.len() as u32 + 1);
            (vec!["<s>", "$A", "</s>"], vec!["<s>", "$A", "</s>", "</s>", "$B", "</s>"])
        }
        "DebertaV2Tokenizer"
            if config.flag("do_lower_case") != Some(true) && config.flag("split_by_punct") != Some(true) =>
        {
            (vec![cls, "$A", sep], vec![cls, "$A", sep, "$B:1", sep])
        }
        other => return Err(unsupported(format!("tokenizer_class {other} over a SentencePiece model"))),
    };

    let mut added = Vec::new();
    if !class.is_empty() {
        added.extend(roles(&class, config).into_iter().map(|t| Added::special(&t)));
        if class == "T5Tokenizer" && !config.added.iter().any(|t| t.content.starts_with("<extra_id_")) {
            let count = config.raw.get("extra_ids").and_then(serde_json::Value::as_u64).unwrap_or(100).min(1000);
            let first = proto.pieces.len() as u32;
            for i in (0..count as u32).rev() {
                let text = format!("<extra_id_{i}>");
                segmenter.add_extra(&text, first + count as u32 - 1 - i);
                added.push(Added::special(&text));
            }
        }
    }
    for token in &config.added {
        if let Some(id) = token.id {
            segmenter.add_extra(&token.content, id);
        }
        if segmenter.id(&token.content).is_some() && !added.iter().any(|t| t.content == token.content) {
            added.push(token.clone());
        }
    }
    let id = |token: &str| segmenter.id(token);
    let layout = match single.is_empty() {
        true => Layout::bare(),
        false => Layout::around(&single, &pair, id).map_err(invalid)?,
    };
    let normalizer = Some(normalize::Normalizer::SentencePiece(normalizer));
    let pipeline = Pipeline::new(segmenter, Parts { normalizer, words: Words::whole(), layout, added });
    Ok(((Box::new(pipeline), Detokenizer::sentencepiece(Surface::new(&proto))), kind))
}

/// Names the special tokens that the model numbers and the configuration does not name.
fn name_roles(proto: &Proto, config: &mut TokenizerConfig) {
    let unknown = proto.pieces.iter().position(|p| p.kind == Kind::Unknown).map_or(-1, |i| i as i64);
    let roles =
        [(Special::Bos, proto.bos), (Special::Eos, proto.eos), (Special::Pad, proto.pad), (Special::Unk, unknown)];
    for (role, number) in roles {
        let piece = usize::try_from(number).ok().and_then(|i| proto.pieces.get(i));
        if let Some(piece) = piece.filter(|p| matches!(p.kind, Kind::Control | Kind::Unknown)) {
            config.special.entry(role).or_insert_with(|| piece.text.clone());
        }
    }
}

/// The special tokens that a class recognises in a text, by the configuration's names or the class's own.
fn roles(class: &str, config: &mut TokenizerConfig) -> Vec<String> {
    if class == "XLMRobertaTokenizer" {
        let own = [
            (Special::Bos, "<s>"),
            (Special::Pad, "<pad>"),
            (Special::Eos, "</s>"),
            (Special::Unk, "<unk>"),
            (Special::Sep, "</s>"),
            (Special::Cls, "<s>"),
            (Special::Mask, "<mask>"),
        ];
        for (role, token) in own {
            config.special.entry(role).or_insert_with(|| token.into());
        }
    }
    let mut tokens: Vec<String> = config.special.values().cloned().collect();
    tokens.dedup();
    tokens
}
