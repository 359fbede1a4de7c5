//! How fast do tokenizers load and encode, beside the `tokenizers` crate with the same file?
//!
//! `cargo bench -p lattice-tokenizer --bench tokenize -- FILES TEXT [WORKLOAD.json]`, FILES being a folder with a folder
//! for each tokenizer (`minilm`, `qwen3`, `gemma3`, `llama3`, each with a tokenizer.json) and GGUF files, TEXT a large text
//! file, and WORKLOAD a JSON file whose `texts` are short. One thread. Loading is measured in processes of their own, and
//! both sides take turns.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use lattice_tokenizer::{GgufVocab, Tokenizer};

type Failure = Box<dyn std::error::Error>;

const ROUNDS: usize = 5;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    match args.as_slice() {
        [mode, side, path] if mode == "load" => load(side, Path::new(path)),
        [files, text] => bench(Path::new(files), Path::new(text), None),
        [files, text, workload] => bench(Path::new(files), Path::new(text), Some(Path::new(workload))),
        _ => Err("expected: FILES TEXT [WORKLOAD.json]; see the top of benches/tokenize.rs".into()),
    }
}

/// A line of `/proc/self/status`, in MiB.
fn status(key: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(key));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}

/// Milliseconds that this process has been on a processor.
fn busy() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e6
}

/// Loads one tokenizer and prints milliseconds by the clock and of processor, resident size added, and peak added.
fn load(side: &str, path: &Path) -> Result<(), Failure> {
    let (before, work, start) = (status("VmRSS:"), busy(), Instant::now());
    let report = || {
        let (clock, work) = (start.elapsed().as_secs_f64() * 1e3, busy() - work);
        println!("{clock} {work} {} {}", status("VmRSS:") - before, status("VmHWM:") - before);
    };
    let ids = if side == "ours" {
        let tokenizer = match path.extension().is_some_and(|e| e == "gguf") {
            true => Tokenizer::from_gguf(&vocab(path)?)?,
            false => Tokenizer::open(path)?,
        };
        report();
        tokenizer.encode_ids("Hello, world!", true)?
    } else {
        let tokenizer = tokenizers::Tokenizer::from_file(path).map_err(|e| e.to_string())?;
        report();
        tokenizer.encode("Hello, world!", true).map_err(|e| e.to_string())?.get_ids().to_vec()
    };
    std::hint::black_box(ids);
    Ok(())
}

