//! Mixtures of experts on the CPU: each expert runs once, on the rows that chose it.

use super::{Cpu, values};
use crate::state::Routing;
use crate::value::Act;
use crate::vocabulary::{Expert, Ops};
use kernels::Activation;

impl Cpu {
    pub(super) fn mixture(&self, x: &Act, scores: &Act, routing: Routing, experts: &[Expert], kind: Activation) -> Act {
        assert_eq!((scores.rows(), scores.cols()), (x.rows(), experts.len()), "a score for each row and expert");
        let mut chosen: Vec<Vec<(u32, f32)>> = vec![Vec::new(); experts.len()];
        for (row, scores) in values(scores).chunks_exact(experts.len()).enumerate() {
            for (expert, share) in self.route(scores, routing) {
                chosen[expert].push((row as u32, share));
            }
        }
        let cols = x.cols();
        self.act(x.rows(), cols, |sum| {
            sum.fill(0.0);
            // In the experts' order, so that a row's sum does not depend on the other rows.
            for (expert, rows) in experts.iter().zip(&chosen).filter(|(_, rows)| !rows.is_empty()) {
                let inputs = self.rows(x, &rows.iter().map(|&(row, _)| row).collect::<Vec<_>>());
                let inner = self.linear_glu(&inputs, &expert.gate, &expert.up, kind);
                let outputs = self.linear(&inner, &expert.down);
                for (&(row, share), output) in rows.iter().zip(values(&outputs).chunks_exact(cols)) {
                    self.kernels.axpy(&mut sum[row as usize * cols..][..cols], share, output);
                }
            }
        })
    }

    /// The experts of a row with their shares, by falling probability; of equals the lower index.
    fn route(&self, scores: &[f32], routing: Routing) -> Vec<(usize, f32)> {
        let mut shares = scores.to_vec();
        self.kernels.softmax(&mut shares);
        let mut order: Vec<usize> = (0..shares.len()).collect();
        order.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]));
        order.truncate(routing.active);
        let sum: f32 = order.iter().map(|&i| shares[i]).sum();
        let scale = if routing.renormalize { 1.0 / sum } else { 1.0 };
        order.into_iter().map(|i| (i, shares[i] * scale)).collect()
    }
}
