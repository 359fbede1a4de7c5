//! Which kernels do decoders need besides those of encoders? The checked methods of [`Kernels`] for attention over
//! pages, weights in the blocks of their file, and gated delta nets.

use std::ops::Range;

use weights::Format;

use crate::blocks::DOT_FORMATS;
use crate::pages::KEYS_ABREAST;
use crate::{
    AttendScratch, Blocks, DeltaRows, Epilogue, Interleaved, Isa, Kernels, KvSliceMut, PagedAttend, QuantizedMut,
    QuantizedRows, Rows, ShortConv, Support, Window,
};

impl Kernels {
    /// Attention over keys and values in pages, for the query heads of one group: `out` is
    /// `[queries, group * value_dim]`. A query that sees no key gets zeros. What lies behind the last key does not
    /// matter.
    ///
    /// A query's result depends on nothing but the query and the keys that it sees: its bits are the same in one call
    /// for a whole prompt, in chunks of any size, and token by token.
    ///
    /// # Panics
    /// If shapes differ, pages are missing, or pages differ in their element type.
    pub fn attend_paged(&self, task: &PagedAttend<'_>, scratch: &mut AttendScratch, mut out: Window<'_>) {
        task.check(&out);
        let (blocks, group) = (task.blocks(), task.group());
        if blocks.is_empty() || out.cols() == 0 {
            return (0..out.rows()).for_each(|i| out.row_mut(i).fill(0.0));
        }
        let numbers = out.rows() * (out.cols() + 2 * group);
        let (state, work) = scratch.take_two(numbers, task.work(out.cols() / group));
        // SAFETY: tables are handed out where the machine has the instructions; shapes were checked.
        unsafe {
            (self.pointers.attend_blocks)(task, blocks, true, work, state);
            (self.pointers.join_blocks)(state, group, out);
        }
    }

    /// Of [`Kernels::attend_paged`] the part of some blocks of keys, of those that [`PagedAttend::blocks`] tells: for each
    /// block `[queries * group, value_dim + 2]` numbers, which [`Kernels::join_blocks`] makes a result of.
    ///
    /// # Panics
    /// If shapes differ, there are no blocks or others, or pages are missing or differ in their element type.
    pub fn attend_blocks(
        &self,
        task: &PagedAttend<'_>,
        blocks: Range<usize>,
        scratch: &mut AttendScratch,
        parts: &mut [f32],
    ) {
        let (all, rows) = (task.blocks(), task.q.rows() * task.group());
        assert!(all.start <= blocks.start && blocks.end <= all.end && !blocks.is_empty(), "{blocks:?} of {all:?}");
        let numbers = parts.len() / (blocks.len() * rows);
        assert!(numbers > 2 && numbers * blocks.len() * rows == parts.len(), "{} numbers for {rows} rows", parts.len());
        task.check_pages(numbers - 2);
        // SAFETY: tables are handed out where the machine has the instructions; shapes were checked.
        unsafe { (self.pointers.attend_blocks)(task, blocks, false, scratch.take(task.work(numbers - 2)), parts) }
    }

    /// What [`Kernels::attend_paged`] gives, bit for bit, out of the parts of all its blocks in their order.
    ///
    /// # Panics
    /// If the parts are no whole blocks of `out`'s rows in heads of a group of `group`.
    pub fn join_blocks(&self, parts: &[f32], group: usize, out: Window<'_>) {
        assert!(group > 0 && out.cols().is_multiple_of(group), "{} columns of {group} heads", out.cols());
        let block = out.rows() * (out.cols() + 2 * group);
        assert!(block > 0 && parts.len().is_multiple_of(block), "{} numbers in blocks of {block}", parts.len());
        // SAFETY: tables are handed out where the machine has the instructions; shapes were checked.
        unsafe { (self.pointers.join_blocks)(parts, group, out) }
    }

