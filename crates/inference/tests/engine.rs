//! Sequences of an engine on a tiny decoder: what a sequence gives depends on nothing but itself.

use lattice_inference::sampling::SamplingParams;
use lattice_inference::{Engine, EngineOptions, Event, Finish, InferenceError, LanguageModel, SequenceId, generate};
use ops::{Cpu, CpuOptions, Isa, KvFormat, Precision};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/gguf_qwen3_q8_0/model.gguf")
}

fn open(isa: Isa, precision: Precision) -> LanguageModel {
    let options = CpuOptions { threads: Some(2), isa: Some(isa), precision };
    LanguageModel::open(golden(), Arc::new(Cpu::new(&options).expect("an available ISA"))).expect("a golden opens")
}

fn best() -> Isa {
    Isa::available().pop().expect("scalar at least")
}

fn exact(step_tokens: usize, parallel: usize) -> EngineOptions {
    EngineOptions { step_tokens, parallel, page_tokens: 16, kv: KvFormat::F32, ..EngineOptions::default() }
}

fn greedy(max_tokens: usize) -> SamplingParams {
    SamplingParams { max_tokens: Some(max_tokens), logprobs: Some(2), ..SamplingParams::greedy() }
}

/// Prompts of several lengths, made of ids that any tiny vocabulary has.
fn prompts() -> Vec<Vec<u32>> {
    [1, 30, 5, 17, 64, 2, 40, 9].iter().map(|&n| (0..n).map(|i| 3 + (i * 37 + n * 11) % 200).collect()).collect()
}

/// Runs an engine dry and returns each sequence's events.
fn run(engine: &mut Engine) -> BTreeMap<SequenceId, Vec<Event>> {
    let mut all: BTreeMap<SequenceId, Vec<Event>> = BTreeMap::new();
    while !engine.is_idle() {
        for event in engine.step().expect("a step") {
            all.entry(event.sequence).or_default().push(event);
        }
    }
    all
}

/// Ids and log-probabilities, bit for bit.
fn trace(events: &[Event]) -> Vec<(u32, Vec<(u32, u32)>)> {
    let bits = |top: &[(u32, f32)]| top.iter().map(|(id, p)| (*id, p.to_bits())).collect();
    events.iter().filter_map(|e| e.token.as_ref()).map(|t| (t.id, bits(&t.top))).collect()
}

#[test]
fn at_precision_exact_neither_chunks_nor_batch_mates_change_a_bit() {
    for isa in Isa::available() {
        let model = open(isa, Precision::Exact);
        let alone: Vec<_> = prompts()
            .iter()
            .map(|prompt| {
                let mut engine = model.engine(exact(512, 1)).expect("an engine");
                let id = engine.add(prompt, greedy(12), &[]).expect("a prompt");
                trace(&run(&mut engine)[&id])
            })
            .collect();
        assert!(alone.iter().all(|t| t.len() == 12));
        for (step_tokens, parallel) in [(1, 1), (7, 1), (64, 1), (512, 2), (7, 3), (64, 8), (512, 8)] {
            let mut engine = model.engine(exact(step_tokens, parallel)).expect("an engine");
            let add = |prompt: &Vec<u32>| engine.add(prompt, greedy(12), &[]).expect("a prompt");
            let ids: Vec<_> = prompts().iter().map(add).collect();
            let events = run(&mut engine);
            for (id, alone) in ids.iter().zip(&alone) {
                assert_eq!(&trace(&events[id]), alone, "{isa}, steps of {step_tokens}, {parallel} side by side");
            }
        }
    }
}

#[test]
fn a_sequence_ends_at_its_limit_its_stop_id_or_the_end_of_the_context() {
    let model = open(best(), Precision::Default);
    let mut engine = model.engine(EngineOptions { context: Some(40), ..exact(512, 4) }).expect("an engine");
    let prompt: Vec<u32> = (3..13).collect();
    let endless = SamplingParams::greedy();
    let limited = engine.add(&prompt, greedy(5), &[]).expect("a prompt");
    let full = engine.add(&prompt, endless.clone(), &[]).expect("a prompt");
    let events = run(&mut engine);
    assert_eq!(events[&limited].len(), 5);
    assert_eq!(events[&limited].last().expect("five").finish, Some(Finish::Length));
    assert_eq!(events[&full].len(), 30, "ten tokens of prompt and thirty more fill the context");
    assert_eq!(events[&full].last().expect("thirty").finish, Some(Finish::Context));

    let third = events[&full][2].token.as_ref().expect("a token").id;
    let first =
        events[&full].iter().position(|e| e.token.as_ref().is_some_and(|t| t.id == third)).expect("it is there");
    let stopped = engine.add(&prompt, endless.clone(), &[third]).expect("a prompt");
    let ignoring = engine.add(&prompt, SamplingParams { ignore_eos: true, ..endless }, &[third]).expect("a prompt");
    let events = run(&mut engine);
    assert_eq!(events[&stopped].len(), first + 1);
    assert_eq!(events[&stopped].last().expect("some").finish, Some(Finish::Stop));
    assert_eq!(events[&ignoring].len(), 30);
}

