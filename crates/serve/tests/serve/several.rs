//! Several models in one process: names, opening at the first request, closing, a memory budget.

use crate::common::{Live, TEMPLATE, golden, model, options, question, tiny, with};
use serde_json::json;
use std::time::{Duration, Instant};

const CHAT: &str = "/v1/chat/completions";

fn loaded(live: &Live) -> Vec<String> {
    let list = live.get("/v1/models").json();
    let open = list["data"].as_array().unwrap().iter().filter(|m| m["loaded"] == true);
    open.map(|m| m["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn models_open_at_their_first_request_once_for_all_that_ask() {
    let dir = tiny(TEMPLATE);
    let mut tiny = model("tiny", dir.path());
    tiny.aliases = vec!["gpt-4o-mini".into()];
    let mut options = options(vec![tiny, model("other", dir.path()), model("small", &golden("st_bert_mean"))]);
    options.lazy = true;
    let live = Live::start(options);
    assert!(loaded(&live).is_empty());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| live.ok(CHAT, &with(question("Hello"), json!({"model": "gpt-4o-mini"}))));
        }
    });
    assert_eq!(loaded(&live), ["tiny"]);
    live.ok("/v1/embeddings", &json!({"input": "a"}));
    assert_eq!(live.ok(CHAT, &with(question("Hello"), json!({"model": "other"})))["model"], "other");
    assert_eq!(loaded(&live), ["tiny", "other", "small"]);
    assert_eq!(live.get("/v1/models/gpt-4o-mini").json()["id"], "tiny");
}

#[test]
fn a_model_that_nobody_asks_for_is_closed_and_opens_again() {
    let dir = tiny(TEMPLATE);
    let mut options = options(vec![model("tiny", dir.path())]);
    options.idle = Some(Duration::from_millis(300));
    let live = Live::start(options);
    let start = Instant::now();
    while !loaded(&live).is_empty() {
        assert!(start.elapsed() < Duration::from_secs(10), "it stays open");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(live.metric("lattice_model_loaded"), 0.0);
    live.ok(CHAT, &question("Hello"));
}

#[test]
fn a_memory_budget_closes_the_model_that_was_not_used_for_longest() {
    let dir = tiny(TEMPLATE);
    let names = ["a", "b", "c"];
    let mut options = options(names.iter().map(|name| model(name, dir.path())).collect());
    options.lazy = true;
    options.engine.context = Some(64);
    let probe = Live::start(options.clone());
    let ask = |live: &Live, name: &str| live.ok(CHAT, &with(question("Hi"), json!({"model": name, "max_tokens": 2})));
    ask(&probe, "a");
    let bytes = probe.get("/v1/models/a").json()["bytes"].as_u64().unwrap();
    drop(probe);
    options.memory = Some(bytes * 5 / 2);
    let live = Live::start(options);
    ask(&live, "a");
    ask(&live, "b");
    ask(&live, "a");
    ask(&live, "c");
    assert_eq!(loaded(&live), ["a", "c"]);
    ask(&live, "b");
    assert_eq!(loaded(&live), ["b", "c"]);
}

#[test]
fn a_model_that_does_not_fit_the_budget_beside_those_in_use_is_a_503() {
    let dir = tiny(TEMPLATE);
    let mut options = options(vec![model("a", dir.path())]);
    options.lazy = true;
    options.memory = Some(1000);
    let live = Live::start(options);
    let answer = live.post(CHAT, &question("Hi"));
    assert_eq!((answer.status, answer.json()["error"]["code"].clone()), (503, "out_of_memory".into()));
    assert!(answer.headers.contains_key("retry-after"));
}
