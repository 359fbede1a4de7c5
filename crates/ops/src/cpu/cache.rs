//! Keys and values of a layer in pages, and attention over them on the CPU: one task for each sequence, head of keys and block
//! of queries, or, where these are few, for some blocks of its keys.

use super::{Cpu, TASKS_PER_THREAD, attend, values};
use crate::state::{KvCache, KvFormat, KvSpec, Past};
use crate::value::{Act, Span};
use crate::vocabulary::Attention;
use kernels::{Kernels, KvPage, KvSlice, KvSliceMut, PagedAttend, Rows, Window};
use std::sync::{RwLock, RwLockReadGuard};

/// Numbers of queries in a task: these and the sums of as many values stay in the L2.
const MOST_NUMBERS: usize = 16 * 1024;
/// Fewer queries are not worth a task of their own.
const FEWEST_QUERIES: usize = 8;

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

/// Tasks with less arithmetic in all than this are not worth waking a thread for.
const SERIAL_PRODUCTS: usize = 100_000;

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
        let group = heads / spec.kv_heads;
        let enough = TASKS_PER_THREAD * self.threads();
        let queries = (MOST_NUMBERS / (group * head_dim)).min((q.rows() * spec.kv_heads).div_ceil(enough));
        let queries = queries.max(FEWEST_QUERIES);
        self.act(q.rows(), q.cols(), |out| {
            let parts = attend::by_span_and_head(Window::dense(out, q.cols()), spans, group * head_dim);
            let pages = |index: usize, head: usize| -> Vec<KvPage<'_>> {
                held[index].iter().map(|page| part_of(page, head, spec.kv_heads)).collect()
            };
            let mut parts: Vec<_> =
                parts.into_iter().map(|(i, head, window)| (i, head, pages(i, head), window)).collect();
            let (mut tasks, width) = (Vec::new(), group * head_dim);
            for (index, head, pages, window) in &mut parts {
                let mut below = window.reborrow();
                let q = Rows::dense(values(q), q.cols()).slice_rows(spans[*index].range());
                let q = q.slice_cols(*head * width..(*head + 1) * width);
                for first in (0..q.rows()).step_by(queries) {
                    let count = queries.min(q.rows() - first);
                    let (window, rest) = below.split_rows(count);
                    below = rest;
                    let task = PagedAttend {
                        q: q.slice_rows(first..first + count),
                        dim: head_dim,
                        pages,
                        page_tokens: spec.page_tokens,
                        keys: pasts[*index].tokens + spans[*index].len,
                        past: pasts[*index].tokens + first,
                        scale: attention.scale,
                        mask: attention.mask,
                        softcap: attention.softcap,
                    };
                    tasks.push((task, window));
                }
            }
            let products = (0..spans.len()).map(|i| spans[i].len * (pasts[i].tokens + spans[i].len)).sum::<usize>();
            let run = |(task, window): (PagedAttend<'_>, Window<'_>)| {
                attend::SCRATCH.with_borrow_mut(|scratch| self.kernels.attend_paged(&task, scratch, window));
            };
            match products * heads * head_dim < SERIAL_PRODUCTS || self.threads() == 1 {
                true => tasks.into_iter().for_each(run),
                false if tasks.len() >= enough => self.pool.each_of(tasks, run),
                false => self.attend_by_blocks(tasks),
            }
        })
    }

    /// Where there are few tasks, threads share the keys of each.
    fn attend_by_blocks(&self, tasks: Vec<(PagedAttend<'_>, Window<'_>)>) {
        let pieces = (TASKS_PER_THREAD * self.threads()).div_ceil(tasks.len()).next_multiple_of(self.threads());
        // Of each task what a block leaves: the weighted values of each row, and two numbers more.
        let part = |task: &PagedAttend<'_>, out: &Window<'_>| out.rows() * (out.cols() + 2 * task.group());
        let numbers = tasks.iter().map(|(task, out)| task.blocks().len() * part(task, out)).sum();
        let mut buffer = self.buffers.take(numbers);
        let (mut rest, mut jobs) = (buffer.values_mut(), Vec::new());
        for (task, out) in &tasks {
            let (blocks, part) = (task.blocks(), part(task, out));
            let step = blocks.len().div_ceil(pieces).max(1);
            for first in blocks.clone().step_by(step) {
                let range = first..blocks.end.min(first + step);
                let parts = rest.split_off_mut(..range.len() * part).expect("the sum of all parts");
                jobs.push((task, range, parts));
            }
        }
        self.pool.each_of(jobs, |(task, range, parts)| {
            attend::SCRATCH.with_borrow_mut(|scratch| self.kernels.attend_blocks(task, range, scratch, parts));
        });
        let mut rest = buffer.values();
        for (task, out) in tasks {
            let parts = rest.split_off(..task.blocks().len() * part(&task, &out)).expect("the sum of all parts");
            self.kernels.join_blocks(parts, task.group(), out);
        }
    }
}

/// The keys and values of one head in a page.
fn part_of(page: &Option<Page>, head: usize, heads: usize) -> KvPage<'_> {
    let page = page.as_ref().expect("pages of the past were written");
    KvPage { keys: page.keys.part(head, heads), values: page.values.part(head, heads) }
}
