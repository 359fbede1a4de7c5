//! Text embeddings and reranking for applications.
//!
//! ```no_run
//! # fn main() -> Result<(), lattice_embed::EmbedError> {
//! use lattice_embed::{EmbedOptions, Embedder, cosine};
//!
//! let embedder = Embedder::from_name("all-minilm-l6-v2")?; // fetched on first use
//! let texts = ["A cat sits on the mat", "A feline rests on a rug"];
//! let vectors = embedder.embed(&texts, &EmbedOptions::default())?;
//! println!("{}", cosine(&vectors[0].vector, &vectors[1].vector));
//! # Ok(()) }
//! ```
//!
//! [`Embedder`] is blocking; [`NativeEmbeddingService`] puts it behind the async trait [`EmbeddingService`]. [`Reranker`]
//! scores query and passage together with a cross-encoder. A text's vector does not depend on what else is in a call:
//! it is the same to the bit, alone and in any batch.
//!
//! What one does with vectors afterwards: [`cosine`] and its kin compare two, a [`Matrix`] finds the [nearest](Matrix::nearest)
//! of many, in f32, half precision, bytes or bits.

mod distance;
mod embedder;
mod error;
mod input;
mod modules;
mod options;
mod ranking;
mod reranker;
mod service;
mod steps;

pub use distance::{
    Element, FloatElement, Matrix, Neighbor, cosine, distance, dot, euclidean, hamming, normalize, squared_euclidean,
};
pub use embedder::{Embedder, Embedding};
pub use error::EmbedError;
pub use hub::{CATALOG, Entry, Hub};
pub use inference::Pooling;
pub use kernels::{Metric, Pool};
pub use modules::{Dense, Modules, Stage};
pub use options::{Cancel, EmbedOptions, OpenOptions, Prompt, RerankOptions};
pub use reranker::{Reranker, Score};
pub use service::{EmbeddingService, NativeEmbeddingService};
