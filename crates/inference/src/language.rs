//! A language model with its tokenizer, chat template and recommended settings, from a directory or a GGUF file.

use crate::encoder::InferenceError;
use crate::engine::{Engine, EngineOptions};
use crate::guide::{Guide, ReasoningIds, grammar_compiler};
use crate::sampling::{InferenceConfig, SamplingDefaults};
use crate::text::Tags;
use grammar::{Compiler, GrammarSpec};
use models::{Config, Loaded};
use ops::Ops;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use tokenizer::{ChatInput, ChatTemplate, GgufVocab, Special, Tokenizer};
use weights::Checkpoint;
use weights::gguf::Vocab;

/// A language model, ready for an [`Engine`].
pub struct LanguageModel {
    loaded: Arc<Loaded>,
    ops: Arc<dyn Ops>,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    tags: Option<Tags>,
    defaults: SamplingDefaults,
    stop_ids: Vec<u32>,
    settings: InferenceConfig,
    grammars: OnceLock<Compiler>,
}

/// A conversation to be continued.
#[derive(Clone, Debug, Default)]
pub struct Chat<'a> {
    /// Objects with `role` and `content`, as OpenAI's API has them.
    pub messages: &'a [Value],
    /// Tool declarations.
    pub tools: Option<&'a [Value]>,
    /// Whether a model that can think first does; `None` is the template's own choice.
    pub thinking: Option<bool>,
}

impl LanguageModel {
    /// Opens a directory with config.json and safetensors, a directory with one GGUF model, or a `.gguf` file.
    ///
    /// Shapes and vocabulary of a GGUF model are its own. Where it is its directory's only model, whichever of the two was
    /// named, the files beside it say the rest: `generation_config.json`, `inference_config.json`, and the chat template
    /// and special tokens ([`Tokenizer::from_gguf_in`]).
    ///
    /// # Errors
    /// Whatever does not fit is named; nothing is guessed.
    pub fn open(path: impl AsRef<Path>, ops: Arc<dyn Ops>) -> Result<LanguageModel, InferenceError> {
        let path = path.as_ref();
        let (config, checkpoint) = models::open(path)?;
        let dir = directory(path);
        let (defaults, settings) = match &dir {
            Some(dir) => (SamplingDefaults::read(dir)?, InferenceConfig::read(dir)?),
            None => (SamplingDefaults::without_file(), InferenceConfig::default()),
        };
        let tokenizer = match (&dir, checkpoint.metadata()) {
            (Some(dir), None) => Tokenizer::open(dir)?,
            _ => tokenizer_in(&checkpoint, dir.as_deref())?,
        };
        let loaded = models::load_checkpoint(config, &checkpoint, &*ops)?;
        LanguageModel::new(loaded, tokenizer, defaults, settings, ops)
    }

    fn new(
        loaded: Loaded,
        tokenizer: Tokenizer,
        defaults: SamplingDefaults,
        settings: InferenceConfig,
        ops: Arc<dyn Ops>,
    ) -> Result<LanguageModel, InferenceError> {
        let source = tokenizer.config().chat_template.clone();
        let template = source.as_deref().map(ChatTemplate::new).transpose()?;
        let tags = source.as_deref().and_then(Tags::of_template);
        let stop_ids = match &settings.eos_token_id {
            Some(ids) => ids.clone(),
            None => {
                let mut ids = defaults.eos.clone();
                ids.extend(eos_of(&loaded.config));
                ids.extend(tokenizer.special(Special::Eos));
                ids.sort_unstable();
                ids.dedup();
                ids
            }
        };
        let (loaded, grammars) = (Arc::new(loaded), OnceLock::new());
        Ok(LanguageModel { loaded, ops, tokenizer, template, tags, defaults, stop_ids, settings, grammars })
    }

