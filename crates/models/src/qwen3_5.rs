//! Qwen3.5 and 3.6: three layers of gated delta nets to one of gated attention, with a dense network or experts.
//!
//! Checkpoints with a vision tower load as the language model inside of them; the tower's tensors are listed as unused.
//! Positions have three axes (time, height, width), which are equal for text: then interleaving them changes nothing.

use crate::architectures::{Arch, Built};
use crate::blocks::{Decoder, DecoderLayer, DeltaNet, HeadAttention, Mixer, Mixture, Mlp, Network, SharedExpert};
use crate::causal::{WORDS, head, heads, layer_types, network, output, rotary, shape};
use crate::config::{Config, MAX_EXPERTS, MAX_HEADS, MAX_HIDDEN, MAX_INNER, MAX_LAYERS};
use crate::error::{ModelError, Result};
use crate::loader::{Bias, Loader};
use crate::model::Shape;
use ops::{Attention, Delta, Expert, Linear, Mask, Rope, Routing};

/// With a dense network.
pub const DENSE: Arch = Arch {
    family: "qwen3_5",
    names: &[
        "Qwen3_5ForCausalLM",
        "Qwen3_5TextModel",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5Model",
        "qwen3_5_text",
        "qwen3_5",
    ],
    load: load_dense,
};

/// With experts.
pub const MOE: Arch = Arch {
    family: "qwen3_5_moe",
    names: &[
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5MoeTextModel",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen3_5MoeModel",
        "qwen3_5_moe_text",
        "qwen3_5_moe",
    ],
    load: load_moe,
};

/// What all norms but those of the delta nets' heads are stored less of.
const OFFSET: f32 = 1.0;

fn load_dense(config: &Config, root: &Loader) -> Result<Built> {
    load(config, root, DENSE.family, |text, layer, hidden| network(text, layer, hidden, "hidden_act", "silu", Bias::No))
}

fn load_moe(config: &Config, root: &Loader) -> Result<Built> {
    load(config, root, MOE.family, experts)
}

fn load(
    config: &Config,
    root: &Loader,
    family: &'static str,
    network: impl Fn(&Config, &Loader, usize) -> Result<Network>,
) -> Result<Built> {
    let text = config.section("text_config")?;
    let text = text.as_ref().unwrap_or(config);
    let root = root.under(text);
    let trunk = root.trunk(WORDS)?;
    let mut shape = shape(text, family, Some(256))?;
    let (rotary, window) = rotary(text, &shape, Some(0.25))?;
    shape.max_positions = window;
    let (hidden, eps) = (shape.hidden, text.float_or("rms_norm_eps", 1e-6)?);
    let every = text.size_or("full_attention_interval", MAX_LAYERS, 4)?;
    let by_interval = |i: usize| Ok(LAYERS[usize::from(!(i + 1).is_multiple_of(every))]);
    let layer = |(i, kind): (usize, &str)| {
        let layer = trunk.layer("layers", i);
        let mixer = match kind {
            "linear_attention" => Mixer::Delta(delta_net(text, &layer, hidden, eps)?),
            _ => Mixer::Attention(attention(text, &layer, &shape, eps, rotary.rope)?),
        };
        Ok(DecoderLayer {
            mixer_norm: layer.rms_norm("input_layernorm", hidden, eps, OFFSET)?,
            mixer,
            mixed_norm: None,
            network_norm: layer.rms_norm("post_attention_layernorm", hidden, eps, OFFSET)?,
            network: network(text, &layer, hidden)?,
            network_out_norm: None,
        })
    };
    let kinds = layer_types(text, shape.layers, LAYERS, by_interval)?;
    let layers = kinds.into_iter().enumerate().map(layer).collect::<Result<_>>()?;
    let words = trunk.table(WORDS, shape.vocab, hidden)?;
    let norm = trunk.rms_norm("norm", hidden, eps, OFFSET)?;
    let head = head(config, text, &root, &trunk, &shape, false, None)?;
    let model = Decoder { shape, words, scale: None, rotaries: vec![rotary], layers, norm };
    Ok(Built { model: Box::new(model), classifier: None, head })
}

/// The kinds of layers.
const LAYERS: [&str; 2] = ["full_attention", "linear_attention"];

/// Attention whose result has a gate: `q_proj` holds, for each head, the query and then the gate.
fn attention(text: &Config, layer: &Loader, shape: &Shape, eps: f64, rope: Rope) -> Result<HeadAttention> {
    let bias = text.flag_or("attention_bias", false)?.into();
    let (hidden, dim) = (shape.hidden, shape.head_dim);
    let keys = ["self_attn.q_proj", "self_attn.q_proj.gate"];
    let [query, gate] = layer.interleaved("self_attn.q_proj", keys, shape.heads, dim, hidden, bias)?;
    Ok(HeadAttention {
        query,
        key: layer.linear("self_attn.k_proj", shape.kv_heads * dim, hidden, bias)?,
        value: layer.linear("self_attn.v_proj", shape.kv_heads * dim, hidden, bias)?,
        norms: Some([
            layer.rms_norm("self_attn.q_norm", dim, eps, OFFSET)?,
            layer.rms_norm("self_attn.k_norm", dim, eps, OFFSET)?,
        ]),
        gate: Some(gate),
        attention: Attention { mask: Mask::Causal, ..heads(shape) },
        rotary: (0, rope),
        output: output(layer, shape, bias)?,
    })
}

