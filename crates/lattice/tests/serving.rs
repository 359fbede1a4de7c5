//! `lattice serve` and `lattice batch` as a user types them, on a small model of this repository.

mod common;
use common::{error, golden, lines, offline, run};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

fn model() -> String {
    golden("gguf_qwen3_q8_0/model.gguf")
}

/// A server, and where it listens.
fn serve(port: &str, more: &[&str]) -> (Child, String) {
    let model = model();
    let args = [&["serve", "--port", port, "--model", &model, "--alias", "m=model"][..], more].concat();
    let mut child = offline(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("http://").unwrap_or_else(|| panic!("{line:?}")).to_owned();
    (child, address)
}

fn ask(address: &str, body: &Value) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let body = body.to_string();
    let head = format!("host: {address}\r\nconnection: close\r\ncontent-type: application/json\r\nx-api-key: secret");
    write!(stream, "POST /v1/completions HTTP/1.1\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[cfg(unix)]
fn signal(child: &Child, name: &str) {
    let status = std::process::Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// Exit status and log.
fn wait(mut child: Child) -> (Option<i32>, String) {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < Duration::from_secs(20), "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut log = String::new();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    (child.wait().unwrap().code(), log)
}

#[cfg(unix)]
#[test]
fn a_server_answers_and_ends_in_order_when_it_is_asked_to() {
    for name in ["-TERM", "-INT"] {
        let (child, address) = serve("0", &["--api-key", "secret"]);
        let answer = ask(&address, &json!({"model": "m", "prompt": "Hello secret words", "max_tokens": 4}));
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"model\":\"model\""), "{answer}");
        signal(&child, name);
        let (status, log) = wait(child);
        assert_eq!(status, Some(0), "{name}: {log}");
        assert!(log.contains("/v1/completions") && log.contains("status=200"), "{log}");
        assert!(!log.contains("secret words") && !log.contains("secret\""), "what was said is not in the log: {log}");
    }
}

#[cfg(unix)]
#[test]
fn a_server_that_was_killed_starts_again_on_its_port() {
    let (child, address) = serve("0", &[]);
    assert!(ask(&address, &json!({"prompt": "Hello", "max_tokens": 2})).starts_with("HTTP/1.1 200"));
    signal(&child, "-KILL");
    assert_eq!(wait(child).0, None);
    let port = address.rsplit(':').next().unwrap().to_owned();
    let (child, again) = serve(&port, &[]);
    assert_eq!(again, address);
    assert!(ask(&address, &json!({"prompt": "Hello", "max_tokens": 2})).starts_with("HTTP/1.1 200"));
    signal(&child, "-TERM");
    assert_eq!(wait(child).0, Some(0));
}

#[test]
fn wrong_flags_are_refused_before_it_listens() {
    let model = model();
    for wrong in [
        &["serve", "--alias", "x"][..],
        &["serve", "--tls-cert", "cert.pem"],
        &["serve", "--parallel", "0"],
        &["serve", "--timeout", "0"],
        &["batch", "in.jsonl"],
    ] {
        assert_eq!(run(wrong).0, 2, "{wrong:?}");
    }
    let message = error(&["serve", "--model", &model, "--alias", "gpt=other"]);
    assert_eq!(message, "alias gpt stands for other, which is not served: name it with --model too");
    let message = error(&["serve", "--model", &model, "--grammar", "x"]);
    assert!(message.starts_with("--grammar is not for all requests of a server"), "{message}");
    let message = error(&["serve", "--model", &model, "--port", "0", "--api-key", "a b"]);
    assert!(message.starts_with("API key 0 is empty, or has a character"), "{message}");
}

#[test]
fn a_batch_file_is_answered_line_by_line_and_goes_on_after_a_stop() {
    let (model, dir) = (model(), tempfile::tempdir().unwrap());
    let (input, output) = (dir.path().join("in.jsonl"), dir.path().join("out.jsonl"));
    let line = |n: usize| {
        let body = json!({"prompt": format!("Hello {n}"), "max_tokens": 3, "temperature": 0});
        json!({"custom_id": format!("{n}"), "method": "POST", "url": "/v1/completions", "body": body}).to_string()
            + "\n"
    };
    fs::write(&input, (0..5).map(line).collect::<String>()).unwrap();
    let args = ["batch", input.to_str().unwrap(), output.to_str().unwrap(), "--model", &model, "--json"];
    let (status, summary, stderr) = run(&args);
    assert_eq!(status, 0, "{stderr}");
    let summary: Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(
        (&summary["answered"], &summary["failed"], &summary["completion_tokens"]),
        (&5.into(), &0.into(), &15.into())
    );
    let text = fs::read_to_string(&output).unwrap();
    assert_eq!(lines(&text).len(), 5);
    fs::write(&output, &text[..text.len() - 30]).unwrap();
    let (_, summary, stderr) = run(&args);
    assert!(stderr.contains("4 of 5 lines have their answers already"), "{stderr}");
    assert_eq!(serde_json::from_str::<Value>(&summary).unwrap()["answered"], 1);
    assert_eq!(lines(&fs::read_to_string(&output).unwrap()).len(), 5);
}
