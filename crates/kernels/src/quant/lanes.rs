//! How is a product of rows in integers with [`Interleaved`](crate::Interleaved) weights computed? Tiles of some rows by two panels, whose
//! sums are exact integers within a group of 32 and one chain in f32, a lane each, over the groups of a row.
//!
//! Few rows read the weights as they lie; for many, two panels at a time are unpacked into the first-level cache, where all
//! rows meet them. Both run the same tile, so a row has the same bits in any company. What an instruction set brings is
//! [`Lanes`]: how the products of a group are added.

// Indices say which register is which.
#![allow(clippy::needless_range_loop)]

use std::marker::PhantomData;

use weights::Format;

use super::Job;
use crate::blocks::{self, GROUP, QuantizedRows, part_of_tile};
use crate::interleaved::{Parameters, Scheme};
use crate::matmul::Finish;
use crate::simd::Simd;

/// Vectors of as many integers of 32 bits as there are lanes, or of four times as many bytes.
pub(crate) trait Lanes: Copy {
    /// The vectors of f32 beside them.
    type F: Simd;
    type I: Copy;
    /// Are codes of 8 bits multiplied by their nibbles?
    const BY_NIBBLES: bool;

    fn simd(self) -> Self::F;
    /// # Safety
    /// A vector of bytes can be read at `p`.
    unsafe fn load(self, p: *const u8) -> Self::I;
    /// # Safety
    /// A vector of bytes can be written at `p`.
    unsafe fn store(self, p: *mut u8, v: Self::I);
    /// Signed bytes, as many as two for each lane, as 16 bits.
    ///
    /// # Safety
    /// They can be read at `p`.
    unsafe fn widen_pairs(self, p: *const u8) -> Self::I;
    /// A byte for each lane as f32.
    ///
    /// # Safety
    /// They can be read at `p`.
    unsafe fn numbers(self, p: *const u8) -> <Self::F as Simd>::V;
    fn and(self, v: Self::I, byte: i8) -> Self::I;
    fn or(self, a: Self::I, b: Self::I) -> Self::I;
    /// Shifts of 16 bits.
    fn left(self, v: Self::I, by: i32) -> Self::I;
    fn right(self, v: Self::I, by: i32) -> Self::I;
    fn to_f32(self, v: Self::I) -> <Self::F as Simd>::V;

    /// `Σ (code − offset) · activation` over a group, exactly, for `R` rows and `P` panels; where halves of the group have
    /// scales, times these.
    ///
    /// # Safety
    /// Each of the panels has a group at `w` and every `panel` bytes from there, x has `R` rows.
    unsafe fn group<W: Source, const R: usize, const P: usize>(
        self,
        x: Activations,
        w: *const u8,
        panel: usize,
    ) -> [[Self::I; P]; R];
}

/// Rows of a tile of [`QuantizedRows`], from a row and a group on: what it has of a row, then of the next.
#[derive(Clone, Copy)]
pub(super) struct Activations {
    /// From a group to the next.
    height: usize,
    pub(super) codes: *const i8,
    scales: *const f32,
    pub(super) pairs: *const i16,
}

impl Activations {
    /// # Safety
    /// x has this row and this group.
    #[inline(always)]
    unsafe fn at(x: &QuantizedRows, row: usize, group: usize) -> Self {
        let at = x.place(row, group);
        // SAFETY: the caller's.
        unsafe {
            Self {
                height: x.height(),
                codes: x.codes.as_ptr().add(at * GROUP),
                scales: x.scales.as_ptr().add(at * 2),
                pairs: x.pairs.as_ptr().add(at * 4),
            }
        }
    }

    #[inline(always)]
    fn next_group(self) -> Self {
        Self {
            codes: self.codes.wrapping_add(self.height * GROUP),
            scales: self.scales.wrapping_add(self.height * 2),
            pairs: self.pairs.wrapping_add(self.height * 4),
            ..self
        }
    }
}

