//! Writing a matrix of float32 as a NumPy file, row by row, without knowing beforehand how many rows come.
//!
//! Format: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>, version 1.0.

use crate::error::CliError;
use std::fs::{self, File};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A file in the making. It lies beside its final place as `NAME.part` until it is complete.
pub(crate) struct Npy {
    file: BufWriter<File>,
    part: PathBuf,
    path: PathBuf,
    columns: usize,
    rows: usize,
    finished: bool,
}

/// Bytes before the values: enough for any count of rows.
const HEAD: usize = 128;

impl Npy {
    /// Begins a file of rows of `columns` values.
    pub(crate) fn create(path: &Path, columns: usize) -> Result<Npy, CliError> {
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = File::create(&part).map_err(CliError::file("write", &part))?;
        let file = BufWriter::with_capacity(1 << 20, file);
        let mut npy = Npy { file, part, path: path.to_owned(), columns, rows: 0, finished: false };
        npy.put(&head(0, columns))?;
        Ok(npy)
    }

    /// Appends a row.
    pub(crate) fn push(&mut self, row: &[f32]) -> Result<(), CliError> {
        assert_eq!(row.len(), self.columns, "rows of one model");
        let bytes: Vec<u8> = row.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.rows += 1;
        self.put(&bytes)
    }

    /// Writes the count of rows and gives the file its name.
    pub(crate) fn finish(mut self) -> Result<usize, CliError> {
        self.file.seek(SeekFrom::Start(0)).map_err(CliError::file("write", &self.part))?;
        self.put(&head(self.rows, self.columns))?;
        self.file.flush().map_err(CliError::file("write", &self.part))?;
        fs::rename(&self.part, &self.path).map_err(CliError::file("write", &self.path))?;
        self.finished = true;
        Ok(self.rows)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.file.write_all(bytes).map_err(CliError::file("write", &self.part))
    }
}

impl Drop for Npy {
    fn drop(&mut self) {
        if !self.finished {
            let _ = fs::remove_file(&self.part); // what is left of a failed command
        }
    }
}

fn head(rows: usize, columns: usize) -> Vec<u8> {
    let mut head = b"\x93NUMPY\x01\x00".to_vec();
    head.extend(((HEAD - 10) as u16).to_le_bytes());
    head.extend(format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}").bytes());
    head.resize(HEAD - 1, b' ');
    head.push(b'\n');
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_padded_and_says_the_shape() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.npy");
        let mut npy = Npy::create(&path, 2).unwrap();
        npy.push(&[1.0, -2.5]).unwrap();
        assert!(!path.exists(), "not before it is complete");
        assert_eq!(npy.finish().unwrap(), 1);
        let bytes = fs::read(&path).unwrap();
        assert!(
            bytes.starts_with(b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }")
        );
        assert_eq!(bytes[HEAD - 1], b'\n');
        assert_eq!(bytes[HEAD..], [0, 0, 128, 63, 0, 0, 32, 192]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_unfinished_file_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        drop(Npy::create(&dir.path().join("x.npy"), 2).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
