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
    generates: bool,
    prefix: String,
    layer: Option<u32>,
}

impl<'a> Loader<'a> {
    /// A loader at the root of the names; those that are asked for are added to `used`. `generates` says whether the head
    /// of a language model is wanted.
    pub fn new(
        config: &'a Config,
        checkpoint: &'a Checkpoint,
        ops: &'a dyn Ops,
        used: &'a RefCell<BTreeSet<String>>,
        generates: bool,
    ) -> Loader<'a> {
        Loader { config, checkpoint, ops, used, generates, prefix: String::new(), layer: None }
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

    /// The same place, for hints out of another part of config.json.
    pub fn under<'b>(&self, config: &'b Config) -> Loader<'b>
    where
        'a: 'b,
    {
        Loader { config, ..self.at(self.prefix.clone(), self.layer) }
    }

    /// Is the head of a language model wanted?
    pub fn generates(&self) -> bool {
        self.generates
    }

    /// Is there a tensor of this name?
    pub fn contains(&self, name: &str) -> bool {
        self.checkpoint.contains(&format!("{}{name}", self.prefix))
    }

    /// Layer `index` of the list `name`.
    pub fn layer(&self, name: &str, index: usize) -> Loader<'a> {
        self.at(format!("{}{name}.{index}.", self.prefix), Some(index as u32))
    }

    /// Item `index` of the list `name` inside of a layer.
    pub fn item(&self, name: &str, index: usize) -> Loader<'a> {
        self.at(format!("{}{name}.{index}.", self.prefix), self.layer)
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
        let parts = |tensor: Tensor| (0..N).map(|i| Ok(tensor.slice_rows(i * outputs..(i + 1) * outputs)?)).collect();
        self.split(name, keys, outputs, inputs, bias, parts)
    }

    /// As [`Loader::stacked`], where each head's rows of the one part are followed by its rows of the next.
    pub fn interleaved<const N: usize>(
        &self,
        name: &str,
        keys: [&'static str; N],
        heads: usize,
        head_dim: usize,
        inputs: usize,
        bias: Bias,
    ) -> Result<[Linear; N]> {
        let parts = |tensor: Tensor| (0..N).map(|i| every_nth(&tensor, head_dim, i, N)).collect();
        self.split(name, keys, heads * head_dim, inputs, bias, parts)
    }

    fn split<const N: usize>(
        &self,
        name: &str,
        keys: [&'static str; N],
        outputs: usize,
        inputs: usize,
        bias: Bias,
        parts: impl Fn(Tensor) -> Result<Vec<Tensor>>,
    ) -> Result<[Linear; N]> {
        let weight = self.tensor(&format!("{name}.weight"), &[N * outputs, inputs])?;
        let mut biases = match bias {
            Bias::Yes => parts(self.tensor(&format!("{name}.bias"), &[N * outputs])?)?,
            Bias::No => Vec::new(),
        }
        .into_iter();
        let mut linears = Vec::with_capacity(N);
        for (part, name) in parts(weight.clone())?.iter().zip(keys) {
            linears.push(self.uploaded(name, part, biases.next().as_ref())?);
        }
        Ok(linears.try_into().expect("N keys make N layers"))
    }

    /// A layer `[outputs, inputs]` of tensors that were found and checked.
    fn uploaded(&self, name: &'static str, weight: &Tensor, bias: Option<&Tensor>) -> Result<Linear> {
        Ok(Linear {
            weight: self.ops.upload_matrix(weight, !self.generates)?,
            bias: bias.map(|bias| self.ops.upload_vector(bias)).transpose()?,
            inputs: weight.cols(),
            outputs: weight.rows(),
            key: Key { layer: self.layer, name },
        })
    }

    /// As [`Loader::stacked`], any number of parts under the name of the whole.
    pub fn parts(&self, name: &'static str, parts: usize, outputs: usize, inputs: usize) -> Result<Vec<Linear>> {
        let weight = self.tensor(&format!("{name}.weight"), &[parts * outputs, inputs])?;
        let part = |i: usize| self.uploaded(name, &weight.slice_rows(i * outputs..(i + 1) * outputs)?, None);
        (0..parts).map(part).collect()
    }

    /// The layers of every expert in `name.weight [experts, N · outputs, inputs]` (as whole tensors are called that are
    /// parameters of their own: without `.weight`), one below the other.
    pub fn experts<const N: usize>(
        &self,
        name: &str,
        keys: [&'static str; N],
        experts: usize,
        outputs: usize,
        inputs: usize,
    ) -> Result<Vec<[Linear; N]>> {
        let all = self.tensor(name, &[experts, N * outputs, inputs])?;
        let mut linears = Vec::with_capacity(experts);
        for expert in 0..experts {
            let one = all.slice_rows(expert..expert + 1)?.reshape(vec![N * outputs, inputs])?;
            let mut parts = Vec::with_capacity(N);
            for (i, name) in keys.into_iter().enumerate() {
                parts.push(self.uploaded(name, &one.slice_rows(i * outputs..(i + 1) * outputs)?, None)?);
            }
            linears.push(parts.try_into().expect("N keys make N layers"));
        }
        Ok(linears)
    }

    /// A layer without bias whose weight is the table `name [outputs, inputs]`.
    pub fn tied(&self, name: &'static str, outputs: usize, inputs: usize) -> Result<Linear> {
        self.uploaded(name, &self.tensor(name, &[outputs, inputs])?, None)
    }

    /// A layer without bias that was computed: `values [outputs, inputs]`.
    pub fn computed_linear(&self, name: &'static str, outputs: usize, values: Vec<f32>) -> Result<Linear> {
        let inputs = values.len() / outputs;
        self.uploaded(name, &Tensor::from_f32(name, vec![outputs, inputs], values), None)
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

    /// RMSNorm over `width` features, `name.weight + offset`: families that store the weight less one have an offset of 1.
    pub fn rms_norm(&self, name: &str, width: usize, eps: f64, offset: f32) -> Result<Norm> {
        let name = format!("{name}.weight");
        let weight = if offset == 0.0 {
            self.vector(&name, width)?
        } else {
            let stored = self.tensor(&name, &[width])?.to_f32()?;
            self.computed(&name, stored.into_iter().map(|w| w + offset).collect())?
        };
        Ok(Norm { kind: NormKind::Rms, weight, bias: None, eps: eps as f32 })
    }

    /// The embedding table `name [rows, cols]`.
    pub fn table(&self, name: &str, rows: usize, cols: usize) -> Result<Table> {
        Ok(self.ops.upload_table(&self.tensor(name, &[rows, cols])?)?)
    }

    /// The table `name [rows, parts · cols]` with each part of a row as a row: `[rows · parts, cols]`.
    pub fn split_table(&self, name: &str, rows: usize, parts: usize, cols: usize) -> Result<Table> {
        let whole = self.tensor(name, &[rows, parts * cols])?;
        Ok(self.ops.upload_table(&whole.reshape(vec![rows * parts, cols])?)?)
    }

    /// The parameter vector `name [len]`.
    pub fn vector(&self, name: &str, len: usize) -> Result<Vector> {
        self.flat(name, &[len])
    }

    /// The parameters `name` of this shape as one vector.
    pub fn flat(&self, name: &str, shape: &[usize]) -> Result<Vector> {
        Ok(self.ops.upload_vector(&self.tensor(name, shape)?)?)
    }

    /// A parameter vector that was computed from the checkpoint's.
    pub fn computed(&self, name: &str, values: Vec<f32>) -> Result<Vector> {
        Ok(self.ops.upload_vector(&Tensor::from_f32(name, vec![values.len()], values))?)
    }
}

/// Part `which` of `n` of every run of `n · rows` rows, as one tensor.
fn every_nth(tensor: &Tensor, rows: usize, which: usize, n: usize) -> Result<Tensor> {
    let runs = 0..tensor.shape()[0] / (n * rows);
    let picked: Vec<usize> = runs.flat_map(|run| (run * n + which) * rows..(run * n + which + 1) * rows).collect();
    Ok(tensor.gather_rows(&picked)?)
}
