//! Every tokenizer golden, id for id: the small ones always, those of real tokenizers where their files lie.

use std::path::{Path, PathBuf};

use lattice_tokenizer::{EncodeOptions, PadTo, SourceKind, Strategy, TiktokenSpec, Tokenizer, Truncation, pad};
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).unwrap()
}

fn small() -> PathBuf {
    root().join("goldens/tokenizers")
}

/// Goldens of real tokenizers, and the folder that holds such a tokenizer; says so and gives none where either is absent.
fn real(name: &str) -> Option<(Value, PathBuf)> {
    let golden = root().join("../shared/goldens/cases/tokenizers").join(format!("{name}.json"));
    let files = std::env::var_os("LATTICE_TOKENIZER_FILES").map(PathBuf::from);
    let files = files.unwrap_or_else(|| root().join("../t/files")).join(name);
    if golden.is_file() && files.is_dir() {
        return Some((read(&golden), files));
    }
    eprintln!("skipped: {name} needs {} and {} (or LATTICE_TOKENIZER_FILES)", golden.display(), files.display());
    None
}

fn texts() -> Vec<String> {
    serde_json::from_value(read(&small().join("texts.json"))).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

/// All rows of a golden against a tokenizer; a report of those that differ.
fn check(name: &str, tokenizer: &Tokenizer, golden: &Value) {
    let mut report = Vec::new();
    let mut expect = |what: &str, text: &str, ok: bool, detail: String| {
        if !ok {
            report.push(format!("{name} {what} of {text:?}: {detail}"));
        }
    };
    for (text, item) in texts().iter().zip(golden["items"].as_array().unwrap()) {
        let expected = ids(&item["ids"]);
        let got = tokenizer.encode(text, true).unwrap();
        expect("ids", text, got.ids == expected, format!("{:?}, expected {expected:?}", got.ids));
        let fast = tokenizer.encode_ids(text, true).unwrap();
        expect("fast ids", text, fast == expected, format!("{fast:?}, expected {expected:?}"));
        if let Some(offsets) = item.get("offsets") {
            let offsets: Vec<(usize, usize)> = serde_json::from_value(offsets.clone()).unwrap();
            expect("offsets", text, got.offsets == offsets, format!("{:?}, expected {offsets:?}", got.offsets));
        }
        let plain = item.get("ids_plain").map_or(expected.clone(), ids);
        let got = tokenizer.encode_ids(text, false).unwrap();
        expect("ids_plain", text, got == plain, format!("{got:?}, expected {plain:?}"));
        let decoded = item["decoded"].as_str().unwrap();
        for (skip, want) in
            [(false, decoded), (true, item.get("decoded_skip").map_or(decoded, |d| d.as_str().unwrap()))]
        {
            if skip && golden["library"] == "tiktoken" {
                continue;
            }
            let got = tokenizer.decode(&expected, skip);
            expect("decoded", text, got == want, format!("{got:?}, expected {want:?} (skip {skip})"));
        }
    }
    assert!(report.is_empty(), "{} rows differ:\n{}", report.len(), report.join("\n"));
}

#[test]
fn wordpiece_from_json_and_from_vocab_txt() {
    let golden = read(&small().join("wordpiece.json"));
    for file in ["tokenizer.json", "vocab.txt"] {
        check(file, &Tokenizer::open(small().join("files/wordpiece").join(file)).unwrap(), &golden);
    }
}

#[test]
fn byte_level_bpe_from_json_and_from_vocab_and_merges() {
    let golden = read(&small().join("byte_bpe.json"));
    let dir = small().join("files/byte_bpe");
    check("tokenizer.json", &Tokenizer::open(&dir).unwrap(), &golden);

    let json = read(&dir.join("tokenizer.json"));
    let scratch = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| std::fs::write(scratch.path().join(name), text).unwrap();
    write("vocab.json", json["model"]["vocab"].to_string());
    let merges: Vec<String> = json["model"]["merges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| {
            m.as_str().map_or_else(|| format!("{} {}", m[0].as_str().unwrap(), m[1].as_str().unwrap()), str::to_owned)
        })
        .collect();
    write("merges.txt", format!("#version: 0.2\n{}\n", merges.join("\n")));
    let added: serde_json::Map<String, Value> =
        json["added_tokens"].as_array().unwrap().iter().map(|t| (t["id"].to_string(), t.clone())).collect();
    write(
        "tokenizer_config.json",
        serde_json::json!({"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": added}).to_string(),
    );
    let tokenizer = Tokenizer::open(scratch.path()).unwrap();
    assert_eq!(tokenizer.source().kind, SourceKind::ByteLevelBpe);
    check("vocab.json", &tokenizer, &golden);
}

