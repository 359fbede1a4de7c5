//! Does a GGUF file that llama.cpp's converter made of a Hugging Face directory look like that directory again?
//!
//! Each folder of `goldens/gguf_names` holds a tiny model in both forms; `goldens/scripts/gen_gguf_names.py` made them.

use lattice_weights::{Checkpoint, Format, Tensor, gguf};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

fn folders() -> Vec<PathBuf> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/gguf_names");
    let mut folders: Vec<_> =
        std::fs::read_dir(cases).expect("the project has them").map(|f| f.unwrap().path()).collect();
    folders.retain(|folder| folder.join("model.gguf").exists());
    folders.sort();
    folders
}

/// The Hugging Face directory of a case; its GGUF file is no part of it.
fn directory(folder: &Path) -> Checkpoint {
    let index = folder.join("model.safetensors.index.json");
    Checkpoint::open(if index.exists() { index } else { folder.join("model.safetensors") }).unwrap()
}

#[test]
fn tensors_have_the_names_shapes_and_values_of_the_directory() {
    let mut faults = Vec::new();
    for folder in folders() {
        let case = folder.file_name().unwrap().to_string_lossy().into_owned();
        let view = match Checkpoint::open(folder.join("model.gguf")).unwrap().as_hugging_face() {
            Ok(view) => view,
            Err(error) => {
                faults.push(format!("{case}: {error}"));
                continue;
            }
        };
        let theirs = directory(&folder);
        let repeated = repeated_heads(&folder, &view.config);
        let mut seen = 0;
        for expected in theirs.names().map(|name| theirs.get(name).unwrap()) {
            let name = expected.name();
            if name.contains("pooler") || name.contains("position_ids") {
                continue; // which the converter leaves out
            }
            let found = [name, &format!("model.{name}"), name.trim_start_matches("roberta.")]
                .iter()
                .find_map(|name| view.checkpoint.find(name));
            let Some(got) = found else {
                faults.push(format!("{case}: {name} is missing"));
                continue;
            };
            seen += 1;
            let expected = match repeated {
                Some(heads) => in_file_order(&expected, heads),
                None => expected,
            };
            if let Err(fault) = same(&got, &expected) {
                faults.push(format!("{case}: {fault}"));
            }
        }
        let more: Vec<&str> = view.checkpoint.names().collect();
        if more.len() != seen && !more.contains(&"rope_freqs.weight") {
            faults.push(format!("{case}: {} tensors of the file are {seen} of the directory", more.len()));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

fn same(got: &Tensor, expected: &Tensor) -> Result<(), String> {
    let positions = got.name().ends_with("position_embeddings.weight"); // the rows before the file's are not read
    if got.shape() != expected.shape() {
        return Err(format!("{} is {:?}, expected {:?}", got.name(), got.shape(), expected.shape()));
    }
    let scale = expected.to_f32().unwrap().iter().fold(0f32, |m, v| m.max(v.abs()));
    let tolerance = match got.format() {
        Format::Q8_0 => scale / 127.0,
        Format::F32 => scale.max(1.0) * f32::EPSILON,
        Format::F16 => scale / 2048.0, // of rows that are too short for blocks
        _ => 0.0,
    };
    let skip = if positions { 2 * got.cols() } else { 0 };
    let pairs = got.to_f32().unwrap().into_iter().zip(expected.to_f32().unwrap()).skip(skip);
    match pairs.enumerate().find(|(_, (g, e))| (g - e).abs() > tolerance) {
        Some((at, (g, e))) => Err(format!("{} ({}): element {at} is {g}, expected {e}", got.name(), got.format())),
        None => Ok(()),
    }
}

/// Key heads, value heads and their width, where the view repeats key heads.
fn repeated_heads(folder: &Path, config: &Value) -> Option<[usize; 3]> {
    let theirs = read(folder);
    let size = |config: &Value, key: &str| config[key].as_u64().map(|n| n as usize);
    let keys = size(&theirs, "linear_num_key_heads")?;
    let values = size(&theirs, "linear_num_value_heads")?;
    let changed = size(config, "linear_num_key_heads") != Some(keys);
    changed.then_some([keys, values, size(&theirs, "linear_value_head_dim")?])
}

/// What a tensor of the directory is when value heads stay in the file's order, in turns through the key heads.
fn in_file_order(tensor: &Tensor, [keys, values, width]: [usize; 3]) -> Tensor {
    let Some((_, part)) = tensor.name().split_once(".linear_attn.") else { return tensor.clone() };
    let head = |i: usize| i % keys * (values / keys) + i / keys;
    let rows = |width: usize| (0..values).flat_map(move |i| (0..width).map(move |x| head(i) * width + x));
    match part {
        "in_proj_a.weight" | "in_proj_b.weight" | "A_log" | "dt_bias" => {
            tensor.gather_rows(&rows(1).collect::<Vec<_>>()).unwrap()
        }
        "in_proj_z.weight" => tensor.gather_rows(&rows(width).collect::<Vec<_>>()).unwrap(),
        "out_proj.weight" => tensor.gather_columns(width, &(0..values).map(head).collect::<Vec<_>>()).unwrap(),
        "in_proj_qkv.weight" | "conv1d.weight" => {
            let key_rows = (tensor.shape()[0] - values * width) / 2;
            let key_width = key_rows / keys;
            let mut order = Vec::new();
            for first in [0, key_rows] {
                order.extend((0..values).flat_map(|i| (0..key_width).map(move |x| first + i % keys * key_width + x)));
            }
            order.extend(rows(width).map(|row| 2 * key_rows + row));
            tensor.gather_rows(&order).unwrap()
        }
        _ => tensor.clone(),
    }
}

fn read(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap()
}

/// Keys of config.json that a forward pass does not depend on.
const IGNORED: &[&str] = &[
    "_sliding_window_pattern",
    "classifier_activation",
    "classifier_pooling",
    "cls_token_id",
    "decoder_bias",
    "dtype",
    "initializer_cutoff_factor",
    "initializer_range",
    "label2id",
    "max_window_layers",
    "num_local_experts", // another name of num_experts
    "pretraining_tp",
    "router_aux_loss_coef",
    "sep_token_id",
    "sparse_pred_ignore_index",
    "tie_word_embeddings", // of encoders
    "transformers_version",
    "use_cache",
];

/// What a file cannot say, or says otherwise: case, key, and what the view says.
fn known() -> Vec<(&'static str, &'static str, Value)> {
    let factors = |theta: f64, factors: &[f32]| json!({ "rope_type": "freq_factors", "rope_theta": theta, "rope_freq_factors": factors });
    let mut of_golden = [8.0; 16];
    of_golden[..3].copy_from_slice(&[1.0, 1.0, 2.4422593]);
    vec![
        ("llama", "rope_parameters", factors(1e4, &[1.0, 8.0, 8.0, 8.0])),
        ("gguf_llama_q4_0_llama3_rope", "rope_parameters", factors(5e5, &of_golden)),
        ("qwen35moe_q8_0", "linear_num_key_heads", json!(4)), // repeated
    ]
}

#[test]
fn config_says_what_the_directorys_says() {
    let mut folders = folders();
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/goldens/cases");
    match std::fs::read_dir(&shared) {
        Ok(cases) => folders.extend(cases.map(|f| f.unwrap().path()).filter(|f| f.join("model.gguf").exists())),
        Err(_) => eprintln!("skipped: the complete goldens are not there ({})", shared.display()),
    }
    let mut faults = Vec::new();
    for folder in folders {
        let case = folder.file_name().unwrap().to_string_lossy().into_owned();
        let ours = gguf::config(&Checkpoint::open(folder.join("model.gguf")).unwrap()).unwrap();
        for (key, expected) in read(&folder).as_object().unwrap() {
            let known = known().into_iter().find(|(k_case, k, _)| *k_case == case && k == key);
            let expected = known.map_or(expected.clone(), |(_, _, value)| value);
            let ignored = key.contains("dropout") || IGNORED.contains(&key.as_str());
            let neutral = ignored || expected.is_null() || expected == false;
            // Cases of gguf_* give their tokenizer's special ids only in the file.
            let own_ids = case.starts_with("gguf_") && key.ends_with("_token_id");
            if !(means(&ours[key], &expected) || neutral && ours[key].is_null() || own_ids) {
                faults.push(format!("{case}: {key} is {}, expected {expected}", ours[key]));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// The same JSON, where `1` is `1.0`, and nothing `null`.
fn means(got: &Value, expected: &Value) -> bool {
    match (got, expected) {
        (Value::Object(got), Value::Object(expected)) => {
            let get = |map: &Map<String, Value>, key| map.get(key).cloned().unwrap_or_default();
            got.keys().chain(expected.keys()).all(|key| means(&get(got, key), &get(expected, key)))
        }
        (Value::Number(got), Value::Number(expected)) => got.as_f64() == expected.as_f64(),
        _ => got == expected,
    }
}
