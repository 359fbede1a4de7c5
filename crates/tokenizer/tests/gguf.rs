//! Tokenizers out of GGUF metadata give the ids of the files that they were made from.

use std::path::{Path, PathBuf};

use lattice_tokenizer::{GgufVocab, Special, Tokenizer};
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).unwrap()
}

fn goldens() -> PathBuf {
    root().join("goldens/tokenizers")
}

fn texts() -> Vec<String> {
    serde_json::from_value(read(&goldens().join("texts.json"))).unwrap()
}

/// The metadata that conversion writes for a SentencePiece tokenizer.
fn from_model(model: &str, name: &str) -> GgufVocab {
    let json = read(&goldens().join("files").join(name).join("tokenizer.json"));
    let tokenizer = Tokenizer::open(goldens().join("files").join(name).join("tokenizer.model")).unwrap();
    let tokens: Vec<String> = (0..tokenizer.vocab_size() as u32).map(|id| tokenizer.id_to_token(id).unwrap()).collect();
    let kind = |token: &String| match token.as_str() {
        "<unk>" => 2,
        "<s>" | "</s>" => 3,
        t if t.starts_with("<0x") => 6,
        _ => 1,
    };
    // The scores of BPE pieces are their negative rank.
    let score = |id: usize| match json["model"]["type"].as_str() {
        Some("Unigram") => json["model"]["vocab"][id + 1][1].as_f64().unwrap() as f32,
        _ => 259.0 - id as f32,
    };
    GgufVocab {
        model: model.into(),
        types: tokens.iter().map(kind).collect(),
        scores: (0..tokens.len()).map(score).collect(),
        tokens,
        bos: Some(1),
        eos: Some(2),
        ..GgufVocab::default()
    }
}

#[test]
fn llama_metadata_equals_the_model_file() {
    let vocab = from_model("llama", "spm_bpe");
    let tokenizer = Tokenizer::from_gguf(&vocab).unwrap();
    let golden = read(&goldens().join("spm_bpe.json"));
    for (text, item) in texts().iter().zip(golden["items"].as_array().unwrap()) {
        let expected: Vec<u32> = serde_json::from_value(item["ids"].clone()).unwrap();
        let got = tokenizer.encode_ids(text, true).unwrap();
        // `tokenizers` puts no space in front of nothing, the library neither.
        assert_eq!(got, expected, "{text:?}");
        let sp: Vec<u32> = serde_json::from_value(item["sp_ids"].clone()).unwrap();
        assert_eq!(tokenizer.encode_plain(text).unwrap(), sp, "{text:?}");
    }
    assert_eq!(tokenizer.special(Special::Eos), Some(2));
}

#[test]
fn t5_metadata_without_a_charsmap_segments_as_unigram() {
    let tokenizer = Tokenizer::from_gguf(&from_model("t5", "spm_unigram")).unwrap();
    let model = Tokenizer::open(goldens().join("files/spm_unigram/tokenizer.model")).unwrap();
    for text in ["Hello, world!", "  two  spaces ", "The quick brown fox."] {
        let mut expected = model.encode_ids(text, true).unwrap();
        expected.push(2);
        assert_eq!(tokenizer.encode_ids(text, true).unwrap(), expected, "{text:?}");
    }
}

#[test]
fn gpt2_metadata_equals_the_json_file() {
    let json = read(&goldens().join("files/byte_bpe/tokenizer.json"));
    let reference = Tokenizer::open(goldens().join("files/byte_bpe")).unwrap();
    let tokens: Vec<String> = (0..reference.vocab_size() as u32).map(|id| reference.id_to_token(id).unwrap()).collect();
    let merge = |m: &Value| {
        m.as_str().map_or_else(|| format!("{} {}", m[0].as_str().unwrap(), m[1].as_str().unwrap()), str::to_owned)
    };
    let mut vocab = GgufVocab {
        model: "gpt2".into(),
        pre: Some("qwen2".into()),
        types: (0..tokens.len()).map(|id| if id < 637 { 1 } else { 3 }).collect(),
        tokens,
        merges: json["model"]["merges"].as_array().unwrap().iter().map(merge).collect(),
        eos: Some(639),
        ..GgufVocab::default()
    };
    let tokenizer = Tokenizer::from_gguf(&vocab).unwrap();
    for text in texts() {
        assert_eq!(tokenizer.encode_ids(&text, true).unwrap(), reference.encode_ids(&text, true).unwrap(), "{text:?}");
    }
    let refused = |vocab: &GgufVocab| Tokenizer::from_gguf(vocab).unwrap_err().to_string();
    vocab.bos = Some(640);
    assert_eq!(
        refused(&vocab),
        "tokenizer of the GGUF file: tokenizer.ggml.bos_token_id is 640, but there are 640 tokens"
    );
    vocab.bos = None;
    vocab.add_bos = Some(true);
    assert_eq!(refused(&vocab), "tokenizer of the GGUF file: the file adds bos_token_id and names none");
    vocab.add_bos = None;
    vocab.pre = Some("martian".into());
    assert!(refused(&vocab).starts_with("tokenizer of the GGUF file: tokenizer.ggml.pre \"martian\" is not known"));
    vocab.pre = Some("qwen2".into());
    vocab.merges[0] = "x".into();
    assert!(refused(&vocab).contains("tokenizer.ggml.merges[0] is \"x\", expected two tokens"));
    vocab.types.pop();
    assert!(refused(&vocab).contains("tokenizer.ggml.token_type has 639 entries for 640 tokens"));
}

