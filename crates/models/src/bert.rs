//! BERT (Devlin et al. 2018) and RoBERTa (Liu et al. 2019), of which XLM-RoBERTa is one: the same encoder; RoBERTa counts
//! its positions after the padding id and has a classification head of its own.

use crate::architectures::{Arch, Built};
use crate::blocks::{
    Classifier, Embeddings, FirstOrMean, Mlp, Positions, PostNormEncoder, PostNormLayer, SelfAttention, bidirectional,
};
use crate::config::{Config, MAX_HEADS, MAX_HIDDEN, MAX_INNER, MAX_KINDS, MAX_LAYERS, MAX_POSITIONS, MAX_VOCAB};
use crate::error::Result;
use crate::loader::{Bias, Loader};
use crate::model::Shape;
use ops::Activation;

/// BERT.
pub const BERT: Arch = Arch {
    family: "bert",
    names: &["BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification", "bert"],
    load: load_bert,
};

/// RoBERTa and XLM-RoBERTa.
pub const ROBERTA: Arch = Arch {
    family: "roberta",
    names: &[
        "RobertaModel",
        "RobertaForMaskedLM",
        "RobertaForSequenceClassification",
        "roberta",
        "XLMRobertaModel",
        "XLMRobertaForMaskedLM",
        "XLMRobertaForSequenceClassification",
        "xlm-roberta",
    ],
    load: load_roberta,
};

fn load_bert(config: &Config, root: &Loader) -> Result<Built> {
    let trunk = root.trunk("embeddings.word_embeddings.weight")?;
    let model = encoder(config, &trunk, BERT.family, Positions::Learned)?;
    let head = || bert_head(config, root, &trunk, model.shape.hidden);
    let classifier = config.classifies().then(head).transpose()?;
    Ok(Built { model: Box::new(model), classifier, head: None })
}

fn load_roberta(config: &Config, root: &Loader) -> Result<Built> {
    let trunk = root.trunk("embeddings.word_embeddings.weight")?;
    let padding = config.index_or("pad_token_id", MAX_POSITIONS, 1)?;
    let model = encoder(config, &trunk, ROBERTA.family, Positions::AfterPadding(padding as u32))?;
    let classifier = config.classifies().then(|| roberta_head(config, root, model.shape.hidden)).transpose()?;
    Ok(Built { model: Box::new(model), classifier, head: None })
}

/// BERT's head, which NomicBERT has too: `classifier(tanh(pooler(first row)))`.
pub(crate) fn bert_head(config: &Config, root: &Loader, trunk: &Loader, hidden: usize) -> Result<Classifier> {
    Ok(Classifier {
        pool: FirstOrMean::First,
        dense: trunk.linear("pooler.dense", hidden, hidden, Bias::Yes)?,
        kind: Activation::Tanh,
        norm: None,
        out: root.linear("classifier", config.labels()?.len(), hidden, Bias::Yes)?,
    })
}

/// RoBERTa's head, which MPNet has too: `out_proj(tanh(dense(first row)))`.
pub(crate) fn roberta_head(config: &Config, root: &Loader, hidden: usize) -> Result<Classifier> {
    Ok(Classifier {
        pool: FirstOrMean::First,
        dense: root.linear("classifier.dense", hidden, hidden, Bias::Yes)?,
        kind: Activation::Tanh,
        norm: None,
        out: root.linear("classifier.out_proj", config.labels()?.len(), hidden, Bias::Yes)?,
    })
}

fn encoder(config: &Config, trunk: &Loader, family: &'static str, positions: Positions) -> Result<PostNormEncoder> {
    refuse_decoders(config)?;
    let rows = config.size("max_position_embeddings", MAX_POSITIONS)?;
    let shape = Shape {
        types: config.size("type_vocab_size", MAX_KINDS)?,
        max_positions: window(config, rows, positions)?,
        ..sizes(config, family)?
    };
    let eps = config.float_or("layer_norm_eps", 1e-12)?;
    let (hidden, inner) = (shape.hidden, config.size("intermediate_size", MAX_INNER)?);
    let kind = config.activation("hidden_act", "gelu")?;
    let embeddings = Embeddings {
        words: trunk.table("embeddings.word_embeddings.weight", shape.vocab, hidden)?,
        types: Some(trunk.table("embeddings.token_type_embeddings.weight", shape.types, hidden)?),
        positions: Some(trunk.table("embeddings.position_embeddings.weight", rows, hidden)?),
        norm: trunk.layer_norm("embeddings.LayerNorm", hidden, eps, Bias::Yes)?,
    };
    let layer = |i| {
        let layer = trunk.layer("encoder.layer", i);
        let linear = |name, outputs, inputs| layer.linear(name, outputs, inputs, Bias::Yes);
        Ok(PostNormLayer {
            attention: SelfAttention {
                query: linear("attention.self.query", hidden, hidden)?,
                key: linear("attention.self.key", hidden, hidden)?,
                value: linear("attention.self.value", hidden, hidden)?,
                attention: bidirectional(shape.heads, shape.head_dim),
                rope: None,
            },
            output: linear("attention.output.dense", hidden, hidden)?,
            attention_norm: layer.layer_norm("attention.output.LayerNorm", hidden, eps, Bias::Yes)?,
            mlp: Mlp::Plain { up: linear("intermediate.dense", inner, hidden)?, kind },
            down: linear("output.dense", hidden, inner)?,
            mlp_norm: layer.layer_norm("output.LayerNorm", hidden, eps, Bias::Yes)?,
        })
    };
    let layers = (0..shape.layers).map(layer).collect::<Result<_>>()?;
    Ok(PostNormEncoder { shape, embeddings, positions, layers })
}

/// The sizes that most encoders name alike; token types and positions are the family's to fill in.
pub(crate) fn sizes(config: &Config, family: &'static str) -> Result<Shape> {
    let hidden = config.size("hidden_size", MAX_HIDDEN)?;
    let heads = config.size("num_attention_heads", MAX_HEADS)?;
    Ok(Shape {
        architecture: family,
        hidden,
        layers: config.size("num_hidden_layers", MAX_LAYERS)?,
        heads,
        kv_heads: heads,
        head_dim: config.head_dim("num_attention_heads", hidden, heads)?,
        vocab: config.size("vocab_size", MAX_VOCAB)?,
        types: 0,
        max_positions: 0,
    })
}

/// How many tokens `rows` learned positions are for.
pub(crate) fn window(config: &Config, rows: usize, positions: Positions) -> Result<usize> {
    let Positions::AfterPadding(padding) = positions else { return Ok(rows) };
    let window = rows.checked_sub(padding as usize + 1).filter(|&window| window > 0);
    window
        .ok_or_else(|| config.wrong("max_position_embeddings", format!("more than pad_token_id + 1 = {}", padding + 1)))
}

/// Refuses the options that make an encoder's class compute something else.
pub(crate) fn refuse_decoders(config: &Config) -> Result<()> {
    config.only("is_decoder", false)?;
    config.only("add_cross_attention", false)?;
    config.only("position_embedding_type", "absolute")?;
    config.only("pruned_heads", serde_json::json!({}))
}
