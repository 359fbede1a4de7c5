//! Chat completions and completions against a live server.

use crate::common::{Live, options, question, smollm2, with};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

fn content(answer: &Value) -> String {
    answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

/// The text of a choice of a stream.
fn streamed(chunks: &[Value], choice: usize) -> String {
    let of = |chunk: &&Value| chunk["choices"][0]["index"] == choice;
    chunks.iter().filter(of).filter_map(|c| c["choices"][0]["delta"]["content"].as_str()).collect()
}

#[test]
fn an_answer_has_openai_s_form_and_streams_the_same_text() {
    let live = Live::tiny();
    let whole = live.ok(CHAT, &question("Hello"));
    assert_eq!((&whole["object"], &whole["model"]), (&"chat.completion".into(), &"tiny".into()));
    assert!(
        whole["id"].as_str().unwrap().starts_with("chatcmpl-") && whole["created"].as_u64().unwrap() > 1_700_000_000
    );
    let choice = &whole["choices"][0];
    assert_eq!(
        (&choice["index"], &choice["message"]["role"], &choice["finish_reason"]),
        (&0.into(), &"assistant".into(), &"length".into())
    );
    let (prompt, made) =
        (whole["usage"]["prompt_tokens"].as_u64().unwrap(), whole["usage"]["completion_tokens"].as_u64().unwrap());
    assert_eq!((made, &whole["usage"]["total_tokens"]), (12, &(prompt + made).into()));

    let chunks = live.stream(CHAT, &with(question("Hello"), json!({"stream_options": {"include_usage": true}})));
    assert_eq!(streamed(&chunks, 0), content(&whole));
    let (last, rest) = chunks.split_last().unwrap();
    assert_eq!((&last["choices"], &last["usage"]["total_tokens"]), (&json!([]), &(prompt + made).into()));
    // All but the last token of the prompt was there already.
    assert_eq!(last["usage"]["prompt_tokens_details"]["cached_tokens"], prompt - 1);
    assert!(
        rest.iter().all(|c| c["usage"].is_null() && c["object"] == "chat.completion.chunk" && c["id"] == last["id"])
    );
    assert_eq!(rest[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(rest.last().unwrap()["choices"][0]["finish_reason"], "length");
    let plain = live.stream(CHAT, &question("Hello"));
    assert!(plain.iter().all(|c| c.get("usage").is_none() && !c["choices"].as_array().unwrap().is_empty()));
}

#[test]
fn several_answers_have_their_own_index_and_a_seed_repeats_them() {
    let live = Live::tiny();
    let body = with(question("Hello"), json!({"n": 3, "temperature": 1.5, "seed": 7}));
    let texts = |answer: &Value| -> Vec<String> {
        let choices = answer["choices"].as_array().unwrap();
        choices.iter().map(|c| c["message"]["content"].as_str().unwrap().to_owned()).collect()
    };
    let first = live.ok(CHAT, &body);
    let all = texts(&first);
    assert_eq!(first["usage"]["completion_tokens"], 36);
    assert_eq!(all, texts(&live.ok(CHAT, &body)));
    assert!(all[0] != all[1] && all[1] != all[2]);
    let chunks = live.stream(CHAT, &body);
    assert_eq!((0..3).map(|choice| streamed(&chunks, choice)).collect::<Vec<_>>(), all);
    assert_ne!(all, texts(&live.ok(CHAT, &with(body, json!({"seed": 8})))));
}

#[test]
fn a_stop_string_cuts_the_text_streamed_as_unstreamed() {
    let live = Live::tiny();
    let whole = content(&live.ok(CHAT, &question("Hello")));
    let stop: String = whole.chars().skip(whole.chars().count() / 2).take(2).collect();
    let cut = &whole[..whole.find(&stop).unwrap()];
    for stops in [json!(stop), json!(["not in it", stop]), json!([stop, "not in it"])] {
        let body = with(question("Hello"), json!({"stop": stops}));
        let got = live.ok(CHAT, &body);
        assert_eq!((content(&got).as_str(), &got["choices"][0]["finish_reason"]), (cut, &"stop".into()));
        assert_eq!(streamed(&live.stream(CHAT, &body), 0), cut);
    }
    // What only begins like the stop is held back, and comes at the end.
    let last = whole.chars().last().unwrap();
    let body = with(question("Hello"), json!({"stop": format!("{last}never")}));
    assert_eq!(content(&live.ok(CHAT, &body)), whole);
    assert_eq!(streamed(&live.stream(CHAT, &body), 0), whole);
}

#[test]
fn stop_strings_end_a_real_model_s_text_where_it_says_them() {
    let Some(model) = smollm2() else { return };
    let live = Live::start(options(vec![model]));
    let line = "The quick brown fox\n";
    let body = json!({"prompt": line.repeat(6), "max_tokens": 8, "temperature": 0});
    let whole = live.ok(TEXT, &body)["choices"][0]["text"].as_str().unwrap().to_owned();
    assert!(whole.starts_with(line), "{whole}");
    let body = with(body, json!({"stop": ["fox\n", "own fox"]}));
    let got = live.ok(TEXT, &body);
    assert_eq!(
        (&got["choices"][0]["text"], &got["choices"][0]["finish_reason"]),
        (&"The quick br".into(), &"stop".into())
    );
    let chunks = live.stream(TEXT, &body);
    let text: String = chunks.iter().filter_map(|c| c["choices"][0]["text"].as_str()).collect();
    assert_eq!(text, "The quick br");
    let sky = live.ok(CHAT, &with(question("Why is the sky blue?"), json!({"max_tokens": 24})));
    assert!(content(&sky).to_lowercase().contains("light"), "{sky}");
    let hub = live.ok(CHAT, &with(question("Hi"), json!({"model": "HuggingFaceTB/SmolLM2-135M-Instruct"})));
    assert_eq!(hub["model"], "smollm2-135m-instruct");
}

#[test]
fn log_probabilities_are_natural_logs_with_token_and_bytes() {
    let live = Live::tiny();
    let body = with(question("Hello"), json!({"logprobs": true, "top_logprobs": 3}));
    let whole = live.ok(CHAT, &body);
    let tokens = whole["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(tokens.len(), 12);
    for token in tokens {
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        assert!(top.windows(2).all(|w| w[0]["logprob"].as_f64() >= w[1]["logprob"].as_f64()));
        assert_eq!((&token["token"], &token["logprob"]), (&top[0]["token"], &top[0]["logprob"]), "greedy");
        let share: f64 = top.iter().map(|t| t["logprob"].as_f64().unwrap().exp()).sum();
        assert!(share <= 1.0 + 1e-4 && token["logprob"].as_f64().unwrap() <= 0.0);
    }
    let bytes: Vec<u8> =
        tokens.iter().flat_map(|t| t["bytes"].as_array().unwrap()).map(|b| b.as_u64().unwrap() as u8).collect();
    assert_eq!(String::from_utf8_lossy(&bytes), content(&whole));
    let chunks = live.stream(CHAT, &body);
    let all: Vec<&Value> =
        chunks.iter().filter_map(|c| c["choices"][0]["logprobs"]["content"].as_array()).flatten().collect();
    assert_eq!(all, tokens.iter().collect::<Vec<_>>(), "streamed as unstreamed");
    assert!(live.ok(CHAT, &question("Hello"))["choices"][0]["logprobs"].is_null());

    let text = live.ok(TEXT, &json!({"prompt": "Hello", "max_tokens": 5, "logprobs": 2, "temperature": 0}));
    let logprobs = &text["choices"][0]["logprobs"];
    assert_eq!(logprobs["tokens"].as_array().unwrap().len(), 5);
    assert_eq!(
        (logprobs["text_offset"][0].clone(), logprobs["top_logprobs"][0].as_object().unwrap().len()),
        (0.into(), 2)
    );
    assert!(logprobs["token_logprobs"][4].as_f64().unwrap() <= 0.0);
}

#[test]
fn completions_take_texts_and_tokens_and_echo_them() {
    let live = Live::tiny();
    let ask = |body: Value| live.ok(TEXT, &with(json!({"temperature": 0, "max_tokens": 6}), body));
    let one = ask(json!({"prompt": "Hello world"}));
    assert_eq!((&one["object"], &one["usage"]["completion_tokens"]), (&"text_completion".into(), &6.into()));
    let text = one["choices"][0]["text"].as_str().unwrap().to_owned();
    let two = ask(json!({"prompt": ["Hello world", "The"], "n": 2}));
    let texts: Vec<&str> = two["choices"].as_array().unwrap().iter().map(|c| c["text"].as_str().unwrap()).collect();
    assert_eq!((texts.len(), texts[0], texts[1]), (4, text.as_str(), text.as_str()));
    assert_eq!(texts[2], texts[3]);
    let echo = ask(json!({"prompt": "Hello world", "echo": true}));
    assert_eq!(echo["choices"][0]["text"], format!("Hello world{text}"));
    assert_eq!(ask(json!({"prompt": [5, 6, 7]}))["usage"]["prompt_tokens"], 3);
    assert_eq!(ask(json!({"prompt": [[5, 6, 7], [8]]}))["choices"].as_array().unwrap().len(), 2);
    let silent = ask(json!({"prompt": "Hello", "max_tokens": 0, "echo": true}));
    assert_eq!((&silent["choices"][0]["text"], &silent["usage"]["completion_tokens"]), (&"Hello".into(), &0.into()));
}

#[test]
fn whatever_is_wrong_or_not_supported_is_a_400_that_names_the_field() {
    let live = Live::tiny();
    let mut wrong = Vec::new();
    for (change, param) in [
        (json!({"frobnicate": 1}), "frobnicate"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": "hi"}), "messages"),
        (json!({"messages": [{"role": "wizard", "content": "hi"}]}), "messages[0].role"),
        (json!({"messages": [{"role": "user"}]}), "messages[0].content"),
        (json!({"messages": [{"role": "user", "content": "a", "mood": "blue"}]}), "messages[0].mood"),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
            "messages[0].content",
        ),
        (json!({"temperature": -1}), "temperature"),
        (json!({"temperature": "warm"}), "temperature"),
        (json!({"top_p": 1.5}), "top_p"),
        (json!({"presence_penalty": 3}), "presence_penalty"),
        (json!({"n": 0}), "n"),
        (json!({"n": 1000}), "n"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"max_tokens": -1}), "max_tokens"),
        (json!({"top_logprobs": 2}), "top_logprobs"),
        (json!({"logprobs": true, "top_logprobs": 21}), "top_logprobs"),
        (json!({"logit_bias": {"the": 1}}), "logit_bias"),
        (json!({"logit_bias": {"4000000": 1}}), "logit_bias"),
        (json!({"logit_bias": {"1": 101}}), "logit_bias"),
        (json!({"stop": [""]}), "stop"),
        (json!({"stop": 7}), "stop"),
        (json!({"stream_options": {"include_usage": true}}), "stream_options"),
        (json!({"store": true}), "store"),
        (json!({"audio": {"voice": "x"}}), "audio"),
        (json!({"prediction": {}}), "prediction"),
        (json!({"response_format": "json"}), "response_format"),
        (json!({"tools": {}}), "tools"),
        (json!({"seed": 1.5}), "seed"),
        (json!({"stop_token_ids": [-1]}), "stop_token_ids[0]"),
        (json!({"service_tier": "flex"}), "service_tier"),
        (json!({"modalities": ["audio"]}), "modalities[0]"),
    ] {
        let answer = live.post(CHAT, &with(question("Hello"), change.clone()));
        let error = answer.json()["error"].clone();
        if (answer.status, error["param"].as_str(), error["type"].as_str())
            != (400, Some(param), Some("invalid_request_error"))
        {
            wrong.push(format!("{change}: {} {error}", answer.status));
        }
        // Nobody who asks knows the words of the language that this is written in.
        let message = error["message"].as_str().unwrap();
        if ["usize", "u32", "i64", "f64", "enum", "struct", "sequence", "a map"].iter().any(|w| message.contains(w)) {
            wrong.push(format!("{change}: {message}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let (status, error) = live.error(CHAT, &with(question("Hello"), json!({"model": "gpt-9"})));
    assert_eq!((status, &error["code"], &error["param"]), (404, &"model_not_found".into(), &"model".into()));
    for field in ["suffix", "best_of", "echo"] {
        let body = json!({"prompt": "a", "suffix": "x"});
        let body = if field == "suffix" { body } else { json!({"prompt": "a", "best_of": 3}) };
        let body = if field == "echo" { json!({"prompt": "a", "echo": true, "logprobs": 1}) } else { body };
        let (status, error) = live.error(TEXT, &body);
        assert_eq!((status, &error["param"]), (400, &field.into()));
    }
    // What is null is as if it were not there.
    live.ok(CHAT, &with(question("Hello"), json!({"audio": null, "stop": null, "top_p": null, "whatever": null})));
}

#[test]
fn a_prompt_longer_than_the_window_is_an_error_with_both_numbers() {
    let live = Live::tiny();
    let (status, error) = live.error(CHAT, &question(&"word ".repeat(600)));
    let message = error["message"].as_str().unwrap();
    assert_eq!((status, &error["code"], &error["param"]), (400, &"context_length_exceeded".into(), &"messages".into()));
    assert!(message.starts_with("the prompt has ") && message.contains("but the context is 512"), "{message}");
    assert!(!message.contains("--"), "a client has no command line: {message}");
    let (_, error) = live.error(CHAT, &question(&"word ".repeat(200_000)));
    assert!(error["message"].as_str().unwrap().starts_with("the prompt has at least "), "{error}");
    // Without a limit, a full context ends the text.
    let body = json!({"messages": [{"role": "user", "content": "a"}], "temperature": 0, "ignore_eos": true});
    let full = live.ok(CHAT, &body);
    assert_eq!((&full["usage"]["total_tokens"], &full["choices"][0]["finish_reason"]), (&512.into(), &"length".into()));
}

#[test]
fn models_are_listed_and_found_by_name() {
    let live = Live::tiny();
    let list = live.get("/v1/models").json();
    assert_eq!(
        (&list["object"], &list["data"][0]["id"], &list["data"][0]["type"]),
        (&"list".into(), &"tiny".into(), &"chat".into())
    );
    assert_eq!(live.get("/v1/models/tiny").json()["object"], "model");
    assert_eq!(live.get("/v1/models/org/other").status, 404);
    let none = live.get("/v1/nothing");
    assert_eq!((none.status, none.json()["error"]["type"].clone()), (404, "invalid_request_error".into()));
    assert_eq!(live.get(CHAT).status, 405);
}
