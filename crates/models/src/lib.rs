//! Architectures: config.json plus a composition of shared blocks.
//!
//! [`load`] reads a model directory, picks its row of [`ARCHITECTURES`], checks every tensor's shape and uploads it to an
//! executor. What it gives back is a [`Model`], rows in and rows out, that does not know which executor that is; a
//! checkpoint for sequence classification has a [`Classifier`] on top, a language model a [`LanguageHead`].
//!
//! A decoder's layers say what they keep of a sequence ([`Model::states`]); with room for it ([`Caches`]) sequences go on
//! where they were ([`Batch::push_after`], [`Forward::cached`]).
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use lattice_models::{Batch, Forward, load};
//! let ops = ops::Cpu::new(&ops::CpuOptions::default())?;
//! let loaded = load("all-MiniLM-L6-v2", &ops)?;
//! let batch = Batch::new(&[vec![101, 7592, 102], vec![101, 2088, 999, 102]])?;
//! loaded.model.shape().check(&batch)?;
//! let hidden = loaded.model.forward(&Forward::new(&ops, &batch)); // [7, 384]
//! # Ok(()) }
//! ```

mod architectures;
mod batch;
pub mod bert;
pub mod blocks;
mod causal;
pub mod config;
pub mod distilbert;
mod error;
pub mod gemma;
pub mod gemma4;
pub mod llama;
mod loader;
mod model;
pub mod modernbert;
pub mod mpnet;
pub mod nomic;
pub mod qwen2;
pub mod qwen3;
pub mod qwen3_5;
mod rotary;
mod state;

pub use architectures::{ARCHITECTURES, Arch, Built, Loaded, find, load, load_checkpoint, load_trunk, open};
pub use batch::Batch;
pub use blocks::{Classifier, LanguageHead};
pub use config::Config;
pub use error::{ModelError, Result};
pub use loader::{Bias, Loader};
pub use model::{Forward, Model, Place, Shape, Trace};
pub use rotary::Asked;
pub use state::{Caches, LayerCache, LayerState};
