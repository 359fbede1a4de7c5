//! What are the tensors of each architecture called, in GGUF files and by Hugging Face? One table: a row for each name,
//! shared by the architectures that share it, and one row for each architecture.
//!
//! The names are those of `gguf-py` (constants and tensor mapping) and of the classes of `transformers`; what else differs
//! between the two, a [`Change`], is what llama.cpp's converter does to a tensor, the other way round.

use super::config;
use super::draft::Draft;
use crate::{Result, WeightsError};

/// An architecture that GGUF files may have and that has a class in `transformers`.
pub struct Architecture {
    /// `general.architecture`, and the first part of the keys that describe the model.
    pub name: &'static str,
    /// The class, as in `architectures` of config.json.
    pub class: &'static str,
    /// `model_type` of config.json.
    pub model_type: &'static str,
    /// Are norms stored as `1 + w`, where Hugging Face stores `w`?
    pub(super) norms_plus_one: bool,
    /// The names; the first table that has one counts.
    tensors: &'static [&'static [Row]],
    /// Writes config.json.
    pub(super) config: fn(&mut Draft) -> Result<()>,
}

/// Every architecture; adding one is one row, and its names where they are new.
pub static ARCHITECTURES: &[Architecture] = &[
    Architecture {
        tensors: &[ROTARY_PAIRS, DECODER, PRE_NORM],
        ..decoder("llama", "LlamaForCausalLM", "llama", config::llama)
    },
    decoder("qwen2", "Qwen2ForCausalLM", "qwen2", config::qwen),
    decoder("qwen3", "Qwen3ForCausalLM", "qwen3", config::qwen),
    Architecture {
        tensors: &[DECODER, PRE_NORM, EXPERTS],
        ..decoder("qwen3moe", "Qwen3MoeForCausalLM", "qwen3_moe", config::qwen_experts)
    },
    Architecture {
        norms_plus_one: true,
        tensors: &[DELTA, DECODER, POST_ATTENTION_NORM],
        ..decoder("qwen35", "Qwen3_5ForCausalLM", "qwen3_5_text", config::qwen_delta)
    },
    Architecture {
        norms_plus_one: true,
        tensors: &[DELTA, DECODER, POST_ATTENTION_NORM, EXPERTS, SHARED_EXPERT],
        ..decoder("qwen35moe", "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", config::qwen_delta_experts)
    },
    gemma("gemma2", "Gemma2ForCausalLM", "gemma2", config::gemma2),
    gemma("gemma3", "Gemma3ForCausalLM", "gemma3_text", config::gemma3),
    Architecture {
        tensors: &[DECODER, SANDWICH_NORMS, DENSE],
        ..gemma("gemma-embedding", "Gemma3TextModel", "gemma3_text", config::gemma_embedding)
    },
    Architecture {
        norms_plus_one: false,
        tensors: &[DECODER, SANDWICH_NORMS, PER_LAYER_INPUTS],
        ..gemma("gemma4", "Gemma4ForCausalLM", "gemma4_text", config::gemma4)
    },
    Architecture { tensors: &[BERT], ..decoder("bert", "BertModel", "bert", config::bert) },
    Architecture { tensors: &[NOMIC], ..decoder("nomic-bert", "NomicBertModel", "nomic_bert", config::nomic) },
    Architecture { tensors: &[MODERN], ..decoder("modern-bert", "ModernBertModel", "modernbert", config::modern) },
];

const fn decoder(
    name: &'static str,
    class: &'static str,
    model_type: &'static str,
    config: fn(&mut Draft) -> Result<()>,
) -> Architecture {
    Architecture { name, class, model_type, norms_plus_one: false, tensors: &[DECODER, PRE_NORM], config }
}

const fn gemma(
    name: &'static str,
    class: &'static str,
    model_type: &'static str,
    config: fn(&mut Draft) -> Result<()>,
) -> Architecture {
    let tensors: &[&[Row]] = &[DECODER, SANDWICH_NORMS];
    Architecture { norms_plus_one: true, tensors, ..decoder(name, class, model_type, config) }
}

/// One name. `{i}` stands for the number of a layer, `{e}` for that of an expert; `.weight` and `.bias` at the end of a
/// tensor's name are the same on both sides, unless the row names them.
pub(super) struct Row {
    gguf: &'static str,
    hf: &'static str,
    pub(super) change: Change,
}

