//! Language models on token ids, from a checkpoint or a GGUF file.
//!
//! Outputs: `prompt{i}.logits` `[T, vocab]`, each prompt alone; `batch.logits` `[B, T, vocab]`, zero where there is padding;
//! `greedy.ids` and the `greedy.logits` `[N, vocab]` that each was taken from, decoded token by token, and
//! `greedy.min_margin`; of the prompt `capture` the rows `hidden.embed`, `hidden.layer{l}` and `hidden.norm`; of the layers
//! `states` what is left after a prompt, `state.layer{l}.conv` and `state.layer{l}.recurrent`. A GGUF file's own tokenizer
//! is held to `text_ids`.

use super::case::{Case, Stop};
use super::{Context, Outputs, Row, tokens};
use inference::{InferenceError, LanguageModel};
use models::{Batch, Caches, Forward, LanguageHead, LayerCache, Loaded, Place};
use ops::{Act, KvFormat, Ops, Past};
use serde::Deserialize;
use std::sync::Mutex;
use weights::{Format, Tensor};

#[derive(Deserialize)]
struct Inputs {
    prompts: Vec<Vec<u32>>,
    batch: Option<Padded>,
    greedy: Option<Greedy>,
    capture: Option<usize>,
    states: Option<States>,
    /// Of GGUF cases.
    text: Option<String>,
    text_ids: Option<Vec<u32>>,
}

#[derive(Deserialize)]
struct Padded {
    input_ids: Vec<Vec<u32>>,
    attention_mask: Vec<Vec<u8>>,
}

#[derive(Deserialize)]
struct Greedy {
    prompt: Vec<u32>,
    new_tokens: usize,
}

#[derive(Deserialize)]
struct States {
    prompt: usize,
    layers: Vec<usize>,
}

/// Name, shape and values of an output.
type Named = (String, Vec<usize>, Vec<f32>);

/// Most tokens of a greedy continuation.
const MAX_NEW: usize = 4096;
/// Tokens of a page of keys and values.
const PAGE: usize = 64;

pub(crate) fn run(case: &Case, cx: &Context) -> Result<Outputs, Stop> {
    let ops = &*cx.ops;
    let loaded = models::load(&case.dir, ops).map_err(InferenceError::from).map_err(tokens::stop)?;
    outputs(case, &case.inputs()?, &Runner::new(&loaded, ops)?)
}

pub(crate) fn run_gguf(case: &Case, cx: &Context) -> Result<Outputs, Stop> {
    let inputs: Inputs = case.inputs()?;
    let model = LanguageModel::open(case.dir.join("model.gguf"), cx.ops.clone()).map_err(tokens::stop)?;
    let mut outputs = outputs(case, &inputs, &Runner::new(model.loaded(), &*cx.ops)?)?;
    if let (Some(text), Some(expected)) = (&inputs.text, &inputs.text_ids) {
        let ids = model.tokenizer().encode_ids(text, true).map_err(Stop::failed)?;
        let wrong = ids != *expected;
        let first = wrong.then(|| format!("the text has ids {ids:?}, expected {expected:?}"));
        outputs.rows.push(Row::items(&case.name, "text_ids", wrong.into(), first));
    }
    Ok(outputs)
}

