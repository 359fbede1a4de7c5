//! What a model directory may look like, and what is said about one that does not fit.

use lattice_models::{Batch, Caches, Config, Forward, LayerState, Loaded, ModelError, load, load_checkpoint};
use ops::{Cpu, CpuOptions, KvFormat, Ops, Past, Precision};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use tempfile::TempDir;
use weights::{Checkpoint, Format, Tensor, write_safetensors};

static CPU: LazyLock<Cpu> = LazyLock::new(|| {
    Cpu::new(&CpuOptions { threads: Some(1), precision: Precision::Exact, ..CpuOptions::default() }).unwrap()
});

/// A golden case's folder.
fn golden(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens").join(case)
}

/// A golden case as it can be changed.
struct Saved {
    config: Map<String, Value>,
    tensors: Vec<Tensor>,
}

impl Saved {
    fn of(case: &str) -> Saved {
        let config = serde_json::from_slice(&std::fs::read(golden(case).join("config.json")).unwrap()).unwrap();
        let tensors = Checkpoint::open(golden(case)).unwrap().tensors().cloned().collect();
        Saved { config, tensors }
    }

    fn with(mut self, changes: Value) -> Saved {
        self.config.extend(changes.as_object().unwrap().clone());
        self
    }

    fn without(mut self, key: &str) -> Saved {
        self.config.remove(key);
        self
    }

    fn renamed(mut self, name: impl Fn(&str) -> String) -> Saved {
        self.tensors.iter_mut().for_each(|tensor| *tensor = tensor.rename(&name(tensor.name())));
        self
    }

    fn and(mut self, tensor: Tensor) -> Saved {
        self.tensors.push(tensor);
        self
    }

    fn load(&self) -> Result<Loaded, ModelError> {
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("config.json"), serde_json::to_vec(&self.config).unwrap()).unwrap();
        write_safetensors(dir.path().join("model.safetensors"), &self.tensors).unwrap();
        load(dir.path(), &*CPU)
    }

    /// The error's text, without the folder's name.
    fn refused(&self) -> String {
        self.load().err().expect("this is refused").to_string()
    }
}

/// Bits of the hidden states of a few tokens.
fn hidden(loaded: &Loaded) -> Vec<u32> {
    let last = loaded.model.shape().vocab as u32 - 1;
    let batch = Batch::new(&[vec![5, 9, last.min(100), 7, 30], vec![8]]).unwrap();
    loaded.model.shape().check(&batch).unwrap();
    let hidden = loaded.model.forward(&Forward::new(&*CPU, &batch));
    CPU.read(&hidden).unwrap().into_iter().map(f32::to_bits).collect()
}

#[test]
fn names_may_carry_any_prefix_and_old_norm_names() {
    let plain = Saved::of("bert_relu_no_pooler").load().unwrap();
    assert_eq!((plain.unused.len(), plain.labels.len(), plain.classifier.is_some()), (0, 0, false));
    for prefix in ["bert.", "model.", "0.auto_model."] {
        let old = |name: &str| match name.split_once("LayerNorm.") {
            Some((at, "weight")) => format!("{prefix}{at}LayerNorm.gamma"),
            Some((at, "bias")) => format!("{prefix}{at}LayerNorm.beta"),
            _ => format!("{prefix}{name}"),
        };
        let renamed = Saved::of("bert_relu_no_pooler").renamed(old).load().unwrap();
        assert_eq!(hidden(&renamed), hidden(&plain), "{prefix}");
        assert!(renamed.unused.is_empty(), "{:?}", renamed.unused);
    }
}

#[test]
fn tensors_that_nothing_reads_are_listed_but_for_poolers_and_counters() {
    let masked = load(golden("bert_prefixed"), &*CPU).unwrap();
    assert!(!masked.unused.is_empty() && masked.unused.iter().all(|name| name.starts_with("cls.predictions.")));
    let stray = Tensor::from_f32("embeddings.rotation", vec![1], vec![0.0]);
    let counter = Tensor::from_bytes("embeddings.position_ids", vec![1, 1], Format::I64, vec![0; 8]).unwrap();
    let pooled = Saved::of("bert_12heads_gelu_new").and(stray).and(counter).load().unwrap();
    assert_eq!(pooled.unused, ["embeddings.rotation"]);
}

