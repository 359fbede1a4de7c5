//! In which other order does somebody else's file keep the rows of a tensor? Applied when the tensor is asked for, so that
//! a model that repacks its weights never holds the mapped and the reordered bytes of all of them.

use crate::{Result, Tensor};

/// How many times a key head may be repeated: real models have 1 to 4 value heads for each.
pub(crate) const MAX_REPEATS: usize = 16;

/// The key and value heads of a gated delta net; each key head serves `values / keys` value heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heads {
    pub keys: usize,
    pub values: usize,
}

/// An order of the first dimension, or of the columns, as seen from the order in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Each head has the pairs that rotate together side by side in the file, and as two halves when applied.
    Halves { heads: usize },
    /// After `before` rows, value heads of `width` rows each: in the file those of one turn through all key heads follow
    /// each other; applied, those of one key head do.
    Grouped { before: usize, heads: Heads, width: usize },
    /// The same for groups of `width` columns.
    GroupedColumns { heads: Heads, width: usize },
    /// Queries and keys of `width` rows a key head are repeated for every value head, in the file's order of value heads;
    /// the rows after them stay.
    Repeated { heads: Heads, width: usize },
    /// Rows that nothing reads stand before the file's.
    Padded { before: usize },
}

impl Order {
    /// The first dimension after reordering, or `None` if a tensor of this shape and format cannot be reordered so.
    /// Where it is `Some`, [`Order::apply`] succeeds.
    pub(crate) fn rows(self, tensor: &Tensor) -> Option<usize> {
        let rows = *tensor.shape().first()?;
        let whole = tensor.shape().len() > 1 || tensor.format().block() == 1;
        match self {
            Order::Halves { heads } => (whole && rows.is_multiple_of(2 * heads)).then_some(rows),
            Order::Grouped { before, heads, width } => (whole && rows == before + heads.values * width).then_some(rows),
            Order::GroupedColumns { heads, width } => {
                let fits = tensor.cols() == heads.values * width && width.is_multiple_of(tensor.format().block());
                fits.then_some(rows)
            }
            Order::Repeated { heads, width } => {
                let rest = rows.checked_sub(2 * heads.keys * width).filter(|_| whole)?;
                Some(2 * heads.values * width + rest)
            }
            Order::Padded { before } => (whole && rows > 0).then_some(before + rows),
        }
    }

    /// What a tensor needs for this order, for messages.
    pub(crate) fn expected(self) -> String {
        match self {
            Order::Halves { heads } => format!("rows in halves for each of {heads} heads"),
            Order::Grouped { before, heads, width } => format!("{before} + {} × {width} rows", heads.values),
            Order::GroupedColumns { heads, width } => format!("{} × {width} columns in whole blocks", heads.values),
            Order::Repeated { heads, width } => format!("at least 2 × {} × {width} rows", heads.keys),
            Order::Padded { .. } => "rows".into(),
        }
    }

    /// The tensor in this order, copied.
    pub(crate) fn apply(self, tensor: &Tensor) -> Result<Tensor> {
        let rows = tensor.shape().first().copied().unwrap_or(0);
        match self {
            Order::Halves { heads } => {
                let half = rows / heads / 2;
                tensor.gather_rows(&indices(heads, |head, out| {
                    for side in 0..2 {
                        out.extend((0..half).map(|pair| 2 * (head * half + pair) + side));
                    }
                }))
            }
            Order::Grouped { before, heads, width } => {
                let mut order: Vec<usize> = (0..before).collect();
                order.extend(value_heads(heads).flat_map(|head| before + head * width..before + (head + 1) * width));
                tensor.gather_rows(&order)
            }
            Order::GroupedColumns { heads, width } => {
                tensor.gather_columns(width, &value_heads(heads).collect::<Vec<_>>())
            }
            Order::Repeated { heads: Heads { keys, values }, width } => {
                let mut order = Vec::new();
                for first in [0, keys * width] {
                    order.extend((0..values).flat_map(|head| (0..width).map(move |i| first + head % keys * width + i)));
                }
                order.extend(2 * keys * width..rows);
                tensor.gather_rows(&order)
            }
            Order::Padded { before } => {
                let order: Vec<usize> = std::iter::repeat_n(0, before).chain(0..rows).collect();
                tensor.gather_rows(&order)
            }
        }
    }
}

/// The file's number of each value head, when those of one key head follow each other.
fn value_heads(Heads { keys, values }: Heads) -> impl Iterator<Item = usize> {
    let each = values / keys;
    (0..values).map(move |head| head % each * keys + head / each)
}

fn indices(heads: usize, each: impl Fn(usize, &mut Vec<usize>)) -> Vec<usize> {
    let mut out = Vec::new();
    (0..heads).for_each(|head| each(head, &mut out));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    fn rows(n: usize) -> Tensor {
        Tensor::from_f32("t", vec![n, 1], (0..n).map(|i| i as f32).collect())
    }

    fn applied(order: Order, n: usize) -> Vec<f32> {
        let out = order.apply(&rows(n)).unwrap();
        assert_eq!(order.rows(&rows(n)), Some(out.shape()[0]));
        out.to_f32().unwrap()
    }

    #[test]
    fn pairs_become_halves_head_by_head() {
        let order = Order::Halves { heads: 2 };
        assert_eq!(applied(order, 12), [0., 2., 4., 1., 3., 5., 6., 8., 10., 7., 9., 11.]);
        assert_eq!(order.rows(&rows(6)), None);
    }

    #[test]
    fn value_heads_are_grouped_by_their_key_head() {
        let heads = Heads { keys: 2, values: 6 }; // in the file: k0 k1 k0 k1 k0 k1
        assert_eq!(applied(Order::Grouped { before: 1, heads, width: 1 }, 7), [0., 1., 3., 5., 2., 4., 6.]);
        let heads = Heads { keys: 2, values: 4 };
        assert_eq!(applied(Order::Grouped { before: 0, heads, width: 2 }, 8), [0., 1., 4., 5., 2., 3., 6., 7.]);
        assert_eq!(Order::Grouped { before: 0, heads, width: 2 }.rows(&rows(9)), None);
        let columns = Order::GroupedColumns { heads, width: 1 };
        let row = Tensor::from_f32("t", vec![1, 4], vec![0.0, 1.0, 2.0, 3.0]);
        assert_eq!(columns.apply(&row).unwrap().to_f32().unwrap(), [0., 2., 1., 3.]);
        let wide = Tensor::from_f32("t", vec![1, 64], vec![0.0; 64]).encode(Format::Q8_0).unwrap();
        assert_eq!(Order::GroupedColumns { heads, width: 16 }.rows(&wide), None);
    }

    #[test]
    fn key_heads_are_repeated_in_the_order_of_the_value_heads() {
        let order = Order::Repeated { heads: Heads { keys: 2, values: 4 }, width: 1 };
        assert_eq!(applied(order, 8), [0., 1., 0., 1., 2., 3., 2., 3., 4., 5., 6., 7.]);
        assert_eq!(order.rows(&rows(3)), None);
    }

    #[test]
    fn padding_stands_before_the_rows() {
        assert_eq!(applied(Order::Padded { before: 2 }, 2), [0., 0., 0., 1.]);
    }
}
