//! Sampling held to Hugging Face's logits processors, and the draw to the probabilities that they leave.

use lattice_inference::sampling::{Candidates, History, Sampler, SamplingParams, Stage};
use safetensors::SafeTensors;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The stage that a golden case names.
fn stage(processor: &Value) -> Stage<'static> {
    let value = &processor[1];
    let number = || value.as_f64().unwrap();
    match processor[0].as_str().unwrap() {
        "temperature" => Stage::Temperature(number()),
        "top_k" => Stage::TopK(value.as_u64().unwrap() as usize),
        "top_p" => Stage::TopP(number()),
        "min_p" => Stage::MinP(number()),
        "typical_p" => Stage::TypicalP(number()),
        "repetition_penalty" => Stage::Repetition(number()),
        "presence_frequency" => {
            Stage::Penalties { presence: value[0].as_f64().unwrap(), frequency: value[1].as_f64().unwrap() }
        }
        other => panic!("no stage for {other}"),
    }
}

fn rows(file: &SafeTensors, name: &str) -> Vec<Vec<f32>> {
    let tensor = file.tensor(name).unwrap();
    let values = tensor.data().as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b));
    let values: Vec<f32> = values.collect();
    values.chunks(tensor.shape()[1]).map(<[f32]>::to_vec).collect()
}

/// The failing rows of a case directory, in words.
fn failures(dir: &Path) -> Vec<String> {
    let inputs: Value = serde_json::from_slice(&std::fs::read(dir.join("inputs.json")).unwrap()).unwrap();
    let bytes = std::fs::read(dir.join("expected.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut failures = Vec::new();
    for (i, case) in inputs["cases"].as_array().unwrap().iter().enumerate() {
        let expected = rows(&file, &format!("case{i}.output"));
        for (row, mut logits) in rows(&file, &format!("case{i}.input")).into_iter().enumerate() {
            let ids = case["history"][row].as_array().unwrap().iter();
            let ids: Vec<u32> = ids.map(|id| id.as_u64().unwrap() as u32).collect();
            let history = History { prompt: &[], generated: &ids };
            let mut candidates = Candidates::new(&mut logits);
            for processor in case["processors"].as_array().unwrap() {
                candidates.apply(&stage(processor), history);
            }
            let ours = candidates.row();
            for (id, (&ours, &right)) in ours.iter().zip(&expected[row]).enumerate() {
                if ours != right {
                    failures
                        .push(format!("case {i} {}, row {row}, id {id}: {ours}, expected {right}", case["processors"]));
                }
            }
        }
    }
    failures
}

/// Directories of sampling cases: those of this project, and of the folder beside it if that is there.
fn cases() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut cases = Vec::new();
    for place in [root.join("goldens"), root.join("../shared/goldens/cases")] {
        match std::fs::read_dir(&place) {
            Ok(entries) => cases.extend(entries.map(|entry| entry.unwrap().path())),
            Err(error) => eprintln!("skipped: {}: {error}", place.display()),
        }
    }
    cases.retain(|dir| std::fs::read(dir.join("meta.json")).is_ok_and(|bytes| {
        serde_json::from_slice::<Value>(&bytes).unwrap()["family"] == "sampling"
    }));
    cases
}

#[test]
fn every_golden_chain_gives_the_very_same_numbers() {
    let cases = cases();
    assert!(!cases.is_empty());
    let failing: Vec<String> = cases.iter().flat_map(|dir| failures(dir)).collect();
    assert!(failing.is_empty(), "{} values differ:\n{}", failing.len(), failing.join("\n"));
}
