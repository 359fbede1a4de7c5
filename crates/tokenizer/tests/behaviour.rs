//! What users of engines have stumbled over, and what must hold for any ids and any bytes.

use std::path::{Path, PathBuf};

use lattice_tokenizer::{EncodeOptions, Special, Tokenizer, Truncation};
use proptest::prelude::*;
use serde_json::{Value, json};

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// So many cases, unless PROPTEST_CASES says otherwise.
fn cases(count: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(asked.unwrap_or(count)) }
}

fn files(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/tokenizers/files").join(name)
}

/// A byte-level BPE whose words are whole tokens where the vocabulary has them.
fn byte_level(pattern: &str, words: &[&str], added: Value) -> Value {
    let mut alphabet: Vec<char> = tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet().into_iter().collect();
    alphabet.sort_unstable();
    let mut vocab = serde_json::Map::new();
    for token in alphabet.into_iter().map(String::from).chain(words.iter().map(|w| w.replace(' ', "Ġ"))) {
        let id = vocab.len();
        vocab.entry(token).or_insert(json!(id));
    }
    json!({
        "version": "1.0", "added_tokens": added, "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": true,
            "vocab": vocab, "merges": []},
    })
}

fn from_json(json: &Value) -> Tokenizer {
    Tokenizer::from_json(json.to_string().as_bytes()).unwrap()
}

fn added(id: usize, content: &str, special: bool) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
           "normalized": false, "special": special})
}

#[test]
fn digits_contractions_and_spaces_split_as_llama3_and_qwen_do() {
    let text = "3333+777 cats'll  x";
    let words = ["333", "777", " cats", "'ll", " x"];
    for (pattern, expected) in [
        (LLAMA3, vec!["333", "3", "+", "777", " cats", "'ll", " ", " x"]),
        (QWEN2, vec!["3", "3", "3", "3", "+", "7", "7", "7", " cats", "'ll", " ", " x"]),
    ] {
        let tokenizer = from_json(&byte_level(pattern, &words, json!([])));
        let ids = tokenizer.encode_ids(text, true).unwrap();
        let pieces: Vec<String> = tokenizer.pieces(&ids).iter().map(|p| p.replace('Ġ', " ")).collect();
        assert_eq!(pieces, expected);
        assert_eq!(tokenizer.decode(&ids, true), text);
    }
}

#[test]
fn an_added_token_that_is_not_special_survives_skipping() {
    let tokens = json!([added(256, "<think>", false), added(257, "</think>", false), added(258, "<|im_end|>", true)]);
    let tokenizer = from_json(&byte_level(QWEN2, &[], tokens));
    let ids = tokenizer.encode_ids("<think>hm</think>é<|im_end|>", true).unwrap();
    assert!(ids.contains(&256) && ids.contains(&258));
    assert_eq!(tokenizer.decode(&ids, true), "<think>hm</think>é");
    assert_eq!(tokenizer.decode(&ids, false), "<think>hm</think>é<|im_end|>");
    let mut stream = tokenizer.stream(true);
    let mut text = String::new();
    for &id in &ids {
        text.extend(stream.push(id));
    }
    text.extend(stream.flush());
    assert_eq!(text, "<think>hm</think>é");
    assert!(tokenizer.is_special(258) && !tokenizer.is_special(256));
}

#[test]
fn a_word_longer_than_the_limit_is_unknown() {
    let tokenizer = Tokenizer::open(files("wordpiece")).unwrap();
    let unknown = tokenizer.token_to_id("[UNK]").unwrap();
    let ids = |n| tokenizer.encode_ids(&"a".repeat(n), false).unwrap();
    assert!(ids(100).len() > 1 && !ids(100).contains(&unknown));
    assert_eq!(ids(101), [unknown]);
    let mixed = tokenizer.encode_ids(&format!("hello {} world", "b".repeat(101)), false).unwrap();
    assert_eq!(mixed.iter().filter(|&&id| id == unknown).count(), 1);
}

