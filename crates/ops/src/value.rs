//! The values that operations take and return: activations, weights as an executor keeps them, and sequence spans.

use std::any::Any;
use std::sync::Arc;

/// What an executor keeps behind an [`Act`] or a [`Weight`]; only that executor looks inside.
type Opaque = Arc<dyn Any + Send + Sync>;

/// An activation: a row-major f32 matrix `[rows, cols]` somewhere on the executor's device.
///
/// Passing it by value lets the callee reuse its memory; dropping the last copy returns the memory to the executor.
#[derive(Clone, Debug)]
pub struct Act {
    rows: usize,
    cols: usize,
    buffer: Opaque,
}

impl Act {
    /// Wraps an executor's buffer.
    pub fn new(rows: usize, cols: usize, buffer: impl Any + Send + Sync) -> Act {
        Act { rows, cols, buffer: Arc::new(buffer) }
    }

    /// Rows: tokens, or sequences after pooling.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Features of a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The executor's own buffer. Panics if another executor made it: acts do not move between executors.
    pub fn buffer<B: Any>(&self) -> &B {
        self.buffer.downcast_ref().expect("an activation of this executor")
    }

    /// The buffer, if nobody else holds it: then its memory may be written.
    pub fn exclusive<B: Any>(&mut self) -> Option<&mut B> {
        Arc::get_mut(&mut self.buffer)?.downcast_mut()
    }
}

/// A parameter as an executor made it at upload: mapped, repacked for an instruction set, or sent to a device.
#[derive(Clone, Debug)]
pub struct Weight(Opaque);

impl Weight {
    /// Wraps what an executor made.
    pub fn new(inner: impl Any + Send + Sync) -> Weight {
        Weight(Arc::new(inner))
    }

    /// What the executor made. Panics if another executor made it.
    pub fn inner<W: Any>(&self) -> &W {
        self.0.downcast_ref().expect("a weight of this executor and role")
    }
}

/// A parameter vector `[len]`: a bias, a norm's weight, a table of attention biases.
#[derive(Clone, Debug)]
pub struct Vector {
    /// Number of values.
    pub len: usize,
    /// The executor's copy.
    pub weight: Weight,
}

/// An embedding table `[rows, cols]`, read by row.
#[derive(Clone, Debug)]
pub struct Table {
    /// Number of entries (vocabulary, positions, types).
    pub rows: usize,
    /// Features of an entry.
    pub cols: usize,
    /// The executor's copy.
    pub weight: Weight,
}

/// Which matrix of a model a [`Linear`] is: where adapters, importance collection and timing find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Layer index; matrices outside the layers (heads) have `None`.
    pub layer: Option<u32>,
    /// Name inside the layer, in the checkpoint's own words: `attention.self.query`, `mlp.down_proj`.
    pub name: &'static str,
}

/// A linear layer `y = x · Wᵀ + b` with `W: [outputs, inputs]`.
#[derive(Clone, Debug)]
pub struct Linear {
    /// The matrix.
    pub weight: Weight,
    /// `[outputs]`.
    pub bias: Option<Vector>,
    /// Features in.
    pub inputs: usize,
    /// Features out.
    pub outputs: usize,
    /// Which matrix of the model this is.
    pub key: Key,
}

/// The statistics a [`Norm`] takes out of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Mean and variance (LayerNorm).
    Layer,
    /// Root mean square (RMSNorm).
    Rms,
}

/// A normalisation over groups of `weight.len` features: a whole row, or each head of a row.
#[derive(Clone, Debug)]
pub struct Norm {
    /// Which statistics.
    pub kind: NormKind,
    /// Scale; its length is the width of a group.
    pub weight: Vector,
    /// Shift, same length.
    pub bias: Option<Vector>,
    /// Added to the variance or mean square.
    pub eps: f32,
}

/// Where one sequence's rows lie in a ragged batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First row.
    pub start: usize,
    /// Number of rows.
    pub len: usize,
}

impl Span {
    /// The rows as a range.
    pub fn range(self) -> std::ops::Range<usize> {
        self.start..self.start + self.len
    }
}
