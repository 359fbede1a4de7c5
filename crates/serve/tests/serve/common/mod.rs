//! A live server on a free port, and a client that shows what goes over the wire.

#![allow(unreachable_pub)] // the other files use it

use hub::Hub;
use inference::EngineOptions;
use lattice_serve::{ModelSpec, Options, ServeError, Server};
use ops::{Cpu, CpuOptions, KvFormat, Precision};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens").join(name)
}

/// A template of the usual form.
pub const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// A language model of a few layers in a folder of its own, with a chat template. Its text makes no sense.
pub fn tiny(template: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let copy = |from: &str, to: &str| _ = std::fs::copy(golden(from), dir.path().join(to)).unwrap();
    copy("tokenizers/files/byte_bpe/tokenizer.json", "tokenizer.json");
    let config = std::fs::read(golden("gguf_qwen3_q8_0/config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&config).unwrap();
    config["architectures"] = json!(["Qwen3ForCausalLM"]);
    std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    let file = weights::Checkpoint::open(golden("gguf_qwen3_q8_0/model.gguf")).unwrap();
    let view = file.as_hugging_face().unwrap();
    let float = |t: &weights::Tensor| weights::Tensor::from_f32(t.name(), t.shape().to_vec(), t.to_f32().unwrap());
    let tensors: Vec<weights::Tensor> = view.checkpoint.tensors().map(float).collect();
    weights::write_safetensors(dir.path().join("model.safetensors"), &tensors).unwrap();
    let config = json!({"chat_template": template, "eos_token": "<|im_end|>", "tokenizer_class": "Qwen2Tokenizer"});
    std::fs::write(dir.path().join("tokenizer_config.json"), config.to_string()).unwrap();
    dir
}

/// A model of a folder or a file, under a name.
pub fn model(name: &str, path: &Path) -> ModelSpec {
    let spec = if path.is_dir() { format!("{}/", path.display()) } else { path.display().to_string() };
    let located = Hub::from_env().unwrap().resolve(&spec, &mut ()).unwrap();
    ModelSpec { name: name.into(), aliases: Vec::new(), located }
}

/// The default language model, unless these tests run offline.
pub fn smollm2() -> Option<ModelSpec> {
    if std::env::var_os("LATTICE_OFFLINE").is_some_and(|v| !v.is_empty() && v != "0") {
        eprintln!("skipped: LATTICE_OFFLINE is set, so smollm2-135m-instruct is not fetched");
        return None;
    }
    let name = "smollm2-135m-instruct";
    Some(ModelSpec::new(name, Hub::from_env().unwrap().resolve(name, &mut ()).unwrap()))
}

/// The usual options of a test: exact arithmetic, few places.
pub fn options(models: Vec<ModelSpec>) -> Options {
    let cpu = CpuOptions { threads: Some(2), isa: None, precision: Precision::Exact };
    let engine = EngineOptions { parallel: 4, kv: KvFormat::F32, ..EngineOptions::default() };
    Options { port: 0, engine, ..Options::new(Arc::new(Cpu::new(&cpu).unwrap()), models) }
}

/// A running server; dropping it ends it.
pub struct Live {
    pub address: SocketAddr,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
    dirs: Vec<tempfile::TempDir>,
}

impl Live {
    /// Starts a server and waits until it is ready.
    pub fn start(options: Options) -> Live {
        let live = Live::start_unready(options);
        let start = Instant::now();
        while !live.is_ready() {
            assert!(start.elapsed() < Duration::from_secs(60), "the server does not get ready");
            std::thread::sleep(Duration::from_millis(10));
        }
        live
    }

    fn is_ready(&self) -> bool {
        std::thread::sleep(Duration::from_millis(100));
        assert!(!self.thread.as_ref().unwrap().is_finished(), "the server ended: see what its thread says");
        self.get("/health").status == 200
    }

    pub fn start_unready(options: Options) -> Live {
        let server = Server::bind(options).unwrap();
        let (address, end) = (server.address(), Arc::new(AtomicBool::new(false)));
        let ended = end.clone();
        let thread = std::thread::spawn(move || server.block(|| ended.load(Ordering::Relaxed)));
        Live { address, end, thread: Some(thread), dirs: Vec::new() }
    }

    /// A server of the tiny model `tiny`.
    pub fn tiny() -> Live {
        let dir = tiny(TEMPLATE);
        let mut live = Live::start(options(vec![model("tiny", dir.path())]));
        live.dirs.push(dir);
        live
    }

    /// Asks it to end; what its thread said.
    pub fn end(mut self) -> Result<(), ServeError> {
        self.ask_to_end();
        self.thread.take().unwrap().join().unwrap()
    }

    pub fn ask_to_end(&self) {
        self.end.store(true, Ordering::Relaxed);
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[("content-type", "application/json")], body.to_string().as_bytes())
    }

    /// The JSON of an answer that must be a success.
    pub fn ok(&self, path: &str, body: &Value) -> Value {
        let answer = self.post(path, body);
        assert_eq!(answer.status, 200, "{path} {body}: {}", answer.text());
        answer.json()
    }

    /// Status and error of a request that must fail.
    pub fn error(&self, path: &str, body: &Value) -> (u16, Value) {
        let answer = self.post(path, body);
        let json = answer.json();
        assert!(json["error"].is_object(), "{path} {body}: {json}");
        (answer.status, json["error"].clone())
    }

    /// The data of a stream's events, `[DONE]` aside, which must come last.
    pub fn stream(&self, path: &str, body: &Value) -> Vec<Value> {
        let mut body = body.clone();
        body["stream"] = true.into();
        let answer = self.post(path, &body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let text = answer.text();
        let mut data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(data.pop(), Some("[DONE]"), "{text}");
        data.into_iter().map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    /// An open connection that has sent a request.
    pub fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.address);
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !headers.iter().any(|(name, _)| *name == "content-length") {
            head += &format!("content-length: {}\r\n", body.len());
        }
        stream.write_all((head + "\r\n").as_bytes()).unwrap();
        let _ = stream.write_all(body); // refused early: the answer says why
        stream
    }

    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        Answer::read(self.open(method, path, headers, body))
    }

    /// A number of `/metrics`.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").text();
        let value = |line: &str| line.split_whitespace().next_back().and_then(|v| v.parse::<f64>().ok());
        let of = |line: &&str| line.split(['{', ' ']).next() == Some(name);
        text.lines().filter(of).filter_map(value).sum()
    }

    /// Waits until nothing runs and nothing waits.
    pub fn wait_until_idle(&self) {
        let start = Instant::now();
        while self.metric("lattice_sequences_running") + self.metric("lattice_sequences_waiting") > 0.0 {
            assert!(start.elapsed() < Duration::from_secs(5), "sequences are left over");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.ask_to_end();
        if let Some(thread) = self.thread.take() {
            let result = thread.join();
            if std::thread::panicking() {
                eprintln!("the server: {result:?}");
            } else {
                result.unwrap().unwrap();
            }
        }
    }
}

/// An answer.
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn read(stream: TcpStream) -> Answer {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let mut body = Vec::new();
        if headers.get("transfer-encoding").is_some_and(|e| e == "chunked") {
            loop {
                let mut size = String::new();
                reader.read_line(&mut size).unwrap();
                let size = usize::from_str_radix(size.trim(), 16).unwrap();
                let mut chunk = vec![0; size + 2];
                reader.read_exact(&mut chunk).unwrap();
                if size == 0 {
                    break;
                }
                body.extend(&chunk[..size]);
            }
        } else {
            let _ = reader.read_to_end(&mut body);
        }
        Answer { status, headers, body }
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }
}

/// A conversation of one question, greedy and short.
pub fn question(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 12})
}

/// Two objects as one.
pub fn with(mut a: Value, b: Value) -> Value {
    for (key, value) in b.as_object().unwrap() {
        a[key] = value.clone();
    }
    a
}
