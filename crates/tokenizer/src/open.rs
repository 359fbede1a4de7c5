//! Which tokenizer does a directory hold? Detection, in the order in which transformers prefers the files, and bounded
//! reading.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::config::TokenizerConfig;
use crate::detokenize::Detokenizer;
use crate::engine::Engine;
use crate::error::TokenizerError;
use crate::{files, json, sentencepiece};

/// No tokenizer file is larger; the largest known (Gemma's tokenizer.json) has 33 MB.
pub(crate) const MAX_FILE_BYTES: u64 = 256 << 20;

/// The file a tokenizer came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// What kind of file.
    pub kind: SourceKind,
    /// Where it lies; empty for a tokenizer built from bytes.
    pub path: PathBuf,
}

/// The kinds of tokenizer files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceKind {
    /// `tokenizer.json` of Hugging Face's `tokenizers`.
    TokenizerJson,
    /// BERT's `vocab.txt`.
    WordPiece,
    /// `vocab.json` with `merges.txt`.
    ByteLevelBpe,
    /// A SentencePiece model of type unigram.
    SentencePieceUnigram,
    /// A SentencePiece model of type BPE.
    SentencePieceBpe,
    /// The metadata of a GGUF file.
    Gguf,
    /// Tiktoken ranks with a [`TiktokenSpec`].
    Tiktoken,
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TokenizerJson => "Hugging Face tokenizer.json",
            Self::WordPiece => "WordPiece vocab.txt",
            Self::ByteLevelBpe => "byte-level BPE vocab.json + merges.txt",
            Self::SentencePieceUnigram => "SentencePiece unigram model",
            Self::SentencePieceBpe => "SentencePiece BPE model",
            Self::Gguf => "GGUF metadata",
            Self::Tiktoken => "tiktoken ranks",
        })
    }
}

/// What a `.tiktoken` file does not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TiktokenSpec {
    /// The regular expression whose matches are the words.
    pub pattern: String,
    /// Special tokens with their ids.
    pub special_tokens: Vec<(String, u32)>,
    /// Whether text is brought to Unicode form NFC first (Qwen does).
    pub nfc: bool,
}

/// What encodes and what decodes.
pub(crate) type Loaded = (Box<dyn Engine>, Detokenizer);

/// Opens what `path` is: a directory that holds a tokenizer, or one of its files.
pub(crate) fn open(path: &Path) -> Result<(Loaded, Source, TokenizerConfig), TokenizerError> {
    let file = if path.is_dir() { find(path)? } else { path.to_owned() };
    let dir = file.parent().unwrap_or(Path::new("."));
    let mut config = TokenizerConfig::read(dir)?;
    let name = file.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let (loaded, kind) = match name.rsplit_once('.').map_or("", |(_, end)| end) {
        "tiktoken" => return Err(TokenizerError::TiktokenNeedsSpec { path: file }),
        "model" => sentencepiece::load(&file, &read_bytes(&file)?, &mut config)?,
        "txt" if name == "merges.txt" => (files::byte_level(dir, &mut config)?, SourceKind::ByteLevelBpe),
        "txt" => (files::wordpiece(&file, &mut config)?, SourceKind::WordPiece),
        "json" if name == "vocab.json" => (files::byte_level(dir, &mut config)?, SourceKind::ByteLevelBpe),
        _ => {
            let read = File::open(&file).map_err(|source| TokenizerError::Read { path: file.clone(), source })?;
            (json::load(&file, read, || read_bytes(&file), &config)?, SourceKind::TokenizerJson)
        }
    };
    Ok((loaded, Source { kind, path: file }, config))
}

fn find(dir: &Path) -> Result<PathBuf, TokenizerError> {
    let names = [
        "tokenizer.json",
        "tokenizer.model",
        "sentencepiece.bpe.model",
        "spiece.model",
        "spm.model",
        "vocab.txt",
        "vocab.json",
    ];
    if let Some(found) = names.iter().map(|name| dir.join(name)).find(|path| path.is_file()) {
        return Ok(found);
    }
    let entries = std::fs::read_dir(dir).map_err(|source| TokenizerError::Read { path: dir.to_owned(), source })?;
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|e| e == "tiktoken"))
        .ok_or_else(|| TokenizerError::NotFound { dir: dir.to_owned() })
}

pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, TokenizerError> {
    let fail = |source| TokenizerError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(fail)?;
    let bytes = file.metadata().map_err(fail)?.len();
    let mut data = Vec::with_capacity(bytes.min(MAX_FILE_BYTES) as usize + 1);
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut data).map_err(fail)?;
    if data.len() as u64 > MAX_FILE_BYTES {
        return Err(too_large(path));
    }
    Ok(data)
}

pub(crate) fn too_large(path: &Path) -> TokenizerError {
    let bytes = path.metadata().map_or(MAX_FILE_BYTES + 1, |m| m.len());
    TokenizerError::TooLarge { path: path.to_owned(), bytes, limit: MAX_FILE_BYTES }
}

pub(crate) fn read_text(path: &Path) -> Result<String, TokenizerError> {
    String::from_utf8(read_bytes(path)?).map_err(|error| TokenizerError::Invalid {
        path: path.to_owned(),
        reason: format!("not UTF-8 at byte {}", error.utf8_error().valid_up_to()),
    })
}