#[test]
fn labels_come_from_the_config_in_their_order() {
    let three = Saved::of("cross_encoder_bert_3labels");
    let named = three.with(json!({"id2label": {"2": "c", "0": "a", "1": "b"}})).load().unwrap();
    assert_eq!(named.labels, ["a", "b", "c"]);
    let counted = Saved::of("cross_encoder_bert_3labels").with(json!({"id2label": null, "num_labels": 3})).load();
    assert_eq!(counted.unwrap().labels, ["LABEL_0", "LABEL_1", "LABEL_2"]);
    let text = Saved::of("cross_encoder_bert_3labels").with(json!({"id2label": {"1": "b"}})).refused();
    assert_eq!(text, "config.json: id2label.0 is missing, expected a label");
    let text = Saved::of("cross_encoder_bert_3labels").with(json!({"id2label": null, "num_labels": null})).refused();
    assert!(text.starts_with("tensor classifier.weight is [3, 32], expected [2, 32]: does "), "{text}");
}

#[test]
fn shapes_that_do_not_fit_are_named_with_the_key_to_look_at() {
    let text = Saved::of("bert_relu_no_pooler").with(json!({"intermediate_size": 64})).refused();
    let expected = "tensor encoder.layer.0.intermediate.dense.weight is [48, 36], expected [64, 36]: \
                    does intermediate_size in config.json fit?";
    assert_eq!(text, expected);
    let text = Saved::of("modernbert").with(json!({"intermediate_size": 65})).refused();
    assert!(text.ends_with("expected [130, 64]: does the architecture in config.json fit?"), "{text}");
    let text = Saved::of("bert_relu_no_pooler").with(json!({"num_hidden_layers": 3})).refused();
    assert!(text.starts_with("no tensor encoder.layer.2.attention.self.query.weight in "), "{text}");
    let text = Saved::of("bert_relu_no_pooler").renamed(|name| name.replace("word_", "")).refused();
    let expected = "0 tensors are named …embeddings.word_embeddings.weight, expected one: \
                    does config.json fit this checkpoint?";
    assert_eq!(text, expected);
    let twice = Saved::of("bert_relu_no_pooler");
    let second = twice.tensors.iter().find(|t| t.name() == "embeddings.word_embeddings.weight").unwrap();
    let second = second.rename("question_encoder.embeddings.word_embeddings.weight");
    assert!(twice.and(second).refused().starts_with("2 tensors are named …embeddings.word_embeddings.weight"));
}

#[test]
fn architectures_that_are_not_built_are_refused_by_name() {
    let other = json!({"architectures": ["DiffLlamaForCausalLM"], "model_type": "diffllama"});
    let text = Saved::of("bert_relu_no_pooler").with(other).refused();
    let expected = "architecture DiffLlamaForCausalLM (model_type diffllama) is not built; \
                    built are: bert, roberta, distilbert, mpnet, nomic_bert, modernbert, llama, ";
    assert!(text.starts_with(expected), "{text}");
    let text = Saved::of("bert_relu_no_pooler").with(json!({"architectures": null, "model_type": null})).refused();
    assert!(text.starts_with("architecture (none) (model_type (none)) is not built"), "{text}");
    let by_type = Saved::of("bert_relu_no_pooler").with(json!({"architectures": ["ColBERT"]}));
    assert_eq!(by_type.load().unwrap().model.shape().architecture, "bert");
}

