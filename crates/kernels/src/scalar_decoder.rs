//! What is the right result of the kernels that only decoders use? Plain Rust, summing in f64, as in `scalar`.

use std::ops::Range;

use crate::blocks::GROUP;
use crate::pages::{KEYS, KEYS_ABREAST, write_key_q8_0, write_value_q8_0};
use crate::{
    Activation, AttendScratch, Blocks, DeltaRows, Epilogue, Interleaved, KvSliceMut, PagedAttend, QuantizedMut,
    QuantizedRows, Rows, ShortConv, Window, f32_to_f16,
};

/// Values weighted by `exp(score − largest)`; of all rows the largest scores; of all rows the sums of the weights.
pub(crate) fn attend_blocks(
    task: &PagedAttend<'_>,
    range: Range<usize>,
    together: bool,
    work: &mut [f32],
    parts: &mut [f32],
) {
    let (group, rows) = (task.group(), task.q.rows() * task.group());
    let (step, count) = if together { (range.len(), 1) } else { (1, range.len()) };
    let len = parts.len() / count;
    let value_dim = len / rows - 2;
    let (scores, block_sums) = work.split_at_mut(KEYS);
    for (first, part) in range.step_by(step).zip(parts.chunks_exact_mut(len)) {
        let (sums, ends) = part.split_at_mut(rows * value_dim);
        for row in 0..rows {
            let q = &task.q.row(row / group)[row % group * task.dim..][..task.dim];
            let (mut largest, mut total) = (f32::NEG_INFINITY, 0.0);
            for block in first..first + step {
                let visible = task.mask.visible(task.past + row / group, task.keys);
                let keys = visible.start.max(block * KEYS)..visible.end.min((block + 1) * KEYS);
                let block_sums = &mut block_sums[..value_dim];
                let ends = softmax(task, q, keys, scores, block_sums);
                join(&mut largest, &mut total, &mut sums[row * value_dim..][..value_dim], (ends, block_sums));
            }
            (ends[row], ends[rows + row]) = (largest, total);
        }
    }
}

/// The largest score of a query with some keys of a block, the sum of the weights, and the weighted values.
fn softmax(task: &PagedAttend<'_>, q: &[f32], keys: Range<usize>, scores: &mut [f32], sums: &mut [f32]) -> (f32, f32) {
    let (dim, value_dim, tokens) = (task.dim, sums.len(), task.page_tokens);
    let mut most = f32::NEG_INFINITY;
    for (place, key) in scores.iter_mut().zip(keys.clone()) {
        let number = |d: usize| f64::from(task.pages[key / tokens].keys.key(dim, key % tokens, d));
        let mut score: f64 = q.iter().enumerate().map(|(d, &q)| f64::from(q) * number(d)).sum();
        score *= f64::from(task.scale);
        if let Some(cap) = task.softcap.map(f64::from) {
            score = cap * (score / cap).tanh();
        }
        *place = score as f32;
        most = most.max(*place);
    }
    let weights = &mut scores[..keys.len()];
    weights.iter_mut().for_each(|score| *score = f64::from(*score - most).exp() as f32);
    for (d, sum) in sums.iter_mut().enumerate() {
        let value = |key: usize| f64::from(task.pages[key / tokens].values.value(value_dim, key % tokens, d));
        *sum =
            weights.iter().zip(keys.clone()).map(|(&weight, key)| f64::from(weight) * value(key)).sum::<f64>() as f32;
    }
    (most, weights.iter().map(|&weight| f64::from(weight)).sum::<f64>() as f32)
}

fn join(largest: &mut f32, total: &mut f32, sums: &mut [f32], block: ((f32, f32), &[f32])) {
    let ((block_largest, block_total), block_sums) = block;
    if block_largest == f32::NEG_INFINITY {
        return;
    }
    if *largest == f32::NEG_INFINITY {
        (*largest, *total) = (block_largest, block_total);
        return sums.copy_from_slice(block_sums);
    }
    let most = largest.max(block_largest);
    let (keep, take) = ((*largest - most).exp(), (block_largest - most).exp());
    (*largest, *total) = (most, *total * keep + block_total * take);
    sums.iter_mut().zip(block_sums).for_each(|(sum, block)| *sum = *sum * keep + block * take);
}

