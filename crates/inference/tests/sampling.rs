//! Sampling held to Hugging Face's logits processors, and the draw to the probabilities that they leave.

use lattice_inference::sampling::{Candidates, History, Sampled, Sampler, SamplingError, SamplingParams, Stage};
use proptest::prelude::*;
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
    cases.retain(|dir| {
        std::fs::read(dir.join("meta.json"))
            .is_ok_and(|bytes| serde_json::from_slice::<Value>(&bytes).unwrap()["family"] == "sampling")
    });
    cases
}

#[test]
fn every_golden_chain_gives_the_very_same_numbers() {
    let cases = cases();
    assert!(!cases.is_empty());
    eprintln!("{} directories", cases.len());
    let failing: Vec<String> = cases.iter().flat_map(|dir| failures(dir)).collect();
    assert!(failing.is_empty(), "{} values differ:\n{}", failing.len(), failing.join("\n"));
}

fn sample(params: SamplingParams, logits: &[f32], generated: &[u32]) -> Sampled {
    let history = History { prompt: &[], generated };
    Sampler::new(params, logits.len()).unwrap().sample(&mut logits.to_vec(), history, None).unwrap()
}

/// What is left of a row after one stage.
fn after(logits: &[f32], stage: Stage, prompt: &[u32], generated: &[u32]) -> Vec<f32> {
    let mut logits = logits.to_vec();
    let mut candidates = Candidates::new(&mut logits);
    candidates.apply(&stage, History { prompt, generated });
    candidates.row()
}

#[test]
fn repetition_penalty_counts_an_id_once_and_the_prompt_too() {
    let row = after(&[2.0, -1.0, 0.5], Stage::Repetition(1.5), &[0, 0], &[1]);
    assert_eq!(row, [2.0 / 1.5, -1.5, 0.5]);
}

#[test]
fn presence_and_frequency_count_the_output_only() {
    let stage = Stage::Penalties { presence: 0.5, frequency: 0.25 };
    assert_eq!(after(&[1.0; 4], stage, &[0, 0], &[2, 1, 2, 77]), [1.0, 0.25, 0.0, 1.0]);
}

#[test]
fn temperature_zero_takes_the_lowest_id_among_equals_after_the_penalties() {
    let params = SamplingParams { top_k: 1, ..SamplingParams::greedy() };
    assert_eq!(sample(params.clone(), &[0.0, 3.0, 1.0, 3.0], &[]).id, 1);
    let biased = SamplingParams { logit_bias: vec![(1, -1.0), (2, 2.5)], ..params.clone() };
    assert_eq!(sample(biased, &[0.0, 3.0, 1.0, 3.0], &[]).id, 2);
    let penalised = SamplingParams { frequency_penalty: 1.0, ..params };
    assert_eq!(sample(penalised, &[0.0, 3.0, 1.0, 3.0], &[1]).id, 3);
}

#[test]
fn logprobs_are_natural_logs_under_the_model_itself() {
    let logits = [0.5f32, 2.0, -1.0, 2.0];
    let params = SamplingParams {
        temperature: 0.0,
        logprobs: Some(3),
        logit_bias: vec![(2, 100.0), (1, f32::NEG_INFINITY)],
        ..Default::default()
    };
    let sampled = sample(params, &logits, &[]);
    let total = logits.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln();
    let right = |id: u32| (f64::from(logits[id as usize]) - total) as f32;
    let near = |a: f32, b: f32| (a - b).abs() < 1e-6;
    assert!(sampled.id == 2 && near(sampled.logprob.unwrap(), right(2)), "{sampled:?}");
    assert_eq!(sampled.top.iter().map(|&(id, _)| id).collect::<Vec<_>>(), [1, 3, 0]);
    assert!(sampled.top.iter().all(|&(id, x)| near(x, right(id))), "{sampled:?}");
    let chosen_only = sample(SamplingParams { logprobs: Some(0), ..SamplingParams::greedy() }, &logits, &[]);
    assert!(chosen_only.logprob.is_some() && chosen_only.top.is_empty());
    assert_eq!(sample(SamplingParams::greedy(), &logits, &[]).logprob, None);
}

