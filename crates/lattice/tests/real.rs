//! The first commands of the README, with the real models, which the hub fetches if they are not in the user's cache.

use std::process::Command;

#[test]
fn the_two_cats_are_close_and_the_rates_are_not() {
    if std::env::var_os("LATTICE_OFFLINE").is_some_and(|v| !v.is_empty() && v != "0") {
        eprintln!("skipped: LATTICE_OFFLINE is set, so all-minilm-l6-v2 is not fetched");
        return;
    }
    let texts = ["A cat sits on the mat", "A feline rests on a rug", "Interest rates rose again"];
    let output = Command::new(env!("CARGO_BIN_EXE_lattice"))
        .args(["embed", "--similarity", "--json"])
        .args(texts)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let matrix: Vec<Vec<f32>> = serde_json::from_value(object["similarity"].clone()).unwrap();
    assert!(matrix[0][1] > 0.5 && matrix[0][2] < 0.1 && matrix[1][2] < 0.1, "{matrix:?}");
}

#[test]
fn the_default_model_answers() {
    if std::env::var_os("LATTICE_OFFLINE").is_some_and(|v| !v.is_empty() && v != "0") {
        eprintln!("skipped: LATTICE_OFFLINE is set, so smollm2-135m-instruct is not fetched");
        return;
    }
    let answer = |precision| {
        let output = Command::new(env!("CARGO_BIN_EXE_lattice"))
            .args(["chat", "-p", "Why is the sky blue?", "--temperature", "0", "--max-tokens", "16"])
            .args(["--precision", precision])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.ends_with('\n') && !text.contains('<'), "{text:?}");
        text
    };
    let (exact, default) = (answer("exact"), answer("default"));
    assert!(exact.to_lowercase().contains("light"), "{exact:?}");
    // Rounding makes it another answer in the end, but it begins the same.
    let same = exact.split(' ').zip(default.split(' ')).take_while(|(a, b)| a == b).count();
    assert!(same >= 8, "{exact:?} and {default:?}");
}
