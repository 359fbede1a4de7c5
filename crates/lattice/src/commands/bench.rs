//! `lattice bench`: how fast does a model read a prompt, and how fast does it write?

use super::json_line;
use crate::error::CliError;
use crate::language::{ModelArgs, Opened};
use crate::machine::{free_memory, peak_memory, read_bandwidth};
use crate::terminal::{Terminal, size, table};
use ::models::{Batch, Caches, Forward};
use inference::InferenceError;
use ops::Past;
use serde::Serialize;
use std::io::Write;
use std::time::Instant;
use weights::Checkpoint;

/// Speed of prompts and of decoding, beside what this machine's memory could give
///
/// pp N is a prompt of N tokens, tg N are N tokens one after another, each over --depth tokens that are there already. A
/// decoded token reads the weights once: GB/s is that, and the share is of what the same threads read from a buffer of the
/// model's size, measured in the same run. Nothing is sampled: ids are arbitrary.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Tokens of a prompt; several with commas; 0 leaves prompts out
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "512")]
    pp: Vec<usize>,
    /// Tokens to decode; several with commas; 0 leaves decoding out
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "128")]
    tg: Vec<usize>,
    /// Tokens that are in the caches before; several with commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0")]
    depth: Vec<usize>,
    /// How often each is measured, after one run to warm up
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    reps: u16,
    /// An array of rows
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model: ModelArgs,
}

/// Tokens of a forward pass over a prompt, as the engine has it.
const STEP: usize = 512;
/// Tokens of a page of keys and values.
const PAGE: usize = 256;

