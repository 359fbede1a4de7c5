//! How are weights multiplied that stay in the blocks of their file, and what do activations look like that meet them
//! in integers? [`Blocks`] and [`QuantizedRows`].

use std::ops::Range;

use weights::Format;

use crate::matmul::even_part;

/// Values of an activation that share a scale.
pub(crate) const GROUP: usize = 32;
/// Rows that [`QuantizedRows`] lie in tiles of.
pub(crate) const ROWS: usize = 16;

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

/// Activations `[rows, cols]` as 8-bit integers with a scale for each 32 values: `[rows / 16][cols / 32][row of the 16][…]`, or, if
/// there are fewer rows than 16, `[cols / 32][row][…]`. Its memory is reused from call to call.
#[derive(Debug, Default)]
pub struct QuantizedRows {
    rows: usize,
    cols: usize,
    /// `[32]`: −127..=127, but −128 where the scale is NaN.
    pub(crate) codes: Vec<i8>,
    /// `[2]`: the scale, and the scale times the sum of the codes.
    pub(crate) scales: Vec<f32>,
    /// `[4]`: minus the sums of the codes at 0, 1, 4, 5, 8, 9, … and at the other places, then of those in the first half.
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
    /// If a row is no whole number of groups of 32, or the address space is too small.
    pub fn shaped(&mut self, rows: usize, cols: usize) -> QuantizedMut<'_> {
        assert!(cols.is_multiple_of(GROUP), "{cols} values are no whole groups of {GROUP}");
        // Whole tiles.
        let padded = rows.next_multiple_of(height(rows).max(1));
        let codes = padded.checked_mul(cols).expect("rows larger than the address space");
        (self.rows, self.cols) = (rows, cols);
        self.codes.resize(codes, 0);
        self.scales.resize(codes / GROUP * 2, 0.0);
        self.pairs.resize(codes / GROUP * 4, 0);
        let Self { codes, scales, pairs, .. } = self;
        QuantizedMut { rows, cols, height: height(rows), codes, scales, pairs }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values in a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Rows that lie together, of which threads fill whole numbers.
    pub const fn tile_rows() -> usize {
        ROWS
    }

    /// Value `col` of row `row`, as the integer says.
    pub fn value(&self, row: usize, col: usize) -> f32 {
        assert!(row < self.rows && col < self.cols, "value ({row}, {col}) of [{}, {}]", self.rows, self.cols);
        let at = self.place(row, col / GROUP);
        self.scales[at * 2] * f32::from(self.codes[at * GROUP + col % GROUP])
    }

    /// Rows from a group of a row to the next.
    #[inline(always)]
    pub(crate) fn height(&self) -> usize {
        height(self.rows)
    }

    /// How many groups lie before group `group` of row `row`.
    #[inline(always)]
    pub(crate) fn place(&self, row: usize, group: usize) -> usize {
        place(self.height(), self.cols / GROUP, row, group)
    }
}

/// Rows of a tile where there are so many in all.
#[inline(always)]
fn height(rows: usize) -> usize {
    rows.min(ROWS)
}

#[inline(always)]
fn place(height: usize, groups: usize, row: usize, group: usize) -> usize {
    row / ROWS * ROWS * groups + group * height + row % ROWS
}

/// The first of the parts that some rows are cut into evenly, of `most` at most, which lie in one tile.
#[inline(always)]
pub(crate) fn part_of_tile(rows: Range<usize>, most: usize) -> usize {
    even_part(rows.end.min((rows.start / ROWS + 1) * ROWS) - rows.start, most)
}

/// Some rows of [`QuantizedRows`], to be filled.
#[derive(Debug, Default)]
pub struct QuantizedMut<'a> {
    rows: usize,
    cols: usize,
    height: usize,
    codes: &'a mut [i8],
    scales: &'a mut [f32],
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
    /// If there are fewer, or they are neither all nor whole [tiles](QuantizedRows::tile_rows).
    pub fn split_rows(self, rows: usize) -> (Self, Self) {
        assert!(rows <= self.rows, "the first {rows} of {} rows", self.rows);
        if rows == self.rows {
            return (self, Self::default());
        }
        assert!(rows.is_multiple_of(ROWS), "{rows} rows are no whole tiles of {ROWS}");
        let (cols, height, groups) = (self.cols, self.height, rows * self.cols / GROUP);
        let (codes, scales) = (self.codes.split_at_mut(groups * GROUP), self.scales.split_at_mut(groups * 2));
        let pairs = self.pairs.split_at_mut(groups * 4);
        (
            Self { rows, cols, height, codes: codes.0, scales: scales.0, pairs: pairs.0 },
            Self { rows: self.rows - rows, cols, height, codes: codes.1, scales: scales.1, pairs: pairs.1 },
        )
    }

    /// Fills group `group` of row `row` with `codes` whose scale is `scale`. The sums are, for each half, those of codes 0, 1, 4, 5,
    /// … and of the others.
    #[inline(always)]
    pub(crate) fn put(&mut self, row: usize, group: usize, scale: f32, codes: [i8; GROUP], sums: [[i16; 2]; 2]) {
        let [[a, b], [c, d]] = sums;
        let at = place(self.height, self.cols / GROUP, row, group);
        self.codes[at * GROUP..][..GROUP].copy_from_slice(&codes);
        self.scales[at * 2..][..2].copy_from_slice(&[scale, scale * f32::from(a + b + c + d)]);
        self.pairs[at * 4..][..4].copy_from_slice(&[-a - c, -b - d, -a, -b]);
    }
}
