//! How a sequence's rows become one vector: the modes of sentence-transformers' `Pooling` module.

use models::Forward;
use ops::{Act, Pool, Span};

/// One way to pool; several are concatenated in this order, as sentence-transformers does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pooling {
    /// The first row.
    Cls,
    /// Largest value of each feature.
    Max,
    /// Mean of the rows.
    Mean,
    /// Sum of the rows over the square root of their number.
    MeanSqrtLen,
    /// Mean with weights 1, 2, … in order of position.
    WeightedMean,
    /// The last row.
    LastToken,
}

impl Pooling {
    /// All modes, in the order of concatenation.
    pub const ALL: [Pooling; 6] =
        [Pooling::Cls, Pooling::Max, Pooling::Mean, Pooling::MeanSqrtLen, Pooling::WeightedMean, Pooling::LastToken];

    /// The name in the current form of the module's configuration (`"pooling_mode": "mean"`).
    pub fn name(self) -> &'static str {
        match self {
            Pooling::Cls => "cls",
            Pooling::Max => "max",
            Pooling::Mean => "mean",
            Pooling::MeanSqrtLen => "mean_sqrt_len_tokens",
            Pooling::WeightedMean => "weightedmean",
            Pooling::LastToken => "lasttoken",
        }
    }

    /// The key in the older form (`"pooling_mode_mean_tokens": true`).
    pub fn switch(self) -> &'static str {
        match self {
            Pooling::Cls => "pooling_mode_cls_token",
            Pooling::Max => "pooling_mode_max_tokens",
            Pooling::Mean => "pooling_mode_mean_tokens",
            Pooling::MeanSqrtLen => "pooling_mode_mean_sqrt_len_tokens",
            Pooling::WeightedMean => "pooling_mode_weightedmean_tokens",
            Pooling::LastToken => "pooling_mode_lasttoken",
        }
    }

    /// One row a span: `[spans, cols]`. The first `skip` rows of a sequence (its prompt) take no part, unless they are
    /// all it has.
    pub fn apply(self, cx: &Forward, x: &Act, skip: usize) -> Act {
        let kept = |s: &Span| if s.len > skip { Span { start: s.start + skip, len: s.len - skip } } else { *s };
        let spans: Vec<Span> = cx.batch.spans.iter().map(kept).collect();
        let gather = |row: fn(&Span) -> usize| cx.ops.rows(x, &spans.iter().map(|s| row(s) as u32).collect::<Vec<_>>());
        match self {
            Pooling::Cls => gather(|s| s.start),
            Pooling::LastToken => gather(|s| s.start + s.len - 1),
            Pooling::Max => cx.ops.pool(x, &spans, Pool::Max),
            Pooling::Mean => cx.ops.pool(x, &spans, Pool::Mean),
            Pooling::MeanSqrtLen => cx.ops.pool(x, &spans, Pool::MeanSqrtLen),
            Pooling::WeightedMean => cx.ops.pool(x, &spans, Pool::WeightedMean { first: 1 + skip }),
        }
    }
}
