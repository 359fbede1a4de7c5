//! Guessed tokens change nothing but the number of steps.

mod common;

use common::{KINDS, Tiny, counts, exact, greedy, run, tiny, trace};
use lattice_inference::sampling::{Guess, History, Sampler, SamplingParams};
use lattice_inference::{Engine, EngineOptions, InferenceError, Speculate};
use std::collections::HashMap;

/// A text that repeats itself, so that there is something to guess.
fn repetitive(model: &Tiny, len: usize) -> Vec<u32> {
    model.ids(7, 1).into_iter().cycle().take(len).collect()
}

#[test]
fn greedy_texts_are_the_same_with_guesses_and_without() {
    for model in KINDS.map(tiny) {
        let (mut drafted, mut accepted) = (0, 0);
        let prompts = [repetitive(&model, 40), model.ids(20, 3), repetitive(&model, 9), model.ids(45, 2)];
        for parallel in [1, 4] {
            let mut engine = model.engine(EngineOptions { parallel, ..exact() });
            let add = |prompt: &Vec<u32>| engine.add(prompt, greedy(60), &[]).expect("a prompt");
            let ids: Vec<_> = prompts.iter().map(add).collect();
            let events = run(&mut engine);
            for (id, prompt) in ids.iter().zip(&prompts) {
                assert_eq!(trace(&events[id]), model.alone(prompt, &greedy(60)), "{} {prompt:?}", model.name);
                let counts = counts(&events[id]);
                drafted += counts.drafted;
                accepted += counts.accepted;
                assert_eq!(counts.generated, 60);
            }
            let totals = engine.totals();
            assert_eq!((totals.drafted, totals.accepted), (drafted as u64, accepted as u64), "{}", model.name);
            (drafted, accepted) = (0, 0);
            assert!(totals.drafted > 0 && totals.accepted <= totals.drafted, "{} {totals:?}", model.name);
        }
    }
}

#[test]
fn right_guesses_spare_steps() {
    // A tiny model soon repeats itself.
    let model = tiny("qwen3_biases");
    let steps = |speculate| {
        let mut engine = model.engine(EngineOptions { parallel: 1, speculate, ..exact() });
        engine.add(&repetitive(&model, 40), greedy(80), &[]).expect("a prompt");
        run(&mut engine);
        engine.totals()
    };
    let (with, without) = (steps(Speculate::Always), steps(Speculate::Never));
    assert_eq!((without.drafted, without.steps), (0, 80));
    assert_eq!(with.steps + with.accepted, 80, "{with:?}");
    assert!(with.accepted * 2 > with.drafted, "{with:?}");
}

#[test]
fn sampled_texts_are_the_same_with_guesses_from_the_text_and_without() {
    for model in KINDS.map(tiny) {
        for temperature in [0.2, 1.0] {
            let params = SamplingParams {
                temperature,
                repetition_penalty: 1.05,
                top_k: 20,
                seed: Some(3),
                max_tokens: Some(50),
                logprobs: Some(1),
                ..SamplingParams::default()
            };
            let prompt = repetitive(&model, 30);
            let mut engine = model.engine(EngineOptions { speculate: Speculate::Always, ..exact() });
            let id = engine.add(&prompt, params.clone(), &[]).expect("a prompt");
            let events = run(&mut engine);
            assert_eq!(trace(&events[&id]), model.alone(&prompt, &params), "{} at {temperature}", model.name);
            let mut engine = model.engine(EngineOptions { speculate: Speculate::Greedy, ..exact() });
            engine.add(&prompt, params, &[]).expect("a prompt");
            run(&mut engine);
            assert_eq!(engine.totals().drafted, 0, "only greedy texts, unless asked for");
        }
    }
}

