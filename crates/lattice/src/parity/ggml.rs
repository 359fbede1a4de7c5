//! Block formats: raw blocks to values, values to raw blocks.
//!
//! expected.safetensors holds what goes in and what comes out: `T.blocks` `[blocks, bytes]` become `T.values`
//! `[blocks, values]`; `T.input` `[rows, cols]` becomes `T.bytes` `[rows, bytes]`, and decoded again `T.values`.

use super::case::{Case, Stop};
use super::{Context, Outputs};
use weights::{Checkpoint, Format, Tensor, WeightsError};

pub(crate) fn run(case: &Case, _: &Context) -> Result<Outputs, Stop> {
    let stored = Checkpoint::open(case.dir.join("expected.safetensors")).map_err(Stop::failed)?;
    let mut outputs = Outputs::default();
    for tensor in stored.tensors() {
        let parts = match tensor.name().rsplit_once('.') {
            Some((name, "blocks")) => decode(name, tensor)?,
            Some((name, "input")) => encode(name, tensor)?,
            _ => continue,
        };
        outputs.tensors.extend(parts);
    }
    Ok(outputs)
}

fn format(name: &str) -> Result<Format, Stop> {
    Format::from_name(name).ok_or_else(|| Stop::Refused(format!("format {name} is not in the table of formats")))
}

fn decode(name: &str, blocks: &Tensor) -> Result<Vec<Tensor>, Stop> {
    let format = format(name)?;
    let (rows, bytes) = (blocks.rows(), blocks.cols());
    if blocks.format() != Format::U8 || !bytes.is_multiple_of(format.block_bytes()) {
        let what = format!("{name}.blocks is {:?} {}, expected bytes of whole blocks", blocks.shape(), blocks.format());
        return Err(Stop::Failed(what));
    }
    let shape = vec![rows, bytes / format.block_bytes() * format.block()];
    let values = Tensor::from_bytes(name, shape.clone(), format, blocks.bytes().to_vec()).and_then(|t| t.to_f32());
    let values = values.map_err(Stop::failed)?;
    Ok(vec![blocks.clone(), Tensor::from_f32(&format!("{name}.values"), shape, values)])
}

fn encode(name: &str, input: &Tensor) -> Result<Vec<Tensor>, Stop> {
    let encoded = input.encode(format(name)?).map_err(|error| match error {
        WeightsError::NoEncoder { .. } => Stop::Refused(error.to_string()),
        error => Stop::failed(error),
    })?;
    let bytes = encoded.bytes().to_vec();
    let shape = vec![encoded.rows(), encoded.row_bytes()];
    let bytes = Tensor::from_bytes(&format!("{name}.bytes"), shape, Format::U8, bytes).map_err(Stop::failed)?;
    let values = encoded.to_f32().map_err(Stop::failed)?;
    Ok(vec![bytes, Tensor::from_f32(&format!("{name}.values"), encoded.shape().to_vec(), values)])
}
