//! The angles of rotary positions (Su et al. 2021, "RoFormer"), computed on the host once a forward pass.

use crate::model::Forward;
use ops::{Act, Rope, RopeLayout};
use std::borrow::Cow;
use std::collections::HashMap;

/// How positions turn the heads of some layers.
#[derive(Clone, Debug, PartialEq)]
pub struct Rotary {
    /// What is turned.
    pub rope: Rope,
    /// Radians that a step turns each pair of features, `[rotary / 2]`.
    pub frequencies: Vec<f64>,
    /// Multiplies cosines and sines.
    pub amplitude: f64,
    /// Sequences longer than this are turned more slowly.
    pub growth: Option<Growth>,
}

/// NTK-aware scaling by length ("dynamic"): beyond `window` tokens a sequence's base grows with its length. Its result for
/// a long text depends on how many passes the text came in, because keys of earlier passes were turned faster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// Tokens up to which nothing changes.
    pub window: usize,
    /// The base up to there.
    pub base: f64,
    /// How fast it grows.
    pub factor: f64,
}

impl Rotary {
    /// The first `rotary` features of a head, by `base^(-2i / rotary)`.
    pub fn plain(head_dim: usize, rotary: usize, base: f64) -> Rotary {
        let rope = Rope { head_dim, rotary, layout: RopeLayout::Half };
        Rotary { rope, frequencies: frequencies(rotary, base), amplitude: 1.0, growth: None }
    }

    /// Cosines, then sines, of each token's position times the frequencies: `[tokens, rotary]`, in f64 up to here.
    pub fn angles(&self, cx: &Forward) -> Act {
        let (tokens, rotary) = (cx.batch.tokens(), self.rope.rotary);
        let mut angles: Vec<f32> = Vec::with_capacity(tokens * rotary);
        let mut row_of = HashMap::new(); // sequences share their positions: each is computed once
        for (sequence, span) in cx.batch.spans.iter().enumerate() {
            let (length, frequencies) = self.for_length(cx.batch.past(sequence) + span.len);
            for &position in &cx.batch.positions[span.range()] {
                let row = angles.len();
                let first = *row_of.entry((position, length)).or_insert(row);
                if first < row {
                    angles.extend_from_within(first..first + rotary);
                } else {
                    let turned = frequencies.iter().map(|f| f64::from(position) * f);
                    angles.extend(turned.clone().map(|a| (a.cos() * self.amplitude) as f32));
                    angles.extend(turned.map(|a| (a.sin() * self.amplitude) as f32));
                }
            }
        }
        cx.ops.input(tokens, rotary, angles)
    }

    /// The frequencies for a sequence of so many tokens, and the length that they are for; 0 is any.
    fn for_length(&self, tokens: usize) -> (usize, Cow<'_, [f64]>) {
        match self.growth {
            Some(Growth { window, base, factor }) if tokens > window => {
                let rotary = self.rope.rotary as f64;
                let stretch = factor * tokens as f64 / window as f64 - (factor - 1.0);
                let base = base * stretch.powf(rotary / (rotary - 2.0));
                (tokens, Cow::Owned(frequencies(self.rope.rotary, base)))
            }
            _ => (0, Cow::Borrowed(&self.frequencies)),
        }
    }
}

/// `base^(-2i / rotary)` for `i < rotary / 2`.
fn frequencies(rotary: usize, base: f64) -> Vec<f64> {
    (0..rotary / 2).map(|i| base.powf(-2.0 * i as f64 / rotary as f64)).collect()
}

/// The angles of [`Rotary::plain`].
pub fn angles(cx: &Forward, rotary: usize, base: f64) -> Act {
    Rotary::plain(rotary, rotary, base).angles(cx)
}