fn outputs(case: &Case, inputs: &Inputs, runner: &Runner) -> Result<Outputs, Stop> {
    let vocab = runner.head.out.outputs;
    let prompt = |index: usize| {
        inputs.prompts.get(index).ok_or_else(|| Stop::Failed(format!("inputs.json: there is no prompt {index}")))
    };
    let mut outputs = Outputs::default();
    let mut put = |name: &str, shape: Vec<usize>, values| outputs.tensors.push(Tensor::from_f32(name, shape, values));
    for (i, prompt) in inputs.prompts.iter().enumerate() {
        put(&format!("prompt{i}.logits"), vec![prompt.len(), vocab], runner.logits(prompt)?);
    }
    if let Some(index) = inputs.capture {
        for (name, shape, values) in runner.hidden(prompt(index)?)? {
            put(&name, shape, values);
        }
    }
    if let Some(batch) = &inputs.batch {
        put("batch.logits", vec![batch.input_ids.len(), batch.width()?, vocab], batch.logits(runner)?);
    }
    if let Some(states) = &inputs.states {
        for (name, shape, values) in runner.states(prompt(states.prompt)?, &states.layers)? {
            put(&name, shape, values);
        }
    }
    if let Some(greedy) = &inputs.greedy {
        if greedy.new_tokens == 0 || greedy.new_tokens > MAX_NEW {
            return Err(Stop::Failed(format!(
                "{}: new_tokens is {}, expected 1 to {MAX_NEW}",
                case.name, greedy.new_tokens
            )));
        }
        let (ids, logits) = runner.greedy(&greedy.prompt, greedy.new_tokens)?;
        let margins = logits.chunks_exact(vocab).map(margin);
        put("greedy.min_margin", vec![1], vec![margins.fold(f32::INFINITY, f32::min)]);
        put("greedy.logits", vec![ids.len(), vocab], logits);
        let bytes = ids.iter().flat_map(|&id| i64::from(id).to_le_bytes()).collect();
        let ids = Tensor::from_bytes("greedy.ids", vec![ids.len()], Format::I64, bytes).map_err(Stop::failed)?;
        outputs.tensors.push(ids);
    }
    Ok(outputs)
}

impl Padded {
    fn width(&self) -> Result<usize, Stop> {
        let width = self.input_ids.first().map_or(0, Vec::len);
        let mut lengths = self.input_ids.iter().map(Vec::len).chain(self.attention_mask.iter().map(Vec::len));
        let fits = lengths.all(|n| n == width);
        match width > 0 && fits && self.input_ids.len() == self.attention_mask.len() {
            true => Ok(width),
            false => Err(Stop::Failed("inputs.json: batch is not rows of one length".into())),
        }
    }

    /// All sequences in one pass; zeros where there is padding.
    fn logits(&self, runner: &Runner) -> Result<Vec<f32>, Stop> {
        let vocab = runner.head.out.outputs;
        let kept = |(ids, mask): (&Vec<u32>, &Vec<u8>)| -> Vec<u32> {
            ids.iter().zip(mask).filter(|(_, m)| **m != 0).map(|(id, _)| *id).collect()
        };
        let sequences: Vec<Vec<u32>> = self.input_ids.iter().zip(&self.attention_mask).map(kept).collect();
        let batch = Batch::new(&sequences).map_err(Stop::failed)?;
        let values = runner.pass(&batch, None)?;
        let mut rows = values.chunks_exact(vocab);
        let mut all = vec![0.0; self.input_ids.len() * self.width()? * vocab];
        for (to, _) in all.chunks_exact_mut(vocab).zip(self.attention_mask.iter().flatten()).filter(|(_, m)| **m != 0) {
            to.copy_from_slice(rows.next().expect("a row for each token that is kept"));
        }
        Ok(all)
    }
}

/// Runs a language model on ids.
pub(super) struct Runner<'a> {
    loaded: &'a Loaded,
    pub(super) head: &'a LanguageHead,
    ops: &'a dyn Ops,
}

