//! How are the products of a group added with AMX? Where there are many rows, by tiles of 8-bit integers: sixteen rows by the
//! sixteen output features of a panel, whose exact sums over a group go through memory to the vector units, which scale them.
//! The same chain of float32 sums as by [VNNI](super::vnni), which has few rows to do, and so the same bits.

use std::arch::asm;
use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::ops::Range;

use super::Job;
use super::lanes::{AsStored, Form, Lanes, Source, finish_row, has_minimum, with_form};
use super::vnni::{self, Vnni, split};
use crate::amx::{Shape, configure, release};
use crate::avx512::Avx512;
use crate::blocks::{GROUP, ROWS};
use crate::interleaved::Parameters;
use crate::matmul::Finish;
use crate::simd::Simd;
use crate::{AttendScratch, Epilogue, Interleaved, QuantizedRows, Window};

/// Lanes: output features of a panel.
const LANES: usize = 16;
/// Panels that are unpacked together, so that rows of x come from far once for both.
const PANELS: usize = 2;
/// Groups that are unpacked at once: two panels of so many, and a tile's rows, stay in the first-level cache.
const DEPTH: usize = 16;
/// Rows that meet a panel while it is unpacked: their codes stay in the second-level cache.
const BLOCK: usize = 512;
/// Tiles that are multiplied before the sums of the first are read: as many as hide the way through memory.
const AHEAD: usize = 4;
/// Numbers of a tile of sums.
const SUMS: usize = ROWS * LANES;

/// As [`Kernels::dot_interleaved`](crate::Kernels::dot_interleaved).
#[target_feature(enable = "avx512vnni,avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
pub(crate) fn dot_interleaved(
    x: &QuantizedRows,
    w: &Interleaved,
    panels: Range<usize>,
    y: Window<'_>,
    epilogue: &Epilogue<'_>,
    scratch: &mut AttendScratch,
) {
    if x.rows() < ROWS {
        return vnni::dot_interleaved(x, w, panels, y, epilogue, scratch);
    }
    // SAFETY: the features that make this function are those of AVX-512 and VNNI.
    let s = Vnni(unsafe { Avx512::new() });
    with_form!(w.format(), F => run::<F>(s, Job { x, w, panels, y, epilogue, scratch }));
}

#[inline(always)]
fn run<F: Form>(s: Vnni, job: Job<'_>) {
    let Job { x, w, panels, mut y, epilogue, scratch } = job;
    let (f, rows) = (s.simd(), x.rows());
    assert!(w.panel_width() == LANES && x.cols() == w.ins() && panels.end <= w.panels() && y.rows() == rows);
    let first = w.columns(panels.clone()).start;
    let groups = w.ins() / GROUP;
    let depth = groups.div_ceil(groups.div_ceil(DEPTH).max(1)).next_multiple_of(F::SCHEME.groups());
    let panel_numbers = depth * Unpacked::<F>::NUMBERS;
    let waiting = AHEAD * Unpacked::<F>::PARTS * SUMS;
    let sums = PANELS * BLOCK.min(rows.next_multiple_of(ROWS)) * LANES;
    let scratch = scratch.take(PANELS * panel_numbers + waiting + sums + LANES);
    let (_, scratch) = scratch.split_at_mut(scratch.as_ptr().align_offset(64).min(LANES));
    let (unpacked, scratch) = scratch.split_at_mut(PANELS * panel_numbers);
    let (waiting, sums) = scratch.split_at_mut(waiting);
    // SAFETY: this table is handed out where the machine has tiles.
    unsafe { configure(&Unpacked::<F>::shapes()) };
    for top in (0..rows).step_by(BLOCK) {
        let bottom = rows.min(top + BLOCK);
        for panel in panels.clone().step_by(PANELS) {
            let count = PANELS.min(panels.end - panel);
            for start in (0..groups).step_by(depth.max(1)) {
                let depth = depth.min(groups - start);
                for (i, to) in unpacked.chunks_exact_mut(panel_numbers).take(count).enumerate() {
                    unpack::<F>(s, w.slice(panel + i..panel + i + 1), start, &mut to[..depth * Unpacked::<F>::NUMBERS]);
                }
                let w = &unpacked[..count * panel_numbers];
                let task = Task { x, rows: top..bottom, groups: start..start + depth, w, count, waiting, sums };
                // SAFETY: the tiles are configured.
                unsafe { multiply::<F>(f, task) };
            }
            for (tile, sums) in sums.chunks_exact(SUMS).take((bottom - top).div_ceil(ROWS) * count).enumerate() {
                let at = (panel - panels.start + tile % count) * LANES;
                let bias = epilogue.bias.map(|bias| &bias[first + at..]);
                // Rows behind the last are nobody's.
                for (row, sums) in (top + tile / count * ROWS..bottom).zip(sums.chunks_exact(LANES)) {
                    finish_row(f, &mut y.row_mut(row)[at..], sums, bias);
                }
            }
        }
    }
    // SAFETY: as above.
    unsafe { release() };
    if epilogue.activation.is_some() || epilogue.residual.is_some() {
        Finish { y, residual: epilogue.residual }.run(f, epilogue.activation);
    }
}

