//! How do a linear layer's weights lie in memory so that the matmul reads them in one stream? [`Packed`]: panels of
//! as many output columns as the instruction set computes at once, `[out / width][in][width]`, the last padded with
//! zeros.

use std::ops::Range;

use crate::Kernels;
use crate::convert::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};

/// How the numbers of [`Packed`] weights are stored; kernels widen them to f32 as they load them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stored {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// bfloat16: the upper half of single precision.
    Bf16,
}

impl Stored {
    /// Bytes of a number.
    pub const fn size(self) -> usize {
        match self {
            Stored::F32 => 4,
            Stored::F16 | Stored::Bf16 => 2,
        }
    }
}

/// A cache line; the storage of packed weights is a whole number of them.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u32; 16]);

/// The weights `[out, in]` of a linear layer, repacked for one instruction set.
pub struct Packed {
    lines: Vec<Line>,
    stored: Stored,
    outs: usize,
    ins: usize,
    width: usize,
}

impl Packed {
    /// Packs weights of `outs` rows of `ins` numbers. `decode(row, numbers)` is asked for the rows in order, each
    /// once, so it can give the source back as it goes.
    pub fn new(
        kernels: &Kernels,
        stored: Stored,
        outs: usize,
        ins: usize,
        mut decode: impl FnMut(usize, &mut [f32]),
    ) -> Self {
        let mut packed = Self::zeroed(kernels, stored, outs, ins);
        let mut row = vec![0.0; ins];
        packed.panels_mut().for_each(|mut panel| panel.fill(&mut row, &mut decode));
        packed
    }

    /// Weights that are all zero, to be filled panel by panel through [`Packed::panels_mut`].
    pub fn zeroed(kernels: &Kernels, stored: Stored, outs: usize, ins: usize) -> Self {
        let width = kernels.panel_width();
        let numbers = outs.div_ceil(width).checked_mul(width).and_then(|n| n.checked_mul(ins));
        let bytes = numbers.and_then(|n| n.checked_mul(stored.size())).expect("weights larger than the address space");
        Self { lines: vec![Line([0; 16]); bytes.div_ceil(64)], stored, outs, ins, width }
    }

    /// The panels, to be filled in any order by any threads.
    pub fn panels_mut(&mut self) -> impl Iterator<Item = PanelMut<'_>> {
        let Self { stored, outs, ins, width, .. } = *self;
        let size = self.panel_bytes();
        // SAFETY: the lines are plain integers, initialised, and as long as this; bytes have no alignment.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast::<u8>(), self.lines.len() * 64) };
        bytes.chunks_exact_mut(size.max(1)).take(outs.div_ceil(width)).enumerate().map(move |(i, bytes)| PanelMut {
            bytes,
            stored,
            ins,
            width,
            first: i * width,
            rows: width.min(outs - i * width),
        })
    }

    /// Rows of the weights: the features that come out.
    pub fn outs(&self) -> usize {
        self.outs
    }

    /// Columns of the weights: the features that go in.
    pub fn ins(&self) -> usize {
        self.ins
    }

    /// How the numbers are stored.
    pub fn stored(&self) -> Stored {
        self.stored
    }

    /// Output features in a panel (the last may have fewer).
    pub fn panel_width(&self) -> usize {
        self.width
    }

    /// Number of panels.
    pub fn panels(&self) -> usize {
        self.outs.div_ceil(self.width)
    }

    /// The output features that these panels compute.
    pub fn columns(&self, panels: Range<usize>) -> Range<usize> {
        (panels.start * self.width).min(self.outs)..(panels.end * self.width).min(self.outs)
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.lines.len() * 64
    }

    /// Row `out` of the weights, `[in]`: the embedding of a token where the output layer is tied to it.
    pub fn row(&self, out: usize, numbers: &mut [f32]) {
        assert!(out < self.outs, "row {out} of {}", self.outs);
        assert_eq!(numbers.len(), self.ins, "length of a row");
        let (start, lane) = (out / self.width * self.ins * self.width, out % self.width);
        let at = |k: usize| start + k * self.width + lane;
        match self.stored {
            Stored::F32 => numbers.iter_mut().enumerate().for_each(|(k, n)| *n = self.numbers::<f32>()[at(k)]),
            Stored::F16 => numbers.iter_mut().enumerate().for_each(|(k, n)| *n = f16_to_f32(self.numbers()[at(k)])),
            Stored::Bf16 => numbers.iter_mut().enumerate().for_each(|(k, n)| *n = bf16_to_f32(self.numbers()[at(k)])),
        }
    }

    /// All numbers as stored.
    pub(crate) fn numbers<T: Number>(&self) -> &[T] {
        let len = self.lines.len() * (64 / size_of::<T>());
        // SAFETY: `Number` is f32 or u16: every pattern of bits is one, the alignment is below a line's, and the length
        // is that of the lines.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), len) }
    }

    fn panel_bytes(&self) -> usize {
        self.ins * self.width * self.stored.size()
    }
}