pub(crate) fn join_blocks(parts: &[f32], group: usize, mut out: Window<'_>) {
    let (rows, value_dim) = (out.rows() * group, out.cols() / group);
    for row in 0..rows {
        let out = &mut out.row_mut(row / group)[row % group * value_dim..][..value_dim];
        let (mut largest, mut total) = (f32::NEG_INFINITY, 0.0);
        for part in parts.chunks_exact(rows * (value_dim + 2)) {
            let (sums, ends) = part.split_at(rows * value_dim);
            let block = ((ends[row], ends[rows + row]), &sums[row * value_dim..][..value_dim]);
            join(&mut largest, &mut total, out, block);
        }
        out.iter_mut().for_each(|out| *out = if total == 0.0 { 0.0 } else { *out / total });
    }
}

pub(crate) fn write_keys(keys: KvSliceMut<'_>, at: usize, rows: Rows<'_>) {
    let dim = rows.cols();
    if let KvSliceMut::Q8_0(keys) = keys {
        return (0..rows.rows()).for_each(|i| write_key_q8_0(keys, at + i, rows.row(i)));
    }
    let place = |i: usize, d: usize| ((at + i) / KEYS_ABREAST * dim + d) * KEYS_ABREAST + (at + i) % KEYS_ABREAST;
    write(keys, rows, place);
}

pub(crate) fn write_values(values: KvSliceMut<'_>, at: usize, rows: Rows<'_>) {
    if let KvSliceMut::Q8_0(values) = values {
        return (0..rows.rows()).for_each(|i| write_value_q8_0(values, at + i, rows.row(i)));
    }
    write(values, rows, |i, d| (at + i) * rows.cols() + d);
}

fn write(mut to: KvSliceMut<'_>, rows: Rows<'_>, place: impl Fn(usize, usize) -> usize) {
    for i in 0..rows.rows() {
        for (d, &number) in rows.row(i).iter().enumerate() {
            match &mut to {
                KvSliceMut::F32(to) => to[place(i, d)] = number,
                KvSliceMut::F16(to) => to[place(i, d)] = f32_to_f16(number),
                KvSliceMut::Q8_0(_) => unreachable!("blocks are written whole"),
            }
        }
    }
}

pub(crate) fn matmul_blocks(
    x: Rows<'_>,
    w: &Blocks<'_>,
    outs: Range<usize>,
    y: Window<'_>,
    epilogue: &Epilogue<'_>,
    scratch: &mut AttendScratch,
) {
    product(w, outs, y, epilogue, scratch, |i, k| x.row(i)[k]);
}

pub(crate) fn dot_blocks(
    x: &QuantizedRows,
    w: &Blocks<'_>,
    outs: Range<usize>,
    y: Window<'_>,
    epilogue: &Epilogue<'_>,
    scratch: &mut AttendScratch,
) {
    product(w, outs, y, epilogue, scratch, |i, k| x.value(i, k));
}

pub(crate) fn dot_interleaved(
    _: &QuantizedRows,
    _: &Interleaved,
    _: Range<usize>,
    _: Window<'_>,
    _: &Epilogue<'_>,
    _: &mut AttendScratch,
) {
    unreachable!("no interleaved weights on scalar")
}