    /// An engine for it. The context is at most what `inference_config.json` allows.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn engine(&self, options: EngineOptions) -> Result<Engine, InferenceError> {
        let options = EngineOptions { context: Some(self.context(options)?), ..options };
        Engine::new(self.loaded.clone(), self.ops.clone(), options)
    }

    /// The longest sequence: as asked for, or what fits.
    fn context(&self, options: EngineOptions) -> Result<usize, InferenceError> {
        let window = self.loaded.model.shape().max_positions;
        let limit = self.settings.rope_table_max_seq_len.unwrap_or(window).min(window);
        let context = options.context.unwrap_or(EngineOptions::CONTEXT.min(limit));
        if context > limit {
            return Err(InferenceError::Context { asked: context, window: limit });
        }
        Ok(context)
    }

    /// As [`LanguageModel::engine`], with a smaller model that guesses ahead: [`Engine::with_draft`].
    ///
    /// # Errors
    /// As [`Engine::with_draft`], and [`InferenceError::DraftWords`] if its tokens are others.
    pub fn engine_with(&self, draft: &LanguageModel, options: EngineOptions) -> Result<Engine, InferenceError> {
        let (ours, theirs) = (&self.tokenizer, &draft.tokenizer);
        let other = (0..ours.vocab_size() as u32).find(|&id| ours.piece_bytes(id) != theirs.piece_bytes(id));
        if let Some(id) = other {
            let piece = |tokenizer: &Tokenizer| tokenizer.id_to_token(id).unwrap_or_default();
            return Err(InferenceError::DraftWords { id, got: piece(theirs), expected: piece(ours) });
        }
        let options = EngineOptions { context: Some(self.context(options)?), ..options };
        Engine::with_draft(self.loaded.clone(), draft.loaded.clone(), self.ops.clone(), options)
    }

    /// The text that the model sees of a conversation, up to where its answer begins.
    ///
    /// # Errors
    /// [`InferenceError::NoTemplate`], or what the template itself refuses.
    pub fn render(&self, chat: &Chat<'_>) -> Result<String, InferenceError> {
        let template = self.template.as_ref().ok_or(InferenceError::NoTemplate)?;
        let mut variables = Map::new();
        for (name, role) in [("bos_token", Special::Bos), ("eos_token", Special::Eos)] {
            let text = self.tokenizer.config().special.get(&role);
            variables.insert(name.into(), text.cloned().unwrap_or_default().into());
        }
        if let Some(thinking) = chat.thinking {
            variables.insert("enable_thinking".into(), thinking.into());
        }
        let input = ChatInput { messages: chat.messages, tools: chat.tools, add_generation_prompt: true, variables };
        Ok(template.render(&input)?)
    }

    /// Ids of a rendered conversation: the template has put its special tokens in place already.
    ///
    /// # Errors
    /// What the tokenizer says.
    pub fn encode_rendered(&self, text: &str) -> Result<Vec<u32>, InferenceError> {
        Ok(self.tokenizer.encode_ids(text, false)?)
    }

    /// Ids of a text to be continued, with the special tokens that the model's own tokenizer puts around it; one that
    /// would end the text is left out.
    ///
    /// # Errors
    /// What the tokenizer says.
    pub fn encode_text(&self, text: &str) -> Result<Vec<u32>, InferenceError> {
        let mut ids = self.tokenizer.encode_ids(text, true)?;
        let plain = self.tokenizer.encode_ids(text, false)?;
        if ids.len() > plain.len() && ids.last().is_some_and(|id| self.stop_ids.contains(id)) {
            ids.pop();
        }
        Ok(ids)
    }

    /// The compiler of grammars for its tokens, made at the first call.
    ///
    /// # Errors
    /// As [`Compiler::new`].
    pub fn grammars(&self) -> Result<&Compiler, InferenceError> {
        if let Some(compiler) = self.grammars.get() {
            return Ok(compiler);
        }
        let compiler = grammar_compiler(&self.tokenizer, &self.stop_ids)?;
        Ok(self.grammars.get_or_init(|| compiler))
    }

    /// Holds an answer to a grammar. If the model may reason first, `inside` says whether the prompt opened the block
    /// ([`Tags::opened_by`]); the block is free, the answer after it is held.
    ///
    /// # Errors
    /// As [`Compiler::compile`].
    pub fn guide(&self, spec: &GrammarSpec, inside: Option<bool>) -> Result<Guide, InferenceError> {
        let constraint = Box::new(self.grammars()?.compile(spec)?);
        let ids = inside.zip(self.tags).and_then(|(inside, tags)| {
            let id = |tag| self.tokenizer.token_to_id(tag);
            Some(ReasoningIds { open: id(tags.open)?, close: id(tags.close)?, inside })
        });
        Ok(match ids {
            Some(ids) => Guide::after_reasoning(constraint, ids),
            None => Guide::new(constraint),
        })
    }

    /// The model.
    pub fn loaded(&self) -> &Arc<Loaded> {
        &self.loaded
    }

    /// The executor.
    pub fn ops(&self) -> &Arc<dyn Ops> {
        &self.ops
    }

    /// Its tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Whether it can hold a conversation.
    pub fn has_template(&self) -> bool {
        self.template.is_some()
    }

    /// The tags around its reasoning, if its template knows of any.
    pub fn tags(&self) -> Option<Tags> {
        self.tags
    }

    /// What its `generation_config.json` recommends.
    pub fn defaults(&self) -> &SamplingDefaults {
        &self.defaults
    }

    /// Ids that end a text.
    pub fn stop_ids(&self) -> &[u32] {
        &self.stop_ids
    }
}

