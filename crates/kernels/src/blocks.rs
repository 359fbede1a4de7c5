//! How are weights multiplied that stay in the blocks of their file, and what do activations look like that meet them
//! in integers? [`Blocks`] and [`QuantizedRows`].

use weights::Format;

/// Values of an activation that share a scale.
pub(crate) const GROUP: usize = 32;

/// The weights `[outs, ins]` of a linear layer in a format's own bytes, row by row, as they lie in a file.
#[derive(Clone, Copy)]
pub struct Blocks<'a> {
    format: Format,
    bytes: &'a [u8],
    outs: usize,
    ins: usize,
    row_bytes: usize,
}

impl<'a> Blocks<'a> {
    /// `outs` rows of `ins` values.
    ///
    /// # Panics
    /// If a row is no whole number of blocks, `bytes` are not so many rows, or the format holds no numbers.
    pub fn new(format: Format, bytes: &'a [u8], outs: usize, ins: usize) -> Self {
        assert!(format.row().decode.is_some(), "{format} holds no numbers");
        let row_bytes = format.row_bytes(ins);
        let row_bytes = row_bytes.unwrap_or_else(|| panic!("a row of {ins} is no whole number of {format}'s blocks"));
        assert_eq!(row_bytes.checked_mul(outs), Some(bytes.len()), "bytes of [{outs}, {ins}] in {format}");
        Self { format, bytes, outs, ins, row_bytes }
    }

    /// The format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Rows of the weights: the features that come out.
    pub fn outs(&self) -> usize {
        self.outs
    }

    /// Columns of the weights: the features that go in.
    pub fn ins(&self) -> usize {
        self.ins
    }

    /// The bytes of row `out`.
    pub fn row(&self, out: usize) -> &'a [u8] {
        assert!(out < self.outs, "row {out} of {}", self.outs);
        &self.bytes[out * self.row_bytes..][..self.row_bytes]
    }
}

impl std::fmt::Debug for Blocks<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blocks[{}, {}] {}", self.outs, self.ins, self.format)
    }
}

/// Which products with weights of a format there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    /// [`Kernels::matmul_blocks`](crate::Kernels::matmul_blocks).
    pub exact: bool,
    /// [`Kernels::dot_blocks`](crate::Kernels::dot_blocks).
    pub dot: bool,
}

/// Formats that [`Kernels::dot_blocks`](crate::Kernels::dot_blocks) takes.
pub(crate) const DOT_FORMATS: &[Format] =
    &[Format::Q8_0, Format::Q4_0, Format::Q4_1, Format::Q5_0, Format::Q5_1, Format::Q4_K, Format::Q5_K, Format::Q6_K];

/// Activations `[rows, cols]` as 8-bit integers with a scale for each 32 values. Its memory is reused from call to call.
#[derive(Debug, Default)]
pub struct QuantizedRows {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// `[rows, cols]`: −127..=127, but −128 where the scale is NaN.
    pub(crate) codes: Vec<i8>,
    /// `[rows, cols / 32, 2]`: the scale, and the scale times the sum of the codes.
    pub(crate) scales: Vec<f32>,
    /// `[rows, cols / 16]`: the sums of codes.
    pub(crate) sums: Vec<i16>,
    /// `[rows, cols / 32, 4]`: minus the sums of the codes at 0, 1, 4, 5, 8, 9, … and at the other places of a group, then of
    /// its first half.
    pub(crate) pairs: Vec<i16>,
}

impl QuantizedRows {
    /// No rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Room for `rows` rows of `cols` values, to be filled by [`Kernels::quantize_rows`](crate::Kernels::quantize_rows).
    ///
    /// # Panics
    /// If a row is no whole number of groups of 32.
    pub fn shaped(&mut self, rows: usize, cols: usize) -> QuantizedMut<'_> {
        assert!(cols.is_multiple_of(GROUP), "{cols} values are no whole groups of {GROUP}");
        let groups = rows * cols / GROUP;
        (self.rows, self.cols) = (rows, cols);
        self.codes.resize(groups * GROUP, 0);
        self.scales.resize(groups * 2, 0.0);
        self.sums.resize(groups * 2, 0);
        self.pairs.resize(groups * 4, 0);
        let Self { codes, scales, sums, pairs, .. } = self;
        QuantizedMut { rows, cols, codes, scales, sums, pairs }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values in a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Value `col` of row `row`, as the integer says.
    pub fn value(&self, row: usize, col: usize) -> f32 {
        assert!(row < self.rows && col < self.cols, "value ({row}, {col}) of [{}, {}]", self.rows, self.cols);
        let scale = self.scales[(row * self.cols + col) / GROUP * 2];
        scale * f32::from(self.codes[row * self.cols + col])
    }
}

/// Some rows of [`QuantizedRows`], to be filled.
#[derive(Debug, Default)]
pub struct QuantizedMut<'a> {
    rows: usize,
    cols: usize,
    codes: &'a mut [i8],
    scales: &'a mut [f32],
    sums: &'a mut [i16],
    pairs: &'a mut [i16],
}

impl<'a> QuantizedMut<'a> {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values in a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The first `rows` rows, and the others.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn split_rows(self, rows: usize) -> (Self, Self) {
        assert!(rows <= self.rows, "the first {rows} of {} rows", self.rows);
        let (cols, groups) = (self.cols, rows * self.cols / GROUP);
        let (codes, scales) = (self.codes.split_at_mut(groups * GROUP), self.scales.split_at_mut(groups * 2));
        let (sums, pairs) = (self.sums.split_at_mut(groups * 2), self.pairs.split_at_mut(groups * 4));
        (
            Self { rows, cols, codes: codes.0, scales: scales.0, sums: sums.0, pairs: pairs.0 },
            Self { rows: self.rows - rows, cols, codes: codes.1, scales: scales.1, sums: sums.1, pairs: pairs.1 },
        )
    }

    /// Fills group `i` of all rows' with `codes` whose scale is `scale`.
    #[inline(always)]
    pub(crate) fn put(&mut self, i: usize, scale: f32, codes: [i8; GROUP], sums: [[i16; 2]; 2]) {
        let [[a, b], [c, d]] = sums;
        self.codes[i * GROUP..][..GROUP].copy_from_slice(&codes);
        self.scales[i * 2..][..2].copy_from_slice(&[scale, scale * f32::from(a + b + c + d)]);
        self.sums[i * 2..][..2].copy_from_slice(&[a + b, c + d]);
        self.pairs[i * 4..][..4].copy_from_slice(&[-a - c, -b - d, -a, -b]);
    }
}
