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
use crate::tiles::{DEPTH, PAIR, PANEL, ROWS, Sums, TILE, TileScratch, TileWeights, TiledRows};
use crate::{Epilogue, Rows, Window};

/// Blocks of sums that wait in memory together: what leaves room for the rows in the L2.
const SUMS: usize = 64;

/// Does this machine have tiles of bf16 and what rounds to it, and does its system let this process use them? Asks once.
pub(crate) fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        const OSXSAVE: u32 = 1 << 27;
        const BF16_AND_TILES: u32 = 1 << 22 | 1 << 24;
        const TILE_STATES: u32 = 1 << 17 | 1 << 18;
        __cpuid(0).eax >= 7
            && __cpuid_count(7, 0).edx & BF16_AND_TILES == BF16_AND_TILES
            && __cpuid(1).ecx & OSXSAVE != 0
            && enabled_states() & TILE_STATES == TILE_STATES
            && is_x86_feature_detected!("avx512bf16")
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

/// The shape of the tile registers: eight of 16 rows of 64 bytes (Intel SDM, volume 1, 18.2).
#[repr(C, align(64))]
struct Config([u8; 64]);

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
    mut y: Window<'_>,
    epilogue: &Epilogue<'_>,
    scratch: &mut TileScratch,
) {
    // SAFETY: the features that make this function are those that `new` asks for.
    let s = unsafe { Avx512::new() };
    let mut config = Config([0; 64]);
    config.0[0] = 1;
    for tile in 0..8 {
        config.0[16 + 2 * tile] = 64;
        config.0[48 + tile] = ROWS as u8;
    }
    // SAFETY: the machine has tiles and the configuration is a valid one.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly)) };
    let (first_row, first_out) = (x.rows_of(blocks.clone()).start, w.columns(panels.clone()).start);
    let pairs: Vec<_> = blocks.flat_map(|block| x.pairs(block).map(move |(pair, rows)| (block, pair, rows))).collect();
    let multiply = products(x.pieces(), w.pieces());
    let depths = x.depths();
    // Sums need not wait where there is one depth.
    let abreast = if depths.len() == 1 { 1 } else { (SUMS / pairs.len().max(1)).max(1) };
    for some in panels.clone().step_by(abreast).map(|panel| panel..panels.end.min(panel + abreast)) {
        let (sums, unpacked) = scratch.take(some.len() * pairs.len(), w.unpacked(x));
        for steps in depths.clone() {
            for (panel, sums) in some.clone().zip(sums.chunks_exact_mut(pairs.len().max(1))) {
                let weights = match w {
                    TileWeights::Tiled(w) => w.steps_of(panel, steps.clone()),
                    TileWeights::Blocks(w) => {
                        // SAFETY: this function has those features.
                        unsafe { crate::unpack::panel(&w, panel, steps.clone(), unpacked) };
                        &*unpacked
                    }
                };
                let outs = w.columns(panel..panel + 1);
                let cols = outs.start - first_out..outs.end - first_out;
                for ((block, pair, rows), sums) in pairs.iter().cloned().zip(sums) {
                    let (ends, rows_of_y) = (steps.end == x.steps(), rows.start - first_row..rows.end - first_row);
                    if ends {
                        ask_for(y.tile(rows_of_y.clone(), cols.clone()));
                    }
                    let task = Task {
                        a: x.steps_of(block, pair, steps.clone()).as_ptr(),
                        b: weights.as_ptr(),
                        c: sums.0.as_mut_ptr(),
                        steps: steps.len(),
                        begin: steps.start == 0,
                        // The next panel, a part by each pair of rows.
                        next: weights.as_ptr().wrapping_add(weights.len() + pair * steps.len() * AHEAD / 2),
                    };
                    // SAFETY: the tiles are configured, and the pair and the panel have their tiles of so many steps.
                    unsafe { multiply[usize::from(rows.len() > ROWS)](task) };
                    if ends {
                        let (rows, cols) = (rows_of_y, cols.clone());
                        let residual = epilogue.residual.map(|r| r.slice_rows(rows.clone()).slice_cols(cols.clone()));
                        let mut bias = [0f32; PANEL];
                        if let Some(all) = epilogue.bias {
                            bias[..outs.len()].copy_from_slice(&all[outs.clone()]);
                        }
                        let y = y.tile(rows, cols);
                        match epilogue.activation {
                            None => finish(s, Identity, sums, &bias, residual, y),
                            Some(kind) => {
                                activations!(kind, function => finish(s, function, sums, &bias, residual, y));
                            }
                        }
                    }
                }
            }
        }
    }
    // SAFETY: the machine has tiles.
    unsafe { asm!("tilerelease", options(nostack, nomem)) };
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

/// `y = residual + function(sums + bias)`.
#[inline(always)]
fn finish(
    s: Avx512,
    function: impl Unary,
    sums: &Sums,
    bias: &[f32; PANEL],
    residual: Option<Rows<'_>>,
    mut y: Window<'_>,
) {
    const HALF: usize = Avx512::LANES;
    let bias = [s.load_part(bias, HALF), s.load_part(&bias[HALF..], HALF)];
    for (row, sums) in (0..y.rows()).zip(sums.0.chunks_exact(PANEL)) {
        let (y, residual) = (y.row_mut(row), residual.map(|residual| residual.row(row)));
        for (half, bias) in bias.into_iter().enumerate() {
            let (at, n) = (half * HALF, y.len().saturating_sub(half * HALF).min(HALF));
            if n > 0 {
                let v = function.apply(s, s.add(s.load_part(&sums[at..], HALF), bias));
                let v = residual.map_or(v, |residual| s.add(v, s.load_part(&residual[at..], n)));
                s.store_part(&mut y[at..], n, v);
            }
        }
    }
}

/// Up to [`PAIR`] rows as tiles `[step][half of the 32 rows][piece][16][32]`, padded with zeros.
///
/// # Safety
/// The machine has AVX-512 F, BW and BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(crate) unsafe fn split(x: Rows<'_>, steps: Range<usize>, pieces: usize, to: &mut [u16]) {
    for (step, tiles) in steps.zip(to.chunks_exact_mut(2 * pieces * TILE)) {
        for row in 0..PAIR {
            let numbers = if row < x.rows() { x.row(row) } else { &[] };
            let numbers = numbers.get(step * DEPTH..).unwrap_or(&[]);
            let mut padded = [0f32; DEPTH];
            let numbers = numbers.first_chunk().unwrap_or_else(|| {
                padded[..numbers.len()].copy_from_slice(numbers);
                &padded
            });
            let tile = &mut tiles[row / ROWS * pieces * TILE + row % ROWS * DEPTH..];
            // SAFETY: both halves of `numbers` are 16 numbers; so for what is written, which is 64 bytes.
            unsafe {
                let (a, b) = (_mm512_loadu_ps(numbers.as_ptr()), _mm512_loadu_ps(numbers.as_ptr().add(16)));
                let hi = round(a, b);
                _mm512_storeu_si512(tile[..DEPTH].as_mut_ptr().cast(), hi);
                if pieces == 2 {
                    let a = _mm512_sub_ps(a, widen(_mm512_castsi512_si256(hi)));
                    let b = _mm512_sub_ps(b, widen(_mm512_extracti64x4_epi64::<1>(hi)));
                    _mm512_storeu_si512(tile[TILE..][..DEPTH].as_mut_ptr().cast(), round(a, b));
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

/// 16 numbers that were bf16.
#[target_feature(enable = "avx512f")]
#[inline]
fn widen(numbers: __m256i) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(numbers)))
}

/// Bytes of the next panel that a step asks for.
const AHEAD: usize = 512;

/// `c = [c +] a · b` over some steps.
struct Task {
    /// A pair's tiles `[step][half of the 32 rows][piece]`.
    a: *const u16,
    /// A panel's tiles `[step][piece][half of the 32 output features]`.
    b: *const u16,
    /// [`Sums`].
    c: *mut f32,
    /// At least 1.
    steps: usize,
    /// From zero on, not from what is in `c`.
    begin: bool,
    /// What will be read soon; it need not be memory.
    next: *const u16,
}

/// The functions for up to 16 rows and for 32, by the pieces of rows and of weights.
fn products(rows: usize, weights: usize) -> [unsafe fn(Task); 2] {
    match (rows, weights) {
        (2, 2) => [by_16_of_2_and_2, by_32_of_2_and_2],
        (2, 1) => [by_16_of_2_and_1, by_32_of_2_and_1],
        (1, 1) => [by_16_of_1_and_1, by_32_of_1_and_1],
        _ => unreachable!("{rows} pieces of rows by {weights} of weights"),
    }
}

/// A function that multiplies a pair's steps by a panel's. `$load` and `$store` move the sums; `$step` is what a step does, whose
/// tiles are `$a` and `$b` bytes.
macro_rules! product {
    ($name:ident, $load:expr, $store:expr, $a:literal, $b:literal, [$($step:expr),*]) => {
        /// # Safety
        /// The tiles are configured, and the task's memory is as it says.
        unsafe fn $name(task: Task) {
            // SAFETY: as the caller promises; what is read and written is inside a, b and c.
            unsafe {
                asm!(
                    "tilezero tmm0\ntilezero tmm1\ntilezero tmm2\ntilezero tmm3",
                    "test {begin:e}, {begin:e}",
                    "jne 2f",
                    $load,
                    "2:",
                    $($step,)*
                    concat!("add {a}, ", $a),
                    concat!("add {b}, ", $b),
                    "add {next}, {ahead}",
                    "dec {n}",
                    "jnz 2b",
                    $store,
                    a = inout(reg) task.a => _,
                    b = inout(reg) task.b => _,
                    c = in(reg) task.c,
                    n = inout(reg) task.steps => _,
                    begin = in(reg) u32::from(task.begin),
                    next = inout(reg) task.next => _,
                    s = in(reg) 64usize,
                    t = in(reg) PANEL * size_of::<f32>(),
                    ahead = const AHEAD,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }
    };
}

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

/// [`product!`] for 32 rows, whose steps ask for the next step's rows, among the products, and for the next panel.
macro_rules! by_32 {
    ($name:ident, $a:literal, $b:literal, [$($step:expr),*]) => {
        product! {
            $name,
            concat!(
                "tileloadd tmm0, [{c} + {t}*1]\n",
                "tileloadd tmm1, [{c} + {t}*1 + 64]\n",
                "tileloadd tmm2, [{c} + {t}*1 + 2048]\n",
                "tileloadd tmm3, [{c} + {t}*1 + 2112]",
            ),
            concat!(
                "tilestored [{c} + {t}*1], tmm0\n",
                "tilestored [{c} + {t}*1 + 64], tmm1\n",
                "tilestored [{c} + {t}*1 + 2048], tmm2\n",
                "tilestored [{c} + {t}*1 + 2112], tmm3",
            ),
            $a,
            $b,
            [
                $($step,)*
                ".irp line, 0, 64, 128, 192, 256, 320, 384, 448\nprefetcht1 [{next} + \\line]\n.endr"
            ]
        }
    };
}

/// [`product!`] for up to 16 rows: too few to hide that weights come from far, so that these are asked for two steps ahead.
macro_rules! by_16 {
    ($name:ident, $a:literal, $b:literal, [$($step:expr),*]) => {
        product! {
            $name,
            "tileloadd tmm0, [{c} + {t}*1]\ntileloadd tmm1, [{c} + {t}*1 + 64]",
            "tilestored [{c} + {t}*1], tmm0\ntilestored [{c} + {t}*1 + 64], tmm1",
            $a,
            $b,
            [$($step),*]
        }
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
    by_32_of_2_and_2, "4096", "4096",
    [
        "tileloadd tmm4, [{a} + {s}*1 + 1024]",
        "tileloadd tmm6, [{b} + {s}*1]",
        multiply!(4 by 6),
        "tileloadd tmm7, [{b} + {s}*1 + 1024]",
        multiply!(4 by 7),
        prefetch!("{a} + 4096"),
        "tileloadd tmm5, [{a} + {s}*1 + 3072]",
        multiply!(5),
        prefetch!("{a} + 5120"),
        "tileloadd tmm4, [{a} + {s}*1]",
        multiply!(4),
        prefetch!("{a} + 6144"),
        "tileloadd tmm5, [{a} + {s}*1 + 2048]",
        multiply!(5),
        prefetch!("{a} + 7168"),
        "tileloadd tmm6, [{b} + {s}*1 + 2048]",
        multiply!(4 by 6),
        "tileloadd tmm7, [{b} + {s}*1 + 3072]",
        multiply!(4 by 7),
        multiply!(5)
    ]
}

by_32! {
    by_32_of_2_and_1, "4096", "2048",
    [
        "tileloadd tmm4, [{a} + {s}*1 + 1024]",
        "tileloadd tmm6, [{b} + {s}*1]",
        multiply!(4 by 6),
        "tileloadd tmm7, [{b} + {s}*1 + 1024]",
        multiply!(4 by 7),
        prefetch!("{a} + 4096"),
        "tileloadd tmm5, [{a} + {s}*1 + 3072]",
        multiply!(5),
        prefetch!("{a} + 5120"),
        "tileloadd tmm4, [{a} + {s}*1]",
        multiply!(4),
        prefetch!("{a} + 6144"),
        "tileloadd tmm5, [{a} + {s}*1 + 2048]",
        multiply!(5),
        prefetch!("{a} + 7168")
    ]
}

by_32! {
    by_32_of_1_and_1, "2048", "2048",
    [
        "tileloadd tmm4, [{a} + {s}*1]",
        "tileloadd tmm6, [{b} + {s}*1]",
        multiply!(4 by 6),
        "tileloadd tmm7, [{b} + {s}*1 + 1024]",
        multiply!(4 by 7),
        "tileloadd tmm5, [{a} + {s}*1 + 1024]",
        multiply!(5)
    ]
}

by_16! {
    by_16_of_2_and_2, "4096", "4096",
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
    by_16_of_2_and_1, "4096", "2048",
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
    by_16_of_1_and_1, "2048", "2048",
    [
        prefetch!("{b} + 8192"),
        prefetch!("{b} + 9216"),
        "tileloadd tmm6, [{b} + {s}*1]\ntileloadd tmm7, [{b} + {s}*1 + 1024]",
        "tileloadd tmm4, [{a} + {s}*1]",
        multiply!(4)
    ]
}
