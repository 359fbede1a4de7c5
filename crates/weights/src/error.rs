//! What can go wrong with weights? One enum; every message says what, where, what was expected, and what to do.

use std::io;
use std::path::PathBuf;

/// Why a checkpoint could not be read, or a tensor not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// What was found wrong inside a file.
    #[error("{}: {fault}", .file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        fault: Box<WeightsError>,
    },
    /// The operating system refused.
    #[error("{}: {source}", .file.display())]
    Io {
        /// The file or directory.
        file: PathBuf,
        /// Its words.
        source: io::Error,
    },
    /// A directory, pipe or device stands where a file is needed.
    #[error("{}: not a regular file", .file.display())]
    NotAFile {
        /// The path.
        file: PathBuf,
    },
    /// A directory without weights.
    #[error(
        "{}: no weights here: expected model.safetensors, model.safetensors.index.json, or one .safetensors or .gguf file", .dir.display()
    )]
    NoWeights {
        /// The directory.
        dir: PathBuf,
    },
    /// Several files could be the weights.
    #[error("{}: which of {} is meant? Give the path of the file", .dir.display(), .files.join(", "))]
    Ambiguous {
        /// The directory.
        dir: PathBuf,
        /// The candidates.
        files: Vec<String>,
    },
    /// Pickled weights, which are programs and not read here.
    #[error(
        "{}: PyTorch pickles are not read. Convert once, in Python: from transformers import AutoModel; \
         AutoModel.from_pretrained(DIR).save_pretrained(DIR, safe_serialization=True)",
        .file.display()
    )]
    PyTorch {
        /// The file.
        file: PathBuf,
    },
    /// What Git leaves in the place of a large file that was not fetched.
    #[error("{}: a Git LFS pointer, not the weights: run `git lfs pull` in its directory", .file.display())]
    LfsPointer {
        /// The file.
        file: PathBuf,
    },
    /// The header of a safetensors file claims a length that is impossible.
    #[error(
        "the header claims {claimed} bytes, but the file has {file_bytes} and a header at most {limit}: is it a \
         safetensors file, completely downloaded?"
    )]
    HeaderLength {
        /// Bytes, as claimed by the first 8 bytes of the file.
        claimed: u64,
        /// Length of the file in bytes.
        file_bytes: usize,
        /// [`crate::safetensors::MAX_HEADER_BYTES`].
        limit: usize,
    },
    /// The file is shorter than any safetensors file.
    #[error("{file_bytes} bytes are too few for a safetensors file: is it a failed download?")]
    TooShort {
        /// Length of the file in bytes.
        file_bytes: usize,
    },
    /// The header or index is not the JSON that it should be (not JSON, a key twice, a field of another type, …).
    #[error("{what}: {source}")]
    Json {
        /// Which part of the file.
        what: &'static str,
        /// What and where.
        source: serde_json::Error,
    },
    /// A number format that is not in the table.
    #[error("tensor {tensor} has the format {format}, which is not read here: known are {}", .known.join(", "))]
    UnknownFormat {
        /// The tensor.
        tensor: String,
        /// Its format, in the file's own terms.
        format: String,
        /// What could be read.
        known: Vec<&'static str>,
    },
    /// Shape and format do not make the bytes that are there.
    #[error("tensor {tensor}: {format} {shape:?} takes {expected} bytes, but it has {got}")]
    Size {
        /// The tensor.
        tensor: String,
        /// Its format.
        format: &'static str,
        /// Its shape.
        shape: Vec<usize>,
        /// Bytes that these need.
        expected: usize,
        /// Bytes that are there.
        got: usize,
    },
    /// Shape times size overflows.
    #[error("tensor {tensor}: {format} {shape:?} takes more bytes than can be counted")]
    ShapeOverflow {
        /// The tensor.
        tensor: String,
        /// Its format.
        format: &'static str,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// A row that is not a whole number of blocks.
    #[error("tensor {tensor}: rows of {cols} are no whole number of {format} blocks of {block}")]
    RowWidth {
        /// The tensor.
        tensor: String,
        /// The format.
        format: &'static str,
        /// Elements in a row.
        cols: usize,
        /// Elements in a block.
        block: usize,
    },
    /// Tensors overlap, leave holes, or run backwards.
    #[error(
        "tensor {tensor}: its bytes {begin}..{end} do not follow the tensor before it: tensors must lie one after another"
    )]
    Offsets {
        /// The tensor.
        tensor: String,
        /// Its first byte.
        begin: usize,
        /// The byte after its last.
        end: usize,
    },
    /// The data are longer or shorter than the tensors.
    #[error("the tensors take {expected} bytes, but {got} follow the header: is the download complete?")]
    DataLength {
        /// Bytes of all tensors.
        expected: usize,
        /// Bytes in the file after its header.
        got: usize,
    },
    /// An index points outside its directory.
    #[error("tensor {tensor}: the shard name {shard:?} is not a plain file name in the same directory")]
    ShardPath {
        /// The tensor.
        tensor: String,
        /// What the index says.
        shard: String,
    },
    /// An index lists a tensor that its shard does not have.
    #[error("tensor {tensor} is not in {shard}, where the index says that it is")]
    NotInShard {
        /// The tensor.
        tensor: String,
        /// The file name of the shard.
        shard: String,
    },
    /// A tensor that is in two shards.
    #[error("tensor {tensor} is in two shards, {first} and {second}")]
    TwoShards {
        /// The tensor.
        tensor: String,
        /// One shard.
        first: String,
        /// The other.
        second: String,
    },
    /// A file larger than what such a file may be.
    #[error("{bytes} bytes are more than the {limit} that such a file may have")]
    TooLarge {
        /// Its length.
        bytes: u64,
        /// The bound.
        limit: u64,
    },
    /// A GGUF file that ends in the middle of a field.
    #[error("{field} at byte {at} takes {need} bytes, but {left} are left: is the download complete?")]
    GgufTruncated {
        /// The field, key or element.
        field: String,
        /// Where it begins.
        at: usize,
        /// Its bytes.
        need: u64,
        /// Bytes to the end of the file.
        left: u64,
    },
    /// A count, length, or id in a GGUF file that is too large.
    #[error("{field} is {got}, at most {limit} can be here")]
    GgufBound {
        /// The field or key.
        field: String,
        /// What the file says.
        got: u64,
        /// The largest that is read, or that fits the file.
        limit: u64,
    },
    /// A field of a GGUF file that is not what it should be.
    #[error("{field} is {got}, expected {expected}")]
    GgufField {
        /// The field or key.
        field: String,
        /// What the file says.
        got: String,
        /// What it may say.
        expected: String,
    },
    /// A metadata key that is needed and absent from a GGUF file.
    #[error("the metadata have no {key}, expected {expected}")]
    GgufKey {
        /// The key.
        key: String,
        /// What its value should be.
        expected: &'static str,
    },
    /// A tensor outside its GGUF file.
    #[error(
        "tensor {tensor}: its {bytes} bytes at {offset} after byte {start} are not inside the file of {file_bytes}: \
         is the download complete?"
    )]
    GgufRange {
        /// The tensor.
        tensor: String,
        /// Its offset in the data.
        offset: u64,
        /// Its bytes.
        bytes: usize,
        /// Where the data begin.
        start: usize,
        /// Length of the file.
        file_bytes: usize,
    },
    /// Two tensors in the same bytes of a GGUF file.
    #[error("tensor {tensor} overlaps tensor {other}")]
    GgufOverlap {
        /// The tensor.
        tensor: String,
        /// The one that begins before it.
        other: String,
    },
    /// One file of a split GGUF model, where another is needed.
    #[error("{}: part of a split model, expected {expected}", .file.display())]
    GgufSplit {
        /// The file.
        file: PathBuf,
        /// What is needed.
        expected: String,
    },
    /// A checkpoint that is not a GGUF file, where one is needed.
    #[error("{}: not a GGUF file, which alone has metadata in it", .checkpoint.display())]
    NotGguf {
        /// The file or directory that was opened.
        checkpoint: PathBuf,
    },
    /// An architecture whose tensors and keys have no names here.
    #[error("general.architecture is {got:?}, which is not built: known are {}", .known.join(", "))]
    GgufArchitecture {
        /// What the file says.
        got: String,
        /// What could be read.
        known: Vec<&'static str>,
    },
    /// A tensor that models of this architecture do not have, and that may change what they compute.
    #[error("tensor {tensor} is none that models of the architecture {architecture} are known to have")]
    GgufTensor {
        /// The tensor.
        tensor: String,
        /// The architecture.
        architecture: &'static str,
    },
    /// A tensor whose shape or format does not go with the metadata of its file.
    #[error("tensor {tensor} is {format} {shape:?}, expected {expected}")]
    GgufShape {
        /// The tensor.
        tensor: String,
        /// Its format.
        format: &'static str,
        /// Its shape.
        shape: Vec<usize>,
        /// What the metadata ask for.
        expected: String,
    },
    /// A tensor that the model needs and the checkpoint does not have.
    #[error("no tensor {name} in {}{}", .checkpoint.display(), near_text(.near))]
    Missing {
        /// Its name.
        name: String,
        /// The file or directory that was opened.
        checkpoint: PathBuf,
        /// Names that are there and look alike, the most alike first.
        near: Vec<String>,
    },
    /// Rows that a tensor does not have.
    #[error("tensor {tensor} has {have} rows, asked for rows {start}..{end}")]
    Rows {
        /// The tensor.
        tensor: String,
        /// The first row asked for.
        start: usize,
        /// The row after the last.
        end: usize,
        /// Rows that it has.
        have: usize,
    },
    /// Values that `f32` cannot hold.
    #[error("tensor {tensor} holds {format}: indices or flags, not weights that can be read as f32")]
    NotNumbers {
        /// The tensor.
        tensor: String,
        /// Its format.
        format: &'static str,
    },
    /// Values that are not integers, or too large.
    #[error("tensor {tensor} holds {format}, which cannot be read as 64-bit integers")]
    NotIntegers {
        /// The tensor.
        tensor: String,
        /// Its format.
        format: &'static str,
    },
    /// A format that is read but not written.
    #[error("tensor {tensor}: nothing here encodes to {format}")]
    NoEncoder {
        /// The tensor.
        tensor: String,
        /// The format.
        format: &'static str,
    },
    /// NaN, an infinity, or a magnitude that the format cannot hold.
    #[error("tensor {tensor}: element {at} is {value}, which {format} cannot hold (finite, at most {limit:e})")]
    NotFinite {
        /// The tensor.
        tensor: String,
        /// The format.
        format: &'static str,
        /// Where in the values, in row-major order.
        at: usize,
        /// The value.
        value: f32,
        /// The largest magnitude that the format can hold.
        limit: f32,
    },
    /// A format that a safetensors file cannot hold.
    #[error("tensor {tensor}: safetensors files cannot hold {format}")]
    NotSafetensors {
        /// The tensor.
        tensor: String,
        /// Its format.
        format: &'static str,
    },
}

impl WeightsError {
    /// The same error, with the file in which it was found.
    pub(crate) fn at(self, file: impl Into<PathBuf>) -> WeightsError {
        WeightsError::File { file: file.into(), fault: Box::new(self) }
    }
}

fn near_text(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; the most similar names there: {}", near.join(", ")) }
}
