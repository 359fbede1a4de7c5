//! What is this machine, and how fast does it read? As far as the system tells.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// A line of a file of Linux's `/proc`, `NAME: … kB`, in bytes; None on other systems.
fn proc_bytes(file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Memory in all, in bytes.
pub(crate) fn memory() -> Option<u64> {
    proc_bytes("/proc/meminfo", "MemTotal")
}

/// Memory that programs may still take, in bytes.
pub(crate) fn free_memory() -> Option<u64> {
    proc_bytes("/proc/meminfo", "MemAvailable")
}

/// The most memory that this process had, in bytes.
pub(crate) fn peak_memory() -> Option<u64> {
    proc_bytes("/proc/self/status", "VmHWM")
}

/// What the processor calls itself.
pub(crate) fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Passes over the buffer; the fastest counts.
const PASSES: usize = 5;
/// Bytes of a pass at least, so that starting the threads does not count.
const LEAST: usize = 256 << 20;

/// Bytes a second that so many threads read together from a buffer of so many bytes.
pub(crate) fn read_bandwidth(bytes: usize, threads: usize) -> f64 {
    let buffer: Vec<u64> = (0..(bytes / 8).max(1) as u64).collect();
    let part = buffer.len().div_ceil(threads.max(1));
    let rounds = (LEAST / bytes.max(1)).max(1);
    let pass = || {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for part in buffer.chunks(part) {
                scope.spawn(move || (0..rounds).map(|_| sum(black_box(part))).for_each(|sum| _ = black_box(sum)));
            }
        });
        start.elapsed()
    };
    let best = (0..PASSES).map(|_| pass()).min().unwrap_or(Duration::MAX);
    (rounds * buffer.len() * 8) as f64 / best.as_secs_f64()
}

/// Eight sums abreast, so that the loads are what takes the time.
fn sum(values: &[u64]) -> u64 {
    let (blocks, rest) = values.as_chunks::<8>();
    let mut sums = [0u64; 8];
    for block in blocks {
        for (sum, value) in sums.iter_mut().zip(block) {
            *sum = sum.wrapping_add(*value);
        }
    }
    sums.iter().chain(rest).fold(0, |all, value| all.wrapping_add(*value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_takes_every_value_and_some_time() {
        assert_eq!(sum(&(1..=21).collect::<Vec<u64>>()), 231);
        let speed = read_bandwidth(1 << 20, 2);
        assert!(speed.is_finite() && speed > 0.0);
    }
}