/// Where a tile finds weights. All pointers are to blocks or groups of which the bytes are there; so for all functions.
pub(super) trait Source {
    const SCHEME: Scheme;
    /// Panels of a tile.
    const SIDE: usize;
    const FROM_MEMORY: bool;
    /// Groups of a block.
    const GROUPS: usize;
    fn head_bytes(lanes: usize) -> usize;
    fn group_bytes<S: Lanes>() -> usize;
    /// Vector `J` of the codes of a group, `4 J..4 J + 4` of each lane.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn codes<S: Lanes, const J: usize>(s: S, group: *const u8) -> S::I;
    /// The same of codes of 8 bits [by nibbles](Lanes::BY_NIBBLES), the lower, then the upper ones.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn nibbles<S: Lanes, const J: usize>(s: S, group: *const u8) -> [S::I; 2];
    /// What sums of products are multiplied by.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn factor<S: Lanes>(s: S, head: *const u8, group: *const u8) -> <S::F as Simd>::V;
    /// What sums of activations are multiplied by.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn minimum<S: Lanes>(s: S, head: *const u8, group: *const u8) -> <S::F as Simd>::V;
    /// The scales of the halves of a group, 16 bits each, where it has them.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn halves<S: Lanes>(s: S, group: *const u8) -> S::I;
}

/// Has the scheme a minimum?
pub(super) const fn has_minimum(scheme: Scheme) -> bool {
    matches!(scheme.parameters, Parameters::ScaleAndMinimum | Parameters::Long)
}

/// A format, as a type.
pub(super) trait Form {
    const SCHEME: Scheme;
    /// Panels of a tile: codes of 8 bits take twice the sums.
    const SIDE: usize = if Self::SCHEME.bits == 8 { 1 } else { 2 };
}

macro_rules! forms {
    ($dollar:tt $($form:ident)*) => {
        $(
            #[allow(non_camel_case_types)] // the format's name
            pub(super) struct $form;
            impl Form for $form {
                const SCHEME: Scheme = Scheme::of(Format::$form).expect("a format that is interleaved");
            }
        )*

        /// `$body` with `$F` as the [`Form`] of a format.
        macro_rules! with_form {
            ($dollar format:expr, $dollar F:ident => $dollar body:expr) => {
                match $dollar format {
                    $(weights::Format::$form => {
                        type $dollar F = $dollar crate::quant::lanes::$form;
                        $dollar body
                    })*
                    format => unreachable!("{format} is not interleaved"),
                }
            };
        }
    };
}
forms!($ Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K);
#[expect(clippy::single_component_path_imports, reason = "where `amx` finds it")]
pub(super) use with_form;

/// Weights as they lie in [`Interleaved`](crate::Interleaved).
pub(super) struct AsStored<F>(PhantomData<F>);

impl<F: Form> Source for AsStored<F> {
    const SCHEME: Scheme = F::SCHEME;
    const SIDE: usize = F::SIDE;
    const FROM_MEMORY: bool = true;
    const GROUPS: usize = F::SCHEME.groups();

    #[inline(always)]
    fn head_bytes(lanes: usize) -> usize {
        F::SCHEME.head_bytes(lanes)
    }

    #[inline(always)]
    fn group_bytes<S: Lanes>() -> usize {
        F::SCHEME.group_bytes(S::F::LANES)
    }

    #[inline(always)]
    unsafe fn codes<S: Lanes, const J: usize>(s: S, group: *const u8) -> S::I {
        let vector = 4 * S::F::LANES;
        // SAFETY: the caller's: a group has `bits` vectors behind its parameters.
        unsafe {
            let codes = group.add(F::SCHEME.parameter_bytes(S::F::LANES));
            if F::SCHEME.bits == 8 {
                return s.load(codes.add(J * vector));
            }
            let low = s.load(codes.add(J % 4 * vector));
            let low = s.and(if J < 4 { low } else { s.right(low, 4) }, 15);
            // The bits above, at bit 4.
            let (from, at, mask) = match F::SCHEME.bits {
                5 => (4, J as i32, 0x10),
                6 => (4 + J / 4, (J % 4 * 2) as i32, 0x30),
                _ => return low,
            };
            let high = s.load(codes.add(from * vector));
            let high = match at {
                4 => high,
                0..4 => s.left(high, 4 - at),
                _ => s.right(high, at - 4),
            };
            s.or(low, s.and(high, mask))
        }
    }

