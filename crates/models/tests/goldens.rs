//! Every architecture against the outputs of Hugging Face's own implementation, on every instruction set that this
//! machine has; and the two promises that hold bit for bit: batch mates change nothing, and neither does a queue.

use lattice_models::{Batch, Config, Forward, Loaded, find, load};
use ops::{Cpu, CpuOptions, Deferred, Isa, Ops, Pool, Precision};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The golden cases of token ids whose architecture is built: those of this repository, and a larger set beside it.
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
    assert!(cases.len() > 10, "only {} cases", cases.len());
    cases
}

struct Case {
    dir: PathBuf,
    compare: Value,
    classifies: bool,
    poolings: Vec<String>,
    truncated: Vec<usize>,
    dense: Vec<weights::Tensor>,
    batches: Vec<Padded>,
}

/// A batch as the reference takes it; `rows[i]` are the places of sequence i's tokens.
struct Padded {
    width: usize,
    rows: Vec<Vec<usize>>,
    batch: Batch,
}

impl Case {
    fn read(dir: PathBuf) -> Option<Case> {
        let json = |name: &str| -> Option<Value> {
            serde_json::from_slice(&std::fs::read(dir.join(name)).ok()?).expect("golden files are JSON")
        };
        let (meta, inputs) = (json("meta.json")?, json("inputs.json")?);
        find(&Config::read(&dir).ok()?).ok()?;
        let batches = inputs["batches"].as_array()?.iter().map(Padded::read).collect();
        let poolings = inputs["poolings"].as_array().into_iter().flatten().map(|p| p.as_str().unwrap().to_owned());
        let (classifies, poolings) = (inputs["kind"] == "classify", poolings.collect());
        let counts = |key: &str| serde_json::from_value(inputs[key].clone()).unwrap_or_default();
        let (truncated, widths): (_, Vec<usize>) = (counts("truncate_dims"), counts("dense"));
        let layer = |i| dir.join(format!("{}_Dense", i + 2)).join("model.safetensors");
        let open = |i| weights::Checkpoint::open(layer(i)).unwrap().get("linear.weight").unwrap();
        let dense = (0..widths.len()).map(open).collect();
        Some(Case { dir, compare: meta["compare"].clone(), classifies, poolings, truncated, dense, batches })
    }

    fn name(&self) -> &str {
        self.dir.file_name().unwrap().to_str().unwrap()
    }

    /// The outputs of a batch, by their names in expected.safetensors.
    fn run(&self, ops: &dyn Ops, loaded: &Loaded, index: usize) -> Vec<(String, Vec<f32>)> {
        let Padded { width, rows, batch } = &self.batches[index];
        loaded.model.shape().check(batch).unwrap();
        let cx = Forward::new(ops, batch);
        let hidden = loaded.model.forward(&cx);
        let named = |name: &str, values| (format!("batch{index}.{name}"), values);
        if self.classifies {
            let classifier = loaded.classifier.as_ref().expect("a classification case has a head");
            let logits = ops.read(&classifier.forward(&cx, &hidden)).unwrap();
            assert_eq!(logits.len(), rows.len() * loaded.labels.len());
            let scores = logits.iter().map(|&x| (1.0 / (1.0 + (-f64::from(x)).exp())) as f32).collect();
            return vec![named("logits", logits), named("scores", scores)];
        }
        let cols = hidden.cols();
        let mut outputs = Vec::new();
        for pooling in &self.poolings {
            let pooled = match &pooling[..] {
                "mean" => ops.pool(&hidden, &batch.spans, Pool::Mean),
                "cls" => ops.rows(&hidden, &batch.first_rows()),
                "last" => ops.rows(&hidden, &batch.last_rows()),
                other => panic!("{}: pooling {other}", self.name()),
            };
            let vectors = ops.read(&pooled).unwrap();
            let vectors: Vec<Vec<f64>> = vectors.chunks_exact(cols).map(|v| self.through_dense(v)).collect();
            outputs.push(named(pooling, vectors.iter().flat_map(|v| normalized(v)).collect()));
            for &dim in &self.truncated {
                let cut = vectors.iter().flat_map(|v| normalized(&v[..dim])).collect();
                outputs.push(named(&format!("{pooling}.mrl{dim}"), cut));
            }
        }
        let values = ops.read(&hidden).unwrap();
        let mut padded = vec![0.0; rows.len() * width * cols];
        let places = rows.iter().enumerate().flat_map(|(i, row)| row.iter().map(move |&token| i * width + token));
        for (place, row) in places.zip(values.chunks_exact(cols)) {
            padded[place * cols..][..cols].copy_from_slice(row);
        }
        outputs.push(named("last_hidden_state", padded));
        outputs
    }
}

impl Case {
    /// A pooled vector after the layers that sentence-transformers adds.
    fn through_dense(&self, vector: &[f32]) -> Vec<f64> {
        let mut vector: Vec<f64> = vector.iter().copied().map(f64::from).collect();
        for layer in &self.dense {
            let weight = layer.to_f32().unwrap();
            let rows = weight.chunks_exact(layer.cols());
            vector = rows.map(|row| row.iter().zip(&vector).map(|(&w, x)| f64::from(w) * x).sum()).collect();
        }
        vector
    }
}

fn normalized(vector: &[f64]) -> Vec<f32> {
    let norm = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
    vector.iter().map(|x| (x / norm) as f32).collect()
}

