//! Text to vector: tokenize, run the encoder, pool, and what else the model's folder says.

use crate::distance::normalize;
use crate::error::EmbedError;
use crate::input::{Input, Inputs};
use crate::modules::Modules;
use crate::options::{EmbedOptions, OpenOptions, Prompt};
use crate::steps::{Step, load_steps, run_steps};
use hub::{Entry, Hub, Located};
use inference::{Encoder, InferenceError, Pooling, Sequence};
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::path::Path;
use tokenizer::Tokenizer;

/// A text's vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// Place of the text in the call.
    pub index: usize,
    /// Tokens that the model saw, special ones and the prompt included.
    pub tokens: usize,
    /// Whether the text was cut to fit the window.
    pub truncated: bool,
    /// The vector.
    pub vector: Vec<f32>,
}

/// An embedding model, ready to run. It may be shared between threads.
pub struct Embedder {
    encoder: Encoder,
    inputs: Inputs,
    modules: Modules,
    steps: Vec<Step>,
    dimensions: usize,
    entry: Option<&'static Entry>,
}

/// Texts of a stream that are tokenized, sorted by length and encoded together.
const TEXTS_TOGETHER: usize = 4096;
/// Bytes of text after which a stream's group is closed, so that long texts do not pile up.
const BYTES_TOGETHER: usize = 4 << 20;

impl Embedder {
    /// Opens a model by its name in the catalog, by `org/name` on the Hub, or by its folder, fetching it if need be.
    pub fn from_name(name: &str) -> Result<Embedder, EmbedError> {
        Embedder::open(&Hub::from_env()?.resolve(name, &mut ())?, &OpenOptions::default())
    }

    /// Opens a model that the hub found.
    pub fn open(located: &Located, options: &OpenOptions) -> Result<Embedder, EmbedError> {
        let dir = &located.path;
        if !dir.is_dir() {
            return Err(EmbedError::NotAFolder { path: dir.clone() });
        }
        let pooling = options.pooling.or_else(|| located.entry.and_then(|e| e.pooling).map(of_catalog));
        let mut modules = Modules::read(dir, pooling)?;
        for (name, text) in located.entry.map_or(&[][..], |e| e.prompts) {
            modules.prompts.entry(name.to_string()).or_insert_with(|| text.to_string());
        }
        let encoder = Encoder::open(dir, options.executor()?)?;
        let tokenizer = Tokenizer::open(dir)?;
        let pooled = vec![encoder.shape().hidden; modules.pooling.len()];
        let (steps, dimensions) = load_steps(&modules, pooled, &**encoder.ops())?;
        let limit = modules.window.or(tokenizer.config().model_max_length).unwrap_or(usize::MAX);
        let window = limit.min(encoder.shape().max_positions);
        let inputs = Inputs { tokenizer, window, lower_case: modules.lower_case };
        Ok(Embedder { encoder, inputs, modules, steps, dimensions, entry: located.entry })
    }

    /// Opens the model in a folder.
    pub fn from_dir(dir: impl AsRef<Path>, options: &OpenOptions) -> Result<Embedder, EmbedError> {
        let dir = dir.as_ref().to_string_lossy();
        Embedder::open(&Hub::from_env()?.resolve(&format!("{dir}/"), &mut ())?, options)
    }

    /// The vectors of texts, in their order.
    pub fn embed<S: AsRef<str> + Sync>(
        &self,
        texts: &[S],
        options: &EmbedOptions,
    ) -> Result<Vec<Embedding>, EmbedError> {
        let mut all: Vec<Option<Embedding>> = vec![None; texts.len()];
        self.embed_each(texts, options, |embedding| {
            let index = embedding.index;
            all[index] = Some(embedding);
            Ok(())
        })?;
        Ok(all.into_iter().map(|e| e.expect("every text is embedded once")).collect())
    }

    /// Hands over each text's vector as soon as it is there: longest texts first, not in order. An error of `done`
    /// ends the call.
    pub fn embed_each<S: AsRef<str> + Sync>(
        &self,
        texts: &[S],
        options: &EmbedOptions,
        mut done: impl FnMut(Embedding) -> Result<(), EmbedError>,
    ) -> Result<(), EmbedError> {
        let (prompt, skip) = self.prompt(&options.prompt)?;
        let prompted = |i: usize| match prompt.as_str() {
            "" => (Cow::Borrowed(texts[i].as_ref()), None),
            prompt => (Cow::Owned([prompt, texts[i].as_ref()].concat()), None),
        };
        let inputs = self.inputs.encode(&self.encoder, texts.len(), prompted, options.truncate, &options.cancel)?;
        let (sequences, truncated): (Vec<Sequence>, Vec<bool>) =
            inputs.into_iter().map(|Input { sequence, truncated }| (sequence, truncated)).unzip();
        self.embed_sequences(&sequences, skip, options, &mut |index, vector| {
            done(Embedding { index, tokens: sequences[index].ids.len(), truncated: truncated[index], vector })
        })
    }