#[test]
fn options_that_change_the_numbers_are_refused_unless_built() {
    let refused = [
        ("bert_relu_no_pooler", "is_decoder", json!(true), "is true, which is not built; built: false"),
        ("bert_relu_no_pooler", "position_embedding_type", json!("relative_key"), "built: \"absolute\""),
        ("bert_relu_no_pooler", "hidden_act", json!("mish"), "is \"mish\", which is not built; built: gelu, "),
        ("bert_relu_no_pooler", "pruned_heads", json!({"0": [1]}), "is {\"0\":[1]}, which is not built"),
        ("bert_relu_no_pooler", "quantization_config", json!({"bits": 4}), "which is not built"),
        ("mpnet_3heads", "relative_attention_num_buckets", json!(64), "is 64, which is not built; built: 32"),
        ("nomic_bert", "rope_scaling", json!({"type": "linear", "factor": 2.0}), "rope_scaling.type is \"linear\""),
        ("nomic_bert", "rotary_emb_fraction", json!(0.5), "is 0.5, which is not built; built: 1.0"),
        ("nomic_bert", "num_experts", json!(8), "is 8, which is not built; built: 0"),
        ("nomic_bert", "prenorm", json!(true), "which is not built"),
        ("nomic_bert", "activation_function", json!("gelu"), "built: swiglu, geglu, glu"),
        ("modernbert", "rope_parameters", json!({"full_attention": {"rope_type": "yarn"}}), "full_attention.rope_type"),
        ("modernbert", "layer_types", json!(["full_attention"]), "expected 5 times \"full_attention\" or"),
        ("modernbert_old_config", "global_attn_every_n_layers", json!(0), "expected a whole number from 1 to 1024"),
        ("cross_encoder_modernbert_cls", "classifier_pooling", json!("max"), "built: cls, mean"),
        ("bert_relu_no_pooler", "num_attention_heads", json!(5), "num_attention_heads is 5, expected a divisor of 36"),
        (
            "bert_relu_no_pooler",
            "hidden_size",
            json!(1e9),
            "hidden_size is 1000000000.0, expected a whole number from 1",
        ),
        ("bert_relu_no_pooler", "vocab_size", json!(-3), "expected a whole number from 1 to 4194304"),
        ("bert_relu_no_pooler", "layer_norm_eps", json!("small"), "expected a positive number"),
        (
            "llama_dynamic",
            "rope_parameters",
            json!({"rope_type": "longrope"}),
            "rope_parameters.rope_type is \"longrope\"",
        ),
        ("llama_dynamic", "rope_parameters", json!({"rope_type": "linear"}), "rope_parameters.factor is missing"),
        ("llama_dynamic", "num_key_value_heads", json!(3), "expected a divisor of 4"),
        ("llama_dynamic", "hidden_act", json!("mish"), "which is not built"),
        ("qwen2_late_window", "layer_types", json!(["linear_attention"]), "expected 3 times \"full_attention\" or"),
        ("qwen2_late_window", "use_sliding_window", json!(false), "true, as layer_types has sliding layers"),
        ("qwen3_5_hybrid", "linear_num_key_heads", json!(4), "expected a divisor of 6"),
        ("qwen3_5_hybrid", "hidden_act", json!("gelu"), "which is not built; built: \"silu\""),
        ("qwen3_5_moe", "num_experts_per_tok", json!(6), "expected a whole number from 1 to 5"),
        ("gemma2_small", "use_bidirectional_attention", json!(true), "which is not built; built: false"),
        ("gemma4_shared", "enable_moe_block", json!(true), "which is not built; built: false"),
        ("gemma4_shared", "use_bidirectional_attention", json!("all"), "built: null, \"vision\""),
        ("gemma4_shared", "num_kv_shared_layers", json!(3), "before the layers that share"),
        ("gemma4_shared", "vocab_size_per_layer_input", json!(81), "expected 80, as vocab_size is"),
        ("gemma4_shared", "per_layer_config", json!({"1": {"head_dim": 16}}), "one size for all"),
        (
            "roberta",
            "pad_token_id",
            json!(81),
            "max_position_embeddings is 82, expected more than pad_token_id + 1 = 82",
        ),
    ];
    for (case, key, value, text) in refused {
        let message = Saved::of(case).with(json!({key: value})).refused();
        assert!(message.contains(key) && message.contains(text), "{case} {key}: {message}");
    }
    let message = Saved::of("bert_relu_no_pooler").without("hidden_size").refused();
    assert_eq!(message, "config.json: hidden_size is missing, expected a whole number from 1 to 65536");
    // Values that say what is done anyway are taken.
    let plain =
        json!({"is_decoder": false, "pruned_heads": {}, "position_embedding_type": "absolute", "rope_scaling": null});
    Saved::of("bert_relu_no_pooler").with(plain).load().unwrap();
}

