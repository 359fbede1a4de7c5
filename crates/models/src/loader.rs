//! How do a checkpoint's tensors become a model's parameters? By name, with every shape checked, and uploaded.
//!
//! A [`Loader`] stands at a place in the tree of names, as modules do in the reference implementations: the root, the
//! trunk (whatever prefix it was saved under), or a layer. It remembers which tensors were asked for.

use crate::config::Config;
use crate::error::{ModelError, Result};
use ops::{Key, Linear, Norm, NormKind, Ops, Table, Vector};
use std::cell::RefCell;
use std::collections::BTreeSet;
use weights::{Checkpoint, Tensor};

/// Does a layer have a bias vector?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bias {
    /// It must.
    Yes,
    /// It must not be looked for.
    No,
}

impl From<bool> for Bias {
    fn from(yes: bool) -> Bias {
        if yes { Bias::Yes } else { Bias::No }
    }
}

/// Finds, checks and uploads the parameters below one place in a checkpoint's tree of names.
pub struct Loader<'a> {
    config: &'a Config,
    checkpoint: &'a Checkpoint,
    ops: &'a dyn Ops,
    used: &'a RefCell<BTreeSet<String>>,
    prefix: String,
    layer: Option<u32>,
}

impl<'a> Loader<'a> {
    /// A loader at the root of the names; those that are asked for are added to `used`.
    pub fn new(
        config: &'a Config,
        checkpoint: &'a Checkpoint,
        ops: &'a dyn Ops,
        used: &'a RefCell<BTreeSet<String>>,
    ) -> Loader<'a> {
        Loader { config, checkpoint, ops, used, prefix: String::new(), layer: None }
    }

    fn at(&self, prefix: String, layer: Option<u32>) -> Loader<'a> {
        Loader { prefix, layer, ..*self }
    }

    /// The trunk: the place below which `name` is, with or without a prefix such as `bert.` or `model.`.
    ///
    /// # Errors
    /// [`ModelError::Trunk`] unless there is exactly one.
    pub fn trunk(&self, name: &'static str) -> Result<Loader<'a>> {
        let prefix = |full: &'a str| full.strip_suffix(name).filter(|p| p.is_empty() || p.ends_with('.'));
        let prefixes: Vec<&str> = self.checkpoint.names().filter_map(prefix).collect();
        match prefixes[..] {
            [one] => Ok(self.at(one.to_owned(), None)),
            _ => Err(ModelError::Trunk { name, found: prefixes.len() }),
        }
    }

    /// Layer `index` of the list `name`.
    pub fn layer(&self, name: &str, index: usize) -> Loader<'a> {
        self.at(format!("{}{name}.{index}.", self.prefix), Some(index as u32))
    }

    /// A tensor of exactly this shape.
    ///
    /// # Errors
    /// [`ModelError::Weights`] if there is none of this name, [`ModelError::Shape`].
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let full = format!("{}{name}", self.prefix);
        let tensor = self.checkpoint.get(&full)?;
        if tensor.shape() != shape {
            let (got, expected) = (tensor.shape().to_vec(), shape.to_vec());
            return Err(ModelError::Shape { hint: self.hint(&got, &expected), tensor: full, got, expected });
        }
        self.used.borrow_mut().insert(full);
        Ok(tensor)
    }

    /// Which keys of config.json the first dimension that differs may come from.
    fn hint(&self, got: &[usize], expected: &[usize]) -> String {
        let differs = expected.iter().zip(got).find(|(e, g)| e != g).map(|(e, _)| *e);
        let keys = differs.map(|size| self.config.keys_of(size).join(" or ")).unwrap_or_default();
        if keys.is_empty() { "the architecture".into() } else { keys }
    }

    /// `name.weight [outputs, inputs]` and perhaps `name.bias [outputs]`.
    pub fn linear(&self, name: &'static str, outputs: usize, inputs: usize, bias: Bias) -> Result<Linear> {
        let [linear] = self.stacked(name, [name], outputs, inputs, bias)?;
        Ok(linear)
    }

    /// Equal parts, one below the other in `name.weight [N · outputs, inputs]`, as layers of their own. `keys` name them.
    pub fn stacked<const N: usize>(
        &self,
        name: &str,
        keys: [&'static str; N],
        outputs: usize,
        inputs: usize,
        bias: Bias,
    ) -> Result<[Linear; N]> {
        let weight = self.tensor(&format!("{name}.weight"), &[N * outputs, inputs])?;
        let bias = match bias {
            Bias::Yes => Some(self.tensor(&format!("{name}.bias"), &[N * outputs])?),
            Bias::No => None,
        };
        let mut linears = Vec::with_capacity(N);
        for (i, name) in keys.into_iter().enumerate() {
            let rows = i * outputs..(i + 1) * outputs;
            let bias =
                bias.as_ref().map(|b| Ok::<_, ModelError>(self.ops.upload_vector(&b.slice_rows(rows.clone())?)?));
            linears.push(Linear {
                weight: self.ops.upload_matrix(&weight.slice_rows(rows.clone())?)?,
                bias: bias.transpose()?,
                inputs,
                outputs,
                key: Key { layer: self.layer, name },
            });
        }
        weight.release();
        Ok(linears.try_into().expect("N keys make N layers"))
    }

    /// LayerNorm over `width` features: `name.weight` and perhaps `name.bias`, in old checkpoints `gamma` and `beta`.
    pub fn layer_norm(&self, name: &str, width: usize, eps: f64, bias: Bias) -> Result<Norm> {
        let old = self.checkpoint.contains(&format!("{}{name}.gamma", self.prefix));
        let (gamma, beta) = if old { ("gamma", "beta") } else { ("weight", "bias") };
        let bias = match bias {
            Bias::Yes => Some(self.vector(&format!("{name}.{beta}"), width)?),
            Bias::No => None,
        };
        let weight = self.vector(&format!("{name}.{gamma}"), width)?;
        Ok(Norm { kind: NormKind::Layer, weight, bias, eps: eps as f32 })
    }

    /// The embedding table `name [rows, cols]`.
    pub fn table(&self, name: &str, rows: usize, cols: usize) -> Result<Table> {
        Ok(self.ops.upload_table(&self.tensor(name, &[rows, cols])?)?)
    }

    /// The parameter vector `name [len]`.
    pub fn vector(&self, name: &str, len: usize) -> Result<Vector> {
        Ok(self.ops.upload_vector(&self.tensor(name, &[len])?)?)
    }

    /// A parameter vector that was computed from the checkpoint's.
    pub fn computed(&self, name: &str, values: Vec<f32>) -> Result<Vector> {
        Ok(self.ops.upload_vector(&Tensor::from_f32(name, vec![values.len()], values))?)
    }
}
