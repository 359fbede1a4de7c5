//! Why sampling was refused, or could not give a token.

use std::path::PathBuf;

/// What is wrong with a request's parameters, a model's defaults, or a row of logits.
#[derive(Debug, thiserror::Error)]
pub enum SamplingError {
    /// A number is outside of its range, or NaN.
    #[error("{name} is {value}, expected {expected}")]
    OutOfRange {
        /// Name of the parameter.
        name: &'static str,
        /// What was given.
        value: f64,
        /// The range in words.
        expected: &'static str,
    },
    /// A token id that the model does not have.
    #[error("{name} names token {id}, expected an id below {vocab}: is it of another model's vocabulary?")]
    NoSuchToken {
        /// Name of the parameter.
        name: &'static str,
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// A list is too long.
    #[error("{name} has {count} entries, expected at most {limit}")]
    TooMany {
        /// Name of the parameter.
        name: &'static str,
        /// Its length.
        count: usize,
        /// The longest allowed.
        limit: usize,
    },
    /// A stop string that would match everywhere, or never.
    #[error("stop string {index} has {bytes} bytes, expected 1 to {limit}")]
    StopLength {
        /// Its index in the list.
        index: usize,
        /// Its length in bytes.
        bytes: usize,
        /// The longest allowed.
        limit: usize,
    },
    /// The row of logits has another size than the vocabulary.
    #[error("a row of {got} logits, expected {vocab}: one for each token of the vocabulary")]
    WrongLength {
        /// Length of the row.
        got: usize,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// A logit is NaN or positive infinity.
    #[error(
        "the logit of token {id} is {value}: the model's activations overflow, or its weights hold NaN or infinity"
    )]
    NotFinite {
        /// The first such token.
        id: usize,
        /// Its logit.
        value: f32,
    },
    /// Nothing is left to choose from.
    #[error("no token is left to choose from: the grammar's mask and the logit bias exclude all {vocab} of them")]
    NothingLeft {
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// A configuration file could not be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A configuration file is larger than any real one.
    #[error("{}: larger than {limit} bytes, not a configuration file", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The largest allowed.
        limit: u64,
    },
    /// A configuration file is not a JSON object.
    #[error("{file}: not a JSON object: {reason}")]
    NotJson {
        /// The file.
        file: String,
        /// Where the parser stopped, or what it is instead.
        reason: String,
    },
    /// A key of a configuration file holds something else than it should.
    #[error("{file}: {key} is {got}, expected {expected}")]
    Config {
        /// The file's name.
        file: &'static str,
        /// The key.
        key: String,
        /// What stands there, shortened.
        got: String,
        /// What should.
        expected: &'static str,
    },
    /// A key that means nothing.
    #[error("{file}: unknown key {key}, expected some of {known}")]
    UnknownKey {
        /// The file's name.
        file: &'static str,
        /// The key.
        key: String,
        /// The known ones.
        known: &'static str,
    },
}
