//! Which sequences share a forward pass: sorted by length, cut by a token budget.
//!
//! A ragged batch has no padding, so any mix of lengths costs the same arithmetic; sorting keeps sequences of like
//! length together for the attention's sake, and longest first makes the largest buffers come first and be reused.

/// Groups the indices of `lengths` into batches of at most `budget` tokens; a longer sequence is a batch of its own.
pub fn plan(lengths: &[usize], budget: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(lengths[i]));
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut tokens = 0;
    for i in order {
        match batches.last_mut() {
            Some(batch) if tokens + lengths[i] <= budget => batch.push(i),
            _ => {
                batches.push(vec![i]);
                tokens = 0;
            }
        }
        tokens += lengths[i];
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sequence_is_planned_once_within_the_budget() {
        let lengths = [3, 900, 17, 17, 1, 2000, 64, 512, 8];
        let batches = plan(&lengths, 1024);
        let mut seen: Vec<usize> = batches.iter().flatten().copied().collect();
        seen.sort();
        assert_eq!(seen, (0..lengths.len()).collect::<Vec<_>>());
        for batch in &batches {
            let tokens: usize = batch.iter().map(|&i| lengths[i]).sum();
            assert!(tokens <= 1024 || batch.len() == 1, "{batch:?} has {tokens} tokens");
        }
    }

    #[test]
    fn nothing_to_do_is_no_batch() {
        assert!(plan(&[], 1024).is_empty());
    }
}
