//! The loops over a whole row of logits, written so that the compiler vectorises them.

const LANES: usize = 16;

/// The largest value; −∞ of nothing.
pub(super) fn max(row: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let (chunks, rest) = row.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] = larger(lanes[i], chunk[i]);
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |a, &b| larger(a, b))
}

/// Index of the first value that is NaN or +∞.
pub(super) fn not_finite(row: &[f32]) -> Option<usize> {
    let bad = |x: f32| x.is_nan() || x == f32::INFINITY;
    let block = row.chunks(1024).position(|block| block.iter().fold(false, |any, &x| any | bad(x)))?;
    row[block * 1024..].iter().position(|&x| bad(x)).map(|i| block * 1024 + i)
}

/// The sum in f64.
pub(super) fn sum(row: &[f32]) -> f64 {
    let (chunks, rest) = row.as_chunks::<LANES>();
    let mut lanes = [0f64; LANES];
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] += f64::from(chunk[i]);
        }
    }
    lanes.iter().sum::<f64>() + rest.iter().map(|&x| f64::from(x)).sum::<f64>()
}

/// Sum of exp(x − max) in f64.
pub(super) fn sum_exp(row: &[f32], max: f32) -> f64 {
    let mut block = [0f32; 1024];
    let mut total = 0.0;
    for part in row.chunks(block.len()) {
        let block = &mut block[..part.len()];
        block.iter_mut().zip(part).for_each(|(y, &x)| *y = exp(x - max));
        total += sum(block);
    }
    total
}

/// The probabilities exp(x − max) / total.
pub(super) fn softmax(row: &[f32], max: f32) -> Vec<f32> {
    let total = sum_exp(row, max) as f32;
    row.iter().map(|&x| exp(x - max) / total).collect()
}

/// e^x for x ≤ 0, to about 1e-7 of it; 0 where the result would be subnormal.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    // x = n ln 2 + r with |r| ≤ ln 2 / 2; adding 1.5 · 2²³ leaves n in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    let clamped = if x < -87.0 { -87.0 } else { x };
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    // ln 2 in two parts, the first with so few bits that its product with n is exact.
    let r = clamped - n * 0.693_359_4 - n * -2.121_944_4e-4;
    // Minimax polynomial of Cephes' expf.
    let mut p = 1.987_569_1e-4;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5] {
        p = p * r + c;
    }
    let value = (p * r * r + r + 1.0) * f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    if x < -87.0 { 0.0 } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_right_to_float32() {
        for i in 0..=870_000 {
            let x = -(i as f32) * 1e-4;
            let (ours, right) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((ours / right - 1.0).abs() < 2e-7, "exp({x}) = {ours}, expected {right}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
    }

    #[test]
    fn whole_rows_and_tails_count() {
        for n in 0..70 {
            let row: Vec<f32> = (0..n).map(|i| ((i * 37) % 71) as f32 - 80.0).collect();
            let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(max(&row), largest);
            assert_eq!(sum(&row), row.iter().map(|&x| f64::from(x)).sum::<f64>());
            let exact: f64 = row.iter().map(|&x| f64::from(x - largest).exp()).sum();
            assert!((sum_exp(&row, largest) - exact).abs() <= exact * 1e-6);
        }
        let mut row = vec![f32::NEG_INFINITY; 3000];
        assert_eq!(not_finite(&row), None);
        row[2049] = f32::NAN;
        row[2500] = f32::INFINITY;
        assert_eq!(not_finite(&row), Some(2049));
    }
}
