//! Answers held to JSON Schemas and grammars, and tool calls that must come.

use crate::common::{Live, options, question, smollm2, with};
use inference::EngineOptions;
use ops::{Cpu, CpuOptions};
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};

const CHAT: &str = "/v1/chat/completions";

/// A server of the default language model, for all tests here: a model that never learnt JSON does not come to its end.
fn live() -> Option<&'static Live> {
    static LIVE: OnceLock<Option<Live>> = OnceLock::new();
    let start = || {
        let mut options = options(vec![smollm2()?]);
        options.ops = Arc::new(Cpu::new(&CpuOptions::default()).unwrap());
        options.engine = EngineOptions { context: Some(2048), parallel: 8, ..EngineOptions::default() };
        Some(Live::start(options))
    };
    LIVE.get_or_init(start).as_ref()
}

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

fn format(schema: Value) -> Value {
    json!({"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "strict": true, "schema": schema}}})
}

/// A schema whose answers are short, whatever the model would say.
fn colour() -> Value {
    json!({"type": "object", "properties": {"colour": {"enum": ["red", "green"]}, "n": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["colour", "n"], "additionalProperties": false})
}

fn tools() -> Value {
    json!([
        {"type": "function", "function": {"name": "paint", "description": "Paints.", "parameters": colour(), "strict": true}},
        {"type": "function", "function": {"name": "stop", "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}},
    ])
}

fn long() -> Value {
    with(question("Write this JSON: {\"colour\": \"red\", \"n\": 3}"), json!({"max_tokens": 200}))
}

#[test]
fn an_answer_fits_its_schema_streamed_and_unstreamed_with_log_probabilities_or_without() {
    let Some(live) = live() else { return };
    for logprobs in [false, true] {
        let body = with(with(long(), format(colour())), json!({"logprobs": logprobs}));
        let whole = live.ok(CHAT, &body);
        let answer: Value = serde_json::from_str(content(&whole)).unwrap_or_else(|e| panic!("{e}: {whole}"));
        assert!(
            ["red", "green"].contains(&answer["colour"].as_str().unwrap())
                && (1..=9).contains(&answer["n"].as_i64().unwrap())
        );
        assert_eq!(whole["choices"][0]["finish_reason"], "stop");
        let chunks = live.stream(CHAT, &body);
        let text: String = chunks.iter().filter_map(|c| c["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(text, content(&whole));
    }
    let response =
        json!({"input": "Hello", "text": {"format": {"type": "json_schema", "name": "c", "schema": colour()}}});
    let response = live.ok("/v1/responses", &response);
    let text = response["output"][0]["content"][0]["text"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(text).unwrap()["colour"].is_string());
    assert_eq!(response["text"]["format"]["type"], "json_schema");
    let object = live.ok(CHAT, &with(long(), json!({"response_format": {"type": "json_object"}, "max_tokens": 1})));
    assert!(content(&object).trim_start().starts_with('{') || content(&object).trim().is_empty());
}

#[test]
fn a_pattern_with_a_length_is_honoured_or_refused_by_name() {
    let Some(live) = live() else { return };
    let schema = json!({"type": "object", "properties": {"s": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 3}},
        "required": ["s"], "additionalProperties": false});
    let answer = live.post(CHAT, &with(long(), format(schema)));
    match answer.status {
        200 => {
            let answer: Value = serde_json::from_str(content(&answer.json())).unwrap();
            let text = answer["s"].as_str().unwrap();
            assert!((1..=3).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_lowercase()), "{text}");
        }
        status => assert_eq!((status, &answer.json()["error"]["param"]), (400, &"response_format".into())),
    }
}

#[test]
fn a_schema_or_grammar_that_cannot_be_honoured_is_a_400_that_names_what() {
    let Some(live) = live() else { return };
    let nested = (0..100).fold(json!(true), |inner, _| json!({"items": inner}));
    for (change, param, part) in [
        (
            format(json!({"type": "object", "unevaluatedProperties": {"type": "string"}, "$ref": "#/none"})),
            "response_format",
            "",
        ),
        (format(json!({"type": "wizard"})), "response_format", "wizard"),
        (
            format(json!({"type": "array", "items": {"type": "integer"}, "uniqueItems": true})),
            "response_format",
            "uniqueItems",
        ),
        (json!({"response_format": {"type": "xml"}}), "response_format.type", "xml"),
        (json!({"response_format": {"type": "json_schema"}}), "response_format", "json_schema"),
        (json!({"grammar": "start: \"a"}), "grammar", ""),
        (json!({"grammar": "("  .repeat(60_000)}), "grammar", ""),
        (json!({"grammar": format!("start: {}", "(".repeat(60_000))}), "grammar", ""),
        (with(json!({"grammar": "start: \"a\""}), format(json!({}))), "grammar", ""),
        (with(json!({"tools": tools()}), format(json!({"type": "wizard"}))), "response_format", "wizard"),
        (json!({"tools": tools(), "grammar": "start: \"a\""}), "grammar", "tools"),
        (
            json!({"tools": [{"type": "function", "function": {"name": "x", "strict": true,
                "parameters": {"type": "object", "properties": {"a": {"type": "wizard"}}}}}]}),
            "tools",
            "wizard",
        ),
    ] {
        let start = std::time::Instant::now();
        let (status, error) = live.error(CHAT, &with(long(), change.clone()));
        let text = change.to_string();
        assert_eq!((status, error["param"].as_str()), (400, Some(param)), "{text:.200} {error}");
        assert!(error["message"].as_str().unwrap().contains(part), "{error}");
        assert!(start.elapsed().as_secs() < 1, "{text:.200}");
    }
    for hostile in [
        json!({"type": "array", "maxItems": 1_000_000_000, "minItems": 999_999_999}),
        json!({"$ref": "#"}),
        json!({"type": "string", "pattern": "(".repeat(60_000)}),
        json!({"type": "string", "pattern": "((a{1,1000}){1,1000}){1,1000}"}),
        nested,
    ] {
        let start = std::time::Instant::now();
        let answer = live.post(CHAT, &with(with(long(), json!({"max_tokens": 2})), format(hostile.clone())));
        assert!([200, 400].contains(&answer.status), "{}", answer.text());
        assert!(start.elapsed().as_secs() < 2, "{:.100}", hostile.to_string());
    }
    live.ok(CHAT, &question("Hello"));
}

/// What a call's arguments must be.
fn check_call(call: &Value) {
    let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    if call["function"]["name"] == "paint" {
        assert!(["red", "green"].contains(&arguments["colour"].as_str().unwrap()), "{call}");
        assert_eq!(arguments.as_object().unwrap().len(), 2, "{call}");
    }
}

#[test]
fn a_call_that_the_model_makes_of_its_own_accord_fits_a_strict_schema() {
    let Some(live) = live() else { return };
    let mut called = 0;
    for seed in 0..24 {
        if seed >= 4 && called > 0 {
            break;
        }
        let say = "Call the tool paint. Write <tool_call> first.";
        let body = with(question(say), json!({"tools": tools(), "max_tokens": 200, "temperature": 1, "seed": seed}));
        let whole = live.ok(CHAT, &body);
        let (choice, message) = (&whole["choices"][0], &whole["choices"][0]["message"]);
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            called += 1;
            check_call(call);
        }
        let text = message["content"].as_str().unwrap_or_default();
        assert!(choice["finish_reason"] == "length" || !text.contains("<tool_call>"), "{whole}");
    }
    assert!(called > 0, "some of them are calls");
}

#[test]
fn an_answer_beside_tools_fits_its_schema_or_is_a_call() {
    let Some(live) = live() else { return };
    for say in ["Write this JSON: {\"colour\": \"red\", \"n\": 3}", "Call the tool paint. Write <tool_call> first."] {
        let body = with(with(question(say), json!({"tools": tools(), "max_tokens": 200})), format(colour()));
        let whole = live.ok(CHAT, &body);
        let message = &whole["choices"][0]["message"];
        match message["tool_calls"].as_array() {
            Some(calls) => calls.iter().for_each(check_call),
            None => {
                let answer: Value = serde_json::from_str(content(&whole)).unwrap();
                assert!(answer["colour"].is_string() && answer["n"].is_u64(), "{whole}");
            }
        }
        // A call that must come leaves nothing to be held.
        let forced = live.ok(CHAT, &with(body, json!({"tool_choice": "required"})));
        assert_eq!(forced["choices"][0]["finish_reason"], "tool_calls");
    }
}

#[test]
fn a_forced_call_that_is_cut_off_has_a_part_of_its_arguments() {
    let Some(live) = live() else { return };
    let body = with(long(), json!({"tools": [tools()[0]], "tool_choice": "required"}));
    let whole = live.ok(CHAT, &body);
    let arguments = |answer: &Value| {
        let call = answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"].as_str();
        call.unwrap_or_default().to_owned()
    };
    let (right, tokens) = (arguments(&whole), whole["usage"]["completion_tokens"].as_u64().unwrap());
    for most in 1..tokens {
        let cut = live.ok(CHAT, &with(body.clone(), json!({"max_tokens": most})));
        let choice = &cut["choices"][0];
        assert_eq!(choice["finish_reason"], "length", "{cut}");
        assert_eq!(choice["message"]["content"].as_str().unwrap_or_default(), "", "{cut}");
        assert!(right.starts_with(arguments(&cut).trim_end()), "{cut}");
    }
    let cut = with(body, json!({"max_tokens": tokens - 3}));
    let part = arguments(&live.ok(CHAT, &cut));
    assert!(!part.is_empty());
    let chunks = live.stream(CHAT, &cut);
    let delta =
        |c: &Value| c["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].as_str().map(str::to_owned);
    assert_eq!(chunks.iter().filter_map(delta).collect::<String>(), part);
}

fn tools_without_strict() -> Value {
    let mut tools = tools();
    tools[0]["function"].as_object_mut().unwrap().remove("strict");
    tools
}

#[test]
fn a_grammar_holds_a_text_of_either_api() {
    let Some(live) = live() else { return };
    for grammar in ["root ::= \"yes\" | \"no\"", "start: \"yes\" | \"no\""] {
        let chat = live.ok(CHAT, &with(long(), json!({"grammar": grammar})));
        assert!(["yes", "no"].contains(&content(&chat)), "{chat}");
        let text = live.ok("/v1/completions", &json!({"prompt": "Well, ", "grammar": grammar, "n": 2}));
        for choice in text["choices"].as_array().unwrap() {
            assert!(["yes", "no"].contains(&choice["text"].as_str().unwrap()), "{text}");
            assert_eq!(choice["finish_reason"], "stop");
        }
    }
}

#[test]
fn a_call_that_must_come_comes_and_streams_in_openai_s_deltas() {
    let Some(live) = live() else { return };
    let names = ["paint"];
    for choice in [json!("required"), json!({"type": "function", "function": {"name": "paint"}})] {
        let body = with(long(), json!({"tools": [tools()[0]], "tool_choice": choice}));
        let whole = live.ok(CHAT, &body);
        let (choice, message) = (&whole["choices"][0], &whole["choices"][0]["message"]);
        assert_eq!((&choice["finish_reason"], &message["content"]), (&"tool_calls".into(), &Value::Null), "{whole}");
        let call = &message["tool_calls"][0];
        let name = call["function"]["name"].as_str().unwrap();
        assert!(
            names.contains(&name) && call["id"].as_str().unwrap().starts_with("call_") && call["type"] == "function"
        );
        let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(arguments["colour"].is_string(), name == "paint");

        let chunks = live.stream(CHAT, &body);
        let deltas: Vec<&Value> =
            chunks.iter().filter_map(|c| c["choices"][0]["delta"]["tool_calls"].as_array()).flatten().collect();
        assert!(deltas.iter().all(|d| d["index"] == 0));
        let first = deltas[0];
        assert_eq!(
            (&first["function"]["name"], &first["function"]["arguments"], &first["type"]),
            (&name.into(), &"".into(), &"function".into())
        );
        assert!(deltas[1..].iter().all(|d| d.get("id").is_none() && d["function"].get("name").is_none()));
        let joined: String = deltas.iter().filter_map(|d| d["function"]["arguments"].as_str()).collect();
        assert_eq!(joined, call["function"]["arguments"].as_str().unwrap());
        assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    }
}

#[test]
fn a_call_is_told_in_the_other_forms_too() {
    let Some(live) = live() else { return };
    let flat = json!([{"type": "function", "name": "paint", "parameters": colour()}]);
    let response = live.ok("/v1/responses", &json!({"input": "Hello", "tools": flat, "tool_choice": "required"}));
    let item = &response["output"][0];
    assert_eq!(
        (&item["type"], &item["name"], &item["status"]),
        (&"function_call".into(), &"paint".into(), &"completed".into())
    );
    let tool = json!({"name": "paint", "input_schema": colour()});
    let body = json!({"max_tokens": 200, "messages": [{"role": "user", "content": "Hello"}], "tools": [tool], "tool_choice": {"type": "any"}});
    let message = live.ok("/v1/messages", &body);
    let block = &message["content"][0];
    assert_eq!(
        (&block["type"], &block["name"], &message["stop_reason"]),
        (&"tool_use".into(), &"paint".into(), &"tool_use".into())
    );
    assert!(block["input"]["colour"].is_string());
    // And the conversation goes on with what the tool gave.
    let goes_on = json!([
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": [block]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block["id"], "content": "done"}]},
    ]);
    live.ok("/v1/messages", &json!({"max_tokens": 4, "messages": goes_on, "tools": body["tools"]}));
    let input = json!([{"role": "user", "content": "Hello"}, item, {"type": "function_call_output", "call_id": item["call_id"], "output": "done"}]);
    live.ok("/v1/responses", &json!({"input": input, "tools": flat, "max_output_tokens": 4}));
    let call = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "paint", "arguments": "{\"colour\": \"red\"}"}}]});
    let messages = json!([{"role": "user", "content": "Hello"}, call, {"role": "tool", "tool_call_id": "call_1", "content": "done"}]);
    live.ok(CHAT, &json!({"messages": messages, "tools": tools_without_strict(), "max_tokens": 4}));
}