impl std::fmt::Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Packed[{}, {}] {:?} in panels of {}", self.outs, self.ins, self.stored, self.width)
    }
}

/// The plain types that packed numbers are stored in.
pub(crate) trait Number: Copy {}
impl Number for f32 {}
impl Number for u16 {}

/// One panel of [`Packed`] weights, to be filled.
#[derive(Debug)]
pub struct PanelMut<'a> {
    bytes: &'a mut [u8],
    stored: Stored,
    ins: usize,
    width: usize,
    first: usize,
    rows: usize,
}

impl PanelMut<'_> {
    /// The rows of the weights that lie in this panel.
    pub fn rows(&self) -> Range<usize> {
        self.first..self.first + self.rows
    }

    /// Fills the panel: `decode(row, numbers)` is asked for its rows in order. `row` is scratch, `[in]`.
    pub fn fill(&mut self, row: &mut [f32], mut decode: impl FnMut(usize, &mut [f32])) {
        assert_eq!(row.len(), self.ins, "length of a row");
        for (lane, out) in self.rows().enumerate() {
            decode(out, row);
            match self.stored {
                Stored::F32 => self.scatter(lane, row, f32::to_ne_bytes),
                Stored::F16 => self.scatter(lane, row, |n| f32_to_f16(n).to_ne_bytes()),
                Stored::Bf16 => self.scatter(lane, row, |n| f32_to_bf16(n).to_ne_bytes()),
            }
        }
    }

    fn scatter<const N: usize>(&mut self, lane: usize, row: &[f32], bytes: impl Fn(f32) -> [u8; N]) {
        for (column, &number) in self.bytes.chunks_exact_mut(self.width * N).zip(row) {
            column[lane * N..][..N].copy_from_slice(&bytes(number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    #[test]
    fn rows_come_back_and_the_tail_is_zero() {
        for isa in Isa::available() {
            let kernels = Kernels::for_isa(isa).unwrap();
            for stored in [Stored::F32, Stored::F16, Stored::Bf16] {
                for (outs, ins) in [(1, 1), (7, 3), (16, 5), (37, 12), (70, 1), (5, 0), (0, 5)] {
                    let number = |row: usize, k: usize| (row * 3 + k) as f32 / 4.0;
                    let mut asked = Vec::new();
                    let packed = Packed::new(kernels, stored, outs, ins, |row, numbers| {
                        asked.push(row);
                        numbers.iter_mut().enumerate().for_each(|(k, n)| *n = number(row, k));
                    });
                    if ins > 0 {
                        assert_eq!(asked, (0..outs).collect::<Vec<_>>());
                    }
                    let mut row = vec![f32::NAN; ins];
                    for out in 0..outs {
                        packed.row(out, &mut row);
                        assert!(row.iter().enumerate().all(|(k, &n)| n == number(out, k)), "{packed:?} row {out}");
                    }
                    let filled = outs * ins - (outs > 0 && ins > 0 && number(0, 0) == 0.0) as usize;
                    let nonzero = match stored {
                        Stored::F32 => packed.numbers::<f32>().iter().filter(|&&n| n != 0.0).count(),
                        _ => packed.numbers::<u16>().iter().filter(|&&n| n != 0).count(),
                    };
                    assert_eq!(nonzero, filled, "{packed:?}");
                    assert_eq!(packed.columns(0..packed.panels()), 0..outs);
                }
            }
        }
    }
}
