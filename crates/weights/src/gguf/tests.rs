//! Is every lie of a GGUF file found? Files are built field by field, then spoilt.

use super::*;
use proptest::prelude::*;
use std::time::{Duration, Instant};

/// A file in the making.
#[derive(Clone, Default)]
pub(crate) struct Builder {
    keys: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    data: usize,
}

fn text(s: &str) -> Vec<u8> {
    [&(s.len() as u64).to_le_bytes()[..], s.as_bytes()].concat()
}

impl Builder {
    pub(crate) fn key(mut self, key: &str, kind: u32, value: &[u8]) -> Builder {
        self.keys.push([&text(key)[..], &kind.to_le_bytes(), value].concat());
        self
    }

    pub(crate) fn text(self, key: &str, value: &str) -> Builder {
        self.key(key, STRING, &text(value))
    }

    pub(crate) fn u32(self, key: &str, value: u32) -> Builder {
        self.key(key, 4, &value.to_le_bytes())
    }

    pub(crate) fn f32(self, key: &str, value: f32) -> Builder {
        self.key(key, 6, &value.to_le_bytes())
    }

    pub(crate) fn flag(self, key: &str, value: bool) -> Builder {
        self.key(key, 7, &[value.into()])
    }

    fn list(self, key: &str, kind: u32, count: usize, values: &[u8]) -> Builder {
        self.key(key, ARRAY, &[&kind.to_le_bytes()[..], &(count as u64).to_le_bytes(), values].concat())
    }

