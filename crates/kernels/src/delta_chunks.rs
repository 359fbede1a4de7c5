//! How does a gated delta net take a chunk of tokens at once? As matrix products (Yang et al. 2024, "Gated Delta
//! Networks", section 3.3), which need half the instructions of the token by token form in `delta`.
//!
//! With the state `S` before a chunk, `since(t)` what the decay leaves of it at token t, and `reach(i, t)` what it leaves
//! there of token i, token t takes up
//!
//! `u(t) = beta(t) · (v(t) − since(t) · k̂(t) · S − Σ reach(i, t) (k̂(t) · k̂(i)) u(i))` over the i before t, and gives
//! `out(t) = since(t) · q̂(t) · S + Σ reach(i, t) (q̂(t) · k̂(i)) u(i)` over the i up to t;
//!
//! at the chunk's end the state is `since · S + Σ reach(i) k̂(i)ᵀ u(i)`. The sums over i are a triangular system, solved
//! forwards. A chunk is as long as a panel is wide: its keys, transposed, are then one panel of the products with all
//! other keys, and the rows of the product that updates the state.

use crate::delta::delta_rows;
use crate::matmul::{Begin, Tile, even_part, tile};
use crate::rows::sum_squares;
use crate::simd::Simd;
use crate::{AttendScratch, DeltaRows, Rows, Window};

/// Fewer tokens than these go one by one: the state would be repacked for too little.
const FEWEST: usize = 12;
/// The widest panel.
const WIDEST: usize = 32;
/// What has decayed to less than this of itself is gone.
const GONE: f32 = 1e-30;

#[inline(always)]
pub(crate) fn delta_chunks<S: Simd>(s: S, task: DeltaRows<'_>, scratch: &mut AttendScratch, mut out: Window<'_>) {
    let (tokens, dk, dv) = (task.q.rows(), task.k.cols(), task.v.cols());
    if tokens < FEWEST || dk == 0 || dv == 0 {
        return delta_rows(s, task, scratch, out);
    }
    let panels = dv.div_ceil(S::PANEL);
    let mut parts = scratch.take((panels + 1) * dk * S::PANEL + 4 * S::PANEL * S::PANEL);
    let mut part = |len: usize| parts.split_off_mut(..len).expect("the sum of all parts");
    let states = part(panels * dk * S::PANEL);
    let keys = part(dk * S::PANEL);
    let [known, read, pairs_k, pairs_q] = [(); 4].map(|()| part(S::PANEL * S::PANEL));

    for (panel, at) in states.chunks_exact_mut(dk * S::PANEL).zip((0..dv).step_by(S::PANEL)) {
        let cols = S::PANEL.min(dv - at);
        for (to, from) in panel.chunks_exact_mut(S::PANEL).zip(task.state.chunks_exact(dv)) {
            to[..cols].copy_from_slice(&from[at..at + cols]);
            to[cols..].fill(0.0);
        }
    }
    for start in (0..tokens).step_by(S::PANEL) {
        let chunk = start..tokens.min(start + S::PANEL);
        let [q, k, v] = [task.q, task.k, task.v].map(|x| x.slice_rows(chunk.clone()));
        let weights = Weights::new(s, &task, start, chunk.len());
        pack_keys(&weights, k, keys, S::PANEL);
        for (x, pairs) in [(k, &mut *pairs_k), (q, &mut *pairs_q)] {
            product(s, x, keys, pairs, Begin::Zero);
        }
        weights.weigh(pairs_k, pairs_q, S::PANEL);
        for (state, at) in states.chunks_exact_mut(dk * S::PANEL).zip((0..dv).step_by(S::PANEL)) {
            for (x, to) in [(k, &mut *known), (q, &mut *read)] {
                product(s, x, state, to, Begin::Zero);
            }
            // From here on `known` is what the tokens take up.
            let cols = S::PANEL.min(dv - at);
            for (t, known) in known.chunks_exact_mut(S::PANEL).take(chunk.len()).enumerate() {
                let (beta, known_factor) = (s.splat(weights.beta[t]), s.splat(weights.known[t]));
                let v = &v.row(t)[at..at + cols];
                for (i, known) in known.chunks_exact_mut(S::LANES).enumerate() {
                    let v = &v[(i * S::LANES).min(cols)..];
                    let v = s.mul(beta, s.load_part(v, v.len().min(S::LANES)));
                    let off = s.fnma(known_factor, s.load_part(known, S::LANES), v);
                    s.store_part(known, S::LANES, off);
                }
            }
            solve(s, pairs_k, &mut known[..chunk.len() * S::PANEL]);
            scale_rows(s, read, &weights.read[..chunk.len()]);
            product(s, Rows::new(pairs_q, chunk.len(), chunk.len(), S::PANEL), known, read, Begin::Sums);
            for (t, read) in read.chunks_exact(S::PANEL).take(chunk.len()).enumerate() {
                out.row_mut(start + t)[at..at + cols].copy_from_slice(&read[..cols]);
            }
            scale_rows(s, known, &weights.reach[..chunk.len()]);
            let since = s.splat(weights.since);
            for state in state.chunks_exact_mut(S::LANES) {
                s.store_part(state, S::LANES, s.mul(since, s.load_part(state, S::LANES)));
            }
            product(s, Rows::new(keys, dk, chunk.len(), S::PANEL), known, state, Begin::Sums);
        }
    }
    for (panel, at) in states.chunks_exact(dk * S::PANEL).zip((0..dv).step_by(S::PANEL)) {
        let cols = S::PANEL.min(dv - at);
        for (from, to) in panel.chunks_exact(S::PANEL).zip(task.state.chunks_exact_mut(dv)) {
            to[at..at + cols].copy_from_slice(&from[..cols]);
        }
    }
}

