//! Attention on the CPU: one task for each sequence and head.

use super::{Cpu, Precision, values, vector};
use crate::value::{Act, Span};
use crate::vocabulary::Attention;
use kernels::{Attend, AttendScratch, RelativeBias, Rows, Window};
use std::cell::RefCell;

thread_local! {
    pub(super) static SCRATCH: RefCell<AttendScratch> = RefCell::default();
}

/// Tasks with less arithmetic in all than this are not worth waking a thread for: each has work of its own besides, some
/// microseconds of it.
const SERIAL_PRODUCTS: usize = 10_000;

impl Cpu {
    pub(super) fn attention(&self, q: &Act, k: &Act, v: &Act, attention: &Attention, spans: &[Span]) -> Act {
        let Attention { heads, kv_heads, head_dim, .. } = *attention;
        assert_eq!(q.cols(), heads * head_dim, "features of the queries");
        assert_eq!((k.cols(), v.cols()), (kv_heads * head_dim, kv_heads * head_dim), "features of keys and values");
        assert_eq!((k.rows(), v.rows()), (q.rows(), q.rows()), "a key and a value for each query");
        assert_eq!(heads % kv_heads, 0, "{kv_heads} key heads cannot serve {heads} query heads evenly");

        let part = |x, span: Span, head: usize| {
            let x: &Act = x;
            Rows::dense(values(x), x.cols()).slice_rows(span.range()).slice_cols(head * head_dim..(head + 1) * head_dim)
        };
        let bias = attention.bias.as_ref().map(|b| vector(b).chunks_exact(b.len / heads).collect::<Vec<_>>());
        let pieces = match self.precision {
            Precision::Exact => None,
            Precision::Default => Some(2),
            Precision::Fast => Some(1),
        };
        self.act(q.rows(), q.cols(), |out| {
            let tasks = by_span_and_head(Window::dense(out, q.cols()), spans, head_dim);
            let run = |(index, head, window): (usize, usize, Window<'_>)| {
                let span = spans[index];
                let kv_head = head / (heads / kv_heads);
                let task = Attend {
                    q: part(q, span, head),
                    k: part(k, span, kv_head),
                    v: part(v, span, kv_head),
                    past: 0,
                    scale: attention.scale,
                    mask: attention.mask,
                    softcap: attention.softcap,
                    bias: bias.as_ref().map(|b| RelativeBias { values: b[head], offset: b[head].len() / 2 }),
                    pieces,
                };
                SCRATCH.with_borrow_mut(|scratch| self.kernels.attend(&task, scratch, window));
            };
            let products = spans.iter().map(|s| s.len * s.len).sum::<usize>() * heads * head_dim;
            match products < SERIAL_PRODUCTS {
                true => tasks.into_iter().for_each(run),
                false => self.pool.each_of(tasks, run),
            }
        })
    }
}

/// The part of the result that each span (by its index) and head writes.
pub(super) fn by_span_and_head<'a>(
    window: Window<'a>,
    spans: &[Span],
    head_dim: usize,
) -> Vec<(usize, usize, Window<'a>)> {
    let mut tasks = Vec::new();
    let (mut below, mut row) = (window, 0);
    for (index, span) in spans.iter().enumerate() {
        assert_eq!(span.start, row, "spans cover the rows in order");
        let (mut right, rest) = below.split_rows(span.len);
        (below, row) = (rest, row + span.len);
        for head in 0..right.cols() / head_dim {
            let (window, rest) = right.split_cols(head_dim);
            right = rest;
            tasks.push((index, head, window));
        }
    }
    assert_eq!(below.rows(), 0, "spans cover all rows");
    tasks
}
