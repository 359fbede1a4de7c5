//! How near are vectors to each other, and which rows of a matrix are nearest? Cosine, dot product, Euclidean and Hamming
//! distances of what embedders give, in the numbers in which it is kept: f32, half precision, bytes or bits.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use kernels::distance::{self as kinds, Stored};
use kernels::{Distances, Metric, Pool};
use std::sync::LazyLock;

/// The machine's best code, chosen once.
static DISTANCES: LazyLock<&Distances> = LazyLock::new(|| Distances::best().unwrap_or_else(|error| panic!("{error}")));

/// A number that vectors are made of: [`f32`], [`half::f16`], [`half::bf16`] or [`i8`]; [`u8`] is eight numbers of one bit.
pub trait Element: Copy + Send + Sync + 'static {
    /// What the kernels call it.
    type Kind: kinds::Element;
    /// How the kernels see it.
    fn stored(vector: &[Self]) -> &[Stored<Self::Kind>];
}

/// A number in which a vector can have length one.
pub trait FloatElement: Element<Kind: kinds::Float> {
    /// How the kernels see it.
    fn stored_mut(vector: &mut [Self]) -> &mut [Stored<Self::Kind>];
}

macro_rules! elements {
    ($($type:ty = $kind:ident, |$vector:ident| $stored:expr;)*) => {$(
        impl Element for $type {
            type Kind = kinds::$kind;
            #[inline]
            fn stored($vector: &[Self]) -> &[Stored<Self::Kind>] {
                $stored
            }
        }
    )*};
}
elements! {
    f32 = F32, |vector| vector;
    f16 = F16, |vector| vector.reinterpret_cast();
    bf16 = Bf16, |vector| vector.reinterpret_cast();
    i8 = I8, |vector| vector;
    u8 = Bits, |vector| vector;
}

impl FloatElement for f32 {
    fn stored_mut(vector: &mut [f32]) -> &mut [f32] {
        vector
    }
}
impl FloatElement for f16 {
    fn stored_mut(vector: &mut [f16]) -> &mut [u16] {
        vector.reinterpret_cast_mut()
    }
}
impl FloatElement for bf16 {
    fn stored_mut(vector: &mut [bf16]) -> &mut [u16] {
        vector.reinterpret_cast_mut()
    }
}

/// How far apart two vectors are.
///
/// Sums are taken so that results are right to some 1e-7 from the smallest numbers to the largest; those of [`i8`] and of
/// bits are exact. What comes of NaN and infinities follows IEEE; a cosine with them is NaN.
///
/// # Panics
/// If the vectors differ in length; or if `LATTICE_ISA` asks for an instruction set that is not there.
#[inline]
pub fn distance<E: Element>(metric: Metric, a: &[E], b: &[E]) -> f32 {
    DISTANCES.one::<E::Kind>(metric, E::stored(a), E::stored(b))
}

/// Cosine of the angle between two vectors, −1 to 1; 0 if either has no length.
///
/// # Panics
/// As [`distance`].
#[inline]
pub fn cosine<E: Element>(a: &[E], b: &[E]) -> f32 {
    distance(Metric::Cosine, a, b)
}

/// The sum of the products; of bits, how many are set in both.
///
/// # Panics
/// As [`distance`].
#[inline]
pub fn dot<E: Element>(a: &[E], b: &[E]) -> f32 {
    distance(Metric::Dot, a, b)
}

/// The length of the difference of two vectors.
///
/// # Panics
/// As [`distance`].
#[inline]
pub fn euclidean<E: Element>(a: &[E], b: &[E]) -> f32 {
    distance(Metric::Euclidean, a, b)
}

/// The square of the length of the difference of two vectors: the same order as [`euclidean`], without the root.
///
/// # Panics
/// As [`distance`].
#[inline]
pub fn squared_euclidean<E: Element>(a: &[E], b: &[E]) -> f32 {
    distance(Metric::SquaredEuclidean, a, b)
}

/// In how many places two vectors differ; of bits, how many bits.
///
/// # Panics
/// As [`distance`].
#[inline]
pub fn hamming<E: Element>(a: &[E], b: &[E]) -> f32 {
    distance(Metric::Hamming, a, b)
}

/// Divides a vector by its Euclidean length. One of zeros stays as it is; one with NaN or an infinity becomes NaN throughout.
pub fn normalize<E: FloatElement>(vector: &mut [E]) {
    DISTANCES.normalize::<E::Kind>(E::stored_mut(vector));
}

/// A row of a [`Matrix`] and how near it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbor {
    /// The row.
    pub index: usize,
    /// Its distance, or its similarity, from the query.
    pub distance: f32,
}