#[test]
fn nomic_checkpoints_load_with_the_keys_of_the_published_code() {
    let published = json!({
        "architectures": ["NomicBertModel"], "model_type": "nomic_bert", "vocab_size": 320, "type_vocab_size": 2,
        "n_embd": 64, "n_head": 4, "n_inner": 96, "n_layer": 2, "n_positions": 8192, "max_trained_positions": 2048,
        "activation_function": "swiglu", "layer_norm_epsilon": 1e-12, "rotary_emb_base": 1000,
        "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": false, "rotary_emb_scale_base": null,
        "rotary_scaling_factor": null, "qkv_proj_bias": false, "mlp_fc1_bias": false, "mlp_fc2_bias": false,
        "causal": false, "prenorm": false, "parallel_block": false, "use_rms_norm": false,
    });
    let published = |changes| {
        let tensors = Saved::of("nomic_bert").tensors;
        Saved { config: published.as_object().unwrap().clone(), tensors }.with(changes).load().unwrap()
    };
    let (ours, theirs) = (published(json!({})), load(golden("nomic_bert"), &*CPU).unwrap());
    assert_eq!(hidden(&ours), hidden(&theirs));
    assert_eq!((ours.model.shape().max_positions, theirs.model.shape().max_positions), (8192, 256));
    // The frequencies of scaled positions are the plain ones up to the trained length: no longer text is taken.
    let scaled = published(json!({"rotary_scaling_factor": 2.0}));
    assert_eq!(scaled.model.shape().max_positions, 2048);
    assert_ne!(hidden(&published(json!({"rotary_emb_base": 10_000}))), hidden(&theirs));
}

#[test]
fn modernbert_reads_both_styles_of_rotary_bases() {
    let old = |changes| hidden(&Saved::of("modernbert_old_config").with(changes).load().unwrap());
    let new = |global: f64, local: f64| {
        let bases = json!({
            "full_attention": {"rope_type": "default", "rope_theta": global},
            "sliding_attention": {"rope_type": "default", "rope_theta": local},
        });
        let changed = Saved::of("modernbert_old_config").without("global_rope_theta").without("local_rope_theta");
        hidden(&changed.with(json!({"rope_parameters": bases})).load().unwrap())
    };
    assert_eq!(old(json!({})), new(160_000.0, 10_000.0));
    assert_eq!(old(json!({"global_rope_theta": 5000, "local_rope_theta": 70})), new(5000.0, 70.0));
    assert_eq!(old(json!({"global_rope_theta": 50, "local_rope_theta": null})), new(50.0, 50.0));
    assert_ne!(new(50.0, 50.0), new(50.0, 60.0));
}

#[test]
fn roberta_has_a_window_shorter_than_its_table() {
    let roberta = load(golden("roberta"), &*CPU).unwrap();
    let shape = roberta.model.shape();
    assert_eq!((shape.architecture, shape.max_positions), ("roberta", 80));
    assert!(shape.check(&Batch::new(&[vec![3; 80]]).unwrap()).is_ok());
    let text = shape.check(&Batch::new(&[vec![3], vec![3; 81]]).unwrap()).unwrap_err().to_string();
    assert_eq!(text, "sequence 1 has 81 tokens, but roberta takes at most 80: shorten or truncate it");
}

#[test]
fn batches_that_the_model_has_no_rows_for_are_refused() {
    let bert = load(golden("bert_12heads_gelu_new"), &*CPU).unwrap();
    let check = |batch: &Batch| bert.model.shape().check(batch).unwrap_err().to_string();
    assert_eq!(check(&Batch::default()), "the batch has no sequences: nothing to compute");
    let text = check(&Batch::new(&[vec![3], vec![4, 320]]).unwrap());
    let expected = "sequence 1: id 320 at token 1, expected below 320: does the tokenizer belong to this model?";
    assert_eq!(text, expected);
    let mut typed = Batch::new(&[vec![3]]).unwrap();
    typed.push(&[4, 5], &[0, 2]).unwrap();
    assert_eq!(typed.types, [0, 0, 2]);
    assert!(check(&typed).starts_with("sequence 1: token type 2 at token 1, expected below 2"));
    assert_eq!(typed.push(&[], &[]).unwrap_err().to_string(), "sequence 2 has no tokens, expected at least one");
    let text = typed.push(&[1, 2], &[0]).unwrap_err().to_string();
    assert_eq!(text, "sequence 2 has 1 token types for 2 ids, expected as many, or none");
    assert_eq!((typed.tokens(), typed.spans.len()), (3, 2));
}

