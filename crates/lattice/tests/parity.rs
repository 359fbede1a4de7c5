//! The golden cases, through the command; and folders that are not what they should be.

mod common;
use common::{golden, offline, root, run};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// The rows of a report.
fn rows(args: &[&str]) -> (i32, Vec<Value>) {
    let (status, stdout, stderr) = run(&[&["parity", "--json"], args].concat());
    (status, serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("{e}: {stdout}{stderr}")))
}

fn with<'a>(rows: &'a [Value], status: &str) -> Vec<&'a Value> {
    rows.iter().filter(|row| row["status"] == status).collect()
}

#[test]
fn every_case_of_this_repository_passes_on_every_instruction_set() {
    for isa in ops::Isa::available() {
        let (status, rows) = rows(&[&golden(""), "--isa", isa.name()]);
        assert_eq!(with(&rows, "FAIL"), Vec::<&Value>::new(), "{isa}");
        assert_eq!(status, 0);
        assert!(with(&rows, "ok").len() > 200, "{isa}: {} passed", with(&rows, "ok").len());
    }
}

#[test]
fn the_shared_cases_pass_or_are_refused_or_skipped_by_name() {
    let cases = root().join("../shared/goldens/cases");
    if !cases.is_dir() {
        eprintln!("skipped: the shared golden cases are not there ({})", cases.display());
        return;
    }
    let (status, rows) = rows(&[cases.to_str().unwrap()]);
    assert_eq!(with(&rows, "FAIL"), Vec::<&Value>::new());
    assert_eq!(status, 0);
    for row in with(&rows, "refused") {
        assert!(row["reason"].as_str().unwrap().contains("not built"), "{row}");
    }
    for row in with(&rows, "skipped") {
        assert!(row["reason"].as_str().unwrap().contains("SHA-256"), "{row}");
    }
}

#[test]
fn outputs_are_dumped_under_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let dump = dir.path().to_str().unwrap();
    let args = ["--dump", dump, &golden("cross_encoder_bert"), &golden("st_bert_mean"), &golden("tokenizers")];
    assert_eq!(rows(&args).0, 0);
    for case in ["cross_encoder_bert", "st_bert_mean"] {
        let ours = weights::Checkpoint::open(dir.path().join(format!("{case}.safetensors"))).unwrap();
        let theirs = weights::Checkpoint::open(root().join("goldens").join(case).join("expected.safetensors")).unwrap();
        assert_eq!(ours.names().collect::<Vec<_>>(), theirs.names().collect::<Vec<_>>(), "{case}");
        for tensor in theirs.tensors() {
            assert_eq!(ours.get(tensor.name()).unwrap().shape(), tensor.shape());
        }
    }
    let items: Value =
        serde_json::from_slice(&fs::read(dir.path().join("tokenizers/wordpiece.json")).unwrap()).unwrap();
    assert!(items["items"][7]["ids"].is_array());
}

/// A copy of a case with other files in it.
fn changed(name: &str, change: impl FnOnce(&Path)) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in fs::read_dir(golden(name)).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    change(dir.path());
    dir
}

fn edit(file: &Path, change: impl FnOnce(&mut Value)) {
    let mut value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    change(&mut value);
    fs::write(file, value.to_string()).unwrap();
}

/// Status and reason of the only row that is not ok.
fn outcome(dir: &tempfile::TempDir) -> (i32, String, String) {
    let (status, rows) = rows(&[dir.path().to_str().unwrap()]);
    let row = rows.iter().find(|row| row["status"] != "ok").unwrap_or_else(|| panic!("all of {rows:?} passed"));
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
    (status, text("status"), text("reason"))
}

