//! How long does a distance take, ours and others'? All contestants in one process, on the same vectors, in turns.
//!
//! A turn is a loop of some hundred microseconds; a figure is the median of all turns, so that a moment in which the machine
//! was busy elsewhere is none of them. One pair of vectors lies in the L1 cache; the thousand of a matrix lie where they fit.

use std::hint::black_box;
use std::time::Instant;

use lattice_kernels::distance::{Bf16, Bits, Element, F16, F32, I8};
use lattice_kernels::{Distances, Metric, f32_to_bf16, f32_to_f16};
use numkong::{Angular, Angulars, PackedMatrix, StorageElement, Tensor};
use simsimd::SpatialSimilarity;

const ROWS: usize = 1000;
/// A turn, in seconds.
const TURN: f64 = 300e-6;

struct Contestant<'a> {
    name: &'static str,
    run: Box<dyn FnMut() + 'a>,
}

fn contestant<'a>(name: &'static str, run: impl FnMut() + 'a) -> Contestant<'a> {
    Contestant { name, run: Box::new(run) }
}

struct Bench {
    ours: &'static Distances,
    words: Vec<String>,
    rounds: usize,
    json: bool,
}

fn main() {
    let mut bench =
        Bench { ours: Distances::best().expect("an instruction set"), words: vec![], rounds: 101, json: false };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--json" => bench.json = true,
            "--rounds" => bench.rounds = args.next().and_then(|n| n.parse().ok()).expect("--rounds N"),
            _ => bench.words.push(arg),
        }
    }
    numkong::configure_thread();
    eprintln!(
        "lattice: {}; nanoseconds, median (first to third quartile) of {} turns",
        bench.ours.name(),
        bench.rounds
    );
    for dims in [384, 768, 1024, 1000] {
        bench.floats(dims);
        bench.halves(dims);
        bench.bytes(dims);
        bench.bits(dims);
    }
}

/// A pair, and a matrix by one call of ours and loops over pairs of others.
macro_rules! pair_and_matrix {
    ($bench:ident, $kind:ty, $name:literal, $dims:ident, $metric:expr, $ours:expr, $simsimd:expr, $numkong:expr,
     $simsimd_fn:expr, $numkong_fn:expr) => {{
        let ((a, rows), (sa, srows), (na, nrows)) = (&$ours, &$simsimd, &$numkong);
        let width = a.len();
        let ours = $bench.ours;
        let title = |what: &str| format!("{:?} {} {} {what}", $metric, $name, $dims);
        $bench.measure(
            &title("pair"),
            vec![
                contestant("lattice", || {
                    black_box(ours.one::<$kind>($metric, black_box(a), black_box(&rows[..width])));
                }),
                contestant("simsimd", || {
                    black_box(($simsimd_fn)(black_box(&sa[..]), black_box(&srows[..width])));
                }),
                contestant("numkong", || {
                    black_box(($numkong_fn)(black_box(&na[..]), black_box(&nrows[..width])));
                }),
            ],
        );
        let mut out = vec![0f32; ROWS];
        let (mut simsimd_out, mut numkong_out) = (vec![0f32; ROWS], vec![0f32; ROWS]);
        let all = vec![
            contestant("lattice", || ours.many::<$kind>($metric, black_box(a), black_box(rows), black_box(&mut out))),
            contestant("simsimd", || {
                for (row, out) in srows.chunks_exact(width).zip(&mut simsimd_out) {
                    *out = ($simsimd_fn)(&sa[..], row).unwrap() as f32;
                }
                black_box(&mut simsimd_out);
            }),
            contestant("numkong", || {
                for (row, out) in nrows.chunks_exact(width).zip(&mut numkong_out) {
                    *out = ($numkong_fn)(&na[..], row).unwrap() as f32;
                }
                black_box(&mut numkong_out);
            }),
        ];
        $bench.measure(&title("1 x 1000"), all);
    }};
}

impl Bench {
    fn floats(&self, dims: usize) {
        let (a, rows) = (random(1, dims), random(2, dims * ROWS));
        let both = (a.clone(), rows.clone());
        // NumKong's own one-to-many: rows packed beforehand, which its time leaves out.
        self.prepared::<F32, f32, f64>("f32", &a, &rows);
        pair_and_matrix!(
            self,
            F32,
            "f32",
            dims,
            Metric::Cosine,
            both,
            both,
            both,
            <f32 as SpatialSimilarity>::cos,
            f32::angular
        );
        pair_and_matrix!(
            self,
            F32,
            "f32",
            dims,
            Metric::Dot,
            both,
            both,
            both,
            <f32 as SpatialSimilarity>::dot,
            <f32 as numkong::Dot>::dot
        );
        pair_and_matrix!(
            self,
            F32,
            "f32",
            dims,
            Metric::SquaredEuclidean,
            both,
            both,
            both,
            f32::l2sq,
            <f32 as numkong::Euclidean>::sqeuclidean
        );
    }

