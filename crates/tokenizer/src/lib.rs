//! Text to token ids and back.
//!
//! [`Tokenizer::open`] takes a directory (or a file) and finds out what it holds: a Hugging Face `tokenizer.json`, a
//! WordPiece `vocab.txt`, a byte-level `vocab.json` with `merges.txt`, a SentencePiece model; a `.tiktoken` file needs a
//! [`TiktokenSpec`] beside it. Whatever it was, text then goes through one pipeline: added tokens are cut out, the rest is
//! normalised, split into words, each word is segmented into ids, and a post-processor puts the special tokens around.
//! The steps and their results are those of the `tokenizers` crate, over compact tables of our own; the crate itself runs
//! a `tokenizer.json` that asks for what they do not cover. SentencePiece and tiktoken files are segmented as their own
//! libraries do, which break ties in other ways.
//!
//! ```no_run
//! let tokenizer = lattice_tokenizer::Tokenizer::open("models/all-MiniLM-L6-v2")?;
//! let encoding = tokenizer.encode("Hello, world!", true)?;
//! assert_eq!(tokenizer.decode(&encoding.ids, true), "hello, world!");
//! # Ok::<(), lattice_tokenizer::TokenizerError>(())
//! ```

mod added;
mod base64;
mod borders;
mod bpe;
mod byte_level;
mod classes;
mod config;
mod detokenize;
mod encoding;
mod engine;
mod error;
mod fallback;
mod files;
mod gguf;
mod json;
mod layout;
mod merge;
mod model;
mod normalize;
mod open;
mod pipeline;
mod pretokenize;
mod scan;
mod sentencepiece;
mod template;
mod text;
mod tiktoken;
mod tokenizer;
mod trie;
mod unigram;
mod vet;
mod vocab;
mod wordpiece;
mod words;

pub use config::{Side, Special, TokenizerConfig};
pub use detokenize::Stream;
pub use encoding::{EncodeOptions, Encoding, Ids, PadTo, Padded, Strategy, Truncation, pad};
pub use error::TokenizerError;
pub use gguf::GgufVocab;
pub use open::{Source, SourceKind, TiktokenSpec};
pub use template::{ChatInput, ChatTemplate};
pub use tokenizer::Tokenizer;
