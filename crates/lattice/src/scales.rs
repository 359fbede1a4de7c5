//! What does a model weigh? An executor that takes a model's weights, notes what they are, and keeps none of them: loading
//! checks every shape, and nothing can be run.

use ops::{
    Act, Activation, Attention, Delta, Expert, KvCache, KvSpec, Linear, Norm, Ops, OpsError, Past, Pool, Rope, Routing,
    Span, State, StateCache, StateSpec, Table, Vector, Weight,
};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use weights::Tensor;

/// Weighs what is uploaded.
#[derive(Default)]
pub(crate) struct Scales(Mutex<Load>);

/// What was uploaded.
#[derive(Default, Clone)]
pub(crate) struct Load {
    /// Bytes of each format, each tensor once.
    pub(crate) formats: BTreeMap<&'static str, u64>,
    /// The most features that a matrix inside of the layers gives.
    pub(crate) widest: usize,
    seen: Vec<String>,
}

impl Scales {
    /// What was uploaded so far.
    pub(crate) fn load(&self) -> Load {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Load> {
        self.0.lock().expect("no panics under this lock")
    }

    fn take(&self, tensor: &Tensor) -> Weight {
        let mut load = self.lock();
        // A tied table is uploaded twice and there once.
        if !load.seen.iter().any(|name| name == tensor.name()) {
            load.seen.push(tensor.name().to_owned());
            *load.formats.entry(tensor.format().name()).or_default() += tensor.bytes().len() as u64;
        }
        Weight::new(())
    }
}

const NEVER: &str = "a model on the scales is not run";

impl Ops for Scales {
    fn upload_matrix(&self, tensor: &Tensor, _: bool) -> Result<Weight, OpsError> {
        if tensor.name().contains("layers.") {
            let mut load = self.lock();
            load.widest = load.widest.max(tensor.rows());
        }
        Ok(self.take(tensor))
    }

    fn upload_table(&self, tensor: &Tensor) -> Result<Table, OpsError> {
        Ok(Table { rows: tensor.rows(), cols: tensor.cols(), weight: self.take(tensor) })
    }

    fn upload_vector(&self, tensor: &Tensor) -> Result<Vector, OpsError> {
        Ok(Vector { len: tensor.elements(), weight: self.take(tensor) })
    }

    fn input(&self, rows: usize, cols: usize, _: Vec<f32>) -> Act {
        Act::new(rows, cols, ())
    }

    fn embed(&self, _: &Table, _: &[u32]) -> Act {
        unreachable!("{NEVER}")
    }

    fn linear(&self, _: &Act, _: &Linear) -> Act {
        unreachable!("{NEVER}")
    }

    fn norm(&self, _: &Act, _: &Norm) -> Act {
        unreachable!("{NEVER}")
    }

    fn add(&self, _: Act, _: &Act) -> Act {
        unreachable!("{NEVER}")
    }

    fn activation(&self, _: Act, _: Activation) -> Act {
        unreachable!("{NEVER}")
    }

    fn glu(&self, _: Act, _: &Act, _: Activation) -> Act {
        unreachable!("{NEVER}")
    }

    fn rope(&self, _: Act, _: &Act, _: Rope) -> Act {
        unreachable!("{NEVER}")
    }

    fn attend(&self, _: &Act, _: &Act, _: &Act, _: &Attention, _: &[Span]) -> Act {
        unreachable!("{NEVER}")
    }

    fn kv_cache(&self, _: KvSpec) -> KvCache {
        unreachable!("{NEVER}")
    }

    fn attend_cached(
        &self,
        _: &Act,
        _: Option<(&Act, &Act)>,
        _: &Attention,
        _: &[Span],
        _: &[Past],
        _: &KvCache,
    ) -> Act {
        unreachable!("{NEVER}")
    }

    fn state_cache(&self, _: StateSpec) -> StateCache {
        unreachable!("{NEVER}")
    }

    fn copy_page(&self, _: &KvCache, _: u32, _: u32) {
        unreachable!("{NEVER}")
    }

    fn copy_state(&self, _: &StateCache, _: u32, _: u32) {
        unreachable!("{NEVER}")
    }

    fn delta(&self, _: &Act, _: &Act, _: &Act, _: &Delta, _: &[Span], _: Option<(&StateCache, &[Past])>) -> Act {
        unreachable!("{NEVER}")
    }

    fn read_state(&self, _: &StateCache, _: u32) -> Result<State, OpsError> {
        unreachable!("{NEVER}")
    }

    fn experts(&self, _: &Act, _: &Act, _: Routing, _: &[Expert], _: Activation) -> Act {
        unreachable!("{NEVER}")
    }

    fn scale(&self, _: Act, _: f32) -> Act {
        unreachable!("{NEVER}")
    }

    fn rows(&self, _: &Act, _: &[u32]) -> Act {
        unreachable!("{NEVER}")
    }

    fn pool(&self, _: &Act, _: &[Span], _: Pool) -> Act {
        unreachable!("{NEVER}")
    }

    fn read(&self, _: &Act) -> Result<Vec<f32>, OpsError> {
        unreachable!("{NEVER}")
    }
}
