//! Token cases: batches of ids through an encoder or a cross-encoder.
//!
//! Outputs: `batch{i}.last_hidden_state` `[B, T, hidden]`, zero where there is padding; `batch{i}.{mean|cls|last}`
//! `[B, dim]`, after the dense layers if there are any, of length 1; `….mrl{d}`, the first d features of that, of length
//! 1 again; of classifiers `batch{i}.logits` and `batch{i}.scores` `[B, labels]`.

use super::case::{Case, Stop};
use super::{Context, Outputs};
use inference::{Encoder, InferenceError, Pooling};
use models::{Batch, Forward, ModelError};
use ops::{Act, Key, Linear};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use weights::{Checkpoint, Tensor};

#[derive(Deserialize)]
struct Inputs {
    #[serde(default)]
    kind: Kind,
    batches: Vec<Padded>,
    #[serde(default)]
    poolings: Vec<Named>,
    #[serde(default)]
    truncate_dims: Vec<usize>,
}

#[derive(Deserialize, Default, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    Embed,
    Classify,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Named {
    Mean,
    Cls,
    Last,
}

/// A batch as the reference takes it: `[B, T]`, padding where the mask is 0.
#[derive(Deserialize)]
struct Padded {
    input_ids: Vec<Vec<u32>>,
    attention_mask: Option<Vec<Vec<u8>>>,
    token_type_ids: Option<Vec<Vec<u32>>>,
}

pub(crate) fn run(case: &Case, cx: &Context) -> Result<Outputs, Stop> {
    let inputs: Inputs = case.inputs()?;
    let encoder = Encoder::open(&case.dir, cx.ops.clone()).map_err(stop)?;
    let dense = dense_layers(&case.dir, cx)?;
    let mut outputs = Outputs::default();
    for (i, padded) in inputs.batches.iter().enumerate() {
        let (batch, places) = padded.pack(i, counts_padding(&encoder))?;
        encoder.shape().check(&batch).map_err(Stop::failed)?;
        let forward = Forward::new(&*cx.ops, &batch);
        let hidden = encoder.loaded().model.forward(&forward);
        let read = |act: &Act| cx.ops.read(act).map_err(Stop::failed);
        let rows = batch.spans.len();
        let mut put = |name: &str, shape: Vec<usize>, values| {
            outputs.tensors.push(Tensor::from_f32(&format!("batch{i}.{name}"), shape, values));
        };
        if inputs.kind == Kind::Classify {
            let architecture = encoder.shape().architecture;
            let head = encoder.loaded().classifier.as_ref();
            let head = head.ok_or(InferenceError::NoClassifier { architecture }).map_err(Stop::failed)?;
            let logits = read(&head.forward(&forward, &hidden))?;
            let shape = vec![rows, logits.len() / rows];
            let scores = logits.iter().map(|&x| (1.0 / (1.0 + (-f64::from(x)).exp())) as f32).collect();
            put("logits", shape.clone(), logits);
            put("scores", shape, scores);
            continue;
        }
        let width = padded.input_ids[0].len();
        put("last_hidden_state", vec![rows, width, hidden.cols()], spread(&read(&hidden)?, &places, rows * width));
        for pooling in &inputs.poolings {
            let mut act = pooling.mode().apply(&forward, &hidden, 0);
            for layer in &dense {
                if act.cols() != layer.inputs {
                    let what = format!("a dense layer takes {} features, {} come in", layer.inputs, act.cols());
                    return Err(Stop::Failed(what));
                }
                act = forward.linear(&act, layer);
            }
            let (values, cols) = (read(&act)?, act.cols());
            put(pooling.name(), vec![rows, cols], units(&values, cols, cols));
            for &dims in &inputs.truncate_dims {
                let kept = dims.min(cols);
                put(&format!("{}.mrl{dims}", pooling.name()), vec![rows, kept], units(&values, cols, kept));
            }
        }
    }
    Ok(outputs)
}

/// What is not built is refused, the rest has failed.
pub(crate) fn stop(error: InferenceError) -> Stop {
    match error {
        InferenceError::Model(ModelError::Architecture { .. } | ModelError::Option { .. }) => {
            Stop::Refused(error.to_string())
        }
        _ => Stop::failed(error),
    }
}

