//! What sequences begin with alike is computed once, and changes nothing: not a bit at precision exact.

mod common;

use common::{KINDS, Tiny, counts, exact, greedy, long, run, tiny, trace};
use lattice_inference::sampling::SamplingParams;
use lattice_inference::{Engine, EngineOptions, SequenceId, Speculate};
use ops::KvFormat;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

fn add(engine: &mut Engine, prompt: &[u32], tokens: usize) -> SequenceId {
    engine.add(prompt, greedy(tokens), &[]).expect("a prompt")
}

#[test]
fn a_shared_beginning_gives_the_bits_of_an_engine_that_shares_nothing() {
    for model in KINDS.map(tiny) {
        let base = model.ids(55, 1);
        let branch = |at: usize, seed| [&base[..at], &model.ids(12, seed)].concat();
        // The same, longer, branches in the middle of a page, at its border, before and behind it; and nothing alike.
        let mut prompts = vec![base.clone(), base.clone(), branch(55, 2), branch(40, 3), branch(48, 4), branch(47, 5)];
        prompts.extend([branch(49, 6), branch(1, 7), branch(40, 3), model.ids(30, 8), base[..32].to_vec()]);
        let alone: Vec<_> = prompts.iter().map(|prompt| model.alone(prompt, &greedy(20))).collect();
        for parallel in [1, 3, 8] {
            for step_tokens in [9, 512] {
                let mut engine = model.engine(EngineOptions {
                    parallel,
                    step_tokens,
                    pages: Some(100),
                    snapshots: Some(100),
                    ..exact()
                });
                for round in 0..2 {
                    let ids: Vec<_> = prompts.iter().map(|prompt| add(&mut engine, prompt, 20)).collect();
                    let events = run(&mut engine);
                    for (i, (id, alone)) in ids.iter().zip(&alone).enumerate() {
                        let at = format!("{} prompt {i} round {round}, {parallel} by {step_tokens}", model.name);
                        assert_eq!(&trace(&events[id]), alone, "{at}");
                        let counts = counts(&events[id]);
                        if round == 1 {
                            assert!(counts.cached >= prompts[i].len() - 2, "{at}: {counts:?}");
                        }
                    }
                }
                let totals = engine.totals();
                assert_eq!((totals.pages_used, totals.running, totals.waiting), (0, 0, 0));
                assert!(totals.hits >= 15 && totals.cached < totals.prompt, "{} {totals:?}", model.name);
            }
        }
    }
}

#[test]
fn a_shared_beginning_changes_nothing_however_keys_and_values_are_stored() {
    for model in ["qwen3_biases", "qwen3_5_hybrid"].map(tiny) {
        for kv in [KvFormat::F16, KvFormat::Q8_0] {
            let prompts = [model.ids(55, 1), [&model.ids(40, 1)[..], &model.ids(9, 2)].concat(), model.ids(55, 1)];
            let results = |reuse| {
                let mut engine = model.engine(EngineOptions { reuse, kv, parallel: 2, ..exact() });
                let ids: Vec<_> = prompts.iter().map(|prompt| add(&mut engine, prompt, 30)).collect();
                let events = run(&mut engine);
                (ids.iter().map(|id| trace(&events[id])).collect::<Vec<_>>(), engine.totals().cached)
            };
            let (shared, alone) = (results(true), results(false));
            assert_eq!(shared.0, alone.0, "{} {kv:?}", model.name);
            assert!(shared.1 > 80 && alone.1 == 0);
        }
    }
}

#[test]
fn a_conversation_computes_only_what_is_new_in_each_turn() {
    for model in KINDS.map(tiny) {
        let mut engine = model.engine(EngineOptions { parallel: 1, ..exact() });
        let mut said = model.ids(30, 1);
        for turn in 0..3 {
            let id = add(&mut engine, &said, 10);
            let events = run(&mut engine);
            let new = if turn == 0 { 30 } else { 6 }; // the last token of the answer, and five of the question
            assert_eq!(counts(&events[&id]).cached, said.len() - new.min(said.len()), "{} turn {turn}", model.name);
            assert_eq!(trace(&events[&id]), model.alone(&said, &greedy(10)), "{} turn {turn}", model.name);
            said.extend(events[&id].iter().filter_map(|e| e.token.as_ref()).map(|t| t.id));
            said.extend(model.ids(5, turn + 20));
        }
    }
}