fn product(
    w: &Blocks<'_>,
    outs: Range<usize>,
    mut y: Window<'_>,
    epilogue: &Epilogue<'_>,
    scratch: &mut AttendScratch,
    x: impl Fn(usize, usize) -> f32,
) {
    let weights = scratch.take(w.ins());
    for (column, out) in outs.enumerate() {
        crate::quant::decode(w.format(), w.row(out), weights);
        for i in 0..y.rows() {
            let sum: f64 = weights.iter().enumerate().map(|(k, &w)| f64::from(x(i, k)) * f64::from(w)).sum();
            let bias = epilogue.bias.map_or(0.0, |bias| bias[out]);
            let sum = (sum + f64::from(bias)) as f32;
            let sum = epilogue.activation.map_or(sum, |kind| crate::scalar::activate(kind, sum));
            let residual = epilogue.residual.map_or(0.0, |rows| rows.row(i)[column]);
            y.row_mut(i)[column] = sum + residual;
        }
    }
}

pub(crate) fn quantize_rows(x: Rows<'_>, mut to: QuantizedMut<'_>) {
    for i in 0..x.rows() {
        for (g, group) in x.row(i).chunks_exact(GROUP).enumerate() {
            let most = group.iter().fold(0f32, |most, x| most.max(x.abs()));
            // NaN where a number is no finite one.
            let stain: f32 = group.iter().map(|x| x * 0.0).sum();
            let (scale, inverse) = scale_of(most);
            let mut codes = [0; GROUP];
            for (code, x) in codes.iter_mut().zip(group) {
                *code = (x * inverse).round_ties_even() as i8;
            }
            to.put(i, g, scale + stain, codes, crate::quant::sums(&codes));
        }
    }
}

/// The scale of a group whose largest magnitude is `most`, and what numbers are multiplied by to become codes. Groups
/// that are nearly nothing become 0.
#[inline(always)]
pub(crate) fn scale_of(most: f32) -> (f32, f32) {
    if most < 127.0 * f32::MIN_POSITIVE { (0.0, 0.0) } else { (most / 127.0, 127.0 / most) }
}

pub(crate) fn short_conv(task: ShortConv<'_>, mut out: Window<'_>) {
    let kernel = task.kernel;
    for t in 0..task.x.rows() {
        for (c, &x) in task.x.row(t).iter().enumerate() {
            let state = &mut task.state[c * kernel..][..kernel];
            state.copy_within(1.., 0);
            state[kernel - 1] = x;
            let weights = &task.weight[c * kernel..][..kernel];
            let sum: f64 = state.iter().zip(weights).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum();
            out.row_mut(t)[c] = crate::scalar::activate(Activation::Silu, sum as f32);
        }
    }
}

pub(crate) fn delta_rows(task: DeltaRows<'_>, _: &mut AttendScratch, mut out: Window<'_>) {
    let (dk, dv) = (task.k.cols(), task.v.cols());
    for t in 0..task.q.rows() {
        let (q, k, v) = (task.q.row(t), task.k.row(t), task.v.row(t));
        let inverse = |x: &[f32]| 1.0 / (x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() + 1e-6).sqrt();
        let (q_factor, k_factor) = (inverse(q) / (dk as f64).sqrt(), inverse(k));
        let decay = f64::from(task.g.row(t)[0]).exp();
        let beta = f64::from(task.beta.row(t)[0]);
        for (c, &value) in v.iter().enumerate() {
            let mut column = |f: &mut dyn FnMut(usize, &mut f32)| {
                task.state.iter_mut().skip(c).step_by(dv).enumerate().for_each(|(i, s)| f(i, s));
            };
            let (mut known, mut read) = (0f64, 0f64);
            column(&mut |i, s| known += decay * f64::from(*s) * f64::from(k[i]) * k_factor);
            let delta = (f64::from(value) - known) * beta;
            column(&mut |i, s| {
                *s = (decay * f64::from(*s) + f64::from(k[i]) * k_factor * delta) as f32;
                read += f64::from(*s) * f64::from(q[i]) * q_factor;
            });
            out.row_mut(t)[c] = read as f32;
        }
    }
}

pub(crate) fn delta_chunks(task: DeltaRows<'_>, scratch: &mut AttendScratch, out: Window<'_>) {
    delta_rows(task, scratch, out);
}
