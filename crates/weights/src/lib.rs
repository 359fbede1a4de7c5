//! What do these bytes mean? Number formats and checkpoint files, mapped and checked.
//!
//! [`Format`] is one row of a table for every number format: what it is called, how many bytes a block takes, how to
//! decode it to `f32` and, where defined, how to encode it. [`Checkpoint`] maps the files of a model and names the
//! tensors in them; a [`Tensor`] is a shaped view of the mapped bytes, which are never copied or widened on loading.
//!
//! ```no_run
//! let checkpoint = lattice_weights::Checkpoint::open("all-MiniLM-L6-v2")?;
//! let words = checkpoint.get("embeddings.word_embeddings.weight")?;
//! let mut row = vec![0.0; words.cols()];
//! words.decode_row(101, &mut row)?;
//! # Ok::<(), lattice_weights::WeightsError>(())
//! ```
//!
//! Every file is untrusted: a header that lies is a [`WeightsError`] which names the file and the tensor, never a
//! panic, an allocation by an unchecked number, or a read outside the model's directory.

mod checkpoint;
mod error;
pub mod format;
pub mod gguf;
mod mmap;
mod order;
pub mod safetensors;
mod tensor;

pub use checkpoint::{Checkpoint, find_weights};
pub use error::WeightsError;
pub use format::{FORMATS, Format};
pub use safetensors::write_safetensors;
pub use tensor::{Entry, Tensor};

/// What every fallible function of this crate returns.
pub type Result<T, E = WeightsError> = std::result::Result<T, E>;