#[test]
fn a_branch_is_kept_where_it_left_for_the_next_that_leaves_there() {
    let model = tiny("qwen3_5_hybrid");
    let mut engine = model.engine(EngineOptions { parallel: 1, ..exact() });
    let base = model.ids(55, 1);
    let branch = |seed: usize| [&base[..43], &model.ids(12, seed)].concat();
    let prompts = [base.clone(), branch(2), branch(3)];
    let cached: Vec<usize> = prompts
        .iter()
        .map(|prompt| {
            let id = add(&mut engine, prompt, 4);
            let events = run(&mut engine);
            assert_eq!(trace(&events[&id]), model.alone(prompt, &greedy(4)));
            counts(&events[&id]).cached
        })
        .collect();
    assert_eq!(cached, [0, 32, 43], "a page border first, then the place itself");
}

#[test]
fn a_long_shared_prefix_makes_the_second_prompt_twenty_times_shorter() {
    for name in ["qwen3_biases", "qwen3_5_hybrid", "gemma3_small"] {
        let model = long(name, 4096);
        let prefix = model.ids(2000, 1);
        let prompt = |seed: usize| [&prefix[..], &model.ids(60, seed)].concat();
        let options = EngineOptions { page_tokens: 256, parallel: 2, snapshots: None, ..exact() };
        let mut engine = model.engine(options);
        let computed = |engine: &mut Engine, prompt: &[u32]| {
            let before = engine.totals().computed;
            let id = add(engine, prompt, 1);
            let events = run(engine);
            assert_eq!(trace(&events[&id]), model.alone(prompt, &greedy(1)), "{name}");
            (engine.totals().computed - before) as usize
        };
        assert_eq!(computed(&mut engine, &prompt(1)), 2060);
        let second = computed(&mut engine, &prompt(2));
        assert!(second * 20 <= 2060, "{name}: {second}");
        assert_eq!(computed(&mut engine, &prompt(3)), 60, "{name}");
    }
}

#[test]
fn several_completions_of_a_prompt_share_its_pages() {
    for model in KINDS.map(tiny) {
        let prompt = model.ids(70, 1);
        let params =
            |seed| SamplingParams { seed: Some(seed), max_tokens: Some(8), logprobs: Some(2), ..Default::default() };
        let mut engine = model.engine(EngineOptions { speculate: Speculate::Never, ..exact() });
        let mut ids = Vec::new();
        for seed in 0..5 {
            ids.push(engine.add(&prompt, params(seed), &[]).expect("a prompt"));
        }
        engine.step().expect("a step");
        let events = engine.step().expect("a step");
        assert_eq!(events.len(), 5, "{}: all go on from the first one's prompt", model.name);
        // Four whole pages, and one of its own for each.
        assert_eq!(engine.totals().pages_used, 4 + 5, "{}", model.name);
        assert_eq!(engine.totals().computed, 70 + 5, "{}", model.name);
        let mut events: Vec<_> = events.into_iter().map(|event| (event.sequence, event)).collect();
        let mut rest = run(&mut engine);
        for (seed, id) in ids.iter().enumerate() {
            let mut own: Vec<_> = events.extract_if(.., |(other, _)| other == id).map(|(_, event)| event).collect();
            own.extend(rest.remove(id).expect("it ran"));
            let alone = model.alone(&prompt, &params(seed as u64));
            // The first one's first token came a step earlier.
            let skip = usize::from(seed == 0);
            assert_eq!(trace(&own).0, alone.0[skip..], "{} seed {seed}", model.name);
        }
    }
}

