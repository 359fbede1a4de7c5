//! Which code computes a kernel on an instruction set? [`Kernels`]: a table of function pointers, one table an ISA,
//! and the checked methods through which everybody calls them.

use std::ops::Range;

use crate::{
    Activation, Attend, AttendScratch, Blocks, DeltaRows, Epilogue, Error, Interleaved, Isa, KvSliceMut, Packed,
    PagedAttend, QuantizedMut, QuantizedRows, RopeLayout, Rows, ShortConv, Window,
};

/// Every kernel's signature, once: `$with` becomes the table's type, its wrappers for an instruction set, ….
macro_rules! kernels {
    ($with:ident! $($extra:tt)*) => {
        $with! { $($extra)*
            fn matmul(x: Rows<'_>, w: &Packed, panels: Range<usize>, y: Window<'_>, epilogue: &Epilogue<'_>);
            fn attend(task: &Attend<'_>, scratch: &mut AttendScratch, out: Window<'_>);
            fn layer_norm(x: &[f32], weight: &[f32], bias: Option<&[f32]>, eps: f32, y: &mut [f32]);
            fn rms_norm(x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]);
            fn add_layer_norm(sum: &mut [f32], x: &[f32], weight: &[f32], bias: Option<&[f32]>, eps: f32, y: &mut [f32]);
            fn add_rms_norm(sum: &mut [f32], x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]);
            fn softmax(row: &mut [f32]);
            fn activation(kind: Activation, x: &mut [f32]);
            fn glu(kind: Activation, gate: &mut [f32], up: &[f32]);
            fn add(y: &mut [f32], x: &[f32]);
            fn mul(y: &mut [f32], x: &[f32]);
            fn max(y: &mut [f32], x: &[f32]);
            fn axpy(y: &mut [f32], a: f32, x: &[f32]);
            fn scale(x: &mut [f32], factor: f32);
            fn dot(x: &[f32], y: &[f32]) -> f32;
            fn sum_squares(x: &[f32]) -> f32;
            fn peak(rounds: usize) -> f32;
            fn rope(row: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32], layout: RopeLayout);
            fn attend_blocks(task: &PagedAttend<'_>, range: Range<usize>, together: bool, work: &mut [f32], parts: &mut [f32]);
            fn join_blocks(parts: &[f32], group: usize, out: Window<'_>);
            fn write_keys(keys: KvSliceMut<'_>, at: usize, rows: Rows<'_>);
            fn write_values(values: KvSliceMut<'_>, at: usize, rows: Rows<'_>);
            fn matmul_blocks(x: Rows<'_>, w: &Blocks<'_>, outs: Range<usize>, y: Window<'_>, epilogue: &Epilogue<'_>, scratch: &mut AttendScratch);
            fn quantize_rows(x: Rows<'_>, to: QuantizedMut<'_>);
            fn dot_blocks(x: &QuantizedRows, w: &Blocks<'_>, outs: Range<usize>, y: Window<'_>, epilogue: &Epilogue<'_>, scratch: &mut AttendScratch);
            fn dot_interleaved(x: &QuantizedRows, w: &Interleaved, panels: Range<usize>, y: Window<'_>, epilogue: &Epilogue<'_>, scratch: &mut AttendScratch);
            fn short_conv(task: ShortConv<'_>, out: Window<'_>);
            fn delta_rows(task: DeltaRows<'_>, scratch: &mut AttendScratch, out: Window<'_>);
            fn delta_chunks(task: DeltaRows<'_>, scratch: &mut AttendScratch, out: Window<'_>);
        }
    };
}

macro_rules! pointers {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        /// The function pointers of an instruction set, each safe to call where the machine has it and its arguments
        /// fit as the method of [`Kernels`] of that name checks.
        #[derive(Debug)]
        pub(crate) struct Pointers {
            $(pub(crate) $name: unsafe fn($($type),*) $(-> $result)?,)*
        }
    };
}
kernels!(pointers!);

/// In a module that implements `Simd` for `$simd`: the table of all kernels for the target features `$features`.
macro_rules! table_for {
    ($simd:ident, $features:literal) => {
        pub(crate) static KERNELS: $crate::Kernels = TABLE;
pub(crate) const TABLE: $crate::Kernels = $crate::table::kernels!(wrappers! $simd, $features;);
    };
}
pub(crate) use table_for;

