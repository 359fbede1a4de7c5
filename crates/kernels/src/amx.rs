//! How do the tiles of AMX compute a product of bf16 pieces? Two tiles of rows by two of output features, their four sums in
//! tile registers over a depth of inputs. A depth of a panel of weights stays in the L1 while the rows walk past it, and one of
//! the rows in the L2 while panels do; between depths the sums wait in memory.

use std::arch::asm;
use std::arch::x86_64::*;
use std::ops::Range;
use std::sync::OnceLock;

use crate::activations::{Identity, Unary, activations};
use crate::avx512::Avx512;
use crate::simd::Simd;
use crate::tiles::{DEPTH, PAIR, PANEL, ROWS, Sums, TILE, TileScratch, TileWeights, TiledRows, step_of};
use crate::{Epilogue, Rows, Window};

/// Blocks of sums that wait in memory together: what leaves room for the rows in the L2.
const SUMS: usize = 64;
/// Steps of the next product after which sums get their epilogue.
const LATER: usize = 2;

/// Does this machine have tiles of bf16 and of bytes and the vectors that go with them, and does its system let this process use
/// them? Asks once.
pub(crate) fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        const OSXSAVE: u32 = 1 << 27;
        const BF16_TILES_INT8: u32 = 1 << 22 | 1 << 24 | 1 << 25;
        const TILE_STATES: u32 = 1 << 17 | 1 << 18;
        __cpuid(0).eax >= 7
            && __cpuid_count(7, 0).edx & BF16_TILES_INT8 == BF16_TILES_INT8
            && __cpuid(1).ecx & OSXSAVE != 0
            && enabled_states() & TILE_STATES == TILE_STATES
            && is_x86_feature_detected!("avx512bf16")
            && is_x86_feature_detected!("avx512vnni")
            && permitted()
    })
}

/// The states that the system saves for its threads: the low half of XCR0.
fn enabled_states() -> u32 {
    let low;
    // SAFETY: the caller saw OSXSAVE, so the instruction exists; it reads a register.
    unsafe { asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _, options(nomem, nostack, preserves_flags)) };
    low
}

