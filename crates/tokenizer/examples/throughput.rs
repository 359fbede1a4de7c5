//! How fast is a tokenizer on this machine? Encodes the lines of a text file and prints MB/s on one thread, beside what
//! the `tokenizers` crate does with the same file.
//!
//! `cargo run --release -p lattice-tokenizer --example throughput -- TOKENIZER_DIR TEXT_FILE`

use std::time::Instant;

use lattice_tokenizer::Tokenizer;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(dir), Some(file)) = (args.next(), args.next()) else {
        return Err("expected a tokenizer directory and a text file".into());
    };
    let start = Instant::now();
    let tokenizer = Tokenizer::open(&dir)?;
    println!("loaded {} in {:.0} ms", tokenizer.source().kind, start.elapsed().as_secs_f64() * 1e3);
    let text = std::fs::read_to_string(&file)?;
    let lines: Vec<&str> = text.lines().filter(|l| !l.is_empty()).collect();
    let bytes: usize = lines.iter().map(|l| l.len()).sum();
    let measure = |name: &str, run: &dyn Fn(&str) -> usize| {
        let mut times = Vec::new();
        let mut tokens = 0;
        for _ in 0..5 {
            let start = Instant::now();
            tokens = lines.iter().map(|line| run(line)).sum();
            times.push(start.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        let rate = |seconds: f64| bytes as f64 / 1e6 / seconds;
        println!("{name:24} {:6.1} MB/s (best {:.1}), {tokens} tokens", rate(times[2]), rate(times[0]));
    };
    measure("encode_ids", &|line| tokenizer.encode_ids(line, true).map_or(0, |ids| ids.len()));
    measure("encode", &|line| tokenizer.encode(line, true).map_or(0, |e| e.ids.len()));
    let json = std::path::Path::new(&dir).join("tokenizer.json");
    if json.is_file() {
        let mut theirs = tokenizers::Tokenizer::from_file(json).map_err(|e| e.to_string())?;
        theirs.with_truncation(None).map_err(|e| e.to_string())?.with_padding(None);
        measure("tokenizers::encode_fast", &|line| theirs.encode_fast(line, true).map_or(0, |e| e.len()));
    }
    Ok(())
}
