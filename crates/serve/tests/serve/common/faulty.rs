//! An executor that fails when it is told to, once.

use ops::{
    Act, Activation, Attention, Cpu, Delta, Expert, KvCache, KvSpec, Linear, Norm, Ops, OpsError, Past, Pool, Rope,
    Routing, Span, State, StateCache, StateSpec, Table, Vector, Weight,
};
use std::sync::Mutex;
use weights::Tensor;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It panics.
    Panic,
    /// It says so.
    Error,
}

/// The CPU, with a fault in the next forward pass if there is one.
pub(crate) struct Faulty {
    cpu: Cpu,
    next: Mutex<Option<Fault>>,
}

impl Faulty {
    pub(crate) fn new(cpu: Cpu) -> Faulty {
        Faulty { cpu, next: Mutex::new(None) }
    }

    /// The next forward pass has this fault.
    pub(crate) fn break_next(&self, fault: Fault) {
        *self.next.lock().unwrap() = Some(fault);
    }
}

impl Ops for Faulty {
    fn read(&self, x: &Act) -> Result<Vec<f32>, OpsError> {
        let fault = self.next.lock().unwrap().take();
        match fault {
            None => self.cpu.read(x),
            Some(Fault::Panic) => panic!("the device is on fire"),
            Some(Fault::Error) => {
                let source = std::io::Error::other("the device is gone");
                Err(OpsError::Threads { threads: 1, source })
            }
        }
    }

    fn upload_matrix(&self, tensor: &Tensor, batch_invariant: bool) -> Result<Weight, OpsError> {
        self.cpu.upload_matrix(tensor, batch_invariant)
    }

    fn upload_table(&self, tensor: &Tensor) -> Result<Table, OpsError> {
        self.cpu.upload_table(tensor)
    }

    fn upload_vector(&self, tensor: &Tensor) -> Result<Vector, OpsError> {
        self.cpu.upload_vector(tensor)
    }

    fn input(&self, rows: usize, cols: usize, data: Vec<f32>) -> Act {
        self.cpu.input(rows, cols, data)
    }

    fn embed(&self, table: &Table, ids: &[u32]) -> Act {
        self.cpu.embed(table, ids)
    }

    fn linear(&self, x: &Act, w: &Linear) -> Act {
        self.cpu.linear(x, w)
    }

    fn norm(&self, x: &Act, norm: &Norm) -> Act {
        self.cpu.norm(x, norm)
    }

    fn add(&self, x: Act, y: &Act) -> Act {
        self.cpu.add(x, y)
    }

    fn activation(&self, x: Act, kind: Activation) -> Act {
        self.cpu.activation(x, kind)
    }

    fn glu(&self, gate: Act, up: &Act, kind: Activation) -> Act {
        self.cpu.glu(gate, up, kind)
    }

    fn rope(&self, x: Act, angles: &Act, rope: Rope) -> Act {
        self.cpu.rope(x, angles, rope)
    }

    fn attend(&self, q: &Act, k: &Act, v: &Act, attention: &Attention, spans: &[Span]) -> Act {
        self.cpu.attend(q, k, v, attention, spans)
    }

    fn kv_cache(&self, spec: KvSpec) -> KvCache {
        self.cpu.kv_cache(spec)
    }

    fn copy_page(&self, cache: &KvCache, from: u32, to: u32) {
        self.cpu.copy_page(cache, from, to);
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
        self.cpu.attend_cached(q, kv, attention, spans, pasts, cache)
    }

    fn state_cache(&self, spec: StateSpec) -> StateCache {
        self.cpu.state_cache(spec)
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
        self.cpu.delta(qkv, a, b, delta, spans, states)
    }

    fn copy_state(&self, cache: &StateCache, from: u32, to: u32) {
        self.cpu.copy_state(cache, from, to);
    }

    fn read_state(&self, cache: &StateCache, slot: u32) -> Result<State, OpsError> {
        self.cpu.read_state(cache, slot)
    }

    fn experts(&self, x: &Act, scores: &Act, routing: Routing, experts: &[Expert], kind: Activation) -> Act {
        self.cpu.experts(x, scores, routing, experts, kind)
    }

    fn scale(&self, x: Act, factor: f32) -> Act {
        self.cpu.scale(x, factor)
    }

    fn rows(&self, x: &Act, rows: &[u32]) -> Act {
        self.cpu.rows(x, rows)
    }

    fn pool(&self, x: &Act, spans: &[Span], pool: Pool) -> Act {
        self.cpu.pool(x, spans, pool)
    }
}
