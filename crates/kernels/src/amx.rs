//! How do the tiles of AMX compute a product of bf16 pieces? Two tiles of rows by two of output features, their four sums in
//! tile registers over all inputs.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::ops::Range;
use std::sync::OnceLock;

use crate::avx512::Avx512;
use crate::matmul::Finish;
use crate::tiles::{DEPTH, PANEL, TILE, TileScratch, Tiled, split};
use crate::{Epilogue, Rows, Window};

/// Rows of x that are split into pieces at a time, and then walked for each panel of weights: 4 bytes a number of them stay
/// in the second-level cache, and a panel is read from there as rarely.
const BLOCK: usize = 256;
/// Rows of a tile.
const ROWS: usize = 16;

/// Does this machine have tiles of bf16, and does its system let this process use them? Asks once.
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

/// A block of a result: two tiles by two, row by row.
#[repr(C, align(64))]
struct Sums([f32; 2 * ROWS * PANEL]);

/// The shape of the tile registers: eight of 16 rows of 64 bytes (Intel SDM, volume 1, 18.2).
#[repr(C, align(64))]
struct Config([u8; 64]);

/// As [`Kernels::matmul_tiles`](crate::Kernels::matmul_tiles), which checks the shapes.
///
/// # Safety
/// [`available`], and the machine has AVX-512 F, BW, VL and DQ.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
pub(crate) unsafe fn matmul(
    x: Rows<'_>,
    w: &Tiled,
    panels: Range<usize>,
    mut y: Window<'_>,
    epilogue: &Epilogue<'_>,
    scratch: &mut TileScratch,
) {
    let (columns, steps) = (w.columns(panels.clone()), w.steps());
    let plain = epilogue.activation.is_none() && epilogue.residual.is_none();
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
    for top in (0..x.rows()).step_by(BLOCK) {
        let bottom = x.rows().min(top + BLOCK);
        let pieces = scratch.take((bottom - top).div_ceil(ROWS) * steps * 2 * TILE);
        split_rows(x.slice_rows(top..bottom), steps, pieces);
        for panel in panels.clone() {
            let at = panel * PANEL - columns.start;
            let cols = at..columns.len().min(at + PANEL);
            let weights = w.panel(panel);
            for first in (top..bottom).step_by(2 * ROWS) {
                let rows = first..bottom.min(first + 2 * ROWS);
                let mut sums = Sums([0.0; 2 * ROWS * PANEL]);
                let from = &pieces[(first - top) / ROWS * steps * 2 * TILE..];
                // SAFETY: the tiles are configured; `from` has a tile of each piece for each step and sixteen rows, and
                // the panel two for each of its pieces and steps.
                unsafe {
                    match (rows.len() > ROWS, w.pieces()) {
                        (true, 2) => two_by_two(from, steps, weights, &mut sums),
                        (true, _) => two_by_two_of_one(from, steps, weights, &mut sums),
                        (false, 2) => one_by_two(from, steps, weights, &mut sums),
                        (false, _) => one_by_two_of_one(from, steps, weights, &mut sums),
                    }
                }
                let mut part = y.tile(rows.clone(), cols.clone());
                for (i, sums) in sums.0.chunks_exact(PANEL).take(rows.len()).enumerate() {
                    let to = part.row_mut(i);
                    match epilogue.bias {
                        None => to.copy_from_slice(&sums[..to.len()]),
                        Some(bias) => {
                            let bias = &bias[panel * PANEL..][..to.len()];
                            to.iter_mut().zip(sums).zip(bias).for_each(|((to, sum), bias)| *to = sum + bias);
                        }
                    }
                }
                if !plain {
                    let residual = epilogue.residual.map(|r| r.slice_rows(rows).slice_cols(cols.clone()));
                    Finish { y: part, residual }.run(s, epilogue.activation);
                }
            }
        }
    }
    // SAFETY: the machine has tiles.
    unsafe { asm!("tilerelease", options(nostack, nomem)) };
}

/// Rows as tiles of their pieces: `[rows / 16][step][piece][row][32]`, padded with zeros.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
fn split_rows(x: Rows<'_>, steps: usize, to: &mut [u16]) {
    for row in 0..x.rows().next_multiple_of(ROWS) {
        let tiles = &mut to[row / ROWS * steps * 2 * TILE..][..steps * 2 * TILE];
        let at = row % ROWS * DEPTH;
        let numbers = if row < x.rows() { x.row(row) } else { &[] };
        for (step, both) in tiles.chunks_exact_mut(2 * TILE).enumerate() {
            let (hi, mid) = both.split_at_mut(TILE);
            let (hi, mid) = (&mut hi[at..at + DEPTH], &mut mid[at..at + DEPTH]);
            let numbers = numbers.get(step * DEPTH..).unwrap_or(&[]);
            if let Some(numbers) = numbers.first_chunk::<DEPTH>() {
                for ((hi, mid), &x) in hi.iter_mut().zip(mid).zip(numbers) {
                    [*hi, *mid] = split(x);
                }
                continue;
            }
            hi.fill(0);
            mid.fill(0);
            for ((hi, mid), &x) in hi.iter_mut().zip(mid).zip(numbers) {
                [*hi, *mid] = split(x);
            }
        }
    }
}