/// How what Hugging Face has differs from what the file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// In nothing.
    Keep,
    /// A norm: `w` instead of `1 + w`, in architectures with `norms_plus_one`.
    Norm,
    /// Query heads with rotary halves instead of pairs.
    RotaryQueries,
    /// The same for key heads.
    RotaryKeys,
    /// A vector as a matrix of one row.
    OneRow,
    /// One tensor for each of the stacked experts.
    Experts,
    /// The same for gates with what they gate below them.
    GatedExperts,
    /// The logarithm of the decay's rate, in the order of [`Change::ValueHeads`].
    DecayRate,
    /// A row for each value head of a delta net, those of one key head next to each other.
    ValueHeads,
    /// A head's width of rows for each value head.
    ValueRows,
    /// The same of columns.
    ValueColumns,
    /// Queries, keys and values of a delta net: values as in [`Change::ValueRows`].
    DeltaRows,
    /// The same as kernels of a convolution: `[channels, 1, width]`.
    DeltaKernels,
    /// Positions, which RoBERTa counts from behind its padding id.
    Positions,
}

const fn row(gguf: &'static str, hf: &'static str) -> Row {
    Row { gguf, hf, change: Change::Keep }
}

impl Row {
    const fn change(self, change: Change) -> Row {
        Row { change, ..self }
    }

    const fn norm(self) -> Row {
        self.change(Change::Norm)
    }
}

const DECODER: &[Row] = &[
    row("token_embd", "model.embed_tokens"),
    row("output_norm", "model.norm").norm(),
    row("output", "lm_head"),
    row("rope_freqs", "rope_freqs"),
    row("blk.{i}.attn_rot_embd", "blk.{i}.attn_rot_embd"), // once written, never read
    row("blk.{i}.attn_norm", "model.layers.{i}.input_layernorm").norm(),
    row("blk.{i}.attn_q", "model.layers.{i}.self_attn.q_proj"),
    row("blk.{i}.attn_k", "model.layers.{i}.self_attn.k_proj"),
    row("blk.{i}.attn_v", "model.layers.{i}.self_attn.v_proj"),
    row("blk.{i}.attn_output", "model.layers.{i}.self_attn.o_proj"),
    row("blk.{i}.attn_q_norm", "model.layers.{i}.self_attn.q_norm").norm(),
    row("blk.{i}.attn_k_norm", "model.layers.{i}.self_attn.k_norm").norm(),
    row("blk.{i}.ffn_gate", "model.layers.{i}.mlp.gate_proj"),
    row("blk.{i}.ffn_up", "model.layers.{i}.mlp.up_proj"),
    row("blk.{i}.ffn_down", "model.layers.{i}.mlp.down_proj"),
];

const ROTARY_PAIRS: &[Row] = &[
    row("blk.{i}.attn_q", "model.layers.{i}.self_attn.q_proj").change(Change::RotaryQueries),
    row("blk.{i}.attn_k", "model.layers.{i}.self_attn.k_proj").change(Change::RotaryKeys),
];

const PRE_NORM: &[Row] = &[row("blk.{i}.ffn_norm", "model.layers.{i}.post_attention_layernorm").norm()];

const POST_ATTENTION_NORM: &[Row] =
    &[row("blk.{i}.post_attention_norm", "model.layers.{i}.post_attention_layernorm").norm()];

const SANDWICH_NORMS: &[Row] = &[
    row("blk.{i}.post_attention_norm", "model.layers.{i}.post_attention_layernorm").norm(),
    row("blk.{i}.ffn_norm", "model.layers.{i}.pre_feedforward_layernorm").norm(),
    row("blk.{i}.post_ffw_norm", "model.layers.{i}.post_feedforward_layernorm").norm(),
];

const EXPERTS: &[Row] = &[
    row("blk.{i}.ffn_gate_inp", "model.layers.{i}.mlp.gate"),
    row("blk.{i}.ffn_gate_exps", "model.layers.{i}.mlp.experts.{e}.gate_proj").change(Change::Experts),
    row("blk.{i}.ffn_up_exps", "model.layers.{i}.mlp.experts.{e}.up_proj").change(Change::Experts),
    row("blk.{i}.ffn_down_exps", "model.layers.{i}.mlp.experts.{e}.down_proj").change(Change::Experts),
    row("blk.{i}.ffn_gate_up_exps", "model.layers.{i}.mlp.experts.{e}.gate_proj").change(Change::GatedExperts),
];

const SHARED_EXPERT: &[Row] = &[
    row("blk.{i}.ffn_gate_inp_shexp", "model.layers.{i}.mlp.shared_expert_gate").change(Change::OneRow),
    row("blk.{i}.ffn_gate_shexp", "model.layers.{i}.mlp.shared_expert.gate_proj"),
    row("blk.{i}.ffn_up_shexp", "model.layers.{i}.mlp.shared_expert.up_proj"),
    row("blk.{i}.ffn_down_shexp", "model.layers.{i}.mlp.shared_expert.down_proj"),
];

