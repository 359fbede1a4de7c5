//! What is a tensor of a checkpoint? A name, a shape, a format, and a view of bytes that stay where they are.

use crate::mmap::Mapping;
use crate::{Format, Result, WeightsError};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A named, shaped view of bytes: part of a mapped file, or memory of its own. Clones share the bytes.
///
/// As a matrix it is `[rows, cols]`: `cols` is the last dimension, `rows` the product of the others; one dimension is
/// one row, no dimension one element.
#[derive(Clone)]
pub struct Tensor {
    name: Arc<str>,
    shape: Vec<usize>,
    format: Format,
    storage: Arc<Storage>,
    range: Range<usize>, // bytes within the storage
}

/// A tensor as the header or table of a file describes it, checked against the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its dimensions, slowest first.
    pub shape: Vec<usize>,
    /// How its elements are encoded.
    pub format: Format,
    /// Its bytes, counted from the start of the file.
    pub range: Range<usize>,
}

/// Where the bytes of tensors are: one file's tensors share one.
#[derive(Debug)]
pub(crate) enum Storage {
    Mapped(Mapping),
    Owned(Vec<u8>),
}

impl Storage {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Storage::Mapped(file) => file.bytes(),
            Storage::Owned(bytes) => bytes,
        }
    }
}

impl Tensor {
    /// A view of part of `storage`. The parsers of files have checked size and range already.
    pub(crate) fn view(Entry { name, shape, format, range }: Entry, storage: &Arc<Storage>) -> Tensor {
        assert!(range.end <= storage.bytes().len(), "{name}: no parser lets a range out of its file");
        assert_eq!(format.tensor_bytes(&shape), Some(range.len()), "{name}: no parser lets a wrong size pass");
        Tensor { name: name.into(), shape, format, storage: Arc::clone(storage), range }
    }

    /// A tensor in memory, from values in row-major order.
    ///
    /// # Panics
    /// If `values` are not as many as the shape says.
    pub fn from_f32(name: &str, shape: Vec<usize>, values: Vec<f32>) -> Tensor {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Tensor::from_bytes(name, shape, Format::F32, bytes).expect("as many values as the shape says")
    }

    /// A tensor in memory, from encoded bytes.
    ///
    /// # Errors
    /// [`WeightsError::Size`], [`WeightsError::ShapeOverflow`] or [`WeightsError::RowWidth`] if the bytes are not those
    /// that shape and format need.
    pub fn from_bytes(name: &str, shape: Vec<usize>, format: Format, bytes: Vec<u8>) -> Result<Tensor> {
        check_size(name, &shape, format, bytes.len())?;
        let range = 0..bytes.len();
        Ok(Tensor { name: name.into(), shape, format, storage: Arc::new(Storage::Owned(bytes)), range })
    }

    /// Its name in the checkpoint.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its dimensions, slowest first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// How its elements are encoded.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Its encoded bytes, at any alignment.
    pub fn bytes(&self) -> &[u8] {
        &self.storage.bytes()[self.range.clone()]
    }

    /// Rows as a matrix: the product of all dimensions but the last.
    pub fn rows(&self) -> usize {
        self.shape.split_last().map_or(1, |(_, leading)| leading.iter().product())
    }

