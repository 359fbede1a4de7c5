//! `lattice doctor`: what can this machine do, and would a model fit?

use super::{json_line, locate};
use crate::error::CliError;
use crate::machine::{free_memory, memory, processor};
use crate::scales::Scales;
use crate::terminal::{Terminal, size};
use hub::Options;
use inference::EngineOptions;
use ops::{Isa, KvFormat};
use serde_json::{Map, Value, json};
use std::io::Write;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;

/// What this machine can do, and what a model would need on it
///
/// With --model (fetched if it is not here; not loaded), the memory that it takes at a context of --ctx tokens. Nothing is
/// sent over the network without --online.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A name of the catalog (`lattice models`), org/name on the Hub, a folder, or a .gguf file
    #[arg(short, long)]
    model: Option<String>,
    /// Longest text in tokens; without it the model's window, at most 8192
    #[arg(long, value_name = "N", requires = "model")]
    ctx: Option<usize>,
    /// Also try to reach the Hub
    #[arg(long)]
    online: bool,
    /// One object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<(), CliError> {
    let mut report = machine(&Options::from_env()?, args.online)?;
    if let Some(model) = &args.model {
        let path = locate(model, terminal)?.path;
        report.insert("model".into(), needs(model, &path, args.ctx)?);
    }
    let mut out = terminal.out();
    if args.json {
        json_line(&mut out, &report)?;
    } else {
        print(&mut out, &report, "")?;
    }
    Ok(out.flush()?)
}

fn machine(hub: &Options, online: bool) -> Result<Map<String, Value>, CliError> {
    let isas = |isas: &[Isa]| isas.iter().map(|isa| isa.name()).collect::<Vec<_>>();
    let isa = kernels::Kernels::best().map_err(ops::OpsError::from)?.isa();
    let existing = hub.cache.ancestors().find(|dir| dir.is_dir());
    let free = existing.and_then(|dir| fs4::available_space(dir).ok());
    let report = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "system": format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        "processor": processor(),
        "cores": std::thread::available_parallelism().ok().map(|n| n.get()),
        "isa": {"used": isa.name(), "available": isas(&Isa::available()), "known": isas(Isa::ALL)},
        "memory": {"bytes": memory(), "free_bytes": free_memory()},
        "gpu": "no GPU executor in this build",
        "cache": {"path": hub.cache, "exists": hub.cache.is_dir(), "free_bytes": free},
        "hub": {
            "endpoint": hub.endpoint,
            "offline": hub.offline,
            "token": hub.token.is_some(),
            "reachable": if online { reach(hub) } else { Value::from("not tried: --online does") },
        },
    });
    match report {
        Value::Object(map) => Ok(map),
        _ => unreachable!("written as an object"),
    }
}

/// Whether the Hub's host takes a connection, or why not.
fn reach(hub: &Options) -> Value {
    let (scheme, rest) = hub.endpoint.split_once("://").unwrap_or(("https", &hub.endpoint));
    let host = rest.split('/').next().unwrap_or(rest);
    let port = if scheme == "http" { 80 } else { 443 };
    let address = if host.contains(':') { host.to_owned() } else { format!("{host}:{port}") };
    let connect = || {
        let address = address.to_socket_addrs()?.next().ok_or(std::io::ErrorKind::AddrNotAvailable)?;
        TcpStream::connect_timeout(&address, hub.connect_timeout)
    };
    match connect() {
        Ok(_) => true.into(),
        Err(error) => format!("no: {address}: {error}").into(),
    }
}

/// What a model takes, whole and checked, but not loaded.
fn needs(name: &str, path: &Path, context: Option<usize>) -> Result<Value, CliError> {
    let scales = Scales::default();
    let loaded = ::models::load(path, &scales)?;
    let load = scales.load();
    let shape = loaded.model.shape();
    let context = context.unwrap_or(EngineOptions::CONTEXT.min(shape.max_positions));
    if context == 0 || context > shape.max_positions {
        return Err(inference::InferenceError::Context { asked: context, window: shape.max_positions }.into());
    }
    let states = loaded.model.states();
    let kv = |format| states.iter().map(|s| (s.token_bytes(format) * context) as u64).sum::<u64>();
    let recurrent: u64 = states.iter().map(|s| s.slot_bytes() as u64).sum();
    // A few rows of the hidden size and of the widest product for each token of a pass, and one row of logits.
    let step = EngineOptions::default().step_tokens.min(context);
    let activations = (4 * (step * (4 * shape.hidden + 2 * load.widest.max(shape.hidden)) + shape.vocab)) as u64;
    let weights: u64 = load.formats.values().sum();
    let total = |format| weights + kv(format) + recurrent + activations;
    let fits = |format| free_memory().map(|free| total(format) <= free);
    Ok(json!({
        "name": name,
        "path": path,
        "family": shape.architecture,
        "context": context,
        "window": shape.max_positions,
        "weights": {"bytes": weights, "formats_bytes": load.formats},
        "kv_q8_0_bytes": kv(KvFormat::Q8_0),
        "kv_f16_bytes": kv(KvFormat::F16),
        "kv_f32_bytes": kv(KvFormat::F32),
        "recurrent_state_bytes": recurrent,
        "activations_estimate_bytes": activations,
        "total_bytes": total(KvFormat::F16),
        "total_exact_bytes": total(KvFormat::F32),
        "fits": fits(KvFormat::F16),
        "fits_exact": fits(KvFormat::F32),
    }))
}

/// A line for each key; sizes with their unit.
fn print(out: &mut impl Write, map: &Map<String, Value>, indent: &str) -> Result<(), CliError> {
    for (key, value) in map {
        let label = key.strip_suffix("_bytes").unwrap_or(key).replace('_', " ");
        let bytes = key.ends_with("bytes");
        match value {
            Value::Object(inner) if bytes => {
                let sizes = inner.iter().map(|(k, v)| format!("{k} {}", size(v.as_u64().unwrap_or(0))));
                writeln!(out, "{indent}{label}: {}", sizes.collect::<Vec<_>>().join(", "))?;
            }
            Value::Object(inner) => {
                writeln!(out, "{indent}{label}")?;
                print(out, inner, &format!("{indent}  "))?;
            }
            Value::Null => writeln!(out, "{indent}{label}: unknown")?,
            Value::Bool(flag) => writeln!(out, "{indent}{label}: {}", if *flag { "yes" } else { "no" })?,
            Value::String(text) => writeln!(out, "{indent}{label}: {text}")?,
            Value::Array(items) => {
                let items = items.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned));
                writeln!(out, "{indent}{label}: {}", items.collect::<Vec<_>>().join(", "))?;
            }
            number if bytes => writeln!(out, "{indent}{label}: {}", size(number.as_u64().unwrap_or(0)))?,
            number => writeln!(out, "{indent}{label}: {number}")?,
        }
    }
    Ok(())
}