#[test]
fn a_seed_and_a_position_decide_the_draw() {
    let logits: Vec<f32> = (0..1000).map(|i| ((i * 37) % 101) as f32 / 50.0).collect();
    let run = |seed| -> Vec<u32> {
        let params = SamplingParams { seed: Some(seed), ..Default::default() };
        let mut sampler = Sampler::new(params, logits.len()).unwrap();
        let mut generated = Vec::new();
        for _ in 0..20 {
            let history = History { prompt: &[1, 2], generated: &generated };
            generated.push(sampler.sample(&mut logits.clone(), history, None).unwrap().id);
        }
        // Computed again from the middle by another sampler.
        let mut other = Sampler::new(sampler.params().clone(), logits.len()).unwrap();
        let history = History { prompt: &[1, 2], generated: &generated[..7] };
        assert_eq!(other.sample(&mut logits.clone(), history, None).unwrap().id, generated[7]);
        generated
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
    let unseeded = || Sampler::new(SamplingParams::default(), 4).unwrap().seed();
    assert_ne!(unseeded(), unseeded());
}

#[test]
fn draws_follow_the_probabilities_that_the_filters_leave() {
    // Above one block of the cumulated sum, so that whole blocks are passed over.
    let mut logits = vec![-9.0f32; 5000];
    for (id, x) in [(3, 1.0), (1500, 2.0), (2600, 1.5), (4999, 0.0)] {
        logits[id] = x;
    }
    for params in [
        SamplingParams::default(),
        SamplingParams { temperature: 0.8, top_k: 3, ..Default::default() },
        SamplingParams { top_p: 0.5, ..Default::default() },
        SamplingParams { min_p: 0.3, ..Default::default() },
        SamplingParams { typical_p: 0.6, ..Default::default() },
    ] {
        let mut row = logits.clone();
        let mut candidates = Candidates::new(&mut row);
        for stage in [
            Stage::Temperature(params.temperature),
            Stage::TopK(if params.top_k == 0 { 5000 } else { params.top_k }),
            Stage::TopP(params.top_p),
            Stage::MinP(params.min_p),
        ] {
            candidates.apply(&stage, History::default());
        }
        if params.typical_p < 1.0 {
            candidates.apply(&Stage::TypicalP(params.typical_p), History::default());
        }
        let weights: Vec<f64> = candidates.row().iter().map(|&x| f64::from(x).exp()).collect();
        let total: f64 = weights.iter().sum();
        const DRAWS: usize = 4000;
        let mut counts = vec![0usize; 5000];
        for seed in 0..DRAWS {
            counts[sample(SamplingParams { seed: Some(seed as u64), ..params.clone() }, &logits, &[]).id as usize] += 1;
        }
        for id in [3, 1500, 2600, 4999] {
            let p = weights[id] / total;
            let (expected, deviation) = (p * DRAWS as f64, (p * (1.0 - p) * DRAWS as f64).sqrt());
            let off = (counts[id] as f64 - expected).abs();
            assert!(off <= 4.0 * deviation, "{params:?}: token {id} came {} times, expected {expected}", counts[id]);
        }
    }
}

#[test]
fn the_mask_leaves_only_its_tokens() {
    let logits: Vec<f32> = (0..100).map(|i| i as f32 / 10.0).collect();
    // Bits 3, 40 and 64; the mask ends before the row does.
    let mask = [1 << 3, 1 << 8, 1];
    let mut greedy = Sampler::new(SamplingParams::greedy(), 100).unwrap();
    let id = greedy.sample(&mut logits.clone(), History::default(), Some(&mask)).unwrap().id;
    assert_eq!(id, 64);
    let params = SamplingParams { temperature: 5.0, logit_bias: vec![(99, 100.0)], top_p: 0.99, ..Default::default() };
    for seed in 0..50 {
        let mut sampler = Sampler::new(SamplingParams { seed: Some(seed), ..params.clone() }, 100).unwrap();
        let id = sampler.sample(&mut logits.clone(), History::default(), Some(&mask)).unwrap().id;
        assert!([3, 40, 64].contains(&id), "token {id}");
    }
}

#[test]
fn what_cannot_be_sampled_is_an_error_that_says_why() {
    let message = |params, logits: &[f32], mask: Option<&[u32]>| {
        let sampled = Sampler::new(params, 3).unwrap().sample(&mut logits.to_vec(), History::default(), mask);
        sampled.unwrap_err().to_string()
    };
    for params in [
        SamplingParams::greedy(),
        SamplingParams::default(),
        SamplingParams { top_k: 2, ..Default::default() },
        SamplingParams { top_p: 0.5, ..Default::default() },
        SamplingParams { min_p: 0.5, ..Default::default() },
        SamplingParams { typical_p: 0.5, ..Default::default() },
    ] {
        assert_eq!(
            message(params.clone(), &[0.0, f32::NAN, 1.0], None),
            "the logit of token 1 is NaN: the model's activations overflow, or its weights hold NaN or infinity"
        );
        assert_eq!(
            message(params.clone(), &[0.0, 1.0, 1.0], Some(&[0])),
            "no token is left to choose from: the grammar's mask and the logit bias exclude all 3 of them"
        );
        assert_eq!(
            message(params, &[0.0], None),
            "a row of 1 logits, expected 3: one for each token of the vocabulary"
        );
    }
    let error = Sampler::new(SamplingParams { top_p: -1.0, ..Default::default() }, 3).unwrap_err();
    assert!(matches!(error, SamplingError::OutOfRange { name: "top_p", .. }));
}

/// Filters by their definitions, on a sorted row: `(kept by top-k, kept by top-p)`.
fn plainly(logits: &[f32], k: usize, p: f64) -> (Vec<f32>, usize) {
    let mut sorted = logits.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let kth = sorted[k.min(sorted.len()) - 1];
    let top_k = logits.iter().map(|&x| if x >= kth { x } else { f32::NEG_INFINITY }).collect();
    let weights: Vec<f64> = sorted.iter().map(|&x| f64::from(x - sorted[0]).exp()).collect();
    let total: f64 = weights.iter().sum();
    let mut tail = 0.0;
    let dropped = weights.iter().rev().take_while(|&&w| {
        tail += w / total;
        tail <= 1.0 - p
    });
    (top_k, logits.len() - dropped.count().min(logits.len() - 1))
}

proptest! {
    #[test]
    fn selection_equals_sorting(
        logits in prop::collection::vec(prop_oneof![4 => -8.0f32..8.0, 1 => (-4i8..4).prop_map(f32::from)], 1..700),
        k in 1usize..800,
        p in 0.01f64..0.99,
    ) {
        let (top_k, kept) = plainly(&logits, k, p);
        prop_assert_eq!(after(&logits, Stage::TopK(k), &[], &[]), top_k);
        let top_p = after(&logits, Stage::TopP(p), &[], &[]);
        let ours = top_p.iter().filter(|x| x.is_finite()).count();
        // The border may be within rounding of a token.
        prop_assert!(ours.abs_diff(kept) <= 1, "{} kept, expected {}", ours, kept);
        let least = top_p.iter().copied().filter(|x| x.is_finite()).fold(f32::INFINITY, f32::min);
        prop_assert!(logits.iter().zip(&top_p).all(|(x, y)| x == y || *x <= least));
    }

    #[test]
    fn any_parameters_give_a_token_of_the_row(
        logits in prop::collection::vec(prop_oneof![3 => -30.0f32..30.0, 1 => Just(f32::NEG_INFINITY), 1 => Just(-0.0f32)], 1..300),
        temperature in prop_oneof![Just(0.0), 1e-6..3.0f64],
        (top_k, top_p, min_p, typical_p) in (0usize..400, 0.0..=1.0f64, 0.0..=1.0f64, 0.001..=1.0f64),
        (repetition_penalty, presence_penalty, frequency_penalty) in (0.01..100.0f64, -2.0..2.0f64, -2.0..2.0f64),
        generated in prop::collection::vec(0u32..400, 0..40),
        seed in any::<u64>(),
    ) {
        prop_assume!(logits.iter().any(|x| x.is_finite()));
        let params = SamplingParams {
            temperature, top_k, top_p, min_p, typical_p, repetition_penalty, presence_penalty, frequency_penalty,
            seed: Some(seed), logprobs: Some(5), ..Default::default()
        };
        let sampled = sample(params, &logits, &generated);
        prop_assert!(logits[sampled.id as usize].is_finite());
        prop_assert!(sampled.logprob.unwrap() <= 0.0 && sampled.top.len() <= 5);
        prop_assert!(sampled.top.windows(2).all(|w| (w[1].1, w[0].0) < (w[0].1, w[1].0)), "{:?}", sampled.top);
    }
}
