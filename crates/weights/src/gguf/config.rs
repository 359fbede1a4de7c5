//! What would the config.json of a GGUF file's model say? Made of its metadata, of which tensors it has, and of what
//! llama.cpp takes for granted where the file is silent.
//!
//! The keys are those of `transformers` 5 (`rope_parameters`, `layer_types`, `per_layer_config`). Two things have no key
//! there: `rope_type: "freq_factors"` with `rope_freq_factors`, and `pooling_type`; [`super::HuggingFace`] says what they
//! mean. Floats that the file has in 32 bits are given as the shortest decimal that means them: `1e-6`.

use super::architectures::Architecture;
use super::draft::{Draft, MAX_EXPERTS, MAX_HEADS, MAX_SIZE, decimal};
use super::metadata::{Metadata, Strings, Value as Meta};
use super::{MAX_BLOCKS, field};
use crate::order::{Heads, MAX_REPEATS};
use crate::{Checkpoint, Result, Tensor};
use serde_json::{Map, Value, json};

/// The sizes by which tensors are split and reordered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    /// Blocks of the model, without those behind it that predict several tokens.
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub delta: Option<Delta>,
    /// Rows that Hugging Face's table of positions has before that of the file.
    pub position_offset: usize,
}

/// The gated delta nets of a model, as the file has them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delta {
    pub heads: Heads,
    pub key_width: usize,
    pub value_width: usize,
    /// Are key heads repeated, because the columns of an output projection cannot be reordered?
    pub repeated: bool,
}

/// The config.json of a model, and the sizes in it.
pub(super) fn build(
    arch: &'static Architecture,
    metadata: &Metadata,
    checkpoint: &Checkpoint,
) -> Result<(Value, Sizes)> {
    let mut draft = Draft { arch, metadata, checkpoint, map: Map::new(), sizes: Sizes::default() };
    draft.set("architectures", json!([arch.class]));
    draft.set("model_type", arch.model_type);
    (arch.config)(&mut draft)?;
    Ok((Value::Object(draft.map), draft.sizes))
}

/// Llama and what was made like it: SmolLM, and Mistral, which is one with a window.
pub(super) fn llama(d: &mut Draft) -> Result<()> {
    d.decoder()?;
    d.only_float("attention.scale", |d| (d.sizes.head_dim as f64).powf(-0.5))?;
    let (head_dim, key) = (d.sizes.head_dim, "rope.dimension_count");
    if d.size(key, head_dim)?.unwrap_or(head_dim) != head_dim {
        return Err(d.other(key, format!("{head_dim}, a whole head: partly rotated pairs are not built")));
    }
    d.set("mlp_bias", d.has("blk.0.ffn_gate.bias") || d.has("blk.0.ffn_down.bias"));
    if let Some(window) = d.window()? {
        d.set("architectures", json!(["MistralForCausalLM"]));
        d.set("model_type", "mistral");
        d.set("sliding_window", window);
    }
    Ok(())
}

/// Qwen 2 and 3.
pub(super) fn qwen(d: &mut Draft) -> Result<()> {
    d.decoder()?;
    d.layer_types(&vec![false; d.sizes.layers], "sliding_attention");
    d.set("use_sliding_window", false);
    d.pooling()
}

/// Qwen 3 with experts.
pub(super) fn qwen_experts(d: &mut Draft) -> Result<()> {
    qwen(d)?;
    d.experts()?;
    d.set("decoder_sparse_step", 1);
    d.set("mlp_only_layers", json!([]));
    Ok(())
}

/// Qwen 3.5: three layers with a gated delta net to one with attention.
pub(super) fn qwen_delta(d: &mut Draft) -> Result<()> {
    d.decoder()?;
    let (layers, head_dim) = (d.sizes.layers, d.sizes.head_dim);
    let interval = d.size("full_attention_interval", MAX_BLOCKS as usize)?.unwrap_or(4);
    let linear = match d.flags("attention.recurrent_layers")? {
        Some(flags) => flags,
        None => (0..layers).map(|i| (i + 1) % interval != 0).collect(),
    };
    d.layer_types(&linear, "linear_attention");

    let delta = d.delta()?;
    let key_heads = if delta.repeated { delta.heads.values } else { delta.heads.keys };
    d.set("linear_conv_kernel_dim", d.need("ssm.conv_kernel", MAX_SIZE)?);
    d.set("linear_num_key_heads", key_heads);
    d.set("linear_num_value_heads", delta.heads.values);
    d.set("linear_key_head_dim", delta.key_width);
    d.set("linear_value_head_dim", delta.value_width);
    d.sizes.delta = Some(delta);

    let rotary = d.size("rope.dimension_count", head_dim)?.unwrap_or(head_dim);
    let sections = d.counts("rope.dimension_sections")?.unwrap_or_else(|| vec![11, 11, 10, 0]);
    let mut rope = d.rope()?;
    rope.insert("partial_rotary_factor".into(), json!(rotary as f64 / head_dim as f64));
    rope.insert("mrope_section".into(), json!(sections.iter().take(3).collect::<Vec<_>>()));
    rope.insert("mrope_interleaved".into(), json!(true));
    d.set("rope_parameters", rope);
    Ok(())
}

