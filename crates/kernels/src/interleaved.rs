//! How do quantized weights lie in memory so that an instruction set reads them in one stream? [`Interleaved`]: panels of
//! as many output features as a vector has lanes, each lane holding four codes of its feature.
//!
//! All eight formats come in groups of 32 codes, so one layout serves them. A panel is a sequence of blocks (one group, or
//! eight that share a half-precision scale); a block is its head and its groups; a group is its parameters and its codes:
//! vector `j` of eight holds in lane `i` codes `4j..4j+4` of feature `i`. Of codes with 4 bits, vectors `j` and `j + 4` share
//! the bytes; the bits above four follow. Nothing is lost: [`Interleaved::row`] gives the numbers of the file.

use std::ops::Range;

use weights::Format;

use crate::blocks::GROUP;
use crate::{Blocks, Kernels, f16_to_f32};

/// Where vectors are read at whole cache lines.
const LINE: usize = 64;

/// The weights `[outs, ins]` of a linear layer, quantized, repacked for one instruction set.
pub struct Interleaved {
    /// The panels, from `start` on.
    memory: Vec<u8>,
    start: usize,
    format: Format,
    scheme: Scheme,
    lanes: usize,
    outs: usize,
    ins: usize,
}

impl Interleaved {
    /// Weights that are all zero, to be filled panel by panel through [`Interleaved::panels_mut`].
    ///
    /// # Panics
    /// If [`Kernels::interleaves`] says no, or rows are no whole number of the format's blocks or have none.
    pub fn zeroed(kernels: &Kernels, format: Format, outs: usize, ins: usize) -> Self {
        assert!(kernels.interleaves(format), "{} does not interleave {format}", kernels.isa());
        let whole = ins > 0 && format.row_bytes(ins).is_some();
        assert!(whole, "a row of {ins} is no whole number of {format}'s blocks");
        let (scheme, lanes) = (Scheme::of(format).expect("a format that is interleaved"), kernels.lanes);
        let bytes = (ins / GROUP / scheme.groups()).checked_mul(scheme.block_bytes(lanes));
        let bytes = bytes.and_then(|n| n.checked_mul(outs.div_ceil(lanes))).and_then(|n| n.checked_add(LINE));
        let memory = vec![0; bytes.expect("weights larger than the address space")];
        let start = memory.as_ptr().align_offset(LINE);
        Self { memory, start, format, scheme, lanes, outs, ins }
    }

    /// The weights of `blocks`.
    ///
    /// # Panics
    /// As [`Interleaved::zeroed`].
    pub fn new(kernels: &Kernels, blocks: &Blocks<'_>) -> Self {
        let mut all = Self::zeroed(kernels, blocks.format(), blocks.outs(), blocks.ins());
        all.panels_mut().for_each(|mut panel| panel.fill(blocks));
        all
    }

    /// The panels, to be filled in any order by any threads.
    pub fn panels_mut(&mut self) -> impl Iterator<Item = InterleavedMut<'_>> {
        let Self { start, format, lanes, outs, ins, .. } = *self;
        let (size, count) = (self.panel_bytes(), self.panels());
        let panels = self.memory[start..].chunks_exact_mut(size.max(1)).take(count).enumerate();
        panels.map(move |(i, bytes)| {
            let rows = i * lanes..outs.min((i + 1) * lanes);
            InterleavedMut { bytes, format, lanes, ins, rows }
        })
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

    /// Output features in a panel (the last may have fewer).
    pub fn panel_width(&self) -> usize {
        self.lanes
    }

    /// Number of panels.
    pub fn panels(&self) -> usize {
        self.outs.div_ceil(self.lanes)
    }

    /// The output features that these panels compute.
    pub fn columns(&self, panels: Range<usize>) -> Range<usize> {
        (panels.start * self.lanes).min(self.outs)..(panels.end * self.lanes).min(self.outs)
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.memory.len()
    }