#[test]
fn tools_that_refer_to_their_own_definitions_are_understood() {
    let Some(live) = live() else { return };
    let parameters = json!({"type": "object", "$defs": {"Colour": {"enum": ["red"]}}, "properties": {"c": {"$ref": "#/$defs/Colour"}},
        "required": ["c"], "additionalProperties": false});
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
    let body = with(long(), json!({"tools": [tool("a"), tool("b")], "tool_choice": "required"}));
    let answer = live.ok(CHAT, &body);
    let arguments = answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(arguments).unwrap(), json!({"c": "red"}));
}

#[test]
fn wrong_tools_and_choices_are_refused_by_name() {
    let Some(live) = live() else { return };
    let function = |function: Value| json!({"tools": [{"type": "function", "function": function}]});
    for (change, param) in [
        (json!({"tool_choice": "required"}), "tool_choice"),
        (json!({"parallel_tool_calls": false}), "parallel_tool_calls"),
        (json!({"tools": tools(), "tool_choice": {"type": "function", "function": {"name": "fly"}}}), "tool_choice"),
        (json!({"tools": tools(), "tool_choice": "maybe"}), "tool_choice"),
        (json!({"tools": [{"type": "retrieval"}]}), "tools[0].type"),
        (function(json!({"name": "a b"})), "tools[0].function.name"),
        (function(json!({"name": ""})), "tools[0].function.name"),
        (function(json!({"name": "x", "parameters": {"type": "array"}})), "tools[0].function.parameters"),
        (function(json!({"name": "x", "parameters": 3})), "tools[0]"),
        (json!({"messages": [{"role": "tool", "content": "x"}]}), "messages[0].tool_call_id"),
    ] {
        let (status, error) = live.error(CHAT, &with(question("Hello"), change.clone()));
        assert_eq!((status, error["param"].as_str()), (400, Some(param)), "{change} {error}");
    }
}
