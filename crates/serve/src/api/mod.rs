//! The endpoints, a module for each API.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod embeddings;
pub(crate) mod logprobs;
pub(crate) mod messages;
pub(crate) mod models;
pub(crate) mod rerank;
pub(crate) mod responses;
pub(crate) mod sampling;
pub(crate) mod sse;
pub(crate) mod tokens;
