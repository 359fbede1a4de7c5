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

/// Sends a request that streams, hears `pieces` of it or all, and gives what came.
fn stream(address: &str, body: &Value, pieces: Option<usize>) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let body = body.to_string();
    let head = format!("host: {address}\r\nconnection: close\r\ncontent-type: application/json");
    write!(stream, "POST /v1/completions HTTP/1.1\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let (mut reader, mut text, mut heard) = (BufReader::new(stream), String::new(), 0);
    while pieces.is_none_or(|most| heard < most) && reader.read_line(&mut text).unwrap() > 0 {
        heard += usize::from(text.lines().next_back().is_some_and(|line| line.starts_with("data: ")));
    }
    text
}

/// A number of `/metrics`.
fn metric(address: &str, name: &str) -> f64 {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
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

/// Thirty-two at once: short and long prompts, some that begin alike, some that leave at once, in the middle or in the
/// queue; more than there are places for.
#[cfg(unix)]
#[test]
fn many_streams_at_once_are_all_served_or_told_to_come_again() {
    let (child, address) = serve("0", &["--parallel", "4", "--max-queue", "20", "--step-tokens", "32"]);
    let client = |n: usize| {
        let word = if n.is_multiple_of(4) { "again".to_owned() } else { format!("word{n}") };
        let prompt = format!("{word} ").repeat(if n.is_multiple_of(2) { 40 } else { 3 });
        let body = json!({"prompt": prompt, "max_tokens": 40, "ignore_eos": true, "stream": true, "seed": n});
        let pieces = match n % 8 {
            1 => Some(0),
            3 => Some(3),
            _ => None,
        };
        let mut tries = 0;
        loop {
            let text = stream(&address, &body, pieces);
            match text.lines().next() {
                Some(head) if head.starts_with("HTTP/1.1 429") => {
                    assert!(text.to_lowercase().contains("retry-after: "), "{text}");
                    tries += 1;
                    assert!(tries < 1000, "it is never served");
                    std::thread::sleep(Duration::from_millis(20));
                }
                Some(head) => {
                    assert!(head.starts_with("HTTP/1.1 200"), "{text}");
                    let whole = text.contains("data: [DONE]") && text.contains("\"finish_reason\":\"length\"");
                    assert!(pieces.is_some() || whole, "{text}");
                    return;
                }
                None => return assert_eq!(pieces, Some(0), "{text}"),
            }
        }
    };
    std::thread::scope(|scope| (0..32).for_each(|n| _ = scope.spawn(move || client(n))));
    let start = Instant::now();
    let left = ["lattice_sequences_running{", "lattice_sequences_waiting{", "lattice_pages_used{"];
    while left.iter().any(|name| metric(&address, name) > 0.0) {
        assert!(start.elapsed() < Duration::from_secs(10), "something is left over");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(ask(&address, &json!({"prompt": "Hello", "max_tokens": 2})).starts_with("HTTP/1.1 200"));
    signal(&child, "-TERM");
    let (status, log) = wait(child);
    assert!(status == Some(0) && !log.contains("panicked") && !log.contains("status=5"), "{log}");
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