/// `eos_token_id` of config.json: an id, a list of ids, or nothing.
fn eos_of(config: &Config) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match config.get("eos_token_id") {
        Some(Value::Array(ids)) => ids.iter().filter_map(id).collect(),
        Some(value) => id(value).into_iter().collect(),
        None => Vec::new(),
    }
}

/// The tokenizer of a `.gguf` file, as [`LanguageModel::open`] has it; its weights are not touched.
///
/// # Errors
/// [`InferenceError::NoTokenizer`] for another kind of file; what is wrong with the file, or not built.
pub fn gguf_tokenizer(path: &Path) -> Result<Tokenizer, InferenceError> {
    tokenizer_in(&Checkpoint::open(path).map_err(models::ModelError::from)?, directory(path).as_deref())
}

/// The directory whose files belong to the model at a path: the path itself, or where the file lies if opening that
/// directory would open the file.
fn directory(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        return Some(path.to_owned());
    }
    let parent = match path.parent()? {
        nothing if nothing.as_os_str().is_empty() => Path::new("."),
        parent => parent,
    };
    weights::find_weights(parent).is_ok_and(|found| found.file_name() == path.file_name()).then(|| parent.to_owned())
}

fn tokenizer_in(file: &Checkpoint, dir: Option<&Path>) -> Result<Tokenizer, InferenceError> {
    let metadata = file.metadata().ok_or_else(|| InferenceError::NoTokenizer { path: file.path().to_owned() })?;
    let v = Vocab::read(metadata).map_err(models::ModelError::from)?;
    let vocab = GgufVocab {
        model: v.model,
        pre: v.pre,
        tokens: v.tokens,
        scores: v.scores,
        types: v.types,
        merges: v.merges,
        bos: v.bos,
        eos: v.eos,
        eot: v.eot,
        unk: v.unk,
        sep: v.sep,
        pad: v.pad,
        cls: v.cls,
        mask: v.mask,
        add_bos: v.add_bos,
        add_eos: v.add_eos,
        add_space_prefix: v.add_space_prefix,
        remove_extra_spaces: v.remove_extra_spaces,
        charsmap: v.charsmap,
        chat_template: v.chat_template,
    };
    Ok(match dir {
        Some(dir) => Tokenizer::from_gguf_in(&vocab, dir)?,
        None => Tokenizer::from_gguf(&vocab)?,
    })
}
