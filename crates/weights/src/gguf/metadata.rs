//! What does the metadata of a GGUF file say? Values by key, asked for by the type that is needed.

use super::reader::Reader;
use crate::{Result, WeightsError};
use std::collections::BTreeMap;
use std::fmt;

/// The values of a GGUF file by key.
#[derive(Clone, Debug, Default)]
pub struct Metadata(BTreeMap<String, Value>);

/// One value. Integers and floats of all widths are kept as their widest.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An unsigned integer.
    Unsigned(u64),
    /// A signed integer.
    Signed(i64),
    /// A float.
    Float(f64),
    /// A flag.
    Bool(bool),
    /// A text.
    Text(String),
    /// A list of texts.
    Strings(Strings),
    /// A list of numbers or flags.
    Numbers(Numbers),
}

/// A list of texts, in one piece of memory.
#[derive(Clone, Default, PartialEq)]
pub struct Strings {
    text: String,
    ends: Vec<usize>,
}

/// A list of numbers or flags, in the width that the file has.
#[derive(Clone, PartialEq)]
pub struct Numbers {
    scalar: Scalar,
    bytes: Vec<u8>,
}

/// A type of one value other than text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scalar {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    U64,
    I64,
    F64,
}

const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// A type in which a metadata value can be asked for.
pub trait FromValue<'a>: Sized {
    /// What it is called in messages.
    const EXPECTED: &'static str;
    /// The value as this type, if it is one.
    fn from_value(value: &'a Value) -> Option<Self>;
}

impl Metadata {
    /// The value of `key` as a `T`: an integer or float type, `bool`, `&str`, `&Strings`,
    /// `&Numbers`, `Vec<i64>` or `Vec<f32>`.
    ///
    /// # Errors
    /// [`WeightsError::GgufKey`] if there is none, [`WeightsError::GgufField`] if it is of another type or does not fit.
    pub fn get<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T> {
        self.find(key)?.ok_or_else(|| WeightsError::GgufKey { key: key.to_string(), expected: T::EXPECTED })
    }

    /// The value of `key` as a `T`, if there is one.
    ///
    /// # Errors
    /// [`WeightsError::GgufField`] if it is of another type or does not fit.
    pub fn find<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>> {
        let Some(value) = self.0.get(key) else { return Ok(None) };
        let other =
            || WeightsError::GgufField { field: key.into(), got: value.to_string(), expected: T::EXPECTED.into() };
        T::from_value(value).map(Some).ok_or_else(other)
    }

    /// The value of `key`, whatever it is.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// All values, sorted by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The architecture: `llama`, `qwen3`, … It is the first part of the keys that describe the model.
    ///
    /// # Errors
    /// As [`Metadata::get`].
    pub fn architecture(&self) -> Result<&str> {
        self.get("general.architecture")
    }

    pub(super) fn insert(&mut self, key: String, value: Value) -> Result<()> {
        match self.0.insert(key.clone(), value) {
            None => Ok(()),
            Some(_) => Err(WeightsError::GgufField {
                field: "metadata key".into(),
                got: key,
                expected: "a key that does not stand there twice".into(),
            }),
        }
    }
}

/// Reads the value of `key`: its type, then what the type says.
pub(super) fn read_value(r: &mut Reader, key: &str) -> Result<Value> {
    let kind = r.u32(|| format!("type of {key}"))?;
    match kind {
        STRING => Ok(Value::Text(r.string(u64::MAX, || key.into())?.to_string())),
        ARRAY => read_array(r, key),
        _ => {
            let scalar = Scalar::from_id(kind, || format!("type of {key}"))?;
            scalar.value(r.take(scalar.bytes(), || key.into())?, key)
        }
    }
}

fn read_array(r: &mut Reader, key: &str) -> Result<Value> {
    let field = || format!("type of the elements of {key}");
    let kind = r.u32(field)?;
    let length = format!("length of {key}");
    if kind == STRING {
        let count = r.count(&length, u64::MAX, 8)?;
        let mut strings = Strings { text: String::new(), ends: Vec::with_capacity(count) };
        for i in 0..count {
            strings.text.push_str(r.string(u64::MAX, || format!("element {i} of {key}"))?);
            strings.ends.push(strings.text.len());
        }
        return Ok(Value::Strings(strings));
    }
    let scalar = Scalar::from_id(kind, field)?;
    let count = r.count(&length, u64::MAX, scalar.bytes())?;
    let bytes = r.take(count as u64 * scalar.bytes(), || key.into())?.to_vec(); // count was checked to fit
    let numbers = Numbers { scalar, bytes };
    if scalar == Scalar::Bool {
        numbers.bytes.iter().try_for_each(|b| scalar.value(&[*b], key).map(|_| ()))?;
    }
    Ok(Value::Numbers(numbers))
}

impl Scalar {
    fn from_id(id: u32, field: impl Fn() -> String) -> Result<Scalar> {
        use Scalar::*;
        Ok(match id {
            0 => U8,
            1 => I8,
            2 => U16,
            3 => I16,
            4 => U32,
            5 => I32,
            6 => F32,
            7 => Bool,
            10 => U64,
            11 => I64,
            12 => F64,
            _ => {
                let got = if id == ARRAY { "an array in an array".into() } else { id.to_string() };
                let expected = "a metadata type (0 to 12; arrays hold numbers, flags or strings)".into();
                return Err(WeightsError::GgufField { field: field(), got, expected });
            }
        })
    }

