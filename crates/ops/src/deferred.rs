//! A recorder for tests: every operation is queued and runs at `read`, as on a GPU queue.
//!
//! A model that gives the same bits here as on the executor inside, with one submit a forward pass, never waits in the
//! middle of its forward pass.

use crate::state::{Delta, KvCache, KvSpec, Past, Routing, State, StateCache, StateSpec};
use crate::value::{Act, Linear, Norm, Span, Table, Vector, Weight};
use crate::vocabulary::{Attention, Expert, Ops, OpsError, Pool, Rope};
use kernels::Activation;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use weights::Tensor;

type Recorded = Box<dyn FnOnce() + Send>;

/// Where a recorded operation's result will be.
#[derive(Clone)]
struct Slot(Arc<OnceLock<Act>>);

impl Slot {
    fn of(act: &Act) -> Slot {
        act.buffer::<Slot>().clone()
    }

    fn act(&self) -> Act {
        self.0.get().expect("operations run in the order they were recorded").clone()
    }
}

/// Records operations and runs them on another executor when a result is read.
pub struct Deferred {
    inner: Arc<dyn Ops>,
    queue: Mutex<Vec<Recorded>>,
    submits: AtomicUsize,
}

impl Deferred {
    /// A recorder in front of `inner`.
    pub fn new(inner: Arc<dyn Ops>) -> Deferred {
        Deferred { inner, queue: Mutex::default(), submits: AtomicUsize::new(0) }
    }

    /// How often the queue was run.
    pub fn submits(&self) -> usize {
        self.submits.load(Ordering::Relaxed)
    }

    fn submit(&self) {
        self.submits.fetch_add(1, Ordering::Relaxed);
        let queue = std::mem::take(&mut *self.queue.lock().expect("no panics under this lock"));
        queue.into_iter().for_each(|run| run());
    }

    fn record_effect(&self, run: impl FnOnce(&dyn Ops) + Send + 'static) {
        let inner = self.inner.clone();
        self.queue.lock().expect("no panics under this lock").push(Box::new(move || run(&*inner)));
    }

    fn record(&self, rows: usize, cols: usize, run: impl FnOnce(&dyn Ops) -> Act + Send + 'static) -> Act {
        let (slot, inner) = (Slot(Arc::default()), self.inner.clone());
        let result = slot.clone();
        self.queue.lock().expect("no panics under this lock").push(Box::new(move || {
            let act = run(&*inner);
            assert_eq!((act.rows(), act.cols()), (rows, cols), "recorded and computed shapes agree");
            result.0.set(act).expect("an operation runs once");
        }));
        Act::new(rows, cols, slot)
    }
}

impl Ops for Deferred {
    fn upload_matrix(&self, tensor: &Tensor, batch_invariant: bool) -> Result<Weight, OpsError> {
        self.inner.upload_matrix(tensor, batch_invariant)
    }

    fn upload_table(&self, tensor: &Tensor) -> Result<Table, OpsError> {
        self.inner.upload_table(tensor)
    }

    fn upload_vector(&self, tensor: &Tensor) -> Result<Vector, OpsError> {
        self.inner.upload_vector(tensor)
    }

    fn input(&self, rows: usize, cols: usize, data: Vec<f32>) -> Act {
        self.record(rows, cols, move |ops| ops.input(rows, cols, data))
    }

    fn embed(&self, table: &Table, ids: &[u32]) -> Act {
        let (table, ids) = (table.clone(), ids.to_vec());
        self.record(ids.len(), table.cols, move |ops| ops.embed(&table, &ids))
    }

    fn linear(&self, x: &Act, w: &Linear) -> Act {
        let (slot, w) = (Slot::of(x), w.clone());
        self.record(x.rows(), w.outputs, move |ops| ops.linear(&slot.act(), &w))
    }

    fn norm(&self, x: &Act, norm: &Norm) -> Act {
        let (slot, norm) = (Slot::of(x), norm.clone());
        self.record(x.rows(), x.cols(), move |ops| ops.norm(&slot.act(), &norm))
    }

    fn add(&self, x: Act, y: &Act) -> Act {
        let (a, b) = (Slot::of(&x), Slot::of(y));
        self.record(x.rows(), x.cols(), move |ops| ops.add(a.act(), &b.act()))
    }

    fn activation(&self, x: Act, kind: Activation) -> Act {
        let slot = Slot::of(&x);
        self.record(x.rows(), x.cols(), move |ops| ops.activation(slot.act(), kind))
    }

    fn glu(&self, gate: Act, up: &Act, kind: Activation) -> Act {
        let (a, b) = (Slot::of(&gate), Slot::of(up));
        self.record(gate.rows(), gate.cols(), move |ops| ops.glu(a.act(), &b.act(), kind))
    }