/// Asks Linux for the tiles' state, for all threads of the process (Documentation/arch/x86/xstate.rst).
#[cfg(target_os = "linux")]
fn permitted() -> bool {
    const ARCH_PRCTL: u64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    let mut result = ARCH_PRCTL;
    // SAFETY: the call takes no memory; a kernel that does not know it says so.
    unsafe {
        asm!("syscall", inout("rax") result, in("rdi") ARCH_REQ_XCOMP_PERM, in("rsi") TILE_DATA,
            out("rcx") _, out("r11") _, options(nostack));
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn permitted() -> bool {
    false
}

/// The shapes of the tile registers (Intel SDM, volume 1, 18.2).
#[repr(C, align(64))]
struct Config([u8; 64]);

/// That of one: up to 16 rows of up to 64 bytes, or nothing.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) rows: u8,
    pub(crate) bytes: u8,
}

impl Shape {
    /// The largest.
    pub(crate) const FULL: Shape = Shape { rows: 16, bytes: 64 };
}

/// As [`Kernels::matmul_tiles`](crate::Kernels::matmul_tiles), which checks the shapes.
///
/// # Safety
/// [`available`], and the machine has AVX-512 F, BW, VL and DQ.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma,f16c")]
pub(crate) unsafe fn matmul(
    x: &TiledRows,
    blocks: Range<usize>,
    w: TileWeights<'_>,
    panels: Range<usize>,
    y: Window<'_>,
    epilogue: &Epilogue<'_>,
    scratch: &mut TileScratch,
) {
    // SAFETY: the features that make this function are those that `new` asks for.
    let s = unsafe { Avx512::new() };
    // SAFETY: as the caller promises.
    unsafe { configure(&[Shape::FULL; 8]) };
    // SAFETY: tiles are configured, and this function has the features.
    unsafe {
        match epilogue.activation {
            None => multiply(s, Identity, x, blocks, w, panels, y, epilogue, scratch),
            Some(kind) => {
                activations!(kind, function => multiply(s, function, x, blocks, w, panels, y, epilogue, scratch));
            }
        }
    }
    // SAFETY: as the caller promises.
    unsafe { release() };
}

/// The product with its epilogue, whose `function` is the activation.
///
/// Matrix units and vector units work at the same time: while one pair of rows meets a panel, the sums of the pair before get
/// their epilogue.
///
/// # Safety
/// Tiles are configured, and the machine has what [`matmul`] is made of.
#[expect(clippy::too_many_arguments, reason = "a product is of what these say")]
#[inline(always)]
unsafe fn multiply(
    s: Avx512,
    function: impl Unary,
    x: &TiledRows,
    blocks: Range<usize>,
    w: TileWeights<'_>,
    panels: Range<usize>,
    mut y: Window<'_>,
    epilogue: &Epilogue<'_>,
    scratch: &mut TileScratch,
) {
    let (first_row, first_out) = (x.rows_of(blocks.clone()).start, w.columns(panels.clone()).start);
    let pairs: Vec<_> = blocks.flat_map(|block| x.pairs(block).map(move |(pair, rows)| (block, pair, rows))).collect();
    let products = [false, true].map(|tall| Product::new(tall, x.pieces(), w.pieces()));
    let depths = x.depths();
    // Sums need not wait where there is one depth.
    let one_depth = depths.len() == 1;
    let abreast = if one_depth { 1 } else { (SUMS / pairs.len().max(1)).max(1) };
    let blocks_of_sums = if one_depth { 1 } else { abreast.min(panels.len()) * pairs.len() };
    let (sums, unpacked) = scratch.take(blocks_of_sums, w.unpacked(x));
    // Where tiles go to and what waits may be the same block, one after the other.
    let sums = sums.as_mut_ptr();
    let mut waiting: Option<Waiting> = None;
    for some in panels.clone().step_by(abreast).map(|panel| panel..panels.end.min(panel + abreast)) {
        for steps in depths.clone() {
            for (i, panel) in some.clone().enumerate() {
                let weights = match w {
                    TileWeights::Tiled(w) => w.steps_of(panel, steps.clone()),
                    TileWeights::Blocks(w) => {
                        // SAFETY: the features are the caller's.
                        unsafe { crate::unpack::panel(&w, panel, steps.clone(), unpacked) };
                        &*unpacked
                    }
                };
                let outs = w.columns(panel..panel + 1);
                for (j, (block, pair, rows)) in pairs.iter().cloned().enumerate() {
                    let at = if one_depth { 0 } else { i * pairs.len() + j };
                    let task = Task {
                        a: x.steps_of(block, pair, steps.clone()).as_ptr(),
                        b: weights.as_ptr(),
                        c: sums.wrapping_add(at).cast(),
                        steps: steps.len(),
                        begin: steps.start == 0,
                        // The next panel, a part by each pair of rows.
                        next: weights.as_ptr().wrapping_add(weights.len() + pair * steps.len() * AHEAD / 2),
                    };
                    let product = products[usize::from(rows.len() > ROWS)];
                    let done = waiting.take();
                    // Not at once: sums take their time from tiles to memory.
                    let first = if steps.len() > 2 * LATER { LATER } else { 0 };
                    let share = done.as_ref().map_or(0, |done| done.rows.len().div_ceil(steps.len() - first));
                    // SAFETY: the tiles are configured, and the pair and the panel have their tiles of so many steps. There are
                    // that many blocks of sums; the one that waits is written again only after the last step.
                    unsafe {
                        product.run(task, |step| {
                            if let Some(done) = &done
                                && step >= first
                            {
                                let row = (step - first) * share;
                                finish(s, function, done, &*done.sums, row..row + share, epilogue, &mut y);
                            }
                        });
                    }
                    if steps.end == x.steps() {
                        let rows = rows.start - first_row..rows.end - first_row;
                        let cols = outs.start - first_out..outs.end - first_out;
                        ask_for(y.tile(rows.clone(), cols.clone()));
                        waiting = Some(Waiting { sums: sums.wrapping_add(at), rows, cols, outs: outs.clone() });
                    }
                }
            }
        }
    }
    if let Some(done) = &waiting {
        // SAFETY: a block of sums that nobody writes any more.
        let sums = unsafe { &*done.sums };
        finish(s, function, done, sums, 0..done.rows.len(), epilogue, &mut y);
    }
}

/// Sums that are whole but for the epilogue.
struct Waiting {
    /// One of the blocks of sums that the call works in.
    sums: *const Sums,
    /// The rows and columns of the result.
    rows: Range<usize>,
    cols: Range<usize>,
    /// The output features.
    outs: Range<usize>,
}

/// Asks for memory that will be written.
#[inline(always)]
fn ask_for(mut y: Window<'_>) {
    for row in 0..y.rows() {
        let row = y.row_mut(row).as_ptr();
        // SAFETY: a prefetch reads nothing that the program could see, and never faults.
        unsafe {
            _mm_prefetch::<_MM_HINT_ET0>(row.cast());
            _mm_prefetch::<_MM_HINT_ET0>(row.wrapping_add(PANEL - 1).cast());
        }
    }
}

/// `y = residual + function(sums + bias)` for some of the rows that wait, as far as there are so many.
#[inline(always)]
fn finish(
    s: Avx512,
    function: impl Unary,
    done: &Waiting,
    sums: &Sums,
    rows: Range<usize>,
    epilogue: &Epilogue<'_>,
    y: &mut Window<'_>,
) {
    let rows = rows.start.min(done.rows.len())..rows.end.min(done.rows.len());
    let sums = sums.0[rows.start * PANEL..rows.end * PANEL].chunks_exact(PANEL);
    let cols = done.cols.clone();
    let rows = done.rows.start + rows.start..done.rows.start + rows.end;
    let residual = epilogue.residual.map(|residual| residual.slice_rows(rows.clone()).slice_cols(cols.clone()));
    let bias = epilogue.bias.map(|bias| &bias[done.outs.clone()]);
    let mut y = y.tile(rows, cols);
    if y.cols() == PANEL {
        let bias = bias.map_or([s.splat(0.0); 2], |bias| two(s, bias));
        for (row, sums) in sums.enumerate() {
            let [a, b] = two(s, sums);
            let mut v = [function.apply(s, s.add(a, bias[0])), function.apply(s, s.add(b, bias[1]))];
            if let Some(residual) = residual {
                let [a, b] = two(s, residual.row(row));
                v = [s.add(v[0], a), s.add(v[1], b)];
            }
            let y: &mut [f32; PANEL] = y.row_mut(row).try_into().expect("rows of a panel");
            // SAFETY: `y` has 32 numbers.
            unsafe {
                s.store(y.as_mut_ptr(), v[0]);
                s.store(y.as_mut_ptr().add(Avx512::LANES), v[1]);
            }
        }
        return;
    }
    for (row, sums) in sums.enumerate() {
        let y = y.row_mut(row);
        for at in (0..y.len()).step_by(Avx512::LANES) {
            let n = (y.len() - at).min(Avx512::LANES);
            let bias = bias.map_or(s.splat(0.0), |bias| s.load_part(&bias[at..], n));
            let v = function.apply(s, s.add(s.load_part(&sums[at..], n), bias));
            let v = residual.map_or(v, |residual| s.add(v, s.load_part(&residual.row(row)[at..], n)));
            s.store_part(&mut y[at..], n, v);
        }
    }
}

/// 32 numbers.
#[inline(always)]
fn two(s: Avx512, x: &[f32]) -> [__m512; 2] {
    let x: &[f32; PANEL] = x.try_into().expect("as many as a panel is wide");
    // SAFETY: there are 32 numbers.
    unsafe { [s.load(x.as_ptr()), s.load(x.as_ptr().add(Avx512::LANES))] }
}

/// Gives this thread its tile registers.
///
/// # Safety
/// The machine has tiles of these shapes.
pub(crate) unsafe fn configure(shapes: &[Shape; 8]) {
    let mut config = Config([0; 64]);
    config.0[0] = 1;
    for (tile, shape) in shapes.iter().enumerate() {
        config.0[16 + 2 * tile] = shape.bytes;
        config.0[48 + tile] = shape.rows;
    }
    // SAFETY: the machine has tiles and the configuration is a valid one.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly)) };
}

/// Takes them away, so that the system need not save them.
///
/// # Safety
/// The machine has tiles.
pub(crate) unsafe fn release() {
    // SAFETY: the machine has tiles.
    unsafe { asm!("tilerelease", options(nostack, nomem)) };
}

/// Up to [`PAIR`] rows as tiles `[step][half of the 32 rows][piece][16][32]`, padded with zeros.
///
/// # Safety
/// The machine has AVX-512 F, BW and BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(crate) unsafe fn split(x: Rows<'_>, steps: Range<usize>, pieces: usize, to: &mut [u16]) {
    for (step, tiles) in steps.zip(to.chunks_exact_mut(2 * pieces * TILE)) {
        for row in 0..PAIR {
            let mut padded = [0f32; DEPTH];
            let numbers = step_of(x, row, step, &mut padded);
            let tile = &mut tiles[row / ROWS * pieces * TILE + row % ROWS * DEPTH..];
            // SAFETY: both halves of `numbers` are 16 numbers; so for what is written, which is 64 bytes.
            unsafe {
                let (a, b) = (_mm512_loadu_ps(numbers.as_ptr()), _mm512_loadu_ps(numbers.as_ptr().add(16)));
                let hi = round(a, b);
                _mm512_storeu_si512(tile[..DEPTH].as_mut_ptr().cast(), hi);
                if pieces == 2 {
                    _mm512_storeu_si512(tile[TILE..][..DEPTH].as_mut_ptr().cast(), rest(a, b, hi));
                }
            }
        }
    }
}

