//! Which files beside a GGUF model are heeded, and when?

use lattice_inference::{Chat, LanguageModel, gguf_tokenizer};
use ops::{Cpu, CpuOptions};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tokenizer::Special;

/// A folder with a golden's `model.gguf`, which has no template of its own, and these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/gguf_qwen3_q8_0/model.gguf");
    fs::copy(golden, dir.path().join("model.gguf")).unwrap();
    files.iter().for_each(|(name, text)| fs::write(dir.path().join(name), text).unwrap());
    dir
}

fn open(path: &Path) -> LanguageModel {
    let cpu = Cpu::new(&CpuOptions { threads: Some(1), ..CpuOptions::default() }).unwrap();
    LanguageModel::open(path, Arc::new(cpu)).unwrap_or_else(|error| panic!("{error}"))
}

fn rendered(model: &LanguageModel) -> String {
    let messages = [json!({"role": "user", "content": "hi"})];
    model.render(&Chat { messages: &messages, ..Chat::default() }).unwrap()
}

const CONFIG: &str = r#"{"chat_template": "C {{ messages[0].content }}{{ eos_token }}", "eos_token": "ing", "pad_token": "<no such word>"}"#;
const GENERATION: &str = r#"{"temperature": 0.25, "eos_token_id": [7, 9]}"#;
const INFERENCE: &str = r#"{"rope_table_max_seq_len": 64}"#;

#[test]
fn the_files_of_a_folder_win_over_those_in_its_only_gguf_file() {
    let files = [
        ("tokenizer_config.json", CONFIG),
        ("generation_config.json", GENERATION),
        ("inference_config.json", INFERENCE),
        ("mmproj-model.gguf", "the projector of a vision model"),
    ];
    let dir = folder(&files);
    let plain = open(&folder(&[]).path().join("model.gguf"));
    for path in [dir.path().to_owned(), dir.path().join("model.gguf")] {
        let model = open(&path);
        assert_eq!(rendered(&model), "C hiing");
        assert_eq!(model.defaults().params().temperature, 0.25);
        let ing = model.tokenizer().token_to_id("ing").unwrap();
        assert_eq!(model.tokenizer().special(Special::Eos), Some(ing));
        assert!([7, 9, ing].iter().all(|id| model.stop_ids().contains(id)), "{:?}", model.stop_ids());
        assert_eq!(model.engine(Default::default()).unwrap().context(), 64);
        // The vocabulary is the file's own, and what it lacks is no special token.
        assert_eq!(model.encode_text("the other").unwrap(), plain.encode_text("the other").unwrap());
        assert_eq!(model.tokenizer().special(Special::Pad), plain.tokenizer().special(Special::Pad));
    }
    let template = gguf_tokenizer(&dir.path().join("model.gguf")).unwrap().config().chat_template.clone();
    assert!(template.unwrap().starts_with('C'));

    fs::write(dir.path().join("chat_template.jinja"), "J {{ messages[0].content }}").unwrap();
    assert_eq!(rendered(&open(dir.path())), "J hi");
}

#[test]
fn a_gguf_file_among_other_models_stands_alone() {
    for other in ["other.gguf", "model.safetensors"] {
        let dir = folder(&[("tokenizer_config.json", CONFIG), ("generation_config.json", GENERATION), (other, "")]);
        let model = open(&dir.path().join("model.gguf"));
        assert!(!model.has_template(), "{other}");
        assert_eq!(model.defaults().temperature, Some(0.8), "{other}");
    }
}

#[test]
fn a_broken_file_beside_a_gguf_model_is_named() {
    let dir = folder(&[("tokenizer_config.json", "[")]);
    let cpu = Cpu::new(&CpuOptions::default()).unwrap();
    let error = LanguageModel::open(dir.path(), Arc::new(cpu)).err().expect("an error").to_string();
    assert!(error.contains("tokenizer_config.json") && error.contains("JSON"), "{error}");
}