fn vocab(path: &Path) -> Result<GgufVocab, Failure> {
    let checkpoint = weights::Checkpoint::open(path)?;
    let v = weights::gguf::Vocab::read(checkpoint.metadata().ok_or("no metadata")?)?;
    Ok(GgufVocab {
        model: v.model,
        pre: v.pre,
        tokens: v.tokens,
        scores: v.scores,
        types: v.types,
        merges: v.merges,
        bos: v.bos,
        eos: v.eos,
        eot: v.eot,
        unk: v.unk,
        sep: v.sep,
        pad: v.pad,
        cls: v.cls,
        mask: v.mask,
        add_bos: v.add_bos,
        add_eos: v.add_eos,
        add_space_prefix: v.add_space_prefix,
        remove_extra_spaces: v.remove_extra_spaces,
        charsmap: v.charsmap,
        chat_template: v.chat_template,
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn spread(values: &[f64]) -> String {
    let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(a, b), &v| (a.min(v), b.max(v)));
    format!("{:.1} ({low:.1}–{high:.1})", median(values.to_vec()))
}

fn bench(files: &Path, text: &Path, workload: Option<&Path>) -> Result<(), Failure> {
    let commit = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output()?.stdout;
    println!(
        "commit {}, one thread, {ROUNDS} rounds in turns, median (min–max)",
        String::from_utf8_lossy(&commit).trim()
    );
    let mut found: Vec<PathBuf> = std::fs::read_dir(files)?.map(|e| Ok(e?.path())).collect::<Result<_, Failure>>()?;
    found.sort();
    let jsons: Vec<PathBuf> = found.iter().map(|p| p.join("tokenizer.json")).filter(|p| p.is_file()).collect();
    let ggufs = found.iter().filter(|p| p.extension().is_some_and(|e| e == "gguf"));

    println!(
        "\nloading: ms by the clock, ms of processor; MiB resident after, at the peak (GGUF: reading the metadata too)"
    );
    for path in jsons.iter().chain(ggufs) {
        let name = path.strip_prefix(files)?.display();
        let sides: &[&str] =
            if path.extension().is_some_and(|e| e == "gguf") { &["ours"] } else { &["ours", "theirs"] };
        let mut figures = vec![Vec::new(); sides.len()];
        for _ in 0..ROUNDS {
            for (side, figures) in sides.iter().zip(&mut figures) {
                let run = Command::new(std::env::current_exe()?).args(["load", side]).arg(path).output()?;
                let line = String::from_utf8(run.stdout)?;
                figures.push(line.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>()?);
            }
        }
        for (side, figures) in sides.iter().zip(&figures) {
            let column = |i: usize| -> Vec<f64> { figures.iter().map(|f| f[i]).collect() };
            let (rss, peak) = (median(column(2)), median(column(3)));
            let (clock, work) = (spread(&column(0)), spread(&column(1)));
            println!("{:24} {side:8} {clock:>24} {work:>24} {rss:7.1} {peak:7.1}", name.to_string());
        }
    }

    let text = std::fs::read_to_string(text)?;
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    let short: Vec<String> = match workload {
        Some(path) => serde_json::from_value(
            serde_json::from_slice::<serde_json::Value>(&std::fs::read(path)?)?["texts"].clone(),
        )?,
        None => Vec::new(),
    };
    for json in &jsons {
        let ours = Tokenizer::open(json)?;
        let mut theirs = tokenizers::Tokenizer::from_file(json).map_err(|e| e.to_string())?;
        theirs.with_truncation(None).map_err(|e| e.to_string())?.with_padding(None);
        println!("\n{}: MB/s", json.strip_prefix(files)?.display());
        let short: Vec<&str> = short.iter().map(String::as_str).collect();
        for (name, texts) in [("lines of the large text", &lines), ("short texts", &short)] {
            if texts.is_empty() {
                continue;
            }
            let bytes: usize = texts.iter().map(|t| t.len()).sum();
            let repeat = (1 << 20) / bytes.clamp(1, 1 << 20);
            let rate = |run: &dyn Fn(&str) -> usize| {
                let start = Instant::now();
                let tokens: usize = (0..repeat.max(1)).map(|_| texts.iter().map(|t| run(t)).sum::<usize>()).sum();
                ((bytes * repeat.max(1)) as f64 / 1e6 / start.elapsed().as_secs_f64(), tokens)
            };
            let own = |t: &str| ours.encode_ids(t, true).map_or(0, |ids| ids.len());
            let traced = |t: &str| ours.encode(t, true).map_or(0, |e| e.ids.len());
            let other = |t: &str| theirs.encode_fast(t, true).map_or(0, |e| e.len());
            let (mut a, mut b, mut c) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                let (x, y, z) = (rate(&own), rate(&other), rate(&traced));
                if x.1 != y.1 || x.1 != z.1 {
                    return Err(format!("{name}: {} tokens, theirs {}, with offsets {}", x.1, y.1, z.1).into());
                }
                a.push(x.0);
                b.push(y.0);
                c.push(z.0);
            }
            let ratio = median(a.iter().zip(&b).map(|(a, b)| a / b).collect());
            println!(
                "{name:26} ours {:>22}  tokenizers {:>20}  × {ratio:.1}   ours with offsets {:>20}",
                spread(&a),
                spread(&b),
                spread(&c)
            );
        }
    }
    Ok(())
}