#[test]
fn sentencepiece_from_json_as_tokenizers_and_from_model_as_the_library() {
    for (name, kind) in [("spm_bpe", SourceKind::SentencePieceBpe), ("spm_unigram", SourceKind::SentencePieceUnigram)] {
        let golden = read(&small().join(format!("{name}.json")));
        let dir = small().join("files").join(name);
        check(name, &Tokenizer::open(&dir).unwrap(), &golden);

        let tokenizer = Tokenizer::open(dir.join("tokenizer.model")).unwrap();
        assert_eq!(tokenizer.source().kind, kind);
        let mut report = Vec::new();
        for (text, item) in texts().iter().zip(golden["items"].as_array().unwrap()) {
            let expected = ids(&item["sp_ids"]);
            let got = tokenizer.encode(text, true).unwrap();
            if got.ids != expected || tokenizer.encode_ids(text, true).unwrap() != expected {
                report.push(format!("{text:?}: {:?}, expected {expected:?}", got.ids));
            }
            let characters = text.chars().count();
            if got.offsets.iter().any(|&(a, b)| a > b || b > characters) {
                report.push(format!("{text:?}: offsets {:?}", got.offsets));
            }
            let decoded = tokenizer.decode(&expected, false);
            if decoded != item["sp_decoded"].as_str().unwrap() {
                report.push(format!("{decoded:?}, expected {}", item["sp_decoded"]));
            }
        }
        assert!(report.is_empty(), "{name}: {} rows differ:\n{}", report.len(), report.join("\n"));
    }
}

/// The models that `goldens/scripts/sentencepiece_cases.py` makes, and what the library makes of random texts and ids. Another
/// folder made by it can be named by LATTICE_SENTENCEPIECE_CASES.
#[test]
fn sentencepiece_models_of_every_kind_equal_the_library() {
    let dir = std::env::var_os("LATTICE_SENTENCEPIECE_CASES").map(PathBuf::from);
    let dir = dir.unwrap_or_else(|| small().join("sentencepiece"));
    let mut report = Vec::new();
    let mut rows = 0;
    for entry in std::fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "model") {
            continue;
        }
        let tokenizer = Tokenizer::open(&path).unwrap();
        for item in read(&path.with_extension("json"))["items"].as_array().unwrap() {
            rows += 1;
            let name = path.file_stem().unwrap().display();
            let (text, expected) = (item["text"].as_str().unwrap(), ids(&item["ids"]));
            let got = tokenizer.encode_ids(text, true).unwrap();
            if got != expected {
                let (got, expected) = (tokenizer.pieces(&got), tokenizer.pieces(&expected));
                report.push(format!("{name}: {text:?}: {got:?}, expected {expected:?}"));
            }
            for (ids_key, text_key) in [("ids", "decoded"), ("noise", "noise_decoded")] {
                let (list, expected) = (ids(&item[ids_key]), item[text_key].as_str().unwrap());
                let got = tokenizer.decode(&list, true);
                if got != expected {
                    report.push(format!("{name}: {:?}: {got:?}, expected {expected:?}", tokenizer.pieces(&list)));
                }
            }
        }
    }
    assert!(rows > 0 && report.is_empty(), "{} of {rows} rows differ:\n{}", report.len(), report.join("\n"));
}

