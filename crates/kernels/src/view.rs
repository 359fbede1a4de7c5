//! Which part of a row-major matrix does a kernel read or write? [`Rows`] is a window to read, [`Window`] one to
//! write, which can be cut into disjoint tiles and handed to threads.

use std::marker::PhantomData;
use std::ops::Range;

/// A window to read: `rows` rows of `cols` numbers, row `i` starting at `data[i * stride]`.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    stride: usize,
}

impl<'a> Rows<'a> {
    /// A window over `data`, whose first number is the window's first.
    ///
    /// # Panics
    /// If a row is longer than the stride, or the last row ends behind `data`.
    pub fn new(data: &'a [f32], rows: usize, cols: usize, stride: usize) -> Self {
        check(data.len(), rows, cols, stride);
        Self { data, rows, cols, stride }
    }

    /// All of `data` as rows of `cols` numbers without gaps.
    ///
    /// # Panics
    /// If the length of `data` is not a multiple of `cols`.
    pub fn dense(data: &'a [f32], cols: usize) -> Self {
        let rows = data.len().checked_div(cols).unwrap_or(0);
        assert_eq!(rows * cols, data.len(), "{} numbers are no whole rows of {cols}", data.len());
        Self { data, rows, cols, stride: cols }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers in a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Numbers from the start of a row to the start of the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Row `i`.
    pub fn row(&self, i: usize) -> &'a [f32] {
        assert!(i < self.rows, "row {i} of {}", self.rows);
        &self.data[i * self.stride..][..self.cols]
    }

    /// The window's rows `range`.
    pub fn slice_rows(&self, range: Range<usize>) -> Rows<'a> {
        assert!(range.start <= range.end && range.end <= self.rows, "rows {range:?} of {}", self.rows);
        let start = (range.start * self.stride).min(self.data.len());
        Rows { data: &self.data[start..], rows: range.len(), ..*self }
    }

    /// The window's columns `range`.
    pub fn slice_cols(&self, range: Range<usize>) -> Rows<'a> {
        assert!(range.start <= range.end && range.end <= self.cols, "columns {range:?} of {}", self.cols);
        let start = range.start.min(self.data.len());
        Rows { data: &self.data[start..], cols: range.len(), ..*self }
    }

    pub(crate) fn as_ptr(&self) -> *const f32 {
        self.data.as_ptr()
    }

    /// The numbers from the first row on, and the gaps between rows.
    pub(crate) fn data(&self) -> &'a [f32] {
        self.data
    }
}

/// A window to write: `rows` rows of `cols` numbers of somebody's row-major matrix. Splitting it by rows or columns
/// gives disjoint windows, which different threads may fill.
#[derive(Debug)]
pub struct Window<'a> {
    ptr: *mut f32,
    rows: usize,
    cols: usize,
    stride: usize,
    owner: PhantomData<&'a mut [f32]>,
}

// SAFETY: a window is the only way to the numbers that it covers, as `&mut [f32]` is: `new` borrows them mutably and
// the splits give disjoint parts.
unsafe impl Send for Window<'_> {}
// SAFETY: through a shared window nothing can be written.
unsafe impl Sync for Window<'_> {}

impl<'a> Window<'a> {
    /// A window over `data`, whose first number is the window's first.
    ///
    /// # Panics
    /// If a row is longer than the stride, or the last row ends behind `data`.
    pub fn new(data: &'a mut [f32], rows: usize, cols: usize, stride: usize) -> Self {
        check(data.len(), rows, cols, stride);
        Self { ptr: data.as_mut_ptr(), rows, cols, stride, owner: PhantomData }
    }

