//! How does a file become bytes without being read? It is mapped, read-only. The one place of this crate with unsafe.
//!
//! A mapping shows the file as it is: whoever overwrites or shortens a checkpoint *in place* while it is in use changes
//! the weights of the running model, and touching a page behind the new end kills the process (SIGBUS on Unix). No
//! reader of mapped files can prevent that; replace checkpoints by renaming a new file over the old one, as this
//! project's own writers do: the mapping keeps the old file.
#![allow(unsafe_code)]

use crate::{Result, WeightsError};
use memmap2::Mmap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;

/// A whole file, mapped.
#[derive(Debug)]
pub(crate) struct Mapping(Option<Mmap>); // an empty file has no mapping

/// Bytes of a mapping that come and go together.
#[cfg(unix)]
const TOGETHER: usize = 64 << 10;

impl Mapping {
    /// Maps a regular file.
    pub(crate) fn open(path: &Path) -> Result<Mapping> {
        let io = |source| WeightsError::Io { file: path.to_path_buf(), source };
        // Opening a pipe would wait for its writer: look before opening.
        let meta = std::fs::metadata(path).map_err(io)?;
        if !meta.is_file() {
            return Err(WeightsError::NotAFile { file: path.to_path_buf() });
        }
        if meta.len() == 0 {
            return Ok(Mapping(None));
        }
        let file = File::open(path).map_err(io)?;
        // SAFETY: the mapping is read-only and handed out as `&[u8]`. That nobody changes the file meanwhile cannot be
        // guaranteed by any program; the module documentation says what happens then. No code here relies on the
        // bytes staying the same after a check: offsets are parsed once and bounds are those of the mapping.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        Ok(Mapping(Some(map)))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or(&[])
    }

    /// Lets the operating system drop the resident pages of this byte range; they come back from the file when touched.
    pub(crate) fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Some(map) = &self.0
            && range.end <= map.len()
            && !range.is_empty()
        {
            // A page that is touched brings its neighbours along (Linux: 16 pages in an aligned window of 64 KiB).
            let start = range.start / TOGETHER * TOGETHER;
            let end = range.end.next_multiple_of(TOGETHER).min(map.len());
            // SAFETY: the mapping is a read-only view of a file and has no pages of its own: a dropped page is read
            // again from the file, with the same bytes. Pages shared with a neighbour at the edges are no exception.
            let advised = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
            let _ = advised; // advice: nothing is lost if it is not taken
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}