/// What the tokens of a chunk are multiplied by.
struct Weights {
    /// What the decay of each token leaves.
    decay: [f32; WIDEST],
    beta: [f32; WIDEST],
    /// `1 / ‖k‖`, and `1 / ‖q‖ / √dk`.
    inverse_k: [f32; WIDEST],
    inverse_q: [f32; WIDEST],
    /// What `k · S` and `q · S` are multiplied by.
    known: [f32; WIDEST],
    read: [f32; WIDEST],
    /// What the decay leaves of each token, and of the state before, after the last token.
    reach: [f32; WIDEST],
    since: f32,
    tokens: usize,
}

impl Weights {
    /// Of the `tokens` tokens from `start` on.
    #[inline(always)]
    fn new<S: Simd>(s: S, task: &DeltaRows<'_>, start: usize, tokens: usize) -> Weights {
        let zeros = [0.0; WIDEST];
        let mut weights = Weights {
            decay: zeros,
            beta: zeros,
            inverse_k: zeros,
            inverse_q: zeros,
            known: zeros,
            read: zeros,
            reach: zeros,
            since: 1.0,
            tokens,
        };
        let inverse = |x: &[f32]| 1.0 / (sum_squares(s, x) + 1e-6).sqrt();
        let root = (task.k.cols() as f32).sqrt();
        for t in 0..tokens {
            let decay = task.g.row(start + t)[0].exp();
            weights.since *= decay;
            for reach in &mut weights.reach[..t] {
                *reach = passed(*reach, decay);
            }
            weights.reach[t] = 1.0;
            weights.decay[t] = decay;
            weights.beta[t] = task.beta.row(start + t)[0];
            weights.inverse_k[t] = inverse(task.k.row(start + t));
            weights.inverse_q[t] = inverse(task.q.row(start + t)) / root;
            weights.known[t] = weights.beta[t] * weights.inverse_k[t] * weights.since;
            weights.read[t] = weights.inverse_q[t] * weights.since;
        }
        weights
    }

