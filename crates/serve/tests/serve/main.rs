//! The server as its clients meet it. One program, since linking it takes longer than running it.

mod batch;
mod chat;
mod common;
mod dialects;
mod documents;
mod embeddings;
mod faults;
mod grammar;
mod safety;
mod several;
mod templates;
mod tls;
