//! Sampling: logits through lists of processors.
//!
//! expected.safetensors holds `case{i}.input` `[rows, vocab]`; inputs.json the ids before each row and the processors in
//! order, by the names that transformers gives them. `case{i}.output` is what they leave, −∞ where a token is filtered.

use super::case::{Case, Stop};
use super::{Context, Outputs};
use inference::sampling::{Candidates, History, SamplingParams, Stage};
use serde::Deserialize;
use serde_json::Value;
use weights::{Checkpoint, Tensor};

#[derive(Deserialize)]
struct Inputs {
    cases: Vec<Chain>,
}

#[derive(Deserialize)]
struct Chain {
    history: Vec<Vec<u32>>,
    processors: Vec<(String, Value)>,
}

pub(crate) fn run(case: &Case, _: &Context) -> Result<Outputs, Stop> {
    let stored = Checkpoint::open(case.dir.join("expected.safetensors")).map_err(Stop::failed)?;
    let inputs: Inputs = case.inputs()?;
    let mut outputs = Outputs::default();
    for (i, chain) in inputs.cases.iter().enumerate() {
        let stages = chain.processors.iter().map(stage).collect::<Result<Vec<_>, _>>()?;
        let name = format!("case{i}.input");
        let input = stored.find(&name).ok_or_else(|| Stop::Failed(format!("expected.safetensors has no {name}")))?;
        let mut values = input.to_f32().map_err(Stop::failed)?;
        let wrong = |what: &str| Stop::Failed(format!("{name} {what}"));
        if input.shape().len() != 2 || input.cols() == 0 || chain.history.len() != input.rows() {
            return Err(wrong("is not [rows, vocab] with a history for each row"));
        }
        if values.iter().any(|&x| x.is_nan() || x == f32::INFINITY) {
            return Err(wrong("holds NaN or infinity"));
        }
        for (row, ids) in values.chunks_mut(input.cols()).zip(&chain.history) {
            // Every penalty looks at the whole history here.
            let history = History { prompt: &[], generated: ids };
            let mut candidates = Candidates::new(row);
            stages.iter().for_each(|stage| candidates.apply(stage, history));
            let left = candidates.row();
            row.copy_from_slice(&left);
        }
        outputs.tensors.push(input.clone());
        outputs.tensors.push(Tensor::from_f32(&format!("case{i}.output"), input.shape().to_vec(), values));
    }
    Ok(outputs)
}

/// The stage of a processor's name, its value in the range that users are held to.
fn stage((name, value): &(String, Value)) -> Result<Stage<'static>, Stop> {
    let wrong = || Stop::Failed(format!("inputs.json: {value} is no value of {name}"));
    let number = |value: &Value| value.as_f64().ok_or_else(wrong);
    let mut params = SamplingParams::default();
    let stage = match name.as_str() {
        "temperature" => {
            params.temperature = number(value)?;
            Stage::Temperature(params.temperature)
        }
        "top_k" => Stage::TopK(value.as_u64().filter(|&k| k > 0).ok_or_else(wrong)? as usize),
        "top_p" => {
            params.top_p = number(value)?;
            Stage::TopP(params.top_p)
        }
        "min_p" => {
            params.min_p = number(value)?;
            Stage::MinP(params.min_p)
        }
        "typical_p" => {
            params.typical_p = number(value)?;
            Stage::TypicalP(params.typical_p)
        }
        "repetition_penalty" => {
            params.repetition_penalty = number(value)?;
            Stage::Repetition(params.repetition_penalty)
        }
        "presence_frequency" => {
            let Some([presence, frequency]) = value.as_array().map(Vec::as_slice) else { return Err(wrong()) };
            params.presence_penalty = number(presence)?;
            params.frequency_penalty = number(frequency)?;
            Stage::Penalties { presence: params.presence_penalty, frequency: params.frequency_penalty }
        }
        _ => return Err(Stop::Refused(format!("processor {name} is not built"))),
    };
    params.check().map_err(Stop::failed)?;
    match params.is_greedy() {
        true => Err(wrong()),
        false => Ok(stage),
    }
}