/// Bits of the logits of a few tokens.
fn logits(loaded: &Loaded) -> Vec<u32> {
    let batch = Batch::new(&[vec![5, 9, 60, 7, 30, 11, 12, 13], vec![8]]).unwrap();
    loaded.model.shape().check(&batch).unwrap();
    let cx = Forward::new(&*CPU, &batch);
    let logits = loaded.head.as_ref().unwrap().logits(&cx, &loaded.model.forward(&cx));
    CPU.read(&logits).unwrap().into_iter().map(f32::to_bits).collect()
}

#[test]
fn checkpoints_with_a_vision_tower_load_as_their_language_model() {
    for case in ["qwen3_5_hybrid", "qwen3_5_moe", "gemma3_small", "gemma4_shared"] {
        let plain = Saved::of(case);
        let class = plain.config["architectures"][0].as_str().unwrap().replace("CausalLM", "ConditionalGeneration");
        let expected = logits(&plain.load().unwrap());
        let tower = Tensor::from_f32("model.visual.patch_embed.weight", vec![1], vec![0.0]);
        let mut nested = plain.renamed(|name| name.replace("model.", "model.language_model.")).and(tower);
        let tied = nested.config.get("tie_word_embeddings").cloned();
        let text = std::mem::take(&mut nested.config);
        let outer =
            json!({"architectures": [class], "text_config": text, "vision_config": {}, "tie_word_embeddings": tied});
        nested.config = outer.as_object().unwrap().clone();
        let loaded = nested.load().unwrap();
        assert_eq!(loaded.unused, ["model.visual.patch_embed.weight"], "{case}");
        assert!(logits(&loaded) == expected, "{case}");
    }
}

#[test]
fn experts_load_from_one_tensor_or_from_one_each() {
    let separate = Saved::of("qwen3_5_moe");
    let expected = logits(&separate.load().unwrap());
    let (experts, others): (Vec<_>, Vec<_>) =
        separate.tensors.iter().cloned().partition(|tensor| tensor.name().contains("mlp.experts."));
    let find = |layer: usize, expert: usize, part: &str| {
        let name = format!("model.layers.{layer}.mlp.experts.{expert}.{part}_proj.weight");
        experts.iter().find(|tensor| tensor.name() == name).unwrap()
    };
    let mut fused = Saved { config: separate.config.clone(), tensors: others };
    for layer in 0..2 {
        for (parts, name, shape) in
            [(&["gate", "up"][..], "gate_up_proj", [5, 24, 32]), (&["down"], "down_proj", [5, 32, 12])]
        {
            let bytes = (0..5).flat_map(|expert| parts.iter().map(move |part| (expert, part)));
            let bytes = bytes.flat_map(|(expert, part)| find(layer, expert, part).bytes().to_vec()).collect();
            let name = format!("model.layers.{layer}.mlp.experts.{name}");
            fused = fused.and(Tensor::from_bytes(&name, shape.to_vec(), Format::BF16, bytes).unwrap());
        }
    }
    let fused = fused.load().unwrap();
    assert!(fused.unused.is_empty() && logits(&fused) == expected);
}

#[test]
fn a_language_model_has_a_head_unless_its_trunk_was_saved_or_asked_for() {
    assert!(load(golden("qwen3_biases"), &*CPU).unwrap().head.is_some());
    let trunk = lattice_models::load_trunk(golden("qwen3_biases"), &*CPU).unwrap();
    assert_eq!((trunk.head.is_none(), &trunk.unused[..]), (true, &["lm_head.weight".to_owned()][..]));
    assert!(load(golden("qwen3_embedding_small"), &*CPU).unwrap().head.is_none());
    let both_ways = load(golden("gemma3_embedding_small"), &*CPU).unwrap();
    assert!(both_ways.head.is_none() && both_ways.model.states().is_empty());
    let text = Saved::of("llama_dynamic").renamed(|name| name.replace("lm_head", "head")).refused();
    assert!(text.starts_with("no tensor lm_head.weight in "), "{text}");
    let scored = json!({"architectures": ["Qwen3ForSequenceClassification"]});
    let text = Saved::of("qwen3_biases").with(scored).refused();
    assert!(text.starts_with("config.json: architectures is [\"Qwen3ForSequenceClassification\"], which is not built"));
}

