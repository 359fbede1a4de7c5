//! Keys and values of a layer in pages, and attention over them on the CPU: one task for each sequence and head.

use super::{Cpu, attend, values};
use crate::state::{KvCache, KvFormat, KvSpec, Past};
use crate::value::{Act, Span};
use crate::vocabulary::Attention;
use kernels::{Kernels, KvPage, KvSlice, KvSliceMut, PagedAttend, Rows, Window};
use std::sync::{RwLock, RwLockReadGuard};

/// Numbers in the cache's format.
#[derive(Clone, Debug)]
enum Numbers {
    F32(Vec<f32>),
    F16(Vec<u16>),
    Q8_0(Vec<u8>),
}

impl Numbers {
    /// Room for `count` keys or values.
    fn zeroed(format: KvFormat, count: usize, dim: usize) -> Numbers {
        match format {
            KvFormat::F32 => Numbers::F32(vec![0.0; count * dim]),
            KvFormat::F16 => Numbers::F16(vec![0; count * dim]),
            KvFormat::Q8_0 => Numbers::Q8_0(vec![0; count * format.bytes(dim)]),
        }
    }

    fn copy_from(&mut self, other: &Numbers) {
        match (self, other) {
            (Numbers::F32(to), Numbers::F32(from)) => to.copy_from_slice(from),
            (Numbers::F16(to), Numbers::F16(from)) => to.copy_from_slice(from),
            (Numbers::Q8_0(to), Numbers::Q8_0(from)) => to.copy_from_slice(from),
            _ => unreachable!("the pages of a cache have one format"),
        }
    }

    /// Part `index` of `parts` equal ones.
    fn part(&self, index: usize, parts: usize) -> KvSlice<'_> {
        match self {
            Numbers::F32(all) => KvSlice::F32(&all[index * (all.len() / parts)..][..all.len() / parts]),
            Numbers::F16(all) => KvSlice::F16(&all[index * (all.len() / parts)..][..all.len() / parts]),
            Numbers::Q8_0(all) => KvSlice::Q8_0(&all[index * (all.len() / parts)..][..all.len() / parts]),
        }
    }

    fn part_mut(&mut self, index: usize, parts: usize) -> KvSliceMut<'_> {
        match self {
            Numbers::F32(all) => {
                let len = all.len() / parts;
                KvSliceMut::F32(&mut all[index * len..][..len])
            }
            Numbers::F16(all) => {
                let len = all.len() / parts;
                KvSliceMut::F16(&mut all[index * len..][..len])
            }
            Numbers::Q8_0(all) => {
                let len = all.len() / parts;
                KvSliceMut::Q8_0(&mut all[index * len..][..len])
            }
        }
    }
}

/// A page: for each head its keys, then for each head its values, as the kernel reads them.
#[derive(Clone, Debug)]
struct Page {
    keys: Numbers,
    values: Numbers,
}

/// The pages of a layer; one that was never written has no memory.
#[derive(Debug)]
pub(super) struct Pages(Vec<RwLock<Option<Page>>>);

impl Pages {
    pub(super) fn new(spec: KvSpec) -> Pages {
        assert_eq!(spec.page_tokens % kernels::KEYS_ABREAST, 0, "tokens of a page");
        Pages((0..spec.pages).map(|_| RwLock::new(None)).collect())
    }

    /// Makes page `to` hold what page `from` holds.
    pub(super) fn copy(&self, from: u32, to: u32) {
        assert_ne!(from, to, "a page is no copy of itself");
        let from = self.0[from as usize].read().expect("no panics under this lock");
        let mut to = self.0[to as usize].write().expect("no panics under this lock");
        match (&*from, &mut *to) {
            (Some(from), Some(to)) => {
                to.keys.copy_from(&from.keys);
                to.values.copy_from(&from.values);
            }
            (from, to) => *to = from.clone(),
        }
    }

