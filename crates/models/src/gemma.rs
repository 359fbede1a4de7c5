//! Gemma 2 (Riviere et al. 2024) and Gemma 3 (Kamath et al. 2025) with EmbeddingGemma: norms before and after each half of
//! a layer, most layers see a window only, embeddings are scaled, and all norms are stored less one.

use crate::architectures::{Arch, Built};
use crate::blocks::{Decoder, DecoderLayer, HeadAttention, Mixer, Rotary, causal};
use crate::causal::{ATTENTIONS, WORDS, head, heads, layer_types, network, output, qkv, rotary, shape};
use crate::config::{Config, MAX_LAYERS, MAX_POSITIONS};
use crate::error::{ModelError, Result};
use crate::loader::{Bias, Loader};
use crate::model::Shape;
use crate::rotary::Asked;
use ops::{Attention, Mask, Rope};

/// Gemma 2.
pub const GEMMA2: Arch =
    Arch { family: "gemma2", names: &["Gemma2ForCausalLM", "Gemma2Model", "gemma2"], load: load_gemma2 };

/// Gemma 3, of which EmbeddingGemma is one whose tokens see both ways.
pub const GEMMA3: Arch = Arch {
    family: "gemma3",
    names: &[
        "Gemma3ForCausalLM",
        "Gemma3TextModel",
        "Gemma3ForConditionalGeneration",
        "Gemma3Model",
        "gemma3_text",
        "gemma3",
    ],
    load: load_gemma3,
};

/// What all norms are stored less of.
const OFFSET: f32 = 1.0;

/// The sizes that checkpoints with a vision tower leave out.
const DEFAULTS: &[(&str, usize)] = &[
    ("vocab_size", 262_208),
    ("num_attention_heads", 8),
    ("num_key_value_heads", 4),
    ("head_dim", 256),
    ("max_position_embeddings", 131_072),
];

/// Where the two families differ.
struct Gemma {
    shape: Shape,
    rotaries: Vec<Rotary>,
    /// What each layer's queries see, and how it is rotated.
    seen: Vec<(Mask, (usize, Rope))>,
    head_norms: bool,
    /// Of scores.
    softcap: Option<f32>,
    /// Of logits.
    final_softcap: Option<f32>,
}

fn load_gemma2(config: &Config, root: &Loader) -> Result<Built> {
    config.only("use_bidirectional_attention", false)?;
    let mut shape = shape(config, GEMMA2.family, Some(256))?;
    let (rotary, positions) = rotary(config, &shape, None)?;
    shape.max_positions = positions;
    let window = config.size_or("sliding_window", MAX_POSITIONS, 4096)?;
    let kinds = layer_types(config, shape.layers, ATTENTIONS, |i| Ok(ATTENTIONS[usize::from(i.is_multiple_of(2))]))?;
    let sliding = |kind| (kind == "sliding_attention").then_some(window);
    let gemma = Gemma {
        shape,
        seen: kinds.into_iter().map(|kind| (causal(sliding(kind)), (0, rotary.rope))).collect(),
        rotaries: vec![rotary],
        head_norms: false,
        softcap: softcap(config, "attn_logit_softcapping", Some(50.0))?,
        final_softcap: softcap(config, "final_logit_softcapping", Some(30.0))?,
    };
    gemma.load(config, config, root)
}