    fn bytes(self) -> u64 {
        match self {
            Scalar::U8 | Scalar::I8 | Scalar::Bool => 1,
            Scalar::U16 | Scalar::I16 => 2,
            Scalar::U32 | Scalar::I32 | Scalar::F32 => 4,
            Scalar::U64 | Scalar::I64 | Scalar::F64 => 8,
        }
    }

    /// The value of [`Scalar::bytes`] bytes.
    fn value(self, bytes: &[u8], key: &str) -> Result<Value> {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(wide);
        Ok(match self {
            Scalar::U8 | Scalar::U16 | Scalar::U32 | Scalar::U64 => Value::Unsigned(bits),
            Scalar::I8 => Value::Signed((bits as i8).into()),
            Scalar::I16 => Value::Signed((bits as i16).into()),
            Scalar::I32 => Value::Signed((bits as i32).into()),
            Scalar::I64 => Value::Signed(bits as i64),
            Scalar::F32 => Value::Float(f32::from_bits(bits as u32).into()),
            Scalar::F64 => Value::Float(f64::from_bits(bits)),
            Scalar::Bool if bits < 2 => Value::Bool(bits == 1),
            Scalar::Bool => {
                let expected = "a flag, 0 or 1".into();
                return Err(WeightsError::GgufField { field: key.into(), got: bits.to_string(), expected });
            }
        })
    }
}

impl Strings {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Text number `i`.
    pub fn get(&self, i: usize) -> Option<&str> {
        let end = *self.ends.get(i)?;
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        Some(&self.text[start..end])
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len()).map(|i| self.get(i).expect("within the length"))
    }
}

impl Numbers {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.scalar.bytes() as usize
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Value> {
        let values = self.bytes.chunks_exact(self.scalar.bytes() as usize);
        values.map(|bytes| self.scalar.value(bytes, "").expect("flags were checked when read"))
    }
}

impl fmt::Debug for Strings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} strings", self.len())
    }
}

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {:?}", self.len(), self.scalar)
    }
}

/// As `inspect` prints it: long texts and lists are shortened.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unsigned(v) => v.fmt(f),
            Value::Signed(v) => v.fmt(f),
            Value::Float(v) => v.fmt(f),
            Value::Bool(v) => v.fmt(f),
            Value::Text(v) if v.chars().count() > 80 => {
                write!(f, "{:?}… ({} bytes)", v.chars().take(80).collect::<String>(), v.len())
            }
            Value::Text(v) => write!(f, "{v:?}"),
            Value::Strings(v) => write!(f, "a list of {v:?}"),
            Value::Numbers(v) => write!(f, "a list of {v:?}"),
        }
    }
}

macro_rules! integers {
    ($($t:ty: $expected:literal),+) => {$(
        impl FromValue<'_> for $t {
            const EXPECTED: &'static str = $expected;
            fn from_value(value: &Value) -> Option<$t> {
                match value {
                    Value::Unsigned(v) => (*v).try_into().ok(),
                    Value::Signed(v) => (*v).try_into().ok(),
                    _ => None,
                }
            }
        }
    )+};
}
integers!(u32: "an unsigned 32-bit integer", u64: "an unsigned integer", usize: "an unsigned integer", i64: "an integer");

impl FromValue<'_> for f64 {
    const EXPECTED: &'static str = "a float";
    fn from_value(value: &Value) -> Option<f64> {
        if let Value::Float(v) = value { Some(*v) } else { None }
    }
}

impl FromValue<'_> for f32 {
    const EXPECTED: &'static str = "a float";
    fn from_value(value: &Value) -> Option<f32> {
        f64::from_value(value).map(|v| v as f32)
    }
}

impl FromValue<'_> for bool {
    const EXPECTED: &'static str = "a flag";
    fn from_value(value: &Value) -> Option<bool> {
        if let Value::Bool(v) = value { Some(*v) } else { None }
    }
}

impl<'a> FromValue<'a> for &'a str {
    const EXPECTED: &'static str = "a text";
    fn from_value(value: &'a Value) -> Option<&'a str> {
        if let Value::Text(v) = value { Some(v) } else { None }
    }
}

impl<'a> FromValue<'a> for &'a Strings {
    const EXPECTED: &'static str = "a list of texts";
    fn from_value(value: &'a Value) -> Option<&'a Strings> {
        if let Value::Strings(v) = value { Some(v) } else { None }
    }
}

impl<'a> FromValue<'a> for &'a Numbers {
    const EXPECTED: &'static str = "a list of numbers or flags";
    fn from_value(value: &'a Value) -> Option<&'a Numbers> {
        if let Value::Numbers(v) = value { Some(v) } else { None }
    }
}

impl FromValue<'_> for Vec<i64> {
    const EXPECTED: &'static str = "a list of integers";
    fn from_value(value: &Value) -> Option<Vec<i64>> {
        let Value::Numbers(v) = value else { return None };
        v.iter().map(|v| i64::from_value(&v)).collect()
    }
}

impl FromValue<'_> for Vec<f32> {
    const EXPECTED: &'static str = "a list of floats";
    fn from_value(value: &Value) -> Option<Vec<f32>> {
        let Value::Numbers(v) = value else { return None };
        v.iter().map(|v| f32::from_value(&v)).collect()
    }
}
