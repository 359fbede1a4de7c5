//! Which number formats exist, and what is known of each? One table, a row a format; everything else derives from it.
//!
//! A format packs `block` consecutive elements of a row into `bytes` bytes. Plain formats (`F32`, `BF16`, …) have
//! blocks of one element. A row of a matrix always is a whole number of blocks.

mod blocks;
mod four_bit;
mod grids;
mod iquants;
mod kquants;
mod legacy;
mod plain;
mod ternary;

use crate::{Result, WeightsError};
use ::safetensors::Dtype;

pub use plain::{bf16_to_f32, f16_to_f32};

/// A number format: the key of a row of [`FORMATS`].
#[allow(non_camel_case_types, missing_docs)] // the formats' own names; the table says what they are
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    F64,
    F32,
    F16,
    BF16,
    F8_E4M3,
    F8_E5M2,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    BOOL,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ1_S,
    IQ1_M,
    IQ2_XXS,
    IQ2_XS,
    IQ2_S,
    IQ3_XXS,
    IQ3_S,
    IQ4_NL,
    IQ4_XS,
    MXFP4,
    NVFP4,
    TQ1_0,
    TQ2_0,
}

/// What is known of one format.
#[derive(Debug)]
pub struct Row {
    /// Which format this is; the table is in the order of the enum.
    pub format: Format,
    /// Its name in messages and, where it has one there, in safetensors headers or in ggml.
    pub name: &'static str,
    /// Its safetensors type, if safetensors knows it.
    pub dtype: Option<Dtype>,
    /// Its id in GGUF tensor tables, if ggml knows it.
    pub ggml: Option<u32>,
    /// Elements in a block.
    pub block: usize,
    /// Bytes in a block.
    pub bytes: usize,
    /// Decodes whole blocks to `f32`. `None`: its values are indices, flags or counts, which `f32` cannot hold.
    pub decode: Option<Decode>,
    /// Encodes whole blocks from `f32`. `None`: this direction is not defined here.
    pub encode: Option<Encoder>,
}

/// Decodes whole blocks: bytes in, one `f32` for each element out.
pub type Decode = fn(&[u8], &mut [f32]);

/// How values are encoded, and which can be.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    /// The largest magnitude that the format can hold, whatever else is in the block.
    pub limit: f32,
    /// Encodes whole blocks of finite values within the limit.
    pub blocks: fn(&[f32], &mut [u8]),
}

