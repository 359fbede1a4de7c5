//! What does a safetensors file hold? Its header, checked before anything believes it; and how such a file is written.
//!
//! The `safetensors` crate guarantees that tensors lie one after another from the first byte of the data, without
//! overlap, and that shape × size does not overflow; the rest is checked here: that the header is no longer than the
//! file, that no name or field stands there twice (the crate keeps one of them), that every format is known, and that
//! the data end where the last tensor ends, each time with the name of the tensor that is wrong.

use crate::tensor::{Entry, check_size};
use crate::{FORMATS, Format, Result, Tensor, WeightsError};
use ::safetensors::tensor::{Metadata, TensorInfo, View};
use ::safetensors::{Dtype, SafeTensorError};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

/// The longest header that is read: what the `safetensors` crate allows.
pub const MAX_HEADER_BYTES: usize = 100_000_000;
/// The longest name of a tensor.
pub const MAX_NAME_BYTES: usize = 1024;

/// Reads and checks the header of a whole file. The entries are in the order of their bytes, which they cover exactly.
///
/// # Errors
/// Any [`WeightsError`] about headers, naming the tensor where there is one.
pub fn parse(file: &[u8]) -> Result<Vec<Entry>> {
    let Some((length, rest)) = file.split_first_chunk::<8>() else {
        return Err(WeightsError::TooShort { file_bytes: file.len() });
    };
    let claimed = u64::from_le_bytes(*length);
    let header = usize::try_from(claimed).ok().filter(|&n| n <= MAX_HEADER_BYTES).and_then(|n| rest.get(..n));
    let Some(header) = header else {
        return Err(WeightsError::HeaderLength { claimed, file_bytes: file.len(), limit: MAX_HEADER_BYTES });
    };
    let Header(described) =
        serde_json::from_slice(header).map_err(|source| WeightsError::Json { what: "safetensors header", source })?;

    let mut formats = Vec::with_capacity(described.len());
    let mut infos = Vec::with_capacity(described.len());
    for (name, Described { dtype, shape, data_offsets: (begin, end) }) in described {
        let unknown = || {
            let format = dtype.escape_debug().take(40).collect();
            WeightsError::UnknownFormat { tensor: name.clone(), format, known: known() }
        };
        let format = Format::from_safetensors(&dtype).ok_or_else(unknown)?;
        let dtype = format.row().dtype.ok_or_else(unknown)?;
        let size = end.checked_sub(begin).ok_or_else(|| WeightsError::Offsets { tensor: name.clone(), begin, end })?;
        check_size(&name, &shape, format, size)?;
        formats.push(format);
        infos.push((name, TensorInfo { dtype, shape, data_offsets: (begin, end) }));
    }
    let mut order: Vec<usize> = (0..infos.len()).collect();
    order.sort_by_key(|&i| infos[i].1.data_offsets);
    let infos: Vec<_> = order.iter().map(|&i| infos[i].clone()).collect();

    let layout = Metadata::new(None, infos.clone()).map_err(|fault| refused(fault, &infos))?;
    let data = rest.len() - header.len();
    if layout.data_len() != data {
        return Err(WeightsError::DataLength { expected: layout.data_len(), got: data });
    }
    let start = file.len() - data;
    Ok(infos
        .into_iter()
        .zip(order)
        .map(|((name, info), i)| {
            let (begin, end) = info.data_offsets;
            Entry { name, shape: info.shape, format: formats[i], range: start + begin..start + end }
        })
        .collect())
}

/// Our words for what the crate refuses: sizes were checked before, so that only the order of tensors is left.
fn refused(fault: SafeTensorError, infos: &[(String, TensorInfo)]) -> WeightsError {
    let info = match &fault {
        SafeTensorError::InvalidOffset(name) => infos.iter().find(|(n, _)| n == name),
        _ => None,
    };
    match info {
        Some((name, info)) => {
            let (begin, end) = info.data_offsets;
            WeightsError::Offsets { tensor: name.clone(), begin, end }
        }
        None => WeightsError::Json { what: "safetensors header", source: serde_json::Error::custom(fault) },
    }
}

fn known() -> Vec<&'static str> {
    FORMATS.iter().filter(|row| row.dtype.is_some()).map(|row| row.name).collect()
}

