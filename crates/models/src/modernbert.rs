//! ModernBERT (Warner et al. 2024): pre-norm encoder with rotary positions and gated networks, in which most layers see
//! only their neighbourhood.

use crate::architectures::{Arch, Built};
use crate::bert::{refuse_decoders, sizes};
use crate::blocks::{Classifier, FirstOrMean, Mlp, SelfAttention, angles, bidirectional};
use crate::config::{Config, MAX_INNER, MAX_LAYERS, MAX_POSITIONS};
use crate::error::Result;
use crate::loader::{Bias, Loader};
use crate::model::{Forward, Model, Shape};
use ops::{Act, Attention, Linear, Mask, Norm, Rope, RopeLayout, Table};

/// ModernBERT.
pub const ARCH: Arch = Arch {
    family: "modernbert",
    names: &["ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification", "modernbert"],
    load,
};

/// What a layer's queries see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Global,
    Local,
}

struct ModernBert {
    shape: Shape,
    words: Table,
    embedding_norm: Norm,
    layers: Vec<Layer>,
    final_norm: Norm,
    global_base: f64,
    local_base: f64,
}

struct Layer {
    reach: Reach,
    attention_norm: Option<Norm>, // the first layer's input is normalised already
    attention: SelfAttention,
    output: Linear,
    mlp_norm: Norm,
    mlp: Mlp,
    down: Linear,
}

impl Model for ModernBert {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn forward(&self, cx: &Forward) -> Act {
        let global = angles(cx, self.shape.head_dim, self.global_base);
        let local = angles(cx, self.shape.head_dim, self.local_base);
        let mut x = cx.ops.norm(&cx.embed(&self.words), &self.embedding_norm);
        for layer in &self.layers {
            let angles = if layer.reach == Reach::Global { &global } else { &local };
            let normed = layer.attention_norm.as_ref().map(|norm| cx.ops.norm(&x, norm));
            let heads = layer.attention.forward(cx, normed.as_ref().unwrap_or(&x), Some(angles));
            x = cx.linear_add(&heads, &layer.output, x);
            let inner = layer.mlp.forward(cx, &cx.ops.norm(&x, &layer.mlp_norm));
            x = cx.linear_add(&inner, &layer.down, x);
        }
        cx.ops.norm(&x, &self.final_norm)
    }
}

fn load(config: &Config, root: &Loader) -> Result<Built> {
    refuse_decoders(config)?;
    let trunk = root.trunk("embeddings.tok_embeddings.weight")?;
    let shape =
        Shape { max_positions: config.size("max_position_embeddings", MAX_POSITIONS)?, ..sizes(config, ARCH.family)? };
    let (hidden, head_dim) = (shape.hidden, shape.head_dim);
    if !head_dim.is_multiple_of(2) {
        return Err(
            config.wrong("num_attention_heads", format!("a number that leaves {hidden} features an even share each"))
        );
    }
    let inner = config.size("intermediate_size", MAX_INNER)?;
    let kind = config.activation("hidden_activation", "gelu")?;
    let eps = config.float_or("norm_eps", 1e-5)?;
    let [norm_bias, attention_bias, mlp_bias] =
        ["norm_bias", "attention_bias", "mlp_bias"].map(|key| config.flag_or(key, false).map(Bias::from));
    let (norm_bias, attention_bias, mlp_bias) = (norm_bias?, attention_bias?, mlp_bias?);
    // `local_attention` is the whole window: half of it on either side.
    let side = config.size_or("local_attention", MAX_POSITIONS, 128)? / 2;
    let rope = Some(Rope { head_dim, rotary: head_dim, layout: RopeLayout::Half });
    let layer = |(i, reach)| {
        let layer = trunk.layer("layers", i);
        let mask = if reach == Reach::Global { Mask::Full } else { Mask::Window { left: side, right: side } };
        let keys = ["attn.Wqkv.query", "attn.Wqkv.key", "attn.Wqkv.value"];
        let [query, key, value] = layer.stacked("attn.Wqkv", keys, hidden, hidden, attention_bias)?;
        let [gate, up] = layer.stacked("mlp.Wi", ["mlp.Wi.gate", "mlp.Wi.up"], inner, hidden, mlp_bias)?;
        let attention = Attention { mask, ..bidirectional(shape.heads, head_dim) };
        let attention_norm = (i > 0).then(|| layer.layer_norm("attn_norm", hidden, eps, norm_bias));
        Ok(Layer {
            reach,
            attention_norm: attention_norm.transpose()?,
            attention: SelfAttention { query, key, value, attention, rope },
            output: layer.linear("attn.Wo", hidden, hidden, attention_bias)?,
            mlp_norm: layer.layer_norm("mlp_norm", hidden, eps, norm_bias)?,
            mlp: Mlp::Gated { gate, up, kind },
            down: layer.linear("mlp.Wo", hidden, inner, mlp_bias)?,
        })
    };
    let global_base = config.rope_base(Some("full_attention"), "global_rope_theta", 160_000.0)?;
    // transformers 4: an explicit null means the global one
    let local_default = if config.is_null("local_rope_theta") { global_base } else { 10_000.0 };
    let model = ModernBert {
        words: trunk.table("embeddings.tok_embeddings.weight", shape.vocab, hidden)?,
        embedding_norm: trunk.layer_norm("embeddings.norm", hidden, eps, norm_bias)?,
        layers: reaches(config, shape.layers)?.into_iter().enumerate().map(layer).collect::<Result<_>>()?,
        final_norm: trunk.layer_norm("final_norm", hidden, eps, norm_bias)?,
        global_base,
        local_base: config.rope_base(Some("sliding_attention"), "local_rope_theta", local_default)?,
        shape,
    };
    let classifier = config.classifies().then(|| classifier(config, root, hidden, eps, norm_bias)).transpose()?;
    Ok(Built { model: Box::new(model), classifier, head: None })
}

/// Which layers are global: named one by one, or every n-th from the first on.
fn reaches(config: &Config, layers: usize) -> Result<Vec<Reach>> {
    let Some(types) = config.get("layer_types") else {
        let every = config.size_or("global_attn_every_n_layers", MAX_LAYERS, 3)?;
        let global = |i: usize| i.is_multiple_of(every);
        return Ok((0..layers).map(|i| if global(i) { Reach::Global } else { Reach::Local }).collect());
    };
    let wrong = || config.wrong("layer_types", format!("{layers} times \"full_attention\" or \"sliding_attention\""));
    let types = types.as_array().filter(|types| types.len() == layers).ok_or_else(wrong)?;
    let reach = |name: &serde_json::Value| match name.as_str() {
        Some("full_attention") => Ok(Reach::Global),
        Some("sliding_attention") => Ok(Reach::Local),
        _ => Err(wrong()),
    };
    types.iter().map(reach).collect()
}

fn classifier(config: &Config, root: &Loader, hidden: usize, eps: f64, norm_bias: Bias) -> Result<Classifier> {
    let pool = match config.text_or("classifier_pooling", "cls")? {
        "cls" => FirstOrMean::First,
        "mean" => FirstOrMean::Mean,
        _ => return Err(config.not_built("classifier_pooling", "cls, mean")),
    };
    Ok(Classifier {
        pool,
        dense: root.linear("head.dense", hidden, hidden, config.flag_or("classifier_bias", false)?.into())?,
        kind: config.activation("classifier_activation", "gelu")?,
        norm: Some(root.layer_norm("head.norm", hidden, eps, norm_bias)?),
        out: root.linear("classifier", config.labels()?.len(), hidden, Bias::Yes)?,
    })
}