    /// Row `out` of the weights, `[ins]`, to the bits that `weights` decodes.
    ///
    /// # Panics
    /// If there is no such row, or `numbers` is not as long as one.
    pub fn row(&self, out: usize, numbers: &mut [f32]) {
        assert!(out < self.outs, "row {out} of {}", self.outs);
        assert_eq!(numbers.len(), self.ins, "length of a row");
        let (lanes, lane, Scheme { offset, parameters, .. }) = (self.lanes, out % self.lanes, self.scheme);
        let half = |bytes: &[u8], at: usize| f16_to_f32(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let (head_bytes, groups) = (self.scheme.head_bytes(lanes), self.scheme.groups());
        let blocks = self.slice(out / lanes..out / lanes + 1).chunks_exact(self.scheme.block_bytes(lanes));
        for (block, numbers) in blocks.zip(numbers.chunks_exact_mut(groups * GROUP)) {
            let (head, rest) = block.split_at(head_bytes);
            let rest = rest.chunks_exact(self.scheme.group_bytes(lanes));
            for (group, numbers) in rest.zip(numbers.chunks_exact_mut(GROUP)) {
                let (own, codes) = group.split_at(self.scheme.parameter_bytes(lanes));
                for (k, number) in numbers.iter_mut().enumerate() {
                    let code = code(self.scheme.bits, codes, lanes, lane, k);
                    let centred = (i32::from(code) - offset) as f32;
                    *number = match parameters {
                        Parameters::Scale => half(own, 2 * lane) * centred,
                        Parameters::ScaleAndMinimum => half(own, 2 * lane) * centred + half(own, 2 * (lanes + lane)),
                        Parameters::Long => {
                            let (scale, minimum) = (f32::from(own[lane]), f32::from(own[lanes + lane]));
                            half(head, 2 * lane) * scale * centred - half(head, 2 * (lanes + lane)) * minimum
                        }
                        Parameters::Halves => {
                            half(head, 2 * lane) * f32::from(own[2 * lane + k / (GROUP / 2)] as i8) * centred
                        }
                    };
                }
            }
        }
    }

    /// The bytes of some panels, one after another.
    pub(crate) fn slice(&self, panels: Range<usize>) -> &[u8] {
        assert!(panels.start <= panels.end && panels.end <= self.panels(), "panels {panels:?} of {}", self.panels());
        let size = self.panel_bytes();
        &self.memory[self.start + panels.start * size..][..panels.len() * size]
    }

    /// The bytes of a panel.
    pub(crate) fn panel_bytes(&self) -> usize {
        self.ins / GROUP / self.scheme.groups() * self.scheme.block_bytes(self.lanes)
    }
}

impl std::fmt::Debug for Interleaved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Interleaved[{}, {}] {} in panels of {}", self.outs, self.ins, self.format, self.lanes)
    }
}

/// How the groups of a format lie in a panel: value = scale · (code − offset) + minimum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scheme {
    /// Bits of a code: 4, 5, 6 or 8.
    pub(crate) bits: usize,
    /// What is subtracted from a code.
    pub(crate) offset: i32,
    pub(crate) parameters: Parameters,
}

/// What a group brings beside its codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parameters {
    /// A half-precision scale for each lane.
    Scale,
    /// Half-precision scales, then minima.
    ScaleAndMinimum,
    /// Scales of a byte, then minima, times those in half precision in the head; the minimum is subtracted.
    Long,
    /// For each lane two signed bytes, for 16 codes each, times the scale in the head.
    Halves,
}

impl Scheme {
    /// That of a format.
    pub(crate) const fn of(format: Format) -> Option<Scheme> {
        use Parameters::{Halves, Long, Scale, ScaleAndMinimum};
        let (bits, offset, parameters) = match format {
            Format::Q8_0 => (8, 128, Scale),
            Format::Q4_0 => (4, 8, Scale),
            Format::Q4_1 => (4, 0, ScaleAndMinimum),
            Format::Q5_0 => (5, 16, Scale),
            Format::Q5_1 => (5, 0, ScaleAndMinimum),
            Format::Q4_K => (4, 0, Long),
            Format::Q5_K => (5, 0, Long),
            Format::Q6_K => (6, 32, Halves),
            _ => return None,
        };
        Some(Scheme { bits, offset, parameters })
    }

    /// Groups of a block.
    pub(crate) const fn groups(self) -> usize {
        match self.parameters {
            Parameters::Scale | Parameters::ScaleAndMinimum => 1,
            Parameters::Long | Parameters::Halves => 8,
        }
    }

    /// Bytes before a block's first group.
    pub(crate) const fn head_bytes(self, lanes: usize) -> usize {
        match self.parameters {
            Parameters::Scale | Parameters::ScaleAndMinimum => 0,
            Parameters::Long => 4 * lanes,
            Parameters::Halves => 2 * lanes,
        }
    }

