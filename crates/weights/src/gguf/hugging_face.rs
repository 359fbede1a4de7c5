//! How does a GGUF file look to code that was written for Hugging Face's directories?

use super::architectures::{Architecture, Change, number};
use super::config::{self, Delta, Sizes};
use super::draft::MAX_EXPERTS;
use super::field;
use crate::checkpoint::Placed;
use crate::order::Order;
use crate::{Checkpoint, Result, Tensor, WeightsError};
use std::collections::BTreeMap;
use std::ops::Range;

/// The model of a GGUF file in the form of a Hugging Face directory.
///
/// **Tensors** have the names, shapes and order of rows that `transformers` gives them, in the formats of the file:
/// - llama's queries and keys have their rotary halves apart again; rows are moved when a tensor is asked for;
/// - Gemma's and Qwen 3.5's norms are `w` instead of `1 + w`, subtracted in `f32`: exact where `1 + w ≥ 0.5`, else within
///   2⁻²⁵ of it, so that adding 1 again gives back what the file has;
/// - stacked experts are one tensor each (`mlp.experts.{e}.gate_proj.weight`), parts of the same mapped bytes, as are the
///   parts of a fused `attn_qkv`;
/// - value heads of a gated delta net stand next to each other where they share a key head. Where the blocks of an output
///   projection are wider than a head, its columns cannot be moved: then the order of value heads stays the file's, and
///   key heads are repeated instead, one for each value head, which `linear_num_key_heads` says;
/// - `A_log` is the logarithm of what the file has, in `f64`, rounded to `f32`; `conv1d.weight` is `[channels, 1, width]`;
/// - RoBERTa's table of positions has rows before it again, which nothing reads.
///
/// A missing `output.weight` is `tie_word_embeddings`. Layers that predict several tokens keep their names in the file,
/// and so do `rope_freqs.weight`, `dense_2.weight` and `dense_3.weight`. A tensor of no known name is refused.
///
/// **config.json** is in the style of `transformers` 5. Two keys are not Hugging Face's:
/// - `rope_parameters: {"rope_type": "freq_factors", "rope_theta": …, "rope_freq_factors": […]}`: the inverse frequency of
///   pair `i`, `rope_theta^(−2i / head_dim)`, is to be divided by factor `i`. This is what GGUF files keep of Llama 3's
///   scaling, whose own numbers cannot be told from the factors;
/// - `pooling_type`: `none`, `mean`, `cls`, `last` or `rank`, of embedding models whose files say so.
///
/// `eos_token_id` is a list where the file names an end of turn beside the end of text.
#[derive(Clone, Debug)]
pub struct HuggingFace {
    /// The config.json.
    pub config: serde_json::Value,
    /// The tensors under their names there, with the metadata of the file.
    pub checkpoint: Checkpoint,
}

/// The config.json of a GGUF file's model: [`HuggingFace::config`] without the tensors.
///
/// # Errors
/// As [`Checkpoint::as_hugging_face`].
pub fn config(checkpoint: &Checkpoint) -> Result<serde_json::Value> {
    let metadata = checkpoint.metadata().ok_or_else(|| not_gguf(checkpoint))?;
    Ok(config::build(Architecture::find(metadata.architecture()?)?, metadata, checkpoint)?.0)
}

impl HuggingFace {
    pub(crate) fn of(checkpoint: &Checkpoint) -> Result<HuggingFace> {
        let metadata = checkpoint.metadata().ok_or_else(|| not_gguf(checkpoint))?;
        let arch = Architecture::find(metadata.architecture()?)?;
        let (config, sizes) = config::build(arch, metadata, checkpoint)?;
        let mut view = View { arch, sizes, tensors: BTreeMap::new() };
        for Placed { tensor, file, .. } in checkpoint.placed() {
            view.add(tensor, *file)?;
        }
        Ok(HuggingFace { config, checkpoint: checkpoint.with_tensors(view.tensors) })
    }
}

struct View {
    arch: &'static Architecture,
    sizes: Sizes,
    tensors: BTreeMap<String, Placed>,
}

