//! What architectures have in common: parts of a layer, each with its own forward pass.

mod attention;
mod classifier;
mod embeddings;
mod mlp;
mod post_norm;
mod rope;

pub use attention::{SelfAttention, bidirectional};
pub use classifier::{Classifier, FirstOrMean};
pub use embeddings::{Embeddings, positions_after_padding};
pub use mlp::Mlp;
pub use post_norm::{Positions, PostNormEncoder, PostNormLayer};
pub use rope::angles;
