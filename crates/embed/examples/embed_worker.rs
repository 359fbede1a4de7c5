//! Ours as a worker of `bench/embed`: loads a model once, then embeds what each line of its input asks for and answers
//! with the seconds it took. `bench/harness.py` describes the protocol, `bench/embed/peer.py` is the same for the peers.
//!
//! ```text
//! embed_worker --model DIR --threads N [--precision fast]
//! {"texts": ["…"], "reps": 3, "vectors": "FILE"}      FILE may be missing; it gets float32 [texts, dimensions]
//! {"seconds": [0.1, 0.1, 0.1]}
//! ```

use lattice_embed::{EmbedOptions, Embedder, OpenOptions};
use ops::{Cpu, CpuOptions, Precision};
use serde_json::{Value, json};
use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let (model, threads, precision) = match words[..] {
        ["--model", model, "--threads", threads] => (model, threads, Precision::Default),
        ["--model", model, "--threads", threads, "--precision", "fast"] => (model, threads, Precision::Fast),
        _ => return Err("usage: embed_worker --model DIR --threads N [--precision fast]".into()),
    };
    let cpu = Cpu::new(&CpuOptions { threads: Some(threads.parse()?), precision, ..CpuOptions::default() })?;
    let embedder = Embedder::from_dir(model, &OpenOptions { ops: Some(Arc::new(cpu)), ..OpenOptions::default() })?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", json!({"ready": "lattice", "versions": {"lattice": env!("CARGO_PKG_VERSION")}}))?;
    for line in std::io::stdin().lock().lines() {
        let answer = answer(&embedder, &line?).unwrap_or_else(|e| json!({"error": e.to_string()}));
        writeln!(out, "{answer}")?;
    }
    Ok(())
}

/// Embeds the texts of one request as often as it asks.
fn answer(embedder: &Embedder, line: &str) -> Result<Value, Box<dyn Error>> {
    let request: Value = serde_json::from_str(line)?;
    let texts = request["texts"].as_array().ok_or("texts: expected a list")?;
    let texts = texts.iter().map(Value::as_str).collect::<Option<Vec<_>>>().ok_or("texts: expected strings")?;
    let reps = request["reps"].as_u64().ok_or("reps: expected a count")?;
    let options = EmbedOptions { truncate: true, ..EmbedOptions::default() };
    let (mut seconds, mut embeddings) = (Vec::new(), Vec::new());
    for _ in 0..reps {
        let start = Instant::now();
        embeddings = embedder.embed(&texts, &options)?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    if let Some(file) = request["vectors"].as_str() {
        let bytes: Vec<u8> = embeddings.iter().flat_map(|e| &e.vector).flat_map(|x| x.to_le_bytes()).collect();
        std::fs::write(file, bytes)?;
    }
    Ok(json!({ "seconds": seconds }))
}