/// The instructions for 32 rows: `a` is the first sixteen rows' tiles and `a1` the next, `b` the panel's, 64 bytes a row; `c`
/// is the sums, 128 bytes a row. A step adds mid·w, then hi·w, of the weights' first piece.
macro_rules! rows_of_32 {
    (zero) => {
        "tilezero tmm0\ntilezero tmm1\ntilezero tmm2\ntilezero tmm3"
    };
    (step) => {
        concat!(
            "tileloadd tmm4, [{a} + {s}*1 + 1024]\n",
            "tileloadd tmm6, [{b} + {s}*1]\n",
            "tdpbf16ps tmm0, tmm4, tmm6\n",
            "tileloadd tmm7, [{b} + {s}*1 + 1024]\n",
            "tdpbf16ps tmm1, tmm4, tmm7\n",
            "tileloadd tmm5, [{a1} + {s}*1 + 1024]\n",
            "tdpbf16ps tmm2, tmm5, tmm6\n",
            "tdpbf16ps tmm3, tmm5, tmm7\n",
            "tileloadd tmm4, [{a} + {s}*1]\n",
            "tdpbf16ps tmm0, tmm4, tmm6\n",
            "tdpbf16ps tmm1, tmm4, tmm7\n",
            "tileloadd tmm5, [{a1} + {s}*1]\n",
            "tdpbf16ps tmm2, tmm5, tmm6\n",
            "tdpbf16ps tmm3, tmm5, tmm7",
        )
    };
    (store) => {
        concat!(
            "tilestored [{c} + {t}*1], tmm0\n",
            "tilestored [{c} + {t}*1 + 64], tmm1\n",
            "tilestored [{c} + {t}*1 + 2048], tmm2\n",
            "tilestored [{c} + {t}*1 + 2112], tmm3",
        )
    };
}

/// The same for 16 rows.
macro_rules! rows_of_16 {
    (zero) => {
        "tilezero tmm0\ntilezero tmm1"
    };
    (step) => {
        concat!(
            "tileloadd tmm4, [{a} + {s}*1 + 1024]\n",
            "tileloadd tmm5, [{a} + {s}*1]\n",
            "tileloadd tmm6, [{b} + {s}*1]\n",
            "tileloadd tmm7, [{b} + {s}*1 + 1024]\n",
            "tdpbf16ps tmm0, tmm4, tmm6\n",
            "tdpbf16ps tmm1, tmm4, tmm7\n",
            "tdpbf16ps tmm0, tmm5, tmm6\n",
            "tdpbf16ps tmm1, tmm5, tmm7",
        )
    };
    (store) => {
        "tilestored [{c} + {t}*1], tmm0\ntilestored [{c} + {t}*1 + 64], tmm1"
    };
}

/// A function that multiplies so many rows by a panel whose tiles of a step are `$panel_step` bytes; `$step` adds what the
/// weights' second piece does, if they have one.
macro_rules! product {
    ($(#[$doc:meta])* $name:ident, $panel_step:literal, $rows:ident, [$($step:literal)*]) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The tiles are configured, and both slices have the tiles of so many steps.
        unsafe fn $name(a: &[u16], steps: usize, b: &[u16], c: &mut Sums) {
            if steps == 0 {
                return;
            }
            // SAFETY: as the caller promises; what is read and written is inside a, b and c.
            unsafe {
                asm!(
                    $rows!(zero),
                    "2:",
                    $rows!(step),
                    $($step,)*
                    "add {a}, 2048",
                    "add {a1}, 2048",
                    concat!("add {b}, ", $panel_step),
                    "dec {n}",
                    "jnz 2b",
                    $rows!(store),
                    a = inout(reg) a.as_ptr() => _,
                    a1 = inout(reg) a.as_ptr().wrapping_add(steps * 2 * TILE) => _,
                    b = inout(reg) b.as_ptr() => _,
                    n = inout(reg) steps => _,
                    s = in(reg) 64usize,
                    c = in(reg) c.0.as_mut_ptr(),
                    t = in(reg) PANEL * size_of::<f32>(),
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }
    };
}

product! {
    /// 32 rows, weights of two pieces.
    two_by_two, "4096", rows_of_32,
    [
        "tileloadd tmm6, [{b} + {s}*1 + 2048]"
        "tdpbf16ps tmm0, tmm4, tmm6"
        "tileloadd tmm7, [{b} + {s}*1 + 3072]"
        "tdpbf16ps tmm1, tmm4, tmm7"
        "tdpbf16ps tmm2, tmm5, tmm6"
        "tdpbf16ps tmm3, tmm5, tmm7"
    ]
}

product! {
    /// 32 rows, weights of one piece.
    two_by_two_of_one, "2048", rows_of_32, []
}

product! {
    /// 16 rows, weights of two pieces.
    one_by_two, "4096", rows_of_16,
    [
        "tileloadd tmm2, [{b} + {s}*1 + 2048]"
        "tileloadd tmm3, [{b} + {s}*1 + 3072]"
        "tdpbf16ps tmm0, tmm5, tmm2"
        "tdpbf16ps tmm1, tmm5, tmm3"
    ]
}

product! {
    /// 16 rows, weights of one piece.
    one_by_two_of_one, "2048", rows_of_16, []
}