    /// Columns as a matrix: the last dimension.
    pub fn cols(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// How many elements it has.
    pub fn elements(&self) -> usize {
        self.rows() * self.cols()
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.format.row_bytes(self.cols()).expect("rows were checked to be whole blocks")
    }

    /// The encoded bytes of one row of the matrix.
    ///
    /// # Errors
    /// [`WeightsError::Rows`] if there is no such row.
    pub fn row(&self, row: usize) -> Result<&[u8]> {
        let end = row.saturating_add(1);
        Ok(&self.bytes()[self.bytes_of_rows(row..end)?])
    }

    /// Decodes one row of the matrix into `out: [cols]`.
    ///
    /// # Errors
    /// [`WeightsError::Rows`] if there is no such row, [`WeightsError::NotNumbers`] if the format is not for weights.
    ///
    /// # Panics
    /// If `out` is not one row long.
    pub fn decode_row(&self, row: usize, out: &mut [f32]) -> Result<()> {
        self.format.decode(&self.name, self.row(row)?, out)
    }

    /// Decodes rows of the matrix into `out: [rows.len(), cols]`.
    ///
    /// # Errors
    /// As [`Tensor::decode_row`].
    ///
    /// # Panics
    /// If `out` is not exactly those rows long.
    pub fn decode_rows(&self, rows: Range<usize>, out: &mut [f32]) -> Result<()> {
        self.format.decode(&self.name, &self.bytes()[self.bytes_of_rows(rows)?], out)
    }

    /// All values in row-major order.
    ///
    /// # Errors
    /// [`WeightsError::NotNumbers`] if the format is not for weights.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        let mut out = vec![0.0; self.elements()];
        self.format.decode(&self.name, self.bytes(), &mut out)?;
        Ok(out)
    }

