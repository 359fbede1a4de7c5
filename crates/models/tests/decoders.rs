//! Every decoder against the outputs of Hugging Face's own implementation, on every instruction set that this machine
//! has; and the promises about caches: however a text is cut into passes, and whoever shares them, it gives the same bits.

use lattice_models::{Batch, Caches, Config, Forward, Loaded, Place, find, load};
use ops::contract::Unfused;
use ops::{Act, Cpu, CpuOptions, Deferred, Isa, KvFormat, Ops, Past, Precision};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Tokens of a page: small, so that texts of a few dozen tokens have several.
const PAGE: usize = 16;
/// Pages and slots for all the sequences of a test.
const PAGES: usize = 128;
const SLOTS: usize = 8;

/// A golden case of a language model.
struct Case {
    dir: PathBuf,
    compare: Value,
    inputs: Value,
}

/// Those whose architecture is built: of this repository, and of a larger set beside it.
fn cases() -> Vec<Case> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut cases = Vec::new();
    for folder in [root.join("goldens"), root.join("../shared/goldens/cases")] {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            eprintln!("skipped: the golden cases in {} are not there", folder.display());
            continue;
        };
        let mut dirs: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        dirs.sort();
        cases.extend(dirs.into_iter().filter_map(Case::read));
    }
    cases
}

impl Case {
    fn read(dir: PathBuf) -> Option<Case> {
        let json = |name: &str| -> Option<Value> {
            serde_json::from_slice(&std::fs::read(dir.join(name)).ok()?).expect("golden files are JSON")
        };
        let (meta, inputs) = (json("meta.json")?, json("inputs.json")?);
        inputs.get("prompts")?;
        find(&Config::read(&dir).ok()?).ok()?;
        Some(Case { compare: meta["compare"].clone(), dir, inputs })
    }

    fn name(&self) -> &str {
        self.dir.file_name().unwrap().to_str().unwrap()
    }

    /// The directory, or the GGUF file in it.
    fn weights(&self) -> PathBuf {
        let file = self.dir.join("model.gguf");
        if file.exists() { file } else { self.dir.clone() }
    }

    /// Does a text's result depend on the passes it comes in? Where positions grow with its length ("dynamic" scaling),
    /// keys of earlier passes were turned faster.
    fn grows(&self) -> bool {
        self.config().contains("\"dynamic\"")
    }

    /// Has it layers with a recurrent state?
    fn recurs(&self) -> bool {
        self.config().contains("\"linear_attention\"")
    }

    fn config(&self) -> String {
        std::fs::read_to_string(self.dir.join("config.json")).unwrap()
    }

    fn prompts(&self) -> Vec<Vec<u32>> {
        ids(&self.inputs["prompts"])
    }
}

fn ids<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn every_isa() -> impl Iterator<Item = Cpu> {
    Isa::available().into_iter().map(exact)
}

fn exact(isa: Isa) -> Cpu {
    at(Precision::Exact, isa)
}