    #[inline(always)]
    unsafe fn nibbles<S: Lanes, const J: usize>(s: S, group: *const u8) -> [S::I; 2] {
        // SAFETY: the caller's.
        let codes = unsafe { Self::codes::<S, J>(s, group) };
        [s.and(codes, 15), s.and(s.right(codes, 4), 15)]
    }

    #[inline(always)]
    unsafe fn factor<S: Lanes>(s: S, head: *const u8, group: *const u8) -> <S::F as Simd>::V {
        let f = s.simd();
        // SAFETY: the caller's: a vector of the parameters is in the group or in the head.
        unsafe {
            match F::SCHEME.parameters {
                Parameters::Scale | Parameters::ScaleAndMinimum => f.load_f16(group.cast()),
                Parameters::Long => f.mul(f.load_f16(head.cast()), s.numbers(group)),
                Parameters::Halves => f.load_f16(head.cast()),
            }
        }
    }

    #[inline(always)]
    unsafe fn minimum<S: Lanes>(s: S, head: *const u8, group: *const u8) -> <S::F as Simd>::V {
        let (f, lanes) = (s.simd(), S::F::LANES);
        // SAFETY: as above.
        unsafe {
            match F::SCHEME.parameters {
                Parameters::ScaleAndMinimum => f.load_f16(group.cast::<u16>().add(lanes)),
                Parameters::Long => {
                    let minimum = f.mul(f.load_f16(head.cast::<u16>().add(lanes)), s.numbers(group.add(lanes)));
                    f.sub(f.splat(0.0), minimum)
                }
                Parameters::Scale | Parameters::Halves => f.splat(0.0),
            }
        }
    }

    #[inline(always)]
    unsafe fn halves<S: Lanes>(s: S, group: *const u8) -> S::I {
        // SAFETY: as above.
        unsafe { s.widen_pairs(group) }
    }
}

/// Weights unpacked into scratch: eight vectors of codes, or eight of lower and eight of upper nibbles; one of factors, and
/// one of minima or of scales of halves.
struct Unpacked<F>(PhantomData<F>);

impl<F: Form> Unpacked<F> {
    /// Vectors of codes.
    const fn codes<S: Lanes>() -> usize {
        if F::SCHEME.bits == 8 && S::BY_NIBBLES { 16 } else { 8 }
    }

    /// Numbers of 32 bits in a group.
    const fn group<S: Lanes>() -> usize {
        (Self::codes::<S>() + 2) * S::F::LANES
    }
}

impl<F: Form> Source for Unpacked<F> {
    const SCHEME: Scheme = F::SCHEME;
    const SIDE: usize = F::SIDE;
    const FROM_MEMORY: bool = false;
    const GROUPS: usize = 1;

    #[inline(always)]
    fn head_bytes(_: usize) -> usize {
        0
    }

    #[inline(always)]
    fn group_bytes<S: Lanes>() -> usize {
        4 * Self::group::<S>()
    }

    #[inline(always)]
    unsafe fn codes<S: Lanes, const J: usize>(s: S, group: *const u8) -> S::I {
        // SAFETY: the caller's: a group has vectors as `unpack` writes them; so below.
        unsafe { s.load(group.add(J * 4 * S::F::LANES)) }
    }

    #[inline(always)]
    unsafe fn nibbles<S: Lanes, const J: usize>(s: S, group: *const u8) -> [S::I; 2] {
        // SAFETY: as above.
        unsafe { [s.load(group.add(J * 4 * S::F::LANES)), s.load(group.add((8 + J) * 4 * S::F::LANES))] }
    }

    #[inline(always)]
    unsafe fn factor<S: Lanes>(s: S, _: *const u8, group: *const u8) -> <S::F as Simd>::V {
        // SAFETY: as above.
        unsafe { s.simd().load(group.cast::<f32>().add(Self::codes::<S>() * S::F::LANES)) }
    }

