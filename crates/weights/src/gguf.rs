//! What does a GGUF file hold? Its metadata and its tensor table, checked before anything believes them.
//!
//! Versions 2 and 3, little-endian. The layout is that of <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>:
//! magic, version, counts, metadata, tensor table, padding, data. Every count is bounded by a named constant and by the
//! bytes that are left for it, so that nothing is allocated which the file does not pay for.

mod architectures;
mod config;
mod draft;
mod hugging_face;
mod metadata;
mod reader;
mod vocab;

pub use architectures::{ARCHITECTURES, Architecture};
pub use draft::{MAX_EXPERTS, MAX_HEADS, MAX_SIZE};
pub use hugging_face::{HuggingFace, config};
pub use metadata::{FromValue, Metadata, Numbers, Strings, Value};
pub use vocab::{MAX_TOKENS, Vocab};

use crate::tensor::{Entry, check_size};
use crate::{FORMATS, Format, Result, WeightsError};
use reader::Reader;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The first bytes of every GGUF file.
pub const MAGIC: [u8; 4] = *b"GGUF";
/// The most metadata keys.
pub const MAX_KEYS: u64 = 1 << 16;
/// The longest metadata key in bytes, after the specification.
pub const MAX_KEY_BYTES: u64 = (1 << 16) - 1;
/// The most tensors in a file.
pub const MAX_TENSORS: u64 = 1 << 17;
/// The longest name of a tensor in bytes.
pub const MAX_NAME_BYTES: u64 = 1024;
/// The most dimensions of a tensor: what ggml has.
pub const MAX_DIMENSIONS: u64 = 4;
/// The largest `general.alignment`.
pub const MAX_ALIGNMENT: u64 = 1 << 20;
/// The most blocks of a model: `*.block_count`.
pub const MAX_BLOCKS: u64 = 1 << 12;

/// The least bytes of a key with its value, and of a tensor in the table: what a count must be paid with.
const LEAST_KEY: u64 = 8 + 4 + 1;
const LEAST_TENSOR: u64 = 8 + 4 + 4 + 8;

/// What one file holds.
#[derive(Debug)]
pub struct Contents {
    /// Its metadata.
    pub metadata: Metadata,
    /// Its tensors, in the order of the table.
    pub tensors: Vec<Entry>,
}

/// Reads and checks everything but the data of a whole file.
///
/// # Errors
/// Any [`WeightsError`] about GGUF, naming the field, the key or the tensor that is wrong.
pub fn parse(file: &[u8]) -> Result<Contents> {
    let mut r = Reader::new(file);
    let magic: [u8; 4] = r.array(|| "magic".into())?;
    if magic != MAGIC {
        return Err(field("magic", format!("{:?}", magic.escape_ascii().to_string()), "GGUF"));
    }
    let version = r.u32(|| "version".into())?;
    if !(2..=3).contains(&version) {
        let big = (2..=3).contains(&version.swap_bytes());
        let expected =
            if big { "2 or 3 in little-endian order: convert the file" } else { "2 or 3: convert the model again" };
        return Err(field("version", version, expected));
    }
    let tensor_count = r.count("tensor count", MAX_TENSORS, LEAST_TENSOR)?;
    let key_count = r.count("metadata key count", MAX_KEYS, LEAST_KEY)?;

    let mut metadata = Metadata::default();
    for i in 0..key_count {
        let key = r.name(MAX_KEY_BYTES, || format!("metadata key {i}"))?;
        let value = metadata::read_value(&mut r, &key)?;
        metadata.insert(key, value)?;
    }
    check_metadata(&metadata)?;
    let alignment = alignment(&metadata)?;
    let described = (0..tensor_count).map(|i| read_tensor(&mut r, i)).collect::<Result<Vec<_>>>()?;

    let table_end = r.position();
    let start = table_end.next_multiple_of(alignment); // both are far below overflow: a length and 2^20
    let tensors = place(described, start, alignment, file.len())?;
    Ok(Contents { metadata, tensors })
}

/// A tensor as the table has it; its offset counts from the start of the data.
struct Described {
    name: String,
    shape: Vec<usize>,
    format: Format,
    offset: u64,
}

fn read_tensor(r: &mut Reader, i: usize) -> Result<Described> {
    let name = r.name(MAX_NAME_BYTES, || format!("name of tensor {i}"))?;
    let dimensions = r.u32(|| format!("number of dimensions of tensor {name}"))?;
    if u64::from(dimensions) > MAX_DIMENSIONS {
        let field = format!("number of dimensions of tensor {name}");
        return Err(WeightsError::GgufBound { field, got: dimensions.into(), limit: MAX_DIMENSIONS });
    }
    let mut shape = Vec::new();
    for d in 0..dimensions {
        let field = || format!("dimension {d} of tensor {name}");
        let n = r.u64(field)?;
        let limit = isize::MAX as u64;
        let bounded = usize::try_from(n).ok().filter(|_| n <= limit);
        shape.push(bounded.ok_or_else(|| WeightsError::GgufBound { field: field(), got: n, limit })?);
    }
    shape.reverse(); // the file lists the fastest first
    let id = r.u32(|| format!("type of tensor {name}"))?;
    let format = Format::from_ggml(id).ok_or_else(|| WeightsError::UnknownFormat {
        tensor: name.clone(),
        format: crate::format::refused_ggml(id).map_or(format!("ggml type {id}"), |n| format!("{n} (ggml type {id})")),
        known: FORMATS.iter().filter(|row| row.ggml.is_some()).map(|row| row.name).collect(),
    })?;
    let offset = r.u64(|| format!("offset of tensor {name}"))?;
    Ok(Described { name, shape, format, offset })
}