    pub(crate) fn f32s(self, key: &str, values: &[f32]) -> Builder {
        self.list(key, 6, values.len(), &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
    }

    pub(crate) fn i32s(self, key: &str, values: &[i32]) -> Builder {
        self.list(key, 5, values.len(), &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
    }

    pub(crate) fn strings(self, key: &str, values: &[&str]) -> Builder {
        let count = (values.len() as u64).to_le_bytes();
        let values: Vec<u8> = values.iter().flat_map(|s| text(s)).collect();
        self.key(key, ARRAY, &[&STRING.to_le_bytes()[..], &count, &values].concat())
    }

    pub(crate) fn tensor(mut self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Builder {
        let dims: Vec<u8> =
            (dims.len() as u32).to_le_bytes().into_iter().chain(dims.iter().flat_map(|d| d.to_le_bytes())).collect();
        self.tensors.push([&text(name)[..], &dims, &kind.to_le_bytes(), &offset.to_le_bytes()].concat());
        self
    }

    pub(crate) fn data(mut self, bytes: usize) -> Builder {
        self.data = bytes;
        self
    }

    pub(crate) fn build(&self) -> Vec<u8> {
        let mut file = [&b"GGUF"[..], &3u32.to_le_bytes()].concat();
        file.extend((self.tensors.len() as u64).to_le_bytes());
        file.extend((self.keys.len() as u64).to_le_bytes());
        file.extend(self.keys.concat());
        file.extend(self.tensors.concat());
        file.resize(file.len().next_multiple_of(32) + self.data, 0);
        file
    }
}

const STRING: u32 = 8;
const ARRAY: u32 = 9;

fn good() -> Builder {
    Builder::default()
        .key("general.architecture", STRING, &text("llama"))
        .key("llama.block_count", 4, &2u32.to_le_bytes())
        .key("llama.rope.freq_base", 6, &10000f32.to_le_bytes())
        .key("a.flag", 7, &[1])
        .key("a.small", 1, &[0xff])
        .key("a.scores", ARRAY, &[&6u32.to_le_bytes()[..], &2u64.to_le_bytes(), &[0; 4], &1f32.to_le_bytes()].concat())
        .strings("tokenizer.ggml.tokens", &["a", "", "é"])
        .key("tokenizer.ggml.bos_token_id", 4, &2u32.to_le_bytes())
        .tensor("w", &[32, 3], 8, 0)
        .tensor("b", &[5], 0, 128)
        .data(148)
}

#[test]
fn a_good_file_says_what_it_holds() {
    let Contents { metadata, tensors } = parse(&good().build()).unwrap();
    assert_eq!(metadata.architecture().unwrap(), "llama");
    assert_eq!(metadata.get::<usize>("llama.block_count").unwrap(), 2);
    assert_eq!(metadata.get::<f32>("llama.rope.freq_base").unwrap(), 10000.0);
    assert!(metadata.get::<bool>("a.flag").unwrap());
    assert_eq!(metadata.get::<i64>("a.small").unwrap(), -1);
    assert_eq!(metadata.get::<Vec<f32>>("a.scores").unwrap(), [0.0, 1.0]);
    assert_eq!(metadata.get::<&Strings>("tokenizer.ggml.tokens").unwrap().iter().collect::<Vec<_>>(), ["a", "", "é"]);
    assert_eq!(metadata.find::<u32>("absent").unwrap(), None);
    assert_eq!(metadata.iter().len(), 8);

    let got: Vec<_> = tensors.iter().map(|t| (t.name.as_str(), t.format, t.shape.as_slice(), t.range.len())).collect();
    assert_eq!(got, [("w", Format::Q8_0, &[3, 32][..], 102), ("b", Format::F32, &[5], 20)]);
    assert_eq!(tensors[1].range.start - tensors[0].range.start, 128);
    assert_eq!(tensors[0].range.start % 32, 0);
}

#[test]
fn values_of_another_type_are_refused_with_what_they_are() {
    let Contents { metadata, .. } = parse(&good().build()).unwrap();
    let text = metadata.get::<u64>("general.architecture").unwrap_err().to_string();
    assert_eq!(text, r#"general.architecture is "llama", expected an unsigned integer"#);
    let text = metadata.get::<u32>("a.small").unwrap_err().to_string();
    assert_eq!(text, "a.small is -1, expected an unsigned 32-bit integer");
    let text = metadata.get::<&str>("tokenizer.ggml.tokens").unwrap_err().to_string();
    assert_eq!(text, "tokenizer.ggml.tokens is a list of 3 strings, expected a text");
    let text = metadata.get::<Vec<i64>>("a.scores").unwrap_err().to_string();
    assert_eq!(text, "a.scores is a list of 2 × F32, expected a list of integers");
    let text = metadata.get::<f32>("llama.rope.scale").unwrap_err().to_string();
    assert_eq!(text, "the metadata have no llama.rope.scale, expected a float");
}

#[test]
fn counts_beyond_the_file_are_refused_at_once_by_field() {
    let hex =
        "47475546030000004747554602000000000000474755010200000000000000000800000000000000000800000000000000000000";
    let file: Vec<u8> = (0..51).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect();
    let start = Instant::now();
    let text = parse(&file).unwrap_err().to_string();
    assert!(start.elapsed() < Duration::from_millis(100));
    assert_eq!(text, "tensor count is 9769928519, at most 1 can be here");
}

#[test]
fn lying_files_are_refused_with_the_reason() {
    let b = Builder::default;
    let endless = |kind: u32, n: u64| [&kind.to_le_bytes()[..], &n.to_le_bytes()].concat();
    let raw = |from: usize, bytes: &[u8]| {
        let mut file = good().build();
        file[from..from + bytes.len()].copy_from_slice(bytes);
        file
    };
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", vec![], "magic at byte 0 takes 4 bytes, but 0 are left: is the download complete?"),
        ("magic", b"GGML\0\0\0\0".to_vec(), r#"magic is "GGML", expected GGUF"#),
        ("version 1", raw(4, &[1, 0, 0, 0]), "version is 1, expected 2 or 3: convert the model again"),
        ("big-endian", raw(4, &[0, 0, 0, 3]), "version is 50331648, expected 2 or 3 in little-endian order: convert"),
        ("tensors", raw(8, &[0xff; 8]), "tensor count is 18446744073709551615, at most "),
        ("keys", raw(16, &[0xff; 8]), "metadata key count is 18446744073709551615, at most "),
        (
            "key length",
            raw(24, &[0xff; 8]),
            "length of metadata key 0 is 18446744073709551615, at most 65535 can be here",
        ),
        (
            "string length",
            b().key("k", STRING, &u64::MAX.to_le_bytes()).build(),
            "k at byte 45 takes 18446744073709551615 bytes, but ",
        ),
        ("not UTF-8", b().key("k", STRING, &[1, 0, 0, 0, 0, 0, 0, 0, 0xff]).build(), r"k is \xff, expected UTF-8"),
        (
            "escape",
            b().key("\x1b[2J", 7, &[0]).build(),
            r#"metadata key 0 is "\u{1b}[2J", expected a name without control"#,
        ),
        ("value type", b().key("k", 13, &[0; 8]).build(), "type of k is 13, expected a metadata type"),
        ("element type", b().key("k", ARRAY, &endless(77, 0)).build(), "type of the elements of k is 77, expected"),
        (
            "nested array",
            b().key("k", ARRAY, &endless(ARRAY, 1)).build(),
            "type of the elements of k is an array in an array, expected",
        ),
        (
            "array length",
            b().key("k", ARRAY, &endless(12, u64::MAX / 8 + 2)).build(),
            "length of k is 2305843009213693953, at most ",
        ),
        (
            "string count",
            b().key("k", ARRAY, &endless(STRING, 1 << 40)).build(),
            "length of k is 1099511627776, at most ",
        ),
        ("flag", b().key("k", 7, &[2]).build(), "k is 2, expected a flag, 0 or 1"),
        (
            "flags",
            b().key("k", ARRAY, &[endless(7, 2), vec![1, 3]].concat()).build(),
            "k is 3, expected a flag, 0 or 1",
        ),
        (
            "key twice",
            b().key("k", 7, &[0]).key("k", 7, &[0]).build(),
            "metadata key is k, expected a key that does not",
        ),
        (
            "alignment 0",
            b().key("general.alignment", 4, &[0; 4]).build(),
            "general.alignment is 0, expected a power of two",
        ),
        ("alignment 33", b().key("general.alignment", 4, &[33, 0, 0, 0]).build(), "general.alignment is 33, expected"),
        (
            "alignment 2^31",
            b().key("general.alignment", 4, &[0, 0, 0, 0x80]).build(),
            "general.alignment is 2147483648",
        ),
        (
            "alignment text",
            b().key("general.alignment", STRING, &text("x")).build(),
            r#"general.alignment is "x", expected"#,
        ),
        (
            "token id",
            b().strings("tokenizer.ggml.tokens", &["a"]).key("tokenizer.ggml.eos_token_id", 4, &[1, 0, 0, 0]).build(),
            "tokenizer.ggml.eos_token_id is 1, at most 0 can be here",
        ),
        (
            "blocks",
            b().key("llama.block_count", 4, &[0xff; 4]).build(),
            "llama.block_count is 4294967295, at most 4096",
        ),
        (
            "dims",
            b().tensor("w", &[1; 5], 0, 0).build(),
            "number of dimensions of tensor w is 5, at most 4 can be here",
        ),
        (
            "dim",
            b().tensor("w", &[1, u64::MAX], 0, 0).build(),
            "dimension 1 of tensor w is 18446744073709551615, at most ",
        ),
        (
            "overflow",
            b().tensor("w", &[1 << 33, 1 << 33], 0, 0).build(),
            "tensor w: F32 [8589934592, 8589934592] takes more bytes than can be counted",
        ),
        (
            "rows",
            b().tensor("w", &[33, 2], 8, 0).build(),
            "tensor w: rows of 33 are no whole number of Q8_0 blocks of 32",
        ),
        ("type", b().tensor("w", &[1], 99, 0).build(), "tensor w has the format ggml type 99, which is not read here"),
        (
            "known type",
            b().tensor("w", &[256], 15, 0).build(),
            "tensor w has the format Q8_K (ggml type 15), which is not",
        ),
        (
            "offset",
            b().tensor("w", &[1], 0, 16).data(32).build(),
            "offset of tensor w is 16, expected a multiple of the",
        ),
        (
            "outside",
            b().tensor("w", &[8], 0, 32).data(32).build(),
            "tensor w: its 32 bytes at 32 after byte 64 are not",
        ),
        (
            "far",
            b().tensor("w", &[8], 0, u64::MAX - 31).data(32).build(),
            "tensor w: its 32 bytes at 18446744073709551584",
        ),
        (
            "overlap",
            b().tensor("v", &[9], 0, 0).tensor("w", &[1], 0, 32).data(64).build(),
            "tensor w overlaps tensor v",
        ),
        (
            "name twice",
            b().tensor("w", &[1], 0, 0).tensor("w", &[1], 0, 32).data(64).build(),
            "tensor name is w, expected a name that no other tensor has",
        ),
        (
            "name length",
            b().tensor(&"w".repeat(1025), &[1], 0, 0).build(),
            "length of name of tensor 0 is 1025, at most 1024",
        ),
    ];
    let mut failed = Vec::new();
    for (what, file, expected) in cases {
        let got = parse(&file).map(|_| ()).map_err(|e| e.to_string());
        if !got.as_ref().is_err_and(|text| text.starts_with(expected)) {
            failed.push(format!("{what}: {got:?}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_file_that_ends_anywhere_is_refused() {
    let file = good().build();
    for n in 0..file.len() {
        assert!(parse(&file[..n]).is_err(), "cut to {n} of {}", file.len());
    }
}

/// What `parse` promises whenever it accepts.
fn check(file: &[u8]) {
    let Ok(Contents { metadata, tensors }) = parse(file) else { return };
    for (_, value) in metadata.iter() {
        match value {
            Value::Strings(strings) => assert_eq!(strings.iter().count(), strings.len()),
            Value::Numbers(numbers) => assert_eq!(numbers.iter().count(), numbers.len()),
            other => drop(other.to_string()),
        }
    }
    for t in &tensors {
        assert!(t.range.end <= file.len());
        assert_eq!(t.format.tensor_bytes(&t.shape), Some(t.range.len()));
    }
}

proptest! {
    #[test]
    fn mutated_files_are_refused_or_consistent(edits in prop::collection::vec((any::<usize>(), any::<u8>()), 1..8)) {
        let mut file = good().build();
        for (at, byte) in edits {
            let n = file.len() - good().data;
            file[at % n] = byte;
        }
        check(&file);
    }

    #[test]
    fn wrong_numbers_are_refused_or_consistent(
        dims in prop::collection::vec(prop_oneof![0u64..100, any::<u64>()], 0..5),
        kind in 0u32..45,
        offset in prop_oneof![(0u64..8).prop_map(|n| n * 32), any::<u64>()],
        data in 0usize..300,
    ) {
        check(&good().tensor("x", &dims, kind, offset).data(data).build());
    }

    #[test]
    fn garbage_after_the_magic_is_never_believed(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&[&b"GGUF\x03\0\0\0"[..], &bytes].concat());
    }
}
