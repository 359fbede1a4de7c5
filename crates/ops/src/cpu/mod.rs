//! The CPU executor: cuts each operation into tasks for the one thread pool; the arithmetic is in `kernels`.
//!
//! Calls run at once. No result depends on the number of threads, on how the work was cut, or on which other
//! sequences share a batch: kernels accumulate every output in an order that only its own shape decides.

mod attend;
mod buffers;
mod cache;
mod delta;
mod experts;
mod linear;

use crate::state::{Delta, KvCache, KvSpec, Past, Routing, State, StateCache, StateSpec};
use crate::value::{Act, Linear, Norm, NormKind, Span, Table, Vector, Weight};
use crate::vocabulary::{Attention, Expert, Ops, OpsError, Pool, Rope};
use buffers::{Buffers, Host};
use kernels::{Activation, Isa, Kernels};
use std::sync::Arc;
use weights::Tensor;

/// What a CPU executor is made of.
#[derive(Clone, Debug, Default)]
pub struct CpuOptions {
    /// Worker threads; `None` is one for each core that this process may use.
    pub threads: Option<usize>,
    /// Instruction set; `None` is the best of this machine, or what `LATTICE_ISA` names.
    pub isa: Option<Isa>,
    /// How exact products with quantized weights are.
    pub precision: Precision,
}

/// How exact arithmetic is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Float32 on exactly decoded weights. A row's result does not depend on how many rows there are.
    Exact,
    /// Products with quantized weights round activations to 8 bits and multiply integers. On machines with matrix units
    /// (AMX, and `bfmmla` of AArch64) products with bfloat16 weights, and with AMX those with float32 weights and attention over
    /// whole texts, are made of bfloat16 pieces, within 2⁻¹⁶ of the exact ones; elsewhere these are exact.
    #[default]
    Default,
    /// Both factors of products with weights that are not quantized are rounded: to bfloat16 on machines with matrix units, within
    /// 2⁻⁸ of the exact one; elsewhere to 8 bits with a scale for each 32 inputs, within some 2⁻⁸ of the largest of these, where rows
    /// of weights are whole 32s and the machine is no slower at it. With AMX also attention over whole texts is in
    /// bfloat16, and so are products of many rows with quantized weights, unless these are to be batch-invariant. Many tokens of a
    /// gated delta net are matrix products, within 10⁻⁵ of the largest number of what they are one by one. Else the default.
    Fast,
}

/// Runs operations on the CPU as they are called.
#[derive(Debug)]
pub struct Cpu {
    kernels: &'static Kernels,
    precision: Precision,
    pool: kernels::Pool,
    buffers: Arc<Buffers>,
}

/// Tasks for each thread, so that one that was held up does not hold up the others.
const TASKS_PER_THREAD: usize = 4;
/// Row-wise operations on fewer values than this are not worth waking a thread for.
const SERIAL_VALUES: usize = 16 * 1024;

impl Cpu {
    /// An executor with a thread pool of its own.
    pub fn new(options: &CpuOptions) -> Result<Cpu, OpsError> {
        let kernels = match options.isa {
            Some(isa) => Kernels::for_isa(isa).ok_or(kernels::Error::AbsentIsa { isa })?,
            None => Kernels::best()?,
        };
        let threads = options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
        let pool = kernels::Pool::new(threads).map_err(|source| OpsError::Threads { threads, source })?;
        Ok(Cpu { kernels, precision: options.precision, pool, buffers: Arc::default() })
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.kernels.isa()
    }

    /// How exact it is.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Worker threads.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    fn act(&self, rows: usize, cols: usize, fill: impl FnOnce(&mut [f32])) -> Act {
        let mut host = self.buffers.take(rows * cols);
        fill(host.values_mut());
        Act::new(rows, cols, host)
    }

    /// The same values in a buffer that may be written.
    fn owned(&self, mut x: Act) -> Act {
        if x.exclusive::<Host>().is_some() {
            return x;
        }
        self.act(x.rows(), x.cols(), |copy| copy.copy_from_slice(values(&x)))
    }

    /// Calls `each(first row, rows)` for blocks of whole rows of `data`, in parallel if there is enough to do.
    fn by_rows(&self, data: &mut [f32], cols: usize, each: impl Fn(usize, &mut [f32]) + Sync) {
        let rows = data.len() / cols.max(1);
        if rows <= 1 || data.len() < SERIAL_VALUES || self.threads() == 1 {
            return each(0, data);
        }
        let block = rows.div_ceil(self.threads() * TASKS_PER_THREAD);
        self.pool.chunks(data, block * cols, |i, rows| each(i * block, rows));
    }

    /// Rewrites an activation in place, a block of whole rows at a time.
    fn map(&self, x: Act, each: impl Fn(usize, &mut [f32]) + Sync) -> Act {
        let mut x = self.owned(x);
        let cols = x.cols();
        self.by_rows(x.exclusive::<Host>().expect("owned just now").values_mut(), cols, each);
        x
    }
}