#[test]
fn a_cancelled_sequence_gives_its_place_to_the_next() {
    let model = open(best(), Precision::Default);
    let mut engine = model.engine(EngineOptions { context: Some(64), ..exact(8, 1) }).expect("an engine");
    let long: Vec<u32> = (0..60).map(|i| 3 + i % 50).collect();
    let in_prompt = engine.add(&long, greedy(3), &[]).expect("a prompt");
    let in_queue = engine.add(&long, greedy(3), &[]).expect("a prompt");
    let last = engine.add(&[5, 6, 7], greedy(3), &[]).expect("a prompt");
    assert!(engine.step().expect("a step").is_empty(), "the prompt is not in yet");
    engine.cancel(in_prompt);
    engine.cancel(in_queue);
    let events = run(&mut engine);
    assert_eq!(events.keys().collect::<Vec<_>>(), [&last]);
    assert_eq!(events[&last].len(), 3);
}

#[test]
fn what_does_not_fit_is_an_error_that_names_the_numbers() {
    let model = open(best(), Precision::Default);
    let mut engine = model.engine(EngineOptions { context: Some(16), ..exact(512, 1) }).expect("an engine");
    let error = engine.add(&[5; 16], greedy(1), &[]).expect_err("no room for a token").to_string();
    assert_eq!(
        error,
        "the prompt has 16 tokens, but the context is 16, and one more must fit: shorten it, or raise the context (--ctx)"
    );
    assert!(matches!(engine.add(&[], greedy(1), &[]), Err(InferenceError::EmptyPrompt)));
    let error = engine.add(&[4_000_000], greedy(1), &[]).expect_err("no such id").to_string();
    assert!(error.contains("does the tokenizer belong to this model?"), "{error}");
    let wide = EngineOptions { context: Some(1 << 30), ..exact(512, 1) };
    assert!(matches!(model.engine(wide), Err(InferenceError::Context { .. })));
    let params = SamplingParams { top_p: 1.5, ..SamplingParams::default() };
    assert!(matches!(engine.add(&[5], params, &[]), Err(InferenceError::Sampling(_))));
}

#[test]
fn a_stop_string_ends_the_text_where_it_begins_streamed_as_unstreamed() {
    let model = open(best(), Precision::Default);
    let mut engine = model.engine(exact(512, 1)).expect("an engine");
    let prompt = model.encode_text("The quick brown fox").expect("it encodes");
    let mut text_of = |stop: Vec<String>| {
        let params = SamplingParams { stop, ..greedy(24) };
        let mut streamed = String::new();
        let done = generate(&model, &mut engine, &prompt, &params, None, &mut |_, segments| {
            segments.iter().for_each(|s| streamed.push_str(&s.text));
            ControlFlow::Continue(())
        });
        let done = done.expect("it runs");
        assert_eq!(streamed, done.text);
        assert!(engine.is_idle(), "a stopped sequence is gone");
        done.text
    };
    let whole = text_of(Vec::new());
    let middle: Vec<char> = whole.chars().collect();
    let stop: String = middle[middle.len() / 2..middle.len() / 2 + 3].iter().collect();
    let cut = whole.find(&stop).expect("it is from there");
    assert_eq!(text_of(vec![stop]), whole[..cut]);
}

#[test]
fn sampling_with_a_seed_repeats_itself_beside_any_company() {
    let model = open(best(), Precision::Exact);
    let params = SamplingParams { seed: Some(7), max_tokens: Some(16), temperature: 1.2, ..SamplingParams::default() };
    let prompt: Vec<u32> = (10..30).collect();
    let ids = |events: &[Event]| events.iter().filter_map(|e| e.token.as_ref()).map(|t| t.id).collect::<Vec<_>>();
    let mut engine = model.engine(exact(512, 4)).expect("an engine");
    let alone = engine.add(&prompt, params.clone(), &[]).expect("a prompt");
    let alone = ids(&run(&mut engine)[&alone]);
    for other in prompts().iter().take(2) {
        engine.add(other, SamplingParams { seed: Some(1), ..params.clone() }, &[]).expect("a prompt");
    }
    let again = engine.add(&prompt, params, &[]).expect("a prompt");
    assert_eq!(ids(&run(&mut engine)[&again]), alone);
}
