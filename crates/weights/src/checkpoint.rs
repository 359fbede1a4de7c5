//! Which files are a model's weights, and which tensors do they hold? Found, mapped, checked, and named.
//!
//! A directory has `model.safetensors.index.json` with its shards, or `model.safetensors`, or a single `.safetensors`
//! file, or a single `.gguf` model; in this order. The index is text of somebody else: the shards it names must be plain file names in its own
//! directory. The directory's own entries are the user's: they may be symbolic links (Hugging Face's cache keeps
//! `model.safetensors` as a link to `../../blobs/…`), and whatever they lead to is read only if it is a regular file.

use crate::gguf;
use crate::mmap::Mapping;
use crate::order::Order;
use crate::safetensors::{self, UniqueMap};
use crate::tensor::Storage;
use crate::{Entry, Result, Tensor, WeightsError};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The longest `model.safetensors.index.json` that is read.
const MAX_INDEX_BYTES: u64 = 64 << 20;

/// How the text file begins that Git LFS leaves in the place of a large file.
const LFS: &[u8] = b"version https://git-lfs";
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// The mapped tensors of a model, by name.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    path: PathBuf,
    files: Vec<PathBuf>,
    tensors: BTreeMap<String, Placed>,
    metadata: Option<Arc<gguf::Metadata>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub tensor: Tensor,
    pub file: usize, // index into `files`
    /// How its rows are to be reordered when it is asked for.
    pub order: Option<Order>,
}