    #[inline(always)]
    unsafe fn minimum<S: Lanes>(s: S, _: *const u8, group: *const u8) -> <S::F as Simd>::V {
        // SAFETY: as above.
        unsafe { s.simd().load(group.cast::<f32>().add((Self::codes::<S>() + 1) * S::F::LANES)) }
    }

    #[inline(always)]
    unsafe fn halves<S: Lanes>(s: S, group: *const u8) -> S::I {
        // SAFETY: as above.
        unsafe { s.load(group.add((Self::codes::<S>() + 1) * 4 * S::F::LANES)) }
    }
}

/// Rows of a tile.
const ROWS: usize = 4;
/// Most panels of a tile.
const PANELS: usize = 2;
/// From so many rows on it pays to unpack weights.
const MANY_ROWS: usize = blocks::ROWS;
/// Rows that meet a panel while it is unpacked: their codes stay in the second-level cache.
const BLOCK: usize = 192;
/// Groups that are unpacked at once: two panels of so many, and a tile's rows, stay in the first-level cache.
const DEPTH: usize = 32;
/// How far ahead of its reading a stream is asked for: past the end of a page, where the hardware's own prefetch stops.
const AHEAD: usize = 2048;
/// Lanes of the widest vector.
const MOST_LANES: usize = 16;

/// As [`Quant::dot_interleaved`](super::Quant::dot_interleaved).
#[inline(always)]
pub(super) fn dot_interleaved<S: Lanes>(s: S, job: Job<'_>) {
    with_form!(job.w.format(), F => run::<S, F>(s, job));
}

#[inline(always)]
fn run<S: Lanes, F: Form>(s: S, job: Job<'_>) {
    let Job { x, w, panels, mut y, epilogue, scratch } = job;
    let (lanes, rows) = (S::F::LANES, x.rows());
    assert!(w.panel_width() == lanes && x.cols() == w.ins() && panels.end <= w.panels() && y.rows() == rows);
    let first = w.columns(panels.clone()).start;
    let groups = w.ins() / GROUP;
    let bias = |at: usize| epilogue.bias.map(|bias| &bias[first + at..]);
    // A single row reads one stream.
    let side = if rows == 1 { 1 } else { F::SIDE };
    if rows < MANY_ROWS {
        let mut sums = [0f32; ROWS * PANELS * MOST_LANES];
        let mut panel = panels.start;
        while panel < panels.end {
            let count = if panel + side <= panels.end { side } else { 1 };
            let (bytes, at) = (w.slice(panel..panel + count), (panel - panels.start) * lanes);
            let mut row = 0;
            while row < rows {
                // The last panel of an odd number of them is rare.
                let height = if count == side { part_of_tile(row..rows, ROWS) } else { 1 };
                // SAFETY: the panels lie one after another, with a block for each of the row's; x has the rows; the sums
                // have room for a tile.
                unsafe {
                    let x = Activations::at(x, row, 0);
                    let task =
                        Tile { x, w: bytes.as_ptr(), panel: w.panel_bytes(), sums: sums.as_mut_ptr(), go_on: false };
                    tile::<S, AsStored<F>>(s, task, groups, height, count);
                }
                for (i, sums) in sums.chunks_exact(count * lanes).take(height).enumerate() {
                    finish_row(s.simd(), &mut y.row_mut(row + i)[at..], sums, bias(at));
                }
                row += height;
            }
            panel += count;
        }
    } else {
        let depth = groups.div_ceil(groups.div_ceil(DEPTH).max(1)).next_multiple_of(F::SCHEME.groups());
        let panel_numbers = depth * Unpacked::<F>::group::<S>();
        let numbers = PANELS * panel_numbers + BLOCK * PANELS * lanes + MOST_LANES;
        let scratch = scratch.take(numbers);
        let (_, scratch) = scratch.split_at_mut(scratch.as_ptr().align_offset(64).min(MOST_LANES));
        let (unpacked, sums) = scratch.split_at_mut(PANELS * panel_numbers);
        for top in (0..rows).step_by(BLOCK) {
            let bottom = rows.min(top + BLOCK);
            let mut panel = panels.start;
            while panel < panels.end {
                let count = side.min(panels.end - panel);
                let at = (panel - panels.start) * lanes;
                let mut start = 0;
                while start < groups {
                    let depth = depth.min(groups - start);
                    for i in 0..count {
                        unpack::<S, F>(
                            s,
                            w.slice(panel + i..panel + i + 1),
                            start,
                            depth,
                            &mut unpacked[i * panel_numbers..],
                        );
                    }
                    // All of them whole: from that many on rows are padded, and what comes of the others is nobody's.
                    for row in (top..bottom).step_by(ROWS) {
                        // SAFETY: the unpacked panels have `depth` groups; x has the rows, and as many groups from `start` on;
                        // the sums have room for the block's rows.
                        unsafe {
                            let x = Activations::at(x, row, start);
                            let w = unpacked.as_ptr().cast();
                            let sums = sums[(row - top) * side * lanes..].as_mut_ptr();
                            let task = Tile { x, w, panel: panel_numbers * 4, sums, go_on: start > 0 };
                            whole_tile::<S, Unpacked<F>>(s, task, depth);
                        }
                    }
                    start += depth;
                }
                for (i, sums) in sums.chunks_exact(side * lanes).take(bottom - top).enumerate() {
                    // What a panel that is not there brought is beyond the row's end.
                    finish_row(s.simd(), &mut y.row_mut(top + i)[at..], &sums[..count * lanes], bias(at));
                }
                panel += count;
            }
        }
    }
    if epilogue.activation.is_some() || epilogue.residual.is_some() {
        Finish { y, residual: epilogue.residual }.run(s.simd(), epilogue.activation);
    }
}