/// Qwen 3.5 with experts and a shared one.
pub(super) fn qwen_delta_experts(d: &mut Draft) -> Result<()> {
    qwen_delta(d)?;
    d.experts()?;
    let shared = d.size("expert_shared_feed_forward_length", MAX_SIZE)?;
    let rows = || Some(d.checkpoint.find("blk.0.ffn_gate_shexp.weight")?.rows());
    if let Some(shared) = shared.or_else(rows) {
        d.set("shared_expert_intermediate_size", shared);
    }
    Ok(())
}

/// Gemma 2: every other layer has a window, and logits are capped.
pub(super) fn gemma2(d: &mut Draft) -> Result<()> {
    d.gemma(46, 2)?;
    d.set("attn_logit_softcapping", d.float("attn_logit_softcapping")?.unwrap_or(50.0));
    d.set("final_logit_softcapping", d.float("final_logit_softcapping")?.unwrap_or(30.0));
    d.map.entry("sliding_window").or_insert(json!(4096));
    Ok(())
}

/// Gemma 3: five layers with a window, and a rotary base of their own, to one without.
pub(super) fn gemma3(d: &mut Draft) -> Result<()> {
    d.gemma(62, 6)?;
    d.only_absent("attn_logit_softcapping")?;
    d.set("attn_logit_softcapping", Value::Null);
    d.set("final_logit_softcapping", d.float("final_logit_softcapping")?);
    if d.window()?.is_none() {
        d.layer_types(&vec![false; d.sizes.layers], "sliding_attention");
    }
    let local = json!({ "rope_type": "default", "rope_theta": d.float("rope.freq_base_swa")?.unwrap_or(10000.0) });
    d.set("rope_parameters", json!({ "full_attention": d.rope()?, "sliding_attention": local }));
    Ok(())
}

/// EmbeddingGemma: Gemma 3 that looks both ways.
pub(super) fn gemma_embedding(d: &mut Draft) -> Result<()> {
    gemma3(d)?;
    d.set("use_bidirectional_attention", true);
    d.pooling()
}

