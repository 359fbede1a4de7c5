//! Our own pipeline against the `tokenizers` crate: the same ids and offsets for random texts of every script.
//!
//! LATTICE_RANDOM_TEXTS says how many texts for each kind of tokenizer (2,000 unless it does; `.ci/run` tries 100,000), the
//! same ones every time. Variants of a kind get a tenth.

use std::path::{Path, PathBuf};

use lattice_tokenizer::{EncodeOptions, Tokenizer};
use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).unwrap()
}

fn small(name: &str) -> Value {
    read(&root().join("goldens/tokenizers/files").join(name).join("tokenizer.json"))
}

/// Numbers that are the same every time (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n
    }

    fn character(&mut self) -> char {
        let ranges = [
            0x20..0x7F,
            0x61..0x7B,
            0x61..0x7B,
            0x00..0x21,
            0x80..0x250,
            0x300..0x370,
            0x370..0x530,
            0x590..0x700,
            0x900..0xE00,
            0xE00..0x1200,
            0x1100..0x1200,
            0x2000..0x2070,
            0x2070..0x2C00,
            0x3000..0x3100,
            0x4E00..0x5000,
            0xA000..0xD7FF,
            0xAC00..0xB000,
            0xE000..0xFFFF,
            0x1_0000..0x2_0000,
            0x1_F300..0x1_F700,
            0x2_0000..0x11_0000,
        ];
        let range = &ranges[self.below(ranges.len())];
        char::from_u32((range.start + self.below(range.len())) as u32).unwrap_or('\u{2028}')
    }

    fn text(&mut self, phrases: &[String]) -> String {
        let mut text = String::new();
        for _ in 0..self.below(9) {
            match self.below(10) {
                0..3 => {
                    let kind = self.character();
                    let next = |i: u32| char::from_u32(kind as u32 / 128 * 128 + i).unwrap_or(' ');
                    (0..self.below(9)).for_each(|_| text.push(next(self.below(128) as u32)));
                }
                3..5 => (0..self.below(7)).for_each(|_| text.push(self.character())),
                5 => {
                    let marks =
                        [" ", "  ", "   ", "\n", "\r\n", "\n\n", "\t", "'s", "'LL", "'", "1234567", "\u{a0}", "▁"];
                    text.push_str(marks[self.below(marks.len())]);
                }
                6 => {
                    let c = self.character();
                    (0..self.below(40)).for_each(|_| text.push(c));
                }
                _ => {
                    let phrase = &phrases[self.below(phrases.len())];
                    let cut: Vec<char> = phrase.chars().collect();
                    let from = self.below(cut.len() + 1);
                    let length = self.below((cut.len() - from).min(60) + 1);
                    text.extend(&cut[from..from + length]);
                }
            }
            if self.below(3) == 0 {
                text.push(' ');
            }
        }
        text
    }
}

/// The texts to try with a tokenizer, its own special tokens among them.
fn texts(file: &Value, share: usize) -> Vec<String> {
    let mut phrases: Vec<String> = serde_json::from_value(read(&root().join("goldens/tokenizers/texts.json"))).unwrap();
    let added = file["added_tokens"].as_array().unwrap();
    let special = |t: &Value| t["content"].as_str().unwrap().to_owned();
    phrases.extend(added.iter().take(8).chain(added.iter().rev().take(8)).map(special));
    let count = std::env::var("LATTICE_RANDOM_TEXTS").ok().and_then(|n| n.parse().ok()).unwrap_or(2000_usize) / share;
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    phrases.iter().cloned().chain((0..count).map(|_| random.text(&phrases))).collect()
}

/// A variant of a kind.
fn check(name: &str, file: &Value) {
    check_with(name, file, 10, "lattice");
}