/// Writes tensors as a safetensors file. An existing file is replaced at the end, at once.
///
/// # Errors
/// [`WeightsError::NotSafetensors`] for formats that such a file cannot hold, [`WeightsError::Io`].
pub fn write_safetensors(path: impl AsRef<Path>, tensors: &[Tensor]) -> Result<()> {
    struct Part<'a>(&'a Tensor, Dtype);
    impl View for Part<'_> {
        fn dtype(&self) -> Dtype {
            self.1
        }
        fn shape(&self) -> &[usize] {
            self.0.shape()
        }
        fn data(&self) -> Cow<'_, [u8]> {
            self.0.bytes().into()
        }
        fn data_len(&self) -> usize {
            self.0.bytes().len()
        }
    }
    let parts = tensors.iter().map(|t| match t.format().row().dtype {
        Some(dtype) => Ok((t.name(), Part(t, dtype))),
        None => Err(WeightsError::NotSafetensors { tensor: t.name().to_string(), format: t.format().name() }),
    });
    let parts = parts.collect::<Result<Vec<_>>>()?;
    let path = path.as_ref();
    ::safetensors::serialize_to_file(parts, None, path).map_err(|fault| {
        let source = match fault {
            SafeTensorError::IoError(source) => source,
            other => std::io::Error::other(other.to_string()),
        };
        WeightsError::Io { file: path.to_path_buf(), source }
    })
}

/// The header's JSON: tensors by name, and `__metadata__`, whose strings nothing here needs.
struct Header(Vec<(String, Described)>);

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Header, D::Error> {
        struct Tensors;
        impl<'de> Visitor<'de> for Tensors {
            type Value = Header;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut keys = Keys::default();
                let mut tensors = Vec::new();
                while let Some(key) = keys.next(&mut map)? {
                    if key == "__metadata__" {
                        map.next_value::<Option<UniqueMap<String>>>()?;
                    } else {
                        tensors.push((key, map.next_value()?));
                    }
                }
                Ok(Header(tensors))
            }
        }
        deserializer.deserialize_map(Tensors)
    }
}

/// A JSON object in which no key stands twice, in its order.
pub(crate) struct UniqueMap<V>(pub(crate) Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UniqueMap<V>, D::Error> {
        struct Unique<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Unique<V> {
            type Value = UniqueMap<V>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<UniqueMap<V>, A::Error> {
                let mut keys = Keys::default();
                let mut entries = Vec::new();
                while let Some(key) = keys.next(&mut map)? {
                    entries.push((key, map.next_value()?));
                }
                Ok(UniqueMap(entries))
            }
        }
        deserializer.deserialize_map(Unique(PhantomData))
    }
}

/// The keys of an object: short enough, and each once.
#[derive(Default)]
struct Keys(HashSet<String>);