#[test]
fn a_text_that_ends_among_right_guesses_ends_there() {
    let model = tiny("qwen3_5_hybrid");
    let prompt = repetitive(&model, 40);
    let (whole, _) = model.alone(&prompt, &greedy(60));
    for end in 1..40 {
        let stop = whole[end].0;
        let first = whole.iter().position(|(id, _)| *id == stop).expect("it is there");
        let mut engine = model.engine(EngineOptions { parallel: 1, ..exact() });
        let id = engine.add(&prompt, greedy(60), &[stop]).expect("a prompt");
        let events = run(&mut engine);
        assert_eq!(trace(&events[&id]).0, whole[..=first]);
        // What stays of it is what it was given, so that a sequence may go on from there.
        let mut longer = prompt.clone();
        longer.extend(whole[..=first].iter().map(|(id, _)| id));
        let id = engine.add(&longer, greedy(9), &[]).expect("a prompt");
        let events = run(&mut engine);
        assert_eq!(counts(&events[&id]).cached, longer.len() - 1);
        assert_eq!(trace(&events[&id]), model.alone(&longer, &greedy(9)));
    }
}

/// Models, and one of the same vocabulary that guesses for each.
const PAIRS: [(&str, &str); 5] = [
    ("qwen3_biases", "llama_biases_yarn"),
    ("qwen3_biases", "qwen3_biases"),
    ("qwen3_5_hybrid", "qwen3_5_moe"),
    ("qwen3_5_moe", "gemma3_small"),
    ("gemma3_small", "qwen3_5_hybrid"),
];

#[test]
fn greedy_texts_are_the_same_whoever_guesses() {
    for (name, guesser) in PAIRS {
        let (model, guesser) = (tiny(name), tiny(guesser));
        let prompts = [repetitive(&model, 40), model.ids(20, 3), repetitive(&model, 9), repetitive(&model, 40)];
        for parallel in [1, 4] {
            for pages in [None, Some(11)] {
                let options = EngineOptions { parallel, pages, context: Some(110), ..exact() };
                let mut engine = model.engine_with(&guesser, options);
                let add = |prompt: &Vec<u32>| engine.add(prompt, greedy(50), &[]).expect("a prompt");
                let ids: Vec<_> = prompts.iter().map(add).collect();
                let events = run(&mut engine);
                for (id, prompt) in ids.iter().zip(&prompts) {
                    let at = format!("{name} by {} {prompt:?} {parallel}", guesser.name);
                    assert_eq!(trace(&events[id]), model.alone(prompt, &greedy(50)), "{at}");
                }
                let totals = engine.totals();
                assert!(totals.drafted > 0, "{totals:?}");
                if name == guesser.name {
                    assert_eq!(totals.drafted, totals.accepted, "a model knows its own mind");
                }
                assert_eq!((totals.pages_used, totals.running), (0, 0));
            }
        }
    }
}

/// Pearson's statistic of counts against the probabilities of `odds`, and its degrees of freedom; rare ones together.
fn chi_square(counts: &HashMap<u32, usize>, odds: &[f64]) -> (f64, f64) {
    let total: usize = counts.values().sum();
    let (mut sum, mut bins, mut rest) = (0.0, 0, (0.0, 0.0));
    for (id, odds) in (0..).zip(odds) {
        let (expected, got) = (odds * total as f64, *counts.get(&id).unwrap_or(&0) as f64);
        if expected < 10.0 {
            rest = (rest.0 + expected, rest.1 + got);
        } else {
            sum += (got - expected).powi(2) / expected;
            bins += 1;
        }
    }
    if rest.0 >= 5.0 {
        sum += (rest.1 - rest.0).powi(2) / rest.0;
        bins += 1;
    } else {
        assert!(rest.1 < rest.0 + 15.0, "rare tokens come {} times instead of {}", rest.1, rest.0);
    }
    (sum, f64::from(bins - 1))
}

/// Is the statistic what chance gives in all but one of a million tries (Wilson and Hilferty 1931)?
fn plausible((sum, freedom): (f64, f64)) -> bool {
    let part = 2.0 / (9.0 * freedom);
    sum < freedom * (1.0 - part + 4.9 * part.sqrt()).powi(3)
}

fn softmax(logits: &[f32]) -> Vec<f64> {
    let weights: Vec<f64> = logits.iter().map(|x| f64::from(*x).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|w| w / total).collect()
}