fn values(x: &Act) -> &[f32] {
    x.buffer::<Host>().values()
}

fn vector(v: &Vector) -> &[f32] {
    v.weight.inner::<Vec<f32>>()
}

impl Ops for Cpu {
    fn upload_matrix(&self, tensor: &Tensor, batch_invariant: bool) -> Result<Weight, OpsError> {
        Ok(Weight::new(linear::Matrix::new(self.kernels, self.precision, batch_invariant, &self.pool, tensor)?))
    }

    fn upload_table(&self, tensor: &Tensor) -> Result<Table, OpsError> {
        // Tables stay mapped: a forward pass touches the rows of its own tokens only. One row shows that it decodes.
        tensor.decode_row(0, &mut vec![0.0; tensor.cols()])?;
        Ok(Table { rows: tensor.rows(), cols: tensor.cols(), weight: Weight::new(tensor.clone()) })
    }

    fn upload_vector(&self, tensor: &Tensor) -> Result<Vector, OpsError> {
        let values = tensor.to_f32()?;
        Ok(Vector { len: values.len(), weight: Weight::new(values) })
    }

    fn input(&self, rows: usize, cols: usize, data: Vec<f32>) -> Act {
        self.act(rows, cols, |values| values.copy_from_slice(&data))
    }

    fn embed(&self, table: &Table, ids: &[u32]) -> Act {
        let tensor = table.weight.inner::<Tensor>();
        self.act(ids.len(), table.cols, |out| {
            self.by_rows(out, table.cols, |first, rows| {
                for (row, &id) in rows.chunks_exact_mut(table.cols).zip(&ids[first..]) {
                    tensor
                        .decode_row(id as usize, row)
                        .expect("ids are below table.rows, and one row decoded at upload");
                }
            });
        })
    }

    fn linear(&self, x: &Act, w: &Linear) -> Act {
        self.matmul(x, w, None, None)
    }

    fn norm(&self, x: &Act, norm: &Norm) -> Act {
        let width = norm.weight.len;
        assert_eq!(x.cols() % width, 0, "a row of {} features has no groups of {width}", x.cols());
        let (weight, bias) = (vector(&norm.weight), norm.bias.as_ref().map(vector));
        let source = values(x);
        self.act(x.rows(), x.cols(), |out| {
            self.by_rows(out, x.cols(), |first, rows| {
                let groups = source[first * x.cols()..].chunks_exact(width).zip(rows.chunks_exact_mut(width));
                for (from, to) in groups {
                    match norm.kind {
                        NormKind::Layer => self.kernels.layer_norm(from, weight, bias, norm.eps, to),
                        NormKind::Rms => self.kernels.rms_norm(from, weight, norm.eps, to),
                    }
                    if let (NormKind::Rms, Some(bias)) = (norm.kind, bias) {
                        self.kernels.add(to, bias);
                    }
                }
            });
        })
    }

    fn add(&self, x: Act, y: &Act) -> Act {
        assert_eq!((x.rows(), x.cols()), (y.rows(), y.cols()), "shapes of a sum");
        let (y, cols) = (values(y), x.cols());
        self.map(x, |first, rows| self.kernels.add(rows, &y[first * cols..][..rows.len()]))
    }

    fn activation(&self, x: Act, kind: Activation) -> Act {
        self.map(x, |_, rows| self.kernels.activation(kind, rows))
    }

    fn glu(&self, gate: Act, up: &Act, kind: Activation) -> Act {
        assert_eq!((gate.rows(), gate.cols()), (up.rows(), up.cols()), "shapes of a gated unit");
        let (up, cols) = (values(up), gate.cols());
        self.map(gate, |first, rows| self.kernels.glu(kind, rows, &up[first * cols..][..rows.len()]))
    }

    fn rope(&self, x: Act, angles: &Act, rope: Rope) -> Act {
        let Rope { head_dim, rotary, layout } = rope;
        assert_eq!((x.rows(), rotary), (angles.rows(), angles.cols()), "a row of angles for each row");
        assert_eq!(x.cols() % head_dim, 0, "a row of {} features has no heads of {head_dim}", x.cols());
        let (angles, cols) = (values(angles), x.cols());
        self.map(x, |first, rows| {
            for (row, angles) in rows.chunks_exact_mut(cols).zip(angles[first * rotary..].chunks_exact(rotary)) {
                let (cos, sin) = angles.split_at(rotary / 2);
                self.kernels.rope(row, head_dim, cos, sin, layout);
            }
        })
    }

