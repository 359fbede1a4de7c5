//! What a model directory may look like, and what is said about one that does not fit.

use lattice_models::{Batch, Config, Forward, Loaded, ModelError, load, load_checkpoint};
use ops::{Cpu, CpuOptions, Ops};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use tempfile::TempDir;
use weights::{Checkpoint, Format, Tensor, write_safetensors};

static CPU: LazyLock<Cpu> =
    LazyLock::new(|| Cpu::new(&CpuOptions { threads: Some(1), ..CpuOptions::default() }).unwrap());

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
    let batch = Batch::new(&[vec![5, 9, 100, 7, 30], vec![8]]).unwrap();
    loaded.model.shape().check(&batch).unwrap();
    let hidden = Forward::new(&*CPU, &batch).run(&*loaded.model);
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
    let word = prop_oneof![Just("default"), Just("full_attention"), Just("gelu"), Just("NomicBertModel"), Just("")];
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
        let key = prop_oneof![Just("rope_type".to_owned()), Just("full_attention".to_owned()), "[0-3]"];
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
        ]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), value()), 1..3),
        ids in prop::collection::vec(0..400u32, 1..40),
    ) {
        let mut config = Saved::of(case).config;
        let extra = ["rope_scaling", "rope_theta", "id2label", "num_labels", "layer_types", "head_dim", "n_positions"];
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
                let hidden = cx.run(&*loaded.model);
                if let Some(classifier) = &loaded.classifier {
                    prop_assert_eq!(classifier.forward(&cx, &hidden).cols(), loaded.labels.len());
                }
            }
        }
    }
}