/// Gemma 4: wider heads in the layers without a window, keys and values shared by the last ones, inputs for each layer.
pub(super) fn gemma4(d: &mut Draft) -> Result<()> {
    d.common()?;
    let layers = d.sizes.layers;
    d.gemma_constants();
    d.set("final_logit_softcapping", d.float("final_logit_softcapping")?);
    d.set("sliding_window", d.need("attention.sliding_window", MAX_SIZE)?);
    let windowed = d.flags("attention.sliding_window_pattern")?;
    let windowed = windowed.ok_or_else(|| d.other("attention.sliding_window_pattern", "a flag for each layer"))?;
    d.layer_types(&windowed, "sliding_attention");

    let full_dim = d.need("attention.key_length", MAX_SIZE)?;
    let local_dim = d.size("attention.key_length_swa", MAX_SIZE)?.unwrap_or(full_dim);
    let kv_heads = d.per_layer("attention.head_count_kv", MAX_HEADS)?.unwrap_or_else(|| vec![d.sizes.heads; layers]);
    d.sizes.kv_heads = kv_heads[windowed.iter().position(|windowed| *windowed).unwrap_or(0)];
    d.sizes.head_dim = local_dim;
    d.set("num_key_value_heads", d.sizes.kv_heads);
    d.set("head_dim", local_dim);
    let mut own = Map::new();
    for (i, windowed) in windowed.iter().enumerate() {
        let mut layer = Map::new();
        if !windowed && full_dim != local_dim {
            layer.insert("head_dim".into(), json!(full_dim));
        }
        if kv_heads[i] != d.sizes.kv_heads {
            layer.insert("num_key_value_heads".into(), json!(kv_heads[i]));
        }
        if !layer.is_empty() {
            own.insert(i.to_string(), layer.into());
        }
    }
    d.set("per_layer_config", own);

    let shared = d.size("attention.shared_kv_layers", layers)?.unwrap_or(0);
    let with_values = layers - shared;
    let lacks_values =
        |i: usize| !d.has(&format!("blk.{i}.attn_v.weight")) && !d.has(&format!("blk.{i}.attn_qkv.weight"));
    let keys_are_values = (0..with_values).any(|i| !windowed[i] && lacks_values(i));
    d.set("num_kv_shared_layers", shared);
    d.set("attention_k_eq_v", keys_are_values);
    let inner = d.per_layer("feed_forward_length", MAX_SIZE)?;
    let inner = inner.ok_or_else(|| d.other("feed_forward_length", "a size, or one for each layer"))?;
    let wide = shared > 0 && inner[with_values] == 2 * inner[0];
    if (0..layers).any(|i| inner[i] != if wide && i >= with_values { 2 * inner[0] } else { inner[0] }) {
        return Err(d.other("feed_forward_length", "one size, or twice that in the layers that share keys and values"));
    }
    d.set("intermediate_size", inner[0]);
    d.set("use_double_wide_mlp", wide);
    d.set("enable_moe_block", false);
    d.set("hidden_size_per_layer_input", d.size("embedding_length_per_layer_input", MAX_SIZE)?.unwrap_or(0));
    if let Some(table) = d.checkpoint.find("per_layer_token_embd.weight") {
        d.set("vocab_size_per_layer_input", table.rows());
    }
    let rotary = d.size("rope.dimension_count_swa", local_dim)?.unwrap_or(local_dim);
    let mut local = Map::new();
    local.insert("rope_type".into(), json!("default"));
    local.insert("rope_theta".into(), json!(d.float("rope.freq_base_swa")?.unwrap_or(10000.0)));
    if rotary != local_dim {
        local.insert("partial_rotary_factor".into(), json!(rotary as f64 / local_dim as f64));
    }
    d.set("rope_parameters", json!({ "full_attention": d.proportional_rope()?, "sliding_attention": local }));
    Ok(())
}

/// BERT; by its tokenizer also RoBERTa and XLM-RoBERTa, whose tables of positions begin behind the padding id.
pub(super) fn bert(d: &mut Draft) -> Result<()> {
    d.encoder("layer_norm_eps")?;
    let classifies = d.has("cls.output.weight");
    let (class, model_type) = match d.metadata.find::<&str>("tokenizer.ggml.model")? {
        Some("t5") => ("XLMRoberta", "xlm-roberta"),
        Some("gpt2") => ("Roberta", "roberta"),
        _ => ("Bert", "bert"),
    };
    d.set(
        "architectures",
        json!([format!("{class}{}", if classifies { "ForSequenceClassification" } else { "Model" })]),
    );
    d.set("model_type", model_type);
    if class != "Bert" {
        let padding = d.metadata.find::<u32>("tokenizer.ggml.padding_token_id")?.unwrap_or(1);
        if padding > 15 {
            let expected = "at most 15: positions begin behind it";
            return Err(field("tokenizer.ggml.padding_token_id", padding, expected));
        }
        d.sizes.position_offset = padding as usize + 1;
        d.set("pad_token_id", padding);
    }
    let rows = d.tensor("position_embd.weight")?.rows();
    d.set("max_position_embeddings", rows.saturating_add(d.sizes.position_offset));
    d.set("type_vocab_size", d.tensor("token_types.weight")?.rows());
    d.set("hidden_act", "gelu");
    Ok(())
}

/// NomicBERT.
pub(super) fn nomic(d: &mut Draft) -> Result<()> {
    d.encoder("layer_norm_eps")?;
    d.set("type_vocab_size", d.checkpoint.find("token_types.weight").map_or(0, |types| types.rows()));
    d.set("hidden_act", "silu");
    d.set("qkv_proj_bias", d.has("blk.0.attn_qkv.bias"));
    d.set("rope_parameters", d.rope()?);
    Ok(())
}

