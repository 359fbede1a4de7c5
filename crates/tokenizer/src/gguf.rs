//! The tokenizer inside a GGUF file, from its metadata as plain values (reading the file is the caller's affair).
//!
//! `tokenizer.ggml.model` names the kind: `gpt2` (byte-level BPE, its words by `tokenizer.ggml.pre`), `llama`
//! (SentencePiece BPE), `t5` (SentencePiece unigram), `bert` (WordPiece). Keys and meanings are those of GGUF's
//! specification and of llama.cpp's `llama-vocab.cpp`.

use std::sync::Arc;

use crate::bpe::{Bpe, MergeList, Options};
use crate::config::{Added, Special, TokenizerConfig};
use crate::detokenize::Detokenizer;
use crate::error::TokenizerError;
use crate::files::LONGEST_WORD;
use crate::layout::Layout;
use crate::model::Model as _;
use crate::normalize::{Bert, Normalizer};
use crate::open::Loaded;
use crate::pipeline::{Parts, Pipeline};
use crate::pretokenize;
use crate::sentencepiece::{self, Algorithm, Charsmap, Kind, SPACE, Segmenter, Surface};
use crate::vocab::Vocab;
use crate::wordpiece::WordPiece;
use crate::words::{GPT2, LLAMA3, QWEN2, QWEN35, TEKKEN};

/// The `tokenizer.*` metadata of a GGUF file. Fields that the file lacks keep their default.
#[derive(Debug, Clone, Default)]
pub struct GgufVocab {
    /// `tokenizer.ggml.model`.
    pub model: String,
    /// `tokenizer.ggml.pre`.
    pub pre: Option<String>,
    /// `tokenizer.ggml.tokens`.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.scores`; empty or one a token.
    pub scores: Vec<f32>,
    /// `tokenizer.ggml.token_type`; empty or one a token (1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused,
    /// 6 byte).
    pub types: Vec<i32>,
    /// `tokenizer.ggml.merges`.
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
    /// `tokenizer.ggml.add_space_prefix`.
    pub add_space_prefix: Option<bool>,
    /// `tokenizer.ggml.remove_extra_whitespaces`.
    pub remove_extra_spaces: Option<bool>,
    /// `tokenizer.ggml.precompiled_charsmap`.
    pub charsmap: Vec<u8>,
    /// `tokenizer.chat_template`.
    pub chat_template: Option<String>,
}

/// How a kind of byte-level BPE finds its words.
struct Words {
    names: &'static [&'static str],
    /// Applied one after another.
    patterns: &'static [&'static str],
    /// Whole words that are tokens are not merged from parts.
    ignore_merges: bool,
    /// Whether a BOS goes in front unless the file says otherwise.
    bos: bool,
    nfc: bool,
}

const PRE: &[Words] = &[
    Words {
        names: &["gpt-2", "phi-2", "olmo", "mpt", "jina-v2-en", "jina-es", "jina-de", "roberta-bpe"],
        patterns: &[GPT2],
        ignore_merges: false,
        bos: false,
        nfc: false,
    },
    Words {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "lfm2"],
        patterns: &[LLAMA3],
        ignore_merges: true,
        bos: true,
        nfc: false,
    },
    Words { names: &["qwen2", "deepseek-r1-qwen"], patterns: &[QWEN2], ignore_merges: false, bos: false, nfc: true },
    Words { names: &["qwen35"], patterns: &[QWEN35], ignore_merges: false, bos: false, nfc: true },
    Words {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell"],
        patterns: &[r"\p{N}", GPT2],
        ignore_merges: false,
        bos: false,
        nfc: false,
    },
    Words { names: &["tekken"], patterns: &[TEKKEN], ignore_merges: true, bos: true, nfc: false },
];

const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

/// Builds the pipeline, and what the configuration files of a directory would say.
pub(crate) fn build(vocab: &GgufVocab) -> Result<(Loaded, TokenizerConfig), TokenizerError> {
    let count = vocab.tokens.len();
    for (field, length) in [("scores", vocab.scores.len()), ("token_type", vocab.types.len())] {
        if length != 0 && length != count {
            return Err(invalid(format!("tokenizer.ggml.{field} has {length} entries for {count} tokens")));
        }
    }
    let mut config = TokenizerConfig { chat_template: vocab.chat_template.clone(), ..TokenizerConfig::default() };
    for (role, key, id) in vocab.roles() {
        let Some(id) = id else { continue };
        let token = vocab
            .tokens
            .get(id as usize)
            .ok_or_else(|| invalid(format!("tokenizer.ggml.{key} is {id}, but there are {count} tokens")))?;
        config.special.insert(role, token.clone());
    }
    let loaded = match vocab.model.as_str() {
        "gpt2" => vocab.byte_level(),
        "llama" => vocab.pieces(Algorithm::Bpe),
        "t5" => vocab.pieces(Algorithm::Unigram),
        "bert" => vocab.wordpiece(),
        other => Err(format!("tokenizer.ggml.model {other:?} is not supported (gpt2, llama, t5 and bert are)")),
    };
    Ok((loaded.map_err(invalid)?, config))
}

