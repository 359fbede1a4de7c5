//! Engines on tiny decoders of several kinds, and what a sequence gives on them alone.

#![allow(dead_code, reason = "each test file uses its own part")]

use lattice_inference::sampling::SamplingParams;
use lattice_inference::{Counts, Engine, EngineOptions, Event, Finish, SequenceId, Speculate};
use models::Loaded;
use ops::{Cpu, CpuOptions, Isa, KvFormat, Ops, Precision};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A model on an executor.
#[derive(Clone)]
pub(crate) struct Tiny {
    pub(crate) name: &'static str,
    pub(crate) loaded: Arc<Loaded>,
    pub(crate) ops: Arc<dyn Ops>,
}

/// Dense, with windows, with recurrent states, with experts, with shared layers.
pub(crate) const KINDS: [&str; 5] = ["qwen3_biases", "gemma3_small", "qwen3_5_hybrid", "qwen3_5_moe", "gemma4_shared"];

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens")
}

pub(crate) fn cpu(precision: Precision) -> Arc<dyn Ops> {
    let isa = Isa::available().pop();
    Arc::new(Cpu::new(&CpuOptions { threads: Some(2), isa, precision }).expect("an available ISA"))
}

/// A golden at precision exact.
pub(crate) fn tiny(name: &'static str) -> Tiny {
    let ops = cpu(Precision::Exact);
    let loaded = Arc::new(models::load(goldens().join(name), &*ops).expect("a golden loads"));
    Tiny { name, loaded, ops }
}

/// A golden with a window of `positions` tokens: its weights do not depend on it.
pub(crate) fn long(name: &'static str, positions: usize) -> Tiny {
    let (from, to) = (goldens().join(name), tempfile::tempdir().expect("a folder"));
    for file in std::fs::read_dir(&from).expect("a folder") {
        let file = file.expect("a file");
        std::fs::copy(file.path(), to.path().join(file.file_name())).expect("a copy");
    }
    let config = std::fs::read_to_string(from.join("config.json")).expect("a config");
    let mut config: serde_json::Value = serde_json::from_str(&config).expect("JSON");
    config["max_position_embeddings"] = positions.into();
    std::fs::write(to.path().join("config.json"), config.to_string()).expect("a config");
    let ops = cpu(Precision::Exact);
    let loaded = Arc::new(models::load(to.path(), &*ops).expect("it loads"));
    Tiny { name, loaded, ops }
}

/// Small pages, keys and values as computed, guesses whatever they cost.
pub(crate) fn exact() -> EngineOptions {
    let speculate = Speculate::Always;
    EngineOptions { page_tokens: 16, kv: KvFormat::F32, snapshots: Some(16), speculate, ..EngineOptions::default() }
}

impl Tiny {
    pub(crate) fn engine(&self, options: EngineOptions) -> Engine {
        Engine::new(self.loaded.clone(), self.ops.clone(), options).expect("an engine")
    }

    /// An engine for which another model guesses.
    pub(crate) fn engine_with(&self, draft: &Tiny, options: EngineOptions) -> Engine {
        // Executors of one kind share their weights' layout; both models run on this one.
        let draft = Arc::new(models::load(goldens().join(draft.name), &*self.ops).expect("a golden loads"));
        Engine::with_draft(self.loaded.clone(), draft, self.ops.clone(), options).expect("an engine")
    }

    /// What a prompt gives in an engine of its own.
    pub(crate) fn alone(&self, prompt: &[u32], params: &SamplingParams) -> Trace {
        let mut engine =
            self.engine(EngineOptions { reuse: false, parallel: 1, speculate: Speculate::Never, ..exact() });
        let id = engine.add(prompt, params.clone(), &[]).expect("a prompt");
        trace(&run(&mut engine)[&id])
    }

    /// Reproducible ids.
    pub(crate) fn ids(&self, len: usize, seed: usize) -> Vec<u32> {
        let vocab = self.loaded.model.shape().vocab;
        (0..len).map(|i| (3 + (i * i * 7 + i * 37 + seed * 11) % (vocab - 3)) as u32).collect()
    }
}

/// Greedy, with log-probabilities to compare.
pub(crate) fn greedy(max_tokens: usize) -> SamplingParams {
    SamplingParams { max_tokens: Some(max_tokens), logprobs: Some(2), ..SamplingParams::greedy() }
}

/// Runs an engine dry and returns each sequence's events.
pub(crate) fn run(engine: &mut Engine) -> BTreeMap<SequenceId, Vec<Event>> {
    let mut all: BTreeMap<SequenceId, Vec<Event>> = BTreeMap::new();
    while !engine.is_idle() {
        for event in engine.step().expect("a step") {
            all.entry(event.sequence).or_default().push(event);
        }
    }
    all
}

/// Ids and log-probabilities, bit for bit, and how it ended.
pub(crate) type Trace = (Vec<(u32, Vec<(u32, u32)>)>, Option<Finish>);

pub(crate) fn trace(events: &[Event]) -> Trace {
    let bits = |top: &[(u32, f32)]| top.iter().map(|(id, p)| (*id, p.to_bits())).collect();
    let tokens = events.iter().filter_map(|e| e.token.as_ref()).map(|t| (t.id, bits(&t.top))).collect();
    (tokens, events.last().and_then(|e| e.finish.clone()))
}

/// What was counted at the end.
pub(crate) fn counts(events: &[Event]) -> Counts {
    events.last().expect("a sequence has events").counts
}
