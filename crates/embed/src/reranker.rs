//! Query and passage to score, by a cross-encoder that reads both together.

use crate::error::EmbedError;
use crate::input::{Input, Inputs};
use crate::modules::read_json;
use crate::options::{OpenOptions, RerankOptions};
use hub::{Hub, Located};
use inference::{Encoder, Sequence};
use std::borrow::Cow;
use std::ops::ControlFlow;
use tokenizer::Tokenizer;

/// How relevant a passage is.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// Place of the passage in the call.
    pub index: usize,
    /// Its score: larger is more relevant. Whether it lies between 0 and 1 is the model's choice.
    pub score: f32,
    /// Tokens of the pair, special ones included.
    pub tokens: usize,
    /// Whether the pair was cut to fit the window.
    pub truncated: bool,
}

impl Score {
    /// Sorts scores best first, equal ones by index.
    pub fn sort(scores: &mut [Score]) {
        scores.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.index.cmp(&b.index)));
    }
}

/// A cross-encoder, ready to run. It may be shared between threads.
pub struct Reranker {
    encoder: Encoder,
    inputs: Inputs,
    sigmoid: bool,
}

impl Reranker {
    /// Opens a model by its name in the catalog, by `org/name` on the Hub, or by its folder, fetching it if need be.
    pub fn from_name(name: &str) -> Result<Reranker, EmbedError> {
        Reranker::open(&Hub::from_env()?.resolve(name, &mut ())?, &OpenOptions::default())
    }

    /// Opens a model that the hub found.
    pub fn open(located: &Located, options: &OpenOptions) -> Result<Reranker, EmbedError> {
        let dir = &located.path;
        if !dir.is_dir() {
            return Err(EmbedError::NotAFolder { path: dir.clone() });
        }
        let encoder = Encoder::open(dir, options.executor()?)?;
        let labels = &encoder.loaded().labels;
        if encoder.loaded().classifier.is_some() && labels.len() != 1 {
            return Err(EmbedError::Labels { labels: labels.len(), names: labels.join(", ") });
        }
        let tokenizer = Tokenizer::open(dir)?;
        let window = tokenizer.config().model_max_length.unwrap_or(usize::MAX).min(encoder.shape().max_positions);
        let sigmoid = sigmoid(&encoder, dir)?;
        Ok(Reranker { encoder, inputs: Inputs { tokenizer, window, lower_case: false }, sigmoid })
    }

    /// Scores of passages for a query, in the order of the passages.
    pub fn score<S: AsRef<str> + Sync>(
        &self,
        query: &str,
        passages: &[S],
        options: &RerankOptions,
    ) -> Result<Vec<Score>, EmbedError> {
        let pair = |i: usize| (Cow::Borrowed(query), Some(passages[i].as_ref()));
        let inputs = self.inputs.encode(&self.encoder, passages.len(), pair, options.truncate, &options.cancel)?;
        let mut scores: Vec<Score> = inputs
            .iter()
            .enumerate()
            .map(|(index, Input { sequence, truncated })| Score {
                index,
                score: 0.0,
                tokens: sequence.ids.len(),
                truncated: *truncated,
            })
            .collect();
        let sequences: Vec<Sequence> = inputs.into_iter().map(|input| input.sequence).collect();
        let mut outcome = Ok(());
        self.encoder.classify(&sequences, &mut |i, logits| {
            scores[i].score = if self.sigmoid { 1.0 / (1.0 + (-logits[0]).exp()) } else { logits[0] };
            outcome = options.cancel.check();
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        outcome.map(|()| scores)
    }

    /// Scores, best first.
    pub fn rank<S: AsRef<str> + Sync>(
        &self,
        query: &str,
        passages: &[S],
        options: &RerankOptions,
    ) -> Result<Vec<Score>, EmbedError> {
        let mut scores = self.score(query, passages, options)?;
        Score::sort(&mut scores);
        Ok(scores)
    }

    /// The longest pair in tokens, special tokens included.
    pub fn window(&self) -> usize {
        self.inputs.window
    }

    /// The encoder inside.
    pub fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    /// Whether scores are logistic (0 to 1) rather than raw logits.
    pub fn is_sigmoid(&self) -> bool {
        self.sigmoid
    }
}

/// Whether scores are the sigmoid of the logit: config.json may name the function (sentence-transformers writes it
/// there); a model with one label that names none has a sigmoid.
fn sigmoid(encoder: &Encoder, dir: &std::path::Path) -> Result<bool, EmbedError> {
    let file = dir.join("config.json");
    let config = &encoder.loaded().config;
    let named = config.get("sentence_transformers").and_then(|s| s.get("activation_fn"));
    let named = named.or_else(|| config.get("sbert_ce_default_activation_function")).filter(|v| !v.is_null());
    if read_json(&dir.join("modules.json"))?.is_some_and(|modules| modules.to_string().contains("LogitScore")) {
        return Err(EmbedError::settings(
            &dir.join("modules.json"),
            "a reranker that is a language model is not built",
        ));
    }
    match named.map(|v| v.as_str().unwrap_or_default().rsplit('.').next().unwrap_or_default().to_owned()).as_deref() {
        None | Some("Sigmoid") => Ok(true),
        Some("Identity") => Ok(false),
        Some(other) => {
            Err(EmbedError::settings(&file, &format!("activation function {other} of a reranker is not built")))
        }
    }
}
