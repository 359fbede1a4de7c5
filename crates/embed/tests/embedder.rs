//! Texts in, vectors out, on the tiny sentence-transformers folders of `goldens/`.

use lattice_embed::{
    Cancel, EmbedError, EmbedOptions, Embedder, EmbeddingService, Modules, NativeEmbeddingService, OpenOptions,
    Pooling, Prompt, RerankOptions, Reranker, cosine,
};
use ops::{Cpu, CpuOptions, Isa, Precision};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weights::Checkpoint;

fn golden(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens").join(case)
}

fn json(file: PathBuf) -> Value {
    serde_json::from_slice(&fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))).expect("JSON")
}

fn open(dir: &Path, isa: Isa) -> Result<Embedder, EmbedError> {
    open_at(Precision::Exact, dir, isa)
}

fn open_at(precision: Precision, dir: &Path, isa: Isa) -> Result<Embedder, EmbedError> {
    let ops = Cpu::new(&CpuOptions { threads: Some(2), isa: Some(isa), precision })?;
    Embedder::from_dir(dir, &OpenOptions { ops: Some(Arc::new(ops)), pooling: None })
}

fn best() -> Isa {
    Isa::available().pop().expect("scalar at least")
}

fn vectors(embedder: &Embedder, texts: &[&str]) -> Vec<Vec<f32>> {
    let options = EmbedOptions { truncate: true, ..Default::default() };
    embedder.embed(texts, &options).expect("texts embed").into_iter().map(|e| e.vector).collect()
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// A copy of a golden folder that a test may change.
fn copy(case: &str) -> tempfile::TempDir {
    let to = tempfile::tempdir().expect("a temporary folder");
    fn all(from: &Path, to: &Path) {
        for item in fs::read_dir(from).expect("a golden").flatten() {
            let target = to.join(item.file_name());
            if item.path().is_dir() {
                fs::create_dir(&target).expect("a folder");
                all(&item.path(), &target);
            } else {
                fs::copy(item.path(), target).expect("a file");
            }
        }
    }
    all(&golden(case), to.path());
    to
}

#[test]
fn every_folder_gives_the_vectors_of_sentence_transformers_on_every_isa() {
    let mut failures = Vec::new();
    for item in fs::read_dir(golden("")).expect("goldens").flatten() {
        let name = item.file_name().into_string().expect("ASCII");
        if !name.starts_with("st_") {
            continue;
        }
        let (inputs, meta) = (json(item.path().join("inputs.json")), json(item.path().join("meta.json")));
        let texts: Vec<&str> =
            inputs["texts"].as_array().expect("texts").iter().map(|t| t.as_str().expect("text")).collect();
        let expected = Checkpoint::open(item.path().join("expected.safetensors")).expect("expected outputs");
        for isa in Isa::available() {
            let embedder = open(&item.path(), isa).unwrap_or_else(|e| panic!("{name}: {e}"));
            if embedder.modules().default_prompt.is_none() {
                for (text, ids) in texts.iter().zip(inputs["token_ids"].as_array().into_iter().flatten()) {
                    let truncation = Some(tokenizer::Truncation::to(embedder.window()));
                    let options = tokenizer::EncodeOptions { truncation, ..Default::default() };
                    let (got, _) = embedder.tokenizer().encode_ids_with(text, &options).expect("it encodes");
                    if serde_json::json!(got) != *ids {
                        failures.push(format!("{name}: {text:?} is {got:?}, expected {ids}"));
                    }
                }
            }
            for (output, tolerance) in meta["compare"].as_object().expect("compare") {
                let prompt = output.strip_prefix("embeddings.").map_or(Prompt::Default, |n| Prompt::Name(n.into()));
                let options = EmbedOptions { prompt, truncate: true, ..Default::default() };
                let got = embedder.embed(&texts, &options).unwrap_or_else(|e| panic!("{name}: {e}"));
                let got: Vec<f32> = got.into_iter().flat_map(|e| e.vector).collect();
                let want = expected.get(output).and_then(|t| t.to_f32()).expect("an output");
                let difference = largest_difference(&got, &want);
                if f64::from(difference) > tolerance["atol"].as_f64().expect("a number") {
                    failures
                        .push(format!("{name} {isa} {output}: off by {difference:.1e}, allowed {}", tolerance["atol"]));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_vector_does_not_depend_on_its_batch_mates() {
    let long = "several words that are repeated ".repeat(60);
    let cases = ["st_bert_mean", "st_bert_cls", "st_roberta_lasttoken"];
    let cases = || {
        cases
            .into_iter()
            .flat_map(|case| [Precision::Exact, Precision::Default, Precision::Fast].map(|precision| (case, precision)))
    };
    for isa in Isa::available() {
        for (case, precision) in cases() {
            let embedder = open_at(precision, &golden(case), isa).expect("a golden opens");
            let alone = vectors(&embedder, &["hi"]).remove(0);
            let beside = vectors(&embedder, &["hi", &long]).remove(0);
            let between = vectors(&embedder, &[&long, "hi", "What is this?"]).remove(1);
            let many: Vec<String> = (0..300).map(|i| format!("text number {i} {}", "word ".repeat(i % 17))).collect();
            let mut many: Vec<&str> = many.iter().map(String::as_str).collect();
            many.insert(123, "hi");
            let among = vectors(&embedder, &many).remove(123);
            for other in [beside, between, among] {
                assert!(
                    alone.iter().zip(&other).all(|(a, b)| a.to_bits() == b.to_bits()),
                    "{case} {isa} {precision:?}"
                );
            }
        }
    }
}

#[test]
fn the_default_precision_is_within_1e_5_of_exact() {
    let texts = ["hi", "What is this?", "several words that are repeated several times"];
    for isa in Isa::available() {
        for case in ["st_bert_mean", "st_bert_cls", "st_roberta_lasttoken"] {
            let [exact, default] = [Precision::Exact, Precision::Default]
                .map(|precision| vectors(&open_at(precision, &golden(case), isa).expect("a golden opens"), &texts));
            for (a, b) in exact.iter().zip(&default) {
                // Of vectors of length one.
                let length = a.iter().map(|x| x * x).sum::<f32>().sqrt();
                let off = largest_difference(a, b) / length;
                assert!(off <= 1e-5, "{case} {isa}: off by {off:e}");
            }
        }
    }
}

#[test]
fn fast_vectors_point_where_exact_ones_do() {
    let texts = ["hi", "What is this?", "several words that are repeated several times"];
    for isa in Isa::available() {
        for case in ["st_bert_mean", "st_bert_cls", "st_roberta_lasttoken"] {
            let [exact, fast] = [Precision::Exact, Precision::Fast]
                .map(|precision| vectors(&open_at(precision, &golden(case), isa).expect("a golden opens"), &texts));
            for (a, b) in exact.iter().zip(&fast) {
                let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
                let cosine = dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
                assert!(cosine >= 0.999, "{case} {isa}: cosine {cosine}");
            }
        }
    }
}

#[test]
fn a_stream_of_any_length_gives_what_one_call_gives() {
    let embedder = open(&golden("st_bert_mean"), best()).expect("a golden opens");
    let texts: Vec<String> = (0..9000).map(|i| format!("text {}", i % 1000)).collect();
    let once = embedder.embed(&texts[..1000], &EmbedOptions::default()).expect("texts embed");
    let mut next = 0;
    embedder
        .embed_stream(&texts, &EmbedOptions::default(), |e| {
            assert_eq!((e.index, &e.vector), (next, &once[next % 1000].vector));
            next += 1;
            Ok(())
        })
        .expect("texts embed");
    assert_eq!(next, texts.len());
}

#[test]
fn a_text_longer_than_the_window_is_an_error_unless_truncation_is_asked_for() {
    let embedder = open(&golden("st_bert_mean"), best()).expect("a golden opens");
    let long = "word ".repeat(100);
    let error = embedder.embed(&["short", &long], &EmbedOptions::default()).expect_err("100 words are too long");
    let EmbedError::TooLong { text: 1, window: 24, tokens } = error else { panic!("{error}") };
    assert!(tokens > 100, "{tokens}");
    assert_eq!(
        error.to_string(),
        format!("text 1 has {tokens} tokens, but the window is 24: shorten it, or ask for truncation (--truncate)")
    );
    let options = EmbedOptions { truncate: true, ..Default::default() };
    let cut = embedder.embed(&["short", &long], &options).expect("it is cut");
    assert_eq!((cut[0].truncated, cut[1].truncated, cut[1].tokens), (false, true, 24));
}

#[test]
fn the_empty_text_is_the_vector_of_the_special_tokens() {
    let embedder = open(&golden("st_bert_mean"), best()).expect("a golden opens");
    let empty = &embedder.embed(&[""], &EmbedOptions::default()).expect("it embeds")[0];
    assert_eq!(empty.tokens, 2);
    let ids = embedder.tokenizer().encode_ids("", true).expect("it encodes");
    assert_eq!(embedder.embed_tokens(&[ids], &EmbedOptions::default()).expect("it embeds")[0].vector, empty.vector);
    assert!(embedder.embed::<&str>(&[], &EmbedOptions::default()).expect("nothing to do").is_empty());
}

#[test]
fn fewer_dimensions_are_the_first_ones_at_length_one() {
    let embedder = open(&golden("st_bert_mean"), best()).expect("a golden opens");
    let full = vectors(&embedder, &["some text"]).remove(0);
    let options = EmbedOptions { dimensions: Some(8), ..Default::default() };
    let short = embedder.embed(&["some text"], &options).expect("it embeds").remove(0).vector;
    assert_eq!(short.len(), 8);
    assert!((short.iter().map(|v| v * v).sum::<f32>() - 1.0).abs() < 1e-6);
    assert!((short[0] / short[1] - full[0] / full[1]).abs() < 1e-4);
    for asked in [0, full.len() + 1] {
        let options = EmbedOptions { dimensions: Some(asked), ..Default::default() };
        let error = embedder.embed(&["x"], &options).expect_err("so many do not exist").to_string();
        assert_eq!(error, format!("{asked} dimensions were asked for, expected 1 to {}", full.len()));
    }
}

#[test]
fn an_unknown_prompt_is_an_error_that_names_the_known_ones() {
    let embedder = open(&golden("st_distilbert_prompts"), best()).expect("a golden opens");
    let options = EmbedOptions { prompt: Prompt::Name("qury".into()), ..Default::default() };
    let error = embedder.embed(&["x"], &options).expect_err("there is no such prompt").to_string();
    assert_eq!(error, "no prompt is named qury; this model has none, passage, query");
}

#[test]
fn pooling_is_what_the_folder_says_or_an_error() {
    let write = |dir: &Path, settings: &str| fs::write(dir.join("1_Pooling/config.json"), settings).expect("a file");
    let folder = copy("st_bert_mean");
    let refused = |settings: &str| {
        write(folder.path(), settings);
        Modules::read(folder.path(), None).expect_err(settings).to_string()
    };
    for settings in [
        r#"{"pooling_mode": "median"}"#,
        r#"{"pooling_mode": ["mean", "median"]}"#,
        r#"{"pooling_mode_mean_tokens": true, "pooling_mode_median_tokens": true}"#,
    ] {
        let error = refused(settings);
        assert!(error.contains("median") && error.contains("known are cls, max, mean"), "{error}");
    }
    assert!(refused(r#"{"pooling_mode_mean_tokens": false}"#).contains("no pooling mode is switched on"));
    assert!(refused(r#"{"pooling_mode_mean_tokens": 1}"#).contains("expected true or false"));
    assert!(refused("[]").contains("not a JSON object"));
    write(folder.path(), r#"{"pooling_mode": ["mean", "cls"]}"#);
    assert_eq!(Modules::read(folder.path(), None).expect("two modes").pooling, [Pooling::Mean, Pooling::Cls]);

    fs::remove_file(folder.path().join("modules.json")).expect("it was there");
    let error = Modules::read(folder.path(), None).expect_err("nothing says how to pool").to_string();
    assert!(error.contains("name the pooling (--pooling mean, cls, lasttoken, …)"), "{error}");
    assert_eq!(Modules::read(folder.path(), Some(Pooling::Cls)).expect("told").pooling, [Pooling::Cls]);
}

#[test]
fn modules_that_change_vectors_and_are_not_built_are_refused_by_name() {
    let folder = copy("st_bert_mean");
    let refused = |modules: &str| {
        fs::write(folder.path().join("modules.json"), modules).expect("a file");
        Modules::read(folder.path(), None).expect_err(modules).to_string()
    };
    let with = |kind: &str, path: &str| {
        format!(
            r#"[{{"path": "", "type": "a.Transformer"}}, {{"path": "1_Pooling", "type": "a.Pooling"}}, {{"path": "{path}", "type": "a.{kind}"}}]"#
        )
    };
    assert!(refused(&with("LSTM", "2_LSTM")).contains("module a.LSTM is not built"));
    assert!(refused(&with("Dense", "../elsewhere")).contains("leaves the model's folder"));
    assert!(refused(&with("Dense", "/etc")).contains("leaves the model's folder"));
    assert!(refused("{}").contains("not a list of modules"));
    assert!(refused(r#"[{"path": "", "type": "a.Transformer"}]"#).contains("no Pooling module"));
}

#[test]
fn a_checkpoint_with_infinity_is_an_error_and_not_a_vector_of_nan() {
    let folder = copy("st_bert_mean");
    let file = folder.path().join("model.safetensors");
    let checkpoint = Checkpoint::open(&file).expect("a checkpoint");
    let mut tensors: Vec<_> = checkpoint.names().map(|name| checkpoint.get(name).expect("named")).collect();
    for tensor in &mut tensors {
        if tensor.name().ends_with("layer.0.output.dense.bias") {
            let values = vec![f32::INFINITY; tensor.elements()];
            *tensor = weights::Tensor::from_f32(tensor.name(), tensor.shape().to_vec(), values);
        }
    }
    let other = folder.path().join("other.safetensors");
    weights::write_safetensors(&other, &tensors).expect("written");
    fs::rename(other, file).expect("replaced");
    let embedder = open(folder.path(), best()).expect("it opens");
    let error = embedder.embed(&["text"], &EmbedOptions::default()).expect_err("infinity").to_string();
    assert!(error.contains("not finite"), "{error}");
}

#[test]
fn activations_beyond_half_precision_stay_finite() {
    // The feed-forward layer reaches 1e5 and more, which an f16 activation could not hold.
    let folder = copy("st_bert_mean");
    let file = folder.path().join("model.safetensors");
    let checkpoint = Checkpoint::open(&file).expect("a checkpoint");
    let scaled = |name: &str, factor: f32| {
        let tensor = checkpoint.get(name).expect("named");
        let values = tensor.to_f32().expect("numbers").iter().map(|v| v * factor).collect();
        weights::Tensor::from_f32(name, tensor.shape().to_vec(), values)
    };
    let tensors: Vec<_> = checkpoint
        .names()
        .map(|name| match () {
            () if name.ends_with("intermediate.dense.weight") => scaled(name, 1e5),
            () if name.ends_with("output.dense.weight") && !name.contains("attention") => scaled(name, 1e-5),
            () => scaled(name, 1.0),
        })
        .collect();
    let other = folder.path().join("other.safetensors");
    weights::write_safetensors(&other, &tensors).expect("written");
    fs::rename(other, file).expect("replaced");
    let vector = vectors(&open(folder.path(), best()).expect("it opens"), &["some text"]).remove(0);
    assert!(vector.iter().all(|v| v.is_finite()));
    assert!((vector.iter().map(|v| v * v).sum::<f32>() - 1.0).abs() < 1e-5);
}

#[test]
fn a_cancelled_call_ends_in_an_error() {
    let embedder = open(&golden("st_bert_mean"), best()).expect("a golden opens");
    let options = EmbedOptions { cancel: Cancel::default(), ..Default::default() };
    options.cancel.cancel();
    assert!(matches!(embedder.embed(&["x"], &options), Err(EmbedError::Cancelled)));
    let options = EmbedOptions::default();
    let texts: Vec<String> = (0..3000).map(|i| format!("text {i}")).collect();
    let mut seen = 0;
    let result = embedder.embed_each(&texts, &options, |_| {
        seen += 1;
        options.cancel.cancel();
        Ok(())
    });
    assert!(matches!(result, Err(EmbedError::Cancelled)) && seen == 1, "{seen} vectors after the stop");
}

#[test]
fn an_embedder_scores_by_cosine_with_its_prompts_and_tells_the_query_from_the_passages() {
    let embedder = open(&golden("st_distilbert_prompts"), best()).expect("a golden opens");
    let passages = ["hello world", "rates rose", ""];
    let scores = embedder.score("hello", &passages, &RerankOptions::default()).expect("scores");
    let named = |texts: &[&str], name: &str| {
        let options = EmbedOptions { prompt: Prompt::Name(name.into()), ..Default::default() };
        embedder.embed(texts, &options).expect("texts embed")
    };
    let (query, documents) = (named(&["hello"], "query"), named(&passages, "passage"));
    for (i, (score, document)) in scores.iter().zip(&documents).enumerate() {
        assert_eq!((score.index, score.score), (i, cosine(&query[0].vector, &document.vector)));
        assert_eq!(score.tokens, document.tokens + if i == 0 { query[0].tokens } else { 0 });
    }
    let long = "hello ".repeat(embedder.window());
    let error = embedder.score(&long, &passages, &RerankOptions::default()).unwrap_err();
    assert!(matches!(error, EmbedError::Query(_)) && error.to_string().starts_with("the query: text 0 has"), "{error}");
    let error = embedder.score("hello", &["a", &long], &RerankOptions::default()).unwrap_err();
    assert!(matches!(error, EmbedError::TooLong { text: 1, .. }), "{error}");
    let truncated = embedder.score(&long, &["a"], &RerankOptions { truncate: true, ..Default::default() });
    assert!(truncated.expect("scores")[0].truncated);
}

#[test]
fn the_async_service_gives_the_same_vectors_and_stops_when_dropped() {
    let embedder = Arc::new(open(&golden("st_bert_mean"), best()).expect("a golden opens"));
    let service = NativeEmbeddingService::new(embedder.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let texts = vec!["one".to_owned(), "two words".to_owned()];
    let got = runtime.block_on(service.embed(texts.clone(), EmbedOptions::default())).expect("they embed");
    assert_eq!(got, embedder.embed(&texts, &EmbedOptions::default()).expect("they embed"));
    assert_eq!((service.dimensions(), service.window()), (48, 24));
    runtime.block_on(async {
        let many = vec!["a text among many".to_owned(); 200_000];
        let call = service.embed(many, EmbedOptions::default());
        let outcome = tokio::select! { biased; done = call => Some(done), () = tokio::task::yield_now() => None };
        assert!(outcome.is_none(), "the call does not end at once");
        // The dropped call gives its turn back soon, or this one would wait for all of it.
        service.embed(texts, EmbedOptions::default()).await.expect("the next call runs");
    });
}

#[test]
fn a_cross_encoder_ranks_and_a_classifier_or_an_embedder_does_not() {
    let tokenizer = golden("st_bert_mean").join("tokenizer.json");
    let folder = copy("cross_encoder_bert");
    fs::copy(&tokenizer, folder.path().join("tokenizer.json")).expect("a tokenizer");
    let hub = lattice_embed::Hub::from_env().expect("settings");
    let located = |dir: &Path| hub.resolve(&format!("{}/", dir.display()), &mut ()).expect("a folder");
    let reranker = Reranker::open(&located(folder.path()), &OpenOptions::default()).expect("it opens");
    let passages = ["one", "two", "one"];
    // Ids of the borrowed tokenizer may lie beyond this tiny model's table: then the error says so.
    match reranker.rank("1", &passages, &RerankOptions::default()) {
        Ok(scores) => {
            assert!(scores[0].score >= scores[1].score && scores[1].score >= scores[2].score);
            assert!(scores.iter().all(|s| (0.0..=1.0).contains(&s.score)));
        }
        Err(error) => assert!(error.to_string().contains("does the tokenizer belong to this model?"), "{error}"),
    }
    let labels = copy("cross_encoder_bert_3labels");
    fs::copy(&tokenizer, labels.path().join("tokenizer.json")).expect("a tokenizer");
    let error =
        Reranker::open(&located(labels.path()), &OpenOptions::default()).err().expect("three labels").to_string();
    assert!(error.contains("has 3 labels"), "{error}");
    let embedder = Reranker::open(&located(&golden("st_bert_mean")), &OpenOptions::default()).expect("a trunk opens");
    let error = embedder.score("a", &["b"], &RerankOptions::default()).expect_err("it has no head").to_string();
    assert!(error.contains("use a cross-encoder"), "{error}");
}
