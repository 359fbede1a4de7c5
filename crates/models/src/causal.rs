//! What do the config.json and the tensor names of decoders have in common? The names that Llama's have in Hugging Face's
//! classes, which other families took over.

use crate::architectures::Built;
use crate::blocks::{
    Decoder, DecoderLayer, HeadAttention, LanguageHead, Mixer, Mlp, Network, Rotary, bidirectional, causal,
};
use crate::config::{Config, MAX_HEADS, MAX_HIDDEN, MAX_INNER, MAX_LAYERS, MAX_POSITIONS, MAX_VOCAB};
use crate::error::Result;
use crate::loader::{Bias, Loader};
use crate::model::Shape;
use crate::rotary::Asked;
use ops::{Attention, Linear};

/// Where the trunk of a decoder begins.
pub(crate) const WORDS: &str = "embed_tokens.weight";

/// What a plain decoder may have or not.
pub(crate) struct Plain {
    pub family: &'static str,
    pub qkv_bias: Bias,
    pub output_bias: Bias,
    pub mlp_bias: Bias,
    /// Whether each head of queries and keys is normalised.
    pub head_norms: bool,
    /// `head_dim` where it is not in config.json; `None` shares the row among the heads.
    pub head_dim: Option<usize>,
    /// Tokens that a query of each layer sees.
    pub windows: Vec<Option<usize>>,
}

/// A decoder of attention and gated networks, with rotary positions of one kind.
pub(crate) fn load(config: &Config, root: &Loader, plain: Plain) -> Result<Built> {
    let trunk = root.trunk(WORDS)?;
    let mut shape = shape(config, plain.family, plain.head_dim)?;
    let (rotary, window) = rotary(config, &shape, None)?;
    shape.max_positions = window;
    let (hidden, eps) = (shape.hidden, config.float_or("rms_norm_eps", 1e-6)?);
    let layer = |i| {
        let layer = trunk.layer("layers", i);
        let [query, key, value] = qkv(&layer, &shape, plain.qkv_bias)?;
        let norms = plain.head_norms.then(|| {
            let norm = |name| layer.rms_norm(name, shape.head_dim, eps, 0.0);
            Ok::<_, crate::ModelError>([norm("self_attn.q_norm")?, norm("self_attn.k_norm")?])
        });
        let mask = causal(plain.windows[i]);
        Ok(DecoderLayer {
            mixer_norm: layer.rms_norm("input_layernorm", hidden, eps, 0.0)?,
            mixer: Mixer::Attention(HeadAttention {
                query,
                key,
                value,
                norms: norms.transpose()?,
                gate: None,
                attention: Attention { mask, ..heads(&shape) },
                rotary: (0, rotary.rope),
                output: output(&layer, &shape, plain.output_bias)?,
            }),
            mixed_norm: None,
            network_norm: layer.rms_norm("post_attention_layernorm", hidden, eps, 0.0)?,
            network: network(config, &layer, hidden, "hidden_act", "silu", plain.mlp_bias)?,
            network_out_norm: None,
        })
    };
    let layers = (0..shape.layers).map(layer).collect::<Result<_>>()?;
    let words = trunk.table(WORDS, shape.vocab, hidden)?;
    let norm = trunk.rms_norm("norm", hidden, eps, 0.0)?;
    let head = head(config, config, root, &trunk, &shape, false, None)?;
    let model = Decoder { shape, words, scale: None, rotaries: vec![rotary], layers, norm };
    Ok(Built { model: Box::new(model), classifier: None, head })
}

/// The sizes of a decoder.
pub(crate) fn shape(config: &Config, family: &'static str, head_dim: Option<usize>) -> Result<Shape> {
    let hidden = config.size("hidden_size", MAX_HIDDEN)?;
    let heads = config.size("num_attention_heads", MAX_HEADS)?;
    let head_dim = match (config.get("head_dim"), head_dim) {
        (Some(_), _) => config.size("head_dim", MAX_HIDDEN)?,
        (None, Some(known)) => known,
        (None, None) => config.head_dim("num_attention_heads", hidden, heads)?,
    };
    let kv_heads = config.size_or("num_key_value_heads", MAX_HEADS, heads)?;
    if !heads.is_multiple_of(kv_heads) {
        return Err(config.wrong("num_key_value_heads", format!("a divisor of {heads}")));
    }
    Ok(Shape {
        architecture: family,
        hidden,
        layers: config.size("num_hidden_layers", MAX_LAYERS)?,
        heads,
        kv_heads,
        head_dim,
        vocab: config.size("vocab_size", MAX_VOCAB)?,
        types: 0,
        max_positions: config.size("max_position_embeddings", MAX_POSITIONS)?,
    })
}

/// Rotary positions of one kind for all layers, whole heads unless `partial` says otherwise; and the window they allow.
pub(crate) fn rotary(config: &Config, shape: &Shape, partial: Option<f64>) -> Result<(Rotary, usize)> {
    let (head_dim, window) = (shape.head_dim, shape.max_positions);
    config.rotary(Asked { layers: None, theta: "rope_theta", base: 10_000.0, partial, head_dim, window })
}

