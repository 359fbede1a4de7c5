//! How do the keys and values of a sequence lie in memory? In pages of a fixed number of tokens, so that sequences grow
//! without moving: the layout that attention reads, and what a call of it is given.

use crate::{Mask, Rows, Window};

/// Keys that lie side by side in a page; the tokens of a page are a multiple of it.
pub const KEYS_ABREAST: usize = 16;

/// The numbers of a page, to read.
#[derive(Clone, Copy, Debug)]
pub enum KvSlice<'a> {
    /// IEEE single precision.
    F32(&'a [f32]),
    /// IEEE half precision, as bits.
    F16(&'a [u16]),
}

impl KvSlice<'_> {
    /// How many numbers.
    pub fn len(&self) -> usize {
        match self {
            KvSlice::F32(numbers) => numbers.len(),
            KvSlice::F16(numbers) => numbers.len(),
        }
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number `i`.
    pub fn get(&self, i: usize) -> f32 {
        match self {
            KvSlice::F32(numbers) => numbers[i],
            KvSlice::F16(numbers) => crate::f16_to_f32(numbers[i]),
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
}

impl KvSliceMut<'_> {
    /// How many numbers.
    pub fn len(&self) -> usize {
        match self {
            KvSliceMut::F32(numbers) => numbers.len(),
            KvSliceMut::F16(numbers) => numbers.len(),
        }
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The keys and values of one head for the tokens of one page.
#[derive(Clone, Copy, Debug)]
pub struct KvPage<'a> {
    /// `[page_tokens / 16][dim][16]`: sixteen keys side by side.
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

    /// The keys that some query sees.
    pub(crate) fn seen(&self) -> std::ops::Range<usize> {
        let Some(last) = self.q.rows().checked_sub(1) else { return 0..0 };
        let first = self.mask.visible(self.past, self.keys);
        first.start..self.mask.visible(self.past + last, self.keys).end.max(first.start)
    }

    /// Checks all shapes; the numbers in a value.
    pub(crate) fn check(&self, out: &Window<'_>) -> usize {
        assert!(self.dim > 0 && self.q.cols().is_multiple_of(self.dim), "{} in heads of {}", self.q.cols(), self.dim);
        assert_eq!(out.rows(), self.q.rows(), "rows of the result and of the queries");
        let group = self.group();
        assert!(
            group == 0 && out.cols() == 0 || group > 0 && out.cols().is_multiple_of(group),
            "{} columns of the result for {group} heads",
            out.cols()
        );
        let value_dim = out.cols().checked_div(group).unwrap_or(0);
        let tokens = self.page_tokens;
        assert!(tokens > 0 && tokens.is_multiple_of(KEYS_ABREAST), "pages of {tokens} tokens");
        let seen = self.seen();
        if seen.is_empty() {
            return value_dim;
        }
        let pages = seen.start / tokens..seen.end.div_ceil(tokens);
        assert!(
            pages.end <= self.pages.len(),
            "{} pages of {tokens} tokens hold no {} keys",
            self.pages.len(),
            seen.end
        );
        let half = matches!(self.pages[pages.start].keys, KvSlice::F16(_));
        for page in &self.pages[pages] {
            for (part, dim) in [(page.keys, self.dim), (page.values, value_dim)] {
                assert_eq!(part.len(), tokens * dim, "numbers in a page of {tokens} tokens of {dim}");
                assert_eq!(matches!(part, KvSlice::F16(_)), half, "half precision in one page, single in another");
            }
        }
        value_dim
    }
}
