//! Sequences under grammars on a tiny decoder: the text fits, whatever runs beside it and however tokens are guessed.

use grammar::{Constraint, GrammarError, GrammarSpec};
use lattice_inference::sampling::SamplingParams;
use lattice_inference::{Engine, EngineOptions, Event, Finish, Guide, LanguageModel, SequenceId, Speculate};
use ops::{Cpu, CpuOptions, Isa, KvFormat, Precision};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

fn open() -> LanguageModel {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/gguf_qwen3_q8_0/model.gguf");
    let options = CpuOptions { threads: Some(2), isa: Isa::available().pop(), precision: Precision::Exact };
    LanguageModel::open(path, Arc::new(Cpu::new(&options).expect("an available ISA"))).expect("a golden opens")
}

fn engine(model: &LanguageModel, parallel: usize, speculate: Speculate) -> Engine {
    let kv = KvFormat::F32;
    let options =
        EngineOptions { parallel, speculate, page_tokens: 16, step_tokens: 64, kv, ..EngineOptions::default() };
    model.engine(options).expect("an engine")
}

fn run(engine: &mut Engine) -> (BTreeMap<SequenceId, Vec<Event>>, usize) {
    let (mut all, mut steps) = (BTreeMap::<SequenceId, Vec<Event>>::new(), 0);
    while !engine.is_idle() {
        for event in engine.step().expect("a step") {
            all.entry(event.sequence).or_default().push(event);
        }
        steps += 1;
    }
    (all, steps)
}

fn text(model: &LanguageModel, events: &[Event]) -> String {
    let ids: Vec<u32> = events.iter().filter_map(|e| e.token.as_ref()).map(|t| t.id).collect();
    model.tokenizer().decode(&ids, true)
}

fn params(seed: u64) -> SamplingParams {
    SamplingParams { max_tokens: Some(80), temperature: 1.2, seed: Some(seed), ..SamplingParams::default() }
}

const REGEX: &str = r"(ab|cd){3}: [0-9]{2,4} is a number of some length, in a sentence\.";

fn fits(text: &str) -> bool {
    let Some((words, rest)) = text.split_once(": ") else { return false };
    let Some((digits, end)) = rest.split_once(' ') else { return false };
    let pairs = words.as_bytes().chunks(2).all(|pair| pair == b"ab" || pair == b"cd");
    words.len() == 6
        && pairs
        && (2..=4).contains(&digits.len())
        && digits.bytes().all(|b| b.is_ascii_digit())
        && end == "is a number of some length, in a sentence."
}

#[test]
fn a_guided_text_fits_and_depends_on_nothing_beside_it() {
    let model = open();
    let prompt: Vec<u32> = (3..30).collect();
    let guide = || Some(model.guide(&GrammarSpec::Regex(REGEX.into()), None).expect("a regex"));
    let mut alone = Vec::new();
    for seed in 0..4 {
        let mut engine = engine(&model, 1, Speculate::Never);
        let id = engine.add_guided(&prompt, params(seed), &[], guide()).expect("a prompt");
        let (events, steps) = run(&mut engine);
        let text = text(&model, &events[&id]);
        assert!(fits(&text), "{text:?}");
        assert_eq!(events[&id].last().expect("some").finish, Some(Finish::Complete));
        assert!(steps < events[&id].len(), "forced tokens take no steps of their own: {steps} steps");
        assert_eq!(events[&id].last().expect("some").counts.generated, events[&id].len());
        alone.push(text);
    }
    for speculate in [Speculate::Never, Speculate::Always] {
        let mut engine = engine(&model, 3, speculate);
        let free = engine.add(&prompt, params(9), &[]).expect("a prompt");
        let ids: Vec<_> =
            (0..4).map(|seed| engine.add_guided(&prompt, params(seed), &[], guide()).expect("a prompt")).collect();
        let (events, _) = run(&mut engine);
        assert_eq!(events[&free].len(), 80);
        for (id, alone) in ids.iter().zip(&alone) {
            assert_eq!(&text(&model, &events[id]), alone, "{speculate:?}");
        }
    }
}

