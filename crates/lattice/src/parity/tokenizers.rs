//! Tokenizer cases: each JSON file of the folder, `meta.json` and `texts.json` aside, is about one tokenizer, which its
//! `sha256` names; item i is about text i, or says by itself which texts it is about.
//!
//! Ours is the same item with the same keys, and has to be equal.

use super::case::{self, Case, Stop};
use super::{Context, Outputs, Row};
use crate::commands::is_gguf;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tokenizer::{EncodeOptions, Encoding, PadTo, Padded, Strategy, TiktokenSpec, Tokenizer, Truncation, pad};

/// A file of goldens.
#[derive(Deserialize)]
struct Golden {
    sha256: String,
    #[serde(default)]
    library: String,
    items: Vec<Map<String, Value>>,
    split_pattern: Option<String>,
    #[serde(default)]
    special_start: u32,
    #[serde(default)]
    special_tokens: Vec<String>,
}

/// Items of which the value of a key differs, and the first of them in words.
type Differences = BTreeMap<String, (usize, Option<String>)>;

pub(crate) fn run(case: &Case, cx: &Context) -> Result<Outputs, Stop> {
    let texts: Vec<String> = case::read(&case.dir.join("texts.json"))?;
    let items = std::fs::read_dir(&case.dir).map_err(Stop::failed)?;
    let mut files: Vec<PathBuf> = items.flatten().map(|item| item.path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "json"));
    files.retain(|path| !matches!(path.file_name().and_then(|n| n.to_str()), Some("meta.json" | "texts.json")));
    files.sort();
    let mut outputs = Outputs::default();
    for file in files {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let name = format!("{}/{stem}", case.name);
        match one(case, &file, &texts, cx) {
            Err(stop) => outputs.rows.push(Row::stopped(&name, "", stop)),
            Ok((differences, ours)) => {
                let row =
                    |(key, (wrong, first)): (String, (usize, Option<String>))| Row::items(&name, &key, wrong, first);
                outputs.rows.extend(differences.into_iter().map(row));
                outputs.texts.push((format!("{stem}.json"), ours));
            }
        }
    }
    Ok(outputs)
}

fn one(case: &Case, file: &Path, texts: &[String], cx: &Context) -> Result<(Differences, Value), Stop> {
    let golden: Golden = case::read(file)?;
    let path = cx.files.find(&case.dir, &golden.sha256)?;
    let tokenizer = golden.open(&path)?;
    // The sentencepiece library reads the model beside the JSON that was made of it.
    let model = path.with_file_name("tokenizer.model");
    let model = if model.is_file() { Some(Tokenizer::open(&model).map_err(Stop::failed)?) } else { None };
    let by_text = golden.items.iter().all(|item| !item.contains_key("a") && !item.contains_key("batch"));
    if by_text && golden.items.len() != texts.len() {
        return Err(Stop::Failed(format!("{} items for {} texts", golden.items.len(), texts.len())));
    }
    let (mut differences, mut all) = (Differences::new(), Vec::new());
    for (i, item) in golden.items.iter().enumerate() {
        let mut wanted = item.clone();
        let ours = if by_text {
            // "Only where different": what an item leaves out is as good as what it says.
            if golden.library != "tiktoken" {
                for (key, same) in [("ids_plain", "ids"), ("decoded_skip", "decoded")] {
                    if let (false, Some(value)) = (item.contains_key(key), item.get(same)) {
                        wanted.insert(key.to_owned(), value.clone());
                    }
                }
            }
            about_text(&tokenizer, model.as_ref(), &texts[i], &wanted)
        } else {
            about_pair(&tokenizer, texts, &wanted).map_err(|e| Stop::Failed(format!("item {i}: {}", e.words())))
        }?;
        for (key, expected) in &wanted {
            if ["a", "b", "batch", "max_length", "strategy", "pad_to"].contains(&key.as_str()) {
                continue; // what is asked
            }
            let (wrong, first) = differences.entry(key.clone()).or_default();
            let got = ours.get(key);
            if key == "error" && got.is_some() || got == Some(expected) {
                continue; // the text of an error is free
            }
            *wrong += 1;
            let got = got.map_or_else(|| "not computed".into(), Value::to_string);
            first.get_or_insert_with(|| {
                format!("item {i} is {}, expected {}", short(&got), short(&expected.to_string()))
            });
        }
        all.push(Value::Object(ours));
    }
    Ok((differences, json!({"sha256": golden.sha256, "items": all})))
}

impl Golden {
    fn open(&self, path: &Path) -> Result<Tokenizer, Stop> {
        if is_gguf(path) {
            return inference::gguf_tokenizer(path).map_err(Stop::failed);
        }
        if self.library == "tiktoken" {
            let pattern = self.split_pattern.clone();
            let spec = TiktokenSpec {
                pattern: pattern.ok_or_else(|| Stop::Failed("tiktoken ranks without split_pattern".into()))?,
                special_tokens: self.special_tokens.iter().cloned().zip(self.special_start..).collect(),
                nfc: true,
            };
            return Tokenizer::from_tiktoken(path, &spec).map_err(Stop::failed);
        }
        // The reference reads this file alone, not what lies beside it.
        match path.extension().is_some_and(|e| e == "json") {
            true => {
                std::fs::read(path).map_err(Stop::failed).and_then(|b| Tokenizer::from_json(&b).map_err(Stop::failed))
            }
            false => Tokenizer::open(path).map_err(Stop::failed),
        }
    }
}