const DELTA: &[Row] = &[
    row("blk.{i}.attn_qkv", "model.layers.{i}.linear_attn.in_proj_qkv").change(Change::DeltaRows),
    row("blk.{i}.attn_gate", "model.layers.{i}.linear_attn.in_proj_z").change(Change::ValueRows),
    row("blk.{i}.ssm_beta", "model.layers.{i}.linear_attn.in_proj_b").change(Change::ValueHeads),
    row("blk.{i}.ssm_alpha", "model.layers.{i}.linear_attn.in_proj_a").change(Change::ValueHeads),
    row("blk.{i}.ssm_conv1d", "model.layers.{i}.linear_attn.conv1d").change(Change::DeltaKernels),
    row("blk.{i}.ssm_a", "model.layers.{i}.linear_attn.A_log").change(Change::DecayRate),
    row("blk.{i}.ssm_dt.bias", "model.layers.{i}.linear_attn.dt_bias").change(Change::ValueHeads),
    row("blk.{i}.ssm_norm", "model.layers.{i}.linear_attn.norm"), // the one norm that is plain `w`
    row("blk.{i}.ssm_out", "model.layers.{i}.linear_attn.out_proj").change(Change::ValueColumns),
];

const DENSE: &[Row] = &[row("dense_2", "dense_2"), row("dense_3", "dense_3")];

const PER_LAYER_INPUTS: &[Row] = &[
    row("per_layer_token_embd", "model.embed_tokens_per_layer"),
    row("per_layer_model_proj", "model.per_layer_model_projection"),
    row("per_layer_proj_norm", "model.per_layer_projection_norm").norm(),
    row("blk.{i}.inp_gate", "model.layers.{i}.per_layer_input_gate"),
    row("blk.{i}.proj", "model.layers.{i}.per_layer_projection"),
    row("blk.{i}.post_norm", "model.layers.{i}.post_per_layer_input_norm").norm(),
    row("blk.{i}.layer_output_scale.weight", "model.layers.{i}.layer_scalar"),
];

const BERT: &[Row] = &[
    row("token_embd", "embeddings.word_embeddings"),
    row("token_types", "embeddings.token_type_embeddings").change(Change::OneRow),
    row("position_embd", "embeddings.position_embeddings").change(Change::Positions),
    row("token_embd_norm", "embeddings.LayerNorm"),
    row("blk.{i}.attn_q", "encoder.layer.{i}.attention.self.query"),
    row("blk.{i}.attn_k", "encoder.layer.{i}.attention.self.key"),
    row("blk.{i}.attn_v", "encoder.layer.{i}.attention.self.value"),
    row("blk.{i}.attn_output", "encoder.layer.{i}.attention.output.dense"),
    row("blk.{i}.attn_output_norm", "encoder.layer.{i}.attention.output.LayerNorm"),
    row("blk.{i}.ffn_up", "encoder.layer.{i}.intermediate.dense"),
    row("blk.{i}.ffn_down", "encoder.layer.{i}.output.dense"),
    row("blk.{i}.layer_output_norm", "encoder.layer.{i}.output.LayerNorm"),
    row("cls", "classifier.dense"),
    row("cls.output", "classifier.out_proj"),
];

const NOMIC: &[Row] = &[
    row("token_embd", "embeddings.word_embeddings"),
    row("token_types", "embeddings.token_type_embeddings").change(Change::OneRow),
    row("token_embd_norm", "emb_ln"),
    row("blk.{i}.attn_qkv", "encoder.layers.{i}.attn.Wqkv"),
    row("blk.{i}.attn_output", "encoder.layers.{i}.attn.out_proj"),
    row("blk.{i}.attn_output_norm", "encoder.layers.{i}.norm1"),
    row("blk.{i}.ffn_up", "encoder.layers.{i}.mlp.fc11"),
    row("blk.{i}.ffn_gate", "encoder.layers.{i}.mlp.fc12"),
    row("blk.{i}.ffn_down", "encoder.layers.{i}.mlp.fc2"),
    row("blk.{i}.layer_output_norm", "encoder.layers.{i}.norm2"),
];

const MODERN: &[Row] = &[
    row("token_embd", "embeddings.tok_embeddings"),
    row("token_embd_norm", "embeddings.norm"),
    row("output_norm", "final_norm"),
    row("blk.{i}.attn_norm", "layers.{i}.attn_norm"),
    row("blk.{i}.attn_qkv", "layers.{i}.attn.Wqkv"),
    row("blk.{i}.attn_output", "layers.{i}.attn.Wo"),
    row("blk.{i}.ffn_norm", "layers.{i}.mlp_norm"),
    row("blk.{i}.ffn_up", "layers.{i}.mlp.Wi"),
    row("blk.{i}.ffn_down", "layers.{i}.mlp.Wo"),
    row("cls", "head.dense"),
    row("cls.norm", "head.norm"),
    row("cls.output", "classifier"),
];

