//! Selection from a whole vocabulary without sorting it.

use super::numeric::{exp, max, sum};

/// A candidate at the border of a filter.
#[derive(Clone, Copy)]
pub(super) struct Item {
    pub(super) key: f32,
    pub(super) weight: f32,
    pub(super) index: u32,
}

/// The `k` largest values above −∞ with their indices, in order of index, and those equal to the last of them.
pub(super) fn largest(row: &[f32], k: usize) -> Vec<(u32, f32)> {
    const BLOCK: usize = 64;
    let mut kept: Vec<(u32, f32)> = Vec::new();
    if k == 0 {
        return kept;
    }
    let descending = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1);
    // At least k values seen so far are ≥ this one.
    let mut threshold = f32::NEG_INFINITY;
    let mut shrink_at = 2 * k.max(BLOCK);
    let shrink = |kept: &mut Vec<(u32, f32)>| {
        if kept.len() > k {
            let kth = kept.clone().select_nth_unstable_by(k - 1, descending).1.1;
            kept.retain(|&(_, x)| x >= kth);
            return kth;
        }
        f32::NEG_INFINITY
    };
    for (block, values) in row.chunks(BLOCK).enumerate() {
        if max(values) < threshold {
            continue;
        }
        for (i, &x) in values.iter().enumerate() {
            if x >= threshold && x > f32::NEG_INFINITY {
                kept.push(((block * BLOCK + i) as u32, x));
            }
        }
        if kept.len() >= shrink_at {
            threshold = shrink(&mut kept);
            shrink_at = 2 * kept.len().max(BLOCK);
        }
    }
    shrink(&mut kept);
    kept
}

/// Coarse place of a value from 0 up to +∞: a larger one never has a smaller place. Four an octave.
pub(super) fn place(value: f32) -> usize {
    (value.to_bits() >> 21) as usize
}

/// In ascending order of `keys` (0 to +∞), the place where the cumulated weight no longer passes, and the weight below
/// that place.
pub(super) fn border_place(keys: &[f32], weights: &[f32], pass: impl Fn(f32) -> bool) -> (usize, f64) {
    let mut sums = [0f64; 1 + (u32::MAX >> 21) as usize];
    let mut last = 0;
    for (&key, &weight) in keys.iter().zip(weights) {
        sums[place(key)] += f64::from(weight);
        last = last.max(place(key));
    }
    let mut below = 0.0;
    for (place, sum) in sums[..last].iter().enumerate() {
        if !pass((below + sum) as f32) {
            return (place, below);
        }
        below += sum;
    }
    (last, below)
}

/// Puts the items in such an order that those before the returned index are smaller (by key, then index), the item there
/// is the first whose cumulated weight (with all before it and `cumulative`) does not `pass`, and the others follow. The
/// last one counts as that if all pass.
pub(super) fn border(items: &mut [Item], mut cumulative: f64, pass: impl Fn(f32) -> bool) -> usize {
    let order = |a: &Item, b: &Item| (a.key + 0.0).total_cmp(&(b.key + 0.0)).then(a.index.cmp(&b.index));
    let (mut start, mut end) = (0, items.len());
    while end - start > 32 {
        let half = (end - start) / 2;
        items[start..end].select_nth_unstable_by(half - 1, order);
        let weight: f64 = items[start..start + half].iter().map(|item| f64::from(item.weight)).sum();
        if pass((cumulative + weight) as f32) {
            cumulative += weight;
            start += half;
        } else {
            end = start + half;
        }
    }
    items[start..end].sort_unstable_by(order);
    for (i, item) in items[start..end].iter().enumerate() {
        cumulative += f64::from(item.weight);
        if !pass(cumulative as f32) {
            return start + i;
        }
    }
    items.len().saturating_sub(1).min(end)
}

/// Index at `u` in [0, 1) of the cumulated softmax; None if all are −∞. Overwrites the logits with weights.
pub(super) fn pick(logits: &mut [f32], u: f64) -> Option<usize> {
    const BLOCK: usize = 1024;
    let max = max(logits);
    if max == f32::NEG_INFINITY {
        return None;
    }
    logits.iter_mut().for_each(|x| *x = exp(*x - max));
    let sums: Vec<f64> = logits.chunks(BLOCK).map(sum).collect();
    let mut left = u * sums.iter().sum::<f64>();
    let mut last = None;
    for (block, (weights, total)) in logits.chunks(BLOCK).zip(sums).enumerate() {
        if left >= total {
            // Rounding may put the border behind the last block: then the last token of any weight is it.
            left -= total;
            last = weights.iter().rposition(|&w| w > 0.0).map(|i| block * BLOCK + i).or(last);
            continue;
        }
        for (i, &weight) in weights.iter().enumerate() {
            if weight > 0.0 {
                last = Some(block * BLOCK + i);
                left -= f64::from(weight);
                if left < 0.0 {
                    return last;
                }
            }
        }
        left = left.max(0.0);
    }
    last
}