/// The values of the wanted keys that are known here.
fn about_text(
    tokenizer: &Tokenizer,
    model: Option<&Tokenizer>,
    text: &str,
    wanted: &Map<String, Value>,
) -> Result<Map<String, Value>, Stop> {
    let encoding = tokenizer.encode(text, true).map_err(Stop::failed)?;
    let plain = || tokenizer.encode_ids(text, false).map_err(Stop::failed);
    let of_model = || model.map(|m| m.encode_ids(text, false).map_err(Stop::failed)).transpose();
    let mut ours = Map::new();
    for key in wanted.keys() {
        let value = match key.as_str() {
            "ids" => json!(encoding.ids),
            "ids_plain" => json!(plain()?),
            "offsets" => json!(encoding.offsets),
            "decoded" => json!(tokenizer.decode(&encoding.ids, false)),
            "decoded_skip" => json!(tokenizer.decode(&encoding.ids, true)),
            "sp_ids" => json!(of_model()?),
            "sp_decoded" => json!(of_model()?.zip(model).map(|(ids, model)| model.decode(&ids, false))),
            _ => continue,
        };
        if !value.is_null() {
            ours.insert(key.clone(), value);
        }
    }
    Ok(ours)
}

/// A pair of texts with truncation and padding, or a padded batch.
fn about_pair(
    tokenizer: &Tokenizer,
    texts: &[String],
    wanted: &Map<String, Value>,
) -> Result<Map<String, Value>, Stop> {
    let text = |index: &Value| {
        let text = index.as_u64().and_then(|i| texts.get(usize::try_from(i).ok()?));
        text.map(String::as_str).ok_or_else(|| Stop::Failed(format!("{index} is no text")))
    };
    let encode = |text, pair, options: &EncodeOptions| tokenizer.encode_with(text, pair, options);
    let pad_id = tokenizer.token_to_id("[PAD]").unwrap_or(0);
    let to = pad_to(wanted.get("pad_to").unwrap_or(&Value::Null))?;
    if let Some(batch) = wanted.get("batch").and_then(Value::as_array) {
        let one = |index| encode(text(index)?, None, &EncodeOptions::default()).map_err(Stop::failed);
        let encodings = batch.iter().map(one).collect::<Result<Vec<Encoding>, _>>()?;
        let padded: Vec<Map<String, Value>> =
            pad(encodings, to.unwrap_or(PadTo::Longest), pad_id).iter().map(fields).collect();
        let keys = wanted.keys().filter(|key| padded.iter().all(|p| p.contains_key(*key)));
        return Ok(keys.map(|key| (key.clone(), padded.iter().map(|p| p[key].clone()).collect())).collect());
    }
    let strategy = match wanted.get("strategy").and_then(Value::as_str) {
        None | Some("longest_first") => Strategy::LongestFirst,
        Some("only_first") => Strategy::OnlyFirst,
        Some("only_second") => Strategy::OnlySecond,
        Some(other) => return Err(Stop::Failed(format!("strategy {other} is unknown"))),
    };
    let max_length = wanted.get("max_length").and_then(Value::as_u64).map(|n| n as usize);
    let truncation = max_length.map(|max_length| Truncation { max_length, strategy });
    let (first, second) = (wanted.get("a").unwrap_or(&Value::Null), wanted.get("b").unwrap_or(&Value::Null));
    let second = if second.is_null() { None } else { Some(text(second)?) };
    match encode(text(first)?, second, &EncodeOptions { truncation, ..Default::default() }) {
        Err(error) => Ok(Map::from_iter([("error".to_owned(), json!(error.to_string()))])),
        Ok(encoding) => Ok(fields(&pad(vec![encoding], to.unwrap_or(PadTo::Multiple(1)), pad_id)[0])),
    }
}

fn fields(padded: &Padded) -> Map<String, Value> {
    let Padded { encoding: e, attention_mask } = padded;
    let special: Vec<u8> = e.special_mask.iter().map(|&s| s.into()).collect();
    let fields = json!({
        "ids": e.ids, "type_ids": e.type_ids, "attention_mask": attention_mask, "special_tokens_mask": special,
        "offsets": e.offsets, "sequence_ids": e.sequence_ids,
    });
    fields.as_object().cloned().unwrap_or_default()
}

/// `null`, `"longest"`, a length, or `"multiple of N"`.
fn pad_to(value: &Value) -> Result<Option<PadTo>, Stop> {
    let multiple = |text: &str| text.strip_prefix("multiple of ")?.parse().ok().filter(|n| (1..=1 << 20).contains(n));
    match value {
        Value::Null => return Ok(None),
        Value::String(text) if text == "longest" => Some(PadTo::Longest),
        Value::String(text) => multiple(text).map(PadTo::Multiple),
        number => number.as_u64().filter(|n| *n <= 1 << 20).map(|n| PadTo::Length(n as usize)),
    }
    .map(Some)
    .ok_or_else(|| Stop::Failed(format!("pad_to {value} is unknown")))
}

fn short(text: &str) -> String {
    let cut: String = text.chars().take(120).collect();
    if cut.len() < text.len() { cut + "…" } else { cut }
}
