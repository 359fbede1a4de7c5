//! How are the fields of a GGUF file read one after another, without ever reading past its end?

use crate::{Result, WeightsError};

/// A position in the bytes of a file. Each method takes a closure that names the field, called only if it fails.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Bytes after the position.
    pub(super) fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// The next `n` bytes.
    pub(super) fn take(&mut self, n: u64, field: impl Fn() -> String) -> Result<&'a [u8]> {
        let left = self.left();
        if n > left {
            return Err(WeightsError::GgufTruncated { field: field(), at: self.at, need: n, left });
        }
        let start = self.at;
        self.at += n as usize; // n ≤ left, which is a usize
        Ok(&self.bytes[start..self.at])
    }

    pub(super) fn array<const N: usize>(&mut self, field: impl Fn() -> String) -> Result<[u8; N]> {
        let bytes = self.take(N as u64, field)?;
        Ok(bytes.try_into().expect("as many as were asked for"))
    }

    pub(super) fn u32(&mut self, field: impl Fn() -> String) -> Result<u32> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, field: impl Fn() -> String) -> Result<u64> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// A count of things that take at least `least` bytes each: no more than `limit`, and no more than fit in what is
    /// left of the file.
    pub(super) fn count(&mut self, field: &str, limit: u64, least: u64) -> Result<usize> {
        let got = self.u64(|| field.into())?;
        let limit = limit.min(self.left() / least);
        if got > limit {
            return Err(WeightsError::GgufBound { field: field.into(), got, limit });
        }
        Ok(got as usize)
    }

    /// A string that names something: no longer than `limit`, and fit to be printed.
    pub(super) fn name(&mut self, limit: u64, field: impl Fn() -> String) -> Result<String> {
        let name = self.string(limit, &field)?;
        if name.contains(char::is_control) {
            let (field, got, expected) = (field(), format!("{name:?}"), "a name without control characters".into());
            return Err(WeightsError::GgufField { field, got, expected });
        }
        Ok(name.to_string())
    }

    /// A string with its length before it, no longer than `limit`.
    pub(super) fn string(&mut self, limit: u64, field: impl Fn() -> String) -> Result<&'a str> {
        let length = || format!("length of {}", field());
        let n = self.u64(length)?;
        if n > limit {
            return Err(WeightsError::GgufBound { field: length(), got: n, limit });
        }
        let bytes = self.take(n, &field)?;
        std::str::from_utf8(bytes).map_err(|_| WeightsError::GgufField {
            field: field(),
            got: bytes[..bytes.len().min(32)].escape_ascii().to_string(),
            expected: "UTF-8".into(),
        })
    }
}