#[test]
fn special_tokens_in_a_text_are_plain_on_demand() {
    let tokenizer = Tokenizer::open(files("spm_bpe")).unwrap();
    let unknown = tokenizer.token_to_id("<unk>").unwrap();
    assert!(tokenizer.encode_ids("a <unk> b", false).unwrap().contains(&unknown));
    let plain = tokenizer.encode_plain("a <unk> b").unwrap();
    assert!(!plain.contains(&unknown));
    assert_eq!(tokenizer.decode(&plain, true), "a <unk> b");
    let options = EncodeOptions { plain: true, ..EncodeOptions::default() };
    let encoding = tokenizer.encode_with("a <unk> b", None, &options).unwrap();
    assert_eq!(encoding.ids[1..], plain);
}

#[test]
fn truncation_is_the_same_with_and_without_offsets() {
    let tokenizer = Tokenizer::open(files("wordpiece")).unwrap();
    let text = "the quick brown fox jumps over the lazy dog";
    let full = tokenizer.encode(text, true).unwrap();
    for max_length in 2..full.ids.len() + 2 {
        let options = EncodeOptions { truncation: Some(Truncation::to(max_length)), ..EncodeOptions::default() };
        let slow = tokenizer.encode_with(text, None, &options).unwrap();
        let fast = tokenizer.encode_ids_with(text, &options).unwrap();
        assert_eq!((slow.ids.clone(), slow.removed), fast);
        assert_eq!(slow.ids.len() + slow.removed, full.ids.len());
        assert_eq!(slow.ids.last(), full.ids.last());
    }
    let options = EncodeOptions { truncation: Some(Truncation::to(1)), ..EncodeOptions::default() };
    let error = tokenizer.encode_ids_with(text, &options).unwrap_err().to_string();
    assert!(error.starts_with("cannot truncate to 1 tokens by longest_first: the texts have"), "{error}");
}

#[test]
fn a_sentencepiece_model_follows_its_class() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path();
    let class = |name: &str, model: &str, file: &str| {
        std::fs::copy(files(model).join("tokenizer.model"), path.join(file)).unwrap();
        std::fs::write(path.join("tokenizer_config.json"), json!({"tokenizer_class": name}).to_string()).unwrap();
        Tokenizer::open(path.join(file))
    };
    // Fairseq's numbering, as the tokenizer.json beside it has.
    let xlm = class("XLMRobertaTokenizerFast", "spm_unigram", "sentencepiece.bpe.model").unwrap();
    let json = Tokenizer::open(files("spm_unigram")).unwrap();
    for text in ["Hello, world!", "a <mask> b</s>", "naïve café ☃", ""] {
        assert_eq!(xlm.encode(text, true).unwrap().ids, json.encode(text, true).unwrap().ids, "{text}");
        let (a, b) = (xlm.encode_pair(text, "x", true).unwrap(), json.encode_pair(text, "x", true).unwrap());
        assert_eq!((a.ids, a.type_ids), (b.ids, b.type_ids), "{text}");
    }
    assert_eq!(xlm.vocab_size(), json.vocab_size());
    assert_eq!(xlm.special(Special::Mask), json.token_to_id("<mask>"));
    assert_eq!(xlm.special(Special::Pad), Some(1));

    let llama = class("LlamaTokenizer", "spm_bpe", "tokenizer.model").unwrap();
    let json = Tokenizer::open(files("spm_bpe")).unwrap();
    for text in ["Hello, world!", "  two  spaces", "naïve\n", "a</s>"] {
        assert_eq!(llama.encode(text, true).unwrap().ids, json.encode(text, true).unwrap().ids, "{text}");
    }
    assert_eq!((llama.special(Special::Bos), llama.special(Special::Eos)), (Some(1), Some(2)));
    assert_eq!(llama.decode(&llama.encode_ids("Hello", true).unwrap(), true), "Hello");

    let refused = class("ReformerTokenizer", "spm_bpe", "tokenizer.model").unwrap_err().to_string();
    assert!(
        refused.contains("tokenizer_class ReformerTokenizer over a SentencePiece model is not supported"),
        "{refused}"
    );
}

