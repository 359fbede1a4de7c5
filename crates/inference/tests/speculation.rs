//! Guessed tokens change nothing but the number of steps.

mod common;

use common::{KINDS, Tiny, counts, exact, greedy, run, tiny, trace};
use lattice_inference::sampling::SamplingParams;
use lattice_inference::{EngineOptions, Speculate};

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
    let (with, without) = (steps(Speculate::Greedy), steps(Speculate::Never));
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