impl Checkpoint {
    /// Opens a directory, a `.safetensors` file, a `.safetensors.index.json` file with its shards, or a GGUF file with
    /// the other files of a split model. What a file is stands in its first bytes, except for the index.
    ///
    /// Nothing is read but headers: the bytes of a tensor come from the file when they are touched.
    ///
    /// # Errors
    /// Any [`WeightsError`] about files and headers, naming the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
        let path = path.as_ref();
        let file =
            if fs::metadata(path).map_err(io(path))?.is_dir() { find_weights(path)? } else { path.to_path_buf() };
        let (files, tensors) = (Vec::new(), BTreeMap::new());
        let mut checkpoint = Checkpoint { path: path.to_path_buf(), files, tensors, metadata: None };
        let name = file_name(&file);
        if name.ends_with(".index.json") {
            checkpoint.add_shards(&file)?;
        } else if is_pickle(&name) {
            return Err(WeightsError::PyTorch { file });
        } else {
            let storage = map(&file)?;
            if name.ends_with(".gguf") || storage.bytes().starts_with(&gguf::MAGIC) {
                checkpoint.add_gguf(&file, storage)?;
            } else {
                checkpoint.add_safetensors(&file, storage)?;
            }
        }
        Ok(checkpoint)
    }

    /// The metadata of a GGUF file; `None` of other files.
    pub fn metadata(&self) -> Option<&gguf::Metadata> {
        self.metadata.as_deref()
    }

    /// What was opened: a file or a directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files that hold the tensors.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The names of all tensors, sorted.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// All tensors, sorted by name, as their files hold them: where a checkpoint of [`Checkpoint::as_hugging_face`] has
    /// other rows, only [`Checkpoint::get`] and [`Checkpoint::find`] give them.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &Tensor> {
        self.tensors.values().map(|placed| &placed.tensor)
    }

    /// Is there a tensor of this name?
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// The tensor of this name, if there is one.
    pub fn find(&self, name: &str) -> Option<Tensor> {
        let Placed { tensor, order, .. } = self.tensors.get(name)?;
        let Some(order) = order else { return Some(tensor.clone()) };
        let ordered = order.apply(tensor).expect("an order is placed only where it can be applied");
        tensor.release(); // it was touched only to be copied
        Some(ordered)
    }

    /// A GGUF file's model as a Hugging Face directory would hold it: its config.json, and its tensors under their names
    /// there. See [`gguf::HuggingFace`].
    ///
    /// # Errors
    /// [`WeightsError::NotGguf`] for other checkpoints, [`WeightsError::GgufArchitecture`] for an architecture that is not
    /// in [`gguf::ARCHITECTURES`], and any [`WeightsError`] about the keys and tensors that do not make a model.
    pub fn as_hugging_face(&self) -> Result<gguf::HuggingFace> {
        gguf::HuggingFace::of(self)
    }

    /// The tensors with their places, sorted by the names of their files.
    pub(crate) fn placed(&self) -> impl Iterator<Item = &Placed> {
        self.tensors.values()
    }

    #[cfg(test)]
    pub(crate) fn with_metadata(&self, metadata: gguf::Metadata) -> Checkpoint {
        Checkpoint { metadata: Some(Arc::new(metadata)), ..self.clone() }
    }

    /// The same files with other names and orders of their tensors.
    pub(crate) fn with_tensors(&self, tensors: BTreeMap<String, Placed>) -> Checkpoint {
        Checkpoint { path: self.path.clone(), files: self.files.clone(), tensors, metadata: self.metadata.clone() }
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// [`WeightsError::Missing`], with the most similar names that are there.
    pub fn get(&self, name: &str) -> Result<Tensor> {
        self.find(name).ok_or_else(|| WeightsError::Missing {
            name: name.to_string(),
            checkpoint: self.path.clone(),
            near: self.similar(name),
        })
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> usize {
        self.tensors().map(|t| t.bytes().len()).sum()
    }

    /// Up to three names that share the longest beginnings and ends with `name`.
    fn similar(&self, name: &str) -> Vec<String> {
        fn common<'a>(a: impl Iterator<Item = &'a u8>, b: impl Iterator<Item = &'a u8>) -> usize {
            a.zip(b).take_while(|(x, y)| x == y).count()
        }
        let alike = |other: &str| {
            let (a, b) = (name.as_bytes(), other.as_bytes());
            common(a.iter(), b.iter()) + common(a.iter().rev(), b.iter().rev())
        };
        let mut names: Vec<_> = self.names().map(|other| (alike(other), other)).collect();
        names.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.len().cmp(&b.1.len())));
        names.into_iter().take(3).filter(|(n, _)| *n > 0).map(|(_, name)| name.to_string()).collect()
    }

    fn add_safetensors(&mut self, path: &Path, storage: Arc<Storage>) -> Result<()> {
        let entries = safetensors::parse(storage.bytes()).map_err(|e| e.at(path))?;
        self.add_tensors(path, entries, &storage)
    }

    /// The tensors of a GGUF file and of the other files of its model; the first has the metadata.
    fn add_gguf(&mut self, path: &Path, storage: Arc<Storage>) -> Result<()> {
        let first = gguf::parse(storage.bytes()).map_err(|e| e.at(path))?;
        self.add_tensors(path, first.tensors, &storage)?;
        if let Some(files) = gguf::split(path, &first.metadata)? {
            for (i, file) in files.iter().enumerate().skip(1) {
                let storage = map(file)?;
                let part = gguf::parse(storage.bytes()).map_err(|e| e.at(file))?;
                for (key, expected) in [("split.no", i), ("split.count", files.len())] {
                    let got = part.metadata.get::<u64>(key).map_err(|e| e.at(file))?;
                    if got != expected as u64 {
                        let (field, got, expected) = (key.into(), got.to_string(), expected.to_string());
                        return Err(WeightsError::GgufField { field, got, expected }.at(file));
                    }
                }
                self.add_tensors(file, part.tensors, &storage)?;
            }
            const COUNT: &str = "split.tensors.count";
            if let Some(count) = first.metadata.find::<u64>(COUNT)?
                && count != self.tensors.len() as u64
            {
                let (got, expected) = (count.to_string(), format!("{}, as there are", self.tensors.len()));
                return Err(WeightsError::GgufField { field: COUNT.into(), got, expected }.at(path));
            }
        }
        self.metadata = Some(Arc::new(first.metadata));
        Ok(())
    }

    fn add_tensors(&mut self, path: &Path, entries: Vec<Entry>, storage: &Arc<Storage>) -> Result<()> {
        let file = self.files.len();
        self.files.push(path.to_path_buf());
        for entry in entries {
            let tensor = Tensor::view(entry, storage);
            if let Some(first) = self.tensors.insert(tensor.name().to_string(), Placed { tensor, file, order: None }) {
                let [first_file, second] = [first.file, file].map(|i| file_name(&self.files[i]));
                let fault = WeightsError::TwoShards { tensor: first.tensor.name().into(), first: first_file, second };
                return Err(fault.at(&self.path));
            }
        }
        Ok(())
    }

    /// The index decides which files are read; the files' headers decide what is in them. They must agree, but a shard
    /// may hold tensors that the index forgot.
    fn add_shards(&mut self, index: &Path) -> Result<()> {
        #[derive(serde::Deserialize)]
        struct Index {
            weight_map: UniqueMap<String>,
        }
        let text = read_bounded(index, MAX_INDEX_BYTES)?;
        let json = |source| WeightsError::Json { what: "index of shards", source }.at(index);
        let Index { weight_map: UniqueMap(listed) } = serde_json::from_slice(&text).map_err(json)?;

        let mut shards: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (tensor, shard) in &listed {
            if !is_plain_name(shard) {
                return Err(WeightsError::ShardPath { tensor: tensor.clone(), shard: shard.clone() }.at(index));
            }
            shards.entry(shard).or_default().push(tensor);
        }
        let dir = index.parent().unwrap_or(Path::new(""));
        for (shard, listed) in shards {
            let file = self.files.len();
            let path = dir.join(shard);
            self.add_safetensors(&path, map(&path)?)?;
            if let Some(tensor) = listed.iter().find(|&&t| self.tensors.get(t).is_none_or(|t| t.file != file)) {
                return Err(WeightsError::NotInShard { tensor: tensor.to_string(), shard: shard.into() }.at(index));
            }
        }
        Ok(())
    }
}

