//! The two large parts of a `tokenizer.json`, vocabulary and merges, as the file streams by; the rest is kept as it is.
//!
//! Nine tenths of a large file are these two lists. They go from a buffer of 64 KiB into their tables, without the file,
//! a tree, or a list of strings in memory. What remains is a small JSON text for `serde_json`, with `null` in their places.

use std::io::{self, Read};

use memchr::memchr2;

use crate::bpe::MergeList;
use crate::vocab::{Builder, Vocab};

/// What a file holds.
#[derive(Default)]
pub(crate) struct Scanned {
    /// The file without what follows.
    pub(crate) rest: Vec<u8>,
    /// The model's tokens; none if there are none, or if their ids are not those from 0 on.
    pub(crate) vocab: Option<Vocab>,
    /// The scores of the tokens, where it is a list of pieces with their scores.
    pub(crate) scores: Vec<f64>,
    /// The model's merges; none if there are none, or if one does not fit the vocabulary.
    pub(crate) merges: Option<MergeList>,
}

/// Why a file could not be read.
#[derive(Debug)]
pub(crate) enum Stop {
    Read(io::Error),
    TooLarge,
    /// In words, with the place.
    Invalid(String),
}

/// Reads a file of at most `limit` bytes.
pub(crate) fn scan(file: impl Read, limit: u64) -> Result<Scanned, Stop> {
    let mut scanner = Scanner { file, buffer: vec![0; BUFFER], at: 0, end: 0, passed: 0, limit };
    let mut out = Scanned::default();
    scanner.fields(&mut out, |scanner, key, out| match key {
        b"model" if scanner.next()? == b'{' => scanner.fields(out, |scanner, key, out| match (key, scanner.next()?) {
            (b"vocab", b'{') => scanner.tokens(out),
            (b"vocab", b'[') => scanner.pieces(out),
            (b"merges", b'[') => scanner.merges(out),
            _ => scanner.copy(&mut out.rest),
        }),
        _ => scanner.copy(&mut out.rest),
    })?;
    match scanner.skip()? {
        Some(_) => Err(scanner.invalid("the end of the file")),
        None => Ok(out),
    }
}

const BUFFER: usize = 1 << 16;

struct Scanner<R> {
    file: R,
    buffer: Vec<u8>,
    /// What of the buffer is to be read: `at..end`.
    at: usize,
    end: usize,
    /// Bytes of the file before the buffer.
    passed: u64,
    limit: u64,
}

type Done = Result<(), Stop>;