/// 32 numbers as bf16.
#[target_feature(enable = "avx512f,avx512bf16")]
#[inline]
pub(crate) fn round(a: __m512, b: __m512) -> __m512i {
    // SAFETY: both types are 64 bytes of plain numbers.
    unsafe { std::mem::transmute(_mm512_cvtne2ps_pbh(b, a)) }
}

/// What 32 numbers are above their first pieces, rounded to pieces.
#[target_feature(enable = "avx512f,avx512bf16")]
#[inline]
pub(crate) fn rest(a: __m512, b: __m512, hi: __m512i) -> __m512i {
    let a = _mm512_sub_ps(a, widen(_mm512_castsi512_si256(hi)));
    round(a, _mm512_sub_ps(b, widen(_mm512_extracti64x4_epi64::<1>(hi))))
}

/// 16 numbers that were bf16.
#[target_feature(enable = "avx512f")]
#[inline]
fn widen(numbers: __m256i) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(numbers)))
}

/// Bytes of the next panel that a step asks for.
const AHEAD: usize = 512;

/// `c = [c +] a · b` over some steps.
pub(crate) struct Task {
    /// A pair's tiles `[step][half of the 32 rows][piece]`.
    pub(crate) a: *const u16,
    /// A panel's tiles `[step][piece][half of the 32 output features]`.
    pub(crate) b: *const u16,
    /// [`Sums`].
    pub(crate) c: *mut f32,
    /// At least 1.
    pub(crate) steps: usize,
    /// From zero on, not from what is in `c`.
    pub(crate) begin: bool,
    /// What will be read soon; it need not be memory.
    pub(crate) next: *const u16,
}

