//! Running models: today the ragged encode step of encoders (pack sequences, one forward pass, pool or classify).

mod encoder;
mod plan;
mod pooling;

pub use encoder::{Encoder, InferenceError, Sequence};
pub use plan::plan;
pub use pooling::Pooling;
