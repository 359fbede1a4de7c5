//! The other forms of a conversation: `/v1/responses` and Anthropic's `/v1/messages`.

use crate::common::{Live, TEMPLATE, model, options, tiny, with};
use serde_json::{Value, json};

const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";

/// Name and data of each event of a stream.
fn events(live: &Live, path: &str, body: &Value) -> Vec<(String, Value)> {
    let answer = live.post(path, &with(body.clone(), json!({"stream": true})));
    assert_eq!(
        (answer.status, answer.headers["content-type"].as_str()),
        (200, "text/event-stream"),
        "{}",
        answer.text()
    );
    let text = answer.text();
    let mut events = Vec::new();
    for block in text.split("\n\n").filter(|block| !block.trim().is_empty() && !block.starts_with(':')) {
        let line =
            |prefix: &str| block.lines().find_map(|line| line.strip_prefix(prefix)).unwrap_or_default().to_owned();
        let data: Value = serde_json::from_str(&line("data: ")).unwrap();
        assert_eq!(data["type"], line("event: "), "{block}");
        events.push((line("event: "), data));
    }
    events
}

fn names(events: &[(String, Value)]) -> Vec<&str> {
    let mut names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    names.dedup();
    names
}

#[test]
fn a_response_is_an_item_with_text_and_streams_as_events() {
    let live = Live::tiny();
    let body = json!({"input": "Hello", "instructions": "Be brief.", "temperature": 0, "max_output_tokens": 8});
    let whole = live.ok(RESPONSES, &body);
    assert_eq!((&whole["object"], &whole["status"]), (&"response".into(), &"incomplete".into()));
    assert_eq!(whole["incomplete_details"]["reason"], "max_output_tokens");
    let item = &whole["output"][0];
    assert_eq!(
        (&item["type"], &item["role"], &item["content"][0]["type"]),
        (&"message".into(), &"assistant".into(), &"output_text".into())
    );
    let text = item["content"][0]["text"].as_str().unwrap();
    assert_eq!(whole["usage"]["output_tokens"], 8);
    assert_eq!(whole["instructions"], "Be brief.");

    let events = events(&live, RESPONSES, &body);
    assert_eq!(
        names(&events),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.incomplete",
        ]
    );
    let deltas: String = events.iter().filter_map(|(_, data)| data["delta"].as_str()).collect();
    assert_eq!(deltas, text);
    assert!(events.iter().enumerate().all(|(n, (_, data))| data["sequence_number"] == n), "numbered in order");
    let last = &events.last().unwrap().1["response"];
    assert_eq!((&last["output"][0]["content"], &last["status"]), (&whole["output"][0]["content"], &whole["status"]));
}

#[test]
fn a_conversation_in_items_is_the_same_conversation_in_messages() {
    let live = Live::tiny();
    let chat = json!({"temperature": 0, "max_tokens": 8, "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "Who are you?"},
    ]});
    let right = live.ok("/v1/chat/completions", &chat)["choices"][0]["message"]["content"].clone();
    let items = json!({"temperature": 0, "max_output_tokens": 8, "instructions": "Be brief.", "input": [
        {"role": "user", "content": "Hi"},
        {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [
            {"type": "output_text", "text": "Hello!", "annotations": [], "logprobs": []}]},
        {"role": "user", "content": [{"type": "input_text", "text": "Who are "}, {"type": "input_text", "text": "you?"}]},
    ]});
    assert_eq!(live.ok(RESPONSES, &items)["output"][0]["content"][0]["text"], right);
    let blocks = json!({"temperature": 0, "max_tokens": 8, "system": [{"type": "text", "text": "Be brief."}], "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "text", "text": "Hello!"}]},
        {"role": "user", "content": [{"type": "text", "text": "Who are you?", "cache_control": {"type": "ephemeral"}}]},
    ]});
    assert_eq!(live.ok(MESSAGES, &blocks)["content"][0]["text"], right);
}

#[test]
fn a_message_has_anthropic_s_form_and_streams_as_events() {
    let live = Live::tiny();
    let body = json!({"max_tokens": 8, "temperature": 0, "messages": [{"role": "user", "content": "Hello"}]});
    let whole = live.ok(MESSAGES, &body);
    assert_eq!(
        (&whole["type"], &whole["role"], &whole["stop_reason"]),
        (&"message".into(), &"assistant".into(), &"max_tokens".into())
    );
    let text = whole["content"][0]["text"].as_str().unwrap().to_owned();
    let events = events(&live, MESSAGES, &body);
    assert_eq!(
        names(&events),
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop"
        ]
    );
    let deltas: String = events.iter().filter_map(|(_, data)| data["delta"]["text"].as_str()).collect();
    assert_eq!(deltas, text);
    let end = events.iter().find(|(name, _)| name == "message_delta").unwrap();
    assert_eq!((&end.1["delta"]["stop_reason"], &end.1["usage"]["output_tokens"]), (&"max_tokens".into(), &8.into()));
    let count = live.ok("/v1/messages/count_tokens", &json!({"messages": body["messages"]}));
    let usage = &whole["usage"];
    let prompt = usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap();
    assert_eq!(count["input_tokens"].as_u64().unwrap(), prompt);

    let stop: String = text.chars().skip(2).take(2).collect();
    let stopped = live.ok(MESSAGES, &with(body.clone(), json!({"stop_sequences": ["never there", stop]})));
    assert_eq!((&stopped["stop_reason"], &stopped["stop_sequence"]), (&"stop_sequence".into(), &stop.as_str().into()));

    // Errors are Anthropic's too, whoever finds them.
    for (body, kind, status) in [
        (json!({"messages": []}), "invalid_request_error", 400),
        (with(body.clone(), json!({"max_tokens": 0})), "invalid_request_error", 400),
        (with(body.clone(), json!({"model": "x"})), "not_found_error", 404),
        (
            with(body.clone(), json!({"thinking": {"type": "enabled", "budget_tokens": 9}})),
            "invalid_request_error",
            400,
        ),
    ] {
        let answer = live.post(MESSAGES, &body);
        let json = answer.json();
        assert_eq!(
            (answer.status, &json["type"], &json["error"]["type"]),
            (status, &"error".into(), &kind.into()),
            "{body}"
        );
    }
}

