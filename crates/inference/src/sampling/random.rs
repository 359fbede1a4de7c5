//! Random numbers that are a function of seed and position, so that there is no state to keep, share or roll back.

use std::hash::{BuildHasher, Hasher, RandomState};

/// SplitMix64 (Steele, Lea and Flood 2014) at any position: its state is a counter, its output a hash of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Random {
    start: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        // Hashed once, so that neighbouring seeds do not start at neighbouring counters.
        Random { start: mix(seed.wrapping_add(GAMMA)) }
    }

    /// A number in [0, 1) with 53 random bits.
    pub(super) fn at(self, position: u64) -> f64 {
        let bits = mix(self.start.wrapping_add(GAMMA.wrapping_mul(position.wrapping_add(1))));
        (bits >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A seed from the operating system's randomness, by way of the keys of std's hash maps.
pub(super) fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_as_the_published_generator() {
        // First outputs of SplitMix64 with state 1234567, as in the reference implementation.
        let outputs: Vec<u64> = (1..4).map(|i| mix(1234567u64.wrapping_add(GAMMA.wrapping_mul(i)))).collect();
        assert_eq!(outputs, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }

    #[test]
    fn is_uniform_over_positions_and_over_seeds() {
        for draw in [|i| Random::new(7).at(i), |i| Random::new(i).at(7), |i| Random::new(i).at(i)] {
            let mut buckets = [0i32; 16];
            (0..16_000).for_each(|i| buckets[(draw(i) * 16.0) as usize] += 1);
            assert!(buckets.iter().all(|&n| (n - 1000).abs() < 150), "{buckets:?}");
        }
    }
}