impl View {
    /// Adds what a tensor of the file is to Hugging Face.
    fn add(&mut self, tensor: &Tensor, file: usize) -> Result<()> {
        let name = tensor.name();
        if let Some((row, hf)) = self.arch.row(name) {
            return self.add_as(&hf, row.change, tensor, file);
        }
        let layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).and_then(|(i, _)| number(i));
        if layer.is_some_and(|i| i >= self.sizes.layers) {
            return self.put(name, tensor.clone(), file, None); // it predicts several tokens
        }
        if let Some((before, after)) = name.split_once(".attn_qkv.") {
            let Sizes { heads, kv_heads, head_dim, .. } = self.sizes;
            let ends = [heads, heads + kv_heads, heads + 2 * kv_heads].map(|n| n * head_dim);
            self.expect(tensor, tensor.shape().first() == Some(&ends[2]), || format!("{} rows", ends[2]))?;
            for (part, rows) in [("q", 0..ends[0]), ("k", ends[0]..ends[1]), ("v", ends[1]..ends[2])] {
                let name = format!("{before}.attn_{part}.{after}");
                let (row, hf) = self.arch.row(&name).ok_or_else(|| self.unknown(tensor))?;
                self.add_as(&hf, row.change, &tensor.slice_rows(rows)?, file)?;
            }
            return Ok(());
        }
        Err(self.unknown(tensor))
    }

    fn add_as(&mut self, hf: &str, change: Change, tensor: &Tensor, file: usize) -> Result<()> {
        let whole = |view: &mut View, tensor: Tensor, order| view.put(hf, tensor, file, order);
        let tensor = tensor.clone();
        match change {
            Change::Norm if self.arch.norms_plus_one => {
                let values = tensor.to_f32()?.into_iter().map(|w| w - 1.0).collect();
                let plain = Tensor::from_f32(hf, tensor.shape().to_vec(), values);
                whole(self, plain, None)
            }
            Change::Keep | Change::Norm => whole(self, tensor, None),
            Change::RotaryQueries => whole(self, tensor, Some(Order::Halves { heads: self.sizes.heads })),
            Change::RotaryKeys => whole(self, tensor, Some(Order::Halves { heads: self.sizes.kv_heads })),
            Change::OneRow if tensor.shape().len() == 1 => {
                let one = tensor.reshape(vec![1, tensor.cols()])?;
                whole(self, one, None)
            }
            Change::OneRow => whole(self, tensor, None),
            Change::Experts | Change::GatedExperts => self.add_experts(hf, change, &tensor, file),
            Change::DecayRate => {
                let Some(order) = self.value_order(0, 1) else { return whole(self, decay_rate(&tensor)?, None) };
                self.expect(&tensor, order.rows(&tensor).is_some(), || "an element for each value head".into())?;
                let rate = decay_rate(&order.apply(&tensor)?)?;
                whole(self, rate, None)
            }
            Change::ValueHeads => whole(self, tensor, self.value_order(0, 1)),
            Change::ValueRows => whole(self, tensor, self.value_order(0, self.delta().value_width)),
            Change::ValueColumns => {
                let Delta { heads, value_width, .. } = self.delta();
                let order =
                    self.value_order(0, value_width).map(|_| Order::GroupedColumns { heads, width: value_width });
                whole(self, tensor, order)
            }
            Change::DeltaRows | Change::DeltaKernels => {
                let Delta { heads, key_width, value_width, repeated } = self.delta();
                let rows = 2 * heads.keys * key_width + heads.values * value_width;
                self.expect(&tensor, tensor.shape().first() == Some(&rows), || format!("{rows} rows"))?;
                let order = match repeated {
                    true => Some(Order::Repeated { heads, width: key_width }),
                    false => self.value_order(2 * heads.keys * key_width, value_width),
                };
                let tensor = match change {
                    Change::DeltaKernels => tensor.reshape(vec![rows, 1, tensor.elements() / rows])?,
                    _ => tensor,
                };
                whole(self, tensor, order)
            }
            Change::Positions => {
                let before = self.sizes.position_offset;
                whole(self, tensor, (before > 0).then_some(Order::Padded { before }))
            }
        }
    }

    /// Each expert's part of a stack `[experts, …]`.
    fn add_experts(&mut self, hf: &str, change: Change, tensor: &Tensor, file: usize) -> Result<()> {
        let (experts, inner) = tensor.shape().split_first().map_or((0, &[][..]), |(n, inner)| (*n, inner));
        let gated = change == Change::GatedExperts;
        let halves = !gated || inner.first().is_some_and(|rows| rows.is_multiple_of(2));
        let fits = !inner.is_empty() && !inner.contains(&0) && halves && (1..=MAX_EXPERTS).contains(&experts);
        self.expect(tensor, fits, || format!("a stack of 1 to {MAX_EXPERTS} experts"))?;
        for e in 0..experts {
            let name = hf.replace("{e}", &e.to_string());
            let expert = tensor.slice_rows(e..e + 1)?.reshape(inner.to_vec())?;
            if !gated {
                self.put(&name, expert, file, None)?;
                continue;
            }
            let half = inner[0] / 2;
            let parts: [(&str, Range<usize>); 2] = [("gate_proj", 0..half), ("up_proj", half..2 * half)];
            for (part, rows) in parts {
                self.put(&name.replace("gate_proj", part), expert.slice_rows(rows)?, file, None)?;
            }
        }
        Ok(())
    }

    fn delta(&self) -> Delta {
        self.sizes.delta.expect("architectures whose tensors have value heads read their sizes")
    }

    /// How value heads of `width` rows after `before` others are grouped by their key heads; `None` if they are already.
    fn value_order(&self, before: usize, width: usize) -> Option<Order> {
        let Delta { heads, repeated, .. } = self.delta();
        (!repeated && heads.values > heads.keys).then_some(Order::Grouped { before, heads, width })
    }

    /// Adds a tensor under its new name.
    fn put(&mut self, name: &str, tensor: Tensor, file: usize, order: Option<Order>) -> Result<()> {
        if let Some(order) = order {
            self.expect(&tensor, order.rows(&tensor).is_some(), || order.expected())?;
        }
        let placed = Placed { tensor: tensor.rename(name), file, order };
        match self.tensors.insert(name.to_string(), placed) {
            None => Ok(()),
            Some(_) => Err(field("tensor name", tensor.name(), format!("one tensor for {name}"))),
        }
    }

    fn expect(&self, tensor: &Tensor, fits: bool, expected: impl Fn() -> String) -> Result<()> {
        if fits { Ok(()) } else { Err(misfit(tensor, &expected())) }
    }

    fn unknown(&self, tensor: &Tensor) -> WeightsError {
        WeightsError::GgufTensor { tensor: tensor.name().into(), architecture: self.arch.name }
    }
}