#[test]
fn a_cancelled_sequence_holds_nothing_wherever_it_was() {
    for model in KINDS.map(tiny) {
        for reuse in [false, true] {
            let options = EngineOptions { parallel: 2, step_tokens: 24, reuse, ..exact() };
            let mut engine = model.engine(options);
            let [first, second, third] = [1, 2, 3].map(|seed| add(&mut engine, &model.ids(60, seed), 20));
            engine.step().expect("a step");
            let state = |engine: &Engine| {
                let totals = engine.totals();
                (totals.running, totals.waiting, totals.pages_used > 0)
            };
            assert_eq!(state(&engine), (2, 1, true));
            assert_eq!(engine.cancel(third).map(|counts| counts.prompt), Some(60), "in the queue");
            assert_eq!(state(&engine), (2, 0, true));
            engine.cancel(second).expect("in the middle of its prompt");
            assert_eq!(state(&engine), (1, 0, true));
            while engine.step().expect("a step").is_empty() {}
            let counts = engine.cancel(first).expect("in the middle of its text");
            assert!(counts.generated > 0);
            assert_eq!(state(&engine), (0, 0, false), "{}", model.name);
            assert_eq!(engine.totals().pages_cached > 0, reuse);
            assert!(engine.is_idle() && engine.cancel(first).is_none());
        }
    }
}

#[test]
fn without_reuse_nothing_stays() {
    let model = tiny("qwen3_5_hybrid");
    let mut engine = model.engine(EngineOptions { reuse: false, ..exact() });
    for _ in 0..2 {
        let id = add(&mut engine, &model.ids(40, 1), 4);
        assert_eq!(counts(&run(&mut engine)[&id]).cached, 0);
        let totals = engine.totals();
        assert_eq!((totals.pages_used, totals.pages_cached, totals.snapshots, totals.hits), (0, 0, 0, 0));
    }
}

#[test]
fn what_was_used_longest_ago_goes_when_pages_run_out() {
    let model = tiny("qwen3_biases");
    // A context of six pages, and two more.
    let mut engine = model.engine(EngineOptions { context: Some(96), pages: Some(8), parallel: 1, ..exact() });
    let prompts: Vec<Vec<u32>> = (1..4).map(|seed| model.ids(40, seed)).collect();
    let mut cached = |which: usize| {
        let id = add(&mut engine, &prompts[which], 4);
        let counts = counts(&run(&mut engine)[&id]);
        (counts.cached, engine.totals().evictions)
    };
    assert_eq!(cached(0), (0, 0));
    assert_eq!(cached(1), (0, 0));
    assert_eq!(cached(0), (39, 0));
    assert_eq!(cached(2).0, 0, "the second one makes room");
    assert_eq!(cached(0).0, 39);
    assert!(cached(1).0 < 39);
    assert!(engine.totals().evictions > 0);
}

#[test]
fn a_younger_sequence_makes_room_and_is_computed_again() {
    for model in KINDS.map(tiny) {
        let prompts: Vec<Vec<u32>> = (1..5).map(|seed| model.ids(20, seed)).collect();
        let mut engine = model.engine(EngineOptions { context: Some(80), pages: Some(8), parallel: 4, ..exact() });
        let ids: Vec<_> = prompts.iter().map(|prompt| add(&mut engine, prompt, 50)).collect();
        let events = run(&mut engine);
        for (prompt, id) in prompts.iter().zip(&ids) {
            assert_eq!(trace(&events[id]), model.alone(prompt, &greedy(50)), "{}", model.name);
        }
        assert_eq!(counts(&events[&ids[0]]).preemptions, 0, "the oldest is left alone");
        assert!(engine.totals().preemptions > 0, "{}: {:?}", model.name, engine.totals());
        assert_eq!(engine.totals().pages_used, 0);
    }
}

#[test]
fn a_short_prompt_does_not_wait_for_a_long_one_nor_a_long_one_for_many_short_ones() {
    let model = long("qwen3_biases", 4096);
    let mut engine = model.engine(EngineOptions { step_tokens: 64, parallel: 4, ..exact() });
    let long = add(&mut engine, &model.ids(1600, 1), 1);
    let mut shorts = HashMap::new();
    let (mut steps, mut slowest) = (0, 0);
    'long: loop {
        while shorts.len() < 3 {
            shorts.insert(add(&mut engine, &model.ids(20, 100 + steps), 4), steps);
        }
        steps += 1;
        for event in engine.step().expect("a step") {
            if event.sequence == long {
                break 'long;
            }
            let since = shorts[&event.sequence];
            slowest = slowest.max(steps - since);
            event.finish.is_some().then(|| shorts.remove(&event.sequence));
        }
    }
    assert!(steps <= 1600 / 31 + 1, "half of each step is the long one's: {steps}");
    assert!(slowest <= 8, "{slowest} steps for a short one");
}