    /// All of `data` as rows of `cols` numbers without gaps.
    ///
    /// # Panics
    /// If the length of `data` is not a multiple of `cols`.
    pub fn dense(data: &'a mut [f32], cols: usize) -> Self {
        let Rows { rows, .. } = Rows::dense(data, cols);
        Self::new(data, rows, cols, cols)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers in a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Numbers from the start of a row to the start of the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Row `i`.
    pub fn row(&self, i: usize) -> &[f32] {
        // SAFETY: `row_ptr` checks that the row is inside; `&self` keeps writers away.
        unsafe { std::slice::from_raw_parts(self.row_ptr(i), self.cols) }
    }

    /// Row `i`, to write.
    pub fn row_mut(&mut self, i: usize) -> &mut [f32] {
        // SAFETY: `row_ptr` checks that the row is inside; `&mut self` keeps everybody else away.
        unsafe { std::slice::from_raw_parts_mut(self.row_ptr(i), self.cols) }
    }

    /// The same window for a shorter time.
    pub fn reborrow(&mut self) -> Window<'_> {
        Window { owner: PhantomData, ..*self }
    }

    /// The rows before `at`, and the others.
    pub fn split_rows(self, at: usize) -> (Window<'a>, Window<'a>) {
        assert!(at <= self.rows, "split at row {at} of {}", self.rows);
        let below = Window { ptr: self.ptr.wrapping_add(at * self.stride), rows: self.rows - at, ..self };
        (Window { rows: at, ..self }, below)
    }

    /// The columns before `at`, and the others.
    pub fn split_cols(self, at: usize) -> (Window<'a>, Window<'a>) {
        assert!(at <= self.cols, "split at column {at} of {}", self.cols);
        let right = Window { ptr: self.ptr.wrapping_add(at), cols: self.cols - at, ..self };
        (Window { cols: at, ..self }, right)
    }

    /// The window of these rows and columns, for a shorter time.
    pub(crate) fn tile(&mut self, rows: Range<usize>, cols: Range<usize>) -> Window<'_> {
        let (above, _) = self.reborrow().split_rows(rows.end);
        let (left, _) = above.split_rows(rows.start).1.split_cols(cols.end);
        left.split_cols(cols.start).1
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut f32 {
        self.ptr
    }

    fn row_ptr(&self, i: usize) -> *mut f32 {
        assert!(i < self.rows, "row {i} of {}", self.rows);
        self.ptr.wrapping_add(i * self.stride)
    }
}

fn check(len: usize, rows: usize, cols: usize, stride: usize) {
    assert!(rows <= 1 || cols <= stride, "rows of {cols} numbers overlap at a stride of {stride}");
    let end = rows.checked_sub(1).map_or(Some(0), |last| last.checked_mul(stride)?.checked_add(cols));
    assert!(
        end.is_some_and(|end| end <= len),
        "{rows} rows of {cols} at a stride of {stride} need more than {len} numbers"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_disjoint_and_cover_the_matrix() {
        let mut data = vec![0.0; 5 * 7];
        let window = Window::new(&mut data, 5, 6, 7);
        let (top, bottom) = window.split_rows(2);
        let (a, b) = top.split_cols(4);
        let (c, d) = bottom.split_cols(0);
        std::thread::scope(|scope| {
            for (mut tile, mark) in [(a, 1.0), (b, 2.0), (c, 3.0), (d, 4.0)] {
                scope.spawn(move || (0..tile.rows()).for_each(|i| tile.row_mut(i).fill(mark)));
            }
        });
        for (i, row) in data.chunks(7).enumerate() {
            let want = if i < 2 { [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 0.0] } else { [4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 0.0] };
            assert_eq!(row, want);
        }
    }

    #[test]
    fn slices_of_rows_agree_with_indices() {
        let data: Vec<f32> = (0..30).map(|i| i as f32).collect();
        let rows = Rows::new(&data, 5, 4, 6).slice_rows(1..4).slice_cols(2..4);
        assert_eq!((rows.rows(), rows.cols(), rows.stride()), (3, 2, 6));
        assert_eq!(rows.row(2), [20.0, 21.0]);
        assert_eq!(rows.slice_rows(3..3).rows(), 0);
    }

    #[test]
    #[should_panic(expected = "need more than 10 numbers")]
    fn refuses_a_window_past_the_end() {
        Window::new(&mut [0.0; 10], 3, 4, 4);
    }
}
