//! What is the right result? Every kernel in plain Rust, summing in f64: the oracle of the fast ones, and the code of
//! machines without them.

use std::ops::Range;

use crate::convert::{bf16_to_f32, f16_to_f32};
use crate::packed::Number;
use crate::scalar_decoder::{
    attend_blocks, delta_chunks, delta_rows, dot_blocks, dot_interleaved, join_blocks, matmul_blocks, quantize_rows,
    short_conv, write_keys, write_values,
};
use crate::table::Pointers;
use crate::{
    Activation, Attend, AttendScratch, Epilogue, Isa, Kernels, Packed, RelativeBias, RopeLayout, Rows, Stored, Window,
};

pub(crate) static KERNELS: Kernels = Kernels {
    isa: Isa::Scalar,
    panel_width: WIDTH,
    tile_rows: 1,
    lanes: 0,
    pointers: Pointers {
        matmul,
        attend,
        layer_norm,
        rms_norm,
        add_layer_norm,
        add_rms_norm,
        softmax,
        activation,
        glu,
        add,
        mul,
        max,
        axpy,
        scale,
        dot,
        sum_squares,
        peak,
        rope,
        attend_blocks,
        join_blocks,
        write_keys,
        write_values,
        matmul_blocks,
        quantize_rows,
        dot_blocks,
        dot_interleaved,
        short_conv,
        delta_rows,
        delta_chunks,
    },
};

const WIDTH: usize = 8;

fn matmul(x: Rows<'_>, w: &Packed, panels: Range<usize>, y: Window<'_>, epilogue: &Epilogue<'_>) {
    match w.stored() {
        Stored::F32 => matmul_stored(x, w, panels, y, epilogue, |n: f32| n),
        Stored::F16 => matmul_stored(x, w, panels, y, epilogue, f16_to_f32),
        Stored::Bf16 => matmul_stored(x, w, panels, y, epilogue, bf16_to_f32),
    }
}

fn matmul_stored<T: Number>(
    x: Rows<'_>,
    w: &Packed,
    panels: Range<usize>,
    mut y: Window<'_>,
    epilogue: &Epilogue<'_>,
    widen: impl Fn(T) -> f32,
) {
    let first = w.columns(panels.clone()).start;
    for panel in panels {
        let numbers = &w.numbers::<T>()[panel * w.ins() * WIDTH..][..w.ins() * WIDTH];
        let columns = w.columns(panel..panel + 1);
        for i in 0..x.rows() {
            let mut sums = [0f64; WIDTH];
            for (&x, w) in x.row(i).iter().zip(numbers.chunks_exact(WIDTH)) {
                for (sum, &w) in sums.iter_mut().zip(w) {
                    *sum += f64::from(x) * f64::from(widen(w));
                }
            }
            for (column, sum) in columns.clone().zip(sums) {
                let bias = epilogue.bias.map_or(0.0, |bias| bias[column]);
                let sum = (sum + f64::from(bias)) as f32;
                let sum = epilogue.activation.map_or(sum, |kind| activate(kind, sum));
                let residual = epilogue.residual.map_or(0.0, |rows| rows.row(i)[column - first]);
                y.row_mut(i)[column - first] = sum + residual;
            }
        }
    }
}

fn attend(task: &Attend<'_>, scratch: &mut AttendScratch, mut out: Window<'_>) {
    let scores = scratch.take(task.k.rows());
    for i in 0..task.q.rows() {
        let position = task.past + i;
        let visible = task.mask.visible(position, task.k.rows());
        for key in visible.clone() {
            let mut score = f64::from(dot(task.q.row(i), task.k.row(key))) * f64::from(task.scale);
            if let Some(cap) = task.softcap.map(f64::from) {
                score = cap * (score / cap).tanh();
            }
            if let Some(RelativeBias { values, offset }) = task.bias {
                score += f64::from(values[key + offset - position]);
            }
            scores[key] = score as f32;
        }
        softmax(&mut scores[visible.clone()]);
        for (dim, out) in out.row_mut(i).iter_mut().enumerate() {
            let sum: f64 = visible.clone().map(|key| f64::from(scores[key]) * f64::from(task.v.row(key)[dim])).sum();
            *out = sum as f32;
        }
    }
}

