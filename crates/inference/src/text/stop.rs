//! Stop strings in streamed text: where does it end, and what may be given out already?

/// Finds the earliest stop string in a text that comes in pieces.
///
/// Earliest is the match that starts first, however the text was cut into pieces. Text that may be the beginning of a
/// stop string is held back until it is clear, at most until [`StopStrings::finish`]; what was given out never changes.
#[derive(Clone, Debug)]
pub struct StopStrings {
    stops: Vec<String>,
    held: String,
    stopped: Option<usize>,
}

/// Text to give out, and whether it ends there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// What may be given out now.
    pub text: String,
    /// Index of the stop string that ended the text: nothing comes after this.
    pub stop: Option<usize>,
}

impl StopStrings {
    /// A matcher for these stop strings; empty ones are ignored.
    pub fn new(stops: &[String]) -> StopStrings {
        StopStrings { stops: stops.to_vec(), held: String::new(), stopped: None }
    }

    /// Takes the next piece of text. After a match every further piece is dropped.
    pub fn push(&mut self, text: &str) -> Piece {
        if self.stopped.is_some() {
            return Piece { text: String::new(), stop: self.stopped };
        }
        self.held.push_str(text);
        let mut out = self.held.len();
        for (at, _) in self.held.char_indices() {
            let rest = &self.held[at..];
            self.stopped = self.stops.iter().position(|stop| !stop.is_empty() && rest.starts_with(stop.as_str()));
            if self.stopped.is_some() || self.stops.iter().any(|stop| stop.starts_with(rest)) {
                out = at;
                break;
            }
        }
        self.take(out)
    }

    /// Ends the text: gives out what was held back. The matcher is then as new.
    pub fn finish(&mut self) -> Piece {
        let mut piece = Piece { text: String::new(), stop: self.stopped.take() };
        // What begins a stop string that never came may hide a shorter one that starts later.
        while piece.stop.is_none() && !self.held.is_empty() {
            let first = self.held.chars().next().map_or(0, char::len_utf8);
            piece.text.extend(self.held.drain(..first));
            let next = self.push("");
            piece.text.push_str(&next.text);
            piece.stop = self.stopped.take();
        }
        self.held.clear();
        piece
    }

    /// Gives out the first `out` bytes of what is held.
    fn take(&mut self, out: usize) -> Piece {
        let text = self.held.drain(..out).collect();
        if self.stopped.is_some() {
            self.held.clear();
        }
        Piece { text, stop: self.stopped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stops(stops: &[&str]) -> Vec<String> {
        stops.iter().map(|stop| stop.to_string()).collect()
    }

    fn stream<'a>(list: &[String], pieces: impl IntoIterator<Item = &'a str>) -> (String, bool) {
        let mut matcher = StopStrings::new(list);
        let mut text = String::new();
        for piece in pieces {
            let piece = matcher.push(piece);
            text.push_str(&piece.text);
            if piece.stop.is_some() {
                return (text, true);
            }
        }
        let piece = matcher.finish();
        (text + &piece.text, piece.stop.is_some())
    }

    /// The definition: the text before the match that starts first.
    fn whole(list: &[String], text: &str) -> (String, bool) {
        let first = list.iter().filter_map(|stop| text.find(stop.as_str())).min();
        (text[..first.unwrap_or(text.len())].to_string(), first.is_some())
    }

    #[test]
    fn a_stop_across_pieces_cuts_and_is_never_given_out() {
        let mut matcher = StopStrings::new(&stops(&["own fox"]));
        let mut given = Vec::new();
        for token in ["The", " quick", " brown", " fox"] {
            let piece = matcher.push(token);
            given.push(piece.text);
            if token == " fox" {
                assert_eq!(piece.stop, Some(0));
            }
        }
        assert_eq!(given, ["The", " quick", " br", ""]);
        assert_eq!(matcher.push(" jumps"), Piece { text: String::new(), stop: Some(0) });
    }

    #[test]
    fn held_text_comes_at_the_end() {
        let mut matcher = StopStrings::new(&stops(&["\n\nUser:"]));
        assert_eq!(matcher.push("Yes.\n\nUs").text, "Yes.");
        assert_eq!(matcher.finish(), Piece { text: "\n\nUs".into(), stop: None });
    }

    #[test]
    fn of_two_stops_the_one_that_starts_first_wins() {
        let list = stops(&["dog", "cat"]);
        assert_eq!(stream(&list, ["a cat and a dog"]), ("a ".into(), true));
        // Also where a later one is complete earlier.
        let list = stops(&["bc", "abcd"]);
        assert_eq!(stream(&list, ["xabc", "d"]), ("x".into(), true));
        assert_eq!(stream(&list, ["xabc", "e"]), ("xa".into(), true));
        assert_eq!(stream(&list, ["xabc"]), ("xa".into(), true));
    }

    #[test]
    fn text_that_cannot_begin_a_stop_is_not_held() {
        let mut matcher = StopStrings::new(&stops(&["###"]));
        assert_eq!(matcher.push("a#b").text, "a#b");
        assert_eq!(matcher.push("#").text, "");
        assert_eq!(matcher.push("#!").text, "##!");
    }

    proptest! {
        #[test]
        fn streamed_equals_unstreamed(
            list in prop::collection::vec("[abé日]{1,4}", 0..4),
            pieces in prop::collection::vec("[abé日c]{0,5}", 0..12),
        ) {
            let text: String = pieces.concat();
            prop_assert_eq!(stream(&list, pieces.iter().map(String::as_str)), whole(&list, &text));
        }

        #[test]
        fn any_text_without_a_match_comes_out_whole(text in any::<String>(), stop in "\\PC{1,5}", cut in any::<prop::sample::Index>()) {
            let list = vec![stop];
            let mut at = cut.index(text.len() + 1);
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            prop_assert_eq!(stream(&list, [&text[..at], &text[at..]]), whole(&list, &text));
        }
    }
}