/// Where the tensors lie in the file: aligned, inside, apart from each other, each name once.
fn place(described: Vec<Described>, start: usize, alignment: usize, file_bytes: usize) -> Result<Vec<Entry>> {
    let mut names = HashSet::new();
    let mut tensors = Vec::with_capacity(described.len());
    for Described { name, shape, format, offset } in described {
        let offset_field = || format!("offset of tensor {name}");
        if !offset.is_multiple_of(alignment as u64) {
            return Err(field(offset_field(), offset, format!("a multiple of the alignment, {alignment}")));
        }
        // Too large a size, or one that is not to be had, is reported by the check.
        let bytes = format.tensor_bytes(&shape).map_or_else(|| check_size(&name, &shape, format, 0).map(|()| 0), Ok)?;
        let begin = usize::try_from(offset).ok().and_then(|offset| start.checked_add(offset));
        let range = begin.and_then(|begin| Some(begin..begin.checked_add(bytes)?)).filter(|r| r.end <= file_bytes);
        let Some(range) = range else {
            return Err(WeightsError::GgufRange { tensor: name, offset, bytes, start, file_bytes });
        };
        if !names.insert(name.clone()) {
            return Err(field("tensor name", name, "a name that no other tensor has"));
        }
        tensors.push(Entry { name, shape, format, range });
    }
    let mut order: Vec<&Entry> = tensors.iter().filter(|t| !t.range.is_empty()).collect();
    order.sort_by_key(|t| t.range.start);
    if let Some(pair) = order.windows(2).find(|pair| pair[0].range.end > pair[1].range.start) {
        let (tensor, other) = (pair[1].name.clone(), pair[0].name.clone());
        return Err(WeightsError::GgufOverlap { tensor, other });
    }
    Ok(tensors)
}

fn alignment(metadata: &Metadata) -> Result<usize> {
    const KEY: &str = "general.alignment";
    let alignment = metadata.find::<u64>(KEY)?.unwrap_or(32);
    if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
        return Err(field(KEY, alignment, format!("a power of two, at most {MAX_ALIGNMENT}")));
    }
    Ok(alignment as usize)
}

/// What every reader of the metadata may rely on: token ids are ids of the vocabulary, and blocks can be counted.
fn check_metadata(metadata: &Metadata) -> Result<()> {
    let tokens = metadata.find::<&Strings>("tokenizer.ggml.tokens")?.map(Strings::len);
    for (key, _) in metadata.iter() {
        let limit = match tokens {
            Some(tokens) if key.starts_with("tokenizer.ggml.") && key.ends_with("_token_id") => {
                (tokens as u64).saturating_sub(1)
            }
            _ if key.ends_with(".block_count") => MAX_BLOCKS,
            _ => continue,
        };
        let got = metadata.get::<u64>(key)?;
        if got > limit {
            return Err(WeightsError::GgufBound { field: key.to_string(), got, limit });
        }
    }
    Ok(())
}

/// The files of a split model, if `metadata` is that of its first file at `path`; `None` for a model in one file.
///
/// # Errors
/// [`WeightsError::GgufSplit`] if this is not the first of them, or not named as such.
pub fn split(path: &Path, metadata: &Metadata) -> Result<Option<Vec<PathBuf>>> {
    let count = metadata.find::<u64>("split.count")?.unwrap_or(1);
    if count <= 1 {
        return Ok(None);
    }
    let fault = |expected: String| WeightsError::GgufSplit { file: path.to_path_buf(), expected };
    let name = |i: u64| format!("-{:05}-of-{count:05}.gguf", i + 1);
    let number = metadata.get::<u64>("split.no")?;
    let file = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let limit = u64::from(u16::MAX);
    for (key, got) in [("split.count", count), ("split.no", number)] {
        if got > limit {
            return Err(WeightsError::GgufBound { field: key.into(), got, limit });
        }
    }
    let stem =
        file.strip_suffix(&name(number)).ok_or_else(|| fault(format!("a file name ending in {}", name(number))))?;
    if number != 0 {
        return Err(fault(format!("the first of them, {stem}{}", name(0))));
    }
    Ok(Some((0..count).map(|i| path.with_file_name(format!("{stem}{}", name(i)))).collect()))
}

fn field(field: impl Into<String>, got: impl ToString, expected: impl Into<String>) -> WeightsError {
    WeightsError::GgufField { field: field.into(), got: got.to_string(), expected: expected.into() }
}

#[cfg(test)]
pub(crate) mod tests;