/// Every format, in the order of [`Format`].
pub static FORMATS: &[Row] = &[
    plain(Format::F64, "F64", Dtype::F64, 8).ggml(28).decode(plain::decode_f64).encode(f32::MAX, plain::encode_f64),
    plain(Format::F32, "F32", Dtype::F32, 4).ggml(0).decode(plain::decode_f32).encode(f32::MAX, plain::encode_f32),
    plain(Format::F16, "F16", Dtype::F16, 2).ggml(1).decode(plain::decode_f16).encode(F16_MAX, plain::encode_f16),
    plain(Format::BF16, "BF16", Dtype::BF16, 2)
        .ggml(30)
        .decode(plain::decode_bf16)
        .encode(BF16_MAX, plain::encode_bf16),
    plain(Format::F8_E4M3, "F8_E4M3", Dtype::F8_E4M3, 1).decode(plain::decode_f8_e4m3),
    plain(Format::F8_E5M2, "F8_E5M2", Dtype::F8_E5M2, 1).decode(plain::decode_f8_e5m2),
    plain(Format::I8, "I8", Dtype::I8, 1).ggml(24).decode(plain::decode_i8),
    plain(Format::U8, "U8", Dtype::U8, 1).decode(plain::decode_u8),
    plain(Format::I16, "I16", Dtype::I16, 2).ggml(25).decode(plain::decode_i16),
    plain(Format::U16, "U16", Dtype::U16, 2).decode(plain::decode_u16),
    plain(Format::I32, "I32", Dtype::I32, 4).ggml(26),
    plain(Format::U32, "U32", Dtype::U32, 4),
    plain(Format::I64, "I64", Dtype::I64, 8).ggml(27),
    plain(Format::U64, "U64", Dtype::U64, 8),
    plain(Format::BOOL, "BOOL", Dtype::BOOL, 1),
    blocks(Format::Q4_0, "Q4_0", 2, 32, 18, legacy::decode_q4_0).encode(8.0 * F16_MAX, legacy::encode_q4_0),
    blocks(Format::Q4_1, "Q4_1", 3, 32, 20, legacy::decode_q4_1).encode(F16_MAX, legacy::encode_q4_1),
    blocks(Format::Q5_0, "Q5_0", 6, 32, 22, legacy::decode_q5_0).encode(16.0 * F16_MAX, legacy::encode_q5_0),
    blocks(Format::Q5_1, "Q5_1", 7, 32, 24, legacy::decode_q5_1).encode(F16_MAX, legacy::encode_q5_1),
    blocks(Format::Q8_0, "Q8_0", 8, 32, 34, legacy::decode_q8_0).encode(127.0 * F16_MAX, legacy::encode_q8_0),
    blocks(Format::Q2_K, "Q2_K", 10, 256, 84, kquants::decode_q2_k),
    blocks(Format::Q3_K, "Q3_K", 11, 256, 110, kquants::decode_q3_k),
    blocks(Format::Q4_K, "Q4_K", 12, 256, 144, kquants::decode_q4_k),
    blocks(Format::Q5_K, "Q5_K", 13, 256, 176, kquants::decode_q5_k),
    blocks(Format::Q6_K, "Q6_K", 14, 256, 210, kquants::decode_q6_k),
    blocks(Format::IQ1_S, "IQ1_S", 19, 256, 50, iquants::decode_iq1_s),
    blocks(Format::IQ1_M, "IQ1_M", 29, 256, 56, iquants::decode_iq1_m),
    blocks(Format::IQ2_XXS, "IQ2_XXS", 16, 256, 66, iquants::decode_iq2_xxs),
    blocks(Format::IQ2_XS, "IQ2_XS", 17, 256, 74, iquants::decode_iq2_xs),
    blocks(Format::IQ2_S, "IQ2_S", 22, 256, 82, iquants::decode_iq2_s),
    blocks(Format::IQ3_XXS, "IQ3_XXS", 18, 256, 98, iquants::decode_iq3_xxs),
    blocks(Format::IQ3_S, "IQ3_S", 21, 256, 110, iquants::decode_iq3_s),
    blocks(Format::IQ4_NL, "IQ4_NL", 20, 32, 18, four_bit::decode_iq4_nl),
    blocks(Format::IQ4_XS, "IQ4_XS", 23, 256, 136, four_bit::decode_iq4_xs),
    blocks(Format::MXFP4, "MXFP4", 39, 32, 17, four_bit::decode_mxfp4).encode(f32::MAX, four_bit::encode_mxfp4),
    blocks(Format::NVFP4, "NVFP4", 40, 64, 36, four_bit::decode_nvfp4),
    blocks(Format::TQ1_0, "TQ1_0", 34, 256, 54, ternary::decode_tq1_0).encode(F16_MAX, ternary::encode_tq1_0),
    blocks(Format::TQ2_0, "TQ2_0", 35, 256, 66, ternary::decode_tq2_0).encode(F16_MAX, ternary::encode_tq2_0),
];

/// The largest finite half-precision float.
const F16_MAX: f32 = 65504.0;
/// The largest finite bfloat16.
const BF16_MAX: f32 = f32::from_bits(0x7f7f_0000);

/// A row of elements that stand alone, `bytes` each.
const fn plain(format: Format, name: &'static str, dtype: Dtype, bytes: usize) -> Row {
    Row { format, name, dtype: Some(dtype), ggml: None, block: 1, bytes, decode: None, encode: None }
}