fn at(precision: Precision, isa: Isa) -> Cpu {
    Cpu::new(&CpuOptions { isa: Some(isa), precision, ..CpuOptions::default() }).unwrap()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// Logits of every row of a pass.
fn logits(cx: &Forward, loaded: &Loaded) -> Vec<f32> {
    let head = loaded.head.as_ref().expect("a causal case has a head");
    cx.ops.read(&head.logits(cx, &loaded.model.forward(cx))).unwrap()
}

/// Logits of whole sequences in one pass without caches.
fn alone(ops: &dyn Ops, loaded: &Loaded, sequences: &[Vec<u32>]) -> Vec<f32> {
    let batch = Batch::new(sequences).unwrap();
    loaded.model.shape().check(&batch).unwrap();
    logits(&Forward::new(ops, &batch), loaded)
}

fn caches(ops: &dyn Ops, loaded: &Loaded) -> Caches {
    Caches::new(ops, &loaded.model.states(), PAGES, PAGE, SLOTS, KvFormat::F32)
}

/// Where sequence `slot` of `SLOTS` keeps its past: pages that lie scattered.
fn past(tokens: usize, slot: usize) -> Past {
    let pages = (0..PAGES / SLOTS).map(|i| (i * SLOTS + (slot * 5 + i * 3) % SLOTS) as u32).collect();
    Past { tokens, pages, slot: slot as u32, ..Past::default() }
}

/// The next tokens of sequences in one pass; logits of each.
fn step(ops: &dyn Ops, loaded: &Loaded, caches: &Caches, parts: &[(usize, usize, &[u32])]) -> Vec<Vec<f32>> {
    let mut batch = Batch::default();
    for &(slot, tokens, ids) in parts {
        batch.push_after(ids, past(tokens, slot)).unwrap();
    }
    loaded.model.shape().check(&batch).unwrap();
    caches.check(&batch).unwrap();
    let all = logits(&Forward::cached(ops, &batch, caches), loaded);
    let vocab = all.len() / batch.tokens();
    batch.spans.iter().map(|s| all[s.start * vocab..][..s.len * vocab].to_vec()).collect()
}

/// Logits of a text that comes in passes of `chunk` tokens.
fn chunked(ops: &dyn Ops, loaded: &Loaded, ids: &[u32], chunk: usize) -> (Caches, Vec<f32>) {
    let caches = caches(ops, loaded);
    let parts = ids.chunks(chunk).enumerate();
    let logits = parts.flat_map(|(i, part)| step(ops, loaded, &caches, &[(2, i * chunk, part)]).remove(0)).collect();
    (caches, logits)
}

fn argmax(logits: &[f32]) -> u32 {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap() as u32
}

/// Ids that the model goes on with, and the logits each was taken from.
fn greedy(ops: &dyn Ops, loaded: &Loaded, prompt: &[u32], tokens: usize) -> (Vec<u32>, Vec<f32>) {
    let caches = caches(ops, loaded);
    let vocab = loaded.model.shape().vocab;
    let (mut ids, mut all, mut next, mut past) = (Vec::new(), Vec::new(), prompt.to_vec(), 0);
    while ids.len() < tokens {
        let logits = step(ops, loaded, &caches, &[(1, past, &next)]).remove(0);
        let last = &logits[logits.len() - vocab..];
        past += next.len();
        all.extend_from_slice(last);
        next = vec![argmax(last)];
        ids.push(next[0]);
    }
    (ids, all)
}

/// The outputs of a case, by their names in expected.safetensors.
fn outputs(case: &Case, ops: &dyn Ops, loaded: &Loaded) -> Vec<(String, Vec<f32>)> {
    let mut outputs = Vec::new();
    let vocab = loaded.model.shape().vocab;
    for (i, prompt) in case.prompts().into_iter().enumerate() {
        let chunk = if case.grows() { prompt.len() } else { 7 };
        outputs.push((format!("prompt{i}.logits"), chunked(ops, loaded, &prompt, chunk).1));
        outputs.push((format!("prompt{i}.logits"), alone(ops, loaded, &[prompt])));
    }
    if let Some(index) = case.inputs["capture"].as_u64() {
        let batch = Batch::new(&[&case.prompts()[index as usize]]).unwrap();
        let seen = Mutex::new(Vec::new());
        let trace = |place: Place, rows: &Act| seen.lock().unwrap().push((place, rows.clone()));
        loaded.model.forward(&Forward { trace: Some(&trace), ..Forward::new(ops, &batch) });
        for (place, rows) in seen.into_inner().unwrap() {
            let name = match place {
                Place::Embedding => "hidden.embed".to_owned(),
                Place::Layer(i) => format!("hidden.layer{i}"),
                Place::Norm => "hidden.norm".to_owned(),
            };
            outputs.push((name, ops.read(&rows).unwrap()));
        }
    }
    if case.inputs.get("batch").is_some() {
        let padded: Vec<Vec<u32>> = ids(&case.inputs["batch"]["input_ids"]);
        let mask: Vec<Vec<u32>> = ids(&case.inputs["batch"]["attention_mask"]);
        let kept =
            |row: &[u32], mask: &[u32]| row.iter().zip(mask).filter(|(_, m)| **m == 1).map(|(i, _)| *i).collect();
        let sequences: Vec<Vec<u32>> = padded.iter().zip(&mask).map(|(row, mask)| kept(row, mask)).collect();
        let values = alone(ops, loaded, &sequences);
        let mut rows = values.chunks_exact(vocab);
        let row = |m: &u32| if *m == 1 { rows.next().unwrap().to_vec() } else { vec![0.0; vocab] };
        outputs.push(("batch.logits".into(), mask.iter().flatten().flat_map(row).collect()));
    }
    if let Some(tokens) = case.inputs["greedy"]["new_tokens"].as_u64() {
        let prompt: Vec<u32> = ids(&case.inputs["greedy"]["prompt"]);
        let (ids, logits) = greedy(ops, loaded, &prompt, tokens as usize);
        outputs.push(("greedy.ids".into(), ids.into_iter().map(|id| id as f32).collect()));
        outputs.push(("greedy.logits".into(), logits));
    }
    if let Some(index) = case.inputs["states"]["prompt"].as_u64() {
        let (caches, _) = chunked(ops, loaded, &case.prompts()[index as usize], usize::MAX >> 8);
        for layer in ids::<Vec<usize>>(&case.inputs["states"]["layers"]) {
            let lattice_models::LayerCache::Recurrent(cache) = &caches.layers[layer] else { panic!("no state") };
            let state = ops.read_state(cache, 2).unwrap();
            outputs.push((format!("state.layer{layer}.conv"), state.convolution));
            outputs.push((format!("state.layer{layer}.recurrent"), state.recurrent));
        }
    }
    outputs
}

#[test]
fn every_decoder_agrees_with_the_reference_on_every_isa() {
    for isa in Isa::available() {
        agree_with_the_reference(&cases(), isa, &exact(isa));
    }
}

/// At precision fast many tokens go through a delta net as matrix products; products of weights, which fast rounds, are exact here.
#[test]
fn delta_nets_agree_with_the_reference_at_precision_fast_too() {
    let cases: Vec<Case> = cases().into_iter().filter(|case| case.recurs() && !case.weights().is_file()).collect();
    for isa in Isa::available() {
        let (ops, delta) = (exact(isa), at(Precision::Fast, isa));
        agree_with_the_reference(&cases, isa, &Unfused { ops: &ops, delta: &delta });
    }
}

fn agree_with_the_reference(cases: &[Case], isa: Isa, ops: &dyn Ops) {
    let (mut failures, mut compared) = (Vec::new(), 0);
    for case in cases {
        let expected = weights::Checkpoint::open(case.dir.join("expected.safetensors")).unwrap();
        let loaded = load(case.weights(), ops).unwrap_or_else(|error| panic!("{}: {error}", case.name()));
        let outputs = outputs(case, ops, &loaded);
        for (name, tolerance) in case.compare.as_object().unwrap() {
            let at = format!("{} {name} {:?}", case.name(), isa);
            if !outputs.iter().any(|(n, _)| n == name) {
                failures.push(format!("{at}: not computed"));
            }
            let theirs = expected.get(name).unwrap();
            let theirs = match theirs.to_i64() {
                Ok(ids) => ids.into_iter().map(|id| id as f32).collect(),
                Err(_) => theirs.to_f32().unwrap(),
            };
            let (atol, rtol) = (tolerance["atol"].as_f64().unwrap(), tolerance["rtol"].as_f64().unwrap());
            let excess = |(a, b): (&f32, &f32)| {
                let (a, b) = (f64::from(*a), f64::from(*b));
                if a == b { 0.0 } else { (a - b).abs() / (atol + rtol * b.abs()) }
            };
            for (_, ours) in outputs.iter().filter(|(n, _)| n == name) {
                assert_eq!(ours.len(), theirs.len(), "{at}");
                // NaN is larger than any tolerance
                let larger = |w: f64, e: f64| if e > w || e.is_nan() { e } else { w };
                let worst = ours.iter().zip(&theirs).map(excess).fold(0.0, larger);
                compared += 1;
                if worst.is_nan() || worst > 1.0 {
                    failures.push(format!("{at}: {worst:.2} times the tolerance of {atol:e}"));
                }
            }
        }
    }
    eprintln!("{compared} outputs");
    assert!(
        compared > 0 && failures.is_empty(),
        "{} of {compared} outputs differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// Logits of a text that comes in one pass, with caches.
fn whole(ops: &dyn Ops, loaded: &Loaded, ids: &[u32]) -> Vec<u32> {
    bits(&chunked(ops, loaded, ids, ids.len()).1)
}

#[test]
fn a_text_gives_the_same_bits_in_passes_of_any_size() {
    let mut failures = Vec::new();
    for case in cases().iter().filter(|case| !case.grows()) {
        for cpu in every_isa() {
            let loaded = load(case.weights(), &cpu).unwrap();
            for prompt in case.prompts() {
                let whole = whole(&cpu, &loaded, &prompt);
                for chunk in [1, 7, 64] {
                    if bits(&chunked(&cpu, &loaded, &prompt, chunk).1) != whole {
                        failures.push(format!("{} {:?} {} by {chunk}", case.name(), cpu.isa(), prompt.len()));
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_text_gives_the_same_bits_alone_and_in_any_batch() {
    let mut failures = Vec::new();
    for case in cases() {
        for cpu in every_isa() {
            let loaded = load(case.weights(), &cpu).unwrap();
            let prompts = case.prompts();
            let each: Vec<f32> = prompts.iter().flat_map(|p| alone(&cpu, &loaded, std::slice::from_ref(p))).collect();
            if bits(&alone(&cpu, &loaded, &prompts)) != bits(&each) {
                failures.push(format!("{} {:?}", case.name(), cpu.isa()));
            }
            let each: Vec<u32> = prompts.iter().flat_map(|p| whole(&cpu, &loaded, p)).collect();
            if !case.grows() && bits(&in_turns(&cpu, &loaded, &prompts)) != each {
                failures.push(format!("{} {:?} with caches", case.name(), cpu.isa()));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Logits of texts that go on side by side, now a token and now five, in caches that held other texts before.
fn in_turns(ops: &dyn Ops, loaded: &Loaded, texts: &[Vec<u32>]) -> Vec<f32> {
    let caches = caches(ops, loaded);
    for slot in 0..SLOTS {
        step(ops, loaded, &caches, &[(slot, 0, &[3, 1, 4, 1, 5, 9, 2, 6])]);
    }
    let mut done = vec![(0, Vec::new()); texts.len()];
    for round in 0.. {
        let part = |i: usize, at: usize| {
            let len = if (round + i).is_multiple_of(3) { 5 } else { 1 };
            &texts[i][at..(at + len).min(texts[i].len())]
        };
        let parts = done.iter().enumerate().map(|(i, (at, _))| (i, *at, part(i, *at)));
        let parts: Vec<(usize, usize, &[u32])> = parts.filter(|(_, _, part)| !part.is_empty()).collect();
        if parts.is_empty() {
            break;
        }
        for (&(i, at, part), logits) in parts.iter().zip(step(ops, loaded, &caches, &parts)) {
            done[i].0 = at + part.len();
            done[i].1.extend(logits);
        }
    }
    done.into_iter().flat_map(|(_, logits)| logits).collect()
}

#[test]
fn a_pass_with_caches_runs_in_one_submit_with_the_same_bits() {
    for case in cases() {
        let cpu = Arc::new(exact(*Isa::available().last().unwrap()));
        let deferred = Deferred::new(cpu.clone());
        let (eager, queued) = (load(case.weights(), &*cpu).unwrap(), load(case.weights(), &deferred).unwrap());
        let prompt = case.prompts().pop().unwrap();
        let before = deferred.submits();
        let (_, ours) = chunked(&deferred, &queued, &prompt, 5);
        assert_eq!(deferred.submits() - before, prompt.len().div_ceil(5), "{}", case.name());
        assert!(bits(&ours) == bits(&chunked(&*cpu, &eager, &prompt, 5).1), "{}", case.name());
        let whole = std::slice::from_ref(&prompt);
        assert!(bits(&alone(&deferred, &queued, whole)) == bits(&alone(&*cpu, &eager, whole)), "{}", case.name());
    }
}