/// One thing that happens to an engine.
#[derive(Clone, Debug)]
enum Deed {
    /// A prompt: so many tokens of one of two texts, then so many others; and how many tokens it may be given.
    Add {
        text: usize,
        common: usize,
        own: usize,
        seed: usize,
        tokens: usize,
    },
    Cancel(usize),
    Step,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        3 => (0..2usize, 0..60usize, 1..25usize, 0..3usize, 0..20usize)
            .prop_map(|(text, common, own, seed, tokens)| Deed::Add { text, common, own, seed, tokens }),
        1 => (0..12usize).prop_map(Deed::Cancel),
        6 => Just(Deed::Step),
    ]
}

static MODELS: LazyLock<Vec<Tiny>> = LazyLock::new(|| KINDS.map(tiny).into());
type Known = HashMap<(usize, Vec<u32>, usize), common::Trace>;
static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

fn check(which: usize, deeds: &[Deed], options: EngineOptions) {
    let model = &MODELS[which];
    let mut engine = model.engine(options);
    let (mut asked, mut events) = (Vec::new(), HashMap::<SequenceId, Vec<_>>::new());
    let mut step = |engine: &mut Engine| {
        for event in engine.step().expect("a step") {
            events.entry(event.sequence).or_default().push(event);
        }
    };
    for deed in deeds {
        match *deed {
            Deed::Add { text, common, own, seed, tokens } => {
                let prompt = [&model.ids(60, text)[..common], &model.ids(own, seed + 5)].concat();
                asked.push((add(&mut engine, &prompt, tokens), prompt, tokens));
            }
            Deed::Cancel(index) if index < asked.len() => {
                engine.cancel(asked.remove(index).0);
            }
            Deed::Cancel(_) => {}
            Deed::Step => step(&mut engine),
        }
        let totals = engine.totals();
        assert!(totals.running > 0 || totals.pages_used == 0, "{totals:?}");
    }
    while !engine.is_idle() {
        step(&mut engine);
    }
    for (id, prompt, tokens) in asked {
        let mut known = KNOWN.lock().expect("no panics under this lock");
        let alone =
            known.entry((which, prompt.clone(), tokens)).or_insert_with(|| model.alone(&prompt, &greedy(tokens)));
        assert_eq!(&trace(&events[&id]), alone, "{} {id:?} {prompt:?}", model.name);
    }
    let totals = engine.totals();
    assert_eq!((totals.pages_used, totals.running, totals.waiting), (0, 0, 0));
    assert_eq!(totals.pages_free() + totals.pages_cached, totals.pages);
    // All places and slots are there again.
    let last: Vec<_> = (0..options.parallel).map(|i| add(&mut engine, &model.ids(3, 50 + i), 2)).collect();
    let events = run(&mut engine);
    assert!(last.iter().all(|id| trace(&events[id]).0.len() == 2));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_schedule_leaks_a_page_or_changes_what_a_sequence_gives(
        which in 0..KINDS.len(),
        deeds in prop::collection::vec(deed(), 1..40),
        parallel in 1..5usize,
        step_tokens in 1..40usize,
        pages in 7..16usize,
        snapshots in 0..6usize,
        reuse in prop::bool::weighted(0.9),
        speculate in prop::sample::select(vec![Speculate::Never, Speculate::Greedy, Speculate::Always]),
    ) {
        let options = EngineOptions {
            context: Some(105),
            parallel,
            step_tokens,
            pages: Some(pages),
            snapshots: Some(snapshots),
            reuse,
            speculate,
            ..exact()
        };
        check(which, &deeds, options);
    }
}
