//! Chat templates render as transformers renders them.

use std::path::{Path, PathBuf};

use lattice_tokenizer::{ChatInput, ChatTemplate};
use serde_json::{Map, Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).unwrap()
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// A folder of templates with their renderings; a template that is not stored is read from `files/NAME`.
fn check(dir: &Path, names: &[&str], files: Option<&Path>) {
    let conversations = read(&dir.join("conversations.json"));
    let mut report = Vec::new();
    for name in names {
        let golden = read(&dir.join(format!("{name}.json")));
        let source = match (&golden["template"], files) {
            (Value::String(text), _) => text.clone(),
            (_, Some(files)) => {
                let config = read(&files.join(name).join("tokenizer_config.json"));
                config["chat_template"].as_str().unwrap().to_owned()
            }
            _ => panic!("{name} has no template"),
        };
        let template = ChatTemplate::new(&source).unwrap();
        for (case, input) in golden["cases"].as_array().unwrap().iter().zip(conversations.as_array().unwrap()) {
            let mut variables = object(&golden["variables"]);
            variables.extend(object(&input["kwargs"]));
            let got = template.render(&ChatInput {
                messages: input["messages"].as_array().unwrap(),
                tools: input.get("tools").and_then(|t| t.as_array()).map(Vec::as_slice),
                add_generation_prompt: input["add_generation_prompt"] == true,
                variables,
            });
            match (case.get("rendered"), &got) {
                (Some(expected), Ok(text)) if expected == text => {}
                (None, Err(_)) => {}
                _ => report.push(format!("{name} {}: {got:?}, expected {case}", case["case"])),
            }
        }
    }
    assert!(report.is_empty(), "{} cases differ:\n{}", report.len(), report.join("\n"));
}

#[test]
fn stored_templates_render_as_transformers_does() {
    check(&root().join("goldens/chat_templates"), &["llama_style", "mistral_style"], None);
}

#[test]
fn templates_of_real_models_render_as_transformers_does() {
    let dir = root().join("../shared/goldens/cases/chat_templates");
    let files = std::env::var_os("LATTICE_TOKENIZER_FILES").map(PathBuf::from);
    let files = files.unwrap_or_else(|| root().join("../t/files"));
    if !dir.is_dir() || !files.join("gemma3").is_dir() {
        return eprintln!("skipped: needs {} and tokenizers in {}", dir.display(), files.display());
    }
    check(&dir, &["qwen3", "smollm2", "gemma3", "llama3"], Some(&files));
}

#[test]
fn features_of_jinja_give_what_jinja2_gives() {
    let golden = read(&root().join("goldens/chat_templates/jinja.json"));
    let mut report = Vec::new();
    for case in golden["cases"].as_array().unwrap() {
        let source = case["template"].as_str().unwrap();
        let got = ChatTemplate::new(source).and_then(|t| {
            t.render(&ChatInput {
                messages: golden["messages"].as_array().unwrap(),
                variables: object(&golden["variables"]),
                ..ChatInput::default()
            })
        });
        match (case.get("rendered"), &got) {
            (Some(expected), Ok(text)) if expected == text => {}
            (None, Err(_)) => {}
            _ => report.push(format!("{source}\n  {got:?}\n  expected {case}")),
        }
    }
    assert!(report.is_empty(), "{} cases differ:\n{}", report.len(), report.join("\n"));
}

fn render(source: &str, variables: Value) -> Result<String, lattice_tokenizer::TokenizerError> {
    let messages = [json!({"role": "user", "content": "a"}), json!({"role": "assistant", "content": "b"})];
    ChatTemplate::new(source)?.render(&ChatInput {
        messages: &messages,
        variables: object(&variables),
        ..ChatInput::default()
    })
}

#[test]
fn json_keeps_order_and_is_not_escaped() {
    let tool = json!({"t": {"name": "get_weather", "description": "temp > 10 & humidity < 50 (user's choice)"}});
    let line = r#"{"name": "get_weather", "description": "temp > 10 & humidity < 50 (user's choice)"}"#;
    assert_eq!(render("{{ t | tojson }}", tool.clone()).unwrap(), line);
    assert_eq!(
        render("{{ t | tojson(indent=2) }}", tool).unwrap(),
        "{\n  \"name\": \"get_weather\",\n  \"description\": \"temp > 10 & humidity < 50 (user's choice)\"\n}"
    );
    assert_eq!(render("{{ t | tojson }}", json!({"t": "é中\u{1F600}"})).unwrap(), "\"é中\u{1F600}\"");
}

#[test]
fn pythons_ways_work() {
    assert_eq!(render("{{ messages[::-1][0].content }}", json!({})).unwrap(), "b");
    let previous = "{% for m in messages %}{{ loop.previtem.content if loop.previtem else '-' }}{% endfor %}";
    assert_eq!(render(previous, json!({})).unwrap(), "-a");
    let year: i64 = render("{{ strftime_now('%Y') }}", json!({})).unwrap().parse().unwrap();
    assert!(year > 2000);
    assert_eq!(render("{{ strftime_now('%d %b %Y') }}", json!({})).unwrap().split(' ').count(), 3);
    let sum = "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}";
    assert_eq!(render(sum, json!({})).unwrap(), "2");
}

#[test]
fn what_a_template_raises_is_the_error() {
    let error = render("line\n{{ raise_exception('roles must alternate') }}", json!({})).unwrap_err().to_string();
    assert_eq!(error, "chat template, line 2: roles must alternate");
    let error = render("{% for x %}", json!({})).unwrap_err().to_string();
    assert!(error.starts_with("chat template, line 1: "), "{error}");
}

#[test]
fn a_template_without_end_is_stopped() {
    let source = "{% for a in range(100000) %}{% for b in range(100000) %}{% set c = a %}{% endfor %}{% endfor %}";
    assert!(render(source, json!({})).is_err());
    assert!(render("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", json!({})).is_err());
}