    /// Makes the products of keys and of queries with the chunk's keys, `[tokens][panel]`, into what a token takes of
    /// those before it: nothing of those behind it.
    #[inline(always)]
    fn weigh(&self, keys: &mut [f32], queries: &mut [f32], panel: usize) {
        let mut reach = [0.0; WIDEST];
        let rows = keys.chunks_exact_mut(panel).zip(queries.chunks_exact_mut(panel));
        for (t, (keys, queries)) in rows.take(self.tokens).enumerate() {
            for reach in &mut reach[..t] {
                *reach = passed(*reach, self.decay[t]);
            }
            reach[t] = 1.0;
            let (for_keys, for_queries) = (self.beta[t] * self.inverse_k[t], self.inverse_q[t]);
            for ((key, query), reach) in keys.iter_mut().zip(queries).zip(&reach) {
                *key *= for_keys * reach;
                *query *= for_queries * reach;
            }
        }
    }
}

fn passed(reach: f32, decay: f32) -> f32 {
    let reach = reach * decay;
    if reach < GONE { 0.0 } else { reach }
}

/// Unit keys, transposed: `[dk][panel]`, zeros behind the last.
#[inline(always)]
fn pack_keys(weights: &Weights, k: Rows<'_>, to: &mut [f32], panel: usize) {
    if k.rows() < panel {
        to.fill(0.0);
    }
    for t in 0..k.rows() {
        let factor = weights.inverse_k[t];
        for (column, k) in to.chunks_exact_mut(panel).zip(k.row(t)) {
            column[t] = k * factor;
        }
    }
}

/// `u(t) −= Σ pairs[t][i] · u(i)` over the i before t, for one t after another.
#[inline(always)]
fn solve<S: Simd>(s: S, pairs: &[f32], u: &mut [f32]) {
    let tokens = u.len() / S::PANEL;
    for i in 0..tokens {
        let (before, behind) = u.split_at_mut((i + 1) * S::PANEL);
        let known = &before[i * S::PANEL..];
        let known = [s.load_part(known, S::LANES), s.load_part(&known[S::LANES..], S::LANES)];
        let pairs = pairs[(i + 1) * S::PANEL..].chunks_exact(S::PANEL);
        for (u, pairs) in behind.chunks_exact_mut(S::PANEL).zip(pairs) {
            let pair = s.splat(pairs[i]);
            for (u, known) in u.chunks_exact_mut(S::LANES).zip(known) {
                s.store_part(u, S::LANES, s.fnma(pair, known, s.load_part(u, S::LANES)));
            }
        }
    }
}

/// Multiplies each row, of a panel's width, by its factor.
#[inline(always)]
fn scale_rows<S: Simd>(s: S, x: &mut [f32], factors: &[f32]) {
    for (row, &factor) in x.chunks_exact_mut(S::PANEL).zip(factors) {
        let factor = s.splat(factor);
        for row in row.chunks_exact_mut(S::LANES) {
            s.store_part(row, S::LANES, s.mul(factor, s.load_part(row, S::LANES)));
        }
    }
}

/// `c = begin + a · b` for a panel b: `[a.cols()][PANEL]`, and c: `[a.rows()][PANEL]`.
#[inline(always)]
fn product<S: Simd>(s: S, a: Rows<'_>, b: &[f32], c: &mut [f32], begin: Begin) {
    let depth = a.cols();
    assert!(depth * S::PANEL <= b.len() && a.rows() * S::PANEL <= c.len());
    let mut row = 0;
    while row < a.rows() {
        let rows = even_part(a.rows() - row, S::TILE);
        // SAFETY: a has `rows` rows of `depth` numbers from `row` on; b has `depth` rows of a panel, c one for each of a.
        unsafe {
            let task = Tile {
                a: a.as_ptr().add(row * a.stride()),
                a_row: a.stride(),
                b: b.as_ptr(),
                b_panel: 0,
                depth,
                c: c.as_mut_ptr().add(row * S::PANEL),
                c_row: S::PANEL,
                begin,
            };
            tile(s, task, rows, 1);
        }
        row += rows;
    }
}
