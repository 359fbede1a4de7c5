//! Perplexity as llama-perplexity defines it: the text in chunks of the context's length, each on its own; where the
//! model starts texts with a special token, one stands before the text and takes the place of each chunk's first; the
//! second half of a chunk is scored.

use crate::encoder::InferenceError;
use crate::language::LanguageModel;
use models::{Batch, Forward};

/// Rows whose logits are held at once.
const ROWS_TOGETHER: usize = 32;

/// How well a model foresees a text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Perplexity {
    /// `exp` of the mean negative log-likelihood of a token.
    pub value: f64,
    /// Its standard error.
    pub stderr: f64,
    /// Tokens that were scored.
    pub tokens: usize,
}

/// Sums over scored tokens.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: usize,
    nll: f64,
    nll2: f64,
}

impl Sums {
    fn perplexity(self) -> Perplexity {
        let n = self.count as f64;
        let (mean, square) = (self.nll / n, self.nll2 / n);
        let value = mean.exp();
        let variance = (square - mean * mean).max(0.0) / (n - 1.0).max(1.0);
        Perplexity { value, stderr: variance.sqrt() * value, tokens: self.count }
    }
}

/// Scores a text. `chunks` limits how many are taken; `on` hears the figures after each, with how many there are in all.
///
/// # Errors
/// [`InferenceError::Context`] for a context that the model does not take, [`InferenceError::TextTooShort`] for a text
/// that does not fill one chunk.
pub fn perplexity(
    model: &LanguageModel,
    text: &str,
    context: usize,
    chunks: Option<usize>,
    on: &mut dyn FnMut(usize, usize, Perplexity),
) -> Result<Perplexity, InferenceError> {
    let window = model.loaded().model.shape().max_positions;
    if context < 2 || context > window {
        return Err(InferenceError::Context { asked: context, window });
    }
    let tokenizer = model.tokenizer();
    let mut ids = tokenizer.encode_plain(text)?;
    // What the tokenizer puts in front of a text.
    let plain = tokenizer.encode_ids("a", false)?;
    let whole = tokenizer.encode_ids("a", true)?;
    let first = (whole.len() > plain.len() && whole[0] != plain[0]).then(|| whole[0]);
    ids.splice(..0, first);
    let all = ids.len() / context;
    if all == 0 {
        return Err(InferenceError::TextTooShort { tokens: ids.len(), context });
    }
    let count = chunks.unwrap_or(all).min(all);
    let mut sums = Sums::default();
    for (index, chunk) in ids.chunks_exact(context).take(count).enumerate() {
        let mut chunk = chunk.to_vec();
        if let Some(first) = first {
            chunk[0] = first;
        }
        score(model, &chunk, &mut sums)?;
        on(index + 1, count, sums.perplexity());
    }
    Ok(sums.perplexity())
}

fn score(model: &LanguageModel, chunk: &[u32], sums: &mut Sums) -> Result<(), InferenceError> {
    let batch = Batch::new(&[chunk])?;
    let shape = model.loaded().model.shape();
    shape.check(&batch)?;
    let head = model.loaded().head.as_ref().ok_or(InferenceError::NoHead { architecture: shape.architecture })?;
    let ops = &**model.ops();
    let cx = Forward::new(ops, &batch);
    let hidden = model.loaded().model.forward(&cx);
    let scored: Vec<u32> = (chunk.len() as u32 / 2..chunk.len() as u32 - 1).collect();
    for rows in scored.chunks(ROWS_TOGETHER) {
        let logits = ops.read(&head.logits(&cx, &ops.rows(&hidden, rows)))?;
        for (row, &at) in logits.chunks_exact(head.out.outputs).zip(rows) {
            let nll = -log_probability(row, chunk[at as usize + 1] as usize);
            sums.count += 1;
            sums.nll += nll;
            sums.nll2 += nll * nll;
        }
    }
    Ok(())
}

/// Natural log of the softmax at `id`.
fn log_probability(logits: &[f32], id: usize) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&x| f64::from(x - max).exp()).sum();
    f64::from(logits[id] - max) - sum.ln()
}
