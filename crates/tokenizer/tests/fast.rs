//! The fast ways give the ids of the general one, for any text.

use std::path::{Path, PathBuf};

use lattice_tokenizer::{EncodeOptions, Ids, Tokenizer, Truncation};
use proptest::prelude::*;
use serde_json::Value;

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/tokenizers")
}

fn tokenizers() -> Vec<Tokenizer> {
    let files = goldens().join("files");
    let mut all: Vec<Tokenizer> = ["wordpiece", "byte_bpe", "spm_bpe", "spm_unigram", "spm_unigram/tokenizer.model"]
        .iter()
        .map(|name| Tokenizer::open(files.join(name)).unwrap())
        .collect();
    // Cased, and with an added token that is not special.
    let json = std::fs::read(files.join("wordpiece/tokenizer.json")).unwrap();
    let mut json: Value = serde_json::from_slice(&json).unwrap();
    json["normalizer"]["lowercase"] = false.into();
    let mut token = json["added_tokens"][0].clone();
    for (key, value) in [("id", 900.into()), ("content", "a-b".into()), ("special", false.into())] {
        token[key] = value;
    }
    json["added_tokens"].as_array_mut().unwrap().push(token.clone());
    all.push(Tokenizer::from_json(json.to_string().as_bytes()).unwrap());
    // Looked for in normalised text, in whole words only.
    token["normalized"] = true.into();
    token["single_word"] = true.into();
    token["content"] = "A B".into();
    *json["added_tokens"].as_array_mut().unwrap().last_mut().unwrap() = token;
    all.push(Tokenizer::from_json(json.to_string().as_bytes()).unwrap());
    all
}

#[test]
fn ids_alone_equal_those_with_offsets_for_texts_and_pairs() {
    let all = tokenizers();
    let texts: Vec<String> = serde_json::from_slice(&std::fs::read(goldens().join("texts.json")).unwrap()).unwrap();
    let part = prop_oneof![
        prop::sample::select(texts),
        "[ -~]{0,12}",
        "[\\x00-\\x7f]{0,8}",
        "\\PC{0,6}",
        prop::sample::select(vec![
            "[MASK]", "[CLS", "a-b", "A B", "a b", "<s>", "\u{a0}", "\u{b}", "x\u{301}", "中", "\u{fffd}"
        ])
        .prop_map(str::to_owned),
        "[a-z]{95,105}",
    ];
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1500) };
    proptest!(config, |(parts in prop::collection::vec((part, prop::sample::select(vec!["", " ", "\n"])), 0..5), plain: bool, add_special: bool, max_length in 0usize..20)| {
        let text: String = parts.iter().flat_map(|(a, b)| [a.as_str(), b]).collect();
        let options = EncodeOptions { plain, ..EncodeOptions::default() };
        for tokenizer in &all {
            let slow = tokenizer.encode_with(&text, None, &options).unwrap().ids;
            let fast = tokenizer.encode_ids_with(&text, &options).unwrap().0;
            prop_assert_eq!(tokenizer.pieces(&fast), tokenizer.pieces(&slow), "{:?} {:?}", tokenizer, text);
            let truncation = (max_length > 3).then(|| Truncation::to(max_length));
            let options = EncodeOptions { add_special, truncation, ..options };
            let slow = tokenizer.encode_with(&text, Some("a b"), &options).unwrap();
            let fast = tokenizer.encode_pair_ids_with(&text, "a b", &options).unwrap();
            prop_assert_eq!(fast, Ids { ids: slow.ids, type_ids: slow.type_ids, removed: slow.removed });
        }
    });
}