#[test]
fn roberta_files_give_roberta_pairs() {
    let scratch = tempfile::tempdir().unwrap();
    let json = byte_level(QWEN2, &["<s>", "<pad>", "</s>", "<unk>", "<mask>"], json!([]));
    let write = |name: &str, text: String| std::fs::write(scratch.path().join(name), text).unwrap();
    write("vocab.json", json["model"]["vocab"].to_string());
    write("merges.txt", "#version: 0.2\nH e\n".into());
    let refused = Tokenizer::open(scratch.path()).unwrap_err().to_string();
    assert!(refused.contains("He"), "{refused}");
    write("merges.txt", "#version: 0.2\n".into());
    write("config.json", json!({"model_type": "roberta"}).to_string());
    let tokenizer = Tokenizer::open(scratch.path()).unwrap();
    let encoding = tokenizer.encode_pair("a", "b <mask>", true).unwrap();
    let pieces = tokenizer.pieces(&encoding.ids);
    assert_eq!(pieces, ["<s>", "a", "</s>", "</s>", "b", "Ġ", "<mask>", "</s>"]);
    assert_eq!(encoding.type_ids, [0; 8]);
    assert_eq!(encoding.offsets[6], (2, 8));
}

#[test]
fn tokens_of_the_configuration_are_added() {
    let scratch = tempfile::tempdir().unwrap();
    let write = |name: &str, value: Value| std::fs::write(scratch.path().join(name), value.to_string()).unwrap();
    write("tokenizer.json", byte_level(QWEN2, &[], json!([added(256, "<a>", false)])));
    write(
        "tokenizer_config.json",
        json!({"added_tokens_decoder": {"257": {"content": "<b>", "special": true}}, "eos_token": {"content": "<b>"},
               "model_max_length": 1e30, "padding_side": "left",
               "chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]}),
    );
    write("special_tokens_map.json", json!({"pad_token": "<a>", "eos_token": "<a>"}));
    let tokenizer = Tokenizer::open(scratch.path()).unwrap();
    assert_eq!(tokenizer.encode_ids("<a><b>", true).unwrap(), [256, 257]);
    assert_eq!((tokenizer.special(Special::Eos), tokenizer.special(Special::Pad)), (Some(257), Some(256)));
    assert_eq!(tokenizer.decode(&[256, 257], true), "");
    assert_eq!(tokenizer.vocab_size(), 258);
    let config = tokenizer.config();
    assert_eq!((config.model_max_length, config.chat_template.as_deref()), (None, Some("D")));
    assert_eq!(config.chat_templates["tool_use"], "T");
}

#[test]
fn an_empty_folder_and_bare_ranks_are_refused_by_name() {
    let scratch = tempfile::tempdir().unwrap();
    let error = Tokenizer::open(scratch.path()).unwrap_err().to_string();
    assert!(error.starts_with("no tokenizer in ") && error.contains("expected tokenizer.json"), "{error}");
    std::fs::write(scratch.path().join("x.tiktoken"), "IQ== 0\n").unwrap();
    let error = Tokenizer::open(scratch.path()).unwrap_err().to_string();
    assert!(error.contains("holds ranks only: the split pattern and the special tokens must come from"), "{error}");
    std::fs::write(scratch.path().join("tokenizer.json"), "{\"model\": 3").unwrap();
    let error = Tokenizer::open(scratch.path()).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json: "), "{error}");
}

#[test]
fn piece_bytes_are_what_the_piece_adds_to_a_text() {
    let of = |name: &str, token: &str| {
        let tokenizer = Tokenizer::open(files(name)).unwrap();
        tokenizer.piece_bytes(tokenizer.token_to_id(token).unwrap()).unwrap()
    };
    assert_eq!(of("byte_bpe", "Ġ"), b" ");
    assert_eq!(of("byte_bpe", "Ã"), [0xC3]);
    assert_eq!(of("spm_bpe", "<0x0A>"), b"\n");
    assert_eq!(of("spm_bpe", "▁a"), b" a");
    assert_eq!(of("spm_bpe/tokenizer.model", "<0xC3>"), [0xC3]);
    assert_eq!(of("spm_bpe/tokenizer.model", "▁a"), b" a");
    assert_eq!(of("wordpiece", "##a"), b"a");
    assert_eq!(of("wordpiece", "a"), b" a");
}

/// Tokenizers whose decoders differ, and what `tokenizers` itself makes of the same file.
fn decoders() -> Vec<(Tokenizer, tokenizers::Tokenizer)> {
    let mut jsons: Vec<Vec<u8>> = ["wordpiece", "byte_bpe", "spm_bpe", "spm_unigram"]
        .map(|name| std::fs::read(files(name).join("tokenizer.json")).unwrap())
        .into();
    let tokens = [
        "▁", "▁▁a", "a</w>", "b", "##c", " ", "  ", "<0xE2>", "<0x82>", "<0xAC>", "<0xFF>", "Ã", "©", "é", ".", "", "|",
    ];
    let vocab: serde_json::Map<String, Value> = tokens.iter().zip(0..).map(|(t, i)| ((*t).into(), json!(i))).collect();
    let strip = |start: usize, stop: usize| json!({"type": "Strip", "content": " ", "start": start, "stop": stop});
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    let marks = json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "});
    for decoder in [
        json!(null),
        json!({"type": "BPEDecoder", "suffix": "</w>"}),
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}),
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": true}),
        json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
        json!({"type": "CTC", "pad_token": "|", "word_delimiter_token": " ", "cleanup": true}),
        json!({"type": "Sequence", "decoders": [marks, {"type": "ByteFallback"}, {"type": "Fuse"}, strip(1, 0)]}),
        json!({"type": "Sequence", "decoders": [marks, {"type": "Fuse"}, strip(1, 2)]}),
        json!({"type": "Sequence", "decoders": [marks, strip(1, 0), {"type": "ByteFallback"}]}),
        json!({"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}, marks]}),
        json!({"type": "Sequence", "decoders": [{"type": "Fuse"}, bytes]}),
        bytes,
    ] {
        let file = json!({
            "version": "1.0", "added_tokens": [added(3, "b", true)], "normalizer": null, "pre_tokenizer": null,
            "post_processor": null, "decoder": decoder,
            "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "b"}});
        jsons.push(file.to_string().into_bytes());
    }
    let both = |json: &Vec<u8>| (Tokenizer::from_json(json).unwrap(), tokenizers::Tokenizer::from_bytes(json).unwrap());
    jsons.iter().map(both).collect()
}

fn streamed(tokenizer: &Tokenizer, ids: &[u32], skip: bool) -> String {
    let mut stream = tokenizer.stream(skip);
    let mut parts: Vec<String> = ids.iter().filter_map(|&id| stream.push(id)).collect();
    parts.extend(stream.flush());
    parts.concat()
}

#[test]
fn streams_equal_decoding_at_once_as_tokenizers_does() {
    let decoders = decoders();
    let models = ["spm_bpe", "spm_unigram"].map(|n| Tokenizer::open(files(n).join("tokenizer.model")).unwrap());
    proptest!(cases(400), |(raw in prop::collection::vec(any::<u32>(), 0..24), skip: bool)| {
        for (ours, theirs) in &decoders {
            let ids: Vec<u32> = raw.iter().map(|r| r % (ours.vocab_size() as u32 + 1)).collect();
            // Some decoders of `tokenizers` index out of bounds on no tokens or short ones; ours must not.
            let theirs = std::panic::catch_unwind(|| theirs.decode(&ids, skip).unwrap());
            let expected = theirs.unwrap_or_else(|_| ours.decode(&ids, skip));
            prop_assert_eq!(&ours.decode(&ids, skip), &expected, "{:?} {:?}", ours, ours.pieces(&ids));
            prop_assert_eq!(&streamed(ours, &ids, skip), &expected);
        }
        for ours in &models {
            let ids: Vec<u32> = raw.iter().map(|r| r % (ours.vocab_size() as u32 + 1)).collect();
            prop_assert_eq!(streamed(ours, &ids, skip), ours.decode(&ids, skip));
        }
    });
}

#[test]
fn a_stream_gives_text_as_soon_as_it_is_certain() {
    let tokenizer = Tokenizer::open(files("byte_bpe")).unwrap();
    let ids = tokenizer.encode_ids("é!", false).unwrap();
    let mut stream = tokenizer.stream(true);
    let parts: Vec<Option<String>> = ids.iter().map(|&id| stream.push(id)).collect();
    assert_eq!(parts.last().unwrap().as_deref(), Some("!"));
    assert_eq!(parts.into_iter().flatten().collect::<String>(), "é!");
    assert_eq!(stream.flush(), None);
    stream.push(tokenizer.token_to_id("Ã").unwrap());
    assert_eq!(stream.flush().as_deref(), Some("\u{FFFD}"));
}

/// Whatever the bytes are, loading ends, and what was loaded can be used.
fn survives(tokenizer: Result<Tokenizer, lattice_tokenizer::TokenizerError>) {
    let Ok(tokenizer) = tokenizer else { return };
    for text in ["Hello, wörld!  <s> 123\n", "", "\u{301}\u{1F469}\u{200D}\u{1F4BB}"] {
        if let Ok(encoding) = tokenizer.encode_pair(text, "b", true) {
            tokenizer.decode(&encoding.ids, true);
        }
        let _ = tokenizer.encode_ids(text, true);
    }
    let ids: Vec<u32> = (0..tokenizer.vocab_size().min(2000) as u32).collect();
    tokenizer.decode(&ids, false);
    ids.iter().take(50).for_each(|&id| {
        tokenizer.piece_bytes(id);
    });
}

/// Bytes of a valid file with some overwritten, cut out, repeated, or cut off.
fn damaged(valid: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let edit = (any::<prop::sample::Index>(), 0usize..4, prop::collection::vec(any::<u8>(), 1..6), 1usize..200);
    prop::collection::vec(edit, 1..5).prop_map(move |edits| {
        let mut bytes = valid.clone();
        for (at, kind, new, length) in edits {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            let end = (at + length).min(bytes.len());
            match kind {
                0 => bytes.splice(at..(at + new.len()).min(bytes.len()), new).for_each(drop),
                1 => bytes.drain(at..end).for_each(drop),
                2 => {
                    let copy = bytes[at..end].to_vec();
                    bytes.splice(at..at, copy).for_each(drop);
                }
                _ => bytes.truncate(at),
            }
        }
        bytes
    })
}

#[test]
fn damaged_files_never_panic() {
    let wordpiece = std::fs::read(files("wordpiece/tokenizer.json")).unwrap();
    let bpe = std::fs::read(files("spm_bpe/tokenizer.json")).unwrap();
    let model = std::fs::read(files("spm_bpe/tokenizer.model")).unwrap();
    proptest!(cases(300), |(a in damaged(wordpiece), b in damaged(bpe), c in damaged(model))| {
        survives(Tokenizer::from_json(&a));
        survives(Tokenizer::from_json(&b));
        survives(Tokenizer::from_sentencepiece(&c));
    });
}

#[test]
fn hostile_files_are_refused_or_harmless() {
    let base = byte_level(QWEN2, &[], json!([]));
    let with = |key: &str, value: Value| {
        let mut json = base.clone();
        json[key] = value;
        json.to_string().into_bytes()
    };
    let nested = |open: &str, close: &str, n: usize| format!("{}1{}", open.repeat(n), close.repeat(n));
    let deep = format!(r#"{{"normalizer": {}, "model": {{}}}}"#, nested(r#"{"normalizers":["#, "]}", 100_000));
    survives(Tokenizer::from_json(deep.as_bytes()));
    survives(Tokenizer::from_json(&with("version", json!("9"))));
    survives(Tokenizer::from_json(&with("added_tokens", json!([added(4_294_967_295, "<x>", true)]))));
    survives(Tokenizer::from_json(&with("decoder", json!({"type": "Strip", "content": " ", "start": 3, "stop": 9}))));
    survives(Tokenizer::from_json(&with(
        "normalizer",
        json!({"type": "Precompiled", "precompiled_charsmap": "CAAAAP////8AAAAAYQA="}),
    )));
    survives(Tokenizer::from_json(&with(
        "normalizer",
        json!({"type": "Replace", "pattern": {"String": ""}, "content": "x"}),
    )));
    survives(Tokenizer::from_json(&with(
        "normalizer",
        json!({"type": "Replace", "pattern": {"Regex": ""}, "content": "x"}),
    )));
    for pattern in ["(a+)+$", "(?=(a+))\\1b", "(((((((((((", "(a{1000}){1000}", "(?<=a)b", ""] {
        survives(Tokenizer::from_json(&byte_level(pattern, &[], json!([])).to_string().into_bytes()));
    }
    let template = json!({"type": "TemplateProcessing", "single": vec![json!({"Sequence": {"id": "A", "type_id": 0}}); 3],
        "pair": [], "special_tokens": {}});
    let chain = json!({"type": "Sequence", "processors": vec![template; 40]});
    let error = Tokenizer::from_json(&with("post_processor", chain)).unwrap_err().to_string();
    assert!(error.contains("post_processor may lengthen a text more than 4096 times"), "{error}");
}
