//! Embeddings, reranking and tokens against a live server.

use crate::common::{Live, golden, model, options, question, with};
use serde_json::{Value, json};
use std::fs;

const EMBED: &str = "/v1/embeddings";

/// A cross-encoder of this repository with the first words of another model.
fn reranker() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(golden("cross_encoder_bert").join(file), dir.path().join(file)).unwrap();
    }
    let vocab = fs::read_to_string(golden("st_bert_mean/vocab.txt")).unwrap();
    let vocab: Vec<&str> = vocab.lines().take(320).collect(); // as many as the model has
    fs::write(dir.path().join("vocab.txt"), vocab.join("\n")).unwrap();
    fs::write(dir.path().join("tokenizer_config.json"), r#"{"tokenizer_class": "BertTokenizer"}"#).unwrap();
    dir
}

fn embedder() -> Live {
    Live::start(options(vec![model("small", &golden("st_bert_mean"))]))
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect()
}

/// What a client makes of base64.
fn decoded(value: &Value) -> Vec<f32> {
    use base64::Engine as _;
    let bytes = base64::prelude::BASE64_STANDARD.decode(value.as_str().unwrap()).unwrap();
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn base64_has_the_same_bits_as_floats_and_other_formats_are_refused() {
    let live = embedder();
    let body = json!({"input": ["hello world", "cats"], "model": "small"});
    let plain = live.ok(EMBED, &body);
    let packed = live.ok(EMBED, &with(body.clone(), json!({"encoding_format": "base64"})));
    for index in 0..2 {
        let (plain, packed) = (&plain["data"][index], &packed["data"][index]);
        let (a, b) = (floats(&plain["embedding"]), decoded(&packed["embedding"]));
        assert_eq!(
            a.iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
            b.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        );
        assert_eq!((&plain["index"], &plain["object"]), (&index.into(), &"embedding".into()));
    }
    assert_eq!(plain["usage"]["prompt_tokens"], plain["usage"]["total_tokens"]);
    let (status, error) = live.error(EMBED, &with(body, json!({"encoding_format": "md5"})));
    assert_eq!((status, &error["param"]), (400, &"encoding_format".into()));
}

#[test]
fn token_ids_are_texts_that_were_encoded_already() {
    let live = embedder();
    let ids = live.ok("/tokenize", &json!({"content": "hello world", "add_special": true}))["tokens"].clone();
    let text = live.ok(EMBED, &json!({"input": "hello world"}));
    let tokens = live.ok(EMBED, &json!({"input": ids}));
    assert_eq!(text["data"], tokens["data"]);
    let lists = live.ok(EMBED, &json!({"input": [ids, [5, 6]]}));
    assert_eq!(lists["data"][0]["embedding"], text["data"][0]["embedding"]);
    assert_eq!(lists["data"].as_array().unwrap().len(), 2);
    let (status, error) = live.error(EMBED, &json!({"input": [4_000_000]}));
    assert_eq!((status, &error["param"]), (400, &"input".into()));
}

#[test]
fn dimensions_cut_and_too_many_are_refused() {
    let live = embedder();
    let whole = live.ok(EMBED, &json!({"input": "hello"}));
    let size = whole["data"][0]["embedding"].as_array().unwrap().len();
    let cut = live.ok(EMBED, &json!({"input": "hello", "dimensions": 4}));
    assert_eq!(cut["data"][0]["embedding"].as_array().unwrap().len(), 4);
    let (status, error) = live.error(EMBED, &json!({"input": "hello", "dimensions": size + 1}));
    assert_eq!((status, &error["param"]), (400, &"dimensions".into()));
}

#[test]
fn a_text_longer_than_the_window_is_refused_with_numbers_or_cut_with_a_flag() {
    let live = embedder();
    let long = "hello ".repeat(2000);
    let (status, error) = live.error(EMBED, &json!({"input": ["hi", long]}));
    let message = error["message"].as_str().unwrap();
    assert_eq!((status, &error["param"], &error["code"]), (400, &"input[1]".into(), &"context_length_exceeded".into()));
    assert!(message.starts_with("text 1 has 6002 tokens, but the window is 24"), "{message}");
    let cut = live.ok(EMBED, &json!({"input": ["hi", long], "truncate": true}));
    assert_eq!((cut["data"][0].get("truncated"), &cut["data"][1]["truncated"]), (None, &true.into()));
}

#[test]
fn an_empty_text_has_the_vector_of_the_special_tokens_and_no_text_is_refused() {
    let live = embedder();
    let empty = live.ok(EMBED, &json!({"input": ""}));
    assert!(floats(&empty["data"][0]["embedding"]).iter().all(|x| x.is_finite()));
    assert_eq!(empty["usage"]["prompt_tokens"], 2);
    for body in [json!({"input": []}), json!({"input": 5}), json!({}), json!({"input": [[]]})] {
        let (status, error) = live.error(EMBED, &body);
        assert_eq!(status, 400, "{error}");
        assert!(error["param"].as_str().unwrap().starts_with("input"), "{error}");
    }
    assert_eq!(live.error(EMBED, &json!({"input": "a", "prompt_name": "x"})).1["param"], "prompt_name");
}

#[test]
fn passages_are_ranked_best_first_by_a_cross_encoder_or_by_cosine() {
    let dir = reranker();
    let live = Live::start(options(vec![model("ranks", dir.path()), model("small", &golden("st_bert_mean"))]));
    let body = json!({"query": "hello", "documents": ["world", "hello", {"text": "cats and dogs"}]});
    let all = live.ok("/v1/rerank", &with(body.clone(), json!({"return_documents": true})));
    assert_eq!((&all["model"], &all["method"]), (&"ranks".into(), &"cross-encoder".into()));
    let results = all["results"].as_array().unwrap();
    assert!(results.windows(2).all(|w| w[0]["relevance_score"].as_f64() >= w[1]["relevance_score"].as_f64()));
    let mut places: Vec<u64> = results.iter().map(|r| r["index"].as_u64().unwrap()).collect();
    places.sort_unstable();
    assert_eq!(places, [0, 1, 2]);
    let of = results.iter().find(|r| r["index"] == 2).unwrap();
    assert_eq!(of["document"]["text"], "cats and dogs");
    let best = live.ok("/v1/rerank", &with(body.clone(), json!({"model": "small", "top_n": 1})));
    assert_eq!((&best["method"], &best["results"][0]["index"]), (&"cosine".into(), &1.into()));
    assert!((best["results"][0]["relevance_score"].as_f64().unwrap() - 1.0).abs() < 1e-5);
    assert_eq!(best["results"].as_array().unwrap().len(), 1);
    for (change, param) in [
        (json!({"top_n": 0}), "top_n"),
        (json!({"documents": []}), "documents"),
        (json!({"documents": [1]}), "documents[0]"),
        (json!({"max_chunks_per_doc": 3}), "max_chunks_per_doc"),
    ] {
        let (status, error) = live.error("/v1/rerank", &with(body.clone(), change));
        assert_eq!((status, &error["param"]), (400, &param.into()));
    }
}

#[test]
fn a_model_of_another_kind_is_refused_by_name() {
    let live = Live::start(options(vec![model("small", &golden("st_bert_mean"))]));
    let (status, error) = live.error("/v1/chat/completions", &question("hi"));
    assert_eq!((status, &error["code"]), (404, &"model_not_found".into()));
    let (status, error) = live.error("/v1/chat/completions", &with(question("hi"), json!({"model": "small"})));
    assert_eq!((status, &error["param"]), (400, &"model".into()));
    assert!(error["message"].as_str().unwrap().starts_with("small is an embedder"), "{error}");
}

#[test]
fn texts_become_tokens_and_texts_again() {
    let live = Live::tiny();
    let tokens = live.ok("/tokenize", &json!({"content": "Hello wörld 日本"}));
    assert_eq!(tokens["tokens"].as_array().unwrap().len() as u64, tokens["count"].as_u64().unwrap());
    let text = live.ok("/detokenize", &json!({"tokens": tokens["tokens"]}));
    assert_eq!(text["content"], "Hello wörld 日本");
    let pieces = live.ok("/tokenize", &json!({"content": "Hello", "with_pieces": true}));
    let joined: String = pieces["tokens"].as_array().unwrap().iter().map(|t| t["piece"].as_str().unwrap()).collect();
    assert_eq!(joined, "Hello");
    assert_eq!(live.error("/detokenize", &json!({"tokens": [9_999_999]})).1["param"], "tokens");
    let body = json!({"messages": [{"role": "user", "content": "Hi"}]});
    let prompt = live.ok("/apply-template", &body);
    assert_eq!(prompt["prompt"], "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}
