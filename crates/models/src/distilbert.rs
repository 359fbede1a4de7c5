//! DistilBERT (Sanh et al. 2019): BERT's encoder with half the layers, no token types, and names of its own.

use crate::architectures::{Arch, Built};
use crate::blocks::{
    Classifier, Embeddings, FirstOrMean, Mlp, Positions, PostNormEncoder, PostNormLayer, SelfAttention, bidirectional,
};
use crate::config::{Config, MAX_HEADS, MAX_HIDDEN, MAX_INNER, MAX_LAYERS, MAX_POSITIONS, MAX_VOCAB};
use crate::error::Result;
use crate::loader::{Bias, Loader};
use crate::model::Shape;
use ops::Activation;

/// DistilBERT.
pub const ARCH: Arch = Arch {
    family: "distilbert",
    names: &["DistilBertModel", "DistilBertForMaskedLM", "DistilBertForSequenceClassification", "distilbert"],
    load,
};

const EPS: f64 = 1e-12; // fixed in the class, whatever config.json says

fn load(config: &Config, root: &Loader) -> Result<Built> {
    let trunk = root.trunk("embeddings.word_embeddings.weight")?;
    let shape = shape(config)?;
    let (hidden, inner) = (shape.hidden, config.size("hidden_dim", MAX_INNER)?);
    let kind = config.activation("activation", "gelu")?;
    let embeddings = Embeddings {
        words: trunk.table("embeddings.word_embeddings.weight", shape.vocab, hidden)?,
        types: None,
        positions: Some(trunk.table("embeddings.position_embeddings.weight", shape.max_positions, hidden)?),
        norm: trunk.layer_norm("embeddings.LayerNorm", hidden, EPS, Bias::Yes)?,
    };
    let layer = |i| {
        let layer = trunk.layer("transformer.layer", i);
        let linear = |name, outputs, inputs| layer.linear(name, outputs, inputs, Bias::Yes);
        Ok(PostNormLayer {
            attention: SelfAttention {
                query: linear("attention.q_lin", hidden, hidden)?,
                key: linear("attention.k_lin", hidden, hidden)?,
                value: linear("attention.v_lin", hidden, hidden)?,
                attention: bidirectional(shape.heads, shape.head_dim),
                rope: None,
            },
            output: linear("attention.out_lin", hidden, hidden)?,
            attention_norm: layer.layer_norm("sa_layer_norm", hidden, EPS, Bias::Yes)?,
            mlp: Mlp::Plain { up: linear("ffn.lin1", inner, hidden)?, kind },
            down: linear("ffn.lin2", hidden, inner)?,
            mlp_norm: layer.layer_norm("output_layer_norm", hidden, EPS, Bias::Yes)?,
        })
    };
    let layers = (0..shape.layers).map(layer).collect::<Result<_>>()?;
    let head = || -> Result<Classifier> {
        Ok(Classifier {
            pool: FirstOrMean::First,
            dense: root.linear("pre_classifier", hidden, hidden, Bias::Yes)?,
            kind: Activation::Relu,
            norm: None,
            out: root.linear("classifier", config.labels()?.len(), hidden, Bias::Yes)?,
        })
    };
    let classifier = config.classifies().then(head).transpose()?;
    Ok(Built {
        model: Box::new(PostNormEncoder { shape, embeddings, positions: Positions::Learned, layers }),
        classifier,
        head: None,
    })
}

fn shape(config: &Config) -> Result<Shape> {
    config.only("pruned_heads", serde_json::json!({}))?;
    let (hidden, heads) = (config.size("dim", MAX_HIDDEN)?, config.size("n_heads", MAX_HEADS)?);
    Ok(Shape {
        architecture: ARCH.family,
        hidden,
        layers: config.size("n_layers", MAX_LAYERS)?,
        heads,
        kv_heads: heads,
        head_dim: config.head_dim("n_heads", hidden, heads)?,
        vocab: config.size("vocab_size", MAX_VOCAB)?,
        types: 0,
        max_positions: config.size("max_position_embeddings", MAX_POSITIONS)?,
    })
}