    /// Bytes before a group's codes.
    pub(crate) const fn parameter_bytes(self, lanes: usize) -> usize {
        match self.parameters {
            Parameters::ScaleAndMinimum => 4 * lanes,
            Parameters::Scale | Parameters::Long | Parameters::Halves => 2 * lanes,
        }
    }

    /// Bytes of a group.
    pub(crate) const fn group_bytes(self, lanes: usize) -> usize {
        self.parameter_bytes(lanes) + GROUP / 8 * self.bits * lanes
    }

    /// Bytes of a block.
    pub(crate) const fn block_bytes(self, lanes: usize) -> usize {
        self.head_bytes(lanes) + self.groups() * self.group_bytes(lanes)
    }
}

/// One panel of [`Interleaved`] weights, to be filled.
#[derive(Debug)]
pub struct InterleavedMut<'a> {
    bytes: &'a mut [u8],
    format: Format,
    lanes: usize,
    ins: usize,
    rows: Range<usize>,
}

impl InterleavedMut<'_> {
    /// Fills the panel with its rows of `blocks`.
    ///
    /// # Panics
    /// If these are not of the panel's format and shape.
    pub fn fill(&mut self, blocks: &Blocks<'_>) {
        assert_eq!((blocks.format(), blocks.ins()), (self.format, self.ins), "weights for a panel");
        macro_rules! copy {
            ($format:ident, $group:expr) => {
                self.copy(Scheme::of(Format::$format).expect("a format that is interleaved"), blocks, $group)
            };
        }
        match self.format {
            Format::Q8_0 => copy!(Q8_0, |block, _| {
                (words::<8>(&block[2..]).map(|codes| codes ^ 0x8080_8080), [block[0], block[1], 0, 0])
            }),
            Format::Q4_0 => copy!(Q4_0, |block, _| (nibbles(&block[2..]), [block[0], block[1], 0, 0])),
            Format::Q4_1 => {
                copy!(Q4_1, |block, _| (nibbles(&block[4..]), [block[0], block[1], block[2], block[3]]));
            }
            Format::Q5_0 => copy!(Q5_0, |block, _| {
                (with_fifth_bits(nibbles(&block[6..]), &block[2..]), [block[0], block[1], 0, 0])
            }),
            Format::Q5_1 => copy!(Q5_1, |block, _| {
                let codes = with_fifth_bits(nibbles(&block[8..]), &block[4..]);
                (codes, [block[0], block[1], block[2], block[3]])
            }),
            Format::Q4_K => copy!(Q4_K, |block, g| (nibbles_of(&block[16..], g), scale_and_minimum(block, g))),
            Format::Q5_K => copy!(Q5_K, |block, g| {
                let (mut codes, high) = (nibbles_of(&block[48..], g), words::<8>(&block[16..]));
                codes.iter_mut().zip(high).for_each(|(codes, high)| *codes |= (high >> g & 0x0101_0101) << 4);
                (codes, scale_and_minimum(block, g))
            }),
            Format::Q6_K => copy!(Q6_K, |block, g| {
                let low = words::<8>(&block[g / 4 * 64 + g % 2 * 32..]);
                let high = words::<8>(&block[128 + g / 4 * 32..]);
                let (upper, shift) = (g % 4 / 2 * 4, g % 4 * 2);
                let code = |j: usize| low[j] >> upper & 0x0f0f_0f0f | (high[j] >> shift & 0x0303_0303) << 4;
                (std::array::from_fn(code), [block[192 + 2 * g], block[193 + 2 * g], 0, 0])
            }),
            format => unreachable!("{format} is not interleaved"),
        }
    }

    /// `group` gives the 32 codes of a block's group, and its parameters.
    #[inline(always)]
    fn copy(&mut self, scheme: Scheme, blocks: &Blocks<'_>, group: impl Fn(&[u8], usize) -> ([u32; 8], [u8; 4])) {
        let lanes = self.lanes;
        let (head_bytes, group_bytes) = (scheme.head_bytes(lanes), scheme.group_bytes(lanes));
        for (lane, row) in self.rows.clone().enumerate() {
            let from = blocks.row(row).chunks_exact(self.format.block_bytes());
            for (block, to) in from.zip(self.bytes.chunks_exact_mut(scheme.block_bytes(lanes))) {
                let (head, groups) = to.split_at_mut(head_bytes);
                match scheme.parameters {
                    Parameters::Long => {
                        head[2 * lane..][..2].copy_from_slice(&block[..2]);
                        head[2 * (lanes + lane)..][..2].copy_from_slice(&block[2..4]);
                    }
                    Parameters::Halves => head[2 * lane..][..2].copy_from_slice(&block[208..210]),
                    Parameters::Scale | Parameters::ScaleAndMinimum => {}
                }
                for (g, to) in groups.chunks_exact_mut(group_bytes).enumerate() {
                    let (codes, [a, b, c, d]) = group(block, g);
                    let (own, to) = to.split_at_mut(scheme.parameter_bytes(lanes));
                    match scheme.parameters {
                        Parameters::Long => (own[lane], own[lanes + lane]) = (a, b),
                        _ => own[2 * lane..][..2].copy_from_slice(&[a, b]),
                    }
                    if scheme.parameters == Parameters::ScaleAndMinimum {
                        own[2 * (lanes + lane)..][..2].copy_from_slice(&[c, d]);
                    }
                    let to = &mut to.as_chunks_mut::<4>().0[..scheme.bits * lanes];
                    let mut put = |vector: usize, word: u32| to[vector * lanes + lane] = word.to_le_bytes();
                    if scheme.bits == 8 {
                        (0..8).for_each(|j| put(j, codes[j]));
                        continue;
                    }
                    (0..4).for_each(|j| put(j, codes[j] & 0x0f0f_0f0f | (codes[j + 4] & 0x0f0f_0f0f) << 4));
                    // One more bit of eight codes in a byte, or two of four.
                    let spread = |codes: &[u32], bits: usize, mask: u32| {
                        codes.iter().rev().fold(0, |high, codes| high << bits | codes >> 4 & mask)
                    };
                    match scheme.bits {
                        5 => put(4, spread(&codes, 1, 0x0101_0101)),
                        6 => (0..2).for_each(|i| put(4 + i, spread(&codes[4 * i..][..4], 2, 0x0303_0303))),
                        _ => {}
                    }
                }
            }
        }
    }
}

