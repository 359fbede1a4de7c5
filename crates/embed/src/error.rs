//! What can keep a text from becoming a vector.

use std::path::{Path, PathBuf};

/// An embedder that cannot be opened, or a text that it cannot take.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// The model could not be found or fetched.
    #[error(transparent)]
    Hub(#[from] hub::HubError),
    /// The model could not be loaded or run.
    #[error(transparent)]
    Inference(#[from] inference::InferenceError),
    /// The executor could not be started, or could not take a weight.
    #[error(transparent)]
    Ops(#[from] ops::OpsError),
    /// A module's weights could not be read.
    #[error(transparent)]
    Weights(#[from] weights::WeightsError),
    /// The tokenizer could not be loaded, or a text not be encoded.
    #[error(transparent)]
    Tokenizer(#[from] tokenizer::TokenizerError),
    /// A settings file is wrong.
    #[error("{}: {what}", file.display())]
    Settings {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A step that changes the vectors and is not built.
    #[error("{}: module {module} is not built; built are Transformer, Pooling, Dense, Normalize and Dropout", file.display())]
    Module {
        /// The list of modules.
        file: PathBuf,
        /// The Python class.
        module: String,
    },
    /// A pooling mode of another name.
    #[error("{}: pooling mode {mode} is unknown; known are cls, max, mean, mean_sqrt_len_tokens, weightedmean and lasttoken", file.display())]
    Pooling {
        /// The pooling module's settings.
        file: PathBuf,
        /// What stands there.
        mode: String,
    },
    /// Nothing says how token vectors become a text's vector, and a guess would be a wrong number.
    #[error("{} has no modules.json that says how to pool: name the pooling (--pooling mean, cls, lasttoken, …) as the model's card says", dir.display())]
    NoPooling {
        /// The model's folder.
        dir: PathBuf,
    },
    /// The model needs a folder with safetensors.
    #[error("{} is not a folder with config.json and safetensors, which an embedder needs here", path.display())]
    NotAFolder {
        /// What was given.
        path: PathBuf,
    },
    /// Something is wrong with the query, not with the passages.
    #[error("the query: {0}")]
    Query(Box<EmbedError>),
    /// A text has more tokens than the model's window.
    #[error(
        "text {text} has {tokens} tokens, but the window is {window}: shorten it, or ask for truncation (--truncate)"
    )]
    TooLong {
        /// Index of the text.
        text: usize,
        /// Its tokens, special ones included.
        tokens: usize,
        /// The most that fit.
        window: usize,
    },
    /// A text without any token.
    #[error("text {text} is empty, and this model's tokenizer adds no special token: there is nothing to embed")]
    Empty {
        /// Index of the text.
        text: usize,
    },
    /// No prompt of this name.
    #[error("no prompt is named {name}; this model has {known}")]
    Prompt {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// More features asked for than there are.
    #[error("{asked} dimensions were asked for, expected 1 to {available}")]
    Dimensions {
        /// Asked for.
        asked: usize,
        /// The model's.
        available: usize,
    },
    /// A cross-encoder with several labels gives no score.
    #[error("the model has {labels} labels ({names}), expected one: it classifies pairs, it does not rank them")]
    Labels {
        /// Number of labels.
        labels: usize,
        /// Their names.
        names: String,
    },
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// The caller could not take a result.
    #[error("{0}")]
    Output(String),
}

impl EmbedError {
    pub(crate) fn settings(file: &Path, what: &str) -> EmbedError {
        EmbedError::Settings { file: file.to_owned(), what: what.to_owned() }
    }
}