impl Architecture {
    /// The row of this `general.architecture`.
    ///
    /// # Errors
    /// [`WeightsError::GgufArchitecture`], which lists those there are.
    pub fn find(name: &str) -> Result<&'static Architecture> {
        ARCHITECTURES.iter().find(|row| row.name == name).ok_or_else(|| WeightsError::GgufArchitecture {
            got: name.chars().take(80).collect(),
            known: ARCHITECTURES.iter().map(|row| row.name).collect(),
        })
    }

    /// What Hugging Face calls a tensor of a GGUF file; `{e}` stands in the name of one that holds all experts.
    pub fn hugging_face_name(&self, gguf: &str) -> Option<String> {
        self.row(gguf).map(|(_, name)| name)
    }

    /// What a tensor of Hugging Face's is called in a GGUF file. Experts are found in the tensor that holds all of them.
    pub fn gguf_name(&self, hugging_face: &str) -> Option<String> {
        self.rows().find_map(|row| translate(hugging_face, row.hf, row.gguf))
    }

    /// The row for a name, and the name on the other side.
    pub(super) fn row(&self, gguf: &str) -> Option<(&'static Row, String)> {
        self.rows().find_map(|row| Some((row, translate(gguf, row.gguf, row.hf)?)))
    }

    fn rows(&self) -> impl Iterator<Item = &'static Row> {
        self.tensors.iter().copied().flatten()
    }
}

/// The name that `to` makes of a name that `from` describes.
fn translate(name: &str, from: &str, to: &str) -> Option<String> {
    let whole = |name: &str| {
        let mut numbers = [None; 2];
        let mut parts = (name.split('.'), from.split('.'));
        loop {
            match (parts.0.next(), parts.1.next()) {
                (None, None) => break,
                (Some(part), Some("{i}")) => numbers[0] = Some(number(part)?),
                (Some(part), Some("{e}")) => numbers[1] = Some(number(part)?),
                (part, pattern) if part == pattern => {}
                _ => return None,
            }
        }
        let fill = |to: String, (hole, number): (&str, Option<usize>)| match number {
            Some(number) => to.replace(hole, &number.to_string()),
            None => to,
        };
        Some(["{i}", "{e}"].into_iter().zip(numbers).fold(to.to_string(), fill))
    };
    whole(name).or_else(|| {
        let (stem, suffix) = name.rsplit_once('.').filter(|(_, suffix)| matches!(*suffix, "weight" | "bias"))?;
        Some(format!("{}.{suffix}", whole(stem)?))
    })
}

/// The number of a layer or expert, written as a number is.
pub(super) fn number(text: &str) -> Option<usize> {
    let number = text.parse().ok()?;
    (usize::to_string(&number) == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_translated_there_and_back_in_every_architecture() {
        for arch in ARCHITECTURES {
            for row in arch.rows() {
                let whole = row.gguf.ends_with(".weight") || row.gguf.ends_with(".bias") || row.gguf.ends_with("ssm_a");
                let suffix = if whole { "" } else { ".weight" };
                let gguf = format!("{}{suffix}", row.gguf.replace("{i}", "12"));
                let hf = format!("{}{suffix}", row.hf.replace("{i}", "12"));
                assert_eq!(arch.hugging_face_name(&gguf).as_ref(), Some(&hf), "{}", arch.name);
                if row.change != Change::GatedExperts {
                    assert_eq!(arch.gguf_name(&hf.replace("{e}", "3")), Some(gguf), "{}", arch.name);
                }
            }
        }
    }

    #[test]
    fn architectures_have_a_name_each() {
        let names: HashSet<_> = ARCHITECTURES.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ARCHITECTURES.len());
        let text = Architecture::find("mamba").err().unwrap().to_string();
        assert!(
            text.starts_with("general.architecture is \"mamba\", which is not built: known are llama, qwen2"),
            "{text}"
        );
    }

    #[test]
    fn names_that_only_look_like_a_layers_are_none() {
        let arch = Architecture::find("llama").unwrap();
        for name in ["blk.x.attn_q.weight", "blk.007.attn_q.weight", "blk.1.attn_q.scale", "blk.1.attn_q.weight.weight"]
        {
            assert_eq!(arch.hugging_face_name(name), None, "{name}");
        }
    }
}
