//! The input of the first layer: words, positions and token types, summed and normalised.

use crate::batch::Batch;
use crate::model::Forward;
use ops::{Act, Norm, Table};

/// Tables whose rows are summed; families without learned positions or without token types lack those.
pub struct Embeddings {
    /// `[vocab, hidden]`.
    pub words: Table,
    /// `[token types, hidden]`.
    pub types: Option<Table>,
    /// `[positions, hidden]`.
    pub positions: Option<Table>,
    /// Over the sum.
    pub norm: Norm,
}

impl Embeddings {
    /// `[tokens, hidden]`; `positions` are rows of the position table.
    pub fn forward(&self, cx: &Forward, positions: &[u32]) -> Act {
        let mut x = cx.embed(&self.words);
        if let Some(table) = &self.types {
            let zeros;
            let types = if cx.batch.types.is_empty() {
                zeros = vec![0; cx.batch.tokens()];
                &zeros
            } else {
                &cx.batch.types
            };
            x = cx.ops.add(x, &cx.ops.embed(table, types));
        }
        if let Some(table) = &self.positions {
            x = cx.ops.add(x, &cx.ops.embed(table, positions));
        }
        cx.ops.norm(&x, &self.norm)
    }
}

/// Positions as RoBERTa and MPNet count them: tokens other than padding from `padding + 1`, padding stays at `padding`
/// (`create_position_ids_from_input_ids` in Hugging Face's classes).
pub fn positions_after_padding(batch: &Batch, padding: u32) -> Vec<u32> {
    let mut positions = Vec::with_capacity(batch.tokens());
    for span in &batch.spans {
        let mut last = padding;
        positions.extend(batch.ids[span.range()].iter().map(|&id| {
            if id == padding {
                padding
            } else {
                last += 1;
                last
            }
        }));
    }
    positions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_inside_a_text_keeps_its_place_and_is_not_counted() {
        let batch = Batch::new(&[vec![5, 1, 6, 7], vec![1, 8]]).unwrap();
        assert_eq!(positions_after_padding(&batch, 1), [2, 1, 3, 4, 1, 2]);
    }
}
