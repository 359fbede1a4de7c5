//! Which tokens will probably come next? Guesses go into a step behind a sequence's next token, and are checked there all
//! at once: those that the sequence would have been given anyway are taken, and the first that differs ends them.
//!
//! Prompt lookup (Saxena 2023): what followed the last place where the sequence's last tokens stood will follow again.
//! Its guesses are single tokens, so that rejection sampling (Leviathan et al. 2023) is to draw from the model's own
//! distribution and to compare: the draw depends on the seed and the token's place alone, and so sampled texts do not
//! change either. Guesses of a second model ([`super::draft`]) are drawn from its distribution.

/// The fewest last tokens that must have stood elsewhere.
const SHORTEST: usize = 3;
/// More are not looked at.
const LONGEST: usize = 16;
/// The most guesses at a time.
pub(super) const MOST: usize = 8;
/// Guesses at the start.
const FIRST: usize = 3;
/// The longest pause after wrong guesses, in tokens.
const PAUSE: usize = 64;

/// How many guesses to make: as many as were right lately.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// How many guesses to make.
    length: usize,
    /// Tokens until the next guess.
    wait: usize,
    /// How many to wait when a guess is all wrong.
    pause: usize,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { length: FIRST, wait: 0, pause: 1 }
    }
}

impl Pace {
    /// At most how many.
    pub(super) fn most(&self) -> usize {
        if self.wait > 0 { 0 } else { self.length }
    }

    /// A token went by without a guess.
    pub(super) fn rest(&mut self) {
        self.wait = self.wait.saturating_sub(1);
    }

    /// Learns how many of its guesses were right.
    pub(super) fn learn(&mut self, guesses: usize, right: usize) {
        match right {
            0 => {
                (self.length, self.wait) = (FIRST, self.pause);
                self.pause = (self.pause * 2).min(PAUSE);
            }
            _ if right == guesses => (self.length, self.pause) = ((self.length * 2).min(MOST), 1),
            _ => self.length = right + 1,
        }
    }
}

/// What followed the latest of the longest earlier runs of the last tokens; where that reaches the end, what would
/// follow if it went on like this.
pub(super) fn follow(tokens: &[u32], most: usize) -> Vec<u32> {
    let Some((&last, before)) = tokens.split_last() else { return Vec::new() };
    let mut best = (SHORTEST - 1, 0);
    for end in (0..before.len()).rev().filter(|&end| before[end] == last) {
        let run = before[..=end].iter().rev().zip(tokens.iter().rev()).take(LONGEST);
        let run = run.take_while(|(a, b)| a == b).count();
        if run > best.0 {
            best = (run, end + 1);
        }
        if run == LONGEST {
            break;
        }
    }
    match best.1 {
        0 => Vec::new(),
        at => tokens[at..].iter().copied().cycle().take(most).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_what_followed_the_longest_run_and_the_latest_of_equals() {
        assert_eq!(follow(&[1, 2, 3, 4, 5, 1, 2, 3], 2), [4, 5]);
        assert_eq!(follow(&[1, 2, 3, 4, 5, 1, 2, 3], 7), [4, 5, 1, 2, 3, 4, 5]);
        assert_eq!(follow(&[1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3], 1), [5]);
        assert_eq!(follow(&[0, 1, 2, 3, 4, 9, 1, 2, 3, 5, 0, 1, 2, 3], 1), [4]);
        assert_eq!(follow(&[7, 7, 7, 7, 7], 3), [7; 3], "a run may reach into itself");
        assert_eq!(follow(&[1, 2, 9, 1, 2], 3), [0; 0], "two tokens say little");
        assert_eq!(follow(&[], 3), [0; 0]);
    }

    #[test]
    fn guesses_more_after_right_ones_and_rests_after_wrong_ones() {
        let mut pace = Pace::default();
        let mut lengths = Vec::new();
        for right in [3, 6, 8, 0, 0] {
            while pace.most() == 0 {
                lengths.push(0);
                pace.rest();
            }
            lengths.push(pace.most());
            pace.learn(pace.most(), right);
        }
        assert_eq!(lengths, [3, 6, 8, 8, 0, 3]);
        assert_eq!(pace.most(), 0);
        pace.rest();
        pace.rest();
        assert_eq!(pace.most(), 3);
    }
}