    /// All values in row-major order, of the integer formats and `BOOL`.
    ///
    /// # Errors
    /// [`WeightsError::NotIntegers`] for any other format, and for a `U64` above `i64::MAX`.
    pub fn to_i64(&self) -> Result<Vec<i64>> {
        let not = || WeightsError::NotIntegers { tensor: self.name.to_string(), format: self.format.name() };
        fn each<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> i64) -> Vec<i64> {
            bytes.as_chunks::<N>().0.iter().map(|b| read(*b)).collect()
        }
        let bytes = self.bytes();
        Ok(match self.format {
            Format::I8 => each(bytes, |b| i8::from_le_bytes(b).into()),
            Format::U8 | Format::BOOL => each(bytes, |b| u8::from_le_bytes(b).into()),
            Format::I16 => each(bytes, |b| i16::from_le_bytes(b).into()),
            Format::U16 => each(bytes, |b| u16::from_le_bytes(b).into()),
            Format::I32 => each(bytes, |b| i32::from_le_bytes(b).into()),
            Format::U32 => each(bytes, |b| u32::from_le_bytes(b).into()),
            Format::I64 => each(bytes, i64::from_le_bytes),
            Format::U64 => bytes
                .as_chunks::<8>()
                .0
                .iter()
                .map(|b| i64::try_from(u64::from_le_bytes(*b)).map_err(|_| not()))
                .collect::<Result<_>>()?,
            _ => return Err(not()),
        })
    }

    /// The same values in another format, in memory.
    ///
    /// # Errors
    /// [`WeightsError::NotNumbers`] or [`WeightsError::NoEncoder`] if there is no way between the formats,
    /// [`WeightsError::RowWidth`] if rows are not whole blocks of `format`, [`WeightsError::NotFinite`] for values that
    /// it cannot hold.
    pub fn encode(&self, format: Format) -> Result<Tensor> {
        let cols = self.cols();
        let row_bytes = format.row_bytes(cols).ok_or_else(|| self.row_width(format, cols))?;
        let mut values = vec![0.0; cols];
        let mut bytes = vec![0; self.rows() * row_bytes];
        for row in 0..self.rows() {
            self.decode_row(row, &mut values)?;
            let out = &mut bytes[row * row_bytes..][..row_bytes];
            format.encode(&self.name, &values, out).map_err(|error| match error {
                WeightsError::NotFinite { tensor, format, at, value, limit } => {
                    WeightsError::NotFinite { tensor, format, at: row * cols + at, value, limit }
                }
                other => other,
            })?;
        }
        Tensor::from_bytes(&self.name, self.shape.clone(), format, bytes)
    }

    /// The part of the first dimension in `range`, without copying: `[range.len(), …]`. Of a vector, its elements.
    ///
    /// # Errors
    /// [`WeightsError::Rows`] if the range is not inside; [`WeightsError::RowWidth`] if it would cut a block of a vector.
    pub fn slice_rows(&self, range: Range<usize>) -> Result<Tensor> {
        let Some((&first, rest)) = self.shape.split_first() else {
            return Err(self.no_rows(range, 0));
        };
        if range.start > range.end || range.end > first {
            return Err(self.no_rows(range, first));
        }
        let width = |rows: usize| {
            let shape: Vec<usize> = [rows].iter().chain(rest).copied().collect();
            let bytes = self.format.tensor_bytes(&shape).ok_or_else(|| self.row_width(self.format, rows));
            bytes.map(|bytes| (shape, bytes))
        };
        let (_, before) = width(range.start)?;
        let (shape, len) = width(range.len())?;
        let start = self.range.start + before;
        Ok(Tensor { shape, range: start..start + len, ..self.clone() })
    }

    /// Parts of the first dimension in another order, copied: part `i` of the result is part `parts[i]`, of any format.
    /// Parts may be left out or repeated. Of a matrix they are its rows, of a vector its elements.
    ///
    /// # Errors
    /// [`WeightsError::Rows`] if there is no such part; [`WeightsError::RowWidth`] if they are elements of a vector that
    /// is packed in blocks; [`WeightsError::ShapeOverflow`].
    pub fn gather_rows(&self, parts: &[usize]) -> Result<Tensor> {
        let (first, rest) = self.shape.split_first().map_or((0, &[][..]), |(first, rest)| (*first, rest));
        let shape = |n: usize| [n].iter().chain(rest).copied().collect::<Vec<_>>();
        let bytes = self.format.tensor_bytes(&shape(1)).ok_or_else(|| self.row_width(self.format, 1))?;
        let all = self.format.tensor_bytes(&shape(parts.len())).ok_or_else(|| self.overflow(shape(parts.len())))?;
        let mut out = Vec::with_capacity(all);
        for &part in parts {
            if part >= first {
                return Err(self.no_rows(part..part.saturating_add(1), first));
            }
            out.extend_from_slice(&self.bytes()[part * bytes..][..bytes]);
        }
        Tensor::from_bytes(&self.name, shape(parts.len()), self.format, out)
    }

    /// The columns in another order, copied: group `i` of the result's columns, each `width` wide, is group `groups[i]`.
    ///
    /// # Errors
    /// [`WeightsError::Rows`] if there is no such group (they are counted like rows); [`WeightsError::RowWidth`] if a
    /// group is not whole blocks of the format; [`WeightsError::ShapeOverflow`].
    pub fn gather_columns(&self, width: usize, groups: &[usize]) -> Result<Tensor> {
        let bytes = self.format.row_bytes(width).ok_or_else(|| self.row_width(self.format, width))?;
        let have = self.cols().checked_div(width).unwrap_or(0);
        if let Some(&group) = groups.iter().find(|&&group| group >= have) {
            return Err(self.no_rows(group..group.saturating_add(1), have));
        }
        let mut shape = self.shape.clone();
        *shape.last_mut().expect("a scalar has no groups of columns") = width.saturating_mul(groups.len());
        let all = self.format.tensor_bytes(&shape).ok_or_else(|| self.overflow(shape.clone()))?;
        let mut out = Vec::with_capacity(all);
        for row in self.bytes().chunks_exact(self.row_bytes().max(1)) {
            groups.iter().for_each(|&group| out.extend_from_slice(&row[group * bytes..][..bytes]));
        }
        Tensor::from_bytes(&self.name, shape, self.format, out)
    }

    /// The same bytes under another shape.
    ///
    /// # Errors
    /// [`WeightsError::Size`], [`WeightsError::ShapeOverflow`] or [`WeightsError::RowWidth`] if that shape does not have
    /// exactly these bytes.
    pub fn reshape(&self, shape: Vec<usize>) -> Result<Tensor> {
        check_size(&self.name, &shape, self.format, self.range.len())?;
        Ok(Tensor { shape, ..self.clone() })
    }

    /// The same tensor under another name.
    pub fn rename(&self, name: &str) -> Tensor {
        Tensor { name: name.into(), ..self.clone() }
    }

    /// Tells the operating system that the resident pages of this tensor may be dropped: after it was repacked, it is
    /// not needed twice. The tensor stays usable: its pages come back from the file. Nothing happens to memory tensors.
    pub fn release(&self) {
        if let Storage::Mapped(file) = &*self.storage {
            file.release(self.range.clone());
        }
    }

    fn bytes_of_rows(&self, rows: Range<usize>) -> Result<Range<usize>> {
        if rows.start > rows.end || rows.end > self.rows() {
            return Err(self.no_rows(rows, self.rows()));
        }
        let bytes = self.row_bytes();
        Ok(rows.start * bytes..rows.end * bytes)
    }

    fn no_rows(&self, rows: Range<usize>, have: usize) -> WeightsError {
        WeightsError::Rows { tensor: self.name.to_string(), start: rows.start, end: rows.end, have }
    }

    fn overflow(&self, shape: Vec<usize>) -> WeightsError {
        WeightsError::ShapeOverflow { tensor: self.name.to_string(), format: self.format.name(), shape }
    }

    fn row_width(&self, format: Format, cols: usize) -> WeightsError {
        let (tensor, block) = (self.name.to_string(), format.block());
        WeightsError::RowWidth { tensor, format: format.name(), cols, block }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({} {} {:?})", self.name, self.format, self.shape)
    }
}

