//! NomicBERT (Nussbaum et al. 2024, "Nomic Embed"): BERT's encoder with rotary positions, a gated network, and no biases.
//!
//! Its checkpoints come with the keys of transformers' own class or with those of the code that was published beside the
//! model (`n_embd`, …); the tensors have the same names in both.

use crate::architectures::{Arch, Built};
use crate::bert::{bert_head, refuse_decoders};
use crate::blocks::{Embeddings, Mlp, Positions, PostNormEncoder, PostNormLayer, SelfAttention, bidirectional};
use crate::config::{Config, MAX_HEADS, MAX_HIDDEN, MAX_INNER, MAX_KINDS, MAX_LAYERS, MAX_POSITIONS, MAX_VOCAB};
use crate::error::Result;
use crate::loader::{Bias, Loader};
use crate::model::Shape;
use ops::{Activation, Rope, RopeLayout};

/// NomicBERT.
pub const ARCH: Arch = Arch {
    family: "nomic_bert",
    names: &[
        "NomicBertModel",
        "NomicBertForMaskedLM",
        "NomicBertForPreTraining",
        "NomicBertForSequenceClassification",
        "nomic_bert",
    ],
    load,
};

fn load(config: &Config, root: &Loader) -> Result<Built> {
    refuse_what_is_not_built(config)?;
    let trunk = root.trunk("embeddings.word_embeddings.weight")?;
    let shape = shape(config)?;
    let (hidden, head_dim) = (shape.hidden, shape.head_dim);
    let inner = config.size(config.either(&["intermediate_size", "n_inner"]), MAX_INNER)?;
    let eps = config.float_or(config.either(&["layer_norm_eps", "layer_norm_epsilon"]), 1e-12)?;
    let kind = activation(config)?;
    let embeddings = Embeddings {
        words: trunk.table("embeddings.word_embeddings.weight", shape.vocab, hidden)?,
        types: match shape.types {
            0 => None,
            types => Some(trunk.table("embeddings.token_type_embeddings.weight", types, hidden)?),
        },
        positions: None,
        norm: trunk.layer_norm("emb_ln", hidden, eps, Bias::Yes)?,
    };
    let rotary = Rope { head_dim, rotary: head_dim, layout: RopeLayout::Half };
    let qkv_bias = Bias::from(config.flag_or("qkv_proj_bias", false)?);
    let up_bias = Bias::from(config.flag_or("mlp_fc1_bias", false)?);
    let down_bias = Bias::from(config.flag_or("mlp_fc2_bias", false)?);
    let layer = |i| {
        let layer = trunk.layer("encoder.layers", i);
        let keys = ["attn.Wqkv.query", "attn.Wqkv.key", "attn.Wqkv.value"];
        let [query, key, value] = layer.stacked("attn.Wqkv", keys, hidden, hidden, qkv_bias)?;
        Ok(PostNormLayer {
            attention: SelfAttention {
                query,
                key,
                value,
                attention: bidirectional(shape.heads, head_dim),
                rope: Some(rotary),
            },
            output: layer.linear("attn.out_proj", hidden, hidden, qkv_bias)?,
            attention_norm: layer.layer_norm("norm1", hidden, eps, Bias::Yes)?,
            mlp: Mlp::Gated {
                gate: layer.linear("mlp.fc12", inner, hidden, up_bias)?,
                up: layer.linear("mlp.fc11", inner, hidden, up_bias)?,
                kind,
            },
            down: layer.linear("mlp.fc2", hidden, inner, down_bias)?,
            mlp_norm: layer.layer_norm("norm2", hidden, eps, Bias::Yes)?,
        })
    };
    let layers = (0..shape.layers).map(layer).collect::<Result<_>>()?;
    let base = config.rope_base(None, config.either(&["rope_theta", "rotary_emb_base"]), 1000.0)?;
    let positions = Positions::Rotary { rotary: head_dim, base };
    let classifier = config.classifies().then(|| bert_head(config, root, &trunk, hidden)).transpose()?;
    Ok(Built { model: Box::new(PostNormEncoder { shape, embeddings, positions, layers }), classifier, head: None })
}

fn shape(config: &Config) -> Result<Shape> {
    let heads_key = config.either(&["num_attention_heads", "n_head"]);
    let hidden = config.size(config.either(&["hidden_size", "n_embd"]), MAX_HIDDEN)?;
    let heads = config.size(heads_key, MAX_HEADS)?;
    let head_dim = config.head_dim(heads_key, hidden, heads)?;
    config.only("head_dim", head_dim)?;
    config.only("num_heads_kv", heads)?;
    if !head_dim.is_multiple_of(2) {
        return Err(config.wrong(heads_key, format!("a number that leaves {hidden} features an even share each")));
    }
    // Scaled rotary positions are plain ones up to the length that the model was trained on.
    let scaled = config.get("rotary_scaling_factor").is_some();
    let window =
        if scaled { "max_trained_positions" } else { config.either(&["n_positions", "max_position_embeddings"]) };
    Ok(Shape {
        architecture: ARCH.family,
        hidden,
        layers: config.size(config.either(&["num_hidden_layers", "n_layer"]), MAX_LAYERS)?,
        heads,
        kv_heads: heads,
        head_dim,
        vocab: config.size("vocab_size", MAX_VOCAB)?,
        types: config.index_or("type_vocab_size", MAX_KINDS, 2)?,
        max_positions: config.size(window, MAX_POSITIONS)?,
    })
}

/// The function of the gate: `activation_function` names the whole network, `hidden_act` the function.
fn activation(config: &Config) -> Result<Activation> {
    const NETWORKS: [(&str, Activation); 3] =
        [("swiglu", Activation::Silu), ("geglu", Activation::Gelu), ("glu", Activation::Sigmoid)];
    if config.get("activation_function").is_none() {
        return config.activation("hidden_act", "silu");
    }
    let name = config.text_or("activation_function", "")?;
    let known = NETWORKS.iter().find(|(network, _)| *network == name);
    known.map(|(_, kind)| *kind).ok_or_else(|| config.not_built("activation_function", "swiglu, geglu, glu"))
}

/// Refuses the options of the published code that make it compute something else.
fn refuse_what_is_not_built(config: &Config) -> Result<()> {
    refuse_decoders(config)?;
    config.only("causal", false)?;
    config.only("prenorm", false)?;
    config.only("parallel_block", false)?;
    config.only("use_rms_norm", false)?;
    config.only("rotary_emb_fraction", 1.0)?;
    config.only("rotary_emb_interleaved", false)?;
    config.only("rotary_head_dim", false)?;
    config.only("num_experts", 0)?;
    config.only("num_shared_experts", 0)?;
    if config.get("rotary_emb_scale_base").is_some() {
        return Err(config.not_built("rotary_emb_scale_base", "null"));
    }
    Ok(())
}
