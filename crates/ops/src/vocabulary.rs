//! The operations a model may use, as an object-safe trait: what each computes, on which shapes.
//!
//! Fusions are default methods that compose the plain operations; executors override them, and the contract test
//! compares override and default. Shapes that do not fit are bugs of the model and panic; what the world can do wrong
//! (a format that cannot be multiplied, a lost device) is an [`OpsError`].

use crate::state::{Delta, KvCache, KvSpec, Past, Routing, State, StateCache, StateSpec};
use crate::value::{Act, Linear, Norm, Span, Table, Vector, Weight};
use kernels::{Activation, Mask, RopeLayout};
use weights::Tensor;

/// What an executor cannot do, or what went wrong while it ran.
#[derive(Debug, thiserror::Error)]
pub enum OpsError {
    /// The weight's number format has no kernel here.
    #[error(
        "tensor {tensor} has format {format}, which cannot be used as a {role}: convert the checkpoint to f32, f16 or bf16"
    )]
    Format {
        /// Tensor name.
        tensor: String,
        /// Its number format.
        format: String,
        /// Matrix, table or vector.
        role: &'static str,
    },
    /// The tensor's bytes could not be read as numbers.
    #[error(transparent)]
    Weights(#[from] weights::WeightsError),
    /// `LATTICE_ISA` or an option names an instruction set that this machine lacks.
    #[error(transparent)]
    Isa(#[from] kernels::Error),
    /// The thread pool could not be started.
    #[error("could not start {threads} threads: {source}; use fewer (--threads)")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// What the system said.
        source: std::io::Error,
    },
}

/// How queries meet keys.
#[derive(Clone, Debug)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; each serves `heads / kv_heads` consecutive query heads.
    pub kv_heads: usize,
    /// Features of a head.
    pub head_dim: usize,
    /// Multiplied into every score, usually `head_dim^-0.5`.
    pub scale: f32,
    /// Which keys a query sees.
    pub mask: Mask,
    /// Scores become `cap · tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// Relative position bias `[heads, 2·reach − 1]`, added to the scores: entry `key − query + reach − 1` of a head.
    pub bias: Option<Vector>,
}

/// How [`Ops::rope`] turns its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rope {
    /// Features of a head.
    pub head_dim: usize,
    /// The first features of a head that are rotated (even, at most `head_dim`).
    pub rotary: usize,
    /// Which features form a pair.
    pub layout: RopeLayout,
}

/// One expert of a mixture.
#[derive(Clone, Debug)]
pub struct Expert {
    /// `[inner, hidden]`.
    pub gate: Linear,
    /// `[inner, hidden]`.
    pub up: Linear,
    /// `[hidden, inner]`.
    pub down: Linear,
}

/// How a sequence's rows become one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// Mean of the rows.
    Mean,
    /// Largest value of each feature.
    Max,
    /// Sum of the rows over the square root of their number.
    MeanSqrtLen,
    /// Mean with weights `first`, `first + 1`, … in order of position.
    WeightedMean {
        /// Weight of the span's first row.
        first: usize,
    },
}

/// An executor: CPU, GPU, recorder or tape.
pub trait Ops: Send + Sync {
    /// Takes a matrix `[outputs, inputs]` for [`Ops::linear`]. The tensor's mapped pages may be given back afterwards.
    /// `batch_invariant` asks that a row of a product have the same bits whatever rows are beside it; else few rows may be
    /// multiplied in another arithmetic than many where the executor's precision allows it.
    fn upload_matrix(&self, tensor: &Tensor, batch_invariant: bool) -> Result<Weight, OpsError>;

    /// Takes a table for [`Ops::embed`].
    fn upload_table(&self, tensor: &Tensor) -> Result<Table, OpsError>;

    /// Takes a vector of parameters.
    fn upload_vector(&self, tensor: &Tensor) -> Result<Vector, OpsError>;

    /// Host values `[rows, cols]` as an activation.
    fn input(&self, rows: usize, cols: usize, data: Vec<f32>) -> Act;

    /// Rows of a table: `[ids, table.cols]`. Ids must be below `table.rows`.
    fn embed(&self, table: &Table, ids: &[u32]) -> Act;

    /// `x · Wᵀ + b`: `[rows, inputs]` to `[rows, outputs]`.
    fn linear(&self, x: &Act, w: &Linear) -> Act;

    /// Normalises every group of `norm.weight.len` features of every row.
    fn norm(&self, x: &Act, norm: &Norm) -> Act;

    /// `x + y`.
    fn add(&self, x: Act, y: &Act) -> Act;