#[derive(Serialize)]
struct Row {
    model: String,
    test: String,
    depth: usize,
    threads: usize,
    isa: &'static str,
    kv: &'static str,
    /// Median over the repetitions.
    tokens_per_second: f64,
    min: f64,
    max: f64,
    reps: usize,
    load_seconds: f64,
    /// Of this process so far; None where the system does not tell.
    peak_memory_bytes: Option<u64>,
    /// Bytes of weights that a decoded token reads, a second; of decoding only.
    #[serde(skip_serializing_if = "Option::is_none")]
    weights_gb_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine_gb_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<f64>,
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<(), CliError> {
    let opened = args.model.open(terminal)?;
    let tests = || {
        let of =
            |counts: &[usize], decode| counts.iter().map(move |&n| (n, decode)).filter(|t| t.0 > 0).collect::<Vec<_>>();
        [of(&args.pp, false), of(&args.tg, true)].concat()
    };
    let window = opened.model.loaded().model.shape().max_positions;
    let longest = tests().iter().map(|t| t.0).max().unwrap_or(0) + args.depth.iter().max().unwrap_or(&0);
    if longest == 0 || longest > window {
        return Err(InferenceError::Context { asked: longest, window }.into());
    }
    let all = tests().len() * args.depth.len() * (usize::from(args.reps) + 1);
    let mut count = terminal.count("runs", Some(all as u64));
    let mut rows = Vec::new();
    for &depth in &args.depth {
        for (tokens, decode) in tests() {
            let mut speeds = Vec::new();
            for rep in 0..=args.reps {
                let seconds = measure(&opened, depth, tokens, decode)?;
                if rep > 0 {
                    speeds.push(tokens as f64 / seconds);
                }
                count.one();
            }
            rows.push(row(&opened, depth, tokens, decode, speeds));
        }
    }
    drop(count);
    if let Some(bytes) = weights_of_a_token(&opened)? {
        let room = free_memory().map_or(u64::MAX, |free| free / 2);
        let machine = read_bandwidth((bytes as u64).min(room) as usize, opened.threads);
        for row in rows.iter_mut().filter(|row| row.test.starts_with("tg")) {
            let speed = bytes * row.tokens_per_second;
            row.weights_gb_per_second = Some(speed / 1e9);
            row.machine_gb_per_second = Some(machine / 1e9);
            row.share = Some(speed / machine);
        }
    }
    let mut out = terminal.out();
    if args.json {
        json_line(&mut out, &rows)?;
    } else {
        print(&mut out, &opened, &rows)?;
    }
    Ok(out.flush()?)
}

/// Seconds for `tokens` tokens, in passes of [`STEP`] or one by one, over `depth` earlier ones.
fn measure(opened: &Opened, depth: usize, tokens: usize, decode: bool) -> Result<f64, CliError> {
    let loaded = opened.model.loaded();
    let ops = &**opened.model.ops();
    let pages = (depth + tokens).div_ceil(PAGE);
    let caches = Caches::new(ops, &loaded.model.states(), pages, PAGE, 1, opened.kv);
    let mut past = Past { pages: (0..pages as u32).collect(), ..Past::default() };
    let ids: Vec<u32> = ids(loaded.model.shape().vocab).take(depth + tokens).collect();
    let (before, measured) = ids.split_at(depth);
    for part in before.chunks(STEP) {
        pass(opened, &caches, &mut past, part)?;
    }
    let start = Instant::now();
    for part in measured.chunks(if decode { 1 } else { STEP }) {
        pass(opened, &caches, &mut past, part)?;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// One forward pass, to the logits of its last token.
fn pass(opened: &Opened, caches: &Caches, past: &mut Past, ids: &[u32]) -> Result<(), CliError> {
    let loaded = opened.model.loaded();
    let ops = &**opened.model.ops();
    let architecture = loaded.model.shape().architecture;
    let head = loaded.head.as_ref().ok_or(InferenceError::NoHead { architecture })?;
    let mut batch = Batch::default();
    batch.push_after(ids, past.clone())?;
    loaded.model.shape().check(&batch)?;
    caches.check(&batch)?;
    let cx = Forward::cached(ops, &batch, caches);
    let hidden = loaded.model.forward(&cx);
    ops.read(&head.logits(&cx, &ops.rows(&hidden, &[ids.len() as u32 - 1])))?;
    past.tokens += ids.len();
    Ok(())
}

/// Ids all over the vocabulary, the same ones every time.
fn ids(vocab: usize) -> impl Iterator<Item = u32> {
    let next =
        |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    std::iter::successors(Some(1u64), next).map(move |state| ((state >> 33) % vocab as u64) as u32)
}

/// Bytes of weights that a decoded token reads: all but the table of words where the head has its own matrix, and of
/// experts the share that is active. None where the files do not tell.
fn weights_of_a_token(opened: &Opened) -> Result<Option<f64>, CliError> {
    let file = Checkpoint::open(&opened.path)?;
    let checkpoint = if file.metadata().is_some() { file.as_hugging_face()?.checkpoint } else { file };
    let untied = checkpoint.contains("lm_head.weight");
    let config = &opened.model.loaded().config;
    let number = |keys: &[&str]| {
        let text = config.section("text_config").ok().flatten();
        let get = |key: &&str| config.get(key).or_else(|| text.as_ref()?.get(key))?.as_f64();
        keys.iter().find_map(get)
    };
    let active = number(&["num_experts_per_tok"]).zip(number(&["num_experts", "num_local_experts"]));
    let active = active.map_or(1.0, |(active, all)| active / all);
    let read = checkpoint.tensors().map(|tensor| {
        let (name, bytes) = (tensor.name(), tensor.bytes().len() as f64);
        match () {
            () if untied && name.ends_with("embed_tokens.weight") => 0.0,
            () if name.contains(".experts.") => bytes * active,
            () => bytes,
        }
    });
    Ok(Some(read.sum()).filter(|&bytes| bytes > 0.0))
}

fn row(opened: &Opened, depth: usize, tokens: usize, decode: bool, mut speeds: Vec<f64>) -> Row {
    speeds.sort_by(f64::total_cmp);
    let middle = |s: &[f64]| (s[(s.len() - 1) / 2] + s[s.len() / 2]) / 2.0;
    Row {
        model: opened.name.clone(),
        test: format!("{}{tokens}", if decode { "tg" } else { "pp" }),
        depth,
        threads: opened.threads,
        isa: opened.isa.name(),
        kv: opened.kv.name(),
        tokens_per_second: middle(&speeds),
        min: speeds[0],
        max: speeds[speeds.len() - 1],
        reps: speeds.len(),
        load_seconds: opened.load.as_secs_f64(),
        peak_memory_bytes: peak_memory(),
        weights_gb_per_second: None,
        machine_gb_per_second: None,
        share: None,
    }
}

fn print(out: &mut impl Write, opened: &Opened, rows: &[Row]) -> Result<(), CliError> {
    let (threads, isa) = (opened.threads, opened.isa.name());
    writeln!(out, "{}: {threads} threads, {isa}, loaded in {:.2} s", opened.name, opened.load.as_secs_f64())?;
    let head = ["test", "depth", "tokens/s", "min – max", "weights GB/s", "of this machine's", "peak memory"];
    let mut cells = vec![head.map(str::to_owned).to_vec()];
    for row in rows {
        let gb = |n: Option<f64>| n.map_or_else(|| "-".into(), |n| format!("{n:.1}"));
        let share =
            row.share.map_or_else(|| "-".into(), |s| format!("{} ({:.0} %)", gb(row.machine_gb_per_second), 100.0 * s));
        cells.push(vec![
            row.test.clone(),
            row.depth.to_string(),
            format!("{:.1}", row.tokens_per_second),
            format!("{:.1} – {:.1}", row.min, row.max),
            gb(row.weights_gb_per_second),
            share,
            row.peak_memory_bytes.map_or_else(|| "-".into(), size),
        ]);
    }
    Ok(out.write_all(table(&cells, &[1, 2, 3, 4, 5, 6]).as_bytes())?)
}
