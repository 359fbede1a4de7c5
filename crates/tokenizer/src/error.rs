//! Everything that can go wrong with a tokenizer, in words for the person who has to mend it.

use std::path::PathBuf;

use crate::encoding::Strategy;

/// What the files, the text or the request did wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A directory holds none of the known tokenizer files.
    #[error(
        "no tokenizer in {}: expected tokenizer.json, a SentencePiece model (tokenizer.model, sentencepiece.bpe.model, spiece.model, spm.model), vocab.txt, or vocab.json with merges.txt",
        dir.display()
    )]
    NotFound {
        /// The directory that was searched.
        dir: PathBuf,
    },
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is larger than any real tokenizer.
    #[error("{} has {bytes} bytes, more than the {limit} that a tokenizer file may have: is it the right file?", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The largest size accepted.
        limit: u64,
    },
    /// A file does not say what its name promises.
    #[error("{}: {reason}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// A file asks for something that is not built.
    #[error("{}: {what} is not supported; a tokenizer.json made by `save_pretrained` of a fast tokenizer would be", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The feature.
        what: String,
    },
    /// The tokenizer inside a GGUF file contradicts itself or is of an unknown kind.
    #[error("tokenizer of the GGUF file: {reason}")]
    Gguf {
        /// What is wrong, by metadata key.
        reason: String,
    },
    /// A chat template is wrong, or says that the conversation is.
    #[error("chat template, line {line}: {reason}")]
    Template {
        /// Line of the template, from 1; 0 where unknown.
        line: usize,
        /// What it raised or did wrong.
        reason: String,
    },
    /// A tokenizer has no chat template.
    #[error("{} has no chat template{}: give one, or use the model without a conversation", source_path.display(), name.as_ref().map(|n| format!(" named {n}")).unwrap_or_default())]
    NoTemplate {
        /// The tokenizer's file.
        source_path: PathBuf,
        /// The template asked for, none for the default one.
        name: Option<String>,
    },
    /// Tiktoken files hold ranks only.
    #[error(
        "{} holds ranks only: the split pattern and the special tokens must come from elsewhere (a `TiktokenSpec`, or a tokenizer.json in the same folder)",
        path.display()
    )]
    TiktokenNeedsSpec {
        /// The file.
        path: PathBuf,
    },
    /// The requested truncation cannot reach the requested length.
    #[error(
        "cannot truncate to {max_length} tokens by {strategy}: the texts have {first} and {second} tokens and {special} special ones are added"
    )]
    Truncation {
        /// The length asked for, special tokens included.
        max_length: usize,
        /// How it was asked for.
        strategy: Strategy,
        /// Tokens of the first text.
        first: usize,
        /// Tokens of the second text, 0 without one.
        second: usize,
        /// Special tokens that the post-processor adds.
        special: usize,
    },
    /// The tokenizer cannot encode this text: its own files contradict each other.
    #[error("cannot encode a text of {bytes} bytes: {reason}")]
    Encode {
        /// Length of the text.
        bytes: usize,
        /// What the segmentation said.
        reason: String,
    },
}