macro_rules! wrappers {
    ($simd:ident, $features:literal; $(fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {{
        use std::ops::Range;
        use $crate::table::{Pointers, generic};
        use $crate::{Activation, Attend, AttendScratch, Blocks, DeltaRows, Epilogue, Interleaved, KvSliceMut, Packed};
        use $crate::{PagedAttend, QuantizedMut, QuantizedRows, RopeLayout, Rows, ShortConv, Window};
        $(
            #[target_feature(enable = $features)]
            fn $name($($arg: $type),*) $(-> $result)? {
                // SAFETY: the features that make this function are those that `new` asks for.
                let s = unsafe { $simd::new() };
                generic::$name(s, $($arg),*)
            }
        )*
        $crate::Kernels { isa: $simd::ISA, panel_width: <$simd as Simd>::PANEL, tile_rows: <$simd as Simd>::TILE, lanes: <$simd as $crate::quant::Quant>::LANES_OF_CODES, pointers: Pointers { $($name),* } }
    }};
}
pub(crate) use {kernels, wrappers};

/// The kernels that are written once for every implementation of `Simd`.
pub(crate) mod generic {
    pub(crate) use crate::attend::attend;
    pub(crate) use crate::attend_paged::{attend_blocks, join_blocks, write_keys, write_values};
    pub(crate) use crate::delta::{delta_rows, short_conv};
    pub(crate) use crate::delta_chunks::delta_chunks;
    pub(crate) use crate::matmul::matmul;
    pub(crate) use crate::products::{dot_blocks, dot_interleaved, matmul_blocks, quantize_rows};
    pub(crate) use crate::rows::{
        activation, add, add_layer_norm, add_rms_norm, axpy, dot, glu, layer_norm, max, mul, peak, rms_norm, rope,
        scale, softmax, sum_squares,
    };
}

/// The kernels of one instruction set. Nothing here allocates (but a scratch that grows), spawns a thread or does I/O.
///
/// **A row's result depends on nothing but the row**: its bits are the same whatever other rows are in the call, and
/// wherever it lies among them. From one instruction set to another results differ in the last places.
#[derive(Debug)]
pub struct Kernels {
    pub(crate) isa: Isa,
    pub(crate) panel_width: usize,
    pub(crate) tile_rows: usize,
    /// Output features in a panel of interleaved weights; 0 where there are none.
    pub(crate) lanes: usize,
    pub(crate) pointers: Pointers,
}

impl Kernels {
    /// The kernels of an instruction set; `None` where the machine lacks it.
    pub fn for_isa(isa: Isa) -> Option<&'static Kernels> {
        if !isa.is_available() {
            return None;
        }
        Some(match isa {
            Isa::Scalar => &crate::scalar::KERNELS,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => &crate::avx2::KERNELS,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => crate::avx512::kernels(),
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => crate::avx512::kernels_with_tiles(),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => &crate::neon::KERNELS,
            #[allow(unreachable_patterns)] // where this target has all of them
            _ => return None,
        })
    }

    /// The kernels of the machine's highest instruction set, or of the one that `LATTICE_ISA` names.
    ///
    /// # Errors
    /// If `LATTICE_ISA` names one that does not exist or that the machine lacks.
    pub fn best() -> Result<&'static Kernels, Error> {
        let isa = Isa::choose()?;
        Self::for_isa(isa).ok_or(Error::AbsentIsa { isa })
    }

    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Output features in a panel of [`Packed`] weights.
    pub fn panel_width(&self) -> usize {
        self.panel_width
    }

    /// `y = epilogue(x · Wᵀ)` for some rows and some panels of output features.
    ///
    /// `x` is `[rows, in]`, `y` is `[rows, w.columns(panels)]`: the part of the result that those panels compute, so
    /// threads share a product by rows and by panels. Each number is one chain of fused multiply-adds in the order
    /// of `in`, whatever the number of rows.
    ///
    /// # Panics
    /// If shapes differ, or `w` was packed for another instruction set.
    pub fn matmul(&self, x: Rows<'_>, w: &Packed, panels: Range<usize>, y: Window<'_>, epilogue: &Epilogue<'_>) {
        assert_eq!(w.panel_width(), self.panel_width, "{w:?} was packed for another instruction set than {}", self.isa);
        assert!(panels.start <= panels.end && panels.end <= w.panels(), "panels {panels:?} of {}", w.panels());
        assert_eq!(x.cols(), w.ins(), "columns of x and {w:?}");
        assert_eq!(x.rows(), y.rows(), "rows of x and y");
        assert_eq!(y.cols(), w.columns(panels.clone()).len(), "columns of y and of panels {panels:?} of {w:?}");
        if let Some(bias) = epilogue.bias {
            assert_eq!(bias.len(), w.outs(), "length of the bias of {w:?}");
        }
        if let Some(residual) = epilogue.residual {
            assert_eq!((residual.rows(), residual.cols()), (y.rows(), y.cols()), "shape of the residual and y");
        }
        // SAFETY: tables are handed out where the machine has the instructions; shapes were checked.
        unsafe { (self.pointers.matmul)(x, w, panels, y, epilogue) }
    }

    /// Scaled dot-product attention of one head of one sequence for a range of its queries: `out` is
    /// `[queries, v.cols()]`. Keys are walked in blocks with an online softmax; a query that sees no key gets zeros.
    /// The numbers of keys that a query's mask hides do not matter to it, as long as they are finite.
    ///
    /// # Panics
    /// If shapes differ, the additive bias does not cover all pairs of query and key, or there are other than 1 or 2 pieces.
    pub fn attend(&self, task: &Attend<'_>, scratch: &mut AttendScratch, out: Window<'_>) {
        task.check(&out);
        #[cfg(target_arch = "x86_64")]
        if let Some(pieces) = task.pieces
            && self.has_tiles()
        {
            // SAFETY: this table is handed out where the machine has the instructions; shapes were checked.
            return unsafe { crate::attend_amx::attend(task, pieces, scratch, out) };
        }
        // SAFETY: tables are handed out where the machine has the instructions; shapes were checked.
        unsafe { (self.pointers.attend)(task, scratch, out) }
    }

    /// `y = (x − mean) / √(variance + eps) · weight + bias`; the variance is taken from centred numbers.
    pub fn layer_norm(&self, x: &[f32], weight: &[f32], bias: Option<&[f32]>, eps: f32, y: &mut [f32]) {
        same_length(x.len(), &[weight.len(), bias.map_or(x.len(), <[f32]>::len), y.len()]);
        // SAFETY: tables are handed out where the machine has the instructions; lengths were checked.
        unsafe { (self.pointers.layer_norm)(x, weight, bias, eps, y) }
    }

    /// `y = x / √(mean(x²) + eps) · weight`.
    pub fn rms_norm(&self, x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
        same_length(x.len(), &[weight.len(), y.len()]);
        // SAFETY: tables are handed out where the machine has the instructions; lengths were checked.
        unsafe { (self.pointers.rms_norm)(x, weight, eps, y) }
    }

    /// `sum += x`, then [`Kernels::layer_norm`] of the sum.
    pub fn add_layer_norm(
        &self,
        sum: &mut [f32],
        x: &[f32],
        weight: &[f32],
        bias: Option<&[f32]>,
        eps: f32,
        y: &mut [f32],
    ) {
        same_length(sum.len(), &[x.len(), weight.len(), bias.map_or(x.len(), <[f32]>::len), y.len()]);
        // SAFETY: tables are handed out where the machine has the instructions; lengths were checked.
        unsafe { (self.pointers.add_layer_norm)(sum, x, weight, bias, eps, y) }
    }

    /// `sum += x`, then [`Kernels::rms_norm`] of the sum.
    pub fn add_rms_norm(&self, sum: &mut [f32], x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
        same_length(sum.len(), &[x.len(), weight.len(), y.len()]);
        // SAFETY: tables are handed out where the machine has the instructions; lengths were checked.
        unsafe { (self.pointers.add_rms_norm)(sum, x, weight, eps, y) }
    }

    /// `row = exp(row − max) / Σ exp(row − max)`. −∞, and what would be no normal
    /// number, becomes 0; a row of nothing but −∞ becomes NaN, as in PyTorch.
    pub fn softmax(&self, row: &mut [f32]) {
        // SAFETY: tables are handed out where the machine has the instructions.
        unsafe { (self.pointers.softmax)(row) }
    }

    /// `x = kind(x)`.
    pub fn activation(&self, kind: Activation, x: &mut [f32]) {
        // SAFETY: tables are handed out where the machine has the instructions.
        unsafe { (self.pointers.activation)(kind, x) }
    }

    /// The gated unit: `gate = kind(gate) · up`.
    pub fn glu(&self, kind: Activation, gate: &mut [f32], up: &[f32]) {
        same_length(gate.len(), &[up.len()]);
        // SAFETY: tables are handed out where the machine has the instructions; lengths were checked.
        unsafe { (self.pointers.glu)(kind, gate, up) }
    }

    /// `y += x`.
    pub fn add(&self, y: &mut [f32], x: &[f32]) {
        same_length(y.len(), &[x.len()]);
        // SAFETY: tables are handed out where the machine has the instructions; lengths were checked.
        unsafe { (self.pointers.add)(y, x) }
    }

    /// `y *= x`, number by number.
    pub fn mul(&self, y: &mut [f32], x: &[f32]) {
        same_length(y.len(), &[x.len()]);
        // SAFETY: tables are handed out where the machine has the instructions; lengths were checked.
        unsafe { (self.pointers.mul)(y, x) }
    }

    /// `y = max(y, x)`, number by number. Where either is NaN, which of the two it becomes is not specified.
    pub fn max(&self, y: &mut [f32], x: &[f32]) {
        same_length(y.len(), &[x.len()]);
        // SAFETY: tables are handed out where the machine has the instructions; lengths were checked.
        unsafe { (self.pointers.max)(y, x) }
    }

    /// `y += a · x`.
    pub fn axpy(&self, y: &mut [f32], a: f32, x: &[f32]) {
        same_length(y.len(), &[x.len()]);
        // SAFETY: tables are handed out where the machine has the instructions; lengths were checked.
        unsafe { (self.pointers.axpy)(y, a, x) }
    }

    /// `x *= factor`.
    pub fn scale(&self, x: &mut [f32], factor: f32) {
        // SAFETY: tables are handed out where the machine has the instructions.
        unsafe { (self.pointers.scale)(x, factor) }
    }

    /// `Σ x · y`.
    pub fn dot(&self, x: &[f32], y: &[f32]) -> f32 {
        same_length(x.len(), &[y.len()]);
        // SAFETY: tables are handed out where the machine has the instructions; lengths were checked.
        unsafe { (self.pointers.dot)(x, y) }
    }

    /// `Σ x²`.
    pub fn sum_squares(&self, x: &[f32]) -> f32 {
        // SAFETY: tables are handed out where the machine has the instructions.
        unsafe { (self.pointers.sum_squares)(x) }
    }

    /// Divides a row by its Euclidean length, or by 1e-12 if that is longer (as PyTorch's `normalize`): a row of zeros
    /// stays zero.
    pub fn l2_normalize(&self, x: &mut [f32]) {
        let length = self.sum_squares(x).sqrt();
        self.scale(x, 1.0 / length.max(1e-12));
    }

    /// Multiply-adds on registers alone, the bound of every other kernel: in each round as many as a matmul tile has
    /// sums, which is returned with a number that keeps the compiler from leaving them out. Benches divide by it.
    pub fn peak(&self, rounds: usize) -> (usize, f32) {
        let sums = self.panel_width * self.tile_rows;
        // SAFETY: tables are handed out where the machine has the instructions.
        (sums, unsafe { (self.pointers.peak)(rounds) })
    }

    /// Rotary position embedding of a token: turns the first `2 · cos.len()` numbers of each head of
    /// `row` = `[heads * head_dim]` by the angles whose cosines and sines are given, one a pair.
    ///
    /// # Panics
    /// If `row` is not a whole number of heads, `sin` is not as long as `cos`, or both exceed half a head.
    pub fn rope(&self, row: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32], layout: RopeLayout) {
        assert!(head_dim > 0 && row.len().is_multiple_of(head_dim), "{} numbers in heads of {head_dim}", row.len());
        assert_eq!(cos.len(), sin.len(), "cosines and sines");
        assert!(2 * cos.len() <= head_dim, "{} pairs in a head of {head_dim}", cos.len());
        // SAFETY: tables are handed out where the machine has the instructions; lengths were checked.
        unsafe { (self.pointers.rope)(row, head_dim, cos, sin, layout) }
    }
}

fn same_length(len: usize, others: &[usize]) {
    assert!(others.iter().all(|&other| other == len), "rows of {len} and {others:?} numbers in one call");
}