    /// Embeds a stream of any length in order, holding a few thousand texts at a time. An error of `done` ends it.
    pub fn embed_stream<S: AsRef<str> + Sync>(
        &self,
        texts: impl IntoIterator<Item = S>,
        options: &EmbedOptions,
        mut done: impl FnMut(Embedding) -> Result<(), EmbedError>,
    ) -> Result<(), EmbedError> {
        let (mut group, mut bytes, mut first) = (Vec::new(), 0, 0);
        let mut flush = |group: &mut Vec<S>| -> Result<(), EmbedError> {
            let vectors = self.embed(group, options).map_err(|e| later(e, first))?;
            vectors.into_iter().try_for_each(|e| done(Embedding { index: first + e.index, ..e }))?;
            first += group.len();
            group.clear();
            Ok(())
        };
        for text in texts {
            bytes += text.as_ref().len();
            group.push(text);
            if group.len() == TEXTS_TOGETHER || bytes >= BYTES_TOGETHER {
                flush(&mut group)?;
                bytes = 0;
            }
        }
        flush(&mut group)
    }

    /// The vector of sequences that are tokens already, special tokens included. Each must fit the window.
    pub fn embed_tokens(&self, ids: &[Vec<u32>], options: &EmbedOptions) -> Result<Vec<Embedding>, EmbedError> {
        let mut sequences = Vec::with_capacity(ids.len());
        for (text, ids) in ids.iter().enumerate() {
            let window = self.inputs.window;
            let kept = if options.truncate { &ids[..ids.len().min(window)] } else { ids };
            match kept.len() {
                0 => return Err(EmbedError::Empty { text }),
                tokens if tokens > window => return Err(EmbedError::TooLong { text, tokens, window }),
                _ => sequences.push(Sequence::from(kept.to_vec())),
            }
        }
        let mut all: Vec<Option<Embedding>> = vec![None; ids.len()];
        self.embed_sequences(&sequences, 0, options, &mut |index, vector| {
            let tokens = sequences[index].ids.len();
            all[index] = Some(Embedding { index, tokens, truncated: tokens < ids[index].len(), vector });
            Ok(())
        })?;
        Ok(all.into_iter().map(|e| e.expect("every sequence is embedded once")).collect())
    }

    fn embed_sequences(
        &self,
        sequences: &[Sequence],
        skip: usize,
        options: &EmbedOptions,
        done: &mut dyn FnMut(usize, Vec<f32>) -> Result<(), EmbedError>,
    ) -> Result<(), EmbedError> {
        let keep = self.kept(options)?;
        let unit = options.normalize.unwrap_or(self.modules.normalizes());
        let mut outcome = Ok(());
        self.encoder.embed(
            sequences,
            &self.modules.pooling,
            skip,
            &|cx, pooled| run_steps(&self.steps, cx, pooled),
            &mut |i, row| {
                outcome = options.cancel.check().and_then(|()| {
                    let mut vector = row[..keep].to_vec();
                    if unit {
                        normalize(&mut vector);
                    }
                    done(i, vector)
                });
                if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            },
        )?;
        outcome
    }

    /// The text before each input, and how many of its tokens take no part in the pooling.
    fn prompt(&self, prompt: &Prompt) -> Result<(String, usize), EmbedError> {
        let named = |name: &str| {
            let names = || match self.modules.prompts.is_empty() {
                true => "none".to_owned(),
                false => self.modules.prompts.keys().cloned().collect::<Vec<_>>().join(", "),
            };
            let text = self.modules.prompts.get(name).cloned();
            text.ok_or_else(|| EmbedError::Prompt { name: name.to_owned(), known: names() })
        };
        let text = match (prompt, &self.modules.default_prompt) {
            (Prompt::Name(name), _) | (Prompt::Default, Some(name)) => named(name)?,
            (Prompt::Text(text), _) => text.clone(),
            (Prompt::None, _) | (Prompt::Default, None) => String::new(),
        };
        if self.modules.include_prompt || text.is_empty() {
            return Ok((text, 0));
        }
        // Its tokens as a text of its own, less the special token that such a text ends with.
        let ids = self.inputs.tokenizer.encode_ids(&text, true)?;
        let ends = ids.last().is_some_and(|&id| self.inputs.tokenizer.is_special(id));
        Ok((text, ids.len() - usize::from(ends)))
    }

    /// How many features of each vector are kept.
    fn kept(&self, options: &EmbedOptions) -> Result<usize, EmbedError> {
        let available = self.dimensions;
        match options.dimensions {
            None => Ok(available),
            Some(asked) if (1..=available).contains(&asked) => Ok(asked),
            Some(asked) => Err(EmbedError::Dimensions { asked, available }),
        }
    }

    /// Features of a vector.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// The longest input in tokens, special tokens and prompt included.
    pub fn window(&self) -> usize {
        self.inputs.window
    }

    /// Pooling, prompts, and what else the model's folder says.
    pub fn modules(&self) -> &Modules {
        &self.modules
    }

    /// Its tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.inputs.tokenizer
    }

    /// The encoder inside.
    pub fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    /// Its row of the catalog, if it has one.
    pub fn entry(&self) -> Option<&'static Entry> {
        self.entry
    }
}

/// A text's index in an error, counted from the start of the stream.
fn later(error: EmbedError, first: usize) -> EmbedError {
    match error {
        EmbedError::TooLong { text, tokens, window } => EmbedError::TooLong { text: first + text, tokens, window },
        EmbedError::Empty { text } => EmbedError::Empty { text: first + text },
        EmbedError::Inference(InferenceError::NotFinite { sequence }) => {
            InferenceError::NotFinite { sequence: first + sequence }.into()
        }
        other => other,
    }
}

fn of_catalog(pooling: hub::Pooling) -> Pooling {
    match pooling {
        hub::Pooling::Cls => Pooling::Cls,
        hub::Pooling::Mean => Pooling::Mean,
        hub::Pooling::LastToken => Pooling::LastToken,
        other => unreachable!("{other:?} is in no row of the catalog"),
    }
}