/// Vectors of the same length one after another, to be searched.
#[derive(Clone, Debug)]
pub struct Matrix<'a, E> {
    numbers: &'a [E],
    width: usize,
    rows: usize,
    inverse_lengths: Option<Vec<f32>>,
}

/// Bytes of a matrix that a thread takes at once.
const PART_BYTES: usize = 128 << 10;

impl<'a, E: Element> Matrix<'a, E> {
    /// The rows of `width` numbers each (of bits: bytes) that `numbers` is made of.
    ///
    /// # Panics
    /// If `width` is 0, or `numbers` are no whole number of rows.
    pub fn new(numbers: &'a [E], width: usize) -> Self {
        assert!(width > 0 && numbers.len().is_multiple_of(width), "{} numbers in rows of {width}", numbers.len());
        Matrix { numbers, width, rows: numbers.len() / width, inverse_lengths: None }
    }

    /// The same with the rows' lengths taken in advance (4 bytes a row), which makes cosines as fast as dot products: for
    /// a matrix that meets many queries. Cosines may then differ from [`cosine`] in the last place.
    pub fn with_lengths(mut self) -> Self {
        let mut lengths = vec![0.0; self.rows];
        DISTANCES.inverse_lengths::<E::Kind>(self.width, E::stored(self.numbers), &mut lengths);
        self.inverse_lengths = Some(lengths);
        self
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Row `index`.
    ///
    /// # Panics
    /// If there is none.
    pub fn row(&self, index: usize) -> &'a [E] {
        assert!(index < self.rows, "row {index} of {}", self.rows);
        &self.numbers[index * self.width..][..self.width]
    }

    /// The distances of a query from all rows.
    ///
    /// # Panics
    /// If the query is not as long as a row.
    pub fn distances(&self, metric: Metric, query: &[E]) -> Vec<f32> {
        let mut out = vec![0.0; self.rows];
        self.distances_of(metric, query, 0, &mut out);
        out
    }

    /// The `k` rows that are nearest to a query, nearest first, all of them if there are not more than `k`. Of rows that
    /// are equally near the first comes first, and those whose distance is NaN come last. The same whatever the number of
    /// threads.
    ///
    /// # Panics
    /// If the query is not as long as a row.
    pub fn nearest(&self, pool: &Pool, metric: Metric, query: &[E], k: usize) -> Vec<Neighbor> {
        let order =
            |a: &Neighbor, b: &Neighbor| metric.nearer_first(a.distance, b.distance).then(a.index.cmp(&b.index));
        let keep = |neighbors: &mut Vec<Neighbor>| {
            if neighbors.len() > k {
                if k > 0 {
                    neighbors.select_nth_unstable_by(k - 1, order);
                }
                neighbors.truncate(k);
            }
        };
        let together = (PART_BYTES / size_of_val(query).max(1)).clamp(1, self.rows.max(1));
        let mut parts: Vec<Vec<Neighbor>> = vec![Vec::new(); self.rows.div_ceil(together)];
        pool.chunks(&mut parts, 1, |i, part| {
            let first = i * together;
            let mut distances = vec![0.0; together.min(self.rows - first)];
            self.distances_of(metric, query, first, &mut distances);
            let neighbor = |(i, distance)| Neighbor { index: first + i, distance };
            part[0] = distances.into_iter().enumerate().map(neighbor).collect();
            keep(&mut part[0]);
        });
        let mut nearest = parts.into_iter().fold(Vec::new(), |mut nearest, part| {
            nearest.extend(part);
            keep(&mut nearest);
            nearest
        });
        nearest.sort_unstable_by(order);
        nearest
    }

    /// The distances from the rows that begin with `first`.
    fn distances_of(&self, metric: Metric, query: &[E], first: usize, out: &mut [f32]) {
        assert_eq!(query.len(), self.width, "numbers of the query and of the matrix' rows");
        let query = E::stored(query);
        let rows = E::stored(&self.numbers[first * self.width..][..out.len() * self.width]);
        match &self.inverse_lengths {
            Some(lengths) if metric == Metric::Cosine => {
                DISTANCES.cosines::<E::Kind>(query, rows, &lengths[first..][..out.len()], out);
            }
            _ => DISTANCES.many::<E::Kind>(metric, query, rows, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &[Metric] = Metric::ALL;

    #[test]
    fn cosine_is_about_direction_only() {
        assert_eq!(cosine(&[1.0, 2.0], &[2.0, 4.0]), 1.0);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 3.0]), 0.0);
        assert_eq!(cosine(&[0.0, 0.0], &[0.0, 3.0]), 0.0);
    }