    /// Writes the keys `[tokens, dim]` of consecutive tokens into a page, from token `at` of the page on.
    ///
    /// # Panics
    /// If the page is no whole number of sixteens of keys, or ends before them.
    pub fn write_keys(&self, keys: KvSliceMut<'_>, at: usize, rows: Rows<'_>) {
        let width = keys.width(rows.cols());
        let tokens = keys.len().checked_div(width).unwrap_or(0);
        assert!(tokens * width == keys.len() && tokens.is_multiple_of(KEYS_ABREAST), "a page of {tokens} keys");
        assert!(rows.rows() <= tokens && at <= tokens - rows.rows(), "{} keys at {at} of {tokens}", rows.rows());
        // SAFETY: tables are handed out where the machine has the instructions; the place was checked.
        unsafe { (self.pointers.write_keys)(keys, at, rows) }
    }

    /// Writes the values `[tokens, value_dim]` of consecutive tokens into a page, from token `at` of the page on.
    ///
    /// # Panics
    /// If the page ends before them.
    pub fn write_values(&self, values: KvSliceMut<'_>, at: usize, rows: Rows<'_>) {
        let tokens = values.len().checked_div(values.width(rows.cols())).unwrap_or(0);
        assert!(rows.rows() <= tokens && at <= tokens - rows.rows(), "{} values at {at} of {tokens}", rows.rows());
        // SAFETY: tables are handed out where the machine has the instructions; the place was checked.
        unsafe { (self.pointers.write_values)(values, at, rows) }
    }

    /// Which products with weights of this format there are.
    pub fn supports(&self, format: Format) -> Support {
        Support { exact: format.row().decode.is_some(), dot: DOT_FORMATS.contains(&format) }
    }

    /// `y = epilogue(x · Wᵀ)` in f32 on exactly decoded weights, for some rows and some output features.
    ///
    /// `x` is `[rows, ins]`, `y` is `[rows, outs.len()]`. Each number is one chain of fused multiply-adds in the order
    /// of `ins`, as in [`Kernels::matmul`] of weights packed as f32 and with the same bits, whatever the number of rows
    /// and the range. Decoding costs as much as some ten rows; give it all rows in one call.
    ///
    /// # Panics
    /// If shapes differ.
    pub fn matmul_blocks(
        &self,
        x: Rows<'_>,
        w: &Blocks<'_>,
        outs: Range<usize>,
        y: Window<'_>,
        epilogue: &Epilogue<'_>,
        scratch: &mut AttendScratch,
    ) {
        check_product((x.rows(), x.cols()), (w, w.outs(), w.ins()), &outs, &y, epilogue);
        // SAFETY: tables are handed out where the machine has the instructions; shapes were checked.
        unsafe { (self.pointers.matmul_blocks)(x, w, outs, y, epilogue, scratch) }
    }

    /// Rounds activations to 8 bits, with a scale for each 32 of a row. Groups with a number that is not finite get a
    /// scale that is not.
    ///
    /// # Panics
    /// If shapes differ.
    pub fn quantize_rows(&self, x: Rows<'_>, to: QuantizedMut<'_>) {
        assert_eq!((x.rows(), x.cols()), (to.rows(), to.cols()), "rows and where they go");
        // SAFETY: tables are handed out where the machine has the instructions; `to` has the shape of x.
        unsafe { (self.pointers.quantize_rows)(x, to) }
    }

    /// `y = epilogue(x · Wᵀ)` with products in integers, for some output features: exact but for the rounding of the
    /// activations to 8 bits. For few rows: weights are read once, in order, and unpacked once for eight rows.
    ///
    /// `y` is `[x.rows(), outs.len()]`. A row's bits do not depend on the others.
    ///
    /// # Panics
    /// If shapes differ, or [`Kernels::supports`] says no.
    pub fn dot_blocks(
        &self,
        x: &QuantizedRows,
        w: &Blocks<'_>,
        outs: Range<usize>,
        y: Window<'_>,
        epilogue: &Epilogue<'_>,
        scratch: &mut AttendScratch,
    ) {
        assert!(self.supports(w.format()).dot, "no integer products with {}", w.format());
        check_product((x.rows(), x.cols()), (w, w.outs(), w.ins()), &outs, &y, epilogue);
        // SAFETY: tables are handed out where the machine has the instructions; shapes were checked.
        unsafe { (self.pointers.dot_blocks)(x, w, outs, y, epilogue, scratch) }
    }