/// Are these as many bytes as shape and format need?
pub(crate) fn check_size(name: &str, shape: &[usize], format: Format, bytes: usize) -> Result<()> {
    let cols = shape.last().copied().unwrap_or(1);
    match format.tensor_bytes(shape) {
        Some(expected) if expected == bytes => Ok(()),
        Some(expected) => Err(WeightsError::Size {
            tensor: name.to_string(),
            format: format.name(),
            shape: shape.to_vec(),
            expected,
            got: bytes,
        }),
        None if !cols.is_multiple_of(format.block()) => {
            Err(WeightsError::RowWidth { tensor: name.to_string(), format: format.name(), cols, block: format.block() })
        }
        None => {
            Err(WeightsError::ShapeOverflow { tensor: name.to_string(), format: format.name(), shape: shape.to_vec() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(shape: &[usize]) -> Tensor {
        let n: usize = shape.iter().product();
        Tensor::from_f32("t", shape.to_vec(), (0..n).map(|i| i as f32).collect())
    }

    #[test]
    fn a_vector_is_one_row_and_more_dimensions_are_many() {
        assert_eq!((counted(&[]).rows(), counted(&[]).cols()), (1, 1));
        assert_eq!((counted(&[5]).rows(), counted(&[5]).cols()), (1, 5));
        assert_eq!((counted(&[2, 3, 4]).rows(), counted(&[2, 3, 4]).cols()), (6, 4));
        let mut row = [0.0; 4];
        counted(&[2, 3, 4]).decode_row(4, &mut row).unwrap();
        assert_eq!(row, [16.0, 17.0, 18.0, 19.0]);
    }

    #[test]
    fn slices_share_the_bytes_and_count_the_first_dimension() {
        let t = counted(&[3, 2, 2]);
        let slice = t.slice_rows(1..3).unwrap();
        assert_eq!(slice.shape(), [2, 2, 2]);
        assert_eq!(slice.to_f32().unwrap(), [4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0]);
        assert_eq!(slice.bytes().as_ptr(), t.bytes()[16..].as_ptr());
        let again = slice.slice_rows(1..2).unwrap().reshape(vec![2, 2]).unwrap();
        assert_eq!(again.to_f32().unwrap(), [8.0, 9.0, 10.0, 11.0]);
        assert_eq!(counted(&[4]).slice_rows(1..3).unwrap().to_f32().unwrap(), [1.0, 2.0]);
    }

    #[test]
    fn rows_and_columns_are_gathered_by_their_bytes_in_any_format() {
        let values: Vec<f32> = (0..3 * 64).map(|i| (i as f32 * 0.37).sin()).collect();
        let plain = Tensor::from_f32("t", vec![3, 64], values);
        for format in [Format::F32, Format::BF16, Format::Q8_0, Format::Q4_1] {
            let t = plain.encode(format).unwrap();
            let all = t.to_f32().unwrap();
            let rows = t.gather_rows(&[2, 0, 2, 1]).unwrap();
            assert_eq!((rows.shape(), rows.format()), (&[4, 64][..], format));
            let expected: Vec<f32> = [2, 0, 2, 1].iter().flat_map(|r| all[r * 64..][..64].to_vec()).collect();
            assert_eq!(rows.to_f32().unwrap(), expected);
            let columns = t.gather_columns(32, &[1, 0]).unwrap().to_f32().unwrap();
            let expected: Vec<f32> = all.chunks(64).flat_map(|row| [&row[32..], &row[..32]].concat()).collect();
            assert_eq!(columns, expected);
        }
        assert_eq!(counted(&[4]).gather_rows(&[3, 1]).unwrap().to_f32().unwrap(), [3.0, 1.0]);
        let cubes = counted(&[3, 2, 2]).gather_rows(&[1]).unwrap();
        assert_eq!((cubes.shape(), cubes.to_f32().unwrap()), (&[1, 2, 2][..], vec![4.0, 5.0, 6.0, 7.0]));
    }

    #[test]
    fn a_gather_that_would_cut_a_block_is_refused() {
        let t = counted(&[2, 64]).encode(Format::Q8_0).unwrap();
        let text = t.gather_columns(16, &[0]).unwrap_err().to_string();
        assert_eq!(text, "tensor t: rows of 16 are no whole number of Q8_0 blocks of 32");
        assert!(counted(&[64]).encode(Format::Q8_0).unwrap().gather_rows(&[0]).is_err());
        assert!(t.gather_columns(0, &[0]).is_err());
        assert_eq!(t.gather_columns(32, &[]).unwrap().shape(), [2, 0]);
        let text = t.gather_rows(&[usize::MAX]).unwrap_err().to_string();
        assert!(text.starts_with("tensor t has 2 rows, asked for rows "), "{text}");
        assert!(counted(&[]).gather_rows(&[0]).is_err());
    }

    #[test]
    fn rows_outside_are_an_error_that_counts() {
        let t = counted(&[3, 2]);
        let mut row = [0.0; 2];
        for error in [
            t.decode_row(3, &mut row).unwrap_err(),
            t.row(usize::MAX).unwrap_err(),
            t.decode_rows(2..4, &mut row).unwrap_err(),
            t.slice_rows(1..4).unwrap_err(),
        ] {
            assert!(error.to_string().starts_with("tensor t has 3 rows, asked for rows "), "{error}");
        }
    }

    #[test]
    fn shapes_must_fit_the_bytes() {
        let text = counted(&[6]).reshape(vec![4, 2]).unwrap_err().to_string();
        assert_eq!(text, "tensor t: F32 [4, 2] takes 32 bytes, but it has 24");
        let text = Tensor::from_bytes("t", vec![1 << 33, 1 << 33], Format::U8, vec![]).unwrap_err().to_string();
        assert_eq!(text, "tensor t: U8 [8589934592, 8589934592] takes more bytes than can be counted");
        let empty = Tensor::from_bytes("t", vec![0, 1 << 40], Format::U8, vec![]).unwrap();
        assert!(empty.to_f32().unwrap().is_empty());
    }

    #[test]
    fn integers_are_read_as_integers() {
        let t = |format, bytes: &[u8]| {
            Tensor::from_bytes("t", vec![bytes.len() / Format::block_bytes(format)], format, bytes.to_vec()).unwrap()
        };
        assert_eq!(t(Format::I64, &(-3i64).to_le_bytes()).to_i64().unwrap(), [-3]);
        assert_eq!(t(Format::U32, &[0xff; 4]).to_i64().unwrap(), [0xffff_ffff]);
        assert_eq!(t(Format::BOOL, &[1, 0]).to_i64().unwrap(), [1, 0]);
        assert!(t(Format::U64, &[0xff; 8]).to_i64().is_err());
        assert!(t(Format::F32, &[0; 4]).to_i64().is_err());
    }
}