/// An unpacked group: eight vectors of signed codes, the factors, then minima or the scales of the first and of the second half.
struct Unpacked<F>(PhantomData<F>);

impl<F: Form> Unpacked<F> {
    /// Codes of a feature that share a scale are multiplied by one tile.
    const PARTS: usize = if matches!(F::SCHEME.parameters, Parameters::Halves) { 2 } else { 1 };
    const MINIMUM: bool = has_minimum(F::SCHEME);
    /// Of 32 bits.
    const NUMBERS: usize = (if Self::PARTS == 2 || Self::MINIMUM { 8 + 1 + Self::PARTS } else { 8 + 1 }) * LANES;

    /// Sums, rows of x and weights in the registers 0, 1 and 2, and again in 3, 4 and 5.
    fn shapes() -> [Shape; 8] {
        let codes = (GROUP / Self::PARTS) as u8;
        let [sums, x, w] = [(ROWS as u8, 64), (ROWS as u8, codes), (codes / 4, 64)];
        [sums, x, w, sums, x, w, (0, 0), (0, 0)].map(|(rows, bytes)| Shape { rows, bytes })
    }
}

/// Unpacks some groups of a panel, from `start` on, which is a block's first.
#[inline(always)]
fn unpack<F: Form>(s: Vnni, panel: &[u8], start: usize, to: &mut [f32]) {
    let (f, scheme) = (s.simd(), F::SCHEME);
    let blocks = panel.chunks_exact(scheme.block_bytes(LANES)).skip(start / scheme.groups());
    let to = to.chunks_exact_mut(scheme.groups() * Unpacked::<F>::NUMBERS);
    // SAFETY: `s` proves the instructions.
    let offset = unsafe { _mm512_set1_epi8(scheme.offset as i8) };
    for (block, to) in blocks.zip(to) {
        let (head, groups) = block.split_at(scheme.head_bytes(LANES));
        let groups = groups.chunks_exact(scheme.group_bytes(LANES));
        for (group, to) in groups.zip(to.chunks_exact_mut(Unpacked::<F>::NUMBERS)) {
            let (head, group, to) = (head.as_ptr(), group.as_ptr(), to.as_mut_ptr());
            // SAFETY: a head and a group of the scheme, and a vector to write for each of its parts.
            unsafe {
                macro_rules! codes {
                    ($($j:literal)*) => {$(
                        let codes = AsStored::<F>::codes::<Vnni, $j>(s, group);
                        s.store(to.add($j * LANES).cast(), _mm512_sub_epi8(codes, offset));
                    )*};
                }
                codes!(0 1 2 3 4 5 6 7);
                let to = to.add(8 * LANES);
                f.store(to, AsStored::<F>::factor(s, head, group));
                if Unpacked::<F>::PARTS == 2 {
                    for (i, scales) in split(AsStored::<F>::halves(s, group)).into_iter().enumerate() {
                        f.store(to.add((1 + i) * LANES), s.to_f32(scales));
                    }
                } else if Unpacked::<F>::MINIMUM {
                    f.store(to.add(LANES), AsStored::<F>::minimum(s, head, group));
                }
            }
        }
    }
}

/// Some rows of x by some unpacked panels over some groups.
struct Task<'a> {
    x: &'a QuantizedRows,
    rows: Range<usize>,
    groups: Range<usize>,
    /// `count` panels of as many groups or more.
    w: &'a [f32],
    count: usize,
    /// [`AHEAD`] times the integers of a group.
    waiting: &'a mut [f32],
    /// `[tile of rows][panel][16][16]`: go on from there, unless the groups are the first.
    sums: &'a mut [f32],
}

