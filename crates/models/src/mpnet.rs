//! MPNet (Song et al. 2020): BERT's encoder without token types, positions counted after the padding id, and a learned bias
//! for each head and bucket of distances that every layer adds to its attention scores.

use crate::architectures::{Arch, Built};
use crate::bert::{refuse_decoders, roberta_head, sizes, window};
use crate::blocks::{Embeddings, Mlp, Positions, PostNormEncoder, PostNormLayer, SelfAttention, bidirectional};
use crate::config::{Config, MAX_INNER, MAX_POSITIONS};
use crate::error::Result;
use crate::loader::{Bias, Loader};
use crate::model::Shape;
use ops::Attention;

/// MPNet.
pub const ARCH: Arch = Arch {
    family: "mpnet",
    names: &["MPNetModel", "MPNetForMaskedLM", "MPNetForSequenceClassification", "mpnet"],
    load,
};

const PADDING: u32 = 1; // fixed in the class, whatever config.json says
const BUCKETS: usize = 32; // likewise

fn load(config: &Config, root: &Loader) -> Result<Built> {
    refuse_decoders(config)?;
    config.only("relative_attention_num_buckets", BUCKETS)?;
    let trunk = root.trunk("embeddings.word_embeddings.weight")?;
    let positions = Positions::AfterPadding(PADDING);
    let rows = config.size("max_position_embeddings", MAX_POSITIONS)?;
    let shape = Shape { max_positions: window(config, rows, positions)?, ..sizes(config, ARCH.family)? };
    let eps = config.float_or("layer_norm_eps", 1e-12)?;
    let (hidden, inner) = (shape.hidden, config.size("intermediate_size", MAX_INNER)?);
    let kind = config.activation("hidden_act", "gelu")?;
    let embeddings = Embeddings {
        words: trunk.table("embeddings.word_embeddings.weight", shape.vocab, hidden)?,
        types: None,
        positions: Some(trunk.table("embeddings.position_embeddings.weight", rows, hidden)?),
        norm: trunk.layer_norm("embeddings.LayerNorm", hidden, eps, Bias::Yes)?,
    };
    let attention = attention(&trunk, &shape)?;
    let layer = |i| {
        let layer = trunk.layer("encoder.layer", i);
        let linear = |name, outputs, inputs| layer.linear(name, outputs, inputs, Bias::Yes);
        Ok(PostNormLayer {
            attention: SelfAttention {
                query: linear("attention.attn.q", hidden, hidden)?,
                key: linear("attention.attn.k", hidden, hidden)?,
                value: linear("attention.attn.v", hidden, hidden)?,
                attention: attention.clone(),
                rope: None,
            },
            output: linear("attention.attn.o", hidden, hidden)?,
            attention_norm: layer.layer_norm("attention.LayerNorm", hidden, eps, Bias::Yes)?,
            mlp: Mlp::Plain { up: linear("intermediate.dense", inner, hidden)?, kind },
            down: linear("output.dense", hidden, inner)?,
            mlp_norm: layer.layer_norm("output.LayerNorm", hidden, eps, Bias::Yes)?,
        })
    };
    let layers = (0..shape.layers).map(layer).collect::<Result<_>>()?;
    let classifier = config.classifies().then(|| roberta_head(config, root, hidden)).transpose()?;
    Ok(Built { model: Box::new(PostNormEncoder { shape, embeddings, positions, layers }), classifier, head: None })
}

/// The buckets' biases `[buckets, heads]` spread over the distances: `[heads, 2 · window − 1]`.
fn attention(trunk: &Loader, shape: &Shape) -> Result<Attention> {
    let name = "encoder.relative_attention_bias.weight";
    let buckets = trunk.tensor(name, &[BUCKETS, shape.heads])?.to_f32()?;
    let reach = shape.max_positions as i64;
    let mut bias = Vec::with_capacity(shape.heads * (2 * shape.max_positions - 1));
    for head in 0..shape.heads {
        bias.extend((1 - reach..reach).map(|distance| buckets[bucket(distance) * shape.heads + head]));
    }
    Ok(Attention { bias: Some(trunk.computed(name, bias)?), ..bidirectional(shape.heads, shape.head_dim) })
}

/// The bucket of `key − query`: half of them for keys before the query, half for keys after; near distances have their
/// own, far ones share one logarithmically (Raffel et al. 2020, "T5").
fn bucket(distance: i64) -> usize {
    const HALF: usize = BUCKETS / 2;
    const EXACT: usize = HALF / 2;
    let after = if distance > 0 { HALF } else { 0 };
    let n = distance.unsigned_abs() as usize;
    if n < EXACT {
        return after + n;
    }
    // 8 · log(n / 8) / log(128 / 8) in whole numbers: log2((n / 8)²), rounded down, is exact at its steps.
    let far = (n * n / (EXACT * EXACT)).ilog2() as usize;
    after + (EXACT + far).min(HALF - 1)
}

#[cfg(test)]
mod tests {
    use super::bucket;

    #[test]
    fn buckets_change_where_the_reference_changes_them() {
        let starts = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]; // by running the reference
        for distance in 0..600 {
            let expected = starts.iter().rposition(|&start| start <= distance).unwrap();
            assert_eq!(bucket(-distance), expected, "{distance} before");
            assert_eq!(bucket(distance), if distance > 0 { 16 + expected } else { 0 }, "{distance} after");
        }
    }
}