#[test]
fn a_gguf_file_gives_the_rows_of_the_directory_that_it_was_made_of() {
    let mut failures = Vec::new();
    for entry in std::fs::read_dir(golden("gguf_names")).unwrap() {
        let dir = entry.unwrap().path();
        let case = dir.file_name().unwrap().to_str().unwrap().to_owned();
        let (saved, file) = match (load(dir.join("model.safetensors"), &*CPU), load(dir.join("model.gguf"), &*CPU)) {
            (Ok(saved), Ok(file)) => (saved, file),
            (Err(ModelError::Architecture { .. }), Err(ModelError::Architecture { .. })) => continue,
            (saved, file) => {
                failures.push(format!("{case}: {:?} {:?}", saved.err(), file.err()));
                continue;
            }
        };
        let floats = |loaded: &Loaded| hidden(loaded).into_iter().map(f32::from_bits).collect::<Vec<_>>();
        let (ours, theirs) = (floats(&file), floats(&saved));
        // Rounded to 8 bits, a router may choose another expert for a row.
        let (tolerance, spared) = if case.ends_with("q8_0") { (0.06, 1) } else { (1e-5, 0) };
        let most = theirs.iter().fold(0f32, |m, x| m.max(x.abs()));
        let cols = saved.model.shape().hidden;
        let off = |(a, b): (&[f32], &[f32])| !a.iter().zip(b).all(|(a, b)| (a - b).abs() <= tolerance * most);
        let off = ours.chunks_exact(cols).zip(theirs.chunks_exact(cols)).filter(|rows| off(*rows)).count();
        if off > spared {
            failures.push(format!("{case}: {off} rows differ"));
        }
        if file.model.shape().max_positions < saved.model.shape().max_positions || !file.unused.is_empty() {
            failures.push(format!("{case}: {:?}, unused {:?}", file.model.shape(), file.unused));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn layers_say_what_they_keep_of_a_sequence() {
    let states = |case| load(golden(case), &*CPU).unwrap().model.states();
    let kv = |kv_heads, head_dim, window| LayerState::Kv { kv_heads, head_dim, window };
    assert_eq!(states("qwen2_late_window"), [kv(2, 8, None), kv(2, 8, Some(5)), kv(2, 8, Some(5))]);
    let shared = [kv(2, 8, Some(6)), kv(2, 16, None), LayerState::Shared(0), LayerState::Shared(1)];
    assert_eq!(states("gemma4_shared"), shared);
    let net = LayerState::Recurrent { channels: 104, kernel: 3, heads: 6, key_dim: 8, value_dim: 12 };
    assert_eq!(states("qwen3_5_hybrid"), [net, net, kv(2, 16, None)]);
    assert_eq!(shared.map(|s| s.token_bytes(KvFormat::F16)), [64, 128, 0, 0]);
    assert_eq!((net.slot_bytes(), net.token_bytes(KvFormat::F32)), (4 * (104 * 3 + 6 * 8 * 12), 0));
    assert!(states("bert_relu_no_pooler").is_empty());
}

#[test]
fn pasts_that_the_caches_do_not_hold_are_refused() {
    let hybrid = load(golden("qwen3_5_hybrid"), &*CPU).unwrap();
    let caches = Caches::new(&*CPU, &hybrid.model.states(), 4, 16, 2, KvFormat::F16);
    let check = |ids: &[u32], past: Past| {
        let mut batch = Batch::default();
        batch.push_after(&[1], Past { pages: [3].into(), slot: 1, ..Past::default() }).unwrap();
        batch.push_after(ids, past).unwrap();
        assert_eq!(batch.positions[1], batch.past(1) as u32);
        hybrid.model.shape().check(&batch).and_then(|()| caches.check(&batch)).map_err(|e| e.to_string())
    };
    let past = |tokens, pages: &[u32], slot| Past { tokens, pages: pages.into(), slot, ..Past::default() };
    assert_eq!(check(&[1, 2], past(30, &[0, 1], 0)), Ok(()));
    let text = check(&[1, 2], past(31, &[0, 1], 0)).unwrap_err();
    assert_eq!(text, "sequence 1 has 33 tokens, but its 2 pages hold 16 each: give it more");
    let text = check(&[1], past(1, &[4], 0)).unwrap_err();
    assert_eq!(text, "sequence 1: page 4, expected below 4: the caches were made for so many");
    assert!(check(&[1], past(1, &[0], 2)).unwrap_err().starts_with("sequence 1: slot 2, expected below 2"));
    let text = check(&[1], past(256, &[0], 0)).unwrap_err();
    assert_eq!(text, "sequence 1 has 257 tokens, but qwen3_5 takes at most 256: shorten or truncate it");
}

#[test]
fn scaled_positions_reach_further_where_their_scaling_says_so() {
    let window = |case| load(golden(case), &*CPU).unwrap().model.shape().max_positions;
    assert_eq!([window("llama_dynamic"), window("llama_biases_yarn"), window("gemma3_small")], [96, 128, 128]);
}

#[test]
fn files_that_are_no_configuration_are_refused() {
    let dir = TempDir::new().unwrap();
    let refused = || load(dir.path(), &*CPU).err().unwrap().to_string();
    assert!(refused().contains("is this a model directory?"));
    let path = dir.path().join("config.json");
    std::fs::write(&path, "[1, 2]").unwrap();
    assert!(refused().contains("config.json is not a JSON object: invalid type: sequence"), "{}", refused());
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    assert!(refused().ends_with("has more than 16777216 bytes: is it a model's configuration?"));
}

/// Any JSON, with a taste for the numbers and words that a configuration holds.
fn value() -> impl Strategy<Value = Value> {
    let number = prop_oneof![0..200u64, Just(u64::MAX), Just(1 << 32), any::<u64>()];
    let words =
        ["default", "full_attention", "sliding_attention", "gelu", "silu", "NomicBertModel", "Qwen3Model", "linear"];
    let word =
        prop::sample::select([&words[..], &["dynamic", "yarn", "llama3", "proportional", "freq_factors", ""]].concat());
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number.prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from);
        let keys = ["rope_type", "full_attention", "sliding_attention", "factor", "rope_theta", "head_dim"];
        let key = prop_oneof![prop::sample::select(keys.to_vec()).prop_map(str::to_owned), "[0-3]"];
        let object = prop::collection::btree_map(key, inner, 0..4);
        prop_oneof![list, object.prop_map(|map| Value::Object(map.into_iter().collect()))]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn garbage_is_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(config) = Config::from_json(&bytes) {
            let _ = lattice_models::find(&config);
        }
    }

    #[test]
    fn a_changed_configuration_loads_and_runs_or_is_an_error(
        case in prop::sample::select(vec![
            "bert_relu_no_pooler", "roberta", "distilbert", "mpnet_3heads", "nomic_bert", "modernbert",
            "modernbert_old_config", "cross_encoder_bert_3labels", "cross_encoder_modernbert_mean",
            "llama_biases_yarn", "llama_dynamic", "mistral_window", "qwen2_late_window", "qwen3_biases", "qwen3_5_hybrid",
            "qwen3_5_moe", "gemma2_small", "gemma3_small", "gemma3_embedding_small", "gemma4_shared",
            "gemma4_keys_are_values",
        ]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), value()), 1..3),
        ids in prop::collection::vec(0..400u32, 1..40),
    ) {
        let mut config = Saved::of(case).config;
        let extra = ["rope_scaling", "rope_theta", "id2label", "num_labels", "layer_types", "head_dim", "n_positions",
            "rope_parameters", "full_attention_interval", "sliding_window", "text_config"];
        let keys: Vec<String> = config.keys().cloned().chain(extra.map(str::to_owned)).collect();
        for (index, value) in changes {
            config.insert(index.get(&keys).clone(), value);
        }
        let config = Config::from_json(&serde_json::to_vec(&config).unwrap()).unwrap();
        let checkpoint = Checkpoint::open(golden(case)).unwrap();
        if let Ok(loaded) = load_checkpoint(config, &checkpoint, &*CPU) {
            let batch = Batch::new(&[ids]).unwrap();
            if loaded.model.shape().check(&batch).is_ok() {
                let cx = Forward::new(&*CPU, &batch);
                let hidden = loaded.model.forward(&cx);
                if let Some(head) = &loaded.head {
                    prop_assert_eq!(head.logits(&cx, &hidden).cols(), loaded.model.shape().vocab);
                }
                if let Some(classifier) = &loaded.classifier {
                    prop_assert_eq!(classifier.forward(&cx, &hidden).cols(), loaded.labels.len());
                }
            }
        }
    }
}
