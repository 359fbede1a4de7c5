//! How do the keys and values of a sequence lie in memory? In pages of a fixed number of tokens, so that sequences grow
//! without moving: the layout that attention reads, and what a call of it is given.

use crate::matmul::MOST_ROWS;
use crate::{Mask, Rows, Window, f16_to_f32, f32_to_f16};

/// Keys that lie side by side in a page; the tokens of a page are a multiple of it.
pub const KEYS_ABREAST: usize = 16;

/// Keys of a block of attention.
pub(crate) const KEYS: usize = 128;

/// Numbers of a block of 8-bit numbers, as in ggml's Q8_0. The last block of a key is filled up.
const BLOCK: usize = 32;
/// Bytes of a block: its factor in half precision, and its numbers.
const BYTES: usize = 2 + BLOCK;

/// The numbers of a page, to read.
#[derive(Clone, Copy, Debug)]
pub enum KvSlice<'a> {
    /// IEEE single precision.
    F32(&'a [f32]),
    /// IEEE half precision, as bits.
    F16(&'a [u16]),
    /// 8-bit numbers in blocks of 32 consecutive ones of a key or value, each with a factor in half precision, as bytes: a
    /// value is `[dim / 32]` blocks of a factor and its numbers, sixteen keys are `[dim / 32]` blocks of `[16]` factors and
    /// `[32][16]` numbers.
    Q8_0(&'a [u8]),
}

impl KvSlice<'_> {
    /// Its length in what it is made of.
    pub fn len(&self) -> usize {
        match self {
            KvSlice::F32(numbers) => numbers.len(),
            KvSlice::F16(numbers) => numbers.len(),
            KvSlice::Q8_0(bytes) => bytes.len(),
        }
    }

    /// How much of it a key or value of `dim` numbers takes.
    pub fn width(&self, dim: usize) -> usize {
        match self {
            KvSlice::F32(_) | KvSlice::F16(_) => dim,
            KvSlice::Q8_0(_) => dim.div_ceil(BLOCK) * BYTES,
        }
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number `d` of `dim` of the key of a token of the page.
    pub(crate) fn key(&self, dim: usize, token: usize, d: usize) -> f32 {
        let (panel, lane) = (token / KEYS_ABREAST, token % KEYS_ABREAST);
        let place = (panel * dim + d) * KEYS_ABREAST + lane;
        match self {
            KvSlice::F32(numbers) => numbers[place],
            KvSlice::F16(numbers) => f16_to_f32(numbers[place]),
            KvSlice::Q8_0(bytes) => {
                let block = (panel * dim.div_ceil(BLOCK) + d / BLOCK) * KEYS_ABREAST * BYTES;
                let number = block + (2 + d % BLOCK) * KEYS_ABREAST + lane;
                f16_at(bytes, block + 2 * lane) * f32::from(bytes[number] as i8)
            }
        }
    }

    /// Number `d` of `dim` of the value of a token of the page.
    pub(crate) fn value(&self, dim: usize, token: usize, d: usize) -> f32 {
        match self {
            KvSlice::F32(numbers) => numbers[token * dim + d],
            KvSlice::F16(numbers) => f16_to_f32(numbers[token * dim + d]),
            KvSlice::Q8_0(bytes) => {
                let block = (token * dim.div_ceil(BLOCK) + d / BLOCK) * BYTES;
                f16_at(bytes, block) * f32::from(bytes[block + 2 + d % BLOCK] as i8)
            }
        }
    }
}

/// The numbers of a page, to write.
#[derive(Debug)]
pub enum KvSliceMut<'a> {
    /// IEEE single precision.
    F32(&'a mut [f32]),
    /// IEEE half precision, as bits.
    F16(&'a mut [u16]),
    /// 8-bit numbers in blocks of 32 with a factor, as bytes.
    Q8_0(&'a mut [u8]),
}

impl KvSliceMut<'_> {
    /// Its length in what it is made of.
    pub fn len(&self) -> usize {
        match self {
            KvSliceMut::F32(numbers) => numbers.len(),
            KvSliceMut::F16(numbers) => numbers.len(),
            KvSliceMut::Q8_0(bytes) => bytes.len(),
        }
    }

    /// How much of it a key or value of `dim` numbers takes.
    pub fn width(&self, dim: usize) -> usize {
        match self {
            KvSliceMut::F32(_) | KvSliceMut::F16(_) => dim,
            KvSliceMut::Q8_0(_) => dim.div_ceil(BLOCK) * BYTES,
        }
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn f16_at(bytes: &[u8], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

/// The factor of a block and its numbers: the nearest multiples of it, the largest number ±127.
fn quantize(numbers: &[f32]) -> (u16, [i8; BLOCK]) {
    let largest = numbers.iter().fold(0f32, |most, x| if x.abs() > most { x.abs() } else { most });
    // NaN must come out again.
    let largest = if numbers.iter().any(|x| x.is_nan()) { f32::NAN } else { largest };
    let factor = f32_to_f16(largest / 127.0);
    let inverse = 1.0 / f16_to_f32(factor);
    let mut quantized = [0; BLOCK];
    if inverse.is_finite() {
        // A cast stops at the ends of its range.
        quantized.iter_mut().zip(numbers).for_each(|(q, x)| *q = ((x * inverse).round_ties_even() as i8).max(-127));
    } else if largest > 1.0 || largest.is_nan() {
        quantized.fill(1); // the factor is infinite, or NaN
    }
    (factor, quantized)
}

/// Writes a key into a page, at a token.
pub(crate) fn write_key_q8_0(bytes: &mut [u8], token: usize, key: &[f32]) {
    let (panel, lane) = (token / KEYS_ABREAST, token % KEYS_ABREAST);
    let blocks = key.len().div_ceil(BLOCK);
    let panel = &mut bytes[panel * blocks * KEYS_ABREAST * BYTES..][..blocks * KEYS_ABREAST * BYTES];
    for (block, numbers) in panel.chunks_exact_mut(KEYS_ABREAST * BYTES).zip(key.chunks(BLOCK)) {
        let (factor, quantized) = quantize(numbers);
        block[2 * lane..][..2].copy_from_slice(&factor.to_le_bytes());
        let places = block[2 * KEYS_ABREAST + lane..].iter_mut().step_by(KEYS_ABREAST);
        places.zip(quantized).for_each(|(place, q)| *place = q as u8);
    }
}

/// Writes a value into a page, at a token.
pub(crate) fn write_value_q8_0(bytes: &mut [u8], token: usize, value: &[f32]) {
    let blocks = value.len().div_ceil(BLOCK);
    let row = &mut bytes[token * blocks * BYTES..][..blocks * BYTES];
    for (block, numbers) in row.chunks_exact_mut(BYTES).zip(value.chunks(BLOCK)) {
        let (factor, quantized) = quantize(numbers);
        block[..2].copy_from_slice(&factor.to_le_bytes());
        block[2..].iter_mut().zip(quantized).for_each(|(place, q)| *place = q as u8);
    }
}

/// Sixteens of keys `[panels][dim][16]` from bytes.
#[inline(always)]
pub(crate) fn read_keys_q8_0(bytes: &[u8], dim: usize, keys: &mut [f32]) {
    let panels = bytes.chunks_exact(dim.div_ceil(BLOCK) * KEYS_ABREAST * BYTES);
    for (panel, keys) in panels.zip(keys.chunks_exact_mut(dim * KEYS_ABREAST)) {
        let blocks = panel.chunks_exact(KEYS_ABREAST * BYTES);
        for (block, keys) in blocks.zip(keys.chunks_mut(BLOCK * KEYS_ABREAST)) {
            let (bits, numbers) = block.split_at(2 * KEYS_ABREAST);
            let mut factors = [0f32; KEYS_ABREAST];
            for (factor, bits) in factors.iter_mut().zip(bits.chunks_exact(2)) {
                *factor = f16_to_f32(u16::from_le_bytes([bits[0], bits[1]]));
            }
            for (keys, numbers) in keys.chunks_exact_mut(KEYS_ABREAST).zip(numbers.chunks_exact(KEYS_ABREAST)) {
                for lane in 0..KEYS_ABREAST {
                    keys[lane] = factors[lane] * f32::from(numbers[lane] as i8);
                }
            }
        }
    }
}

/// Values `[tokens][dim]` from bytes.
#[inline(always)]
pub(crate) fn read_values_q8_0(bytes: &[u8], dim: usize, values: &mut [f32]) {
    let rows = bytes.chunks_exact(dim.div_ceil(BLOCK).max(1) * BYTES);
    for (row, values) in rows.zip(values.chunks_exact_mut(dim.max(1))) {
        for (block, values) in row.chunks_exact(BYTES).zip(values.chunks_mut(BLOCK)) {
            let factor = f16_to_f32(u16::from_le_bytes([block[0], block[1]]));
            values.iter_mut().zip(&block[2..]).for_each(|(value, q)| *value = factor * f32::from(*q as i8));
        }
    }
}

/// The keys and values of one head for the tokens of one page.
#[derive(Clone, Copy, Debug)]
pub struct KvPage<'a> {
    /// `[page_tokens / 16][dim][16]`: sixteen keys side by side; bytes: see [`KvSlice::Q8_0`].
    pub keys: KvSlice<'a>,
    /// `[page_tokens][value_dim]`.
    pub values: KvSlice<'a>,
}

/// The attention of the query heads that share one head of keys and values, for some consecutive queries of one
/// sequence.
///
/// Key `j` has position `j` and lies in page `j / page_tokens`; query `i` has position `past + i`. The score of a pair
/// is `softcap(scale · q·k)`, where `softcap(s) = cap · tanh(s / cap)`.
#[derive(Clone, Copy, Debug)]
pub struct PagedAttend<'a> {
    /// `[queries, group * dim]`: the heads of the group side by side.
    pub q: Rows<'a>,
    /// Numbers in a key.
    pub dim: usize,
    /// The pages of the sequence, all of one element type. Those that no query sees may be empty.
    pub pages: &'a [KvPage<'a>],
    /// Tokens in a page, a multiple of [`KEYS_ABREAST`].
    pub page_tokens: usize,
    /// How many keys there are, those of these queries included.
    pub keys: usize,
    /// Position of the first query.
    pub past: usize,
    /// What scores are multiplied by.
    pub scale: f32,
    /// Which keys a query sees.
    pub mask: Mask,
    /// The bound that scores are bent towards.
    pub softcap: Option<f32>,
}

impl PagedAttend<'_> {
    /// Query heads that share the keys.
    pub fn group(&self) -> usize {
        self.q.cols() / self.dim.max(1)
    }

    /// The blocks of keys that some query sees: what threads may share ([`Kernels::attend_blocks`]).
    ///
    /// [`Kernels::attend_blocks`]: crate::Kernels::attend_blocks
    pub fn blocks(&self) -> std::ops::Range<usize> {
        let seen = self.seen();
        if seen.is_empty() { 0..0 } else { seen.start / KEYS..seen.end.div_ceil(KEYS) }
    }

    /// Numbers that a call works in, besides its result.
    pub(crate) fn work(&self, value_dim: usize) -> usize {
        let rows = self.q.rows() * self.group();
        rows * self.dim + MOST_ROWS * (KEYS + value_dim) + self.blocks_read() * (self.dim + value_dim)
    }

    /// Keys of a block that have to be read out of their bytes first.
    pub(crate) fn blocks_read(&self) -> usize {
        let first = self.pages.get(self.seen().start / self.page_tokens.max(1));
        if first.is_some_and(|page| matches!(page.keys, KvSlice::Q8_0(_))) { KEYS } else { 0 }
    }

    /// The keys that some query sees.
    pub(crate) fn seen(&self) -> std::ops::Range<usize> {
        let Some(last) = self.q.rows().checked_sub(1) else { return 0..0 };
        let first = self.mask.visible(self.past, self.keys);
        first.start..self.mask.visible(self.past + last, self.keys).end.max(first.start)
    }

    /// Checks all shapes.
    pub(crate) fn check(&self, out: &Window<'_>) {
        assert_eq!(out.rows(), self.q.rows(), "rows of the result and of the queries");
        let group = self.group();
        assert!(
            group == 0 && out.cols() == 0 || group > 0 && out.cols().is_multiple_of(group),
            "{} columns of the result for {group} heads",
            out.cols()
        );
        self.check_pages(out.cols().checked_div(group).unwrap_or(0));
    }

    /// Checks the pages that queries see, with `value_dim` numbers in a value.
    pub(crate) fn check_pages(&self, value_dim: usize) {
        assert!(self.dim > 0 && self.q.cols().is_multiple_of(self.dim), "{} in heads of {}", self.q.cols(), self.dim);
        let tokens = self.page_tokens;
        assert!(tokens > 0 && tokens.is_multiple_of(KEYS_ABREAST), "pages of {tokens} tokens");
        let seen = self.seen();
        if seen.is_empty() {
            return;
        }
        let pages = seen.start / tokens..seen.end.div_ceil(tokens);
        assert!(
            pages.end <= self.pages.len(),
            "{} pages of {tokens} tokens hold no {} keys",
            self.pages.len(),
            seen.end
        );
        let kind = std::mem::discriminant(&self.pages[pages.start].keys);
        for page in &self.pages[pages] {
            for (part, dim) in [(page.keys, self.dim), (page.values, value_dim)] {
                assert_eq!(part.len(), tokens * part.width(dim), "numbers in a page of {tokens} tokens of {dim}");
                assert!(std::mem::discriminant(&part) == kind, "another element type in one page than in another");
            }
        }
    }
}