#[test]
fn folders_that_are_not_what_they_should_be_fail_with_a_reason() {
    type Change = fn(&Path);
    let cases: [(&str, Change); 10] = [
        ("meta.json: no family", |d| edit(&d.join("meta.json"), |m| m["family"] = Value::Null)),
        ("meta.json: key must be a string", |d| fs::write(d.join("meta.json"), "{7").unwrap()),
        ("meta.json: compare.batch0.mean: unknown field `tol`", |d| {
            edit(&d.join("meta.json"), |m| m["compare"]["batch0.mean"] = json!({"atol": 1.0, "tol": 2.0}));
        }),
        ("family bert computes no such output", |d| {
            edit(&d.join("meta.json"), |m| m["compare"]["batch9.mean"] = json!({"atol": 1.0, "rtol": 0.0}));
        }),
        ("meta.json names nothing to compare", |d| edit(&d.join("meta.json"), |m| m["compare"] = json!({}))),
        ("inputs.json: No such file", |d| fs::remove_file(d.join("inputs.json")).unwrap()),
        ("inputs.json: batch 0: input_ids, attention_mask", |d| {
            edit(&d.join("inputs.json"), |i| i["batches"][0]["attention_mask"] = json!([[1]]));
        }),
        ("inputs.json: batch 0: sequence 0 has no tokens", |d| {
            edit(&d.join("inputs.json"), |i| i["batches"] = json!([{"input_ids": [[5]], "attention_mask": [[0]]}]));
        }),
        ("id 4000000000 at token 0, expected below", |d| {
            edit(&d.join("inputs.json"), |i| i["batches"] = json!([{"input_ids": [[4_000_000_000u32]]}]));
        }),
        ("could not read", |d| fs::remove_file(d.join("config.json")).unwrap()),
    ];
    let mut wrong = Vec::new();
    for (expected, change) in cases {
        let (status, state, reason) = outcome(&changed("bert_relu_no_pooler", change));
        if status != 1 || state != "FAIL" || !reason.contains(expected) {
            wrong.push(format!("{expected}: {status} {state} {reason}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_value_out_of_tolerance_fails_and_a_share_of_them_may_be_allowed() {
    let tight = |fraction: Option<f64>| {
        changed("bert_relu_no_pooler", move |dir| {
            edit(&dir.join("meta.json"), |meta| {
                for (_, tolerance) in meta["compare"].as_object_mut().unwrap() {
                    *tolerance = json!({"atol": 1e-12, "rtol": 0.0});
                }
                meta["may_differ_fraction"] = json!(fraction.unwrap_or(0.0));
            });
        })
    };
    let (status, state, reason) = outcome(&tight(None));
    assert_eq!((status, state.as_str()), (1, "FAIL"));
    assert!(reason.ends_with("values are further away"), "{reason}");
    let (status, _) = rows(&[tight(Some(0.999)).path().to_str().unwrap()]);
    assert_eq!(status, 0);
}

#[test]
fn a_family_that_is_not_built_is_refused_and_a_missing_file_is_skipped() {
    let other = changed("bert_relu_no_pooler", |dir| {
        edit(&dir.join("meta.json"), |meta| meta["family"] = json!("hyena"));
    });
    assert_eq!(outcome(&other), (0, "refused".into(), "family hyena is not built yet".into()));

    let tokenizers = changed("tokenizers", |dir| {
        fs::remove_file(dir.join("byte_bpe.json")).unwrap();
        fs::remove_file(dir.join("spm_bpe.json")).unwrap();
        fs::remove_file(dir.join("spm_unigram.json")).unwrap();
    });
    let (status, state, reason) = outcome(&tokenizers);
    assert_eq!((status, state.as_str()), (0, "skipped"));
    assert!(reason.starts_with("file SHA-256 3a6c1ace"), "{reason}");

    // Named with --files, it is found.
    let (status, rows) = rows(&[tokenizers.path().to_str().unwrap(), "--files", &golden("tokenizers/files")]);
    assert_eq!((status, with(&rows, "ok").len()), (0, rows.len()));
}

#[test]
fn the_table_ends_in_a_summary_and_a_folder_without_cases_is_an_error() {
    let output = offline(&["parity", &golden("st_bert_mean")]).output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("st_bert_mean  embeddings"), "{table}");
    assert!(table.ends_with("passed 2, failed 0, skipped 0, refused 0 (outputs of 1 cases)\n"), "{table}");
    let empty = tempfile::tempdir().unwrap();
    let message = common::error(&["parity", empty.path().to_str().unwrap()]);
    assert!(message.ends_with("a case is a folder with meta.json"), "{message}");
}
