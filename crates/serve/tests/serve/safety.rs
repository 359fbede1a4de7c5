//! What a server that strangers reach must stand: keys, pages, limits, hostile bodies, clients that go away, its end.

use crate::common::{Answer, Live, TEMPLATE, model, options, question, smollm2, tiny, with};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

const CHAT: &str = "/v1/chat/completions";
const JSON: (&str, &str) = ("content-type", "application/json");

/// A server of the tiny model with other options.
fn live_with(change: impl FnOnce(&mut lattice_serve::Options)) -> (Live, tempfile::TempDir) {
    let dir = tiny(TEMPLATE);
    let mut options = options(vec![model("tiny", dir.path())]);
    change(&mut options);
    (Live::start(options), dir)
}

/// A text that is made until the context is full.
fn endless() -> Value {
    with(question("Hello"), json!({"max_tokens": null, "ignore_eos": true}))
}

#[test]
fn a_key_is_needed_but_for_health_and_preflights() {
    let (live, _dir) = live_with(|options| options.keys = vec!["first".into(), "second".into()]);
    let body = question("Hello").to_string();
    let ask = |headers: &[(&str, &str)]| live.send("POST", CHAT, headers, body.as_bytes());
    let none = ask(&[JSON]);
    assert_eq!((none.status, none.json()["error"]["code"].clone()), (401, "invalid_api_key".into()));
    assert_eq!(none.headers["www-authenticate"], "Bearer");
    assert_eq!(ask(&[JSON, ("authorization", "Bearer firs")]).status, 401);
    assert_eq!(ask(&[JSON, ("authorization", "Bearer second")]).status, 200);
    assert_eq!(ask(&[JSON, ("x-api-key", "first")]).status, 200);
    for path in ["/v1/models", "/metrics", "/v1/nothing"] {
        assert_eq!(live.get(path).status, 401, "{path}");
    }
    assert_eq!(live.get("/health").status, 200);

    let preflight = [
        ("origin", "https://app.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization, content-type, x-stainless-os"),
    ];
    let answer = live.send("OPTIONS", CHAT, &preflight, b"");
    assert!((200..300).contains(&answer.status), "{}", answer.status);
    let allowed = &answer.headers["access-control-allow-headers"];
    assert!(["authorization", "content-type", "x-stainless-os"].iter().all(|h| allowed.contains(h)), "{allowed}");
    assert_eq!(answer.headers["access-control-allow-origin"], "*");
    let refused = ask(&[JSON, ("origin", "https://app.example")]);
    assert_eq!((refused.status, refused.headers["access-control-allow-origin"].as_str()), (401, "*"));
}

#[test]
fn without_a_key_only_pages_of_this_machine_may_ask() {
    let (live, _dir) = live_with(|_| {});
    let origin = |origin| {
        let answer = live.send("POST", CHAT, &[JSON, ("origin", origin)], question("Hello").to_string().as_bytes());
        answer.headers.get("access-control-allow-origin").cloned()
    };
    assert_eq!(origin("http://localhost:5173"), Some("http://localhost:5173".into()));
    assert_eq!(origin("https://evil.example"), None);
    // And a page cannot send JSON under another name.
    let answer = live.send("POST", CHAT, &[("content-type", "text/plain")], question("Hello").to_string().as_bytes());
    assert_eq!((answer.status, answer.json()["error"]["type"].clone()), (415, "invalid_request_error".into()));
}