/// The sums of a row, and the bias, to where the row goes, which may end earlier.
#[inline(always)]
pub(super) fn finish_row<F: Simd>(f: F, y: &mut [f32], sums: &[f32], bias: Option<&[f32]>) {
    let len = y.len().min(sums.len());
    for at in (0..len).step_by(F::LANES) {
        let n = F::LANES.min(len - at);
        let sums = f.load_part(&sums[at..], F::LANES);
        let sums = match bias {
            Some(bias) => f.add(sums, f.load_part(&bias[at..], n)),
            None => sums,
        };
        f.store_part(&mut y[at..], n, sums);
    }
}

/// Unpacks `depth` groups of a panel, from `start` on, which is a block's first.
#[inline(always)]
fn unpack<S: Lanes, F: Form>(s: S, panel: &[u8], start: usize, depth: usize, to: &mut [f32]) {
    let (f, lanes, scheme) = (s.simd(), S::F::LANES, F::SCHEME);
    let blocks = panel.chunks_exact(scheme.block_bytes(lanes)).skip(start / scheme.groups());
    let (codes, numbers) = (Unpacked::<F>::codes::<S>(), Unpacked::<F>::group::<S>());
    let to = to[..depth * numbers].chunks_exact_mut(scheme.groups() * numbers);
    for (block, to) in blocks.zip(to) {
        let (head, groups) = block.split_at(scheme.head_bytes(lanes));
        let groups = groups.chunks_exact(scheme.group_bytes(lanes));
        for (group, to) in groups.zip(to.chunks_exact_mut(numbers)) {
            let (head, group, to) = (head.as_ptr(), group.as_ptr(), to.as_mut_ptr());
            // SAFETY: a head and a group of the scheme, and a vector to write for each of its parts.
            unsafe {
                macro_rules! codes {
                    ($($j:literal)*) => {$(
                        let vector = to.cast::<u8>().add($j * 4 * lanes);
                        if codes == 16 {
                            let [low, high] = AsStored::<F>::nibbles::<S, $j>(s, group);
                            s.store(vector, low);
                            s.store(vector.add(8 * 4 * lanes), high);
                        } else {
                            s.store(vector, AsStored::<F>::codes::<S, $j>(s, group));
                        }
                    )*};
                }
                codes!(0 1 2 3 4 5 6 7);
                f.store(to.add(codes * lanes), AsStored::<F>::factor(s, head, group));
                if scheme.parameters as u8 == Parameters::Halves as u8 {
                    s.store(to.add((codes + 1) * lanes).cast(), AsStored::<F>::halves(s, group));
                } else if has_minimum(scheme) {
                    f.store(to.add((codes + 1) * lanes), AsStored::<F>::minimum(s, head, group));
                }
            }
        }
    }
}