#[test]
fn what_the_other_forms_do_not_support_is_refused_by_name() {
    let live = Live::tiny();
    for (change, param) in [
        (json!({"store": true}), "store"),
        (json!({"background": true}), "background"),
        (json!({"input": []}), "input"),
        (json!({"previous_response_id": "resp_1"}), "previous_response_id"),
        (json!({"truncation": "auto"}), "truncation"),
        (json!({"include": ["reasoning.encrypted_content"]}), "include[0]"),
        (json!({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}), "input"),
        (json!({"input": [{"type": "function_call", "name": "x"}]}), "input[0].call_id"),
        (json!({"tools": [{"type": "web_search"}]}), "tools[0].type"),
        (json!({"reasoning": {"effort": "low"}}), "reasoning.effort"),
        (json!({"frequency_penalty": 1}), "frequency_penalty"),
    ] {
        let (status, error) = live.error(RESPONSES, &with(json!({"input": "Hello"}), change.clone()));
        assert_eq!((status, &error["param"]), (400, &param.into()), "{change}: {error}");
    }
    let body = json!({"max_tokens": 4, "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]});
    assert_eq!(live.post(MESSAGES, &body).status, 400);
    let answer = live.post(MESSAGES, &json!({"messages": [{"role": "user", "content": "a"}]}));
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("max_tokens is missing"));
}

#[test]
fn reasoning_comes_apart_and_its_budget_closes_it() {
    // Every prompt ends in an open block, and the tiny model never closes one.
    let dir = tiny(&format!("{TEMPLATE}<think>\n{{# </think> enable_thinking #}}"));
    let live = Live::start(options(vec![model("thinks", dir.path())]));
    let body =
        json!({"temperature": 0, "max_tokens": 40, "ignore_eos": true, "messages": [{"role": "user", "content": "a"}]});
    let endless = live.ok("/v1/chat/completions", &body);
    let message = &endless["choices"][0]["message"];
    assert_eq!(message["content"], "", "a block that never closes is reasoning");
    assert!(!message["reasoning_content"].as_str().unwrap().is_empty());
    assert_eq!(endless["usage"]["completion_tokens_details"]["reasoning_tokens"], 40);

    let body = with(body, json!({"thinking_budget": 6}));
    let closed = live.ok("/v1/chat/completions", &body);
    let message = &closed["choices"][0]["message"];
    assert!(!message["content"].as_str().unwrap().is_empty(), "{closed}");
    let thought = closed["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap();
    assert!((6..30).contains(&thought), "{closed}");
    assert_eq!(closed["usage"]["completion_tokens"], 40);
    let chunks = live.stream("/v1/chat/completions", &body);
    let join = |key: &str| chunks.iter().filter_map(|c| c["choices"][0]["delta"][key].as_str()).collect::<String>();
    assert_eq!(
        (json!(join("content")), json!(join("reasoning_content"))),
        (message["content"].clone(), message["reasoning_content"].clone())
    );

    let response = live.ok("/v1/responses", &json!({"input": "a", "temperature": 0, "max_output_tokens": 8}));
    assert_eq!(response["output"][0]["type"], "reasoning");
    let anthropic = json!({"max_tokens": 40, "temperature": 0, "thinking": {"type": "enabled", "budget_tokens": 6},
        "messages": [{"role": "user", "content": "a"}]});
    assert_eq!(live.ok("/v1/messages", &anthropic)["content"][0]["type"], "thinking");
    // A model that does not reason is not asked to.
    let live = Live::tiny();
    let plain = json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 2});
    for (change, param) in [
        (json!({"reasoning_effort": "low"}), "reasoning_effort"),
        (json!({"thinking_budget": 5}), "thinking_budget"),
        (json!({"chat_template_kwargs": {"enable_thinking": true}}), "chat_template_kwargs"),
        (json!({"chat_template_kwargs": {"other": true}}), "chat_template_kwargs.other"),
    ] {
        let (status, error) = live.error("/v1/chat/completions", &with(plain.clone(), change));
        assert_eq!((status, &error["param"]), (400, &param.into()));
    }
    live.ok("/v1/chat/completions", &with(plain, json!({"reasoning_effort": "none"})));
}