/// A row of ggml's, whose blocks hold `block` elements in `bytes` bytes.
const fn blocks(format: Format, name: &'static str, id: u32, block: usize, bytes: usize, decode: Decode) -> Row {
    Row { format, name, dtype: None, ggml: Some(id), block, bytes, decode: Some(decode), encode: None }
}

impl Row {
    const fn ggml(mut self, id: u32) -> Row {
        self.ggml = Some(id);
        self
    }

    const fn decode(mut self, decode: Decode) -> Row {
        self.decode = Some(decode);
        self
    }

    const fn encode(mut self, limit: f32, blocks: fn(&[f32], &mut [u8])) -> Row {
        self.encode = Some(Encoder { limit, blocks });
        self
    }
}

impl Format {
    /// This format's row of the table.
    pub fn row(self) -> &'static Row {
        &FORMATS[self as usize]
    }

    /// Its name, as in [`Row::name`].
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Elements in a block.
    pub fn block(self) -> usize {
        self.row().block
    }

    /// Bytes in a block.
    pub fn block_bytes(self) -> usize {
        self.row().bytes
    }

    /// The format that safetensors headers call `name`.
    pub fn from_safetensors(name: &str) -> Option<Format> {
        FORMATS.iter().find(|row| row.dtype.is_some() && row.name == name).map(|row| row.format)
    }

    /// The format with this id in GGUF tensor tables.
    pub fn from_ggml(id: u32) -> Option<Format> {
        FORMATS.iter().find(|row| row.ggml == Some(id)).map(|row| row.format)
    }

    /// The format of this name, in any case: `q8_0`, `BF16`.
    pub fn from_name(name: &str) -> Option<Format> {
        FORMATS.iter().find(|row| row.name.eq_ignore_ascii_case(name)).map(|row| row.format)
    }

    /// Bytes of a row of `cols` elements; `None` if that is not a whole number of blocks, or overflows.
    pub fn row_bytes(self, cols: usize) -> Option<usize> {
        let row = self.row();
        if cols.is_multiple_of(row.block) { (cols / row.block).checked_mul(row.bytes) } else { None }
    }

    /// Bytes of a tensor of this shape; `None` if its rows are not whole numbers of blocks, or if it overflows.
    pub fn tensor_bytes(self, shape: &[usize]) -> Option<usize> {
        let (&cols, leading) = shape.split_last().unwrap_or((&1, &[]));
        let rows = leading.iter().try_fold(1usize, |rows, &n| rows.checked_mul(n))?;
        rows.checked_mul(cols)?; // elements are counted in usize too
        rows.checked_mul(self.row_bytes(cols)?)
    }

    /// Decodes whole blocks.
    ///
    /// # Errors
    /// [`WeightsError::NotNumbers`], naming `tensor`, where the format's values do not fit `f32`.
    ///
    /// # Panics
    /// If `bytes` and `out` are not the same whole number of blocks.
    pub fn decode(self, tensor: &str, bytes: &[u8], out: &mut [f32]) -> Result<()> {
        let decode = self
            .row()
            .decode
            .ok_or_else(|| WeightsError::NotNumbers { tensor: tensor.to_string(), format: self.name() })?;
        assert_eq!(self.row_bytes(out.len()), Some(bytes.len()), "{tensor}: {} values of {self:?}", out.len());
        decode(bytes, out);
        Ok(())
    }

    /// Encodes a row, or any whole number of blocks. [`Tensor::encode`](crate::Tensor::encode) encodes whole tensors.
    ///
    /// # Errors
    /// [`WeightsError::NoEncoder`] where that is not defined; [`WeightsError::RowWidth`] if `values` are not a whole
    /// number of blocks; [`WeightsError::NotFinite`] for NaN, infinities, and magnitudes that the format cannot hold.
    ///
    /// # Panics
    /// If `out` is not as many blocks as `values`.
    pub fn encode(self, tensor: &str, values: &[f32], out: &mut [u8]) -> Result<()> {
        let Row { name: format, block, encode, .. } = *self.row();
        let tensor = || tensor.to_string();
        let encoder = encode.ok_or_else(|| WeightsError::NoEncoder { tensor: tensor(), format })?;
        let row_width = || WeightsError::RowWidth { tensor: tensor(), format, cols: values.len(), block };
        let bytes = self.row_bytes(values.len()).ok_or_else(row_width)?;
        let limit = encoder.limit;
        if let Some(at) = values.iter().position(|v| v.is_nan() || v.abs() > limit) {
            return Err(WeightsError::NotFinite { tensor: tensor(), format, at, value: values[at], limit });
        }
        assert_eq!(bytes, out.len(), "{}: {} values as {self:?}", tensor(), values.len());
        (encoder.blocks)(values, out);
        Ok(())
    }
}