/// The file of a directory that leads to its weights: what [`Checkpoint::open`] opens of it. The projector of a vision
/// model (`mmproj*.gguf`) is none.
///
/// # Errors
/// [`WeightsError::NoWeights`], [`WeightsError::Ambiguous`], [`WeightsError::PyTorch`], or an unreadable directory.
pub fn find_weights(dir: &Path) -> Result<PathBuf> {
    for name in [INDEX, SINGLE] {
        if dir.join(name).exists() {
            return Ok(dir.join(name));
        }
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(io(dir))? {
        names.extend(entry.map_err(io(dir))?.file_name().into_string()); // a name that is not UTF-8 is none of ours
    }
    names.sort();
    for extension in [".safetensors", ".gguf"] {
        let candidates =
            names.iter().filter(|n| n.ends_with(extension) && !is_later_part(n) && !n.starts_with("mmproj")).cloned();
        match candidates.collect::<Vec<_>>().as_slice() {
            [] => continue,
            [one] => return Ok(dir.join(one)),
            several => return Err(WeightsError::Ambiguous { dir: dir.to_path_buf(), files: several.to_vec() }),
        }
    }
    Err(match names.iter().find(|name| is_pickle(name)) {
        Some(name) => WeightsError::PyTorch { file: dir.join(name) },
        None => WeightsError::NoWeights { dir: dir.to_path_buf() },
    })
}

/// Is this a file of a split GGUF model (`…-00002-of-00003.gguf`) other than the first?
fn is_later_part(name: &str) -> bool {
    let part = name.strip_suffix(".gguf").and_then(|n| n.rsplit_once("-of-")).and_then(|(n, _)| n.rsplit_once('-'));
    part.is_some_and(|(_, number)| number.len() == 5 && number != "00001" && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Maps a file, unless its first bytes say that it is something else.
fn map(path: &Path) -> Result<Arc<Storage>> {
    let file = || path.to_path_buf();
    let mapping = Mapping::open(path)?;
    match mapping.bytes() {
        [b'P', b'K', 3, 4, ..] => Err(WeightsError::PyTorch { file: file() }),
        bytes if bytes.starts_with(LFS) => Err(WeightsError::LfsPointer { file: file() }),
        _ => Ok(Arc::new(Storage::Mapped(mapping))),
    }
}

fn is_pickle(name: &str) -> bool {
    let extension = Path::new(name).extension().and_then(OsStr::to_str);
    matches!(extension, Some("pt" | "pth" | "ckpt")) || name.starts_with("pytorch_model") && name.ends_with(".bin")
}

/// One component, which is a name: not empty, not absolute, no `..`, no separator of any system.
fn is_plain_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name)
        && !name.contains(['/', '\\', ':', '\0'])
}

fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let meta = fs::metadata(path).map_err(io(path))?;
    if !meta.is_file() {
        return Err(WeightsError::NotAFile { file: path.to_path_buf() });
    }
    if meta.len() > limit {
        return Err(WeightsError::TooLarge { bytes: meta.len(), limit }.at(path));
    }
    fs::read(path).map_err(io(path))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> WeightsError {
    let file = path.to_path_buf();
    move |source| WeightsError::Io { file, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::tests::Builder;
    use crate::{Format, write_safetensors};
    use tempfile::TempDir;

    fn tensor(name: &str, value: f32) -> Tensor {
        Tensor::from_f32(name, vec![1, 2], vec![value, value + 1.0])
    }

    /// A directory with two shards and an index that says `weight_map`.
    fn sharded(weight_map: &str) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        write_safetensors(dir.path().join("1.safetensors"), &[tensor("a", 1.0), tensor("b", 2.0)]).unwrap();
        write_safetensors(dir.path().join("2.safetensors"), &[tensor("c", 3.0)]).unwrap();
        fs::write(dir.path().join(INDEX), format!(r#"{{"metadata":{{"x":1}},"weight_map":{weight_map}}}"#)).unwrap();
        dir
    }

    /// The message of the failure to open, without the directory.
    fn failure(path: &Path, dir: &Path) -> String {
        let text = Checkpoint::open(path).expect_err("must be refused").to_string();
        text.replace(&format!("{}", dir.display()), "DIR")
    }

    #[test]
    fn what_was_written_is_read_back_without_copies() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(SINGLE);
        let half = Tensor::from_bytes("h", vec![3], Format::BF16, vec![0x80, 0x3f, 0, 0xc0, 0, 0]).unwrap();
        write_safetensors(&file, &[half, tensor("w", 0.5)]).unwrap();
        for path in [dir.path(), &file] {
            let checkpoint = Checkpoint::open(path).unwrap();
            assert_eq!(checkpoint.names().collect::<Vec<_>>(), ["h", "w"]);
            assert_eq!(checkpoint.get("h").unwrap().to_f32().unwrap(), [1.0, -2.0, 0.0]);
            let w = checkpoint.get("w").unwrap();
            w.release();
            assert_eq!((w.shape(), w.to_f32().unwrap()), (&[1, 2][..], vec![0.5, 1.5]));
            assert_eq!(w.bytes().as_ptr(), checkpoint.find("w").unwrap().bytes().as_ptr());
            assert_eq!((checkpoint.bytes(), checkpoint.files()), (14, &[file.clone()][..]));
        }
    }

    #[test]
    fn shards_are_found_by_their_index() {
        let dir = sharded(r#"{"a":"1.safetensors","b":"1.safetensors","c":"2.safetensors"}"#);
        for path in [dir.path(), &dir.path().join(INDEX)] {
            let checkpoint = Checkpoint::open(path).unwrap();
            assert_eq!(checkpoint.names().collect::<Vec<_>>(), ["a", "b", "c"]);
            assert_eq!(checkpoint.get("c").unwrap().to_f32().unwrap(), [3.0, 4.0]);
            assert_eq!(checkpoint.files().len(), 2);
        }
    }

    #[test]
    fn an_index_that_lies_is_refused() {
        let escape = "is not a plain file name in the same directory";
        let cases = [
            (r#"{"a":"../1.safetensors"}"#, format!(r#"tensor a: the shard name "../1.safetensors" {escape}"#)),
            (r#"{"a":"/etc/passwd"}"#, format!(r#"tensor a: the shard name "/etc/passwd" {escape}"#)),
            (r#"{"a":"x/../1.safetensors"}"#, format!(r#"tensor a: the shard name "x/../1.safetensors" {escape}"#)),
            (r#"{"a":"C:\\1"}"#, format!(r#"tensor a: the shard name "C:\\1" {escape}"#)),
            (r#"{"a":".."}"#, format!(r#"tensor a: the shard name ".." {escape}"#)),
            (r#"{"a":""}"#, format!(r#"tensor a: the shard name "" {escape}"#)),
            (r#"{"c":"1.safetensors"}"#, "tensor c is not in 1.safetensors, where the index says".into()),
            (
                r#"{"a":"1.safetensors","b":"2.safetensors"}"#,
                "tensor b is not in 2.safetensors, where the index says".into(),
            ),
            (r#"{"a":"1.safetensors","a":"2.safetensors"}"#, r#"index of shards: "a" stands there twice"#.into()),
            (r#"["a"]"#, "index of shards: invalid type: sequence".into()),
        ];
        let mut failed = Vec::new();
        for (map, expected) in cases {
            let dir = sharded(map);
            let text = failure(dir.path(), dir.path());
            if !text.starts_with(&format!("DIR/{INDEX}: {expected}")) {
                failed.push(text);
            }
        }
        assert!(failed.is_empty(), "{}", failed.join("\n"));

        let dir = sharded(r#"{"a":"1.safetensors","c":"3.safetensors"}"#);
        assert!(failure(dir.path(), dir.path()).starts_with("DIR/3.safetensors: No such file"));
        write_safetensors(dir.path().join("3.safetensors"), &[tensor("a", 1.0), tensor("c", 1.0)]).unwrap();
        let text = failure(dir.path(), dir.path());
        assert_eq!(text, "DIR: tensor a is in two shards, 1.safetensors and 3.safetensors");
    }

    #[test]
    fn a_directory_without_readable_weights_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let expected = "DIR: no weights here: expected model.safetensors, model.safetensors.index.json, or one .safetensors or .gguf file";
        assert_eq!(failure(dir.path(), dir.path()), expected);
        fs::write(dir.path().join("pytorch_model.bin"), "PK").unwrap();
        let text = failure(dir.path(), dir.path());
        assert!(text.starts_with("DIR/pytorch_model.bin: PyTorch pickles are not read. Convert once"), "{text}");
        for (name, content, expected) in [
            ("renamed", "PK\x03\x04", "DIR/renamed: PyTorch pickles are not read"),
            (
                "pointer",
                "version https://git-lfs.github.com/spec/v1\noid sha256:1",
                "DIR/pointer: a Git LFS pointer, not",
            ),
            ("notes.txt", "Dear diary, nobody", "the header claims 7019251584754345284 bytes, but the file has 18 and"),
        ] {
            fs::write(dir.path().join(name), content).unwrap();
            let text = failure(&dir.path().join(name), dir.path());
            assert!(text.contains(expected), "{text}");
        }
        for name in ["x.safetensors", "y.safetensors"] {
            write_safetensors(dir.path().join(name), &[tensor(name, 0.0)]).unwrap();
        }
        let text = failure(dir.path(), dir.path());
        assert_eq!(text, "DIR: which of x.safetensors, y.safetensors is meant? Give the path of the file");
        fs::remove_file(dir.path().join("y.safetensors")).unwrap();
        assert!(Checkpoint::open(dir.path()).unwrap().contains("x.safetensors"));
        assert!(Checkpoint::open(dir.path().join("absent")).unwrap_err().to_string().contains("No such file"));
    }

    #[test]
    fn a_gguf_file_is_known_by_its_first_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let arch = [&5u64.to_le_bytes()[..], b"llama"].concat();
        let file =
            Builder::default().key("general.architecture", 8, &arch).tensor("w", &[4, 2], 30, 0).data(16).build();
        for name in ["sha256-1f", "model.gguf"] {
            fs::write(dir.path().join(name), &file).unwrap();
            let checkpoint = Checkpoint::open(dir.path().join(name)).unwrap();
            assert_eq!(checkpoint.metadata().unwrap().architecture().unwrap(), "llama");
            let w = checkpoint.get("w").unwrap();
            assert_eq!((w.shape(), w.format(), w.to_f32().unwrap()), (&[2, 4][..], Format::BF16, vec![0.0; 8]));
        }
        assert!(Checkpoint::open(dir.path()).unwrap().contains("w"));
        fs::write(dir.path().join("model.gguf"), &file[..60]).unwrap();
        let text = failure(dir.path(), dir.path());
        assert!(
            text.starts_with("DIR/model.gguf: length of general.architecture at byte 56 takes 8 bytes, but 4 are left"),
            "{text}"
        );
    }

    /// Part `number` of `count`, with one tensor of its own.
    fn part(number: u16, count: u16, tensors: u32, name: &str) -> Vec<u8> {
        Builder::default()
            .key("split.no", 2, &number.to_le_bytes())
            .key("split.count", 2, &count.to_le_bytes())
            .key("split.tensors.count", 5, &tensors.to_le_bytes())
            .tensor(name, &[1], 0, 0)
            .data(4)
            .build()
    }

    #[test]
    fn a_split_gguf_model_is_opened_by_its_first_file_and_must_be_whole() {
        let dir = tempfile::tempdir().unwrap();
        let file = |number: usize| dir.path().join(format!("m-0000{number}-of-00002.gguf"));
        fs::write(file(1), part(0, 2, 2, "a")).unwrap();
        assert!(failure(&file(1), dir.path()).starts_with("DIR/m-00002-of-00002.gguf: No such file"));
        fs::write(file(2), part(1, 2, 2, "b")).unwrap();
        for path in [dir.path(), &file(1)] {
            let checkpoint = Checkpoint::open(path).unwrap();
            assert_eq!(checkpoint.names().collect::<Vec<_>>(), ["a", "b"]);
            assert_eq!(checkpoint.files(), [file(1), file(2)]);
        }
        let expected =
            "DIR/m-00002-of-00002.gguf: part of a split model, expected the first of them, m-00001-of-00002.gguf";
        assert_eq!(failure(&file(2), dir.path()), expected);
        fs::copy(file(1), dir.path().join("x.gguf")).unwrap();
        let expected = "DIR/x.gguf: part of a split model, expected a file name ending in -00001-of-00002.gguf";
        assert_eq!(failure(&dir.path().join("x.gguf"), dir.path()), expected);

        for (second, expected) in [
            (part(0, 2, 2, "b"), "DIR/m-00002-of-00002.gguf: split.no is 0, expected 1"),
            (part(1, 3, 2, "b"), "DIR/m-00002-of-00002.gguf: split.count is 3, expected 2"),
            (part(1, 2, 2, "a"), "DIR/m-00001-of-00002.gguf: tensor a is in two shards, m-00001-of-00002.gguf and"),
        ] {
            fs::write(file(2), second).unwrap();
            let text = failure(&file(1), dir.path());
            assert!(text.starts_with(expected), "{text}");
        }
        fs::write(file(1), part(0, 2, 7, "a")).unwrap();
        fs::write(file(2), part(1, 2, 7, "b")).unwrap();
        let text = failure(&file(1), dir.path());
        assert_eq!(text, "DIR/m-00001-of-00002.gguf: split.tensors.count is 7, expected 2, as there are");
    }

    #[test]
    fn a_missing_tensor_is_named_with_its_neighbours() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["embeddings.word_embeddings.weight", "encoder.layer.0.output.dense.weight", "pooler.dense.bias"];
        write_safetensors(dir.path().join(SINGLE), &names.map(|n| tensor(n, 0.0))).unwrap();
        let checkpoint = Checkpoint::open(dir.path()).unwrap();
        let text = checkpoint.get("bert.embeddings.word_embeddings.weight").unwrap_err().to_string();
        let head = format!("no tensor bert.embeddings.word_embeddings.weight in {}; ", dir.path().display());
        let tail =
            "the most similar names there: embeddings.word_embeddings.weight, encoder.layer.0.output.dense.weight";
        assert_eq!(text, head + tail);
    }

    #[test]
    fn a_short_file_of_a_huge_tensor_is_refused_at_load() {
        let dir = tempfile::tempdir().unwrap();
        for (shape, expected) in [
            ("[1000,1000]", "tensor t: F32 [1000, 1000] takes 4000000 bytes, but it has 4"),
            ("[8589934592,8589934592]", "tensor t: F32 [8589934592, 8589934592] takes more bytes than can be counted"),
        ] {
            let header = format!(r#"{{"t":{{"dtype":"F32","shape":{shape},"data_offsets":[0,4]}}}}"#);
            let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 4]].concat();
            fs::write(dir.path().join(SINGLE), file).unwrap();
            assert_eq!(failure(dir.path(), dir.path()), format!("DIR/{SINGLE}: {expected}"));
        }
        fs::write(dir.path().join(SINGLE), "").unwrap();
        let expected = "0 bytes are too few for a safetensors file: is it a failed download?";
        assert_eq!(failure(dir.path(), dir.path()), format!("DIR/{SINGLE}: {expected}"));
    }

    #[cfg(unix)]
    #[test]
    fn links_of_the_user_are_followed_and_other_than_files_are_not_opened() {
        let blobs = tempfile::tempdir().unwrap();
        let dir = tempfile::tempdir().unwrap();
        write_safetensors(blobs.path().join("3f2a"), &[tensor("a", 1.0)]).unwrap();
        std::os::unix::fs::symlink(blobs.path().join("3f2a"), dir.path().join(SINGLE)).unwrap();
        assert!(Checkpoint::open(dir.path()).unwrap().contains("a"));
        let text = Checkpoint::open("/dev/zero").unwrap_err().to_string();
        assert_eq!(text, "/dev/zero: not a regular file");
    }
}