    /// Applies a function to every value.
    fn activation(&self, x: Act, kind: Activation) -> Act;

    /// Gated linear unit: `kind(gate) · up`.
    fn glu(&self, gate: Act, up: &Act, kind: Activation) -> Act;

    /// Rotates each head of each row by its row of angles: `angles` is `[rows, rotary]`, the cosines of the
    /// `rotary / 2` frequencies, then their sines.
    fn rope(&self, x: Act, angles: &Act, rope: Rope) -> Act;

    /// Attention within each span: q `[rows, heads · dim]`, k and v `[rows, kv_heads · dim]`, result as q.
    fn attend(&self, q: &Act, k: &Act, v: &Act, attention: &Attention, spans: &[Span]) -> Act;

    /// Room for the keys and values of one layer.
    fn kv_cache(&self, spec: KvSpec) -> KvCache;

    /// Makes page `to` of a layer hold what page `from` holds.
    fn copy_page(&self, cache: &KvCache, from: u32, to: u32);

    /// Attention over each sequence's past and its own rows, one [`Past`] a span. `kv` are the rows' keys and values,
    /// which are stored first; without them (a layer that shares another's) they are there already.
    fn attend_cached(
        &self,
        q: &Act,
        kv: Option<(&Act, &Act)>,
        attention: &Attention,
        spans: &[Span],
        pasts: &[Past],
        cache: &KvCache,
    ) -> Act;

    /// Room for the recurrent states of one layer.
    fn state_cache(&self, spec: StateSpec) -> StateCache;

    /// A gated delta net: qkv `[rows, channels]`, a and b `[rows, value_heads]`, result `[rows, value_heads · value_dim]`.
    /// `states` holds what the spans' pasts left and takes what they leave, and the copies that they ask for on the way
    /// ([`Past::saves`]); without it every span starts afresh.
    fn delta(
        &self,
        qkv: &Act,
        a: &Act,
        b: &Act,
        delta: &Delta,
        spans: &[Span],
        states: Option<(&StateCache, &[Past])>,
    ) -> Act;

    /// Makes slot `to` of a layer hold the state that slot `from` holds.
    fn copy_state(&self, cache: &StateCache, from: u32, to: u32);

    /// A sequence's recurrent state. Waits, as [`Ops::read`] does.
    fn read_state(&self, cache: &StateCache, slot: u32) -> Result<State, OpsError>;

    /// Mixture of experts: `Σ pᵢ · downᵢ(kind(gateᵢ x) · upᵢ x)` over the experts that the row's `scores`
    /// (`[rows, experts]`, logits) choose.
    fn experts(&self, x: &Act, scores: &Act, routing: Routing, experts: &[Expert], kind: Activation) -> Act;

    /// `factor · x`.
    fn scale(&self, x: Act, factor: f32) -> Act;

    /// The named rows, in that order.
    fn rows(&self, x: &Act, rows: &[u32]) -> Act;

    /// One row a span: `[spans, cols]`.
    fn pool(&self, x: &Act, spans: &[Span], pool: Pool) -> Act;

    /// The values, row by row. **The only operation that waits** for the device.
    fn read(&self, x: &Act) -> Result<Vec<f32>, OpsError>;

    /// Threads that share the work of one call, or of [`Ops::host_tasks`].
    fn threads(&self) -> usize {
        1
    }

    /// Calls `run` once for each number below `tasks`, in any order: work of the host, such as tokenization, on the
    /// threads that the executor has anyway.
    fn host_tasks(&self, tasks: usize, run: &(dyn Fn(usize) + Sync)) {
        (0..tasks).for_each(run);
    }

    /// [`Ops::linear`], then [`Ops::activation`].
    fn linear_activation(&self, x: &Act, w: &Linear, kind: Activation) -> Act {
        self.activation(self.linear(x, w), kind)
    }

    /// [`Ops::linear`] added to `residual`.
    fn linear_add(&self, x: &Act, w: &Linear, residual: Act) -> Act {
        self.add(residual, &self.linear(x, w))
    }

    /// [`Ops::linear`] of the same rows with each of `weights`.
    fn linears(&self, x: &Act, weights: &[&Linear]) -> Vec<Act> {
        weights.iter().map(|w| self.linear(x, w)).collect()
    }

    /// [`Ops::glu`] of two [`Ops::linear`]s of the same rows.
    fn linear_glu(&self, x: &Act, gate: &Linear, up: &Linear, kind: Activation) -> Act {
        self.glu(self.linear(x, gate), &self.linear(x, up), kind)
    }
}