/// The first bytes, four in a word.
fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let words = &bytes.as_chunks::<4>().0[..N];
    std::array::from_fn(|i| u32::from_le_bytes(words[i]))
}

/// 16 bytes as 32 codes, the lower nibbles first.
fn nibbles(bytes: &[u8]) -> [u32; 8] {
    let words = words::<4>(bytes);
    std::array::from_fn(|j| words[j % 4] >> (j / 4 * 4) & 0x0f0f_0f0f)
}

/// The codes of group `g` of those of which two share 32 bytes.
fn nibbles_of(bytes: &[u8], g: usize) -> [u32; 8] {
    words::<8>(&bytes[g / 2 * 32..]).map(|word| word >> (g % 2 * 4) & 0x0f0f_0f0f)
}

/// Codes and, above them, the 32 bits at the beginning of `bytes`.
fn with_fifth_bits(codes: [u32; 8], bytes: &[u8]) -> [u32; 8] {
    let [bits] = words::<1>(bytes);
    // Four bits, spread over four bytes.
    std::array::from_fn(|j| codes[j] | ((bits >> (4 * j) & 15).wrapping_mul(0x0020_4081) & 0x0101_0101) << 4)
}

/// Scale and minimum of group `g` of a block of Q4_K or Q5_K, 6 bits each.
fn scale_and_minimum(block: &[u8], g: usize) -> [u8; 4] {
    let packed = &block[4..16];
    if g < 4 {
        return [packed[g] & 63, packed[g + 4] & 63, 0, 0];
    }
    let low = packed[g + 4];
    [low & 15 | packed[g - 4] >> 2 & 0x30, low >> 4 | packed[g] >> 2 & 0x30, 0, 0]
}

/// Code `k` of a lane.
fn code(bits: usize, codes: &[u8], lanes: usize, lane: usize, k: usize) -> u8 {
    let (vector, j, byte) = (4 * lanes, k / 4, 4 * lane + k % 4);
    let low = |codes: &[u8]| codes[j % 4 * vector + byte] >> (j / 4 * 4) & 15;
    match bits {
        4 => low(codes),
        5 => low(codes) | (codes[4 * vector + byte] >> j & 1) << 4,
        6 => low(codes) | (codes[(4 + j / 4) * vector + byte] >> (j % 4 * 2) & 3) << 4,
        _ => codes[j * vector + byte],
    }
}