/// The file has `−exp(A_log)`.
fn decay_rate(tensor: &Tensor) -> Result<Tensor> {
    let values = tensor.to_f32()?;
    if !values.iter().all(|rate| *rate <= 0.0) {
        return Err(misfit(tensor, "no positive number"));
    }
    let logs = values.iter().map(|rate| (-f64::from(*rate)).ln() as f32).collect();
    Ok(Tensor::from_f32(tensor.name(), tensor.shape().to_vec(), logs))
}

pub(super) fn misfit(tensor: &Tensor, expected: &str) -> WeightsError {
    WeightsError::GgufShape {
        tensor: tensor.name().into(),
        format: tensor.format().name(),
        shape: tensor.shape().to_vec(),
        expected: expected.into(),
    }
}

fn not_gguf(checkpoint: &Checkpoint) -> WeightsError {
    WeightsError::NotGguf { checkpoint: checkpoint.path().to_path_buf() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::metadata::{Metadata, Value};
    use crate::gguf::tests::Builder;
    use proptest::prelude::*;
    use std::path::Path;

    fn open(file: &[u8]) -> Checkpoint {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("model.gguf"), file).unwrap();
        Checkpoint::open(dir.path()).unwrap() // the mapping keeps the file
    }

    fn llama() -> Builder {
        let key = |builder: Builder, (key, value): (&str, u32)| builder.u32(&format!("llama.{key}"), value);
        let sizes = [("block_count", 1), ("embedding_length", 4), ("attention.head_count", 2), ("context_length", 8)];
        let named = sizes.into_iter().fold(Builder::default().text("general.architecture", "llama"), key);
        named.f32("llama.attention.layer_norm_rms_epsilon", 1e-5).tensor("token_embd.weight", &[4, 3], 0, 0).data(256)
    }

    fn refused(builder: Builder) -> String {
        open(&builder.build()).as_hugging_face().expect_err("must be refused").to_string()
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        let view = open(&llama().build()).as_hugging_face().unwrap();
        assert_eq!(view.config["rms_norm_eps"], 1e-5);
        assert_eq!(view.checkpoint.names().collect::<Vec<_>>(), ["model.embed_tokens.weight"]);
        let text = refused(llama().tensor("blk.0.attn_q.scale", &[1], 0, 64));
        assert_eq!(text, "tensor blk.0.attn_q.scale is none that models of the architecture llama are known to have");
        let text = refused(Builder::default().text("general.architecture", "mamba"));
        assert!(text.starts_with("general.architecture is \"mamba\", which is not built: known are llama, "), "{text}");
        for (builder, expected) in [
            (
                llama().u32("llama.expert_count", 8),
                "llama.expert_count is 8, expected nothing: models with it are not built",
            ),
            (
                llama().text("llama.rope.scaling.type", "longrope"),
                "llama.rope.scaling.type is \"longrope\", expected none, linear or yarn",
            ),
            (
                llama().f32("llama.logit_scale", 0.5),
                "llama.logit_scale is 0.5, expected nothing: models with it are not built",
            ),
            (llama().f32("llama.rope.freq_base", f32::NAN), "llama.rope.freq_base is NaN, expected a positive number"),
            (
                llama().u32("llama.attention.value_length", 3),
                "llama.attention.value_length is 3, expected 2, as wide as keys",
            ),
            (
                llama().tensor("blk.0.attn_q.weight", &[4, 3], 0, 64),
                "tensor blk.0.attn_q.weight is F32 [3, 4], expected rows in halves for each of 2 heads",
            ),
            (
                llama().f32s("x", &[]).tensor("rope_freqs.weight", &[1], 0, 64),
                "tensor rope_freqs.weight is F32 [1], expected positive factors",
            ),
        ] {
            assert_eq!(refused(builder), expected);
        }
    }

    #[test]
    fn other_checkpoints_have_no_view() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("model.safetensors");
        crate::write_safetensors(&file, &[Tensor::from_f32("a", vec![1], vec![0.0])]).unwrap();
        let text = Checkpoint::open(&file).unwrap().as_hugging_face().unwrap_err().to_string();
        assert_eq!(text, format!("{}: not a GGUF file, which alone has metadata in it", file.display()));
    }

    #[test]
    fn scaled_rotary_positions_are_given_as_hugging_face_has_them() {
        let rope = |builder: Builder| config(&open(&builder.build())).unwrap()["rope_parameters"].clone();
        let yarn = llama()
            .text("llama.rope.scaling.type", "yarn")
            .f32("llama.rope.scaling.factor", 4.0)
            .u32("llama.rope.scaling.original_context_length", 4096)
            .f32("llama.rope.scaling.yarn_beta_fast", 32.0);
        let expected = serde_json::json!({
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
            "original_max_position_embeddings": 4096, "beta_fast": 32.0,
        });
        assert_eq!(rope(yarn), expected);
        let expected = serde_json::json!({ "rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0 });
        assert_eq!(rope(llama().f32("llama.rope.scale_linear", 2.0)), expected);
    }

    /// The files that the converter made.
    fn made() -> Vec<Checkpoint> {
        let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/gguf_names");
        let folders = std::fs::read_dir(cases).expect("the project has them").map(|f| f.unwrap().path());
        let mut folders: Vec<_> = folders.collect();
        folders.sort();
        folders.iter().map(|f| Checkpoint::open(f.join("model.gguf")).unwrap()).collect()
    }

    fn any_value(others: Vec<Value>) -> impl Strategy<Value = Value> {
        prop_oneof![
            prop_oneof![0u64..9, Just(16), Just(4096), Just(1 << 24), any::<u64>()].prop_map(Value::Unsigned),
            any::<i64>().prop_map(Value::Signed),
            any::<f64>().prop_map(Value::Float),
            any::<bool>().prop_map(Value::Bool),
            prop::sample::select(others),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn metadata_that_lie_are_an_error_or_make_tensors_that_can_be_read(
            (case, lies) in {
                let made = made();
                let values = made.iter().flat_map(|c| c.metadata().unwrap().iter().map(|(_, v)| v.clone())).collect();
                (0..made.len(), prop::collection::vec((any::<prop::sample::Index>(), any_value(values)), 1..4))
            },
        ) {
            thread_local!(static MADE: Vec<Checkpoint> = made());
            let checkpoint = MADE.with(|made| made[case].clone());
            let keys: Vec<(String, Value)> =
                checkpoint.metadata().unwrap().iter().map(|(k, v)| (k.to_string(), v.clone())).collect();
            let mut keys: std::collections::BTreeMap<String, Value> = keys.into_iter().collect();
            for (at, lie) in lies {
                let key = keys.keys().nth(at.index(keys.len())).unwrap().clone();
                if key != "general.architecture" {
                    keys.insert(key, lie);
                }
            }
            let mut metadata = Metadata::default();
            keys.into_iter().for_each(|(key, value)| metadata.insert(key, value).unwrap());
            if let Ok(view) = checkpoint.with_metadata(metadata).as_hugging_face() {
                for name in view.checkpoint.names() {
                    let tensor = view.checkpoint.get(name).unwrap();
                    prop_assert_eq!(tensor.to_f32().unwrap().len(), tensor.elements());
                }
            }
        }
    }
}
