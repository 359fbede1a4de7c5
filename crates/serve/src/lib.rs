//! Language models, embedders and rerankers behind OpenAI's HTTP API.
//!
//! A [`Server`] takes [`Options`] and serves: one thread drives each language model's engine, handlers speak with it over
//! channels. What a request may say stands in the types of [`crate`]'s endpoints: a field that is not there is refused by
//! name, so nothing is ignored.

mod answer;
mod api;
mod app;
mod ask;
mod batch;
mod body;
mod connections;
mod conversation;
mod documents;
mod endpoints;
mod error;
mod format;
mod guard;
mod metrics;
mod options;
mod router;
mod server;
mod shelf;
mod speaker;
mod tls;
mod tools;
mod worker;

pub use api::logprobs::TokenLogprob;
pub use batch::{Summary, batch};
pub use endpoints::markdown;
pub use error::ServeError;
pub use options::{Defaults, ModelSpec, Options, TlsFiles};
pub use server::Server;
#[cfg(fuzzing)]
pub use tools::claim::any_text_in_pieces_is_read_as_the_whole;