/// Whether the reference counts positions from the start of the padded row. The others count from the first token, or
/// only see differences between positions.
fn counts_padding(encoder: &Encoder) -> bool {
    matches!(encoder.shape().architecture, "bert" | "distilbert")
}

impl Named {
    fn mode(self) -> Pooling {
        match self {
            Named::Mean => Pooling::Mean,
            Named::Cls => Pooling::Cls,
            Named::Last => Pooling::LastToken,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Named::Mean => "mean",
            Named::Cls => "cls",
            Named::Last => "last",
        }
    }
}

impl Padded {
    /// The tokens without padding, and the place of each in the padded batch.
    fn pack(&self, index: usize, counts_padding: bool) -> Result<(Batch, Vec<usize>), Stop> {
        let wrong = |what: &str| Stop::Failed(format!("inputs.json: batch {index}: {what}"));
        let width = self.input_ids.first().map_or(0, Vec::len);
        let fits = |lengths: &mut dyn Iterator<Item = usize>| {
            lengths.map(|n| usize::from(n == width)).sum::<usize>() == self.input_ids.len()
        };
        let (mask, types) = (self.attention_mask.as_ref(), self.token_type_ids.as_ref());
        let even =
            |rows: usize, lengths: &mut dyn Iterator<Item = usize>| rows == self.input_ids.len() && fits(lengths);
        if width == 0
            || !fits(&mut self.input_ids.iter().map(Vec::len))
            || mask.is_some_and(|m| !even(m.len(), &mut m.iter().map(Vec::len)))
            || types.is_some_and(|t| !even(t.len(), &mut t.iter().map(Vec::len)))
        {
            return Err(wrong("input_ids, attention_mask and token_type_ids are not rows of one length"));
        }
        let (mut batch, mut places) = (Batch::default(), Vec::new());
        for (row, ids) in self.input_ids.iter().enumerate() {
            let kept: Vec<usize> = (0..width).filter(|&t| mask.is_none_or(|mask| mask[row][t] != 0)).collect();
            let of = |values: &[u32]| kept.iter().map(|&t| values[t]).collect::<Vec<u32>>();
            let types = types.map(|types| of(&types[row])).unwrap_or_default();
            batch.push(&of(ids), &types).map_err(|e| wrong(&e.to_string()))?;
            if counts_padding {
                let start = batch.positions.len() - kept.len();
                batch.positions[start..].copy_from_slice(&kept.iter().map(|&t| t as u32).collect::<Vec<_>>());
            }
            places.extend(kept.iter().map(|t| row * width + t));
        }
        Ok((batch, places))
    }
}

/// Rows put to their places, zeros elsewhere.
fn spread(rows: &[f32], places: &[usize], total: usize) -> Vec<f32> {
    let cols = rows.len() / places.len();
    let mut all = vec![0.0; total * cols];
    for (place, row) in places.iter().zip(rows.chunks_exact(cols)) {
        all[place * cols..][..cols].copy_from_slice(row);
    }
    all
}

/// The first `kept` features of each row, scaled to length 1.
fn units(values: &[f32], cols: usize, kept: usize) -> Vec<f32> {
    let mut all = Vec::with_capacity(values.len() / cols * kept);
    for row in values.chunks_exact(cols) {
        let length = row[..kept].iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt().max(1e-12);
        all.extend(row[..kept].iter().map(|v| (f64::from(*v) / length) as f32));
    }
    all
}

/// The layers of the folders `*_Dense`, in the order of their names.
fn dense_layers(dir: &Path, cx: &Context) -> Result<Vec<Linear>, Stop> {
    let items = std::fs::read_dir(dir).map_err(Stop::failed)?;
    let mut folders: Vec<PathBuf> = items.flatten().map(|item| item.path()).collect();
    folders.retain(|path| path.to_string_lossy().ends_with("_Dense"));
    folders.sort();
    let layer = |folder: &PathBuf| {
        let weight = Checkpoint::open(folder).and_then(|checkpoint| checkpoint.get("linear.weight"));
        let weight = weight.map_err(Stop::failed)?;
        let (inputs, outputs, key) = (weight.cols(), weight.rows(), Key { layer: None, name: "dense" });
        let weight = cx.ops.upload_matrix(&weight, false).map_err(Stop::failed)?;
        Ok(Linear { weight, bias: None, inputs, outputs, key })
    };
    folders.iter().map(layer).collect()
}
