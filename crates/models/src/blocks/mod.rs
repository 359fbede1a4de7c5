//! What architectures have in common: parts of a layer, each with its own forward pass.

mod attention;
mod classifier;
mod decoder;
mod delta;
mod embeddings;
mod experts;
mod head;
mod mlp;
mod post_norm;
mod rope;

pub use attention::{SelfAttention, bidirectional};
pub use classifier::{Classifier, FirstOrMean};
pub use decoder::{Decoder, DecoderLayer, HeadAttention, Mixer, Network, causal};
pub(crate) use decoder::{add_normed, kept};
pub use delta::DeltaNet;
pub use embeddings::{Embeddings, positions_after_padding};
pub use experts::{Mixture, SharedExpert};
pub use head::LanguageHead;
pub use mlp::Mlp;
pub use post_norm::{Positions, PostNormEncoder, PostNormLayer};
pub use rope::{Growth, Rotary, angles};