    fn halves(&self, dims: usize) {
        let (a, rows) = (random(1, dims), random(2, dims * ROWS));
        let all = |f: fn(f32) -> u16| -> (Vec<u16>, Vec<u16>) {
            (a.iter().map(|&x| f(x)).collect(), rows.iter().map(|&x| f(x)).collect())
        };
        fn wrap<T>((a, rows): &(Vec<u16>, Vec<u16>), f: fn(u16) -> T) -> (Vec<T>, Vec<T>) {
            (a.iter().map(|&x| f(x)).collect(), rows.iter().map(|&x| f(x)).collect())
        }
        let half = all(f32_to_f16);
        pair_and_matrix!(
            self,
            F16,
            "f16",
            dims,
            Metric::Cosine,
            half,
            wrap(&half, simsimd::f16),
            wrap(&half, numkong::f16),
            simsimd::f16::cos,
            numkong::f16::angular
        );
        let brain = all(f32_to_bf16);
        pair_and_matrix!(
            self,
            Bf16,
            "bf16",
            dims,
            Metric::Cosine,
            brain,
            wrap(&brain, simsimd::bf16),
            wrap(&brain, numkong::bf16),
            simsimd::bf16::cos,
            numkong::bf16::angular
        );
    }

    fn bytes(&self, dims: usize) {
        let bytes = |x: Vec<f32>| -> Vec<i8> { x.iter().map(|x| (x * 127.0) as i8).collect() };
        let both = (bytes(random(1, dims)), bytes(random(2, dims * ROWS)));
        self.prepared::<I8, i8, f32>("i8", &both.0, &both.1);
        pair_and_matrix!(self, I8, "i8", dims, Metric::Cosine, both, both, both, i8::cos, i8::angular);
        pair_and_matrix!(
            self,
            I8,
            "i8",
            dims,
            Metric::Dot,
            both,
            both,
            both,
            <i8 as SpatialSimilarity>::dot,
            <i8 as numkong::Dot>::dot
        );
    }

    fn bits(&self, dims: usize) {
        let bits = |x: Vec<f32>| -> Vec<u8> { x.iter().map(|x| (x * 127.0) as i8 as u8).collect() };
        let (a, rows) = (bits(random(1, dims / 8)), bits(random(2, dims / 8 * ROWS)));
        let wrapped = (
            a.iter().map(|&x| numkong::u1x8(x)).collect::<Vec<_>>(),
            rows.iter().map(|&x| numkong::u1x8(x)).collect::<Vec<_>>(),
        );
        let both = (a, rows);
        pair_and_matrix!(
            self,
            Bits,
            "bits",
            dims,
            Metric::Hamming,
            both,
            both,
            wrapped,
            <u8 as simsimd::BinarySimilarity>::hamming,
            <numkong::u1x8 as numkong::Hamming>::hamming
        );
    }

    /// A matrix that meets many queries: rows packed, and their lengths taken, before the clock runs.
    fn prepared<E, T, R>(&self, name: &str, query: &[T], rows: &[T])
    where
        E: Element<Stored = T>,
        T: Angulars<SpatialResult = R> + Clone,
        R: StorageElement + Clone + Default,
    {
        let dims = query.len();
        let packed = PackedMatrix::pack(&Tensor::<T>::from_slice(rows, &[ROWS, dims]));
        let tensor = Tensor::<T>::from_slice(query, &[1, dims]);
        let mut angles = Tensor::<R>::try_zeros(&[1, ROWS]).expect("memory");
        let (mut lengths, mut out) = (vec![0f32; ROWS], vec![0f32; ROWS]);
        self.ours.inverse_lengths::<E>(dims, rows, &mut lengths);
        self.measure(
            &format!("Cosine {name} {dims} 1 x 1000 prepared"),
            vec![
                contestant("lattice", || {
                    self.ours.cosines::<E>(black_box(query), black_box(rows), &lengths, black_box(&mut out))
                }),
                contestant("numkong packed", || {
                    tensor.try_angulars_packed_into(&packed, black_box(&mut angles)).expect("shapes")
                }),
            ],
        );
    }

    fn measure(&self, title: &str, mut contestants: Vec<Contestant>) {
        if !self.words.iter().all(|word| title.to_lowercase().split(' ').any(|part| part == word.to_lowercase())) {
            return;
        }
        let calls: Vec<usize> = contestants
            .iter_mut()
            .map(|c| {
                (0..20).for_each(|_| (c.run)());
                let start = Instant::now();
                (0..20).for_each(|_| (c.run)());
                (TURN / (start.elapsed().as_secs_f64() / 20.0)).ceil() as usize
            })
            .collect();
        let mut times = vec![Vec::new(); contestants.len()];
        for round in 0..self.rounds {
            for turn in 0..contestants.len() {
                let i = (round + turn) % contestants.len();
                (contestants[i].run)();
                let start = Instant::now();
                (0..calls[i]).for_each(|_| (contestants[i].run)());
                times[i].push(start.elapsed().as_secs_f64() / calls[i] as f64 * 1e9);
            }
        }
        times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
        let at = |i: usize, quarter: usize| times[i][times[i].len() * quarter / 4];
        let best_peer = (1..contestants.len()).map(|i| at(i, 2)).fold(f64::INFINITY, f64::min);
        let ratio = best_peer / at(0, 2);
        if self.json {
            let one = |(i, c): (usize, &Contestant)| {
                format!("\"{}\":{{\"ns\":{:.2},\"q1\":{:.2},\"q3\":{:.2}}}", c.name, at(i, 2), at(i, 1), at(i, 3))
            };
            let all: Vec<String> = contestants.iter().enumerate().map(one).collect();
            println!("{{\"what\":\"{title}\",\"times_best_peer\":{ratio:.3},{}}}", all.join(","));
            return;
        }
        print!("{title:36} {ratio:5.2} x best peer ");
        for (i, c) in contestants.iter().enumerate() {
            print!("  {} {:.1} ({:.1}–{:.1})", c.name, at(i, 2), at(i, 1), at(i, 3));
        }
        println!();
    }
}

/// `len` numbers in −1..1.
fn random(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}
