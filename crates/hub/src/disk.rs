//! How does a file get onto the disk whole or not at all? Bounded reads, hashing, the space check, and [`Incoming`]:
//! a file that grows under another name and takes its own only when it is complete, verified and synced.

use crate::{Event, HubError, Progress};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Room that is left free, beyond what is fetched.
const SPARE: u64 = 64 << 20;
const BLOCK: usize = 1 << 17;
/// How often progress is told.
const TELL: Duration = Duration::from_millis(50);
/// No validator is longer.
const MAX_ETAG: u64 = 1024;

/// The whole file, unless it is longer than `limit` bytes.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {limit} bytes")));
    }
    Ok(bytes)
}

/// SHA-256 of a file, in lower-case hex.
///
/// # Errors
/// [`HubError::Io`] if it cannot be read.
pub fn sha256(path: &Path) -> Result<String, HubError> {
    let mut hash = Sha256::new();
    let mut file = File::open(path).map_err(|e| HubError::io("read", path, e))?;
    feed(&mut hash, &mut file).map_err(|e| HubError::io("read", path, e))?;
    Ok(hex(hash))
}

fn feed(hash: &mut Sha256, file: &mut File) -> io::Result<u64> {
    let mut block = vec![0; BLOCK];
    let mut total = 0;
    loop {
        let n = file.read(&mut block)?;
        if n == 0 {
            return Ok(total);
        }
        hash.update(&block[..n]);
        total += n as u64;
    }
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().fold(String::with_capacity(64), |mut text, b| {
        write!(text, "{b:02x}").expect("a String takes everything");
        text
    })
}

/// Refuses to begin what would not fit: `need` more bytes under `folder`, which exists.
pub(crate) fn check_space(folder: &Path, need: u64) -> Result<(), HubError> {
    check_space_with(folder, need, |path| fs4::available_space(path))
}

fn check_space_with(folder: &Path, need: u64, free: impl Fn(&Path) -> io::Result<u64>) -> Result<(), HubError> {
    match free(folder) {
        Ok(free) if free < need.saturating_add(SPARE) => {
            Err(HubError::DiskFull { folder: folder.to_owned(), sizes: Some((need.saturating_add(SPARE), free)) })
        }
        Ok(_) => Ok(()),
        Err(e) => {
            // Some file systems do not tell; writing will.
            tracing::debug!(folder = %folder.display(), error = %e, "free space is unknown");
            Ok(())
        }
    }
}

/// Creates a folder and those above it.
pub(crate) fn create_dir(path: &Path) -> Result<(), HubError> {
    fs::create_dir_all(path).map_err(|e| HubError::io("create", path, e))
}

/// Writes a small file so that it is there whole or not at all.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), HubError> {
    let new = with_suffix(path, ".new");
    let write = || -> io::Result<()> {
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().map_err(|e| HubError::io("write", path, e))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// What is known of a file before it arrives.
#[derive(Debug, Clone, Default)]
pub(crate) struct Expected {
    pub(crate) bytes: Option<u64>,
    pub(crate) sha256: Option<String>,
}

/// A file on its way: `PATH.part`, and beside it `PATH.part.etag`, by which a later run asks whether the rest still fits.
pub(crate) struct Incoming<'a> {
    name: &'a str,
    target: PathBuf,
    part: PathBuf,
    etag_file: PathBuf,
    file: File,
    hash: Sha256,
    /// Bytes here.
    pub(crate) done: u64,
    /// The validator under which they were sent; without one they cannot be continued.
    pub(crate) etag: Option<String>,
}

impl<'a> Incoming<'a> {
    /// Opens what an earlier run left of `name` inside `folder`, or begins anew.
    pub(crate) fn open(folder: &Path, name: &'a str) -> Result<Incoming<'a>, HubError> {
        let target = crate::names::inside(folder, name);
        create_dir(target.parent().unwrap_or(folder))?;
        let part = with_suffix(&target, ".part");
        let etag_file = with_suffix(&part, ".etag");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&part)
            .map_err(|e| HubError::io("write", &part, e))?;
        let mut incoming = Incoming { name, target, part, etag_file, file, hash: Sha256::new(), done: 0, etag: None };
        let etag = read_bounded(&incoming.etag_file, MAX_ETAG).ok().and_then(|b| String::from_utf8(b).ok());
        match etag.filter(|e| is_strong(e)) {
            Some(etag) => {
                incoming.done = feed(&mut incoming.hash, &mut incoming.file)
                    .map_err(|e| HubError::io("read", &incoming.part, e))?;
                incoming.etag = Some(etag);
            }
            None => incoming.restart(None)?,
        }
        Ok(incoming)
    }

    /// Forgets what is here; what follows was sent under `etag`.
    pub(crate) fn restart(&mut self, etag: Option<&str>) -> Result<(), HubError> {
        let reset = |this: &mut Self| -> io::Result<()> {
            this.file.set_len(0)?;
            this.file.seek(SeekFrom::Start(0))?;
            match fs::remove_file(&this.etag_file) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            if let Some(etag) = &this.etag {
                fs::write(&this.etag_file, etag)?;
            }
            Ok(())
        };
        self.etag = etag.filter(|e| is_strong(e)).map(str::to_owned);
        (self.hash, self.done) = (Sha256::new(), 0);
        reset(self).map_err(|e| HubError::io("write", &self.part, e))
    }

