//! Gemma 4's language model: Gemma 3's sandwich of norms, with heads of two widths, values normalised without a scale,
//! last layers that read the keys and values of earlier ones, and an input of its own for each layer and token.
//!
//! Checkpoints with towers for other inputs load as the language model inside of them; the towers' tensors are listed as
//! unused. In those, tokens of an image see both ways: text does not.

use crate::architectures::{Arch, Built};
use crate::blocks::{Mlp, Rotary, add_normed, bidirectional, causal, kept};
use crate::causal::{ATTENTIONS, WORDS, head, layer_types, shape};
use crate::config::{Config, MAX_HEADS, MAX_HIDDEN, MAX_INNER, MAX_POSITIONS, MAX_VOCAB};
use crate::error::{ModelError, Result};
use crate::gemma::softcap;
use crate::loader::{Bias, Loader};
use crate::model::{Forward, Model, Place, Shape};
use crate::rotary::Asked;
use crate::state::LayerState;
use ops::{Act, Activation, Attention, Linear, Norm, NormKind, Rope, Table};

/// Gemma 4.
pub const ARCH: Arch = Arch {
    family: "gemma4",
    names: &[
        "Gemma4ForCausalLM",
        "Gemma4TextModel",
        "Gemma4ForConditionalGeneration",
        "Gemma4Model",
        "gemma4_text",
        "gemma4",
    ],
    load,
};

struct Gemma4 {
    shape: Shape,
    words: Table,
    scale: f32,
    inputs: Option<LayerInputs>,
    rotaries: Vec<Rotary>,
    layers: Vec<Layer>,
    norm: Norm,
}

/// Inputs that each layer has for each token: what the token is, in a table, and what it is to this layer, projected.
struct LayerInputs {
    table: Table, // [vocab · layers, width]
    scale: f32,
    projected_scale: f32,
    norm: Norm,
}

struct Layer {
    attention_norm: Norm,
    attention: Attention,
    rotary: (usize, Rope),
    query: Linear,
    query_norm: Norm,
    keys: Option<Keys>,
    /// The layer whose keys and values it reads: itself, if it has any.
    source: usize,
    output: Linear,
    attended_norm: Norm,
    network_norm: Norm,
    mlp: Mlp,
    down: Linear,
    network_out_norm: Norm,
    input: Option<LayerInput>,
    scale: f32,
}

/// Projections to keys and values.
struct Keys {
    key: Linear,
    /// Without one, values are the keys before their norm.
    value: Option<Linear>,
    key_norm: Norm,
    value_norm: Norm,
}

/// What a layer does with its own input.
struct LayerInput {
    project: Linear,
    gate: Linear,
    kind: Activation,
    output: Linear,
    norm: Norm,
}

impl Model for Gemma4 {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn states(&self) -> Vec<LayerState> {
        let state = |layer: &Layer| match layer.keys {
            None => LayerState::Shared(layer.source),
            Some(_) => kept(&layer.attention).expect("its tokens do not look ahead"),
        };
        self.layers.iter().map(state).collect()
    }

    fn forward(&self, cx: &Forward) -> Act {
        let angles: Vec<Act> = self.rotaries.iter().map(|rotary| rotary.angles(cx)).collect();
        let words = cx.ops.scale(cx.embed(&self.words), self.scale);
        cx.traced(Place::Embedding, &words);
        let mut x = words.clone();
        let mut kv: Vec<Option<(Act, Act)>> = vec![None; self.layers.len()];
        for (i, layer) in self.layers.iter().enumerate() {
            let heads = layer.attend(cx, i, &cx.ops.norm(&x, &layer.attention_norm), &angles, &mut kv);
            x = add_normed(cx, x, &heads, &layer.output, Some(&layer.attended_norm));
            let inner = layer.mlp.forward(cx, &cx.ops.norm(&x, &layer.network_norm));
            x = add_normed(cx, x, &inner, &layer.down, Some(&layer.network_out_norm));
            if let (Some(all), Some(own)) = (&self.inputs, &layer.input) {
                let input = all.of_layer(cx, i, self.layers.len(), &words, own);
                let gated = cx.ops.glu(cx.linear(&x, &own.gate), &input, own.kind);
                x = add_normed(cx, x, &gated, &own.output, Some(&own.norm));
            }
            x = cx.ops.scale(x, layer.scale);
            cx.traced(Place::Layer(i), &x);
        }
        let x = cx.ops.norm(&x, &self.norm);
        cx.traced(Place::Norm, &x);
        x
    }
}

