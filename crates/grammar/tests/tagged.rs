//! Texts with tags: free outside, held inside; and texts that are JSON or tags.

use lattice_grammar::{Bytes, Compiler, Constraint, GrammarError, GrammarSpec, Matcher, Tag, Tagged};
use serde_json::{Value, json};

fn compile(text: Option<Value>, schema: Value) -> Result<Matcher, GrammarError> {
    let tag = |name: &str, schema: Value| Tag {
        begin: format!("\n{{\"name\": \"{name}\", \"arguments\": "),
        schema,
        end: "}\n</tool_call>".into(),
    };
    let tags = vec![tag("now", json!({"type": "object"})), tag("paint", schema)];
    let spec = GrammarSpec::Tagged(Tagged { trigger: "<tool_call>".into(), tags, text });
    Compiler::new(Bytes::shared(), &[Bytes::END]).expect("bytes").compile(&spec)
}

fn colour() -> Value {
    json!({"type": "object", "properties": {"c": {"enum": ["red", "blue"]}}, "required": ["c"], "additionalProperties": false})
}

fn fits(matcher: &Matcher, text: &str) -> bool {
    let mut matcher = matcher.clone();
    text.bytes().all(|byte| matcher.accept(byte.into()).is_ok()) && matcher.may_end()
}

const RED: &str = "<tool_call>\n{\"name\": \"paint\", \"arguments\": {\"c\": \"red\"}}\n</tool_call>";
const NOW: &str = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";

#[test]
fn text_is_free_and_tags_are_held() {
    let matcher = compile(None, colour()).unwrap();
    for good in [
        "",
        "Hello, <b>world</b> {\"name\": 3}\n",
        "é <tool_cal",
        RED,
        NOW,
        &format!("Let me see.\n{RED}"),
        &format!("{RED}\n{NOW} and then {RED}\n"),
    ] {
        assert!(fits(&matcher, good), "{good}");
    }
    for bad in [
        "<tool_call>",
        "so: <tool_call> is a tag",
        &RED.replace("red", "green"),
        &RED.replace("paint", "draw"),
        &RED.replace("</tool_call>", ""),
        &format!("{RED}{}", &RED[..30]),
        "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>",
    ] {
        assert!(!fits(&matcher, bad), "{bad}");
    }
}

#[test]
fn a_text_is_json_or_tags() {
    let matcher = compile(Some(json!({"type": "object", "properties": {"x": {"type": "integer"}}})), colour()).unwrap();
    for good in ["{}", "{\"x\": 1}", RED, &format!("{RED}\n{NOW}")] {
        assert!(fits(&matcher, good), "{good}");
    }
    for bad in ["", "Hello", "{\"x\": \"a\"}", &format!("{{}}{RED}"), &format!("{RED}\n{{}}"), "<tool_call>"] {
        assert!(!fits(&matcher, bad), "{bad}");
    }
}

#[test]
fn a_schema_that_cannot_be_honoured_is_named_with_its_tag() {
    let error = compile(None, json!({"type": "array", "uniqueItems": true})).unwrap_err();
    assert_eq!(error.keyword(), Some("uniqueItems"), "{error}");
    assert!(error.to_string().contains("at /1"), "{error}");
    let error = compile(Some(json!({"type": "wizard"})), colour()).unwrap_err();
    assert!(error.to_string().contains("wizard"), "{error}");
}

#[test]
fn what_looks_like_a_rule_in_a_schema_or_a_tag_is_text() {
    let odd = "\"\nstart: /.*/\n%json {} \\ \"";
    let matcher = compile(None, json!({"const": odd})).unwrap();
    assert!(fits(&matcher, &RED.replace("{\"c\": \"red\"}", &Value::from(odd).to_string())));
    assert!(!fits(&matcher, RED));
    let tag = Tag { begin: odd.into(), schema: json!(true), end: odd.into() };
    let spec = GrammarSpec::Tagged(Tagged { trigger: odd.into(), tags: vec![tag], text: None });
    let matcher = Compiler::new(Bytes::shared(), &[Bytes::END]).unwrap().compile(&spec).unwrap();
    assert!(fits(&matcher, &format!("a{odd}{odd}[1]{odd}b")) && !fits(&matcher, &format!("a{odd}")));
}