impl<'a> Runner<'a> {
    pub(super) fn new(loaded: &'a Loaded, ops: &'a dyn Ops) -> Result<Runner<'a>, Stop> {
        let architecture = loaded.model.shape().architecture;
        let head = loaded.head.as_ref().ok_or(InferenceError::NoHead { architecture }).map_err(Stop::failed)?;
        Ok(Runner { loaded, head, ops })
    }

    /// Logits of every token, `[tokens, vocab]`.
    pub(super) fn logits(&self, ids: &[u32]) -> Result<Vec<f32>, Stop> {
        self.pass(&Batch::new(&[ids]).map_err(Stop::failed)?, None)
    }

    fn pass(&self, batch: &Batch, caches: Option<&Caches>) -> Result<Vec<f32>, Stop> {
        self.loaded.model.shape().check(batch).map_err(Stop::failed)?;
        let cx = match caches {
            None => Forward::new(self.ops, batch),
            Some(caches) => {
                caches.check(batch).map_err(Stop::failed)?;
                Forward::cached(self.ops, batch, caches)
            }
        };
        self.ops.read(&self.head.logits(&cx, &self.loaded.model.forward(&cx))).map_err(Stop::failed)
    }

    /// Room for one sequence of so many tokens, in float32.
    fn caches(&self, tokens: usize) -> (Caches, Past) {
        let pages = tokens.div_ceil(PAGE);
        let caches = Caches::new(self.ops, &self.loaded.model.states(), pages, PAGE, 1, KvFormat::F32);
        (caches, Past { pages: (0..pages as u32).collect(), ..Past::default() })
    }

    /// The ids that the model goes on with, whatever they mean, and the logits `[N, vocab]` that each was taken from; one
    /// pass for the prompt, then one for each token.
    pub(super) fn greedy(&self, prompt: &[u32], new_tokens: usize) -> Result<(Vec<u32>, Vec<f32>), Stop> {
        let vocab = self.head.out.outputs;
        let (caches, mut past) = self.caches(prompt.len() + new_tokens);
        let (mut ids, mut all, mut next) = (Vec::new(), Vec::new(), prompt.to_vec());
        while ids.len() < new_tokens {
            let mut batch = Batch::default();
            batch.push_after(&next, past.clone()).map_err(Stop::failed)?;
            let logits = self.pass(&batch, Some(&caches))?;
            past.tokens += next.len();
            let last = &logits[logits.len() - vocab..];
            all.extend_from_slice(last);
            let best = (0..vocab).max_by(|&a, &b| last[a].total_cmp(&last[b]).then(b.cmp(&a))).unwrap_or(0);
            ids.push(best as u32);
            next = vec![best as u32];
        }
        Ok((ids, all))
    }

    /// The rows between the layers.
    fn hidden(&self, ids: &[u32]) -> Result<Vec<Named>, Stop> {
        let batch = Batch::new(&[ids]).map_err(Stop::failed)?;
        self.loaded.model.shape().check(&batch).map_err(Stop::failed)?;
        let seen = Mutex::new(Vec::new());
        let trace = |place: Place, rows: &Act| seen.lock().expect("no panics under it").push((place, rows.clone()));
        self.loaded.model.forward(&Forward { trace: Some(&trace), ..Forward::new(self.ops, &batch) });
        let one = |(place, rows): (Place, Act)| {
            let name = match place {
                Place::Embedding => "hidden.embed".to_owned(),
                Place::Layer(i) => format!("hidden.layer{i}"),
                Place::Norm => "hidden.norm".to_owned(),
            };
            Ok((name, vec![rows.rows(), rows.cols()], self.ops.read(&rows).map_err(Stop::failed)?))
        };
        seen.into_inner().expect("no panics under it").into_iter().map(one).collect()
    }

    /// The recurrent states after a prompt.
    fn states(&self, ids: &[u32], layers: &[usize]) -> Result<Vec<Named>, Stop> {
        let (caches, past) = self.caches(ids.len());
        let mut batch = Batch::default();
        batch.push_after(ids, past).map_err(Stop::failed)?;
        self.pass(&batch, Some(&caches))?;
        let mut all = Vec::new();
        for &layer in layers {
            let Some(LayerCache::Recurrent(cache)) = caches.layers.get(layer) else {
                return Err(Stop::Failed(format!("inputs.json: layer {layer} has no recurrent state")));
            };
            let (spec, state) = (cache.spec, self.ops.read_state(cache, 0).map_err(Stop::failed)?);
            let name = |what| format!("state.layer{layer}.{what}");
            all.push((name("conv"), vec![spec.channels, spec.kernel], state.convolution));
            all.push((name("recurrent"), vec![spec.heads, spec.key_dim, spec.value_dim], state.recurrent));
        }
        Ok(all)
    }
}

/// How far the best logit is above the second.
fn margin(logits: &[f32]) -> f32 {
    let (mut first, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
    for &x in logits {
        (first, second) = if x > first { (x, first) } else { (first, second.max(x)) };
    }
    first - second
}