#[test]
fn a_checked_guess_is_as_likely_as_a_drawn_token() {
    let ours = [2.0, 1.0, 0.5, 0.0, -1.0, -2.0, 1.5, f32::NEG_INFINITY];
    let guessers = [
        [2.0, 1.0, 0.5, 0.0, -1.0, -2.0, 1.5, f32::NEG_INFINITY],
        [0.0; 8],
        [-3.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0],
        [9.0, -9.0, -9.0, -9.0, -9.0, -9.0, -9.0, -9.0],
    ];
    for theirs in guessers {
        for temperature in [1.0, 0.5] {
            let (mut counts, mut kept) = (HashMap::new(), 0);
            for seed in 0..40_000 {
                let params = SamplingParams { seed: Some(seed), temperature, ..SamplingParams::default() };
                let mut sampler = Sampler::new(params, 8).expect("a sampler");
                let history = History { prompt: &[1], generated: &[2, 3] };
                let (id, odds) = sampler.guess(&mut theirs.clone(), history).expect("a guess");
                let guess = Some(Guess { id, odds: &odds });
                let sampled = sampler.sample_guessed(&mut ours.clone(), history, None, guess).expect("a token");
                *counts.entry(sampled.id).or_insert(0) += 1;
                kept += usize::from(sampled.id == id);
            }
            let scaled = |logits: [f32; 8]| softmax(&logits.map(|x| x / temperature as f32));
            let (ours, theirs) = (scaled(ours), scaled(theirs));
            let result = chi_square(&counts, &ours);
            assert!(plausible(result), "{theirs:?} at {temperature}: {result:?}, {counts:?}");
            // No rule keeps more.
            let most: f64 = ours.iter().zip(&theirs).map(|(a, b)| a.min(*b)).sum();
            let share = kept as f64 / 40_000.0;
            assert!((share - most).abs() < 0.015, "{share} of the guesses are kept, {most} can be");
        }
    }
}

#[test]
fn sampled_texts_are_as_likely_whoever_guesses() {
    let (model, guesser) = (tiny("qwen3_biases"), tiny("llama_biases_yarn"));
    let prompt = model.ids(12, 4);
    let params = |seed| SamplingParams {
        seed: Some(seed),
        max_tokens: Some(4),
        temperature: 0.7,
        top_k: 6,
        ..SamplingParams::default()
    };
    // The last of four tokens, over all texts before it.
    let count = |mut engine: Engine| {
        let mut counts = HashMap::new();
        for seed in 0..6000 {
            engine.add(&prompt, params(seed), &[]).expect("a prompt");
        }
        for events in run(&mut engine).values() {
            *counts.entry(events[3].token.as_ref().expect("a token").id).or_insert(0) += 1;
        }
        (counts, engine.totals())
    };
    let options = EngineOptions { speculate: Speculate::Always, parallel: 4, ..exact() };
    let (with, totals) = count(model.engine_with(&guesser, options));
    assert!(totals.accepted > 500 && totals.accepted + 500 < totals.drafted, "{totals:?}");
    let (without, _) = count(model.engine(EngineOptions { speculate: Speculate::Never, ..options }));
    // Two samples: the statistic of the homogeneity of two rows of equal sums.
    let ids: Vec<u32> = (0..96).filter(|id| with.get(id).unwrap_or(&0) + without.get(id).unwrap_or(&0) >= 20).collect();
    let of = |counts: &HashMap<u32, usize>, id: &u32| *counts.get(id).unwrap_or(&0) as f64;
    let sum: f64 =
        ids.iter().map(|id| (of(&with, id) - of(&without, id)).powi(2) / (of(&with, id) + of(&without, id))).sum();
    assert!(ids.len() > 5 && plausible((sum, ids.len() as f64 - 1.0)), "{sum} of {}", ids.len());
}

#[test]
fn a_draft_of_another_vocabulary_is_refused_by_name() {
    let (model, other) = (tiny("qwen3_biases"), tiny("gemma3_small"));
    let error = Engine::with_draft(model.loaded.clone(), other.loaded, model.ops.clone(), exact()).err();
    let error = error.expect("another vocabulary");
    assert!(matches!(error, InferenceError::Draft { .. }));
    let text = "the draft model has 80 logits, expected 96 as the model it guesses for: take a smaller model of the same family";
    assert_eq!(error.to_string(), text);
}