#[test]
fn hostile_bodies_are_refused_at_once_and_the_next_request_is_served() {
    let (live, _dir) = live_with(|options| options.max_body = 1 << 20);
    let brackets = "[".repeat(60_000);
    let nested = format!("{brackets}{}", "]".repeat(60_000));
    let bodies: Vec<(String, u16)> = vec![
        (brackets.clone(), 400),
        (nested.clone(), 400),
        (format!("{{\"messages\": {nested}}}"), 400),
        (format!("{{\"messages\": [{{\"role\": \"user\", \"content\": {nested}}}]}}"), 400),
        (format!("{{\"x\": {}}}", "{\"a\":".repeat(60_000)), 400),
        ("null".into(), 400),
        (String::new(), 400),
        ("{\"messages\"".into(), 400),
        ("\u{0}\u{1}".into(), 400),
        (format!("{{\"{}\": 1}}", "k".repeat(100_000)), 400),
        (question(&"x".repeat(2 << 20)).to_string(), 413),
        (with(question("a"), json!({"n": u64::MAX})).to_string(), 400),
        (with(question("a"), json!({"max_tokens": 1e300})).to_string(), 400),
        (with(question("a"), json!({"stop": vec!["x"; 100_000]})).to_string(), 400),
        (with(question("a"), json!({"logit_bias": {"99999999999999999999": 1}})).to_string(), 400),
        (with(question("a"), json!({"temperature": 1e39})).to_string(), 400),
        (json!({"messages": vec![json!({"role": "user", "content": "a"}); 10_000]}).to_string(), 400),
    ];
    for (body, status) in bodies {
        let start = Instant::now();
        let answer = live.send("POST", CHAT, &[JSON], body.as_bytes());
        assert_eq!(answer.status, status, "{:.80}: {:.300}", body, answer.text());
        assert!(answer.json()["error"]["message"].is_string() && answer.body.len() < 2000, "{:.80}", body);
        assert!(start.elapsed() < Duration::from_secs(1), "{:.80}: {:?}", body, start.elapsed());
    }
    let answer = live.send("POST", CHAT, &[JSON], b"\xff\xfe{}");
    assert_eq!(answer.status, 400);
    let answer = live.send("POST", CHAT, &[JSON, ("content-length", "999999999999")], b"");
    assert_eq!(answer.status, 413);
    live.ok(CHAT, &question("Hello"));
}

#[test]
fn a_client_that_goes_away_frees_everything_wherever_its_text_is() {
    // One whose texts take long.
    let Some(model) = smollm2() else { return };
    let mut options = options(vec![model]);
    options.engine.parallel = 1;
    options.engine.step_tokens = 8;
    options.engine.context = Some(2048);
    let live = Live::start(options);
    let long = with(question("Hello"), json!({"max_tokens": 1000, "ignore_eos": true}));
    let body = with(long.clone(), json!({"stream": true})).to_string();
    // In the middle of its stream.
    let mut first = live.open("POST", CHAT, &[JSON], body.as_bytes());
    let mut some = [0; 400];
    first.read_exact(&mut some).unwrap();
    // In the queue behind it, streamed and not.
    let second = live.open("POST", CHAT, &[JSON], body.as_bytes());
    let third = live.open("POST", CHAT, &[JSON], long.to_string().as_bytes());
    let start = Instant::now();
    while live.metric("lattice_sequences_waiting") < 2.0 {
        assert!(start.elapsed() < Duration::from_secs(10), "they are not in the queue");
    }
    drop((second, third, first));
    live.wait_until_idle();
    // While its prompt goes in.
    let prompt = with(question(&"word ".repeat(1000)), json!({"stream": true})).to_string();
    let fourth = live.open("POST", CHAT, &[JSON], prompt.as_bytes());
    while live.metric("lattice_sequences_running") < 1.0 {
        assert!(start.elapsed() < Duration::from_secs(20), "it does not begin");
    }
    drop(fourth);
    live.wait_until_idle();
    // All places and pages are there again.
    assert_eq!((live.metric("lattice_cancelled_total"), live.metric("lattice_pages_used")), (4.0, 0.0));
    live.ok(CHAT, &question("Hello"));
}

#[test]
fn a_full_queue_is_a_429_that_says_when_to_come_again() {
    let (live, _dir) = live_with(|options| {
        options.engine.parallel = 1;
        options.max_queue = 1;
    });
    let body = endless().to_string();
    let held: Vec<_> = (0..2).map(|_| live.open("POST", CHAT, &[JSON], body.as_bytes())).collect();
    let start = Instant::now();
    while live.metric("lattice_sequences_running") + live.metric("lattice_sequences_waiting") < 2.0 {
        assert!(start.elapsed() < Duration::from_secs(5));
    }
    let refused = live.post(CHAT, &question("Hello"));
    assert_eq!((refused.status, refused.json()["error"]["code"].clone()), (429, "queue_full".into()));
    assert!(refused.headers["retry-after"].parse::<u64>().unwrap() >= 1);
    for stream in held {
        assert_eq!(Answer::read(stream).status, 200);
    }
    live.ok(CHAT, &question("Hello"));
    let (status, error) = live.error(CHAT, &with(question("Hello"), json!({"n": 3})));
    assert_eq!((status, &error["param"]), (400, &"n".into()));
}