/// ModernBERT: the first of every three layers looks at everything.
pub(super) fn modern(d: &mut Draft) -> Result<()> {
    d.encoder("norm_eps")?;
    if d.has("cls.output.weight") {
        d.set("architectures", json!(["ModernBertForSequenceClassification"]));
        d.set("classifier_pooling", "mean");
    }
    d.set("hidden_activation", d.metadata.find::<&str>(&d.key("hidden_act"))?.unwrap_or("gelu"));
    let every = d.size("attention.sliding_window_pattern", MAX_BLOCKS as usize)?.unwrap_or(3);
    let window = d.window()?;
    let windowed: Vec<bool> = (0..d.sizes.layers).map(|i| window.is_some() && i % every != 0).collect();
    d.layer_types(&windowed, "sliding_attention");
    if let Some(window) = window {
        d.set("local_attention", window);
    }
    let global = d.rope()?;
    let local = d.float("rope.freq_base_swa")?.map_or_else(|| global["rope_theta"].clone(), |base| json!(base));
    let local = json!({ "rope_type": "default", "rope_theta": local });
    d.set("rope_parameters", json!({ "full_attention": global, "sliding_attention": local }));
    Ok(())
}

/// What several architectures have in common.
impl Draft<'_> {
    /// What every model has.
    fn common(&mut self) -> Result<()> {
        let blocks = self.need("block_count", MAX_BLOCKS as usize)?;
        let predicting = self.size("nextn_predict_layers", blocks - 1)?.unwrap_or(0);
        self.sizes.layers = blocks - predicting;
        self.sizes.heads = self.uniform("attention.head_count", MAX_HEADS)?;
        self.set("hidden_size", self.need("embedding_length", MAX_SIZE)?);
        self.set("num_hidden_layers", self.sizes.layers);
        self.set("num_attention_heads", self.sizes.heads);
        self.set("vocab_size", self.tensor("token_embd.weight")?.rows());
        self.set("max_position_embeddings", self.need("context_length", MAX_SIZE)?);
        for (ours, theirs) in [("bos", "bos"), ("pad", "padding")] {
            let id = self.metadata.find::<u32>(&format!("tokenizer.ggml.{theirs}_token_id"))?;
            self.set(&format!("{ours}_token_id"), id);
        }
        let mut ends: Vec<u32> = Vec::new();
        for name in ["eos", "eot", "eom"] {
            let id = self.metadata.find::<u32>(&format!("tokenizer.ggml.{name}_token_id"))?;
            ends.extend(id.filter(|id| !ends.contains(id)));
        }
        self.set("eos_token_id", if let [one] = ends[..] { json!(one) } else { Value::from(ends) });
        if self.map["eos_token_id"].as_array().is_some_and(Vec::is_empty) {
            self.set("eos_token_id", Value::Null);
        }
        self.set("tie_word_embeddings", !self.has("output.weight"));
        self.set("rms_norm_eps", self.float("attention.layer_norm_rms_epsilon")?);
        self.set(
            "attention_bias",
            ["q", "k", "v", "qkv", "output"].iter().any(|part| self.has(&format!("blk.0.attn_{part}.bias"))),
        );
        for key in
            ["attention.clamp_kqv", "attention.max_alibi_bias", "logit_scale", "residual_scale", "embedding_scale"]
        {
            self.only_absent(key)?;
        }
        Ok(())
    }

    /// What decoders with the same heads in every layer have.
    fn decoder(&mut self) -> Result<()> {
        self.common()?;
        if !self.map["rms_norm_eps"].is_f64() {
            return Err(self.other("attention.layer_norm_rms_epsilon", "a positive number"));
        }
        self.heads()?;
        if let Some(inner) = self.find_uniform("feed_forward_length", MAX_SIZE)? {
            self.set("intermediate_size", inner);
        }
        self.set("hidden_act", "silu");
        self.set("rope_parameters", self.rope()?);
        if self.arch.model_type.contains("moe") {
            return Ok(());
        }
        self.only_absent("expert_count")
    }

    fn heads(&mut self) -> Result<()> {
        let heads = self.sizes.heads;
        self.sizes.kv_heads = self.find_uniform("attention.head_count_kv", MAX_HEADS)?.unwrap_or(heads);
        let hidden = self.need("embedding_length", MAX_SIZE)?;
        let head_dim = match self.size("attention.key_length", MAX_SIZE)? {
            Some(head_dim) => head_dim,
            None if hidden.is_multiple_of(heads) => hidden / heads,
            None => return Err(self.other("attention.head_count", format!("a divisor of {hidden}, or a key_length"))),
        };
        if self.size("attention.value_length", MAX_SIZE)?.is_some_and(|width| width != head_dim) {
            return Err(self.other("attention.value_length", format!("{head_dim}, as wide as keys")));
        }
        self.sizes.head_dim = head_dim;
        self.set("num_key_value_heads", self.sizes.kv_heads);
        self.set("head_dim", head_dim);
        Ok(())
    }

    fn gemma_constants(&mut self) {
        self.map.remove("hidden_act");
        self.set("hidden_activation", "gelu_pytorch_tanh");
    }

    /// What Gemma 2 and 3 share; `largest` is the number of layers of the one whose attention is scaled differently.
    fn gemma(&mut self, largest: usize, period: usize) -> Result<()> {
        self.decoder()?;
        self.gemma_constants();
        let Sizes { layers, heads, head_dim, .. } = self.sizes;
        let scalar = match self.float("attention.scale")? {
            Some(scale) => decimal(1.0 / (scale * scale)),
            None if layers == largest => (self.need("embedding_length", MAX_SIZE)? / heads) as f64,
            None => head_dim as f64,
        };
        self.set("query_pre_attn_scalar", if scalar.fract() == 0.0 { json!(scalar as u64) } else { json!(scalar) });
        let key = "attention.sliding_window_pattern";
        let windowed = match self.value(key) {
            Some(Meta::Numbers(_)) => self.flags(key)?.unwrap_or_default(),
            _ => {
                let period = self.size(key, MAX_BLOCKS as usize)?.unwrap_or(period);
                (0..layers).map(|i| (i + 1) % period != 0).collect()
            }
        };
        self.layer_types(&windowed, "sliding_attention");
        if let Some(window) = self.window()? {
            self.set("sliding_window", window);
        }
        Ok(())
    }

    fn experts(&mut self) -> Result<()> {
        let experts = self.need("expert_count", MAX_EXPERTS)?;
        self.set("num_experts", experts);
        self.set("num_experts_per_tok", self.need("expert_used_count", experts)?);
        let inner = match self.find_uniform("expert_feed_forward_length", MAX_SIZE)? {
            Some(inner) => inner,
            None => self.tensor("blk.0.ffn_down_exps.weight")?.cols(),
        };
        self.set("moe_intermediate_size", inner);
        self.set("norm_topk_prob", true);
        if self.size("expert_gating_func", 255)?.is_some_and(|function| function != 1) {
            return Err(self.other("expert_gating_func", "1, softmax"));
        }
        self.only_float("expert_weights_scale", |_| 1.0)
    }

    fn delta(&self) -> Result<Delta> {
        let keys = self.need("ssm.group_count", MAX_HEADS)?;
        let values = self.need("ssm.time_step_rank", MAX_HEADS)?;
        if !values.is_multiple_of(keys) || values / keys > MAX_REPEATS {
            let expected = format!("a multiple of ssm.group_count, {keys}, at most {MAX_REPEATS} times that");
            return Err(self.other("ssm.time_step_rank", expected));
        }
        let key_width = self.need("ssm.state_size", MAX_SIZE)?;
        let inner = self.need("ssm.inner_size", MAX_SIZE)?;
        if !inner.is_multiple_of(values) {
            return Err(self.other("ssm.inner_size", format!("a multiple of ssm.time_step_rank, {values}")));
        }
        let value_width = inner / values;
        let straddles =
            |t: &Tensor| t.name().ends_with(".ssm_out.weight") && !value_width.is_multiple_of(t.format().block());
        let repeated = values > keys && self.checkpoint.tensors().any(straddles);
        Ok(Delta { heads: Heads { keys, values }, key_width, value_width, repeated })
    }

    fn encoder(&mut self, eps: &str) -> Result<()> {
        self.common()?;
        for key in ["rms_norm_eps", "attention_bias", "tie_word_embeddings"] {
            self.map.remove(key);
        }
        let key = "attention.layer_norm_epsilon"; // ModernBERT's is called `norm_eps`, which the converter takes for the other
        let value = self.float(key)?.or(self.float("attention.layer_norm_rms_epsilon")?);
        self.set(eps, value.ok_or_else(|| self.other(key, "a positive number"))?);
        self.set("intermediate_size", self.uniform("feed_forward_length", MAX_SIZE)?);
        self.only_absent("expert_count")?;
        self.heads()?;
        self.map.remove("num_key_value_heads");
        if let Some(labels) = self.metadata.find::<&Strings>(&self.key("classifier.output_labels"))? {
            let named = labels.iter().enumerate().map(|(i, label)| (i.to_string(), json!(label)));
            self.set("id2label", named.collect::<Map<_, _>>());
        } else if let Some(out) = self.checkpoint.find("cls.output.weight") {
            self.set("num_labels", out.rows());
        }
        self.pooling()
    }

    /// How an embedding model makes one row of many, where the file says so.
    fn pooling(&mut self) -> Result<()> {
        const NAMES: [&str; 5] = ["none", "mean", "cls", "last", "rank"];
        let Some(id) = self.metadata.find::<u32>(&self.key("pooling_type"))? else { return Ok(()) };
        let name = NAMES.get(id as usize).ok_or_else(|| self.other("pooling_type", "0 to 4"))?;
        self.set("pooling_type", *name);
        Ok(())
    }

    fn layer_types(&mut self, flags: &[bool], name: &str) {
        let types: Vec<&str> = flags.iter().map(|flag| if *flag { name } else { "full_attention" }).collect();
        self.set("layer_types", types);
    }

    /// The rotary positions, of the whole model or of its layers without a window.
    fn rope(&self) -> Result<Map<String, Value>> {
        let mut rope = Map::new();
        rope.insert("rope_type".into(), json!("default"));
        rope.insert("rope_theta".into(), json!(self.float("rope.freq_base")?.unwrap_or(10000.0)));
        let mut set = |key: &str, value: Value| drop(rope.insert(key.into(), value));
        let factor = match self.float("rope.scaling.factor")? {
            Some(factor) => factor,
            None => self.float("rope.scale_linear")?.unwrap_or(1.0),
        };
        let key = "rope.scaling.type";
        let kind = self.metadata.find::<&str>(&self.key(key))?;
        let scaled = factor != 1.0 && kind != Some("none");
        match kind {
            Some("none") => {}
            None | Some("linear") if !scaled => {}
            None | Some("linear") => {
                set("rope_type", json!("linear"));
                set("factor", json!(factor));
            }
            Some("yarn") => {
                self.only_float("rope.scaling.yarn_ext_factor", |_| 1.0)?;
                self.only_float("rope.scaling.attn_factor", |_| 1.0)?;
                self.only_absent("rope.scaling.yarn_log_multiplier")?;
                set("rope_type", json!("yarn"));
                set("factor", json!(factor));
                let original = self.need("rope.scaling.original_context_length", MAX_SIZE)?;
                set("original_max_position_embeddings", json!(original));
                for (ours, theirs) in
                    [("attention_factor", "attn_factor"), ("beta_fast", "beta_fast"), ("beta_slow", "beta_slow")]
                {
                    if let Some(value) = self.float(&format!("rope.scaling.yarn_{theirs}"))? {
                        set(ours, json!(value));
                    }
                }
            }
            Some(_) => return Err(self.other(key, "none, linear or yarn")),
        }
        if let Some(factors) = self.rope_factors()? {
            if scaled {
                return Err(self.other(key, "none beside a tensor rope_freqs.weight"));
            }
            if factors.iter().any(|factor| *factor != 1.0) {
                set("rope_type", json!("freq_factors"));
                set("rope_freq_factors", json!(factors));
            }
        }
        Ok(rope)
    }

    /// Gemma 4's: the first share of the pairs rotates, the others have a frequency next to nothing.
    fn proportional_rope(&self) -> Result<Value> {
        let factors = self.rope_factors()?.unwrap_or_default();
        let rotated = factors.iter().take_while(|factor| **factor == 1.0).count();
        if rotated == 0 || factors[rotated..].iter().any(|factor| *factor < 1e20) {
            return Err(self.shape_fault("rope_freqs.weight", "ones, then factors of 1e30"));
        }
        let share = rotated as f64 / factors.len() as f64;
        let theta = self.float("rope.freq_base")?.unwrap_or(1e6);
        Ok(json!({ "rope_type": "proportional", "rope_theta": theta, "partial_rotary_factor": share }))
    }

    /// By what the frequency of each rotated pair is divided.
    fn rope_factors(&self) -> Result<Option<Vec<f32>>> {
        const NAME: &str = "rope_freqs.weight";
        let Some(tensor) = self.checkpoint.find(NAME) else { return Ok(None) };
        if tensor.shape().len() != 1 || tensor.cols() > MAX_SIZE {
            return Err(self.shape_fault(NAME, "a factor for each pair of a head"));
        }
        let factors = tensor.to_f32()?;
        if !factors.iter().all(|factor| factor.is_finite() && *factor > 0.0) {
            return Err(self.shape_fault(NAME, "positive factors"));
        }
        Ok(Some(factors))
    }

    fn window(&self) -> Result<Option<usize>> {
        self.size("attention.sliding_window", MAX_SIZE)
    }
}