impl LayerInputs {
    /// `[tokens, width]` for a layer.
    fn of_layer(&self, cx: &Forward, layer: usize, layers: usize, words: &Act, own: &LayerInput) -> Act {
        let rows: Vec<u32> = cx.batch.ids.iter().map(|id| id * layers as u32 + layer as u32).collect();
        let known = cx.ops.scale(cx.ops.embed(&self.table, &rows), self.scale);
        let projected = cx.ops.scale(cx.linear(words, &own.project), self.projected_scale);
        cx.ops.scale(cx.ops.add(cx.ops.norm(&projected, &self.norm), &known), 0.5f32.sqrt())
    }
}

impl Layer {
    /// `[tokens, heads · dim]`. `kv` holds what layers before this one have computed, and takes what this one does.
    fn attend(&self, cx: &Forward, index: usize, x: &Act, angles: &[Act], kv: &mut [Option<(Act, Act)>]) -> Act {
        let (angles, rope) = (&angles[self.rotary.0], self.rotary.1);
        let q = cx.ops.rope(cx.ops.norm(&cx.linear(x, &self.query), &self.query_norm), angles, rope);
        if let Some(Keys { key, value, key_norm, value_norm }) = &self.keys {
            let k = cx.linear(x, key);
            let v = value.as_ref().map_or_else(|| k.clone(), |value| cx.linear(x, value));
            let k = cx.ops.rope(cx.ops.norm(&k, key_norm), angles, rope);
            kv[index] = Some((k, cx.ops.norm(&v, value_norm)));
        }
        let (k, v) = kv[self.source].as_ref().expect("an earlier layer has keys and values of its own");
        cx.attend_layer(index, &q, k, v, &self.attention)
    }
}

fn load(config: &Config, root: &Loader) -> Result<Built> {
    let text = config.section("text_config")?;
    let text = text.as_ref().unwrap_or(config);
    text.only("enable_moe_block", false)?;
    if text.get("use_bidirectional_attention").is_some_and(|both| both != "vision") {
        return Err(text.not_built("use_bidirectional_attention", "null, \"vision\""));
    }
    let root = root.under(text);
    let trunk = root.trunk(WORDS)?;
    let shape = shape(text, ARCH.family, Some(256))?;
    let plans = plans(text, &shape)?;
    let rotary = |kind: &'static str| {
        let head_dim = plans.iter().find(|plan| plan.kind == kind).map_or(shape.head_dim, |plan| plan.head_dim);
        let (layers, window) = (Some(kind), shape.max_positions);
        let asked = Asked { layers, theta: "rope_theta", base: 10_000.0, partial: None, head_dim, window };
        Ok::<_, ModelError>(text.rotary(asked)?.0)
    };
    let rotaries = vec![rotary(ATTENTIONS[0])?, rotary(ATTENTIONS[1])?];
    let (hidden, eps) = (shape.hidden, text.float_or("rms_norm_eps", 1e-6)?);
    let width = text.index_or("hidden_size_per_layer_input", MAX_HIDDEN, 256)?;
    let inputs = (width > 0).then(|| LayerInputs::load(text, &trunk, &shape, width, eps)).transpose()?;
    let (inputs, projections) = inputs.map_or((None, Vec::new()), |(inputs, all)| (Some(inputs), all));
    let mut projections = projections.into_iter();
    let layers = plans.iter().enumerate().map(|(i, plan)| {
        let layer = trunk.layer("layers", i);
        let input =
            projections.next().map(|project| LayerInput::load(text, &layer, project, hidden, eps)).transpose()?;
        Layer::load(text, &layer, &shape, plan, &rotaries, input, eps)
    });
    let layers = layers.collect::<Result<_>>()?;
    let words = trunk.table(WORDS, shape.vocab, hidden)?;
    let norm = trunk.rms_norm("norm", hidden, eps, 0.0)?;
    let cap = softcap(text, "final_logit_softcapping", None)?;
    let head = head(config, text, &root, &trunk, &shape, true, cap)?;
    let scale = (hidden as f64).sqrt() as f32;
    Ok(Built {
        model: Box::new(Gemma4 { shape, words, scale, inputs, rotaries, layers, norm }),
        classifier: None,
        head,
    })
}