/// Adds the task's products to its sums. The matrix units run [`AHEAD`] groups before the vector units, also from one tile to the
/// next.
///
/// # Safety
/// The tile registers are configured for `F`.
#[inline(always)]
unsafe fn multiply<F: Form>(f: Avx512, task: Task<'_>) {
    let Task { x, rows, groups, w, count, waiting, sums } = task;
    let (parts, depth) = (Unpacked::<F>::PARTS, groups.len());
    let tiles = rows.len().div_ceil(ROWS);
    assert!(depth > 0 && groups.end * GROUP <= x.cols() && rows.end <= x.rows() && x.height() == ROWS);
    assert!(w.len() >= count * depth * Unpacked::<F>::NUMBERS && sums.len() >= tiles * count * SUMS);
    assert!(waiting.len() == AHEAD * parts * SUMS);
    let steps = tiles * count * depth;
    let at = |tile: usize| {
        let w = w[tile % count * (w.len() / count)..].as_ptr();
        Place { tile, group: 0, x: x.place(rows.start + tile / count * ROWS, groups.start), w }
    };
    let next = |place: Place| match place.group + 1 == depth {
        true if place.tile + 1 < tiles * count => at(place.tile + 1),
        // What is behind the last is not looked at.
        _ => Place {
            group: place.group + 1,
            x: place.x + ROWS,
            w: place.w.wrapping_add(Unpacked::<F>::NUMBERS),
            ..place
        },
    };
    let (mut ahead, mut now) = (at(0), at(0));
    let mut totals = [f.splat(0.0); ROWS];
    for step in 0..steps + AHEAD {
        let waiting = waiting[step % AHEAD * parts * SUMS..][..parts * SUMS].as_mut_ptr();
        // SAFETY: x has the rows, in whole tiles, and the groups; the panels have the groups; there is room for all sums.
        unsafe {
            if step >= AHEAD {
                let sums = sums.as_mut_ptr().add(now.tile * SUMS);
                if now.group == 0 {
                    for (row, total) in totals.iter_mut().enumerate() {
                        *total = if groups.start == 0 { f.splat(0.0) } else { f.load(sums.add(row * LANES)) };
                    }
                }
                let parameters = now.w.add(8 * LANES);
                let (factor, second) = (f.load(parameters), parameters.add(LANES));
                let scales = x.scales.as_ptr().add(now.x * 2);
                for (row, total) in totals.iter_mut().enumerate() {
                    let integers = |part: usize| {
                        let at = waiting.add(part * SUMS + row * LANES);
                        _mm512_cvtepi32_ps(_mm512_load_si512(at.cast()))
                    };
                    let product = if parts == 2 {
                        // Exactly: both are below 2²³.
                        let first = f.mul(integers(0), f.load(second));
                        f.fma(integers(1), f.load(second.add(LANES)), first)
                    } else {
                        integers(0)
                    };
                    let scales = scales.add(row * 2);
                    *total = f.fma(product, f.mul(factor, f.splat(*scales)), *total);
                    if Unpacked::<F>::MINIMUM {
                        *total = f.fma(f.load(second), f.splat(*scales.add(1)), *total);
                    }
                }
                if now.group + 1 == depth {
                    for (row, total) in totals.iter().enumerate() {
                        f.store(sums.add(row * LANES), *total);
                    }
                }
                now = next(now);
            }
            if step < steps {
                let (a, b) = (x.codes.as_ptr().add(ahead.x * GROUP), ahead.w.cast::<i8>());
                if parts == 2 {
                    even(a, b, waiting);
                    odd(a.add(GROUP / 2), b.add(4 * 4 * LANES), waiting.add(SUMS));
                } else if step % 2 == 0 {
                    even(a, b, waiting);
                } else {
                    odd(a, b, waiting);
                }
                ahead = next(ahead);
            }
        }
    }
}

/// A group of a tile: the tile's number, that of the group, where it is in x in groups, and its weights.
#[derive(Clone, Copy)]
struct Place {
    tile: usize,
    group: usize,
    x: usize,
    w: *const f32,
}

/// `c = a · b` of the sixteen rows of a tile by a panel, in its own three registers.
macro_rules! product {
    ($name:ident: $c:tt $a:tt $b:tt) => {
        /// # Safety
        /// The registers are configured, and memory is as their shapes say.
        #[inline(always)]
        unsafe fn $name(a: *const i8, b: *const i8, c: *mut f32) {
            // SAFETY: the caller's.
            unsafe {
                asm!(
                    concat!("tilezero ", $c),
                    concat!("tileloadd ", $a, ", [{a} + {stride}*1]"),
                    concat!("tileloadd ", $b, ", [{b} + {line}*1]"),
                    concat!("tdpbssd ", $c, ", ", $a, ", ", $b),
                    concat!("tilestored [{c} + {line}*1], ", $c),
                    a = in(reg) a, b = in(reg) b, c = in(reg) c, stride = in(reg) GROUP, line = in(reg) 64usize,
                    out($c) _, out($a) _, out($b) _,
                    options(nostack),
                );
            }
        }
    };
}
product!(even: "tmm0" "tmm1" "tmm2");
product!(odd: "tmm3" "tmm4" "tmm5");