fn load_gemma3(config: &Config, root: &Loader) -> Result<Built> {
    let text = config.section("text_config")?.map(|text| text.with_defaults(DEFAULTS));
    let text = text.as_ref().unwrap_or(config);
    let mut shape = shape(text, GEMMA3.family, Some(256))?;
    let (head_dim, positions) = (shape.head_dim, shape.max_positions);
    let rotary = |layers, theta, base| {
        text.rotary(Asked { layers: Some(layers), theta, base, partial: None, head_dim, window: positions })
    };
    let (global, positions) = rotary("full_attention", "rope_theta", 1_000_000.0)?;
    let (local, _) = rotary("sliding_attention", "rope_local_base_freq", 10_000.0)?;
    shape.max_positions = positions;

    let window = text.size_or("sliding_window", MAX_POSITIONS, 4096)?;
    let every = text.size_or(text.either(&["sliding_window_pattern", "_sliding_window_pattern"]), MAX_LAYERS, 6)?;
    let by_pattern = |i: usize| Ok(ATTENTIONS[usize::from(!(i + 1).is_multiple_of(every))]);
    let both_ways = text.flag_or("use_bidirectional_attention", false)?;
    let seen = |kind| match (kind, both_ways) {
        ("full_attention", false) => (Mask::Causal, (0, global.rope)),
        ("full_attention", true) => (Mask::Full, (0, global.rope)),
        (_, false) => (causal(Some(window)), (1, local.rope)),
        // `sliding_window` is the whole of it: half on either side.
        (_, true) => (Mask::Window { left: window / 2, right: window / 2 }, (1, local.rope)),
    };
    let gemma = Gemma {
        seen: layer_types(text, shape.layers, ATTENTIONS, by_pattern)?.into_iter().map(seen).collect(),
        shape,
        rotaries: vec![global, local],
        head_norms: true,
        softcap: softcap(text, "attn_logit_softcapping", None)?,
        final_softcap: softcap(text, "final_logit_softcapping", None)?,
    };
    gemma.load(config, text, &root.under(text))
}

/// A bound, which `null` turns off.
pub(crate) fn softcap(config: &Config, key: &str, default: Option<f64>) -> Result<Option<f32>> {
    let cap = match (config.get(key), default) {
        (None, None) => return Ok(None),
        (None, Some(_)) if config.is_null(key) => return Ok(None),
        (_, default) => config.float_or(key, default.unwrap_or(1.0))?,
    };
    Ok(Some(cap as f32))
}

impl Gemma {
    /// `outer` is the whole config.json where `config` is the part of it about text.
    fn load(self, outer: &Config, config: &Config, root: &Loader) -> Result<Built> {
        let Gemma { shape, rotaries, seen, head_norms, softcap, final_softcap } = self;
        let trunk = root.trunk(WORDS)?;
        let (hidden, eps) = (shape.hidden, config.float_or("rms_norm_eps", 1e-6)?);
        let bias = Bias::from(config.flag_or("attention_bias", false)?);
        let scale = config.float_or("query_pre_attn_scalar", 256.0)?.sqrt().recip() as f32;
        let layer = |(i, (mask, rotary)): (usize, (Mask, (usize, Rope)))| {
            let layer = trunk.layer("layers", i);
            let norm = |name, width| layer.rms_norm(name, width, eps, OFFSET);
            let [query, key, value] = qkv(&layer, &shape, bias)?;
            let head_norm = |name| norm(name, shape.head_dim);
            let norms = head_norms
                .then(|| Ok::<_, ModelError>([head_norm("self_attn.q_norm")?, head_norm("self_attn.k_norm")?]));
            Ok(DecoderLayer {
                mixer_norm: norm("input_layernorm", hidden)?,
                mixer: Mixer::Attention(HeadAttention {
                    query,
                    key,
                    value,
                    norms: norms.transpose()?,
                    gate: None,
                    attention: Attention { scale, softcap, mask, ..heads(&shape) },
                    rotary,
                    output: output(&layer, &shape, bias)?,
                }),
                mixed_norm: Some(norm("post_attention_layernorm", hidden)?),
                network_norm: norm("pre_feedforward_layernorm", hidden)?,
                network: network(config, &layer, hidden, "hidden_activation", "gelu_pytorch_tanh", Bias::No)?,
                network_out_norm: Some(norm("post_feedforward_layernorm", hidden)?),
            })
        };
        let layers = seen.into_iter().enumerate().map(layer).collect::<Result<_>>()?;
        let words = trunk.table(WORDS, shape.vocab, hidden)?;
        let norm = trunk.rms_norm("norm", hidden, eps, OFFSET)?;
        let head = head(outer, config, root, &trunk, &shape, true, final_softcap)?;
        let scale = Some((hidden as f64).sqrt() as f32);
        let model = Decoder { shape, words, scale, rotaries, layers, norm };
        Ok(Built { model: Box::new(model), classifier: None, head })
    }
}
