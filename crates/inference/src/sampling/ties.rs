//! Which of equal logits top-p drops first: those that the reference's sort, which is not stable, puts first.
//!
//! PyTorch sorts a row on the CPU by libstdc++'s `std::sort`, so that is what this does, step by step: quicksort with the
//! median of three as pivot until parts are of 16 or fewer, then insertion. Among equals any order is as good as
//! another; this one makes results equal to the reference's, and it is asked for only if equals lie across the border.

type Pair = (f32, u32);

/// The indices of a row in ascending order of value.
pub(super) fn ascending(row: &[f32]) -> Vec<u32> {
    let mut pairs: Vec<Pair> = row.iter().zip(0..).map(|(&x, i)| (x, i)).collect();
    let depth = 2 * row.len().max(1).ilog2();
    quicksort(&mut pairs, depth);
    // The insertion sort that follows keeps equals in order.
    pairs.sort_by(|a, b| (a.0 + 0.0).total_cmp(&(b.0 + 0.0)));
    pairs.into_iter().map(|(_, i)| i).collect()
}

/// `std::__introsort_loop`. It would go over to heap sort at `depth` 0, which real rows do not reach; here the final sort
/// takes over.
fn quicksort(mut part: &mut [Pair], mut depth: u32) {
    while part.len() > 16 && depth > 0 {
        depth -= 1;
        let cut = partition(part);
        let (left, right) = part.split_at_mut(cut);
        quicksort(right, depth);
        part = left;
    }
}

/// `std::__unguarded_partition_pivot`: everything before the returned index is ≤ the pivot, everything from it on ≥.
fn partition(part: &mut [Pair]) -> usize {
    let (a, b, c) = (1, part.len() / 2, part.len() - 1);
    let less = |x: usize, y: usize| part[x].0 < part[y].0;
    let median = match (less(a, b), less(b, c), less(a, c)) {
        (true, true, _) | (false, false, false) => b,
        (true, false, true) | (false, true, false) => c,
        (true, false, false) | (false, _, true) => a,
    };
    part.swap(0, median);
    let pivot = part[0].0;
    let (mut first, mut last) = (1, part.len());
    loop {
        while part[first].0 < pivot {
            first += 1;
        }
        last -= 1;
        while pivot < part[last].0 {
            last -= 1;
        }
        if first >= last {
            return first;
        }
        part.swap(first, last);
        first += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equals_come_in_the_order_of_torch_sort() {
        // torch.sort(torch.zeros(1, 20)), and of 40 zeros of which the one at 5 is -1.
        let right = [10, 19, 18, 17, 16, 15, 14, 13, 12, 11, 0, 9, 8, 7, 6, 5, 4, 3, 2, 1];
        assert_eq!(ascending(&[0.0; 20]), right);
        let mut row = [0.0; 40];
        row[5] = -1.0;
        let right = [
            5, 31, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 20, 32, 33, 34, 35, 36, 37, 38, 39, 11, 1, 2, 3, 4, 6, 7, 8,
            9, 10, 0, 12, 13, 14, 15, 16, 17, 18, 19,
        ];
        assert_eq!(ascending(&row), right);
    }

    proptest! {
        #[test]
        fn every_index_comes_once_in_order(row in prop::collection::vec(-3i8..3, 0..600)) {
            let row: Vec<f32> = row.into_iter().map(|x| if x == -3 { f32::NEG_INFINITY } else { x.into() }).collect();
            let order = ascending(&row);
            prop_assert!(order.windows(2).all(|w| row[w[0] as usize] <= row[w[1] as usize]));
            let mut ids = order;
            ids.sort_unstable();
            prop_assert!(ids.iter().enumerate().all(|(i, &id)| i == id as usize) && ids.len() == row.len());
        }
    }
}