    #[test]
    fn every_kind_of_number_has_its_distances() {
        let vectors = [[0.5f32, -1.0, 0.0], [1.0, 1.0, 2.0]];
        let halves = vectors.map(|v| v.map(f16::from_f32));
        let brains = vectors.map(|v| v.map(bf16::from_f32));
        let bytes = [[1i8, -2, 0], [2, 2, 4]];
        for (metric, want) in [(Metric::Dot, -0.5), (Metric::SquaredEuclidean, 8.25), (Metric::Hamming, 3.0)] {
            assert_eq!(distance(metric, &vectors[0], &vectors[1]), want, "{metric:?}");
            assert_eq!(distance(metric, &halves[0], &halves[1]), want, "{metric:?} f16");
            assert_eq!(distance(metric, &brains[0], &brains[1]), want, "{metric:?} bf16");
        }
        assert_eq!((dot(&bytes[0], &bytes[1]), squared_euclidean(&bytes[0], &bytes[1])), (-2.0, 33.0));
        assert_eq!(euclidean(&[0i8, 3], &[4, 0]), 5.0);
        assert_eq!((hamming(&[0b1011u8], &[0b0001]), dot(&[0b1011u8], &[0b0001])), (2.0, 1.0));
    }

    #[test]
    fn a_zero_vector_stays_zero() {
        let mut zero = [0.0; 3];
        normalize(&mut zero);
        assert_eq!(zero, [0.0; 3]);
        let mut half = [f16::from_f32(3.0), f16::from_f32(4.0)];
        normalize(&mut half);
        assert_eq!(half.map(f16::to_f32), [0.6, 0.8].map(|x| f16::from_f32(x).to_f32()));
    }

    /// Rows among which many are equally near.
    fn rows(count: usize, width: usize) -> Vec<f32> {
        (0..count * width).map(|i| ((i / width * 7919 + i % width * 31) % 11) as f32 - 5.0).collect()
    }

    #[test]
    fn nearest_is_the_sorted_list_of_all_whatever_the_threads() {
        let width = 40;
        let query: Vec<f32> = (0..width).map(|i| (i % 5) as f32 - 1.5).collect();
        for count in [0, 1, 17, 5000] {
            let mut numbers = rows(count, width);
            if count > 10 {
                numbers[3 * width] = f32::NAN;
                numbers[9 * width + 39] = f32::NAN;
            }
            let matrix = Matrix::new(&numbers, width);
            for &metric in METRICS {
                let mut want: Vec<Neighbor> = matrix
                    .distances(metric, &query)
                    .into_iter()
                    .enumerate()
                    .map(|(index, distance)| Neighbor { index, distance })
                    .collect();
                want.sort_by(|a, b| metric.nearer_first(a.distance, b.distance).then(a.index.cmp(&b.index)));
                for threads in [1, 3] {
                    let pool = Pool::new(threads).unwrap();
                    for k in [0, 1, 10, count, count + 5] {
                        let got = matrix.nearest(&pool, metric, &query, k);
                        let want = &want[..k.min(count)];
                        let same = |(a, b): (&Neighbor, &Neighbor)| {
                            a.index == b.index && a.distance.to_bits() == b.distance.to_bits()
                        };
                        assert!(
                            got.len() == want.len() && got.iter().zip(want).all(same),
                            "{metric:?}, {k} of {count}, {threads} threads: {got:?} for {want:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn lengths_known_in_advance_change_nothing_but_the_last_place() {
        let numbers = rows(300, 100);
        let query = rows(1, 100);
        let (plain, known) = (Matrix::new(&numbers, 100), Matrix::new(&numbers, 100).with_lengths());
        for (a, b) in plain.distances(Metric::Cosine, &query).iter().zip(known.distances(Metric::Cosine, &query)) {
            assert!((a - b).abs() < 3e-7, "{a} and {b}");
        }
        assert_eq!(plain.distances(Metric::Dot, &query), known.distances(Metric::Dot, &query));
        assert_eq!((known.rows(), known.width(), known.row(299).len()), (300, 100, 100));
    }

    #[test]
    #[should_panic(expected = "7 numbers in rows of 3")]
    fn refuses_numbers_that_are_no_whole_rows() {
        Matrix::new(&[0.0f32; 7], 3);
    }

    #[test]
    #[should_panic(expected = "numbers of the query and of the matrix' rows")]
    fn refuses_a_query_of_another_length() {
        Matrix::new(&[0.0f32; 6], 3).distances(Metric::Dot, &[0.0]);
    }
}
