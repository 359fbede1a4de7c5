//! Chat templates: each JSON file of the folder, `meta.json` and `conversations.json` aside, is about one template, which it
//! holds or names by its `template_sha256`. Case i renders conversation i: exactly `rendered`, or it must fail.

use super::case::{self, Case, Stop};
use super::{Context, Outputs, Row};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use tokenizer::{ChatInput, ChatTemplate};

#[derive(Deserialize)]
struct Golden {
    #[serde(default)]
    template_sha256: String,
    template: Option<String>,
    #[serde(default)]
    variables: Map<String, Value>,
    cases: Vec<Map<String, Value>>,
}

#[derive(Deserialize)]
struct Conversation {
    messages: Vec<Value>,
    tools: Option<Vec<Value>>,
    #[serde(default)]
    add_generation_prompt: bool,
    #[serde(default)]
    kwargs: Map<String, Value>,
}

pub(crate) fn run(case: &Case, cx: &Context) -> Result<Outputs, Stop> {
    let conversations: Vec<Conversation> = case::read(&case.dir.join("conversations.json"))?;
    let items = std::fs::read_dir(&case.dir).map_err(Stop::failed)?;
    let mut files: Vec<PathBuf> = items.flatten().map(|item| item.path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "json"));
    files.retain(|path| !matches!(path.file_name().and_then(|n| n.to_str()), Some("meta.json" | "conversations.json")));
    files.sort();
    let mut outputs = Outputs::default();
    for file in files {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let name = format!("{}/{stem}", case.name);
        match one(&file, &conversations, cx) {
            Err(stop) => outputs.rows.push(Row::stopped(&name, "", stop)),
            Ok((wrong, first, ours)) => {
                outputs.rows.push(Row::items(&name, "rendered", wrong, first));
                outputs.texts.push((format!("{stem}.json"), ours));
            }
        }
    }
    Ok(outputs)
}

/// How many cases differ, the first of them in words, and ours.
fn one(file: &Path, conversations: &[Conversation], cx: &Context) -> Result<(usize, Option<String>, Value), Stop> {
    let golden: Golden = case::read(file)?;
    if golden.cases.len() != conversations.len() {
        return Err(Stop::Failed(format!("{} cases for {} conversations", golden.cases.len(), conversations.len())));
    }
    let source = match golden.template {
        Some(text) => text,
        None => cx.files.template(&golden.template_sha256)?,
    };
    let template = ChatTemplate::new(&source).map_err(Stop::failed)?;
    let (mut wrong, mut first, mut all) = (0, None, Vec::new());
    for (i, (expected, conversation)) in golden.cases.iter().zip(conversations).enumerate() {
        let mut variables = golden.variables.clone();
        variables.extend(conversation.kwargs.clone());
        let got = template.render(&ChatInput {
            messages: &conversation.messages,
            tools: conversation.tools.as_deref(),
            add_generation_prompt: conversation.add_generation_prompt,
            variables,
        });
        let same = match (expected.get("rendered"), &got) {
            (Some(expected), Ok(text)) => expected == text,
            (None, Err(_)) => true,
            _ => false,
        };
        if !same {
            wrong += 1;
            first.get_or_insert_with(|| format!("case {i} is {got:?}, expected {}", json!(expected)));
        }
        all.push(match got {
            Ok(text) => json!({"rendered": text}),
            Err(error) => json!({"error": error.to_string()}),
        });
    }
    Ok((wrong, first, json!({"cases": all})))
}
