//! How far apart are two vectors, and a vector from each row of a matrix? [`Distances`]: five measures of five kinds of
//! numbers, for whoever searches among embeddings.
//!
//! A table of its own beside [`Kernels`](crate::Kernels), since a call here lasts some nanoseconds: the measure and the kind of
//! numbers choose the function pointer, and nothing is looked at again behind it.

mod bits;
mod bytes;
mod floats;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::cmp::Ordering;
use std::fmt;

use crate::{Error, Isa};

/// What is measured between two vectors of the same length.
///
/// Of binary vectors the same is meant, of numbers that are 0 or 1: the dot product counts the places where both are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// The cosine of the angle between them, −1 to 1. 0 where either is all zeros.
    Cosine = 0,
    /// The sum of the products.
    Dot = 1,
    /// The sum of the squared differences.
    SquaredEuclidean = 2,
    /// The length of the difference.
    Euclidean = 3,
    /// The number of places that differ: of binary vectors bits, of others numbers (0 and −0 are the same, NaN differs
    /// from itself).
    Hamming = 4,
}

impl Metric {
    /// Every measure.
    pub const ALL: &[Metric] =
        &[Metric::Cosine, Metric::Dot, Metric::SquaredEuclidean, Metric::Euclidean, Metric::Hamming];

    /// Are larger values nearer (cosine, dot product), rather than smaller ones?
    pub fn is_similarity(self) -> bool {
        matches!(self, Metric::Cosine | Metric::Dot)
    }

    /// The nearer first; NaN after all numbers.
    pub fn nearer_first(self, a: f32, b: f32) -> Ordering {
        let order = if self.is_similarity() { b.partial_cmp(&a) } else { a.partial_cmp(&b) };
        order.unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
    }
}

const COSINE: usize = Metric::Cosine as usize;
const DOT: usize = Metric::Dot as usize;
const SQUARED: usize = Metric::SquaredEuclidean as usize;
const EUCLIDEAN: usize = Metric::Euclidean as usize;
const HAMMING: usize = Metric::Hamming as usize;

/// Vectors of [`f32`].
#[derive(Clone, Copy, Debug)]
pub enum F32 {}
/// Vectors of IEEE half precision numbers, as their bits.
#[derive(Clone, Copy, Debug)]
pub enum F16 {}
/// Vectors of bfloat16 numbers, as their bits.
#[derive(Clone, Copy, Debug)]
pub enum Bf16 {}
/// Vectors of [`i8`].
#[derive(Clone, Copy, Debug)]
pub enum I8 {}
/// Binary vectors, eight numbers a byte.
#[derive(Clone, Copy, Debug)]
pub enum Bits {}

/// A kind of numbers that vectors are made of.
pub trait Element: sealed::Element {}
/// A kind of numbers that vectors can be divided by their length in.
pub trait Float: Element + sealed::Float {}

mod sealed {
    use super::{Distances, Pointers};

    pub trait Element {
        /// How they lie in memory.
        type Stored: Copy + Send + Sync + 'static;
        fn pointers(table: &Distances) -> &Pointers<Self::Stored>;
    }
    pub trait Float: Element {
        fn normalize(table: &Distances) -> super::Normalize<Self::Stored>;
    }
}

/// How numbers of the kind `E` lie in memory.
pub type Stored<E> = <E as sealed::Element>::Stored;

type One<T> = unsafe fn(&[T], &[T]) -> f32;
type Many<T> = unsafe fn(&[T], &[T], &mut [f32]);
type Normalize<T> = unsafe fn(&mut [T]);

/// The functions of one kind of numbers, by measure.
#[derive(Clone, Copy, Debug)]
pub struct Pointers<T: 'static> {
    one: [One<T>; 5],
    many: [Many<T>; 5],
}

/// The distances of one level of instructions.
///
/// Sums of f32, f16 and bf16 are taken in f32, in several chains, or in f64 where they would be too large or too small for
/// that: results of finite vectors are right from the smallest numbers to the largest. Sums of i8 and of bits are exact
/// integers. What is returned is rounded to f32. NaN and infinities go by the rules of f64, and the cosine with a vector
/// that holds one is NaN.
///
/// A result depends on nothing but the two vectors: it has the same bits alone and in any matrix.
pub struct Distances {
    isa: Isa,
    name: &'static str,
    f32: Pointers<f32>,
    f16: Pointers<u16>,
    bf16: Pointers<u16>,
    i8: Pointers<i8>,
    bits: Pointers<u8>,
    normalize_f32: Normalize<f32>,
    normalize_f16: Normalize<u16>,
    normalize_bf16: Normalize<u16>,
}