impl<R: Read> Scanner<R> {
    /// Reads on; what is to be read stays. False at the end of the file.
    fn fill(&mut self) -> Result<bool, Stop> {
        self.buffer.copy_within(self.at..self.end, 0);
        self.passed += self.at as u64;
        (self.at, self.end) = (0, self.end - self.at);
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let read = loop {
            match self.file.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.map_err(Stop::Read)?,
            }
        };
        self.end += read;
        match self.passed + self.end as u64 > self.limit {
            true => Err(Stop::TooLarge),
            false => Ok(read > 0),
        }
    }

    fn invalid(&self, expected: &str) -> Stop {
        Stop::Invalid(format!("not valid JSON at byte {}: expected {expected}", self.passed + self.at as u64))
    }

    /// The next byte that is not white space, which is not taken; none at the end of the file.
    fn skip(&mut self) -> Result<Option<u8>, Stop> {
        loop {
            let rest = &self.buffer[self.at..self.end];
            if let Some(spaces) = rest.iter().position(|b| !matches!(b, b' ' | b'\n' | b'\r' | b'\t')) {
                self.at += spaces;
                return Ok(Some(self.buffer[self.at]));
            }
            self.at = self.end;
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// The same where the file cannot end.
    fn next(&mut self) -> Result<u8, Stop> {
        self.skip()?.ok_or_else(|| self.invalid("more"))
    }

    /// Takes one of two bytes, and says whether it was the first.
    fn take(&mut self, first: u8, second: u8) -> Result<bool, Stop> {
        let next = self.next()?;
        if next != first && next != second {
            return Err(self.invalid(&format!("{:?} or {:?}", first as char, second as char)));
        }
        self.at += 1;
        Ok(next == first)
    }

    fn expect(&mut self, byte: u8) -> Done {
        self.take(byte, byte).map(drop)
    }

    /// Takes a text, quotes and escapes included; its length.
    fn raw(&mut self) -> Result<(usize, bool), Stop> {
        if self.next()? != b'"' {
            return Err(self.invalid("a text"));
        }
        let (mut length, mut escaped) = (1, false);
        loop {
            match memchr2(b'"', b'\\', &self.buffer[self.at + length..self.end]) {
                Some(found) if self.buffer[self.at + length + found] == b'"' => {
                    return Ok((length + found + 1, escaped));
                }
                Some(found) => {
                    escaped = true;
                    length += found + 2;
                    while self.at + length > self.end {
                        if !self.fill()? {
                            return Err(self.invalid("the end of a text"));
                        }
                    }
                }
                None => {
                    length = self.end - self.at;
                    if !self.fill()? {
                        return Err(self.invalid("the end of a text"));
                    }
                }
            }
        }
    }

    /// Takes a text and gives it to `run`.
    fn text<T>(&mut self, run: impl FnOnce(&[u8]) -> T) -> Result<T, Stop> {
        let (length, escaped) = self.raw()?;
        let raw = &self.buffer[self.at..self.at + length];
        let result = match escaped {
            false => run(&raw[1..length - 1]),
            true => match serde_json::from_slice::<String>(raw) {
                Ok(text) => run(text.as_bytes()),
                Err(_) => return Err(self.invalid("a text with other escapes")),
            },
        };
        self.at += length;
        Ok(result)
    }

    /// Takes a number and gives its digits to `run`.
    fn number<T>(&mut self, run: impl FnOnce(&[u8]) -> Option<T>) -> Result<T, Stop> {
        self.next()?;
        let mut length = 0;
        loop {
            let rest = &self.buffer[self.at + length..self.end];
            match rest.iter().position(|b| !matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')) {
                Some(found) => {
                    length += found;
                    break;
                }
                None => {
                    length = self.end - self.at;
                    if !self.fill()? {
                        return Err(self.invalid("more"));
                    }
                }
            }
        }
        let number = run(&self.buffer[self.at..self.at + length]).ok_or_else(|| self.invalid("another number"))?;
        self.at += length;
        Ok(number)
    }

    /// Copies any value. How deep it is does not matter.
    fn copy(&mut self, out: &mut Vec<u8>) -> Done {
        let mut depth = 0usize;
        loop {
            match self.next()? {
                b'"' => {
                    let (length, _) = self.raw()?;
                    out.extend_from_slice(&self.buffer[self.at..self.at + length]);
                    self.at += length;
                }
                open @ (b'{' | b'[') => {
                    out.push(open);
                    self.at += 1;
                    depth += 1;
                }
                close @ (b'}' | b']') => {
                    out.push(close);
                    self.at += 1;
                    depth = depth.checked_sub(1).ok_or_else(|| self.invalid("a value"))?;
                }
                mark @ (b',' | b':') if depth > 0 => {
                    out.push(mark);
                    self.at += 1;
                }
                // Numbers and names, up to their end.
                b'0'..=b'9' | b'+' | b'-' | b'.' | b'a'..=b'z' | b'A'..=b'Z' => {
                    while self.at < self.end || self.fill()? {
                        let byte = self.buffer[self.at];
                        if !(byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')) {
                            break;
                        }
                        out.push(byte);
                        self.at += 1;
                    }
                    out.push(b' ');
                }
                _ => return Err(self.invalid("a value")),
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Takes an object: copies its keys to the rest and has `field` take each value, in the place of which `null` stands if
    /// it copies none.
    fn fields(&mut self, out: &mut Scanned, field: impl Fn(&mut Self, &[u8], &mut Scanned) -> Done) -> Done {
        self.expect(b'{')?;
        out.rest.push(b'{');
        if self.next()? == b'}' {
            self.at += 1;
            out.rest.push(b'}');
            return Ok(());
        }
        loop {
            let (length, _) = self.raw()?;
            let key = self.buffer[self.at..self.at + length].to_vec();
            self.at += length;
            out.rest.extend_from_slice(&key);
            self.expect(b':')?;
            out.rest.push(b':');
            let before = out.rest.len();
            field(self, &key[1..length - 1], out)?;
            if out.rest.len() == before {
                out.rest.extend_from_slice(b"null");
            }
            let more = self.take(b',', b'}')?;
            out.rest.push(if more { b',' } else { b'}' });
            if !more {
                return Ok(());
            }
        }
    }

    /// Takes a list, each element of which `element` takes.
    fn list(&mut self, mut element: impl FnMut(&mut Self) -> Done) -> Done {
        self.expect(b'[')?;
        if self.next()? == b']' {
            self.at += 1;
            return Ok(());
        }
        loop {
            element(self)?;
            if !self.take(b',', b']')? {
                return Ok(());
            }
        }
    }

    /// An object of ids.
    fn tokens(&mut self, out: &mut Scanned) -> Done {
        let mut builder = Builder::default();
        self.expect(b'{')?;
        let mut more = self.next()? != b'}';
        self.at += usize::from(!more);
        let mut full = false;
        while more {
            self.text(|token| builder.text(token))?;
            self.expect(b':')?;
            let id = self.number(|digits| std::str::from_utf8(digits).ok()?.parse().ok())?;
            full |= builder.number(id).is_err();
            more = self.take(b',', b'}')?;
        }
        out.vocab = builder.sorted(0).filter(|_| !full).map(Builder::build);
        Ok(())
    }

    /// A list of pieces and their scores.
    fn pieces(&mut self, out: &mut Scanned) -> Done {
        let mut builder = Builder::default();
        let mut full = false;
        self.list(|scanner| {
            scanner.expect(b'[')?;
            full |= scanner.text(|token| builder.push(token))?.is_err();
            scanner.expect(b',')?;
            // As the reference reads it, to the last bit.
            out.scores.push(scanner.number(|digits| serde_json::from_slice(digits).ok())?);
            scanner.expect(b']')
        })?;
        out.vocab = (!full).then(|| builder.build());
        Ok(())
    }

    /// A list of pairs, or of texts with a space between the two tokens.
    fn merges(&mut self, out: &mut Scanned) -> Done {
        let mut merges = MergeList::default();
        let Scanned { vocab, merges: found, .. } = out;
        let mut fit = vocab.is_some();
        let empty = Vocab::default();
        let vocab = vocab.as_ref().unwrap_or(&empty);
        self.list(|scanner| {
            if scanner.next()? != b'[' {
                return scanner.text(|text| {
                    let at = memchr::memchr(b' ', text);
                    match at.map(|at| (&text[..at], &text[at + 1..])) {
                        // Some files begin with a comment.
                        _ if text.starts_with(b"#version") => {}
                        Some((left, right)) if fit && !right.contains(&b' ') => {
                            fit = merges.push(vocab, left, right).is_ok();
                        }
                        _ => fit = false,
                    }
                });
            }
            let mut count = 0;
            scanner.list(|scanner| {
                count += 1;
                scanner.text(|token| {
                    if fit && count <= 2 {
                        merges.token(token);
                    }
                })
            })?;
            fit = fit && count == 2 && merges.look_up_many(vocab).is_ok();
            Ok(())
        })?;
        *found = fit.then_some(merges);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Gives a few bytes at a time.
    struct Slowly<'a>(&'a [u8], usize);

    impl Read for Slowly<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn vocabulary_and_merges_are_taken_out_and_the_rest_stays() {
        let file = json!({
            "version": "1.0", "list": [1, -2.5e3, true, null, {"a": "}\"]\\"}], "empty": {}, "none": [],
            "model": {"type": "BPE", "vocab": {"a": 0, "\"": 2, "b\n": 1, "ab\n": 3, "é": 4}, "merges": [["a", "b\n"]], "x": {"vocab": [1]}},
            "vocab": {"kept": 1}
        });
        for text in [file.to_string(), serde_json::to_string_pretty(&file).unwrap()] {
            for step in [1, 2, 7, 1000] {
                let scanned = scan(Slowly(text.as_bytes(), step), 1 << 20).unwrap();
                let mut expected = file.clone();
                expected["model"]["vocab"] = Value::Null;
                expected["model"]["merges"] = Value::Null;
                assert_eq!(serde_json::from_slice::<Value>(&scanned.rest).unwrap(), expected);
                let vocab = scanned.vocab.unwrap();
                assert_eq!(["a", "b\n", "\"", "ab\n", "é"].map(|t| vocab.get(t.as_bytes())), [0, 1, 2, 3, 4].map(Some));
                assert!(scanned.merges.is_some());
            }
        }
    }

    #[test]
    fn what_is_cut_off_or_too_large_is_refused() {
        let text = r#"{"model": {"vocab": {"a": 0, "b": 1}, "merges": ["a b", ["a", "b"]]}, "x": "\u0041"}"#;
        for end in 0..text.len() {
            assert!(matches!(scan(&text.as_bytes()[..end], 1 << 20), Err(Stop::Invalid(_))), "{}", &text[..end]);
        }
        assert!(matches!(scan(text.as_bytes(), 20), Err(Stop::TooLarge)));
        for wrong in
            [r#"{"a" 1}"#, r#"{"a":]}"#, r#"{"model": {"vocab": {"a": -1}}}"#, r#"[1]"#, r#"{"a":1,}"#, r#"{"a":1} x"#]
        {
            assert!(matches!(scan(wrong.as_bytes(), 1 << 20), Err(Stop::Invalid(_))), "{wrong}");
        }
    }
}