fn delta_net(text: &Config, layer: &Loader, hidden: usize, eps: f64) -> Result<DeltaNet> {
    text.only("hidden_act", "silu")?; // the convolution and the gate have the model's activation
    let key_heads = text.size_or("linear_num_key_heads", MAX_HEADS, 16)?;
    let value_heads = text.size_or("linear_num_value_heads", MAX_HEADS, 32)?;
    if !value_heads.is_multiple_of(key_heads) {
        return Err(text.wrong("linear_num_key_heads", format!("a divisor of {value_heads}")));
    }
    let key_dim = text.size_or("linear_key_head_dim", MAX_HIDDEN, 128)?;
    let value_dim = text.size_or("linear_value_head_dim", MAX_HIDDEN, 128)?;
    let kernel = text.size_or("linear_conv_kernel_dim", MAX_HEADS, 4)?;
    let (values, channels) = (value_heads * value_dim, 2 * key_heads * key_dim + value_heads * value_dim);
    let linear = |name, outputs, inputs| layer.linear(name, outputs, inputs, Bias::No);
    Ok(DeltaNet {
        qkv: linear("linear_attn.in_proj_qkv", channels, hidden)?,
        gate: linear("linear_attn.in_proj_z", values, hidden)?,
        decay: linear("linear_attn.in_proj_a", value_heads, hidden)?,
        beta: linear("linear_attn.in_proj_b", value_heads, hidden)?,
        delta: Delta {
            key_heads,
            value_heads,
            key_dim,
            value_dim,
            kernel,
            convolution: layer.flat("linear_attn.conv1d.weight", &[channels, 1, kernel])?,
            a_log: layer.vector("linear_attn.A_log", value_heads)?,
            dt_bias: layer.vector("linear_attn.dt_bias", value_heads)?,
        },
        norm: layer.rms_norm("linear_attn.norm", value_dim, eps, 0.0)?,
        output: linear("linear_attn.out_proj", hidden, values)?,
    })
}

/// Experts, in one tensor or in one each, and the shared one.
fn experts(text: &Config, layer: &Loader, hidden: usize) -> Result<Network> {
    let count = text.size("num_experts", MAX_EXPERTS)?;
    let active = text.size("num_experts_per_tok", count)?;
    let inner = text.size("moe_intermediate_size", MAX_INNER)?;
    let shared = text.size("shared_expert_intermediate_size", MAX_INNER)?;
    let kind = text.activation("hidden_act", "silu")?;
    let linear = |name, outputs, inputs| layer.linear(name, outputs, inputs, Bias::No);
    let expert = |gate, up, down| Expert { gate, up, down };
    let experts = if layer.contains("mlp.experts.gate_up_proj") {
        let keys = ["mlp.experts.gate_proj", "mlp.experts.up_proj"];
        let inputs = layer.experts("mlp.experts.gate_up_proj", keys, count, inner, hidden)?;
        let outputs = layer.experts("mlp.experts.down_proj", ["mlp.experts.down_proj"], count, hidden, inner)?;
        inputs.into_iter().zip(outputs).map(|([gate, up], [down])| expert(gate, up, down)).collect()
    } else {
        let one = |i: usize| -> Result<Expert> {
            let part = |name, key, outputs, inputs| {
                let [linear] = layer.item("mlp.experts", i).stacked(name, [key], outputs, inputs, Bias::No)?;
                Ok::<Linear, ModelError>(linear)
            };
            let gate = part("gate_proj", "mlp.experts.gate_proj", inner, hidden)?;
            let up = part("up_proj", "mlp.experts.up_proj", inner, hidden)?;
            Ok(expert(gate, up, part("down_proj", "mlp.experts.down_proj", hidden, inner)?))
        };
        (0..count).map(one).collect::<Result<_>>()?
    };
    let shared = SharedExpert {
        mlp: Mlp::Gated {
            gate: linear("mlp.shared_expert.gate_proj", shared, hidden)?,
            up: linear("mlp.shared_expert.up_proj", shared, hidden)?,
            kind,
        },
        down: linear("mlp.shared_expert.down_proj", hidden, shared)?,
        gate: linear("mlp.shared_expert_gate", 1, hidden)?,
        spread: layer.computed_linear("mlp.shared_expert_gate.ones", hidden, vec![1.0; hidden])?,
    };
    Ok(Network::Experts(Mixture {
        router: linear("mlp.gate", count, hidden)?,
        routing: Routing { active, renormalize: true },
        experts,
        kind,
        shared: Some(Box::new(shared)),
    }))
}
