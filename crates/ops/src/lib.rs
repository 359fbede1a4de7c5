//! The vocabulary of transformer operations ([`Ops`]) and the executor that runs it on the CPU ([`Cpu`]).
//!
//! A model is written once against `&dyn Ops`. It is not a tensor library: an activation is a row-major matrix
//! `[rows × features]`, a batch is ragged (the tokens of all sequences one after another, no padding), and the heavy
//! things are single operations. [`Deferred`] records a forward pass and runs it at `read`, as a GPU queue would;
//! [`contract`] holds the cases every executor is held to.

pub mod contract;
mod cpu;
mod deferred;
mod state;
mod value;
mod vocabulary;

pub use cpu::{Cpu, CpuOptions, Precision};
pub use deferred::Deferred;
pub use kernels::{Activation, Isa, Mask, RopeLayout};
pub use state::{Delta, KvCache, KvFormat, KvSpec, Past, Routing, Save, State, StateCache, StateSpec};
pub use value::{Act, Key, Linear, Norm, NormKind, Span, Table, Vector, Weight};
pub use vocabulary::{Attention, Expert, Ops, OpsError, Pool, Rope};