/// What ggml calls, or once called, a type that is not in the table: no file of weights needs them.
pub(crate) fn refused_ggml(id: u32) -> Option<&'static str> {
    Some(match id {
        4 => "Q4_2",
        5 => "Q4_3",
        9 => "Q8_1",
        15 => "Q8_K",
        31 => "Q4_0_4_4",
        32 => "Q4_0_4_8",
        33 => "Q4_0_8_8",
        36 => "IQ4_NL_4_4",
        37 => "IQ4_NL_4_8",
        38 => "IQ4_NL_8_8",
        41 => "Q1_0",
        _ => return None,
    })
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn table_is_in_the_order_of_the_enum_and_names_are_unique() {
        let mut names = HashSet::new();
        let mut ids = HashSet::new();
        for (i, row) in FORMATS.iter().enumerate() {
            assert_eq!(row.format as usize, i, "{}", row.name);
            assert!(names.insert(row.name), "{}", row.name);
            assert!(row.ggml.is_none_or(|id| ids.insert(id)), "{}", row.name);
            if let Some(dtype) = row.dtype {
                assert_eq!(format!("{dtype}"), row.name);
                assert_eq!(dtype.bitsize(), row.bytes * 8, "{}", row.name);
            }
        }
    }

    #[test]
    fn sizes_that_overflow_are_none() {
        assert_eq!(Format::F32.tensor_bytes(&[1 << 33, 1 << 33]), None);
        assert_eq!(Format::F32.tensor_bytes(&[1 << 62]), None);
        assert_eq!(Format::F32.tensor_bytes(&[]), Some(4));
        assert_eq!(Format::F32.tensor_bytes(&[3, 0, 5]), Some(0));
        assert_eq!(Format::BF16.tensor_bytes(&[3, 5]), Some(30));
    }

    #[test]
    fn encoding_refuses_what_the_format_cannot_hold_by_name() {
        for (format, value) in [
            (Format::F32, f32::NAN),
            (Format::F16, f32::INFINITY),
            (Format::F16, 70000.0),
            (Format::BF16, f32::NEG_INFINITY),
        ] {
            let error =
                format.encode("layers.0.w", &[0.0, value], &mut [0; 8][..2 * format.block_bytes()]).unwrap_err();
            let text = error.to_string();
            assert!(text.contains("layers.0.w") && text.contains("element 1"), "{text}");
        }
        let text = Format::I64.encode("ids", &[1.0], &mut [0; 8]).unwrap_err().to_string();
        assert_eq!(text, "tensor ids: nothing here encodes to I64");
    }

    #[test]
    fn integers_that_f32_cannot_hold_are_not_decoded() {
        let text = Format::I64.decode("position_ids", &[0; 8], &mut [0.0]).unwrap_err().to_string();
        assert_eq!(text, "tensor position_ids holds I64: indices or flags, not weights that can be read as f32");
    }
}
