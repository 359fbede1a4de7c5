//! What can go wrong with a model: its config.json, its checkpoint, or a batch that does not fit it.

use std::path::PathBuf;

/// What every fallible function of this crate returns.
pub type Result<T, E = ModelError> = std::result::Result<T, E>;

/// A model that cannot be loaded, or a batch that it cannot take.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The file is not there or not readable.
    #[error("could not read {}: {source}; is this a model directory?", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is larger than any configuration.
    #[error("{} has more than {limit} bytes: is it a model's configuration?", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The most bytes that are read.
        limit: u64,
    },
    /// The file is not a JSON object.
    #[error("{} is not a JSON object: {reason}", path.display())]
    NotJson {
        /// The file.
        path: PathBuf,
        /// Where and what the parser met.
        reason: String,
    },
    /// No row of [`crate::ARCHITECTURES`] has this name.
    #[error("architecture {architecture} (model_type {model_type}) is not built; built are: {built}")]
    Architecture {
        /// `architectures[0]` of config.json.
        architecture: String,
        /// `model_type` of config.json.
        model_type: String,
        /// The families that are.
        built: String,
    },
    /// A value is missing, of the wrong type or out of range.
    #[error("config.json: {key} is {got}, expected {expected}")]
    Config {
        /// The key, with a dot between levels.
        key: String,
        /// What stands there, shortened.
        got: String,
        /// What could stand there.
        expected: String,
    },
    /// An option is valid and changes the numbers, and nothing here computes it.
    #[error("config.json: {key} is {got}, which is not built; built: {built}")]
    Option {
        /// The key, with a dot between levels.
        key: String,
        /// What stands there, shortened.
        got: String,
        /// The values that are built.
        built: String,
    },
    /// The checkpoint holds no tensor that belongs to this architecture, or several copies.
    #[error("{found} tensors are named …{name}, expected one: does config.json fit this checkpoint?")]
    Trunk {
        /// The end of the name that was looked for.
        name: &'static str,
        /// How many there are.
        found: usize,
    },
    /// A tensor has another shape than the configuration says.
    #[error("tensor {tensor} is {got:?}, expected {expected:?}: does {hint} in config.json fit?")]
    Shape {
        /// Its full name.
        tensor: String,
        /// Its shape.
        got: Vec<usize>,
        /// The shape that follows from config.json.
        expected: Vec<usize>,
        /// The keys that the wrong dimension came from, as far as they can be told.
        hint: String,
    },
    /// The checkpoint could not be read.
    #[error(transparent)]
    Weights(#[from] weights::WeightsError),
    /// The executor could not take a parameter.
    #[error(transparent)]
    Ops(#[from] ops::OpsError),
    /// A batch without sequences.
    #[error("the batch has no sequences: nothing to compute")]
    EmptyBatch,
    /// A sequence without tokens.
    #[error("sequence {sequence} has no tokens, expected at least one")]
    EmptySequence {
        /// Its place in the batch.
        sequence: usize,
    },
    /// Token types that do not match the ids.
    #[error("sequence {sequence} has {types} token types for {ids} ids, expected as many, or none")]
    Types {
        /// Its place in the batch.
        sequence: usize,
        /// Number of ids.
        ids: usize,
        /// Number of token types.
        types: usize,
    },
    /// More rows than row numbers can count.
    #[error("the batch has more than {limit} tokens: split it")]
    TooManyTokens {
        /// The most that a batch holds.
        limit: usize,
    },
    /// A sequence's pages do not hold its tokens.
    #[error("sequence {sequence} has {tokens} tokens, but its {pages} pages hold {page_tokens} each: give it more")]
    Pages {
        /// Its place in the batch.
        sequence: usize,
        /// Its past and new tokens.
        tokens: usize,
        /// Pages that it has.
        pages: usize,
        /// Tokens of a page.
        page_tokens: usize,
    },
    /// A page or slot that the caches do not have.
    #[error("sequence {sequence}: {what} {got}, expected below {limit}: the caches were made for so many")]
    Place {
        /// Its place in the batch.
        sequence: usize,
        /// Page or slot.
        what: &'static str,
        /// The number.
        got: u32,
        /// How many there are.
        limit: usize,
    },
    /// A sequence is longer than the model's window.
    #[error(
        "sequence {sequence} has {tokens} tokens, but {architecture} takes at most {window}: shorten or truncate it"
    )]
    TooLong {
        /// Its place in the batch.
        sequence: usize,
        /// Its length.
        tokens: usize,
        /// The longest that fits.
        window: usize,
        /// The model's family.
        architecture: &'static str,
    },
    /// A number that names no row of one of the model's tables.
    #[error(
        "sequence {sequence}: {what} {got} at token {token}, expected below {limit}: does the tokenizer belong to this model?"
    )]
    Id {
        /// Its place in the batch.
        sequence: usize,
        /// Its place in the sequence.
        token: usize,
        /// Id, token type or position.
        what: &'static str,
        /// The number.
        got: u32,
        /// Rows of the table.
        limit: usize,
    },
}