/// What differs from layer to layer.
struct Plan {
    kind: &'static str,
    kv_heads: usize,
    head_dim: usize,
    inner: usize,
    index: usize,
    /// The layer whose keys and values it reads.
    source: usize,
}

fn plans(text: &Config, shape: &Shape) -> Result<Vec<Plan>> {
    let by_pattern = |i: usize| Ok(ATTENTIONS[usize::from(!(i + 1).is_multiple_of(6))]);
    let mut kinds = layer_types(text, shape.layers, ATTENTIONS, by_pattern)?;
    *kinds.last_mut().expect("there are layers") = "full_attention"; // as the reference does
    let first_shared = shape.layers - text.index_or("num_kv_shared_layers", shape.layers, 0)?;
    let inner = text.size("intermediate_size", MAX_INNER)?;
    let wide = text.flag_or("use_double_wide_mlp", false)?;
    let sizes = text.section("per_layer_config")?;
    let mut plans: Vec<Plan> = Vec::with_capacity(shape.layers);
    for (i, &kind) in kinds.iter().enumerate() {
        let (kv_heads, head_dim) = match &sizes {
            Some(layers) => {
                let own = layers.section(&i.to_string())?.unwrap_or_default();
                let kv_heads = own.size_or("num_key_value_heads", MAX_HEADS, shape.kv_heads)?;
                (kv_heads, own.size_or("head_dim", MAX_HIDDEN, shape.head_dim)?)
            }
            None if kind == "full_attention" => {
                let keys = text.flag_or("attention_k_eq_v", false)?;
                let kv_heads = text.size_or("num_global_key_value_heads", MAX_HEADS, shape.kv_heads)?;
                let kv_heads = if keys { kv_heads } else { shape.kv_heads };
                (kv_heads, text.size_or("global_head_dim", MAX_HIDDEN, 512)?)
            }
            None => (shape.kv_heads, shape.head_dim),
        };
        let alike = |other: &&Plan| other.kind == kind && (other.kv_heads, other.head_dim) == (kv_heads, head_dim);
        let of_kind = plans.iter().filter(|other| other.kind == kind);
        if !shape.heads.is_multiple_of(kv_heads) || of_kind.clone().any(|other| !alike(&other)) {
            let expected = format!("one size for all \"{kind}\" layers, of which {} heads make groups", shape.heads);
            return Err(text.wrong("per_layer_config", expected));
        }
        let shares = i >= first_shared;
        let owner = kinds[..first_shared.min(i)].iter().rposition(|other| *other == kind);
        if shares && owner.is_none() {
            return Err(text.wrong("num_kv_shared_layers", format!("a \"{kind}\" layer before the layers that share")));
        }
        let inner = if wide && shares { 2 * inner } else { inner };
        let source = owner.filter(|_| shares).unwrap_or(i);
        plans.push(Plan { kind, kv_heads, head_dim, inner, index: i, source });
    }
    Ok(plans)
}