    /// Stores a span's keys and values behind its past.
    fn write(&self, kernels: &Kernels, spec: KvSpec, past: &Past, keys: Rows<'_>, values: Rows<'_>) {
        let KvSpec { page_tokens, kv_heads, head_dim, format, .. } = spec;
        let mut row = 0;
        while row < keys.rows() {
            let (page, at) = ((past.tokens + row) / page_tokens, (past.tokens + row) % page_tokens);
            let count = (page_tokens - at).min(keys.rows() - row);
            let mut page = self.0[past.pages[page] as usize].write().expect("no panics under this lock");
            let page = page.get_or_insert_with(|| {
                let zeroed = || Numbers::zeroed(format, kv_heads * page_tokens, head_dim);
                Page { keys: zeroed(), values: zeroed() }
            });
            for head in 0..kv_heads {
                let cols = head * head_dim..(head + 1) * head_dim;
                let (keys, values) = (keys.slice_rows(row..row + count), values.slice_rows(row..row + count));
                kernels.write_keys(page.keys.part_mut(head, kv_heads), at, keys.slice_cols(cols.clone()));
                kernels.write_values(page.values.part_mut(head, kv_heads), at, values.slice_cols(cols));
            }
            row += count;
        }
    }

    /// The first `count` pages of a sequence, held for reading.
    fn read(&self, past: &Past, count: usize) -> Vec<RwLockReadGuard<'_, Option<Page>>> {
        let page = |&page: &u32| self.0[page as usize].read().expect("no panics under this lock");
        past.pages[..count].iter().map(page).collect()
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
        assert!(attention.bias.is_none(), "no relative bias over pages");
        let memory = cache.memory.inner::<Pages>();
        for (span, past) in spans.iter().zip(pasts) {
            if let Some((k, v)) = kv {
                let part = |x| Rows::dense(values(x), spec.kv_heads * head_dim).slice_rows(span.range());
                memory.write(self.kernels, spec, past, part(k), part(v));
            }
        }
        let count = |i: usize| (pasts[i].tokens + spans[i].len).div_ceil(spec.page_tokens);
        let held: Vec<_> = (0..spans.len()).map(|i| memory.read(&pasts[i], count(i))).collect();
        // The heads of a group share its keys; where there are too few groups for the threads, each goes by itself, unless
        // keys have to be read out of their blocks first.
        let few = if spec.format == KvFormat::Q8_0 { self.threads() } else { 2 * self.threads() };
        let group = if spans.len() * spec.kv_heads >= few { heads / spec.kv_heads } else { 1 };
        self.act(q.rows(), q.cols(), |out| {
            let tasks = attend::by_span_and_head(Window::dense(out, q.cols()), spans, group * head_dim);
            let run = |(index, part, window): (usize, usize, Window<'_>)| {
                let head = part * group / (heads / spec.kv_heads);
                let pages: Vec<KvPage<'_>> =
                    held[index].iter().map(|page| part_of(page, head, spec.kv_heads)).collect();
                let queries = Rows::dense(values(q), q.cols()).slice_rows(spans[index].range());
                let width = group * head_dim;
                let task = PagedAttend {
                    q: queries.slice_cols(part * width..(part + 1) * width),
                    dim: head_dim,
                    pages: &pages,
                    page_tokens: spec.page_tokens,
                    keys: pasts[index].tokens + spans[index].len,
                    past: pasts[index].tokens,
                    scale: attention.scale,
                    mask: attention.mask,
                    softcap: attention.softcap,
                };
                attend::SCRATCH.with_borrow_mut(|scratch| self.kernels.attend_paged(&task, scratch, window));
            };
            let products = (0..spans.len()).map(|i| spans[i].len * (pasts[i].tokens + spans[i].len)).sum::<usize>();
            match products * heads * head_dim < attend::SERIAL_PRODUCTS {
                true => tasks.into_iter().for_each(run),
                false => self.pool.each_of(tasks, run),
            }
        })
    }
}

/// The keys and values of one head in a page.
fn part_of(page: &Option<Page>, head: usize, heads: usize) -> KvPage<'_> {
    let page = page.as_ref().expect("pages of the past were written");
    KvPage { keys: page.keys.part(head, heads), values: page.values.part(head, heads) }
}
