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
const MOST: usize = 8;
/// The longest time without a guess where guesses do not pay, in tokens.
const PAUSE: usize = 64;
/// How much each guess that is looked at counts.
const WEIGHT: f32 = 0.15;

/// How many guesses to make: as many as will probably be right often enough for what they cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// How often guesses were right lately.
    odds: f32,
    /// Tokens until the next guess.
    wait: usize,
    /// How long to wait after the next guess that does not pay.
    pause: usize,
}

impl Default for Pace {
    fn default() -> Pace {
        // Three of four, until something is known.
        Pace { odds: 0.75, wait: 0, pause: 1 }
    }
}

impl Pace {
    /// How many guesses at the next tokens, if one costs as much as `price` tokens. Where none pays, there is one now and
    /// then, to see whether that is still so.
    pub(super) fn next(&mut self, price: f32) -> usize {
        if self.wait > 0 {
            self.wait -= 1;
            return 0;
        }
        let worthwhile = (1..=MOST).take_while(|&i| self.odds.powi(i as i32) > price).count();
        if worthwhile == 0 {
            self.wait = self.pause;
            self.pause = (2 * self.pause).min(PAUSE);
        }
        worthwhile.max(1)
    }

    /// Learns how many of its guesses were right; those after the first wrong one were not looked at.
    pub(super) fn learn(&mut self, guesses: usize, right: usize) {
        (0..right).for_each(|_| self.odds += WEIGHT * (1.0 - self.odds));
        if right < guesses {
            self.odds -= WEIGHT * self.odds;
        } else {
            self.pause = 1;
        }
    }
}

/// What does a further row of a step cost, measured? The line through the times of steps of few rows (least squares), the
/// older ones counting less.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    steps: f64,
    rows: f64,
    seconds: f64,
    rows_squared: f64,
    rows_seconds: f64,
}

impl Cost {
    /// Learns how long a step of so many rows took.
    pub(super) fn learn(&mut self, rows: usize, seconds: f64) {
        let rows = rows as f64;
        // Now and then the machine does something else: that says nothing.
        let seconds = match self.line() {
            Some((fixed, row)) if self.steps > 8.0 => seconds.min(2.0 * (fixed + row * rows)),
            _ => seconds,
        };
        for (sum, value) in [
            (&mut self.steps, 1.0),
            (&mut self.rows, rows),
            (&mut self.seconds, seconds),
            (&mut self.rows_squared, rows * rows),
            (&mut self.rows_seconds, rows * seconds),
        ] {
            *sum = 0.98 * *sum + value;
        }
    }

    /// Seconds of a step, and of each of its rows.
    fn line(&self) -> Option<(f64, f64)> {
        let spread = self.steps * self.rows_squared - self.rows * self.rows;
        if spread < 1e-3 * self.steps * self.steps {
            return None; // steps of one size say nothing about others
        }
        let row = ((self.steps * self.rows_seconds - self.rows * self.seconds) / spread).max(0.0);
        Some((((self.seconds - row * self.rows) / self.steps).max(0.0), row))
    }

    /// Tokens that a step of `rows` rows, each of which gives one, would give in the time of a further row.
    pub(super) fn price(&self, rows: usize) -> f32 {
        match self.line() {
            Some((fixed, row)) if row > 0.0 => (row * rows as f64 / (fixed + row * rows as f64)) as f32,
            _ => 0.0,
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
    fn more_guesses_where_they_are_right_and_cheap_and_rests_where_not() {
        let mut pace = Pace::default();
        assert_eq!([0.1, 0.5, 0.6, 0.7].map(|price| pace.next(price)), [8, 2, 1, 1]);
        assert_eq!([0.8, 0.0].map(|price| pace.next(price)), [1, 0], "one to see, and a rest");
        (0..9).for_each(|_| pace.learn(8, 8));
        assert_eq!(pace.next(0.9), 8);
        (0..9).for_each(|_| pace.learn(8, 0));
        let tries = (0..400).filter(|_| pace.next(0.5) > 0).count();
        assert!((8..=14).contains(&tries), "{tries}");
        pace.learn(1, 1);
        (0..9).for_each(|_| pace.learn(2, 2));
        (0..PAUSE).for_each(|_| _ = pace.next(0.5));
        assert!(pace.next(0.5) > 2);
    }

    #[test]
    fn a_price_is_what_was_measured() {
        let mut cost = Cost::default();
        (0..20).for_each(|_| cost.learn(1, 0.016));
        assert_eq!(cost.price(1), 0.0, "nothing is known");
        (0..20).for_each(|i| cost.learn(1 + i % 4, 0.007 + 0.009 * (1 + i % 4) as f64));
        assert!((cost.price(1) - 9.0 / 16.0).abs() < 1e-3, "{}", cost.price(1));
        assert!((cost.price(4) - 36.0 / 43.0).abs() < 1e-3);
        cost.learn(3, 5.0);
        assert!((cost.price(1) - 9.0 / 16.0).abs() < 0.1, "{}", cost.price(1));
        let mut free = Cost::default();
        (0..20).for_each(|i| free.learn(1 + i % 4, 0.02));
        assert!(free.price(1) < 1e-6);
    }
}