#[test]
fn bert_metadata_equals_vocab_txt() {
    let reference = Tokenizer::open(goldens().join("files/wordpiece")).unwrap();
    let mark = |token: String| match token.strip_prefix("##") {
        Some(rest) => rest.to_owned(),
        None if token.starts_with('[') && token.ends_with(']') => token,
        None => format!("\u{2581}{token}"),
    };
    let tokens = (0..reference.vocab_size() as u32).map(|id| mark(reference.id_to_token(id).unwrap())).collect();
    let vocab =
        GgufVocab { model: "bert".into(), tokens, cls: Some(2), sep: Some(3), unk: Some(1), ..GgufVocab::default() };
    let tokenizer = Tokenizer::from_gguf(&vocab).unwrap();
    for text in texts() {
        assert_eq!(tokenizer.encode_ids(&text, true).unwrap(), reference.encode_ids(&text, true).unwrap(), "{text:?}");
    }
}

/// The metadata of a GGUF file.
fn vocab(path: &Path) -> GgufVocab {
    let checkpoint = weights::Checkpoint::open(path).unwrap();
    let vocab = weights::gguf::Vocab::read(checkpoint.metadata().unwrap()).unwrap();
    GgufVocab {
        model: vocab.model,
        pre: vocab.pre,
        tokens: vocab.tokens,
        scores: vocab.scores,
        types: vocab.types,
        merges: vocab.merges,
        bos: vocab.bos,
        eos: vocab.eos,
        eot: vocab.eot,
        unk: vocab.unk,
        sep: vocab.sep,
        pad: vocab.pad,
        cls: vocab.cls,
        mask: vocab.mask,
        add_bos: vocab.add_bos,
        add_eos: vocab.add_eos,
        add_space_prefix: vocab.add_space_prefix,
        remove_extra_spaces: vocab.remove_extra_spaces,
        charsmap: vocab.charsmap,
        chat_template: vocab.chat_template,
    }
}

/// A tokenizer golden, and the tokenizer inside a GGUF file of that model; says so and gives none where either is absent.
fn real(name: &str, file: &str) -> Option<(Value, Tokenizer)> {
    let golden = root().join("../shared/goldens/cases/tokenizers").join(format!("{name}.json"));
    let files = std::env::var_os("LATTICE_TOKENIZER_FILES").map(PathBuf::from);
    let file = files.unwrap_or_else(|| root().join("../t/files")).join(file);
    if golden.is_file() && file.is_file() {
        return Some((read(&golden), Tokenizer::from_gguf(&vocab(&file)).unwrap()));
    }
    eprintln!("skipped: {name} needs {} and {}", golden.display(), file.display());
    None
}

#[test]
fn smollm2_gives_the_reference_ids() {
    let Some((golden, tokenizer)) = real("smollm2", "smollm2/SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    for (text, item) in texts().iter().zip(golden["items"].as_array().unwrap()) {
        let ids: Vec<u32> = serde_json::from_value(item["ids"].clone()).unwrap();
        let got = tokenizer.encode(text, true).unwrap();
        assert_eq!(got.ids, ids, "{text:?}");
        assert_eq!(serde_json::json!(got.offsets), item["offsets"], "{text:?}");
        assert_eq!(tokenizer.decode(&ids, false), item["decoded"].as_str().unwrap());
        let skipped = item.get("decoded_skip").unwrap_or(&item["decoded"]);
        assert_eq!(tokenizer.decode(&ids, true), skipped.as_str().unwrap());
    }
    assert!(tokenizer.chat_template(None).is_ok());
}

#[test]
fn gemma3_gives_the_ids_of_its_json_file() {
    let Some((golden, tokenizer)) = real("gemma3", "gemma3-270m.gguf") else { return };
    let mut report = Vec::new();
    for (text, item) in texts().iter().zip(golden["items"].as_array().unwrap()) {
        let ids: Vec<u32> = serde_json::from_value(item["ids"].clone()).unwrap();
        // The JSON file is that of larger models, with one more token for images; and it takes the mark for a space,
        // where it stands in a text, for one.
        if text.contains('\u{2581}') || ids.iter().any(|&id| id as usize >= tokenizer.vocab_size()) {
            continue;
        }
        let got = tokenizer.encode_ids(text, true).unwrap();
        if got != ids {
            report.push(format!("{text:?}: {:?}, expected {:?}", tokenizer.pieces(&got), tokenizer.pieces(&ids)));
        }
        let decoded = tokenizer.decode(&ids, false);
        if decoded != item["decoded"].as_str().unwrap() {
            report.push(format!("{decoded:?}, expected {}", item["decoded"]));
        }
    }
    assert!(report.is_empty(), "{} rows differ:\n{}", report.len(), report.join("\n"));
}

#[test]
fn golden_models_encode_their_text() {
    let cases = root().join("../shared/goldens/cases");
    let mut seen = 0;
    for name in
        ["gguf_gemma3_q8_0", "gguf_llama_f32", "gguf_llama_q4_0_llama3_rope", "gguf_qwen3_kquants", "gguf_qwen3_q8_0"]
    {
        let dir = cases.join(name);
        if !dir.is_dir() {
            eprintln!("skipped: {} is not there", dir.display());
            continue;
        }
        let inputs = read(&dir.join("inputs.json"));
        let ids: Vec<u32> = serde_json::from_value(inputs["text_ids"].clone()).unwrap();
        let tokenizer = Tokenizer::from_gguf(&vocab(&dir.join("model.gguf"))).unwrap();
        assert_eq!(tokenizer.encode_ids(inputs["text"].as_str().unwrap(), true).unwrap(), ids, "{name}");
        seen += 1;
    }
    eprintln!("{seen} golden models");
}
