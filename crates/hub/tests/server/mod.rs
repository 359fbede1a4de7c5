//! A Hub of our own on a local port: the two routes, ranges and validators, and faults on demand.

use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The commit that `main` is.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What happens to one request instead of a plain answer.
#[derive(Clone)]
pub(crate) enum Fault {
    /// The body ends after so many bytes.
    BreakAfter(usize),
    /// One bit is another.
    Corrupt,
    /// So many bytes of the body come, then nothing for a long time.
    StallAfter(usize),
    /// The connection is taken and nothing is said.
    Mute,
    /// Off to another address, with headers.
    Redirect(String, Vec<(&'static str, String)>),
    /// A status, with headers.
    Status(u16, Vec<(&'static str, String)>),
    /// Ranges are ignored.
    NoRange,
    /// Of a range, the part that begins so many bytes earlier comes.
    WrongPart(usize),
    /// The validator has changed: the file is a new one.
    NewEtag,
    /// The body comes in pieces, each after a pause.
    Slow(Duration),
}

/// A request that came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub path: String,
    pub headers: HashMap<String, String>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<String, Vec<u8>>,
    listing: Option<String>,
    faults: HashMap<String, VecDeque<Fault>>,
    log: Vec<Request>,
}

/// The server; it lives as long as the test's process.
#[derive(Clone)]
pub(crate) struct Server {
    pub url: String,
    state: Arc<Mutex<State>>,
}

impl Server {
    /// A server with the files of one repository, whatever its name.
    pub(crate) fn start(files: &[(&str, &[u8])]) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let files = files.iter().map(|(n, b)| ((*n).to_owned(), b.to_vec())).collect();
        let state = Arc::new(Mutex::new(State { files, ..State::default() }));
        let server = Server { url, state };
        let shared = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = shared.clone();
                std::thread::spawn(move || server.answer(stream));
            }
        });
        server
    }

    /// The next request whose path ends in `suffix` meets `fault`; several queue up.
    pub(crate) fn fault(&self, suffix: &str, fault: Fault) {
        self.state.lock().unwrap().faults.entry(suffix.to_owned()).or_default().push_back(fault);
    }

    /// Answers listings with this text.
    pub(crate) fn set_listing(&self, text: &str) {
        self.state.lock().unwrap().listing = Some(text.to_owned());
    }

    /// What came so far.
    pub(crate) fn log(&self) -> Vec<Request> {
        self.state.lock().unwrap().log.clone()
    }

    /// The requests for paths that end in `suffix`.
    pub(crate) fn requests(&self, suffix: &str) -> Vec<Request> {
        self.log().into_iter().filter(|r| r.path.ends_with(suffix)).collect()
    }

    fn answer(&self, mut stream: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let target = line.split(' ').nth(1)?.to_owned();
        let mut headers = HashMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let path = target.split('?').next()?.to_owned();
        let (fault, body) = {
            let mut state = self.state.lock().unwrap();
            state.log.push(Request { path: path.clone(), headers: headers.clone() });
            let key = state.faults.keys().find(|k| path.ends_with(k.as_str())).cloned();
            let fault = key.and_then(|k| state.faults.get_mut(&k)?.pop_front());
            (fault, state.body(&path))
        };
        match &fault {
            Some(Fault::Mute) => {
                std::thread::sleep(Duration::from_secs(20));
                return Some(());
            }
            Some(Fault::Redirect(to, extra)) => {
                let mut head = format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\n");
                extra.iter().for_each(|(n, v)| write!(head, "{n}: {v}\r\n").unwrap());
                return stream
                    .write_all(format!("{head}Content-Length: 0\r\nConnection: close\r\n\r\n").as_bytes())
                    .ok();
            }
            Some(Fault::Status(code, extra)) => {
                let mut head = format!("HTTP/1.1 {code} Said So\r\n");
                extra.iter().for_each(|(n, v)| write!(head, "{n}: {v}\r\n").unwrap());
                return stream
                    .write_all(format!("{head}Content-Length: 0\r\nConnection: close\r\n\r\n").as_bytes())
                    .ok();
            }
            _ => {}
        }
        let Some(mut body) = body else {
            return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").ok();
        };
        let new = if matches!(fault, Some(Fault::NewEtag)) { "new-" } else { "" };
        let etag = format!("\"{new}{}\"", &sha256(&body)[..16]);
        let total = body.len();
        let start = headers
            .get("range")
            .filter(|_| headers.get("if-range").is_none_or(|e| *e == etag))
            .filter(|_| !matches!(fault, Some(Fault::NoRange)))
            .and_then(|r| r.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
        if matches!(fault, Some(Fault::Corrupt)) {
            body[total / 2] ^= 1;
        }
        let start = match fault {
            Some(Fault::WrongPart(earlier)) => start.map(|s| s - earlier),
            _ => start,
        };
        let mut head = match start {
            Some(start) if start < total => {
                body.drain(..start);
                format!("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {start}-{}/{total}\r\n", total - 1)
            }
            Some(_) => {
                body.clear();
                format!("HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */{total}\r\n")
            }
            None => "HTTP/1.1 200 OK\r\n".to_owned(),
        };
        write!(head, "ETag: {etag}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len()).unwrap();
        stream.write_all(head.as_bytes()).ok()?;
        match fault {
            Some(Fault::BreakAfter(n)) => stream.write_all(&body[..n.min(body.len())]).ok()?,
            Some(Fault::StallAfter(n)) => {
                stream.write_all(&body[..n.min(body.len())]).ok()?;
                std::thread::sleep(Duration::from_secs(20));
            }
            Some(Fault::Slow(pause)) => {
                for piece in body.chunks(body.len() / 4 + 1) {
                    std::thread::sleep(pause);
                    stream.write_all(piece).ok()?;
                }
            }
            _ => stream.write_all(&body).ok()?,
        }
        Some(())
    }
}

impl State {
    fn body(&self, path: &str) -> Option<Vec<u8>> {
        if path.starts_with("/api/models/") {
            return Some(self.listing.clone().unwrap_or_else(|| self.list()).into_bytes());
        }
        let name = match path.split_once("/resolve/") {
            Some((_, rest)) => rest.split_once('/')?.1,
            None => path.strip_prefix("/cdn/")?,
        };
        self.files.get(name).cloned()
    }

    fn list(&self) -> String {
        let siblings: Vec<String> = self
            .files
            .iter()
            .map(|(name, bytes)| {
                // As on the Hub, large files are LFS and have a checksum.
                let lfs = if name.ends_with(".safetensors") || name.ends_with(".gguf") {
                    format!(
                        r#", "lfs": {{"sha256": "{}", "size": {}, "pointerSize": 135}}"#,
                        sha256(bytes),
                        bytes.len()
                    )
                } else {
                    String::new()
                };
                format!(r#"{{"rfilename": "{name}", "size": {}{lfs}}}"#, bytes.len())
            })
            .collect();
        format!(r#"{{"id": "org/name", "sha": "{COMMIT}", "siblings": [{}]}}"#, siblings.join(", "))
    }
}

/// SHA-256 in lower-case hex.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut s, b| {
        write!(s, "{b:02x}").unwrap();
        s
    })
}