/// Attention of these sizes with scores over √dim.
pub(crate) fn heads(shape: &Shape) -> Attention {
    Attention { kv_heads: shape.kv_heads, ..bidirectional(shape.heads, shape.head_dim) }
}

/// The projections to queries, keys and values.
pub(crate) fn qkv(layer: &Loader, shape: &Shape, bias: Bias) -> Result<[Linear; 3]> {
    let (q, kv) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    Ok([
        layer.linear("self_attn.q_proj", q, shape.hidden, bias)?,
        layer.linear("self_attn.k_proj", kv, shape.hidden, bias)?,
        layer.linear("self_attn.v_proj", kv, shape.hidden, bias)?,
    ])
}

/// The projection of the heads' results.
pub(crate) fn output(layer: &Loader, shape: &Shape, bias: Bias) -> Result<Linear> {
    layer.linear("self_attn.o_proj", shape.hidden, shape.heads * shape.head_dim, bias)
}

/// The gated network of `intermediate_size`.
pub(crate) fn network(
    config: &Config,
    layer: &Loader,
    hidden: usize,
    key: &str,
    default: &str,
    bias: Bias,
) -> Result<Network> {
    let inner = config.size("intermediate_size", MAX_INNER)?;
    let kind = config.activation(key, default)?;
    let gate = layer.linear("mlp.gate_proj", inner, hidden, bias)?;
    let up = layer.linear("mlp.up_proj", inner, hidden, bias)?;
    let down = layer.linear("mlp.down_proj", hidden, inner, bias)?;
    Ok(Network::Dense { mlp: Mlp::Gated { gate, up, kind }, down })
}

/// The head of a language model: the words' own table where the weights are tied, `lm_head` otherwise. A checkpoint of a
/// `…Model` has none. `outer` is the whole config.json where `config` is the part of it about text;
/// `tied` is what holds where neither says.
pub(crate) fn head(
    outer: &Config,
    config: &Config,
    root: &Loader,
    trunk: &Loader,
    shape: &Shape,
    tied: bool,
    softcap: Option<f32>,
) -> Result<Option<LanguageHead>> {
    if outer.classifies() {
        return Err(outer.not_built("architectures", "language models and their trunks"));
    }
    if outer.architecture().ends_with("Model") || !root.generates() {
        return Ok(None);
    }
    let tied = outer.flag_or("tie_word_embeddings", config.flag_or("tie_word_embeddings", tied)?)?;
    let out = if tied {
        trunk.tied(WORDS, shape.vocab, shape.hidden)?
    } else {
        root.linear("lm_head", shape.vocab, shape.hidden, Bias::No)?
    };
    Ok(Some(LanguageHead { out, softcap }))
}

/// The kinds of the layers: as `layer_types` says, or as `otherwise` does. Each must be one of `built`.
pub(crate) fn layer_types(
    config: &Config,
    layers: usize,
    built: [&'static str; 2],
    otherwise: impl Fn(usize) -> Result<&'static str>,
) -> Result<Vec<&'static str>> {
    let Some(types) = config.get("layer_types") else { return (0..layers).map(otherwise).collect() };
    let wrong = || config.wrong("layer_types", format!("{layers} times \"{}\" or \"{}\"", built[0], built[1]));
    let types = types.as_array().filter(|types| types.len() == layers).ok_or_else(wrong)?;
    let known = |name: &serde_json::Value| built.into_iter().find(|b| name.as_str() == Some(b)).ok_or_else(wrong);
    types.iter().map(known).collect()
}

/// The kinds of layers that attention has.
pub(crate) const ATTENTIONS: [&str; 2] = ["full_attention", "sliding_attention"];

/// The windows of families in which `use_sliding_window` turns on `sliding_window` for the layers from
/// `max_window_layers` on, or for those that `layer_types` names.
pub(crate) fn late_windows(config: &Config) -> Result<Vec<Option<usize>>> {
    let layers = config.size("num_hidden_layers", MAX_LAYERS)?;
    let used = config.flag_or("use_sliding_window", false)? && !config.is_null("sliding_window");
    let window = used.then(|| config.size_or("sliding_window", MAX_POSITIONS, 4096)).transpose()?;
    let first = config.index_or("max_window_layers", MAX_LAYERS, 28)?;
    let late = |i: usize| Ok(ATTENTIONS[usize::from(window.is_some() && i >= first)]);
    let types = layer_types(config, layers, ATTENTIONS, late)?;
    types
        .into_iter()
        .map(|kind| match (kind, window) {
            ("full_attention", _) => Ok(None),
            (_, Some(window)) => Ok(Some(window)),
            (_, None) => Err(config.wrong("use_sliding_window", "true, as layer_types has sliding layers")),
        })
        .collect()
}
