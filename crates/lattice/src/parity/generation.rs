//! Real language models in GGUF files, found by their checksum.
//!
//! Outputs: `prompt{i}.top20_values` and `top20_ids` `[20]` of the logits after a prompt, largest first (ids are not
//! compared: equals may swap; instead, the logits at the reference's ids are); `nll.plain` and `nll.bos`, the negative
//! log-likelihood of each token of windows of `context` ids but their first, without and with the BOS in front. The
//! greedy ids are compared up to the first step whose margin is below the tolerance, and the prompts' own ids.

use super::case::{Case, Stop};
use super::causal::Runner;
use super::{Context, Outputs, Row, tokens};
use inference::LanguageModel;
use serde::Deserialize;
use serde_json::Value;
use weights::{Format, Tensor};

#[derive(Deserialize)]
struct Inputs {
    gguf_file: String,
    bos_prepended: Option<u32>,
    prompts: Vec<Prompt>,
    #[serde(default)]
    perplexity_ids: Vec<u32>,
    context: usize,
}

#[derive(Deserialize)]
struct Prompt {
    prompt: String,
    ids: Vec<u32>,
    greedy_ids: Vec<u32>,
    margins: Vec<f32>,
    top20_ids: Vec<u32>,
    top20_values: Vec<f32>,
}

/// Largest logits that are told.
const TOP: usize = 20;
/// Where meta.json names no tolerance of logits.
const TOLERANCE: f32 = 2e-3;

pub(crate) fn run(case: &Case, cx: &Context) -> Result<Outputs, Stop> {
    let inputs: Inputs = case.inputs()?;
    let path = cx.files.find(&case.dir, &sha256(case, &inputs)?)?;
    let model = LanguageModel::open(&path, cx.ops.clone()).map_err(tokens::stop)?;
    let runner = Runner::new(model.loaded(), &*cx.ops)?;
    let tolerance = case.compare.iter().find(|(name, _)| name.ends_with("top20_values"));
    let tolerance = tolerance.map_or(TOLERANCE, |(_, t)| t.atol as f32);
    let mut outputs = Outputs::default();
    let mut rows = [Items::new("prompt_ids"), Items::new("greedy_ids"), Items::new("logits at top20_ids")];
    for (i, prompt) in inputs.prompts.iter().enumerate() {
        let [ids, greedy, at_ids] = &mut rows;
        let mut own = inputs.bos_prepended.into_iter().collect::<Vec<_>>();
        own.extend(model.tokenizer().encode_ids(&prompt.prompt, false).map_err(Stop::failed)?);
        ids.check(own == prompt.ids, || format!("prompt {i} has ids {own:?}, expected {:?}", prompt.ids));
        let (new, logits) = runner.greedy(&prompt.ids, prompt.greedy_ids.len())?;
        let clear = prompt.margins.iter().take_while(|&&margin| margin > tolerance).count();
        let same = new.iter().zip(&prompt.greedy_ids).take(clear).all(|(a, b)| a == b);
        greedy.check(same, || format!("prompt {i} goes on with {new:?}, expected {:?}", prompt.greedy_ids));
        let first = &logits[..runner.head.out.outputs];
        let near =
            |(&id, &value): (&u32, &f32)| first.get(id as usize).is_some_and(|ours| (ours - value).abs() <= tolerance);
        let same = prompt.top20_ids.iter().zip(&prompt.top20_values).all(near);
        at_ids.check(same, || format!("prompt {i}: a logit at one of the reference's ids is further away"));
        outputs.tensors.extend(top(i, first)?);
    }
    outputs.rows.extend(rows.into_iter().map(|items| Row::items(&case.name, items.name, items.wrong, items.first)));
    for (variant, bos) in [("plain", None), ("bos", inputs.bos_prepended)] {
        let name = format!("nll.{variant}");
        if !case.compare.iter().any(|(output, _)| *output == name) || (variant == "bos" && bos.is_none()) {
            continue;
        }
        let mut all = Vec::new();
        for window in inputs.perplexity_ids.chunks_exact(inputs.context.max(1)) {
            let ids: Vec<u32> = bos.into_iter().chain(window.iter().copied()).collect();
            all.extend(surprise(&runner.logits(&ids)?, &ids));
        }
        outputs.tensors.push(Tensor::from_f32(&name, vec![all.len()], all));
    }
    Ok(outputs)
}

/// The checksum of the file: as meta.json gives it, else the one that the catalog has of a file of that name.
fn sha256(case: &Case, inputs: &Inputs) -> Result<String, Stop> {
    if let Some(given) = case.meta.get("sha256").and_then(Value::as_str) {
        return Ok(given.to_owned());
    }
    let packages = hub::CATALOG.iter().filter_map(|entry| entry.package);
    let known = packages.flat_map(|p| p.files).find(|file| file.path == inputs.gguf_file).map(|file| file.sha256);
    let absent =
        || Stop::Skipped(format!("the SHA-256 of {} is neither in meta.json nor in the catalog", inputs.gguf_file));
    known.map(str::to_owned).ok_or_else(absent)
}

/// Items that agree or not.
struct Items {
    name: &'static str,
    wrong: usize,
    first: Option<String>,
}

impl Items {
    fn new(name: &'static str) -> Items {
        Items { name, wrong: 0, first: None }
    }

    fn check(&mut self, same: bool, words: impl FnOnce() -> String) {
        if !same {
            self.wrong += 1;
            self.first.get_or_insert_with(words);
        }
    }
}

fn top(index: usize, logits: &[f32]) -> Result<[Tensor; 2], Stop> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    order.truncate(TOP);
    let values = order.iter().map(|&id| logits[id]).collect();
    let ids = order.iter().flat_map(|&id| (id as i64).to_le_bytes()).collect();
    let ids = Tensor::from_bytes(&format!("prompt{index}.top20_ids"), vec![order.len()], Format::I64, ids);
    Ok([
        Tensor::from_f32(&format!("prompt{index}.top20_values"), vec![order.len()], values),
        ids.map_err(Stop::failed)?,
    ])
}

/// Negative log-likelihood of each token but the first.
fn surprise(logits: &[f32], ids: &[u32]) -> Vec<f32> {
    let vocab = logits.len() / ids.len();
    let one = |(row, &id): (&[f32], &u32)| {
        let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = row.iter().map(|&x| f64::from(x - max).exp()).sum();
        (sum.ln() - f64::from(row[id as usize] - max)) as f32
    };
    logits.chunks_exact(vocab).zip(&ids[1..]).map(one).collect()
}
