//! Keys and values of a layer in pages, and attention over them on the CPU: one task for each sequence and head.

use super::{Cpu, attend, values};
use crate::state::{KvCache, KvFormat, KvSpec, Past};
use crate::value::{Act, Span};
use crate::vocabulary::Attention;
use kernels::{Attend, Rows, Window, f16_to_f32, f32_to_f16};
use rayon::prelude::*;
use std::sync::RwLock;

/// Numbers in the cache's format.
#[derive(Debug)]
enum Numbers {
    F32(Vec<f32>),
    F16(Vec<u16>),
}

impl Numbers {
    fn zeroed(format: KvFormat, len: usize) -> Numbers {
        match format {
            KvFormat::F32 => Numbers::F32(vec![0.0; len]),
            KvFormat::F16 => Numbers::F16(vec![0; len]),
        }
    }

    fn write(&mut self, at: usize, row: &[f32]) {
        match self {
            Numbers::F32(all) => all[at..at + row.len()].copy_from_slice(row),
            Numbers::F16(all) => {
                all[at..at + row.len()].iter_mut().zip(row).for_each(|(half, &full)| *half = f32_to_f16(full));
            }
        }
    }

    fn read(&self, at: usize, out: &mut [f32]) {
        match self {
            Numbers::F32(all) => out.copy_from_slice(&all[at..at + out.len()]),
            Numbers::F16(all) => {
                out.iter_mut().zip(&all[at..]).for_each(|(full, &half)| *full = f16_to_f32(half));
            }
        }
    }
}

/// A page: keys and values, each `[heads, tokens, features]`.
#[derive(Debug)]
struct Page {
    keys: Numbers,
    values: Numbers,
}

/// The pages of a layer; one that was never written has no memory.
#[derive(Debug)]
pub(super) struct Pages(Vec<RwLock<Option<Page>>>);

impl Pages {
    pub(super) fn new(spec: KvSpec) -> Pages {
        Pages((0..spec.pages).map(|_| RwLock::new(None)).collect())
    }

    /// Stores a span's keys and values behind its past.
    fn write(&self, spec: KvSpec, past: &Past, keys: Rows<'_>, values: Rows<'_>) {
        let KvSpec { page_tokens, kv_heads, head_dim, format, .. } = spec;
        for row in 0..keys.rows() {
            let token = past.tokens + row;
            let mut page = self.0[past.pages[token / page_tokens] as usize].write().expect("no panics under this lock");
            let page = page.get_or_insert_with(|| {
                let zeroed = || Numbers::zeroed(format, kv_heads * page_tokens * head_dim);
                Page { keys: zeroed(), values: zeroed() }
            });
            for head in 0..kv_heads {
                let (at, part) = ((head * page_tokens + token % page_tokens) * head_dim, head * head_dim);
                page.keys.write(at, &keys.row(row)[part..][..head_dim]);
                page.values.write(at, &values.row(row)[part..][..head_dim]);
            }
        }
    }

    /// The first `tokens` keys and values of one head, `[tokens, features]` each.
    fn read(&self, spec: KvSpec, past: &Past, head: usize, tokens: usize) -> (Vec<f32>, Vec<f32>) {
        let KvSpec { page_tokens, head_dim, .. } = spec;
        let (mut keys, mut values) = (vec![0.0; tokens * head_dim], vec![0.0; tokens * head_dim]);
        let chunks = keys.chunks_mut(page_tokens * head_dim).zip(values.chunks_mut(page_tokens * head_dim));
        for ((keys, values), &page) in chunks.zip(past.pages.iter()) {
            let page = self.0[page as usize].read().expect("no panics under this lock");
            let page = page.as_ref().expect("pages of the past were written");
            page.keys.read(head * page_tokens * head_dim, keys);
            page.values.read(head * page_tokens * head_dim, values);
        }
        (keys, values)
    }
}

impl Cpu {
    pub(super) fn attention_over_pages(
        &self,
        q: &Act,
        kv: Option<(&Act, &Act)>,
        attention: &Attention,
        spans: &[Span],
        pasts: &[Past],
        cache: &KvCache,
    ) -> Act {
        let (spec, &Attention { heads, head_dim, .. }) = (cache.spec, attention);
        assert_eq!((attention.kv_heads, head_dim), (spec.kv_heads, spec.head_dim), "heads of the cache");
        assert_eq!(spans.len(), pasts.len(), "a past for each span");
        let pages = cache.memory.inner::<Pages>();
        for (span, past) in spans.iter().zip(pasts) {
            let pages_needed = (past.tokens + span.len).div_ceil(spec.page_tokens);
            assert!(
                pages_needed <= past.pages.len(),
                "{pages_needed} pages are needed, {} are there",
                past.pages.len()
            );
            if let Some((k, v)) = kv {
                let part = |x| Rows::dense(values(x), spec.kv_heads * head_dim).slice_rows(span.range());
                pages.write(spec, past, part(k), part(v));
            }
        }
        self.act(q.rows(), q.cols(), |out| {
            let tasks = attend::by_span_and_head(Window::dense(out, q.cols()), spans, head_dim);
            let run = |(index, head, window): (usize, usize, Window<'_>)| {
                let (span, past) = (spans[index], &pasts[index]);
                let tokens = past.tokens + span.len;
                let (keys, values_) = pages.read(spec, past, head / (heads / spec.kv_heads), tokens);
                let queries = Rows::dense(values(q), q.cols()).slice_rows(span.range());
                let task = Attend {
                    q: queries.slice_cols(head * head_dim..(head + 1) * head_dim),
                    k: Rows::dense(&keys, head_dim),
                    v: Rows::dense(&values_, head_dim),
                    past: past.tokens,
                    scale: attention.scale,
                    mask: attention.mask,
                    softcap: attention.softcap,
                    bias: None,
                };
                attend::SCRATCH.with_borrow_mut(|scratch| self.kernels.attend(&task, scratch, window));
            };
            match self.threads() {
                1 => tasks.into_iter().for_each(run),
                _ => self.threads.install(|| tasks.into_par_iter().for_each(run)),
            }
        })
    }
}
