//! Runs the built command.

#![allow(dead_code, unreachable_pub, missing_docs)] // each test file uses its own part

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A golden case of this repository.
pub fn golden(name: &str) -> String {
    root().join("goldens").join(name).to_str().unwrap().to_owned()
}

/// The command with an empty cache and no network: what these tests need lies in the repository.
pub fn offline(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lattice"));
    let cache = std::env::temp_dir().join("lattice-tests-no-cache");
    command.args(args).env("LATTICE_MODEL_CACHE", cache).env("LATTICE_OFFLINE", "1").stdin(Stdio::null());
    command
}

/// Exit status, stdout and stderr.
pub fn run(args: &[&str]) -> (i32, String, String) {
    finish(offline(args).output().unwrap())
}

/// The same with something on stdin.
pub fn run_with(args: &[&str], stdin: &[u8]) -> (i32, String, String) {
    let mut command = offline(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(stdin).unwrap();
    finish(child.wait_with_output().unwrap())
}

pub fn finish(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().expect("an exit status"), text(output.stdout), text(output.stderr))
}

/// Stdout of a run that succeeds.
pub fn stdout(args: &[&str]) -> String {
    let (status, stdout, stderr) = run(args);
    assert_eq!(status, 0, "{args:?}: {stderr}");
    stdout
}

/// The error of a run that fails.
pub fn error(args: &[&str]) -> String {
    let (status, stdout, stderr) = run(args);
    assert_eq!((status, stdout.as_str()), (1, ""), "{args:?}: {stderr}");
    let message = stderr.lines().skip_while(|line| !line.starts_with("error: ")).collect::<Vec<_>>().join("\n");
    message.strip_prefix("error: ").unwrap_or_else(|| panic!("{args:?}: {stderr}")).to_owned()
}

/// Each line as JSON.
pub fn lines(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// A row of numbers.
pub fn floats(value: &serde_json::Value) -> Vec<f32> {
    serde_json::from_value(value.clone()).unwrap()
}
