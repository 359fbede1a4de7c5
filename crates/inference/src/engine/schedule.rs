//! How many tokens of each sequence go into a step?
//!
//! Sequences that only have their next token to put in come first, so that texts flow on while prompts go in. The oldest
//! prompt gets half of what is left and so moves on whatever comes after it; the others go in shortest first, so that a
//! short one does not wait behind a long one.

/// Tokens of each sequence, given how many each has to put in, oldest sequence first; at most `budget` in all.
pub(super) fn plan(pending: &[usize], budget: usize) -> Vec<usize> {
    let mut plan = vec![0; pending.len()];
    let mut left = budget;
    let mut give = |index: usize, most: usize| {
        let count = (pending[index] - plan[index]).min(most).min(left);
        plan[index] += count;
        left -= count;
        left
    };
    let mut rest = budget;
    (0..pending.len()).filter(|&i| pending[i] == 1).for_each(|i| rest = give(i, 1));
    let mut prompts: Vec<usize> = (0..pending.len()).filter(|&i| pending[i] > 1).collect();
    if let Some(&oldest) = prompts.first() {
        give(oldest, rest.div_ceil(2));
        prompts.sort_by_key(|&i| (pending[i], i));
        prompts.iter().for_each(|&i| _ = give(i, usize::MAX));
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_tokens_go_before_prompts_and_short_prompts_before_long_ones() {
        assert_eq!(plan(&[1, 100, 1, 3, 1], 10), [1, 4, 1, 3, 1]);
        assert_eq!(plan(&[1, 100, 1, 3, 1], 200), [1, 100, 1, 3, 1]);
        assert_eq!(plan(&[4, 4], 4), [4, 0], "what short prompts leave is the oldest's");
        assert_eq!(plan(&[1, 1, 1], 2), [1, 1, 0]);
        assert_eq!(plan(&[], 2), [0; 0]);
    }

    #[test]
    fn the_oldest_prompt_moves_on_whatever_comes_after_it() {
        let others = [1; 8].into_iter().chain([5; 100]);
        let pending: Vec<usize> = [5000].into_iter().chain(others).collect();
        assert_eq!(plan(&pending, 64)[0], 28);
        assert_eq!(plan(&pending, 9)[0], 1);
    }

    #[test]
    fn a_step_is_full_or_takes_everything() {
        for budget in 0..40 {
            for pending in [&[1, 7, 1, 20][..], &[3, 3, 3], &[1, 1], &[30, 1]] {
                let plan = plan(pending, budget);
                assert_eq!(plan.iter().sum::<usize>(), budget.min(pending.iter().sum()));
                assert!(plan.iter().zip(pending).all(|(count, pending)| count <= pending));
            }
        }
    }
}
