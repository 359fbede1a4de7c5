//! What a model sees of tools, and which of its tokens are text.

use crate::common::{Live, TEMPLATE, model, options, question, tiny, with};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

#[test]
fn tools_are_written_as_python_writes_json() {
    let tools = "{# <tool_call> #}{% for t in tools %}{{ t.function | tojson }}{% endfor %}";
    let dir = tiny(&format!("{tools}{TEMPLATE}"));
    let live = Live::start(options(vec![model("tiny", dir.path())]));
    let parameters =
        json!({"type": "object", "properties": {"zé": {"type": "string"}, "a": {"enum": ["<1>", 2.5, null, true]}}});
    let description = "temp > 10 & humidity < 50 (user's choice)";
    let function = json!({"name": "get_weather", "description": description, "parameters": parameters});
    let body =
        json!({"messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "function", "function": function}]});
    let prompt = live.ok("/apply-template", &body);
    let right = r#"{"name": "get_weather", "description": "temp > 10 & humidity < 50 (user's choice)", "parameters": {"type": "object", "properties": {"zé": {"type": "string"}, "a": {"enum": ["<1>", 2.5, null, true]}}}}"#;
    assert_eq!(prompt["prompt"], format!("{right}<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"));
}

#[test]
fn an_added_token_that_is_not_special_is_text_and_a_special_one_is_not() {
    let dir = tiny(TEMPLATE);
    let path = dir.path().join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let added = &mut tokenizer["added_tokens"];
    (added[0]["content"], added[0]["special"]) = ("<think>".into(), false.into());
    assert_eq!((&added[2]["content"], &added[2]["special"]), (&"<|im_end|>".into(), &true.into()));
    let (think, end) = (added[0]["id"].clone(), added[2]["id"].clone());
    std::fs::write(&path, tokenizer.to_string()).unwrap();
    let live = Live::start(options(vec![model("tiny", dir.path())]));

    for (skip, text) in [(true, "<think>"), (false, "<think><|im_end|>")] {
        let content = live.ok("/detokenize", &json!({"tokens": [think, end], "skip_special": skip}));
        assert_eq!(content["content"], text);
    }
    for (id, text) in [(&think, "<think>".repeat(12)), (&end, String::new())] {
        let body = with(question("Hi"), json!({"logit_bias": {id.to_string(): 100}, "ignore_eos": true}));
        let whole = live.ok(CHAT, &body);
        let chunks = live.stream(CHAT, &body);
        let streamed: String = chunks.iter().filter_map(|c| c["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!((whole["choices"][0]["message"]["content"].as_str(), &streamed), (Some(&*text), &text));
        assert_eq!(whole["usage"]["completion_tokens"], 12);
    }
}
