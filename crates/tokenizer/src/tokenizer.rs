//! The tokenizer that the rest of the engine holds: cheap to clone, shared between threads.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::{Special, TokenizerConfig};
use crate::detokenize::{Detokenizer, Stream};
use crate::encoding::{EncodeOptions, Encoding, Ids};
use crate::engine::Engine;
use crate::error::TokenizerError;
use crate::gguf::GgufVocab;
use crate::open::{self, Source, SourceKind, TiktokenSpec};
use crate::template::ChatTemplate;
use crate::{gguf, json, sentencepiece, tiktoken};

/// Text to ids and back. Clones share everything.
#[derive(Clone)]
pub struct Tokenizer(Arc<Inner>);

struct Inner {
    engine: Box<dyn Engine>,
    detokenizer: Detokenizer,
    source: Source,
    config: TokenizerConfig,
}

impl Tokenizer {
    /// Opens a model directory, or one of the tokenizer files in it. `tokenizer_config.json`, `special_tokens_map.json`
    /// and `added_tokens.json` beside the file are honoured.
    ///
    /// # Errors
    /// Nothing found, unreadable, inconsistent, or of a kind that is not supported.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TokenizerError> {
        let (parts, source, config) = open::open(path.as_ref())?;
        Ok(Self::from_parts(parts, source, config))
    }

    /// A tokenizer from the bytes of a `tokenizer.json`.
    ///
    /// # Errors
    /// Bytes that are not one.
    pub fn from_json(bytes: &[u8]) -> Result<Self, TokenizerError> {
        let path = PathBuf::from("tokenizer.json");
        let config = TokenizerConfig::default();
        let parts = json::load(&path, bytes, || Ok(bytes.to_vec()), &config)?;
        let source = Source { kind: SourceKind::TokenizerJson, path: PathBuf::new() };
        Ok(Self::from_parts(parts, source, config))
    }

    /// A tokenizer from the bytes of a SentencePiece model, with the library's own ids and nothing around the text.
    ///
    /// # Errors
    /// Bytes that are not one.
    pub fn from_sentencepiece(bytes: &[u8]) -> Result<Self, TokenizerError> {
        let mut config = TokenizerConfig::default();
        let (parts, kind) = sentencepiece::load(Path::new("tokenizer.model"), bytes, &mut config)?;
        let source = Source { kind, path: PathBuf::new() };
        Ok(Self::from_parts(parts, source, config))
    }

    /// A tokenizer from the metadata of a GGUF file.
    ///
    /// # Errors
    /// Metadata that contradicts itself, or of a kind that is not supported.
    pub fn from_gguf(vocab: &GgufVocab) -> Result<Self, TokenizerError> {
        let (parts, config) = gguf::build(vocab)?;
        let source = Source { kind: SourceKind::Gguf, path: PathBuf::new() };
        Ok(Self::from_parts(parts, source, config))
    }

    /// As [`Tokenizer::from_gguf`], of a file that lies in a model directory: chat templates and the texts of special tokens
    /// are those of `tokenizer_config.json`, `special_tokens_map.json` and `chat_template.jinja` where these have some. The
    /// vocabulary is the file's own, since it is what the weights were saved with; a special token that is not in it does
    /// not count.
    ///
    /// # Errors
    /// As [`Tokenizer::from_gguf`], and unreadable or broken files.
    pub fn from_gguf_in(vocab: &GgufVocab, dir: &Path) -> Result<Self, TokenizerError> {
        let (parts, mut config) = gguf::build(vocab)?;
        config.prefer(TokenizerConfig::read(dir)?, &vocab.tokens);
        let source = Source { kind: SourceKind::Gguf, path: PathBuf::new() };
        Ok(Self::from_parts(parts, source, config))
    }

    /// A tokenizer from tiktoken ranks and what they do not say.
    ///
    /// # Errors
    /// A file that is not one of ranks, or a specification that does not fit it.
    pub fn from_tiktoken(path: impl AsRef<Path>, spec: &TiktokenSpec) -> Result<Self, TokenizerError> {
        let path = path.as_ref();
        let parts = tiktoken::load(path, &open::read_bytes(path)?, spec)?;
        let source = Source { kind: SourceKind::Tiktoken, path: path.to_owned() };
        Ok(Self::from_parts(parts, source, TokenizerConfig::default()))
    }

    fn from_parts(parts: open::Loaded, source: Source, mut config: TokenizerConfig) -> Self {
        config.settle();
        let (engine, detokenizer) = parts;
        Self(Arc::new(Inner { engine, detokenizer, source, config }))
    }

    /// Which file this came from, and of what kind.
    pub fn source(&self) -> &Source {
        &self.0.source
    }

    /// What the configuration files beside the vocabulary say.
    pub fn config(&self) -> &TokenizerConfig {
        &self.0.config
    }

    /// Encodes one text, with the tokens that the post-processor adds if `add_special`. Special tokens that stand in the
    /// text are recognised.
    ///
    /// # Errors
    /// Only if the tokenizer's own files contradict each other.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Encoding, TokenizerError> {
        self.encode_with(text, None, &with_special(add_special))
    }

    /// Encodes two texts as the model expects a pair.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_pair(&self, first: &str, second: &str, add_special: bool) -> Result<Encoding, TokenizerError> {
        self.encode_with(first, Some(second), &with_special(add_special))
    }

    /// Encodes a text or a pair as `options` say.
    ///
    /// # Errors
    /// As [`Self::encode`], and [`TokenizerError::Truncation`] where the length cannot be reached.
    pub fn encode_with(
        &self,
        text: &str,
        pair: Option<&str>,
        options: &EncodeOptions,
    ) -> Result<Encoding, TokenizerError> {
        self.0.engine.encode(text, pair, options)
    }

    /// Ids only: the fast way.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_ids(&self, text: &str, add_special: bool) -> Result<Vec<u32>, TokenizerError> {
        Ok(self.encode_ids_with(text, &with_special(add_special))?.0)
    }

    /// Ids only, and how many of them truncation removed.
    ///
    /// # Errors
    /// As [`Self::encode_with`].
    pub fn encode_ids_with(&self, text: &str, options: &EncodeOptions) -> Result<(Vec<u32>, usize), TokenizerError> {
        let Ids { ids, removed, .. } = self.0.engine.encode_ids(text, None, options)?;
        Ok((ids, removed))
    }

    /// Ids and types of a pair, the fast way.
    ///
    /// # Errors
    /// As [`Self::encode_with`].
    pub fn encode_pair_ids_with(
        &self,
        first: &str,
        second: &str,
        options: &EncodeOptions,
    ) -> Result<Ids, TokenizerError> {
        self.0.engine.encode_ids(first, Some(second), options)
    }

    /// Ids of a text that holds no special tokens: `<unk>` in it is five characters. Nothing is added.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let options = EncodeOptions { add_special: false, plain: true, truncation: None };
        Ok(self.encode_ids_with(text, &options)?.0)
    }

    /// How many tokens [`Self::encode`] adds to a text, or to a pair.
    pub fn added_special_count(&self, pair: bool) -> usize {
        self.0.engine.added_count(pair)
    }

    /// The text of ids. Special tokens are left out if `skip_special`; ids outside the vocabulary have no text.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut stream = self.stream(skip_special);
        let mut text = String::new();
        for &id in ids {
            text.extend(stream.push(id));
        }
        text.extend(stream.flush());
        text
    }

    /// Decodes ids one after another; see [`Stream`].
    pub fn stream(&self, skip_special: bool) -> Stream {
        Stream::new(self.clone(), skip_special)
    }

    /// Number of ids, added tokens included: one more than the largest id.
    pub fn vocab_size(&self) -> usize {
        self.0.engine.size()
    }

    /// The id of a token as the vocabulary writes it (`##ing`, `Ġthe`, `▁the`, `<s>`).
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.0.engine.id(token)
    }

    /// A token as the vocabulary writes it.
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.0.engine.token(id)
    }

    /// Ids as the vocabulary writes them, for showing; unknown ids are `<id>`.
    pub fn pieces(&self, ids: &[u32]) -> Vec<String> {
        let piece = |&id: &u32| self.id_to_token(id).unwrap_or_else(|| format!("<{id}>"));
        ids.iter().map(piece).collect()
    }

    /// The bytes that a token stands for in a running text (not at its start), as far as one can say for a single token.
    /// Special tokens give the bytes of their name.
    pub fn piece_bytes(&self, id: u32) -> Option<Vec<u8>> {
        if let Some(content) = self.0.engine.added_content(id) {
            return Some(content.into_bytes());
        }
        Some(self.0.detokenizer.bytes(&self.0.engine.token(id)?))
    }

    /// Whether decoding with `skip_special` leaves this id out.
    pub fn is_special(&self, id: u32) -> bool {
        self.0.engine.is_special(id)
    }

    /// The id of a special token by its role, if the files name it and the vocabulary has it.
    pub fn special(&self, role: Special) -> Option<u32> {
        self.token_to_id(self.0.config.special.get(&role)?)
    }

    /// The chat template of the files, or the further one of that name, compiled. The rendered text is encoded without
    /// `add_special`: the template writes the BOS itself.
    ///
    /// # Errors
    /// None there, or not valid Jinja.
    pub fn chat_template(&self, name: Option<&str>) -> Result<ChatTemplate, TokenizerError> {
        let config = &self.0.config;
        let source = match name {
            None => config.chat_template.as_ref(),
            Some(name) => config.chat_templates.get(name),
        };
        ChatTemplate::new(source.ok_or_else(|| TokenizerError::NoTemplate {
            source_path: self.0.source.path.clone(),
            name: name.map(str::to_owned),
        })?)
    }

    /// The special tokens that a chat template may name: `bos_token`, `eos_token`, …
    pub fn chat_variables(&self) -> serde_json::Map<String, serde_json::Value> {
        let special = self.0.config.special.iter();
        special.map(|(role, token)| (role.key().to_owned(), token.as_str().into())).collect()
    }

    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.0.engine
    }

    pub(crate) fn detokenizer(&self) -> &Detokenizer {
        &self.0.detokenizer
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("source", &self.0.source)
            .field("engine", &self.0.engine.name())
            .field("vocab_size", &self.vocab_size())
            .finish_non_exhaustive()
    }
}

fn with_special(add_special: bool) -> EncodeOptions {
    EncodeOptions { add_special, ..EncodeOptions::default() }
}