    /// Are weights of this format repacked for products in integers? Elsewhere there may be [`Kernels::dot_blocks`].
    pub fn interleaves(&self, format: Format) -> bool {
        self.lanes > 0 && DOT_FORMATS.contains(&format)
    }

    /// Are products in integers with weights of 8 bits at least as fast as those in float32, of many rows too?
    pub fn prefers_integers(&self) -> bool {
        match self.isa {
            // Twice as many multiply-adds as AVX2's, from which its products in integers are without VNNI.
            Isa::Avx512 | Isa::Amx => self.lanes == 16,
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => std::arch::is_aarch64_feature_detected!("dotprod"),
            _ => true,
        }
    }

    /// As [`Kernels::dot_blocks`] with repacked weights, for some of their panels, for any number of rows.
    ///
    /// `y` is `[x.rows(), w.columns(panels).len()]`. A row's bits do not depend on the others.
    ///
    /// # Panics
    /// If shapes differ, or `w` was repacked for another instruction set.
    pub fn dot_interleaved(
        &self,
        x: &QuantizedRows,
        w: &Interleaved,
        panels: Range<usize>,
        y: Window<'_>,
        epilogue: &Epilogue<'_>,
        scratch: &mut AttendScratch,
    ) {
        assert_eq!(w.panel_width(), self.lanes, "{w:?} was repacked for another instruction set than {}", self.isa);
        assert!(panels.start <= panels.end && panels.end <= w.panels(), "panels {panels:?} of {}", w.panels());
        check_product((x.rows(), x.cols()), (w, w.outs(), w.ins()), &w.columns(panels.clone()), &y, epilogue);
        // SAFETY: tables are handed out where the machine has the instructions; shapes were checked.
        unsafe { (self.pointers.dot_interleaved)(x, w, panels, y, epilogue, scratch) }
    }

    /// A causal convolution of each channel followed by SiLU; `out` is `[tokens, channels]`. Chunks of any size give
    /// the same bits.
    ///
    /// # Panics
    /// If shapes differ, or the kernel is longer than 16.
    pub fn short_conv(&self, task: ShortConv<'_>, out: Window<'_>) {
        task.check(&out);
        // SAFETY: tables are handed out where the machine has the instructions; shapes were checked.
        unsafe { (self.pointers.short_conv)(task, out) }
    }

    /// The gated delta rule of one value head, token by token; `out` is `[tokens, dv]`. Chunks of any size give the
    /// same bits.
    ///
    /// # Panics
    /// If shapes differ.
    pub fn delta_rows(&self, task: DeltaRows<'_>, scratch: &mut AttendScratch, out: Window<'_>) {
        task.check(&out);
        // SAFETY: tables are handed out where the machine has the instructions; shapes were checked.
        unsafe { (self.pointers.delta_rows)(task, scratch, out) }
    }

    /// As [`Kernels::delta_rows`], as matrix products over chunks of tokens where there are many: faster, and within
    /// 1e-5 of the largest number of the result. Which bits a token gets depends on how the tokens before it were cut
    /// into calls.
    ///
    /// # Panics
    /// If shapes differ.
    pub fn delta_chunks(&self, task: DeltaRows<'_>, scratch: &mut AttendScratch, out: Window<'_>) {
        task.check(&out);
        // SAFETY: tables are handed out where the machine has the instructions; shapes were checked.
        unsafe { (self.pointers.delta_chunks)(task, scratch, out) }
    }
}

fn check_product(
    x: (usize, usize),
    (w, outs, ins): (&dyn std::fmt::Debug, usize, usize),
    range: &Range<usize>,
    y: &Window<'_>,
    epilogue: &Epilogue<'_>,
) {
    assert!(range.start <= range.end && range.end <= outs, "outputs {range:?} of {w:?}");
    assert_eq!(x.1, ins, "columns of x and {w:?}");
    assert_eq!((y.rows(), y.cols()), (x.0, range.len()), "shape of y for outputs {range:?} of {w:?}");
    if let Some(bias) = epilogue.bias {
        assert_eq!(bias.len(), outs, "length of the bias of {w:?}");
    }
    if let Some(residual) = epilogue.residual {
        assert_eq!((residual.rows(), residual.cols()), (y.rows(), y.cols()), "shape of the residual and y");
    }
}