/// A product of a pair of rows by a panel, in the registers that [`configure`] gives: nothing else here touches them, so that sums stay
/// there from step to step.
#[derive(Clone, Copy)]
pub(crate) struct Product {
    load: unsafe fn(*const f32),
    /// Multiplies a step of rows by one of weights; the last is what will be read soon.
    step: unsafe fn(*const u16, *const u16, *const u16),
    store: unsafe fn(*mut f32),
    /// Numbers in a step of rows and in one of weights.
    rows: usize,
    weights: usize,
}

impl Product {
    /// For up to 16 rows, or for up to 32 where they are `tall`, of so many pieces.
    pub(crate) fn new(tall: bool, rows: usize, weights: usize) -> Product {
        let step = match (tall, rows, weights) {
            (false, 2, 2) => by_16_of_2_and_2,
            (false, 2, 1) => by_16_of_2_and_1,
            (false, 1, 1) => by_16_of_1_and_1,
            (true, 2, 2) => by_32_of_2_and_2,
            (true, 2, 1) => by_32_of_2_and_1,
            (true, 1, 1) => by_32_of_1_and_1,
            _ => unreachable!("{rows} pieces of rows by {weights} of weights"),
        };
        let (load, store) =
            if tall { (load_32 as unsafe fn(_), store_32 as unsafe fn(_)) } else { (load_16 as _, store_16 as _) };
        Product { load, step, store, rows: 2 * rows * TILE, weights: 2 * weights * TILE }
    }