impl Keys {
    fn next<'de, A: MapAccess<'de>>(&mut self, map: &mut A) -> Result<Option<String>, A::Error> {
        let Some(key) = map.next_key::<String>()? else { return Ok(None) };
        if key.len() > MAX_NAME_BYTES {
            return Err(A::Error::custom(format!("a name of {} bytes: at most {MAX_NAME_BYTES}", key.len())));
        }
        if key.contains(char::is_control) {
            return Err(A::Error::custom(format!("the name {key:?} has control characters")));
        }
        if !self.0.insert(key.clone()) {
            return Err(A::Error::custom(format!("{key:?} stands there twice")));
        }
        Ok(Some(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(header: &str, data: usize) -> Vec<u8> {
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.resize(file.len() + data, 0);
        file
    }

    #[test]
    fn entries_come_in_the_order_of_their_bytes() {
        let header = r#"{"b":{"dtype":"F16","shape":[2,3],"data_offsets":[8,20]},"__metadata__":{"format":"pt"},
            "a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"z":{"dtype":"F32","shape":[0,4],"data_offsets":[8,8]}}  "#;
        let start = 8 + header.len();
        let entries = parse(&file(header, 20)).unwrap();
        let got: Vec<_> = entries.iter().map(|e| (e.name.as_str(), e.format, e.range.clone())).collect();
        let expected = [
            ("a", Format::I64, start..start + 8),
            ("z", Format::F32, start + 8..start + 8),
            ("b", Format::F16, start + 8..start + 20),
        ];
        assert_eq!(got, expected);
        assert_eq!(parse(&file("{}", 0)).unwrap(), []);
    }

    #[test]
    fn lying_headers_are_refused_with_the_reason() {
        let one = |dtype: &str, shape: &str, offsets: &str| {
            format!(r#"{{"t":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
        };
        let two = |first: &str, second: &str| {
            let t = |name, at| format!(r#""{name}":{{"dtype":"U8","shape":[4],"data_offsets":{at}}}"#);
            format!("{{{},{}}}", t("a", first), t("b", second))
        };
        let long = format!(r#"{{"{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}}}"#, "n".repeat(1025));
        let cases: &[(&str, String, usize, &str)] = &[
            (
                "size",
                one("F32", "[1000,1000]", "[0,4]"),
                4,
                "tensor t: F32 [1000, 1000] takes 4000000 bytes, but it has 4",
            ),
            (
                "overflow",
                one("F32", "[8589934592,8589934592]", "[0,4]"),
                4,
                "tensor t: F32 [8589934592, 8589934592] takes more bytes than can be counted",
            ),
            (
                "unknown format",
                one("F4", "[2]", "[0,1]"),
                1,
                "tensor t has the format F4, which is not read here: known are F64, F32,",
            ),
            ("negative", one("U8", "[-1]", "[0,1]"), 1, "safetensors header: invalid value: integer `-1`"),
            ("backwards", one("U8", "[1]", "[1,0]"), 1, "tensor t: its bytes 1..0 do not follow"),
            ("hole at the start", one("U8", "[1]", "[1,2]"), 2, "tensor t: its bytes 1..2 do not follow"),
            ("overlap", two("[0,4]", "[2,6]"), 6, "tensor b: its bytes 2..6 do not follow"),
            ("hole", two("[0,4]", "[5,9]"), 9, "tensor b: its bytes 5..9 do not follow"),
            ("truncated", one("U8", "[8]", "[0,8]"), 3, "the tensors take 8 bytes, but 3 follow the header"),
            ("trailing", one("U8", "[1]", "[0,1]"), 2, "the tensors take 1 bytes, but 2 follow the header"),
            ("far offsets", one("U8", "[1]", "[18446744073709551614,18446744073709551615]"), 1, "tensor t: its bytes"),
            (
                "twice",
                two("[0,4]", "[4,8]").replace(r#""b""#, r#""a""#),
                8,
                r#"safetensors header: "a" stands there twice"#,
            ),
            (
                "field twice",
                r#"{"t":{"dtype":"U8","dtype":"U8"}}"#.into(),
                0,
                "safetensors header: duplicate field `dtype`",
            ),
            (
                "no field",
                r#"{"t":{"dtype":"U8","shape":[]}}"#.into(),
                0,
                "safetensors header: missing field `data_offsets`",
            ),
            (
                "metadata",
                r#"{"__metadata__":{"a":"","a":""}}"#.into(),
                0,
                r#"safetensors header: "a" stands there twice"#,
            ),
            ("not an object", "[]".into(), 0, "safetensors header: invalid type: sequence"),
            ("nested", "[".repeat(100_000), 0, "safetensors header: invalid type"),
            ("nested value", format!(r#"{{"t":{}"#, "[".repeat(100_000)), 0, "safetensors header: invalid type"),
            (
                "escape",
                one("U8", "[1]", "[0,1]").replace("\"t\"", r#""\u001b[2J""#),
                1,
                r#"safetensors header: the name "\u{1b}[2J" has"#,
            ),
            ("long name", long, 0, "safetensors header: a name of 1025 bytes: at most 1024"),
        ];
        let mut failed = Vec::new();
        for (what, header, data, expected) in cases {
            let got = parse(&file(header, *data)).map_err(|e| e.to_string());
            if !got.as_ref().is_err_and(|text| text.starts_with(expected)) {
                failed.push(format!("{what}: {got:?}"));
            }
        }
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }

    #[test]
    fn headers_longer_than_the_file_are_refused() {
        for claimed in [3, 101, 100_000_001, u64::MAX] {
            let mut file = claimed.to_le_bytes().to_vec();
            file.extend(b"{}");
            let text = parse(&file).unwrap_err().to_string();
            let expected = format!(
                "the header claims {claimed} bytes, but the file has 10 and a header at most 100000000: is it a safetensors file, completely downloaded?"
            );
            assert_eq!(text, expected);
        }
        let text = parse(&[1, 2, 3]).unwrap_err().to_string();
        assert_eq!(text, "3 bytes are too few for a safetensors file: is it a failed download?");
    }

    /// What `parse` promises whenever it accepts.
    fn check(file: &[u8]) {
        let Ok(entries) = parse(file) else { return };
        let mut at = entries.first().map_or(file.len(), |e| e.range.start);
        for e in &entries {
            assert_eq!(e.range.start, at);
            assert_eq!(e.format.tensor_bytes(&e.shape), Some(e.range.len()));
            at = e.range.end;
        }
        assert_eq!(at, file.len());
    }

    proptest! {
        #[test]
        fn garbage_is_never_believed(header in "[\\[\\]{}\":,0-9a-z_ ]{0,64}", data in 0usize..16) {
            check(&file(&header, data));
        }

        #[test]
        fn mutated_files_are_refused_or_consistent(edits in prop::collection::vec((0usize..200, any::<u8>()), 0..6), cut in 0usize..200) {
            let header = r#"{"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}}"#;
            let mut file = file(header, 11);
            for (at, byte) in edits {
                let n = file.len();
                file[at % n] = byte;
            }
            file.truncate(file.len() - cut.min(file.len()) / 20);
            check(&file);
        }

        #[test]
        fn wrong_numbers_are_refused_or_consistent(shape in prop::collection::vec(prop_oneof![0usize..4, any::<usize>()], 0..4), begin in prop_oneof![0usize..9, any::<usize>()], end in prop_oneof![0usize..9, any::<usize>()], data in 0usize..9) {
            check(&file(&format!(r#"{{"t":{{"dtype":"BF16","shape":{shape:?},"data_offsets":[{begin},{end}]}}}}"#), data));
        }
    }
}
