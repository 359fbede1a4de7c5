//! Every CPU hot loop, per instruction set, with a scalar oracle beside each.
//!
//! [`Kernels`] is a table of function pointers: [`Kernels::best`] gives the machine's best, [`Kernels::for_isa`] any
//! other that it has. No kernel spawns threads, does I/O or allocates; callers share work among the threads of a [`Pool`]
//! by ranges of rows and of weight panels ([`Packed`]), and hand out disjoint [`Window`]s of the result.

// Loads, stores, the call into code for an instruction set, and closures lent to threads; see the SAFETY comments.
#![allow(unsafe_code)]

mod activations;
#[cfg(target_arch = "x86_64")]
mod amx;
mod attend;
#[cfg(target_arch = "x86_64")]
mod attend_amx;
mod attend_paged;
mod attend_tiles;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod bfmmla;
mod blocks;
mod convert;
mod decoder;
mod delta;
mod delta_chunks;
pub mod distance;
mod interleaved;
mod isa;
mod matmul;
#[cfg(target_arch = "aarch64")]
mod neon;
mod packed;
mod pages;
mod pool;
mod products;
mod quant;
mod rows;
mod scalar;
mod scalar_decoder;
mod simd;
mod table;
mod tiles;
#[cfg(target_arch = "x86_64")]
mod unpack;
mod view;
mod vocabulary;

pub use blocks::{Blocks, QuantizedMut, QuantizedRows, Support};
pub use convert::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
pub use delta::{DeltaRows, ShortConv};
pub use distance::{Distances, Metric};
pub use interleaved::{Interleaved, InterleavedMut};
pub use isa::{Error, Isa};
pub use packed::{Packed, PanelMut, Stored};
pub use pages::{KEYS_ABREAST, KvPage, KvSlice, KvSliceMut, PagedAttend};
pub use pool::Pool;
pub use table::Kernels;
pub use tiles::{MatrixUnit, TileScratch, TileWeights, Tiled, TiledRows, TilesMut};
pub use view::{Rows, Window};
pub use vocabulary::{Activation, Attend, AttendScratch, Epilogue, Mask, RelativeBias, RopeLayout};