    /// Computes the product; behind each step, while matrix units work on it, comes `meanwhile`.
    ///
    /// # Safety
    /// The tiles are configured, and the task's memory is as it says.
    #[inline(always)]
    pub(crate) unsafe fn run(self, task: Task, mut meanwhile: impl FnMut(usize)) {
        // SAFETY: the caller's.
        unsafe {
            match task.begin {
                true => zero(),
                false => (self.load)(task.c),
            }
            for step in 0..task.steps {
                let (a, b) = (task.a.add(step * self.rows), task.b.add(step * self.weights));
                (self.step)(a, b, task.next.wrapping_byte_add(step * AHEAD));
                meanwhile(step);
            }
            (self.store)(task.c);
        }
    }
}

/// An unsafe function of one piece of assembly on tiles.
macro_rules! tiles {
    ($name:ident($($arg:ident: $type:ty),*), $code:expr $(, $register:ident = $value:expr)*) => {
        /// # Safety
        /// The tiles are configured, and memory is as [`Task`] says.
        unsafe fn $name($($arg: $type),*) {
            // SAFETY: the caller's.
            unsafe {
                asm!(
                    $code,
                    $($arg = in(reg) $arg,)*
                    $($register = in(reg) $value,)*
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }
    };
}

tiles!(zero(), "tilezero tmm0\ntilezero tmm1\ntilezero tmm2\ntilezero tmm3");
tiles!(load_16(c: *const f32), "tileloadd tmm0, [{c} + {t}*1]\ntileloadd tmm1, [{c} + {t}*1 + 64]", t = 4 * PANEL);
tiles!(store_16(c: *mut f32), "tilestored [{c} + {t}*1], tmm0\ntilestored [{c} + {t}*1 + 64], tmm1", t = 4 * PANEL);
tiles!(
    load_32(c: *const f32),
    "tileloadd tmm0, [{c} + {t}*1]
    tileloadd tmm1, [{c} + {t}*1 + 64]
    tileloadd tmm2, [{c} + {t}*1 + 2048]
    tileloadd tmm3, [{c} + {t}*1 + 2112]",
    t = 4 * PANEL
);
tiles!(
    store_32(c: *mut f32),
    "tilestored [{c} + {t}*1], tmm0
    tilestored [{c} + {t}*1 + 64], tmm1
    tilestored [{c} + {t}*1 + 2048], tmm2
    tilestored [{c} + {t}*1 + 2112], tmm3",
    t = 4 * PANEL
);

/// Asks for 1 KiB from `$from` on.
macro_rules! prefetch {
    ($from:literal) => {
        concat!(
            ".irp line, 0, 64, 128, 192, 256, 320, 384, 448, 512, 576, 640, 704, 768, 832, 896, 960\n",
            "prefetcht0 [",
            $from,
            " + \\line]\n",
            ".endr"
        )
    };
}

/// A step for 32 rows, which asks for the next panel. Rows and second pieces of weights are read by `tileloaddt1`, whose hint keeps
/// them from pushing a panel's first pieces out of the L1.
macro_rules! by_32 {
    ($name:ident, [$($step:expr),*]) => {
        tiles!(
            $name(a: *const u16, b: *const u16, next: *const u16),
            concat!(
                $($step, "\n",)*
                ".irp line, 0, 64, 128, 192, 256, 320, 384, 448\nprefetcht1 [{next} + \\line]\n.endr"
            ),
            s = 64usize
        );
    };
}

/// A step for up to 16 rows: too few to hide that weights come from far, so that these are asked for two steps ahead.
macro_rules! by_16 {
    ($name:ident, [$($step:expr),*]) => {
        tiles!(
            $name(a: *const u16, b: *const u16, next: *const u16),
            concat!($($step, "\n",)* "# {next}"),
            s = 64usize
        );
    };
}

/// The pair's rows in tmm4 and tmm5, by the panel's columns in tmm6 and tmm7.
macro_rules! multiply {
    (4 by 6) => {
        "tdpbf16ps tmm0, tmm4, tmm6"
    };
    (4 by 7) => {
        "tdpbf16ps tmm1, tmm4, tmm7"
    };
    (5 by 6) => {
        "tdpbf16ps tmm2, tmm5, tmm6"
    };
    (5 by 7) => {
        "tdpbf16ps tmm3, tmm5, tmm7"
    };
    (4) => {
        "tdpbf16ps tmm0, tmm4, tmm6\ntdpbf16ps tmm1, tmm4, tmm7"
    };
    (5) => {
        "tdpbf16ps tmm2, tmm5, tmm6\ntdpbf16ps tmm3, tmm5, tmm7"
    };
}

// mid · hi, hi · hi, hi · mid: the order is the same for 16 rows, so that a row's bits are.
by_32! {
    by_32_of_2_and_2,
    [
        "tileloaddt1 tmm4, [{a} + {s}*1 + 1024]",
        "tileloadd tmm6, [{b} + {s}*1]",
        multiply!(4 by 6),
        "tileloadd tmm7, [{b} + {s}*1 + 1024]",
        multiply!(4 by 7),
        "tileloaddt1 tmm5, [{a} + {s}*1 + 3072]",
        multiply!(5),
        "tileloaddt1 tmm4, [{a} + {s}*1]",
        multiply!(4),
        "tileloaddt1 tmm5, [{a} + {s}*1 + 2048]",
        multiply!(5),
        "tileloaddt1 tmm6, [{b} + {s}*1 + 2048]",
        multiply!(4 by 6),
        "tileloaddt1 tmm7, [{b} + {s}*1 + 3072]",
        multiply!(4 by 7),
        multiply!(5)
    ]
}

by_32! {
    by_32_of_2_and_1,
    [
        "tileloaddt1 tmm4, [{a} + {s}*1 + 1024]",
        "tileloadd tmm6, [{b} + {s}*1]",
        multiply!(4 by 6),
        "tileloadd tmm7, [{b} + {s}*1 + 1024]",
        multiply!(4 by 7),
        "tileloaddt1 tmm5, [{a} + {s}*1 + 3072]",
        multiply!(5),
        "tileloaddt1 tmm4, [{a} + {s}*1]",
        multiply!(4),
        "tileloaddt1 tmm5, [{a} + {s}*1 + 2048]",
        multiply!(5),
        prefetch!("{a} + 7168")
    ]
}

by_32! {
    by_32_of_1_and_1,
    [
        "tileloaddt1 tmm4, [{a} + {s}*1]",
        "tileloadd tmm6, [{b} + {s}*1]",
        multiply!(4 by 6),
        "tileloadd tmm7, [{b} + {s}*1 + 1024]",
        multiply!(4 by 7),
        "tileloaddt1 tmm5, [{a} + {s}*1 + 1024]",
        multiply!(5)
    ]
}

by_16! {
    by_16_of_2_and_2,
    [
        prefetch!("{b} + 8192"),
        prefetch!("{b} + 9216"),
        "tileloadd tmm6, [{b} + {s}*1]\ntileloadd tmm7, [{b} + {s}*1 + 1024]",
        "tileloadd tmm4, [{a} + {s}*1 + 1024]",
        multiply!(4),
        "tileloadd tmm4, [{a} + {s}*1]",
        multiply!(4),
        prefetch!("{b} + 10240"),
        prefetch!("{b} + 11264"),
        "tileloadd tmm6, [{b} + {s}*1 + 2048]\ntileloadd tmm7, [{b} + {s}*1 + 3072]",
        multiply!(4)
    ]
}

by_16! {
    by_16_of_2_and_1,
    [
        prefetch!("{b} + 8192"),
        prefetch!("{b} + 9216"),
        "tileloadd tmm6, [{b} + {s}*1]\ntileloadd tmm7, [{b} + {s}*1 + 1024]",
        "tileloadd tmm4, [{a} + {s}*1 + 1024]",
        multiply!(4),
        "tileloadd tmm4, [{a} + {s}*1]",
        multiply!(4)
    ]
}

by_16! {
    by_16_of_1_and_1,
    [
        prefetch!("{b} + 8192"),
        prefetch!("{b} + 9216"),
        "tileloadd tmm6, [{b} + {s}*1]\ntileloadd tmm7, [{b} + {s}*1 + 1024]",
        "tileloadd tmm4, [{a} + {s}*1]",
        multiply!(4)
    ]
}
