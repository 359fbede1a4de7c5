//! How is a config.json drafted from the keys of an architecture? Typed reads of them, bounded by named constants, with
//! errors that name the key, what stands there and what could stand there.

use super::architectures::Architecture;
use super::config::Sizes;
use super::metadata::{Metadata, Numbers, Value as Meta};
use super::{MAX_BLOCKS, field};
use crate::{Checkpoint, Result, Tensor, WeightsError};
use serde_json::{Map, Value};

/// The largest number of features, of positions, or of anything else that a key counts.
pub const MAX_SIZE: usize = 1 << 24;
/// The most attention heads of a layer.
pub const MAX_HEADS: usize = 1 << 12;
/// The most experts of a layer.
pub const MAX_EXPERTS: usize = 1 << 12;

/// A config.json in the making, and what the tensors' reordering needs of it.
pub(super) struct Draft<'a> {
    pub(super) arch: &'static Architecture,
    pub(super) metadata: &'a Metadata,
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) map: Map<String, Value>,
    pub(super) sizes: Sizes,
}

/// Typed, bounded reads of the architecture's keys.
impl Draft<'_> {
    pub(super) fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.map.insert(key.into(), value.into());
    }

    pub(super) fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.arch.name)
    }

    pub(super) fn value(&self, key: &str) -> Option<&Meta> {
        self.metadata.value(&self.key(key))
    }

    pub(super) fn has(&self, tensor: &str) -> bool {
        self.checkpoint.contains(tensor)
    }

    pub(super) fn tensor(&self, name: &str) -> Result<Tensor> {
        self.checkpoint.get(name)
    }

    /// A count up to `limit`; absent and 0 are the same.
    pub(super) fn size(&self, key: &str, limit: usize) -> Result<Option<usize>> {
        let key = self.key(key);
        let Some(got) = self.metadata.find::<u64>(&key)? else { return Ok(None) };
        if got > limit as u64 {
            return Err(WeightsError::GgufBound { field: key, got, limit: limit as u64 });
        }
        Ok(Some(got as usize).filter(|got| *got > 0))
    }

    /// A count from 1 to `limit`.
    pub(super) fn need(&self, key: &str, limit: usize) -> Result<usize> {
        self.size(key, limit)?.ok_or_else(|| self.other(key, format!("a number from 1 to {limit}")))
    }

    /// A count for each layer, from one for all or a list.
    pub(super) fn per_layer(&self, key: &str, limit: usize) -> Result<Option<Vec<usize>>> {
        let layers = self.sizes.layers;
        if !matches!(self.value(key), Some(Meta::Numbers(_))) {
            return Ok(self.size(key, limit)?.map(|count| vec![count; layers]));
        }
        let counts = self.counts(key)?.unwrap_or_default();
        if counts.len() < layers || counts.iter().take(layers).any(|count| *count == 0 || *count > limit) {
            return Err(self.other(key, format!("{layers} numbers from 1 to {limit}")));
        }
        Ok(Some(counts.into_iter().take(layers).collect()))
    }

    pub(super) fn find_uniform(&self, key: &str, limit: usize) -> Result<Option<usize>> {
        let Some(counts) = self.per_layer(key, limit)? else { return Ok(None) };
        let first = counts[0]; // there is a layer
        let uniform = counts.iter().all(|count| *count == first);
        if uniform { Ok(Some(first)) } else { Err(self.other(key, "the same number for every layer")) }
    }

    pub(super) fn uniform(&self, key: &str, limit: usize) -> Result<usize> {
        self.find_uniform(key, limit)?.ok_or_else(|| self.other(key, format!("a number from 1 to {limit}")))
    }

    pub(super) fn counts(&self, key: &str) -> Result<Option<Vec<usize>>> {
        let Some(list) = self.metadata.find::<&Numbers>(&self.key(key))? else { return Ok(None) };
        let count = |value: Meta| match value {
            Meta::Unsigned(v) => v.try_into().ok(),
            Meta::Signed(v) => v.try_into().ok(),
            _ => None,
        };
        let counts: Option<Vec<usize>> = list.iter().take(MAX_BLOCKS as usize).map(count).collect();
        counts.map(Some).ok_or_else(|| self.other(key, "a list of counts"))
    }

    /// A flag for each layer.
    pub(super) fn flags(&self, key: &str) -> Result<Option<Vec<bool>>> {
        let Some(list) = self.metadata.find::<&Numbers>(&self.key(key))? else { return Ok(None) };
        let flag = |value: Meta| match value {
            Meta::Bool(flag) => Some(flag),
            Meta::Unsigned(v @ 0..=1) => Some(v == 1),
            Meta::Signed(v @ 0..=1) => Some(v == 1),
            _ => None,
        };
        let flags: Option<Vec<bool>> = list.iter().take(self.sizes.layers).map(flag).collect();
        let flags = flags.filter(|flags| flags.len() == self.sizes.layers);
        flags.map(Some).ok_or_else(|| self.other(key, format!("{} flags, one for each layer", self.sizes.layers)))
    }

    /// A positive number.
    pub(super) fn float(&self, key: &str) -> Result<Option<f64>> {
        let Some(value) = self.metadata.find::<f64>(&self.key(key))? else { return Ok(None) };
        let ok = value > 0.0 && value <= f64::from(f32::MAX);
        if ok { Ok(Some(decimal(value))) } else { Err(self.other(key, "a positive number")) }
    }

    /// Refuses another number than the one that is built.
    pub(super) fn only_float(&self, key: &str, built: impl Fn(&Self) -> f64) -> Result<()> {
        let (Some(got), built) = (self.metadata.find::<f64>(&self.key(key))?, built(self)) else { return Ok(()) };
        if (got - built).abs() <= 1e-6 * built || got == 0.0 {
            return Ok(());
        }
        Err(self.other(key, format!("{built}, or nothing")))
    }

    /// Refuses an option that is not built, unless it is absent, 0 or false.
    pub(super) fn only_absent(&self, key: &str) -> Result<()> {
        match self.value(key) {
            None | Some(Meta::Unsigned(0) | Meta::Signed(0) | Meta::Bool(false)) => Ok(()),
            Some(Meta::Float(v)) if *v == 0.0 => Ok(()),
            Some(_) => Err(self.other(key, "nothing: models with it are not built")),
        }
    }

    pub(super) fn other(&self, key: &str, expected: impl Into<String>) -> WeightsError {
        let got = self.value(key).map_or("missing".to_string(), Meta::to_string);
        field(self.key(key), got, expected)
    }

    pub(super) fn shape_fault(&self, name: &str, expected: &str) -> WeightsError {
        match self.checkpoint.find(name) {
            Some(tensor) => super::hugging_face::misfit(&tensor, expected),
            None => self.tensor(name).expect_err("it was not found"),
        }
    }
}

/// The shortest decimal of a number that came from 32 bits.
pub(super) fn decimal(value: f64) -> f64 {
    let short = value as f32;
    if f64::from(short) == value { short.to_string().parse().unwrap_or(value) } else { value }
}
