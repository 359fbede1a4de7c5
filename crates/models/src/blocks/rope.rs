//! The angles of rotary positions (Su et al. 2021, "RoFormer"), computed on the host once a forward pass.

use crate::model::Forward;
use ops::Act;
use std::collections::HashMap;

/// Cosines, then sines, of `position · base^(-2i / rotary)` for `i < rotary / 2`: `[tokens, rotary]`, in f64 up to here.
pub fn angles(cx: &Forward, rotary: usize, base: f64) -> Act {
    let frequencies: Vec<f64> = (0..rotary / 2).map(|i| base.powf(-2.0 * i as f64 / rotary as f64)).collect();
    let tokens = cx.batch.tokens();
    let mut angles: Vec<f32> = Vec::with_capacity(tokens * rotary);
    let mut row_of = HashMap::new(); // sequences share their positions: each is computed once
    for &position in &cx.batch.positions {
        let row = angles.len();
        let first = *row_of.entry(position).or_insert(row);
        if first < row {
            angles.extend_from_within(first..first + rotary);
        } else {
            let turned = frequencies.iter().map(|f| f64::from(position) * f);
            angles.extend(turned.clone().map(|a| a.cos() as f32));
            angles.extend(turned.map(|a| a.sin() as f32));
        }
    }
    cx.ops.input(tokens, rotary, angles)
}