fn invalid(reason: String) -> TokenizerError {
    TokenizerError::Gguf { reason }
}

impl GgufVocab {
    fn roles(&self) -> [(Special, &'static str, Option<u32>); 8] {
        [
            (Special::Bos, "bos_token_id", self.bos),
            (Special::Eos, "eos_token_id", self.eos),
            (Special::Eot, "eot_token_id", self.eot),
            (Special::Unk, "unknown_token_id", self.unk),
            (Special::Sep, "seperator_token_id", self.sep),
            (Special::Pad, "padding_token_id", self.pad),
            (Special::Cls, "cls_token_id", self.cls),
            (Special::Mask, "mask_token_id", self.mask),
        ]
    }

    fn kind(&self, id: usize) -> i32 {
        self.types.get(id).copied().unwrap_or(NORMAL)
    }

    fn text(&self, id: Option<u32>) -> Option<&str> {
        self.tokens.get(id? as usize).map(String::as_str)
    }

    /// Control tokens are special; user-defined ones are whole, but text.
    fn added(&self) -> Vec<Added> {
        let token = |(id, text): (usize, &String)| match self.kind(id) {
            CONTROL | UNKNOWN => Some(Added::special(text)),
            USER_DEFINED => Some(Added { special: false, ..Added::special(text) }),
            _ => None,
        };
        self.tokens.iter().enumerate().filter(|(_, t)| !t.is_empty()).filter_map(token).collect()
    }

    /// BOS before and EOS after each text, as the file says, else by the kind's default.
    fn around(&self, bos: bool, eos: bool, id: impl Fn(&str) -> Option<u32>) -> Result<Layout, String> {
        let missing = |name: &str| format!("the file adds {name} and names none");
        let mut before = Vec::new();
        let mut after = Vec::new();
        if self.add_bos.unwrap_or(bos) {
            before.push(self.text(self.bos).ok_or_else(|| missing("bos_token_id"))?);
        }
        if self.add_eos.unwrap_or(eos) {
            after.push(self.text(self.eos).ok_or_else(|| missing("eos_token_id"))?);
        }
        if before.is_empty() && after.is_empty() {
            return Ok(Layout::bare());
        }
        let one = |text| [before.clone(), vec![text], after.clone()].concat();
        Layout::around(&one("$A"), &[one("$A"), one("$B")].concat(), id)
    }

    fn byte_level(&self) -> Result<Loaded, String> {
        let pre = self.pre.as_deref().unwrap_or("default");
        let words = PRE.iter().find(|w| w.names.contains(&pre)).ok_or_else(|| {
            let known: Vec<&str> = PRE.iter().flat_map(|w| w.names).copied().collect();
            format!("tokenizer.ggml.pre {pre:?} is not known (known are {})", known.join(", "))
        })?;
        let vocab = Vocab::new(&self.tokens)?;
        let mut merges = MergeList::default();
        for (i, merge) in self.merges.iter().enumerate() {
            // A space may be the first character of the left token.
            let at = merge.char_indices().skip(1).find(|&(_, c)| c == ' ').map(|(at, _)| at);
            let (left, right) = merge
                .split_at(at.ok_or_else(|| format!("tokenizer.ggml.merges[{i}] is {merge:?}, expected two tokens"))?);
            merges
                .push(&vocab, left.as_bytes(), &right.as_bytes()[1..])
                .map_err(|e| format!("tokenizer.ggml.merges: {e}"))?;
        }
        let parts = Parts {
            normalizer: words.nfc.then_some(Normalizer::Nfc),
            words: pretokenize::Words::bytes(words.patterns, false)?,
            layout: self.around(words.bos, false, |t| vocab.get(t.as_bytes()))?,
            added: self.added(),
        };
        let ignore_merges = words.ignore_merges;
        let model = Bpe::new(vocab, merges, &Options { byte_level: true, ignore_merges, ..Options::default() })?;
        Ok((Box::new(Pipeline::new(model, parts)), Detokenizer::byte_level()))
    }

    fn pieces(&self, algorithm: Algorithm) -> Result<Loaded, String> {
        let unigram = algorithm == Algorithm::Unigram;
        if self.scores.is_empty() {
            return Err("tokenizer.ggml.scores is missing".into());
        }
        let unk =
            self.unk.map_or_else(|| (0..self.tokens.len()).find(|&i| self.kind(i) == UNKNOWN), |id| Some(id as usize));
        let kind = |id: usize| match self.kind(id) {
            _ if Some(id) == unk => Kind::Unknown,
            CONTROL | UNKNOWN => Kind::Control,
            USER_DEFINED => Kind::UserDefined,
            5 => Kind::Unused,
            6 => Kind::Byte,
            _ => Kind::Normal,
        };
        let pieces = || self.tokens.iter().enumerate().map(|(id, text)| (text.as_str(), self.scores[id], kind(id)));
        if let Some(bad) = pieces().position(|(text, score, _)| text.is_empty() || !score.is_finite()) {
            return Err(format!("token {bad} is empty or has no finite score"));
        }
        let bytes = pieces().any(|(.., kind)| kind == Kind::Byte);
        let unknown = unk.and_then(|id| self.tokens.get(id)).cloned().unwrap_or_default();
        let mut segmenter = Segmenter::new(pieces(), algorithm, bytes)?;
        let charsmap = Arc::new(Charsmap::read(&self.charsmap)?);
        // User-defined tokens are written with spaces, not with the mark for them: they are found in the text as it is,
        // and none is left then, unless normalisation can make one.
        let marked = pieces().any(|(text, _, kind)| kind == Kind::UserDefined && text.contains(SPACE));
        if self.charsmap.is_empty() && !marked {
            segmenter = segmenter.without_symbols();
        }
        let prefix = self.add_space_prefix.unwrap_or(true);
        let remove_extra_spaces = self.remove_extra_spaces.unwrap_or(unigram);
        let normalizer = sentencepiece::Normalizer {
            charsmap,
            symbols: segmenter.symbols(),
            dummy_prefix: prefix,
            first_only: false,
            suffix_space: false,
            remove_extra_spaces,
            escape_spaces: true,
        };
        let surface = Surface {
            unknown_surface: unknown.clone(),
            unknown,
            bytes,
            prefixed: prefix || remove_extra_spaces,
            remove_extra_spaces,
        };
        let parts = Parts {
            normalizer: Some(Normalizer::SentencePiece(normalizer)),
            words: pretokenize::Words::whole(),
            layout: self.around(!unigram, unigram, |t| segmenter.id(t))?,
            added: self.added(),
        };
        Ok((Box::new(Pipeline::new(segmenter, parts)), Detokenizer::sentencepiece(surface)))
    }

    fn wordpiece(&self) -> Result<Loaded, String> {
        // GGUF marks the beginning of words, WordPiece what goes on with one; tokens in brackets are neither.
        let plain = |(id, token): (usize, &String)| match token.strip_prefix(SPACE).filter(|word| !word.is_empty()) {
            Some(word) => word.to_owned(),
            None if self.kind(id) != NORMAL || token.starts_with('[') && token.ends_with(']') => token.clone(),
            None => format!("##{token}"),
        };
        let tokens: Vec<String> = self.tokens.iter().enumerate().map(plain).collect();
        let vocab = Vocab::new(&tokens)?;
        let id = |token: &str| vocab.get(token.as_bytes());
        let name = |id: Option<u32>, default: &str| {
            id.and_then(|id| tokens.get(id as usize).cloned()).unwrap_or(default.into())
        };
        // BERT's CLS stands under BOS in some files.
        let (cls, sep) = (name(self.cls.or(self.bos), "[CLS]"), name(self.sep.or(self.eos), "[SEP]"));
        let unk = name(self.unk, "[UNK]");
        let layout = Layout::around(&[&cls, "$A", &sep], &[&cls, "$A", &sep, "$B:1", &sep], id)?;
        let mut added: Vec<Added> = self.added();
        for token in [&cls, &sep, &unk, &name(self.mask, "[MASK]"), &name(self.pad, "[PAD]")] {
            if id(token).is_some() && !added.iter().any(|t| t.content == *token) {
                added.push(Added::special(token));
            }
        }
        let bert = Bert { clean: true, space_chinese: true, strip_accents: true, lowercase: true };
        let words = pretokenize::Words::bert();
        let model = WordPiece::new(vocab, &unk, "##", LONGEST_WORD)?;
        let parts = Parts { normalizer: Some(Normalizer::Bert(bert)), words, layout, added };
        Ok((Box::new(Pipeline::wordpiece(model, parts)), Detokenizer::wordpiece()))
    }
}