#[test]
fn a_text_that_can_only_be_one_needs_no_step() {
    let model = open();
    let mut engine = engine(&model, 1, Speculate::Never);
    let guide = model.guide(&GrammarSpec::Regex("only this".into()), None).expect("a regex");
    let id = engine.add_guided(&[5, 6, 7], params(1), &[], Some(guide.clone())).expect("a prompt");
    let (events, _) = run(&mut engine);
    assert_eq!(text(&model, &events[&id]), "only this");
    assert_eq!(engine.totals().steps, 0);
    // With log-probabilities each token is computed.
    let logged = SamplingParams { logprobs: Some(1), ..params(1) };
    let id = engine.add_guided(&[5, 6, 7], logged, &[], Some(guide.clone())).expect("a prompt");
    let (events, _) = run(&mut engine);
    assert_eq!(text(&model, &events[&id]), "only this");
    assert!(events[&id].iter().all(|e| e.token.as_ref().is_some_and(|t| t.logprob.is_some())));
    // Not beyond the tokens that were asked for.
    let short = SamplingParams { max_tokens: Some(2), ..params(1) };
    let id = engine.add_guided(&[5, 6, 7], short, &[], Some(guide.clone())).expect("a prompt");
    let (events, _) = run(&mut engine);
    assert_eq!((events[&id].len(), events[&id][1].finish.clone()), (2, Some(Finish::Length)));
    // A cancelled one says nothing more.
    let id = engine.add_guided(&[5, 6, 7], params(1), &[], Some(guide)).expect("a prompt");
    engine.cancel(id);
    assert!(engine.is_idle() && engine.step().expect("a step").is_empty());
}

#[test]
fn a_text_may_end_where_the_grammar_lets_it() {
    let model = open();
    let end = *model.stop_ids().first().expect("a token that ends texts");
    let bias = vec![(end, 100.0)];
    let mut engine = engine(&model, 1, Speculate::Never);
    let guide = model.guide(&GrammarSpec::Regex("[ab]+".into()), None).expect("a regex");
    let ending = SamplingParams { logit_bias: bias, ..params(3) };
    let id = engine.add_guided(&[5, 6, 7], ending, model.stop_ids(), Some(guide)).expect("a prompt");
    let (events, _) = run(&mut engine);
    let last = events[&id].last().expect("some");
    assert_eq!((last.token.as_ref().map(|t| t.id), last.finish.clone()), (Some(end), Some(Finish::Stop)));
    assert!(text(&model, &events[&id]).bytes().all(|b| b == b'a' || b == b'b'));
}

/// Lets everything come, and panics where it is told to.
#[derive(Clone)]
struct Faulty {
    left: usize,
}

impl Constraint for Faulty {
    fn mask(&mut self, allowed: &mut [u32]) -> Result<(), GrammarError> {
        self.left = self.left.checked_sub(1).expect("a fault");
        allowed.fill(u32::MAX);
        Ok(())
    }

    fn accept(&mut self, _: u32) -> Result<(), GrammarError> {
        Ok(())
    }

    fn forced(&mut self) -> Vec<u32> {
        Vec::new()
    }

    fn may_end(&mut self) -> bool {
        true
    }

    fn is_finished(&self) -> bool {
        false
    }

    fn rollback(&mut self, _: usize) -> Result<(), GrammarError> {
        Ok(())
    }

    fn boxed(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}

#[test]
fn a_grammar_that_panics_ends_its_own_text_and_no_other() {
    let model = open();
    let prompt = [5, 6, 7];
    let mut alone = engine(&model, 1, Speculate::Never);
    let id = alone.add(&prompt, params(1), &[]).expect("a prompt");
    let right = text(&model, &run(&mut alone).0[&id]);
    for speculate in [Speculate::Never, Speculate::Always] {
        let mut engine = engine(&model, 3, speculate);
        let first = engine.add(&prompt, params(1), &[]).expect("a prompt");
        let guide = Guide::new(Box::new(Faulty { left: 4 }));
        let faulty = engine.add_guided(&prompt, params(2), &[], Some(guide)).expect("a prompt");
        let last = engine.add(&prompt, params(1), &[]).expect("a prompt");
        let (events, _) = run(&mut engine);
        let end = events[&faulty].last().expect("some").finish.clone();
        assert_eq!(end, Some(Finish::Failed("an internal error: a fault".into())));
        assert_eq!(events[&faulty].len(), 5, "what was chosen before has come");
        assert_eq!((text(&model, &events[&first]), text(&model, &events[&last])), (right.clone(), right.clone()));
        assert_eq!(engine.totals().pages_used, 0);
    }
}
