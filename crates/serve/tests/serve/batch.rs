//! Batch files without a server: answers, errors, and going on after a stop.

use crate::common::{TEMPLATE, golden, model, options, question, tiny};
use lattice_serve::{ServeError, Summary, batch};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn line(id: &str, url: &str, body: Value) -> String {
    json!({"custom_id": id, "method": "POST", "url": url, "body": body}).to_string() + "\n"
}

fn answers(path: &Path) -> BTreeMap<String, Value> {
    let text = fs::read_to_string(path).unwrap();
    let parse = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap();
        (value["custom_id"].as_str().unwrap().to_owned(), value)
    };
    text.lines().map(parse).collect()
}

fn run(tiny: &Path, input: &Path, output: &Path) -> Result<Summary, ServeError> {
    let models = vec![model("tiny", tiny), model("small", &golden("st_bert_mean"))];
    batch(options(models), input, output, &mut |_| {})
}

#[test]
fn every_line_has_one_answer_and_what_was_stopped_goes_on() {
    let (tiny, dir) = (tiny(TEMPLATE), tempfile::tempdir().unwrap());
    let (input, output) = (dir.path().join("in.jsonl"), dir.path().join("out.jsonl"));
    let mut text = String::new();
    for n in 0..6 {
        text += &line(&format!("chat-{n}"), "/v1/chat/completions", question(&format!("Hello {n}")));
    }
    text += "\n";
    text += &line("vector", "/v1/embeddings", json!({"input": ["a", "b"]}));
    text += &line("wrong", "/v1/chat/completions", json!({"messages": [], "frobnicate": 1}));
    text += &line("streamed", "/v1/completions", json!({"prompt": "a", "stream": true}));
    fs::write(&input, text).unwrap();
    let summary = run(tiny.path(), &input, &output).unwrap();
    assert_eq!((summary.lines, summary.resumed, summary.answered, summary.failed), (9, 0, 9, 2));
    assert_eq!(summary.completion_tokens, 6 * 12);
    let first = answers(&output);
    let of = |id: &str| &first[id]["response"];
    assert_eq!(first.len(), 9);
    assert_eq!(of("chat-3")["body"]["object"], "chat.completion");
    assert_eq!(of("vector")["body"]["data"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&of("wrong")["status_code"], &of("wrong")["body"]["error"]["param"]),
        (&400.into(), &"frobnicate".into())
    );
    assert_eq!(of("streamed")["body"]["error"]["param"], "stream");
    assert!(of("chat-0")["request_id"].as_str().unwrap().starts_with("req_"));

    // A kill leaves whole lines and perhaps the beginning of one.
    let text = fs::read_to_string(&output).unwrap();
    let keep: Vec<&str> = text.lines().collect();
    fs::write(&output, format!("{}\n{}\n{}", keep[0], keep[1], &keep[2][..40])).unwrap();
    let summary = run(tiny.path(), &input, &output).unwrap();
    assert_eq!((summary.lines, summary.resumed, summary.answered), (9, 2, 7));
    let second = answers(&output);
    assert_eq!(second.len(), 9);
    for (id, answer) in &second {
        assert_eq!(answer["response"]["body"]["choices"], first[id]["response"]["body"]["choices"], "{id}");
    }
    let summary = run(tiny.path(), &input, &output).unwrap();
    assert_eq!((summary.resumed, summary.answered), (9, 0));
}

#[test]
fn a_file_that_is_none_is_refused_before_anything_runs() {
    let (tiny, dir) = (tiny(TEMPLATE), tempfile::tempdir().unwrap());
    let (input, output) = (dir.path().join("in.jsonl"), dir.path().join("out.jsonl"));
    let good = line("a", "/v1/completions", json!({"prompt": "a"}));
    for (bad, message) in [
        ("{\"custom_id\"\n".to_owned(), "line 2: EOF while parsing"),
        (line("a", "/v1/completions", json!({})), "line 2: custom_id \"a\" is of a line before it"),
        (line("b", "/v1/models", json!({})), "line 2: url is \"/v1/models\", expected one of /v1/chat/completions"),
        (good.replace("POST", "GET"), "line 2: method is \"GET\", expected POST"),
        (
            "{\"custom_id\": \"b\", \"method\": \"POST\", \"url\": \"/v1/completions\"}\n".to_owned(),
            "line 2: missing field `body`",
        ),
    ] {
        fs::write(&input, format!("{good}{bad}")).unwrap();
        let error = run(tiny.path(), &input, &output).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert!(!output.exists());
    }
    fs::write(&input, &good).unwrap();
    fs::write(&output, "{\"custom_id\": \"of another file\"}\n").unwrap();
    let error = run(tiny.path(), &input, &output).unwrap_err().to_string();
    assert!(error.contains("answers none of the input"), "{error}");
    assert!(run(tiny.path(), &dir.path().join("none"), &output).unwrap_err().to_string().starts_with("cannot read"));
}