impl Distances {
    /// Every level that this machine has, lowest first; the first is scalar.
    pub fn available() -> Vec<&'static Distances> {
        let mut levels = vec![&scalar::TABLE];
        #[cfg(target_arch = "x86_64")]
        levels.extend(x86::levels());
        #[cfg(target_arch = "aarch64")]
        levels.extend(neon::levels());
        levels
    }

    /// The highest level that this machine has within an instruction set; `None` where it lacks that.
    pub fn for_isa(isa: Isa) -> Option<&'static Distances> {
        // Tiles have no use here.
        let of = if isa == Isa::Amx { Isa::Avx512 } else { isa };
        if !isa.is_available() {
            return None;
        }
        Self::available().into_iter().rfind(|level| level.isa == of)
    }

    /// The machine's highest level, or that of the instruction set that `LATTICE_ISA` names.
    ///
    /// # Errors
    /// If `LATTICE_ISA` names one that does not exist or that the machine lacks.
    pub fn best() -> Result<&'static Distances, Error> {
        let isa = Isa::choose()?;
        Self::for_isa(isa).ok_or(Error::AbsentIsa { isa })
    }

    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The level's name: that of the instruction set, and what is used beyond it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The distance of two vectors.
    ///
    /// # Panics
    /// If their lengths differ.
    #[inline]
    pub fn one<E: Element>(&self, metric: Metric, a: &[Stored<E>], b: &[Stored<E>]) -> f32 {
        if a.len() != b.len() {
            lengths_differ(a.len(), b.len());
        }
        // SAFETY: tables are handed out where the machine has the instructions; the lengths are the same.
        unsafe { (E::pointers(self).one[metric as usize])(a, b) }
    }

    /// The distances of a vector from each of the rows `[out.len(), query.len()]`.
    ///
    /// # Panics
    /// If `rows` has another number of numbers.
    pub fn many<E: Element>(&self, metric: Metric, query: &[Stored<E>], rows: &[Stored<E>], out: &mut [f32]) {
        let all = query.len().checked_mul(out.len());
        assert_eq!(Some(rows.len()), all, "numbers of {} rows of {}", out.len(), query.len());
        if query.is_empty() {
            return out.fill(0.0);
        }
        // SAFETY: tables are handed out where the machine has the instructions; the rows are as long as the query.
        unsafe { (E::pointers(self).many[metric as usize])(query, rows, out) }
    }

    /// One through the length of each of the rows `[out.len(), width]`, as [`Distances::cosines`] wants them: NaN
    /// where f32 is not sure to hold the square, or it is 0.
    ///
    /// # Panics
    /// If `rows` has another number of numbers.
    pub fn inverse_lengths<E: Element>(&self, width: usize, rows: &[Stored<E>], out: &mut [f32]) {
        assert_eq!(Some(rows.len()), width.checked_mul(out.len()), "numbers of {} rows of {width}", out.len());
        for (i, out) in out.iter_mut().enumerate() {
            let row = &rows[i * width..][..width];
            *out = match self.one::<E>(Metric::Dot, row, row) {
                square if square_fits(square) => 1.0 / square.sqrt(),
                _ => f32::NAN,
            };
        }
    }

    /// As [`Distances::many`] with [`Metric::Cosine`], to rounding, but with the rows' lengths known: for a matrix that meets
    /// many queries.
    ///
    /// # Panics
    /// As [`Distances::many`], and if there is not one length for each row.
    pub fn cosines<E: Element>(&self, query: &[Stored<E>], rows: &[Stored<E>], inverse: &[f32], out: &mut [f32]) {
        assert_eq!(inverse.len(), out.len(), "lengths of {} rows", out.len());
        let mut own = [0.0];
        self.inverse_lengths::<E>(query.len(), query, &mut own);
        self.many::<E>(Metric::Dot, query, rows, out);
        for (out, &inverse) in out.iter_mut().zip(inverse) {
            *out = (*out * own[0] * inverse).clamp(-1.0, 1.0);
        }
        for (i, out) in out.iter_mut().enumerate().filter(|(_, out)| out.is_nan()) {
            *out = self.one::<E>(Metric::Cosine, query, &rows[i * query.len()..][..query.len()]);
        }
    }

    /// Divides a vector by its Euclidean length. One of zeros stays as it is; one with NaN or an infinity has no direction,
    /// and every number of it becomes NaN.
    pub fn normalize<E: Float>(&self, vector: &mut [Stored<E>]) {
        // SAFETY: tables are handed out where the machine has the instructions.
        unsafe { E::normalize(self)(vector) }
    }
}

impl fmt::Debug for Distances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Distances({})", self.name)
    }
}

