//! What the server says of itself is what it does.

use crate::common::{Live, question, with};
use serde_json::{Value, json};
use std::path::Path;

#[test]
fn the_openapi_document_refers_only_to_what_it_has() {
    let live = Live::tiny();
    let document = live.get("/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    fn references<'v>(value: &'v Value, out: &mut Vec<&'v str>) {
        match value {
            Value::Object(map) => {
                out.extend(map.get("$ref").and_then(Value::as_str));
                map.values().for_each(|value| references(value, out));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, out)),
            _ => {}
        }
    }
    let mut all = Vec::new();
    references(&document, &mut all);
    assert!(all.len() > 20);
    for reference in all {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    for (path, item) in document["paths"].as_object().unwrap() {
        let status = match item.get("get") {
            Some(_) => live.get(&path.replace("{model}", "tiny")).status,
            None => live.post(path, &json!({})).status,
        };
        let right = if item.get("get").is_some() { 200 } else { 400 };
        assert_eq!(status, right, "{path}");
    }
}

#[test]
fn capabilities_tell_which_fields_are_taken_and_which_refused() {
    let live = Live::tiny();
    let all = live.get("/v1/capabilities").json();
    let fields = &all["endpoints"]["/v1/chat/completions"]["fields"];
    assert_eq!((&fields["messages"]["required"], &fields["temperature"]["supported"]), (&true.into(), &true.into()));
    let mut wrong = Vec::new();
    for (path, endpoint) in all["endpoints"].as_object().unwrap() {
        for (name, field) in endpoint["fields"].as_object().unwrap() {
            if field["description"].as_str().is_none_or(str::is_empty) {
                wrong.push(format!("{path}: {name} is not described"));
            }
            // Whatever is refused is refused by name, whatever its value.
            if field["supported"] == false {
                let answer = live.post(path, &with(json!({}), json!({ name: 1 })));
                if answer.status != 400 || !answer.text().contains(name) {
                    wrong.push(format!("{path}: {name}: {}", answer.text()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    live.ok("/v1/chat/completions", &question("Hello"));
}

#[test]
fn the_documentation_lists_the_fields_that_there_are() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/serving.md");
    let text = std::fs::read_to_string(path).expect("docs/serving.md");
    let (_, rest) = text.split_once("<!-- fields -->\n").expect("a mark where the tables begin");
    let (stands, _) = rest.split_once("<!-- /fields -->").expect("a mark where they end");
    let tables = lattice_serve::markdown();
    assert_eq!(stands, tables, "put this between the marks of docs/serving.md:\n\n{tables}");
}