/// Every text, with and without offsets and special tokens; and whose engine it was.
fn check_with(name: &str, file: &Value, share: usize, engine: &str) {
    let bytes = file.to_string().into_bytes();
    let ours = Tokenizer::from_json(&bytes).unwrap();
    assert!(format!("{ours:?}").contains(&format!("engine: \"{engine}\"")), "{name}: {ours:?}");
    let mut theirs = tokenizers::Tokenizer::from_bytes(&bytes).unwrap();
    theirs.with_truncation(None).unwrap().with_padding(None);
    let mut report = Vec::new();
    let texts = texts(file, share);
    for text in &texts {
        let expected = theirs.encode_char_offsets(text.as_str(), true).unwrap();
        let got = ours.encode(text, true).unwrap();
        let fast = ours.encode_ids(text, true).unwrap();
        if fast != expected.get_ids() {
            report.push(format!("ids of {text:?}: {:?}, expected {:?}", ours.pieces(&fast), expected.get_tokens()));
        } else if got.ids != fast || got.offsets != expected.get_offsets() {
            report.push(format!("offsets of {text:?}: {:?}, expected {:?}", got.offsets, expected.get_offsets()));
        } else if ours.decode(&fast, false) != theirs.decode(&fast, false).unwrap() {
            report.push(format!("decoding {fast:?}: {:?}", ours.decode(&fast, false)));
        }
    }
    let pair = |i: usize| (texts[i].as_str(), texts[(i * 7 + 3) % texts.len()].as_str());
    for (a, b) in (0..texts.len().min(300)).map(pair) {
        for special in [false, true] {
            let expected = theirs.encode_char_offsets((a, b), special).unwrap();
            let got = ours.encode_with(a, Some(b), &EncodeOptions { add_special: special, ..EncodeOptions::default() });
            let got = got.unwrap();
            let sequences: Vec<Option<u8>> = expected.get_sequence_ids().iter().map(|s| s.map(|s| s as u8)).collect();
            if got.ids != expected.get_ids()
                || got.type_ids != expected.get_type_ids()
                || got.offsets != expected.get_offsets()
                || got.sequence_ids != sequences
                || got.special_mask.iter().map(|&m| u32::from(m)).ne(expected.get_special_tokens_mask().iter().copied())
            {
                report.push(format!("pair {a:?}, {b:?} (special {special}): {got:?}, expected {expected:?}"));
            }
        }
    }
    let first = report.iter().take(8).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(report.is_empty(), "{name}: {} of {} texts differ:\n{first}", report.len(), texts.len());
}

#[test]
fn small_tokenizers_of_every_kind() {
    for name in ["wordpiece", "byte_bpe", "spm_bpe", "spm_unigram"] {
        check_with(name, &small(name), 1, "lattice");
    }
}

#[test]
fn the_pre_tokenizers_that_real_files_have() {
    let split = |pattern: &str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    let bytes = |prefix: bool, regex: bool| json!({"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": regex});
    let sequence = |steps: Vec<Value>| json!({"type": "Sequence", "pretokenizers": steps});
    let llama3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let o200k = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    for (name, words) in [
        ("SmolLM", sequence(vec![json!({"type": "Digits", "individual_digits": true}), bytes(false, true)])),
        ("GPT-2", bytes(false, true)),
        ("RoBERTa with a space in front", bytes(true, true)),
        ("bytes alone", bytes(false, false)),
        ("Llama 3", sequence(vec![split(llama3), bytes(false, false)])),
        ("GPT-4o", sequence(vec![split(o200k), bytes(false, false)])),
    ] {
        let mut file = small("byte_bpe");
        file["normalizer"] = Value::Null;
        file["pre_tokenizer"] = words;
        check(name, &file);
        file["model"]["ignore_merges"] = true.into();
        check(name, &file);
    }
    let mark = |scheme: &str| json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true});
    for (name, words) in [
        ("XLM-RoBERTa", sequence(vec![json!({"type": "WhitespaceSplit"}), mark("always")])),
        ("a mark in front of the first word", mark("first")),
        ("no mark in front", mark("never")),
    ] {
        let mut file = small("spm_unigram");
        file["pre_tokenizer"] = words;
        check(name, &file);
    }
    let mut whole = small("spm_bpe");
    whole["normalizer"] = Value::Null;
    for split in [false, true] {
        whole["pre_tokenizer"] =
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": split});
        check("Llama with Metaspace", &whole);
    }
    whole["normalizer"] = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    whole["pre_tokenizer"] =
        json!({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false});
    check("Gemma", &whole);
}