#[cold]
#[inline(never)]
fn lengths_differ(a: usize, b: usize) -> ! {
    panic!("the distance of vectors of {a} and of {b} numbers: only vectors of the same length have one");
}

macro_rules! elements {
    ($($kind:ident: $stored:ty = $field:ident;)*) => {$(
        impl Element for $kind {}
        impl sealed::Element for $kind {
            type Stored = $stored;
            fn pointers(table: &Distances) -> &Pointers<$stored> {
                &table.$field
            }
        }
    )*};
}
elements! { F32: f32 = f32; F16: u16 = f16; Bf16: u16 = bf16; I8: i8 = i8; Bits: u8 = bits; }

macro_rules! floats {
    ($($kind:ident: $field:ident;)*) => {$(
        impl Float for $kind {}
        impl sealed::Float for $kind {
            fn normalize(table: &Distances) -> Normalize<Self::Stored> {
                table.$field
            }
        }
    )*};
}
floats! { F32: normalize_f32; F16: normalize_f16; Bf16: normalize_bf16; }

/// The pointers of one kind of numbers: `$one` and `$many`, given `$proof`, in functions of the features `$features`.
macro_rules! pointers {
    ($stored:ty, $features:literal, $proof:path, $one:path, $many:path) => {{
        #[target_feature(enable = $features)]
        fn one<const M: usize>(a: &[$stored], b: &[$stored]) -> f32 {
            // SAFETY: the features that make this function are those that the proof asks for.
            let s = unsafe { $proof() };
            $one(s, a, b)
        }
        #[target_feature(enable = $features)]
        fn many<const M: usize>(query: &[$stored], rows: &[$stored], out: &mut [f32]) {
            // SAFETY: as above.
            let s = unsafe { $proof() };
            $many(s, query, rows, out);
        }
        $crate::distance::Pointers { one: $crate::distance::by_metric!(one), many: $crate::distance::by_metric!(many) }
    }};
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use pointers;

/// The table of an instruction set: floats by `$simd`, integers by `$bytes`, both proven by the features `$features`.
macro_rules! table {
    ($isa:expr, $name:literal, $features:literal, $simd:path, $bytes:path) => {{
        macro_rules! of_floats {
            ($kind:ty, $stored:ty) => {
                pointers!($stored, $features, $simd, floats::one::<_, $kind, M>, floats::many::<_, $kind, M>)
            };
        }
        macro_rules! normalize {
            ($kind:ty, $stored:ty) => {{
                #[target_feature(enable = $features)]
                fn normalize(vector: &mut [$stored]) {
                    // SAFETY: the features that make this function are those that the proof asks for.
                    let s = unsafe { $simd() };
                    floats::normalize::<_, $kind>(s, vector);
                }
                normalize
            }};
        }
        Distances {
            isa: $isa,
            name: $name,
            f32: of_floats!(F32, f32),
            f16: of_floats!(F16, u16),
            bf16: of_floats!(Bf16, u16),
            i8: pointers!(i8, $features, $bytes, bytes::one::<_, M>, bytes::many::<_, M>),
            bits: pointers!(u8, $features, bits::Words::new, bits::one::<M>, bits::many::<M>),
            normalize_f32: normalize!(F32, f32),
            normalize_f16: normalize!(F16, u16),
            normalize_bf16: normalize!(Bf16, u16),
        }
    }};
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use table;

/// A function of a measure, for each of them.
macro_rules! by_metric {
    ($function:ident $(, $kind:ty)?) => {
        [
            $function::<$($kind,)? { $crate::distance::COSINE }>,
            $function::<$($kind,)? { $crate::distance::DOT }>,
            $function::<$($kind,)? { $crate::distance::SQUARED }>,
            $function::<$($kind,)? { $crate::distance::EUCLIDEAN }>,
            $function::<$($kind,)? { $crate::distance::HAMMING }>,
        ]
    };
}
use by_metric;

/// Is a sum of squares in f32 sure to hold all of it, and its product with another?
#[inline(always)]
fn square_fits(square: f32) -> bool {
    (1e-18..=1e18).contains(&square)
}

/// The cosine by sums in f32, where these are sure to hold all of it.
#[inline(always)]
fn cosine(product: f32, a: f32, b: f32) -> Option<f32> {
    // The root of a square is the number itself, so a vector's cosine with itself is exactly 1.
    (square_fits(a) && square_fits(b)).then(|| (product / (a * b).sqrt()).clamp(-1.0, 1.0))
}

/// The cosine by sums in f64.
fn cosine_f64(product: f64, a: f64, b: f64) -> f32 {
    let lengths = (a * b).sqrt();
    if lengths == 0.0 { 0.0 } else { (product / lengths).clamp(-1.0, 1.0) as f32 }
}
