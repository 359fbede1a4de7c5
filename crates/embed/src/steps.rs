//! The modules after pooling, as operations of the executor.

use crate::error::EmbedError;
use crate::modules::{Dense, Modules, Stage};
use models::Forward;
use ops::{Act, Activation, Key, Linear, Norm, NormKind, Ops};
use weights::{Checkpoint, Tensor};

/// A step that runs on the executor. Normalisation at the very end is the caller's, after it has cut the vector.
pub(crate) enum Step {
    /// The sum of one matrix for each act that comes in, then a function, then the input once more if `residual`.
    Dense { parts: Vec<Linear>, activation: Option<Activation>, residual: bool },
    /// Division by the Euclidean length.
    Normalize(Norm),
}

/// Uploads the steps. `features` are those of each pooled act; also returns how many come out in the end.
pub(crate) fn load_steps(
    modules: &Modules,
    mut features: Vec<usize>,
    ops: &dyn Ops,
) -> Result<(Vec<Step>, usize), EmbedError> {
    let last = modules.stages.iter().rposition(|stage| matches!(stage, Stage::Dense(_))).map_or(0, |i| i + 1);
    let mut steps = Vec::new();
    for stage in &modules.stages[..last] {
        match stage {
            Stage::Dense(dense) => {
                steps.push(load_dense(dense, &features, ops)?);
                features = vec![dense.outputs];
            }
            Stage::Normalize => {
                let [width] = features[..] else {
                    let what = "Normalize between several poolings and a Dense module is not built";
                    return Err(EmbedError::settings(&std::path::PathBuf::from("modules.json"), what));
                };
                let scale = Tensor::from_f32("unit length", vec![width], vec![(width as f32).powf(-0.5); width]);
                let weight = ops.upload_vector(&scale)?;
                steps.push(Step::Normalize(Norm { kind: NormKind::Rms, weight, bias: None, eps: 1e-30 }));
            }
        }
    }
    Ok((steps, features.iter().sum()))
}

fn load_dense(dense: &Dense, features: &[usize], ops: &dyn Ops) -> Result<Step, EmbedError> {
    let wrong = |what: String| EmbedError::settings(&dense.folder.join("config.json"), &what);
    let Dense { inputs, outputs, bias, activation, residual, .. } = *dense;
    if inputs != features.iter().sum::<usize>() {
        return Err(wrong(format!("in_features is {inputs}, but {} features come in", features.iter().sum::<usize>())));
    }
    if residual && features.len() > 1 {
        return Err(wrong("use_residual after several poolings is not built".into()));
    }
    let checkpoint = Checkpoint::open(&dense.folder)?;
    let tensor = |name: &str, shape: &[usize]| {
        let tensor = checkpoint.get(name)?;
        if tensor.shape() != shape {
            let what = format!("{name} is {:?}, expected {shape:?} by in_features and out_features", tensor.shape());
            return Err(EmbedError::settings(&dense.folder.join("model.safetensors"), &what));
        }
        Ok(tensor)
    };
    let weight = tensor("linear.weight", &[outputs, inputs])?;
    let mut bias = if bias { Some(ops.upload_vector(&tensor("linear.bias", &[outputs])?)?) } else { None };
    let key = Key { layer: None, name: "dense" };
    let mut parts = Vec::new();
    let mut first = 0;
    for &width in features {
        let part = if width == inputs { weight.clone() } else { columns(&weight, first, width)? };
        let weight = ops.upload_matrix(&part, true)?;
        parts.push(Linear { weight, bias: bias.take(), inputs: width, outputs, key });
        first += width;
    }
    Ok(Step::Dense { parts, activation, residual })
}

/// Some columns of a matrix, as a matrix of its own.
fn columns(matrix: &Tensor, first: usize, width: usize) -> Result<Tensor, EmbedError> {
    let values = matrix.to_f32()?;
    let part = values.chunks_exact(matrix.cols()).flat_map(|row| &row[first..first + width]).copied().collect();
    Ok(Tensor::from_f32(matrix.name(), vec![matrix.rows(), width], part))
}

/// Runs the steps on the pooled acts.
pub(crate) fn run_steps(steps: &[Step], cx: &Forward, mut acts: Vec<Act>) -> Vec<Act> {
    for step in steps {
        let act = match step {
            Step::Normalize(norm) => cx.ops.norm(&acts[0], norm),
            Step::Dense { parts, activation, residual } => {
                let mut sum = cx.linear(&acts[0], &parts[0]);
                for (act, part) in acts.iter().zip(parts).skip(1) {
                    sum = cx.linear_add(act, part, sum);
                }
                let out = activation.map_or(sum.clone(), |kind| cx.ops.activation(sum, kind));
                if *residual { cx.ops.add(out, &acts[0]) } else { out }
            }
        };
        acts = vec![act];
    }
    acts
}