impl Padded {
    fn read(batch: &Value) -> Padded {
        let numbers = |key: &str| -> Option<Vec<Vec<u32>>> { serde_json::from_value(batch[key].clone()).ok() };
        let (ids, mask) = (numbers("input_ids").unwrap(), numbers("attention_mask").unwrap());
        let types = numbers("token_type_ids");
        let mut padded = Padded { width: ids[0].len(), rows: Vec::new(), batch: Batch::default() };
        for (i, mask) in mask.iter().enumerate() {
            let row: Vec<usize> = (0..mask.len()).filter(|&token| mask[token] == 1).collect();
            let kept = |values: &[u32]| row.iter().map(|&token| values[token]).collect::<Vec<u32>>();
            let types = types.as_ref().map(|types| kept(&types[i])).unwrap_or_default();
            padded.batch.push(&kept(&ids[i]), &types).unwrap();
            padded.rows.push(row);
        }
        padded
    }
}

fn every_isa(precision: Precision) -> impl Iterator<Item = Cpu> {
    let options = move |isa| CpuOptions { isa: Some(isa), precision, ..CpuOptions::default() };
    Isa::available().into_iter().map(move |isa| Cpu::new(&options(isa)).unwrap())
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn every_architecture_agrees_with_the_reference_on_every_isa() {
    let (mut failures, mut compared) = (Vec::new(), 0);
    for case in cases() {
        let expected = weights::Checkpoint::open(case.dir.join("expected.safetensors")).unwrap();
        for cpu in every_isa(Precision::Exact) {
            let loaded = load(&case.dir, &cpu).unwrap_or_else(|error| panic!("{}: {error}", case.name()));
            let outputs: Vec<_> = (0..case.batches.len()).flat_map(|i| case.run(&cpu, &loaded, i)).collect();
            for (name, tolerance) in case.compare.as_object().unwrap() {
                let at = format!("{} {name} {:?}", case.name(), cpu.isa());
                let Some((_, ours)) = outputs.iter().find(|(n, _)| n == name) else {
                    failures.push(format!("{at}: not computed"));
                    continue;
                };
                let theirs = expected.get(name).unwrap().to_f32().unwrap();
                assert_eq!(ours.len(), theirs.len(), "{at}");
                let (atol, rtol) = (tolerance["atol"].as_f64().unwrap(), tolerance["rtol"].as_f64().unwrap());
                let excess = |(a, b): (&f32, &f32)| {
                    let (a, b) = (f64::from(*a), f64::from(*b));
                    (a - b).abs() / (atol + rtol * b.abs())
                };
                // NaN is larger than any tolerance
                let worst =
                    ours.iter().zip(&theirs).map(excess).fold(0.0, |w: f64, e| if e > w || e.is_nan() { e } else { w });
                compared += 1;
                if worst.is_nan() || worst > 1.0 {
                    failures.push(format!("{at}: {worst:.2} times the tolerance of {atol:e}"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} of {compared} outputs differ:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_sequence_gives_the_same_bits_alone_and_in_any_batch() {
    for case in cases() {
        for cpu in every_isa(Precision::Exact).chain(every_isa(Precision::Default)) {
            let loaded = load(&case.dir, &cpu).unwrap();
            let hidden = |batch: &Batch| cpu.read(&loaded.model.forward(&Forward::new(&cpu, batch))).unwrap();
            let cols = loaded.model.shape().hidden;
            let sequences: Vec<Batch> = case.batches.iter().flat_map(|padded| alone(&padded.batch)).collect();
            let mates = sequences.iter().chain(sequences.iter().rev());
            let mut together = Batch::default();
            mates.clone().for_each(|one| together.push(&one.ids, &one.types).unwrap());
            let all = hidden(&together);
            for (one, span) in mates.zip(&together.spans) {
                let rows = &all[span.start * cols..][..span.len * cols];
                assert!(bits(rows) == bits(&hidden(one)), "{} {:?} {span:?}", case.name(), cpu.isa());
            }
        }
    }
}

/// Each sequence of a batch as a batch of its own.
fn alone(batch: &Batch) -> Vec<Batch> {
    let one = |span: &ops::Span| {
        let mut one = Batch::default();
        one.push(&batch.ids[span.range()], batch.types.get(span.range()).unwrap_or_default()).unwrap();
        one
    };
    batch.spans.iter().map(one).collect()
}

#[test]
fn a_forward_pass_runs_in_one_submit_with_the_same_bits() {
    for case in cases() {
        let cpu = Arc::new(Cpu::new(&CpuOptions::default()).unwrap());
        let deferred = Deferred::new(cpu.clone());
        let (eager, queued) = (load(&case.dir, &*cpu).unwrap(), load(&case.dir, &deferred).unwrap());
        for Padded { batch, .. } in &case.batches {
            let run = |ops: &dyn Ops, loaded: &Loaded| {
                let cx = Forward::new(ops, batch);
                let hidden = loaded.model.forward(&cx);
                let output = loaded.classifier.as_ref().map_or(hidden.clone(), |head| head.forward(&cx, &hidden));
                bits(&ops.read(&output).unwrap())
            };
            let before = deferred.submits();
            assert!(run(&*cpu, &eager) == run(&deferred, &queued), "{}", case.name());
            assert_eq!(deferred.submits() - before, 1, "{}", case.name());
        }
    }
}