#[test]
fn post_processors_and_added_tokens_that_real_files_have() {
    let mut file = small("byte_bpe");
    let token = |id: u32, content: &str, flags: [bool; 4]| {
        let [lstrip, rstrip, single_word, normalized] = flags;
        json!({"id": id, "content": content, "special": id.is_multiple_of(2), "lstrip": lstrip, "rstrip": rstrip,
               "single_word": single_word, "normalized": normalized})
    };
    let added = file["added_tokens"].as_array_mut().unwrap();
    added.push(token(640, "<mask>", [true, false, false, false]));
    added.push(token(641, "the", [false, true, true, false]));
    added.push(token(642, "e\u{301}t", [false, false, false, true]));
    added.push(token(643, "  ", [false, false, false, false]));
    check("added tokens", &file);
    for trim in [false, true] {
        for prefix in [false, true] {
            let flags = |mut value: Value| {
                value["trim_offsets"] = trim.into();
                value["add_prefix_space"] = prefix.into();
                value
            };
            let roberta =
                flags(json!({"type": "RobertaProcessing", "sep": ["<|im_end|>", 639], "cls": ["<|im_start|>", 638]}));
            let bytes = flags(json!({"type": "ByteLevel", "use_regex": true}));
            let template = json!({"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "B", "type_id": 2}}, {"SpecialToken": {"id": "<|im_start|>", "type_id": 1}},
                         {"Sequence": {"id": "A", "type_id": 3}}],
                "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [638], "tokens": ["<|im_start|>"]}}});
            let both = json!({"type": "Sequence", "processors": [bytes, template]});
            for (name, processor) in [("RoBERTa", roberta), ("bytes", bytes), ("Llama 3", both), ("template", template)]
            {
                file["post_processor"] = processor;
                check(name, &file);
            }
        }
    }
    let mut bert = small("wordpiece");
    bert["post_processor"] = json!({"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]});
    check("BERT", &bert);
    for (accents, lowercase) in [(json!(true), false), (json!(false), true), (Value::Null, false)] {
        bert["normalizer"]["strip_accents"] = accents;
        bert["normalizer"]["lowercase"] = lowercase.into();
        check("cased BERT", &bert);
    }
}

#[test]
fn normalizers_that_real_files_have() {
    let step = |name: &str| json!({"type": name});
    let strip = |left: bool, right: bool| json!({"type": "Strip", "strip_left": left, "strip_right": right});
    let mut file = small("spm_unigram");
    let precompiled = file["normalizer"]["normalizers"][0].clone();
    let spaces = |content: &str| json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": content});
    let sequence = |steps: Vec<Value>| json!({"type": "Sequence", "normalizers": steps});
    for (name, normalizer) in [
        ("XLM-RoBERTa", sequence(vec![precompiled.clone(), spaces(" ")])),
        ("T5", precompiled),
        ("ALBERT", sequence(vec![step("NFKD"), step("StripAccents"), step("Lowercase"), strip(true, true)])),
        ("NFKC", sequence(vec![strip(true, false), step("NFKC"), spaces("")])),
        ("NFD", sequence(vec![step("NFD"), strip(false, true)])),
    ] {
        file["normalizer"] = normalizer;
        check(name, &file);
    }
}

#[test]
fn unknown_characters_are_fused_or_not_and_spelled_where_bytes_are_known() {
    for (fuse, fallback) in [(false, false), (true, false), (false, true)] {
        let mut file = small("spm_bpe");
        file["model"]["fuse_unk"] = fuse.into();
        file["model"]["byte_fallback"] = fallback.into();
        check("unknown", &file);
    }
}

#[test]
fn what_is_not_covered_runs_through_the_tokenizers_crate() {
    let mut words = small("wordpiece");
    words["pre_tokenizer"] = json!({"type": "Whitespace"});
    let mut marked = small("spm_bpe");
    marked["model"]["end_of_word_suffix"] = "</w>".into();
    for (name, file) in [("words by an expression", words), ("marks at the ends of words", marked)] {
        check_with(name, &file, 20, "tokenizers");
    }
}

#[test]
fn real_tokenizers() {
    let files = std::env::var_os("LATTICE_TOKENIZER_FILES").map(PathBuf::from);
    let files = files.unwrap_or_else(|| root().join("../t/files"));
    for name in ["minilm", "qwen3", "gemma3", "llama3"] {
        let path = files.join(name).join("tokenizer.json");
        match path.is_file() {
            true => check_with(name, &read(&path), 1, "lattice"),
            false => eprintln!("skipped: {} is not there", path.display()),
        }
    }
}

#[test]
fn a_word_of_a_megabyte_takes_seconds_not_hours() {
    let start = std::time::Instant::now();
    for name in
        ["byte_bpe", "spm_bpe", "spm_bpe/tokenizer.model", "spm_unigram", "spm_unigram/tokenizer.model", "wordpiece"]
    {
        let tokenizer = Tokenizer::open(root().join("goldens/tokenizers/files").join(name)).unwrap();
        for word in ["a".repeat(1 << 20), "the".repeat(1 << 18), "é".repeat(1 << 18)] {
            let ids = tokenizer.encode_ids(&word, false).unwrap();
            assert!(name == "wordpiece" || tokenizer.decode(&ids, true).trim() == word || ids.len() < 9, "{name}");
        }
    }
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
}