impl LayerInputs {
    /// With each layer's projection.
    fn load(
        text: &Config,
        trunk: &Loader,
        shape: &Shape,
        width: usize,
        eps: f64,
    ) -> Result<(LayerInputs, Vec<Linear>)> {
        let &Shape { vocab, hidden, layers, .. } = shape;
        let key = "vocab_size_per_layer_input";
        if text.size_or(key, MAX_VOCAB, vocab)? != vocab || vocab * layers > u32::MAX as usize {
            return Err(text.wrong(key, format!("{vocab}, as vocab_size is")));
        }
        let inputs = LayerInputs {
            table: trunk.split_table("embed_tokens_per_layer.weight", vocab, layers, width)?,
            scale: (width as f64).sqrt() as f32,
            projected_scale: (hidden as f64).sqrt().recip() as f32,
            norm: trunk.rms_norm("per_layer_projection_norm", width, eps, 0.0)?,
        };
        Ok((inputs, trunk.parts("per_layer_model_projection", layers, width, hidden)?))
    }
}

impl LayerInput {
    fn load(text: &Config, layer: &Loader, project: Linear, hidden: usize, eps: f64) -> Result<LayerInput> {
        let width = project.outputs;
        Ok(LayerInput {
            project,
            gate: layer.linear("per_layer_input_gate", width, hidden, Bias::No)?,
            kind: text.activation("hidden_activation", "gelu_pytorch_tanh")?,
            output: layer.linear("per_layer_projection", hidden, width, Bias::No)?,
            norm: layer.rms_norm("post_per_layer_input_norm", hidden, eps, 0.0)?,
        })
    }
}

impl Layer {
    fn load(
        text: &Config,
        layer: &Loader,
        shape: &Shape,
        plan: &Plan,
        rotaries: &[Rotary],
        input: Option<LayerInput>,
        eps: f64,
    ) -> Result<Layer> {
        let (hidden, heads, &Plan { kind, kv_heads, head_dim, inner, index, source }) =
            (shape.hidden, shape.heads, plan);
        let full = kind == "full_attention";
        let bias = Bias::from(text.flag_or("attention_bias", false)?);
        let norm = |name, width| layer.rms_norm(name, width, eps, 0.0);
        let linear = |name, outputs, inputs, bias| layer.linear(name, outputs, inputs, bias);
        let keys = || {
            let projection = |name| linear(name, kv_heads * head_dim, hidden, bias);
            let is_key = full && text.flag_or("attention_k_eq_v", false)?;
            let ones = layer.computed("v_norm.ones", vec![1.0; head_dim])?;
            Ok::<_, ModelError>(Keys {
                key: projection("self_attn.k_proj")?,
                value: (!is_key).then(|| projection("self_attn.v_proj")).transpose()?,
                key_norm: norm("self_attn.k_norm", head_dim)?,
                value_norm: Norm { kind: NormKind::Rms, weight: ones, bias: None, eps: eps as f32 },
            })
        };
        let window = (!full).then(|| text.size_or("sliding_window", MAX_POSITIONS, 512)).transpose()?;
        let mask = causal(window);
        let rotary = usize::from(!full);
        let kind = text.activation("hidden_activation", "gelu_pytorch_tanh")?;
        Ok(Layer {
            attention_norm: norm("input_layernorm", hidden)?,
            attention: Attention { kv_heads, scale: 1.0, mask, ..bidirectional(heads, head_dim) },
            rotary: (rotary, rotaries[rotary].rope),
            query: linear("self_attn.q_proj", heads * head_dim, hidden, bias)?,
            query_norm: norm("self_attn.q_norm", head_dim)?,
            keys: (source == index).then(keys).transpose()?,
            source,
            output: linear("self_attn.o_proj", hidden, heads * head_dim, bias)?,
            attended_norm: norm("post_attention_layernorm", hidden)?,
            network_norm: norm("pre_feedforward_layernorm", hidden)?,
            mlp: Mlp::Gated {
                gate: linear("mlp.gate_proj", inner, hidden, Bias::No)?,
                up: linear("mlp.up_proj", inner, hidden, Bias::No)?,
                kind,
            },
            down: linear("mlp.down_proj", hidden, inner, Bias::No)?,
            network_out_norm: norm("post_feedforward_layernorm", hidden)?,
            input,
            scale: if layer.contains("layer_scalar") { layer.tensor("layer_scalar", &[1])?.to_f32()?[0] } else { 1.0 },
        })
    }
}