    /// Appends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), HubError> {
        self.file.write_all(bytes).map_err(|e| HubError::io("write", &self.part, e))?;
        self.hash.update(bytes);
        self.done += bytes.len() as u64;
        Ok(())
    }

    /// Appends all of `from`, at most up to `limit` bytes in the whole file, and tells `progress`.
    ///
    /// An error of `from` comes back as the inner one: the file can go on from there. The outer is the disk's.
    pub(crate) fn fill(
        &mut self,
        from: &mut dyn Read,
        limit: u64,
        total: Option<u64>,
        progress: &mut dyn Progress,
    ) -> Result<io::Result<()>, HubError> {
        let mut block = vec![0; BLOCK];
        let mut told = Instant::now();
        loop {
            let n = match from.read(&mut block) {
                Ok(0) => return Ok(Ok(())),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Ok(Err(e)),
            };
            if self.done + n as u64 > limit {
                self.discard();
                return Err(HubError::TooLarge { file: self.name.into(), limit });
            }
            self.write(&block[..n])?;
            if told.elapsed() >= TELL {
                told = Instant::now();
                progress.on(&Event::Advanced { file: self.name, done: self.done, total });
            }
        }
    }

    /// Verifies, syncs and takes the file's own name. What fails the check is deleted.
    pub(crate) fn finish(self, expected: &Expected, source: &crate::Source) -> Result<u64, HubError> {
        let (got_bytes, got) = (self.done, hex(self.hash.clone()));
        if let Some(want) = expected.bytes.filter(|want| *want != got_bytes) {
            self.discard();
            return Err(HubError::Size {
                file: self.name.into(),
                origin: source.to_string(),
                expected: want,
                got: got_bytes,
            });
        }
        if let Some(want) = expected.sha256.as_ref().filter(|want| **want != got) {
            self.discard();
            return Err(HubError::Checksum {
                file: self.name.into(),
                origin: source.to_string(),
                expected: want.clone(),
                got,
            });
        }
        let place = || -> io::Result<()> {
            self.file.sync_all()?;
            fs::rename(&self.part, &self.target)?;
            let _ = fs::remove_file(&self.etag_file);
            // A rename lasts once its folder is synced; Windows has no such call.
            #[cfg(unix)]
            if let Some(folder) = self.target.parent() {
                File::open(folder)?.sync_all()?;
            }
            Ok(())
        };
        place().map_err(|e| HubError::io("write", &self.target, e))?;
        Ok(got_bytes)
    }

    /// Deletes what is here.
    pub(crate) fn discard(&self) {
        let _ = fs::remove_file(&self.part);
        let _ = fs::remove_file(&self.etag_file);
    }
}

/// Whether a validator promises equal bytes, and could stand in a header.
fn is_strong(etag: &str) -> bool {
    etag.len() > 2
        && (etag.len() as u64) <= MAX_ETAG
        && etag.starts_with('"')
        && etag.ends_with('"')
        && etag.bytes().all(|b| b.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    #[test]
    fn a_full_disk_is_refused_before_the_download() {
        let free = |_: &Path| Ok(100 << 20);
        assert!(check_space_with(Path::new("/m"), 10 << 20, free).is_ok());
        let error = check_space_with(Path::new("/m"), 90 << 20, free).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no room in /m: 154.0 MiB are needed, 100.0 MiB are free; free some, or let LATTICE_MODEL_CACHE name a folder on another disk"
        );
        assert!(check_space_with(Path::new("/m"), u64::MAX, free).is_err());
        assert!(check_space_with(Path::new("/m"), 1, |_| Err(io::Error::other("no statvfs"))).is_ok());
    }

    #[test]
    fn a_file_appears_only_when_it_is_right() {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::Hub { endpoint: "test".into() };
        let right = Expected { bytes: Some(5), sha256: Some(HELLO.into()) };

        let mut file = Incoming::open(dir.path(), "sub/a").unwrap();
        file.write(b"jello").unwrap();
        assert!(matches!(file.finish(&right, &source), Err(HubError::Checksum { .. })));
        assert_eq!(fs::read_dir(dir.path().join("sub")).unwrap().count(), 0);

        let mut file = Incoming::open(dir.path(), "sub/a").unwrap();
        file.write(b"hell").unwrap();
        assert!(matches!(file.finish(&right, &source), Err(HubError::Size { expected: 5, got: 4, .. })));

        // Interrupted under a validator: goes on. Without one: begins anew.
        let mut file = Incoming::open(dir.path(), "sub/a").unwrap();
        file.restart(Some("\"v1\"")).unwrap();
        file.write(b"hel").unwrap();
        drop(file);
        let mut file = Incoming::open(dir.path(), "sub/a").unwrap();
        assert_eq!((file.done, file.etag.as_deref()), (3, Some("\"v1\"")));
        file.write(b"lo").unwrap();
        assert_eq!(file.finish(&right, &source).unwrap(), 5);
        assert_eq!(fs::read(dir.path().join("sub/a")).unwrap(), b"hello");
        assert_eq!(sha256(&dir.path().join("sub/a")).unwrap(), HELLO);
        assert_eq!(fs::read_dir(dir.path().join("sub")).unwrap().count(), 1);

        let mut file = Incoming::open(dir.path(), "b").unwrap();
        file.restart(Some("W/\"weak\"")).unwrap();
        file.write(b"hel").unwrap();
        drop(file);
        assert_eq!(Incoming::open(dir.path(), "b").unwrap().done, 0);
    }

    #[test]
    fn more_than_the_limit_is_never_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = Incoming::open(dir.path(), "a").unwrap();
        let error = file.fill(&mut io::repeat(7), 1 << 20, None, &mut ()).unwrap_err();
        assert!(matches!(error, HubError::TooLarge { limit: 1_048_576, .. }));
        assert!(read_bounded(&dir.path().join("a.part"), 0).is_err());
    }
}