    fn attend(&self, q: &Act, k: &Act, v: &Act, attention: &Attention, spans: &[Span]) -> Act {
        self.attention(q, k, v, attention, spans)
    }

    fn kv_cache(&self, spec: KvSpec) -> KvCache {
        KvCache { spec, memory: Weight::new(cache::Pages::new(spec)) }
    }

    fn copy_page(&self, cache: &KvCache, from: u32, to: u32) {
        cache.memory.inner::<cache::Pages>().copy(from, to);
    }

    fn attend_cached(
        &self,
        q: &Act,
        kv: Option<(&Act, &Act)>,
        attention: &Attention,
        spans: &[Span],
        pasts: &[Past],
        cache: &KvCache,
    ) -> Act {
        self.attention_over_pages(q, kv, attention, spans, pasts, cache)
    }

    fn state_cache(&self, spec: StateSpec) -> StateCache {
        StateCache { spec, memory: Weight::new(delta::Slots::new(spec)) }
    }

    fn delta(
        &self,
        qkv: &Act,
        a: &Act,
        b: &Act,
        delta: &Delta,
        spans: &[Span],
        states: Option<(&StateCache, &[Past])>,
    ) -> Act {
        self.delta_net(qkv, a, b, delta, spans, states)
    }

    fn copy_state(&self, cache: &StateCache, from: u32, to: u32) {
        cache.memory.inner::<delta::Slots>().copy(from, to);
    }

    fn read_state(&self, cache: &StateCache, slot: u32) -> Result<State, OpsError> {
        Ok(cache.memory.inner::<delta::Slots>().read(slot))
    }

    fn experts(&self, x: &Act, scores: &Act, routing: Routing, experts: &[Expert], kind: Activation) -> Act {
        self.mixture(x, scores, routing, experts, kind)
    }

    fn scale(&self, x: Act, factor: f32) -> Act {
        self.map(x, |_, rows| self.kernels.scale(rows, factor))
    }

    fn rows(&self, x: &Act, rows: &[u32]) -> Act {
        let (source, cols) = (values(x), x.cols());
        self.act(rows.len(), cols, |out| {
            for (to, &row) in out.chunks_exact_mut(cols).zip(rows) {
                to.copy_from_slice(&source[row as usize * cols..][..cols]);
            }
        })
    }

    fn pool(&self, x: &Act, spans: &[Span], pool: Pool) -> Act {
        let (source, cols) = (values(x), x.cols());
        self.act(spans.len(), cols, |out| {
            for (to, span) in out.chunks_exact_mut(cols).zip(spans) {
                assert!(span.len > 0, "an empty span has no pool");
                let mut rows = source[span.start * cols..][..span.len * cols].chunks_exact(cols);
                match pool {
                    Pool::Max => {
                        to.copy_from_slice(rows.next().expect("a span has rows"));
                        rows.for_each(|row| self.kernels.max(to, row));
                    }
                    Pool::Mean | Pool::MeanSqrtLen => {
                        to.fill(0.0);
                        rows.for_each(|row| self.kernels.add(to, row));
                        let len = span.len as f32;
                        self.kernels.scale(to, 1.0 / if pool == Pool::Mean { len } else { len.sqrt() });
                    }
                    Pool::WeightedMean { first } => {
                        to.fill(0.0);
                        rows.enumerate().for_each(|(i, row)| self.kernels.axpy(to, (first + i) as f32, row));
                        let sum = (first..first + span.len).map(|w| w as f64).sum::<f64>();
                        self.kernels.scale(to, (1.0 / sum) as f32);
                    }
                }
            }
        })
    }

    fn read(&self, x: &Act) -> Result<Vec<f32>, OpsError> {
        Ok(values(x).to_vec())
    }

    fn threads(&self) -> usize {
        Cpu::threads(self)
    }

    fn host_tasks(&self, tasks: usize, run: &(dyn Fn(usize) + Sync)) {
        self.pool.each(tasks, run);
    }

    fn linear_activation(&self, x: &Act, w: &Linear, kind: Activation) -> Act {
        self.matmul(x, w, Some(kind), None)
    }

    fn linear_add(&self, x: &Act, w: &Linear, residual: Act) -> Act {
        self.matmul(x, w, None, Some(residual))
    }

    fn linears(&self, x: &Act, weights: &[&Linear]) -> Vec<Act> {
        self.matmuls(x, weights)
    }

    fn linear_glu(&self, x: &Act, gate: &Linear, up: &Linear, kind: Activation) -> Act {
        self.matmul_glu(x, gate, up, kind)
    }
}