    fn rope(&self, x: Act, angles: &Act, rope: Rope) -> Act {
        let (a, b) = (Slot::of(&x), Slot::of(angles));
        self.record(x.rows(), x.cols(), move |ops| ops.rope(a.act(), &b.act(), rope))
    }

    fn attend(&self, q: &Act, k: &Act, v: &Act, attention: &Attention, spans: &[Span]) -> Act {
        let (a, b, c) = (Slot::of(q), Slot::of(k), Slot::of(v));
        let (attention, spans) = (attention.clone(), spans.to_vec());
        self.record(q.rows(), q.cols(), move |ops| ops.attend(&a.act(), &b.act(), &c.act(), &attention, &spans))
    }

    fn kv_cache(&self, spec: KvSpec) -> KvCache {
        self.inner.kv_cache(spec)
    }

    fn copy_page(&self, cache: &KvCache, from: u32, to: u32) {
        let cache = cache.clone();
        self.record_effect(move |ops| ops.copy_page(&cache, from, to));
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
        let (a, kv) = (Slot::of(q), kv.map(|(k, v)| (Slot::of(k), Slot::of(v))));
        let (attention, spans, pasts, cache) = (attention.clone(), spans.to_vec(), pasts.to_vec(), cache.clone());
        self.record(q.rows(), q.cols(), move |ops| {
            let kv = kv.map(|(k, v)| (k.act(), v.act()));
            ops.attend_cached(&a.act(), kv.as_ref().map(|(k, v)| (k, v)), &attention, &spans, &pasts, &cache)
        })
    }

    fn state_cache(&self, spec: StateSpec) -> StateCache {
        self.inner.state_cache(spec)
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
        let (qkv, a, b) = (Slot::of(qkv), Slot::of(a), Slot::of(b));
        let rows = spans.iter().map(|s| s.len).sum();
        let (delta, spans, states) = (delta.clone(), spans.to_vec(), states.map(|(c, p)| (c.clone(), p.to_vec())));
        self.record(rows, delta.value_heads * delta.value_dim, move |ops| {
            let states = states.as_ref().map(|(cache, pasts)| (cache, &pasts[..]));
            ops.delta(&qkv.act(), &a.act(), &b.act(), &delta, &spans, states)
        })
    }

    fn copy_state(&self, cache: &StateCache, from: u32, to: u32) {
        let cache = cache.clone();
        self.record_effect(move |ops| ops.copy_state(&cache, from, to));
    }

    fn read_state(&self, cache: &StateCache, slot: u32) -> Result<State, OpsError> {
        self.submit();
        self.inner.read_state(cache, slot)
    }

    fn experts(&self, x: &Act, scores: &Act, routing: Routing, experts: &[Expert], kind: Activation) -> Act {
        let (a, b, experts) = (Slot::of(x), Slot::of(scores), experts.to_vec());
        self.record(x.rows(), x.cols(), move |ops| ops.experts(&a.act(), &b.act(), routing, &experts, kind))
    }

    fn scale(&self, x: Act, factor: f32) -> Act {
        let slot = Slot::of(&x);
        self.record(x.rows(), x.cols(), move |ops| ops.scale(slot.act(), factor))
    }

    fn rows(&self, x: &Act, rows: &[u32]) -> Act {
        let (slot, rows) = (Slot::of(x), rows.to_vec());
        self.record(rows.len(), x.cols(), move |ops| ops.rows(&slot.act(), &rows))
    }

    fn pool(&self, x: &Act, spans: &[Span], pool: Pool) -> Act {
        let (slot, spans) = (Slot::of(x), spans.to_vec());
        self.record(spans.len(), x.cols(), move |ops| ops.pool(&slot.act(), &spans, pool))
    }

    fn read(&self, x: &Act) -> Result<Vec<f32>, OpsError> {
        self.submit();
        self.inner.read(&Slot::of(x).act())
    }

    fn linear_activation(&self, x: &Act, w: &Linear, kind: Activation) -> Act {
        let (slot, w) = (Slot::of(x), w.clone());
        self.record(x.rows(), w.outputs, move |ops| ops.linear_activation(&slot.act(), &w, kind))
    }

    fn linear_add(&self, x: &Act, w: &Linear, residual: Act) -> Act {
        let (slot, w, rest) = (Slot::of(x), w.clone(), Slot::of(&residual));
        self.record(x.rows(), w.outputs, move |ops| ops.linear_add(&slot.act(), &w, rest.act()))
    }

    fn linear_glu(&self, x: &Act, gate: &Linear, up: &Linear, kind: Activation) -> Act {
        let (slot, gate, up) = (Slot::of(x), gate.clone(), up.clone());
        self.record(x.rows(), gate.outputs, move |ops| ops.linear_glu(&slot.act(), &gate, &up, kind))
    }
}