/// Some rows by some panels.
#[derive(Clone, Copy)]
struct Tile {
    x: Activations,
    /// The first panel's first block.
    w: *const u8,
    /// Bytes from a panel to the next.
    panel: usize,
    /// `[rows][panels * lanes]`.
    sums: *mut f32,
    /// Do the sums begin with what is there?
    go_on: bool,
}

/// Up to [`ROWS`] rows by one panel or two, or, where codes of 8 bits take twice the sums, by one.
///
/// # Safety
/// x has `rows` rows of `groups` groups from its place on, the panels have as many, `sums` has room for all.
#[inline(always)]
unsafe fn tile<S: Lanes, W: Source>(s: S, task: Tile, groups: usize, rows: usize, panels: usize) {
    macro_rules! pick {
        ($panels:literal: $($rows:literal)*) => {
            match rows {
                // SAFETY: the caller's.
                $($rows => unsafe { fixed_tile::<S, W, $rows, $panels>(s, task, groups) },)*
                _ => unreachable!("tile of {rows} rows and {panels} panels"),
            }
        };
    }
    if W::SIDE == 1 {
        pick!(1: 1 2 3 4);
    } else if panels == W::SIDE {
        pick!(2: 1 2 3 4);
    } else {
        pick!(1: 1);
    }
}

/// [`ROWS`] rows by as many panels as a tile has.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn whole_tile<S: Lanes, W: Source>(s: S, task: Tile, groups: usize) {
    // SAFETY: the caller's.
    unsafe {
        match W::SIDE {
            1 => fixed_tile::<S, W, ROWS, 1>(s, task, groups),
            _ => fixed_tile::<S, W, ROWS, PANELS>(s, task, groups),
        }
    }
}

/// # Safety
/// As [`tile`] of `R` rows and `P` panels.
#[inline(always)]
unsafe fn fixed_tile<S: Lanes, W: Source, const R: usize, const P: usize>(s: S, task: Tile, groups: usize) {
    let Tile { mut x, mut w, panel, sums: to, go_on } = task;
    let (f, lanes) = (s.simd(), S::F::LANES);
    let mut sums = [[f.splat(0.0); P]; R];
    // SAFETY: the caller's: everything read and written is inside x, the panels and the sums.
    unsafe {
        if go_on {
            for r in 0..R {
                for p in 0..P {
                    sums[r][p] = f.load(to.add((r * P + p) * lanes));
                }
            }
        }
        for _ in 0..groups / W::GROUPS {
            let head = w;
            w = w.add(W::head_bytes(lanes));
            for _ in 0..W::GROUPS {
                if W::FROM_MEMORY {
                    let ahead = if P == 1 { AHEAD } else { P * panel };
                    for p in 0..P {
                        for line in 0..W::group_bytes::<S>().div_ceil(64) {
                            f.prefetch(w.wrapping_add(p * panel + ahead + line * 64));
                        }
                    }
                }
                let products = s.group::<W, R, P>(x, w, panel);
                for p in 0..P {
                    let (head, group) = (head.add(p * panel), w.add(p * panel));
                    let factor = W::factor(s, head, group);
                    let minimum = if has_minimum(W::SCHEME) { W::minimum(s, head, group) } else { factor };
                    for r in 0..R {
                        let scales = x.scales.add(r * 2);
                        let scale = f.mul(factor, f.splat(*scales));
                        sums[r][p] = f.fma(s.to_f32(products[r][p]), scale, sums[r][p]);
                        if has_minimum(W::SCHEME) {
                            sums[r][p] = f.fma(minimum, f.splat(*scales.add(1)), sums[r][p]);
                        }
                    }
                }
                x = x.next_group();
                w = w.add(W::group_bytes::<S>());
            }
        }
        for r in 0..R {
            for p in 0..P {
                f.store(to.add((r * P + p) * lanes), sums[r][p]);
            }
        }
    }
}