#[test]
fn a_request_that_takes_too_long_ends_and_frees_its_place() {
    let (live, _dir) = live_with(|options| options.timeout = Duration::from_millis(1));
    let answer = live.post(CHAT, &endless());
    assert_eq!((answer.status, answer.json()["error"]["code"].clone()), (504, "timeout".into()));
    let answer = live.post(CHAT, &with(endless(), json!({"stream": true})));
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("\"code\":\"timeout\"") && !answer.text().contains("[DONE]"));
    live.wait_until_idle();
}

#[test]
fn a_body_that_does_not_come_is_given_up() {
    let (live, _dir) = live_with(|options| options.read_timeout = Duration::from_millis(200));
    let start = Instant::now();
    let mut slow = live.open("POST", CHAT, &[JSON, ("content-length", "100")], b"{\"mess");
    let mut text = String::new();
    let _ = slow.read_to_string(&mut text);
    assert!(text.starts_with("HTTP/1.1 408"), "{text}");
    // A head that never ends.
    let mut slow = std::net::TcpStream::connect(live.address).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    slow.write_all(b"POST /v1/chat/completions HTTP/1.1\r\nhost:").unwrap();
    let mut text = String::new();
    let _ = slow.read_to_string(&mut text);
    assert!(start.elapsed() < Duration::from_secs(4), "the connection was closed");
    live.ok(CHAT, &question("Hello"));
}

#[test]
fn what_runs_may_finish_when_the_server_is_asked_to_end() {
    let (live, _dir) = live_with(|_| {});
    let mut running = live.open("POST", CHAT, &[JSON], with(endless(), json!({"stream": true})).to_string().as_bytes());
    let mut some = [0; 300];
    running.read_exact(&mut some).unwrap();
    let address = live.address;
    live.ask_to_end();
    let mut rest = String::new();
    running.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("[DONE]"), "the answer came to its end");
    live.end().unwrap();
    assert!(std::net::TcpStream::connect(address).is_err(), "nobody listens any more");
}

#[test]
fn an_answer_that_takes_longer_than_the_drain_is_cut() {
    let (live, _dir) = live_with(|options| {
        options.drain = Duration::from_millis(1);
        options.engine.step_tokens = 1;
    });
    let body = with(endless(), json!({"stream": true, "n": 4})).to_string();
    let mut running = live.open("POST", CHAT, &[JSON], body.as_bytes());
    let mut some = [0; 100];
    running.read_exact(&mut some).unwrap();
    let start = Instant::now();
    live.end().unwrap();
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn names_that_clash_and_keys_that_cannot_be_sent_keep_it_from_starting() {
    let dir = tiny(TEMPLATE);
    let fails = |change: &dyn Fn(&mut lattice_serve::Options)| {
        let mut options = options(vec![model("tiny", dir.path())]);
        change(&mut options);
        lattice_serve::Server::bind(options).err().expect("it is refused").to_string()
    };
    assert!(fails(&|o| o.models.clear()).starts_with("no model was named"));
    assert!(fails(&|o| o.models.push(o.models[0].clone())).starts_with("two models are named tiny"));
    assert!(fails(&|o| o.keys = vec!["a".into(), "b c".into()]).starts_with("API key 1 is empty, or has"));
    assert!(fails(&|o| o.origins = vec!["example.org".into()]).starts_with("example.org is no origin"));
    assert!(fails(&|o| o.host = "256.0.0.1".into()).starts_with("cannot listen on 256.0.0.1:0"));
}

#[test]
fn what_is_watched_is_counted() {
    let (live, _dir) = live_with(|_| {});
    live.ok(CHAT, &question("Hello"));
    live.error(CHAT, &json!({}));
    let text = live.get("/metrics").text();
    for line in [
        "lattice_requests_total{path=\"/v1/chat/completions\",status=\"200\"} 1",
        "lattice_requests_total{path=\"/v1/chat/completions\",status=\"400\"} 1",
        "lattice_completion_tokens_total 12",
        "lattice_time_to_first_token_seconds_count 1",
        "lattice_time_per_token_seconds_count 1",
        "lattice_model_loaded{model=\"tiny\"} 1",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}