fn layer_norm(x: &[f32], weight: &[f32], bias: Option<&[f32]>, eps: f32, y: &mut [f32]) {
    let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / x.len() as f64;
    let variance = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / x.len() as f64;
    let inverse = 1.0 / (variance + f64::from(eps)).sqrt();
    for (i, y) in y.iter_mut().enumerate() {
        let bias = bias.map_or(0.0, |bias| f64::from(bias[i]));
        *y = ((f64::from(x[i]) - mean) * inverse * f64::from(weight[i]) + bias) as f32;
    }
}

fn rms_norm(x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
    let square = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / x.len() as f64;
    let inverse = 1.0 / (square + f64::from(eps)).sqrt();
    for (i, y) in y.iter_mut().enumerate() {
        *y = (f64::from(x[i]) * inverse * f64::from(weight[i])) as f32;
    }
}

fn add_layer_norm(sum: &mut [f32], x: &[f32], weight: &[f32], bias: Option<&[f32]>, eps: f32, y: &mut [f32]) {
    add(sum, x);
    layer_norm(sum, weight, bias, eps, y);
}

fn add_rms_norm(sum: &mut [f32], x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
    add(sum, x);
    rms_norm(sum, weight, eps, y);
}

pub(crate) fn softmax(row: &mut [f32]) {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exp = |x: f32| (f64::from(x) - f64::from(max)).exp();
    let sum: f64 = row.iter().map(|&x| exp(x)).sum();
    row.iter_mut().for_each(|x| *x = (exp(*x) / sum) as f32);
}

fn activation(kind: Activation, x: &mut [f32]) {
    x.iter_mut().for_each(|x| *x = activate(kind, *x));
}

fn glu(kind: Activation, gate: &mut [f32], up: &[f32]) {
    gate.iter_mut().zip(up).for_each(|(gate, up)| *gate = activate(kind, *gate) * up);
}

fn add(y: &mut [f32], x: &[f32]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += x);
}

fn mul(y: &mut [f32], x: &[f32]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y *= x);
}

fn max(y: &mut [f32], x: &[f32]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y = y.max(*x));
}

fn axpy(y: &mut [f32], a: f32, x: &[f32]) {
    y.iter_mut().zip(x).for_each(|(y, &x)| *y = (f64::from(a) * f64::from(x) + f64::from(*y)) as f32);
}

fn scale(x: &mut [f32], factor: f32) {
    x.iter_mut().for_each(|x| *x *= factor);
}

fn dot(x: &[f32], y: &[f32]) -> f32 {
    x.iter().zip(y).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum::<f64>() as f32
}

fn sum_squares(x: &[f32]) -> f32 {
    dot(x, x)
}

fn peak(rounds: usize) -> f32 {
    let mut sums = [0f64; WIDTH];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = *sum * 0.999_999 + 1e-9;
        }
    }
    sums.iter().sum::<f64>() as f32
}

fn rope(row: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32], layout: RopeLayout) {
    for head in row.chunks_exact_mut(head_dim) {
        for i in 0..cos.len() {
            let (a, b) = match layout {
                RopeLayout::Half => (i, i + cos.len()),
                RopeLayout::Interleaved => (2 * i, 2 * i + 1),
            };
            let (x, y) = (head[a], head[b]);
            head[a] = x * cos[i] - y * sin[i];
            head[b] = y * cos[i] + x * sin[i];
        }
    }
}

pub(crate) fn activate(kind: Activation, x: f32) -> f32 {
    let x = f64::from(x);
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let relu = |x: f64| if x < 0.0 { 0.0 } else { x };
    let y = match kind {
        Activation::Gelu if x == f64::NEG_INFINITY => 0.0,
        Activation::Gelu => 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        Activation::GeluTanh => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }
        Activation::QuickGelu => x * sigmoid(1.702 * x),
        Activation::Silu => x * sigmoid(x),
        Activation::Relu => relu(x),
        Activation::Relu2 => relu(x).powi(2),
        Activation::Tanh => x.tanh(),
        Activation::Sigmoid => sigmoid(x),
    };
    y as f32
}

/// The error function by its series of positive terms, `2/√π · exp(−x²) · Σ 2ⁿ x²ⁿ⁺¹ / (1·3·…·(2n+1))` (Abramowitz and
/// Stegun 7.1.6): to some 1e-16.
pub(crate) fn erf(x: f64) -> f64 {
    if x.is_nan() || x.abs() > 6.0 {
        return if x.is_nan() { x } else { 1f64.copysign(x) };
    }
    let (mut term, mut sum, mut n) = (x, x, 0.0);
    while term.abs() > sum.abs() * 1e-18 {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}
