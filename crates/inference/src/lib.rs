//! Running models. [`Encoder`] packs sequences into ragged forward passes and pools or classifies them; [`Engine`] runs
//! sequences of tokens on a language model, and [`generate`] turns them into text.

mod encoder;
mod engine;
mod generation;
mod guide;
mod language;
mod perplexity;
mod plan;
mod pooling;
pub mod sampling;
pub mod text;

pub use encoder::{Encoder, InferenceError, Sequence};
pub use engine::{Counts, Engine, EngineOptions, Event, Finish, SequenceId, Speculate, Totals};
pub use generation::{FinishReason, Generation, Listener, NewText, TextStream, Timings, generate, generate_guided};
pub use guide::{Guide, ReasoningIds, grammar_compiler};
pub use language::{Chat, LanguageModel, gguf_tokenizer};
pub use perplexity::{Perplexity, perplexity};
pub use plan::plan;
pub use pooling::Pooling;