#[test]
fn real_tokenizers_give_the_reference_ids() {
    for name in ["minilm", "qwen3", "gemma3", "llama3"] {
        if let Some((golden, files)) = real(name) {
            check(name, &Tokenizer::open(files).unwrap(), &golden);
        }
    }
}

#[test]
fn minilm_from_vocab_txt_equals_its_json() {
    if let Some((golden, files)) = real("minilm") {
        check("vocab.txt", &Tokenizer::open(files.join("vocab.txt")).unwrap(), &golden);
    }
}

#[test]
fn tiktoken_ranks_with_a_specification() {
    let Some((golden, files)) = real("qwen3_5") else { return };
    let start = golden["special_start"].as_u64().unwrap() as u32;
    let tokens: Vec<String> = serde_json::from_value(golden["special_tokens"].clone()).unwrap();
    let spec = TiktokenSpec {
        pattern: golden["split_pattern"].as_str().unwrap().to_owned(),
        special_tokens: tokens.into_iter().zip(start..).collect(),
        nfc: true,
    };
    let tokenizer = Tokenizer::from_tiktoken(files.join("qwen3_6.tiktoken"), &spec).unwrap();
    check("qwen3_5", &tokenizer, &golden);
    let refused = Tokenizer::open(&files).unwrap_err().to_string();
    assert!(refused.contains("holds ranks only"), "{refused}");
}

#[test]
fn pairs_truncation_and_padding() {
    let Some((_, files)) = real("minilm") else { return };
    let golden = read(&root().join("../shared/goldens/cases/tokenizers/bert_pairs.json"));
    let (texts, tokenizer) = (texts(), Tokenizer::open(files).unwrap());
    for case in golden["items"].as_array().unwrap() {
        if let Some(batch) = case.get("batch") {
            let encodings = ids(batch).iter().map(|&i| tokenizer.encode(&texts[i as usize], true).unwrap()).collect();
            for (i, padded) in pad(encodings, PadTo::Longest, 0).into_iter().enumerate() {
                assert_eq!(padded.encoding.ids, ids(&case["ids"][i]));
                assert_eq!(padded.attention_mask, ids(&case["attention_mask"][i]));
            }
            continue;
        }
        let max_length = case["max_length"].as_u64().unwrap() as usize;
        let strategy = match case["strategy"].as_str().unwrap() {
            "only_first" => Strategy::OnlyFirst,
            "only_second" => Strategy::OnlySecond,
            _ => Strategy::LongestFirst,
        };
        let text = |key: &str| texts[case[key].as_u64().unwrap() as usize].as_str();
        let options =
            EncodeOptions { truncation: Some(Truncation { max_length, strategy }), ..EncodeOptions::default() };
        let encoding = tokenizer.encode_with(text("a"), Some(text("b")), &options);
        if case.get("error").is_some() {
            let error = encoding.unwrap_err().to_string();
            assert!(error.starts_with("cannot truncate to "), "{error}");
            continue;
        }
        let to = match &case["pad_to"] {
            Value::Null => PadTo::Longest,
            Value::Number(n) => PadTo::Length(n.as_u64().unwrap() as usize),
            _ => PadTo::Multiple(8),
        };
        let padded = pad(vec![encoding.unwrap()], to, 0).remove(0);
        let e = &padded.encoding;
        let special: Vec<u32> = e.special_mask.iter().map(|&s| u32::from(s)).collect();
        assert_eq!(e.ids, ids(&case["ids"]), "{case}");
        assert_eq!(e.type_ids, ids(&case["type_ids"]), "{case}");
        assert_eq!(padded.attention_mask, ids(&case["attention_mask"]), "{case}");
        assert_eq!(special, ids(&case["special_tokens_mask"]), "{case}");
        assert_eq!(serde_json::json!(e.offsets), case["offsets"], "{case}");
        assert_eq!(serde_json::json!(e.sequence_ids), case["sequence_ids"], "{case}");
    }
}
