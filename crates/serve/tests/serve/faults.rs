//! What goes wrong inside is the answer of the requests that it meets, and a client that takes nothing holds nobody up.

#[path = "common/faulty.rs"]
mod faulty;

use crate::common::{Live, TEMPLATE, golden, model, options, question, tiny, with};
use faulty::{Fault, Faulty};
use ops::{Cpu, CpuOptions, Precision};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CHAT: &str = "/v1/chat/completions";
const JSON: (&str, &str) = ("content-type", "application/json");

fn text(answer: &Value) -> &Value {
    &answer["choices"][0]["message"]["content"]
}

#[test]
fn a_forward_pass_that_fails_is_a_500_and_the_next_request_is_served() {
    let cpu = Cpu::new(&CpuOptions { threads: Some(2), isa: None, precision: Precision::Exact }).unwrap();
    let (faulty, dir) = (Arc::new(Faulty::new(cpu)), tiny(TEMPLATE));
    let models = vec![model("tiny", dir.path()), model("small", &golden("st_bert_mean"))];
    let live = Live::start(lattice_serve::Options { ops: faulty.clone(), ..options(models) });
    let right = live.ok(CHAT, &question("Hello"));
    for fault in [Fault::Panic, Fault::Error] {
        faulty.break_next(fault);
        let (status, error) = live.error(CHAT, &question("Hello, you"));
        assert_eq!((status, &error["type"]), (500, &"server_error".into()), "{error}");
        assert_eq!(text(&live.ok(CHAT, &question("Hello"))), text(&right));

        // In a stream it is the last event, in the form of the API.
        for (path, body, sign) in [
            (CHAT, question("Hello, you"), "\"type\":\"server_error\""),
            ("/v1/responses", json!({"input": "Hello, you"}), "response.failed"),
            ("/v1/messages", with(question("Hello, you"), json!({"max_tokens": 9})), "\"type\":\"api_error\""),
        ] {
            faulty.break_next(fault);
            let answer = live.post(path, &with(body, json!({"stream": true})));
            assert!(answer.status == 200 && answer.text().contains(sign), "{path} {}", answer.text());
            assert!(!answer.text().contains("[DONE]"));
        }

        // An embedder's is its request's too.
        let embed = json!({"input": "Hello"});
        faulty.break_next(fault);
        assert_eq!(live.error("/v1/embeddings", &embed).0, 500);
        live.ok("/v1/embeddings", &embed);
        live.wait_until_idle();
        assert_eq!(text(&live.ok(CHAT, &question("Hello"))), text(&right));
    }
    assert_eq!(live.metric("lattice_pages_used"), 0.0);
}

#[test]
fn a_client_that_takes_nothing_of_its_answer_is_let_go_and_holds_nobody_up() {
    let dir = tiny(TEMPLATE);
    let mut options = options(vec![model("tiny", dir.path())]);
    (options.engine.parallel, options.max_queue) = (16, 0);
    options.write_timeout = Duration::from_millis(500);
    let live = Live::start(options);
    // More than any buffer between the two takes.
    let much =
        json!({"max_tokens": null, "ignore_eos": true, "n": 16, "logprobs": true, "top_logprobs": 20, "stream": true});
    let mut deaf = live.open("POST", CHAT, &[JSON], with(question("Hello"), much).to_string().as_bytes());
    // Its answer has begun, so it has its places.
    let mut head = [0; 12];
    deaf.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    let start = Instant::now();
    assert_eq!(live.post(CHAT, &question("Hello")).status, 429, "there is no place beside it");
    while live.post(CHAT, &question("Hello")).status == 429 {
        assert!(start.elapsed() < Duration::from_secs(60), "its places are not given back");
        std::thread::sleep(Duration::from_millis(20));
    }
    live.wait_until_idle();
    std::thread::sleep(Duration::from_secs(1));
    let mut rest = Vec::new();
    let _ = deaf.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("[DONE]"), "the connection was closed in the middle");
    live.ok(CHAT, &question("Hello"));
}

#[test]
fn a_connection_that_asks_for_nothing_is_closed() {
    let dir = tiny(TEMPLATE);
    let mut options = options(vec![model("tiny", dir.path())]);
    options.read_timeout = Duration::from_millis(200);
    let live = Live::start(options);
    let mut silent = TcpStream::connect(live.address).unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0, "it is closed");
    // And between requests.
    let mut kept = TcpStream::connect(live.address).unwrap();
    kept.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(kept, "GET /health HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut all = String::new();
    kept.read_to_string(&mut all).unwrap();
    assert!(all.starts_with("HTTP/1.1 200"), "{all}");
}
