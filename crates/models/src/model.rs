//! What is a model? A trunk that turns the tokens of a batch into rows, and the context its forward pass runs in.

use crate::batch::Batch;
use crate::state::{Caches, LayerCache, LayerState};
use ops::{Act, Activation, Attention, Delta, Expert, Linear, Ops, Routing, Table};

/// The sizes of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The family: the name of its row in [`crate::ARCHITECTURES`].
    pub architecture: &'static str,
    /// Features of a row.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Features of a head.
    pub head_dim: usize,
    /// Number of token ids.
    pub vocab: usize,
    /// Number of token types; 0 if the model does not look at them.
    pub types: usize,
    /// The longest sequence in tokens.
    pub max_positions: usize,
}

/// A trunk: rows in, rows out.
pub trait Model: Send + Sync {
    /// Its sizes.
    fn shape(&self) -> &Shape;

    /// What each layer keeps of a sequence for its next tokens; empty for models that see whole sequences only.
    fn states(&self) -> Vec<LayerState> {
        Vec::new()
    }

    /// Whether a sequence's length changes what layers make of its earlier tokens, so that it gives other numbers in one
    /// pass than in several.
    fn depends_on_length(&self) -> bool {
        false
    }

    /// The last hidden state of every token, `[tokens, hidden]`. The batch must have passed [`Shape::check`].
    fn forward(&self, cx: &Forward) -> Act;
}

/// A place in a decoder where [`Forward::trace`] looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The input of the first layer.
    Embedding,
    /// The output of a layer.
    Layer(usize),
    /// The output of the final norm.
    Norm,
}

/// Looks at the rows of a forward pass, `[tokens, hidden]`.
pub type Trace<'a> = &'a (dyn Fn(Place, &Act) + Sync);

/// What a forward pass runs on. Models reach weights through its methods, so that what hooks into a matrix multiplication
/// or an attention has one place to do so.
pub struct Forward<'a> {
    /// The executor that holds the model's weights.
    pub ops: &'a dyn Ops,
    /// The tokens.
    pub batch: &'a Batch,
    /// What the batch's pasts left, and where its tokens leave theirs.
    pub caches: Option<&'a Caches>,
    /// Called by decoders with their intermediate rows; to keep some, clone them.
    pub trace: Option<Trace<'a>>,
}

impl<'a> Forward<'a> {
    /// A forward pass of a batch that stands alone.
    pub fn new(ops: &'a dyn Ops, batch: &'a Batch) -> Forward<'a> {
        assert!(batch.pasts.is_empty(), "a batch with pasts needs their caches");
        Forward { ops, batch, caches: None, trace: None }
    }

    /// A forward pass of a batch whose sequences go on where `caches` left them. The batch must have passed
    /// [`Caches::check`].
    pub fn cached(ops: &'a dyn Ops, batch: &'a Batch, caches: &'a Caches) -> Forward<'a> {
        assert_eq!(batch.pasts.len(), batch.spans.len(), "a past for each sequence");
        Forward { ops, batch, caches: Some(caches), trace: None }
    }

    /// Rows of a token table for the batch's ids, `[tokens, table.cols]`.
    pub fn embed(&self, table: &Table) -> Act {
        self.ops.embed(table, &self.batch.ids)
    }

    /// `x · Wᵀ + b`: `[rows, inputs]` to `[rows, outputs]`.
    pub fn linear(&self, x: &Act, w: &Linear) -> Act {
        self.ops.linear(x, w)
    }

    /// [`Forward::linear`] of the same rows with several matrices.
    pub fn linears<const N: usize>(&self, x: &Act, weights: [&Linear; N]) -> [Act; N] {
        let results = self.ops.linears(x, &weights);
        results.try_into().unwrap_or_else(|_| panic!("a result for each matrix"))
    }

    /// [`Forward::linear`], then an activation.
    pub fn linear_activation(&self, x: &Act, w: &Linear, kind: Activation) -> Act {
        self.ops.linear_activation(x, w, kind)
    }

    /// [`Forward::linear`] added to `residual`.
    pub fn linear_add(&self, x: &Act, w: &Linear, residual: Act) -> Act {
        self.ops.linear_add(x, w, residual)
    }

    /// Attention within each sequence of the batch: q `[tokens, heads · dim]`, k and v `[tokens, kv_heads · dim]`.
    pub fn attend(&self, q: &Act, k: &Act, v: &Act, attention: &Attention) -> Act {
        self.ops.attend(q, k, v, attention, &self.batch.spans)
    }

    /// [`Forward::attend`] over each sequence's past too, where there are caches: those of `layer` keep k and v, those
    /// of a layer that shares an earlier one's have them already.
    pub fn attend_layer(&self, layer: usize, q: &Act, k: &Act, v: &Act, attention: &Attention) -> Act {
        let Some(caches) = self.caches else { return self.attend(q, k, v, attention) };
        let (kv, cache) = match &caches.layers[layer] {
            LayerCache::Shared(owner) => (None, &caches.layers[*owner]),
            own => (Some((k, v)), own),
        };
        let LayerCache::Kv(cache) = cache else { panic!("layer {layer} has no cache of keys and values") };
        self.ops.attend_cached(q, kv, attention, &self.batch.spans, &self.batch.pasts, cache)
    }

    /// A gated delta net over each sequence of the batch, from the state that its past left in the caches, if there are
    /// any. Shapes as for [`Ops::delta`].
    pub fn delta(&self, layer: usize, qkv: &Act, a: &Act, b: &Act, delta: &Delta) -> Act {
        let states = self.caches.map(|caches| match &caches.layers[layer] {
            LayerCache::Recurrent(cache) => (cache, &self.batch.pasts[..]),
            _ => panic!("layer {layer} has no recurrent state"),
        });
        self.ops.delta(qkv, a, b, delta, &self.batch.spans, states)
    }

    /// A mixture of experts, as [`Ops::experts`].
    pub fn experts(&self, x: &Act, scores: &Act, routing: Routing, experts: &[Expert], kind: Activation) -> Act {
        self.ops.experts(x, scores, routing, experts, kind)
    }

    /// Shows intermediate rows to whoever traces this pass.
    pub fn traced(&self, place: Place, rows: &Act) {
        if let Some(trace) = self.trace {
            trace(place, rows);
        }
    }
}
