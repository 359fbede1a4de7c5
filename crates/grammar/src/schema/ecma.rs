//! A `pattern` of a schema is a regular expression of ECMA-262; what is it in the syntax of the `regex` crate?
//!
//! The two differ in character classes (`[[a]` and `[a&&b]` mean sets of characters there, operations here), in braces that
//! are no repetition, in escapes, and in `\s`. Look-ahead at the start of an anchored pattern is a pattern of its own.

/// `\s` of ECMA-262, inside of a class.
const SPACE: &str = r"\t\n\x0b\x0c\r \u{a0}\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}\u{feff}";

/// The patterns that together say what `pattern` says.
///
/// # Errors
/// What is in it that has no counterpart.
pub(super) fn translate(pattern: &str) -> Result<Vec<String>, String> {
    let (ahead, rest) = leading(pattern);
    let mut out = ahead.iter().map(|inner| Ok(format!("^(?:{})", Reader::new(inner).all()?)));
    let mut patterns = out.by_ref().collect::<Result<Vec<_>, String>>()?;
    patterns.push(Reader::new(&rest).all()?);
    Ok(patterns)
}

/// Look-aheads right after the `^` of a pattern without alternatives, and the pattern without them.
fn leading(pattern: &str) -> (Vec<&str>, String) {
    let Some(mut rest) = pattern.strip_prefix('^') else { return (Vec::new(), pattern.to_owned()) };
    let mut ahead = Vec::new();
    while let Some(after) = rest.strip_prefix("(?=") {
        let Some(end) = closing(after) else { break };
        ahead.push(&after[..end]);
        rest = &after[end + 1..];
    }
    match ahead.is_empty() || has_alternatives(rest) {
        true => (Vec::new(), pattern.to_owned()),
        false => (ahead, format!("^{rest}")),
    }
}

/// Where the bracket that is open closes.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    outside_classes(text, |at, c| match c {
        '(' => {
            depth += 1;
            None
        }
        ')' if depth == 0 => Some(at),
        ')' => {
            depth -= 1;
            None
        }
        _ => None,
    })
}

fn has_alternatives(text: &str) -> bool {
    let mut depth = 0;
    let found = outside_classes(text, |at, c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            '|' if depth == 0 => return Some(at),
            _ => {}
        }
        None
    });
    found.is_some()
}

/// Looks at each character that is neither escaped nor in a class, until one is found.
fn outside_classes(text: &str, mut look: impl FnMut(usize, char) -> Option<usize>) -> Option<usize> {
    let (mut escaped, mut class) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ']' => class = false,
            _ if class => {}
            '[' => class = true,
            _ => {
                if let Some(found) = look(at, c) {
                    return Some(found);
                }
            }
        }
    }
    None
}

struct Reader<'a> {
    rest: &'a str,
    out: String,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Reader<'a> {
        Reader { rest: text, out: String::with_capacity(text.len()) }
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn all(mut self) -> Result<String, String> {
        while let Some(c) = self.next() {
            match c {
                '\\' => self.escape(false)?,
                '[' => self.class()?,
                '(' => self.group()?,
                '{' if !is_repetition(self.rest) => self.out.push_str("\\{"),
                '}' if !self.closes_repetition() => self.out.push_str("\\}"),
                ']' => self.out.push_str("\\]"),
                _ => self.out.push(c),
            }
        }
        Ok(self.out)
    }

    /// Whether the brace that comes closes one that was put out as a repetition.
    fn closes_repetition(&self) -> bool {
        let digits = self.out.trim_end_matches(|c: char| c.is_ascii_digit() || c == ',');
        digits.ends_with('{') && !digits.ends_with("\\{") && digits.len() < self.out.len()
    }

    fn group(&mut self) -> Result<(), String> {
        self.out.push('(');
        if let Some(after) = self.rest.strip_prefix('?') {
            if after.starts_with(['=', '!']) || after.starts_with("<=") || after.starts_with("<!") {
                return Err("look-around is not built".into());
            }
            if !after.starts_with([':', '<']) && !after.starts_with("P<") {
                return Err("flags inside of a pattern are not built".into());
            }
        }
        Ok(())
    }

    /// After a backslash.
    fn escape(&mut self, in_class: bool) -> Result<(), String> {
        let Some(c) = self.next() else { return Err("it ends with a backslash".into()) };
        match c {
            'd' | 'D' | 'w' | 'W' | 'n' | 'r' | 't' | 'v' | 'f' => {
                self.out.push('\\');
                self.out.push(c);
            }
            's' if in_class => self.out.push_str(SPACE),
            's' => self.out.push_str(&format!("[{SPACE}]")),
            'S' => self.out.push_str(&format!("[^{SPACE}]")),
            'b' if in_class => self.out.push_str("\\x08"),
            'b' | 'B' => return Err("word borders are not built".into()),
            '0' if !self.rest.starts_with(|c: char| c.is_ascii_digit()) => self.out.push_str("\\x00"),
            '0'..='9' => return Err("references to groups are not built".into()),
            'k' if self.rest.starts_with('<') => return Err("references to groups are not built".into()),
            'p' | 'P' if self.rest.starts_with('{') => {
                let end = self.rest.find('}').ok_or("a \\p{…} does not end")?;
                self.out.push('\\');
                self.out.push(c);
                self.out.push_str(&self.rest[..=end]);
                self.rest = &self.rest[end + 1..];
            }
            'A' | 'Z' | 'z' | 'G' | 'Q' | 'E' => return Err(format!("\\{c} is no escape of ECMA-262")),
            'c' => match self.next() {
                Some(letter) if letter.is_ascii_alphabetic() => self.code(letter as u32 % 32),
                _ => return Err("\\c stands without a letter".into()),
            },
            'x' => match self.hex(2) {
                Some(code) => self.code(code),
                None => self.out.push('x'),
            },
            'u' => {
                let Some(code) = self.unicode() else {
                    self.out.push('u');
                    return Ok(());
                };
                if char::from_u32(code).is_none() {
                    return Err(format!("\\u{code:x} is no character"));
                }
                self.code(code);
            }
            _ => self.code(c as u32),
        }
        Ok(())
    }

    fn code(&mut self, code: u32) {
        match char::from_u32(code) {
            Some(c) if c.is_ascii_alphanumeric() => self.out.push(c),
            _ => self.out.push_str(&format!("\\u{{{code:x}}}")),
        }
    }

    fn hex(&mut self, digits: usize) -> Option<u32> {
        let text = self.rest.get(..digits)?;
        let code = u32::from_str_radix(text, 16).ok().filter(|_| text.bytes().all(|b| b.is_ascii_hexdigit()))?;
        self.rest = &self.rest[digits..];
        Some(code)
    }

    /// After `\u`: four digits, two of them that make a pair, or any number in braces.
    fn unicode(&mut self) -> Option<u32> {
        if let Some(inner) = self.rest.strip_prefix('{') {
            let end = inner.find('}').filter(|&end| (1..=6).contains(&end))?;
            let code = u32::from_str_radix(&inner[..end], 16).ok()?;
            self.rest = &inner[end + 1..];
            return Some(code);
        }
        let high = self.hex(4)?;
        if !(0xd800..0xdc00).contains(&high) {
            return Some(high);
        }
        let before = self.rest;
        if let Some(after) = self.rest.strip_prefix("\\u") {
            self.rest = after;
            if let Some(low @ 0xdc00..0xe000) = self.hex(4) {
                return Some(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00));
            }
        }
        self.rest = before;
        Some(high)
    }

    /// After the bracket that opens a class.
    fn class(&mut self) -> Result<(), String> {
        if let Some(rest) = self.rest.strip_prefix("^]") {
            self.rest = rest;
            self.out.push_str("(?s:.)");
            return Ok(());
        }
        if let Some(rest) = self.rest.strip_prefix(']') {
            self.rest = rest;
            self.out.push_str(r"[^\x00-\u{10ffff}]");
            return Ok(());
        }
        self.out.push('[');
        if let Some(rest) = self.rest.strip_prefix('^') {
            self.rest = rest;
            self.out.push('^');
        }
        // Whether a character stands before that a hyphen could make a range of, and whether it did.
        let (mut atom, mut range) = (false, false);
        loop {
            let Some(c) = self.next() else { return Err("a class does not end".into()) };
            match c {
                ']' => {
                    self.out.push(']');
                    return Ok(());
                }
                '-' if atom && !range && !self.rest.starts_with(']') && !self.is_set_next() => {
                    self.out.push('-');
                    range = true;
                    continue;
                }
                '\\' => {
                    let set = self.rest.starts_with(['d', 'D', 'w', 'W', 's', 'S', 'p', 'P']);
                    self.escape(true)?;
                    if set {
                        (atom, range) = (false, false);
                        continue;
                    }
                }
                _ => self.code(c as u32),
            }
            (atom, range) = (!range, false);
        }
    }

    /// Whether an escape that stands for several characters comes: a hyphen before it is a hyphen.
    fn is_set_next(&self) -> bool {
        self.rest.strip_prefix('\\').is_some_and(|rest| rest.starts_with(['d', 'D', 'w', 'W', 's', 'S', 'p', 'P']))
    }
}

/// Whether what follows an opening brace makes it a repetition.
fn is_repetition(rest: &str) -> bool {
    let Some(end) = rest.find('}') else { return false };
    let (least, most) = rest[..end].split_once(',').unwrap_or((&rest[..end], ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    !least.is_empty() && digits(least) && digits(most)
}

#[cfg(test)]
mod tests {
    use super::super::strings::{matches, pattern};
    use super::*;

    fn fits(text: &str, ecma: &str) -> bool {
        let all = translate(ecma).unwrap_or_else(|e| panic!("{ecma}: {e}"));
        all.iter().all(|p| matches(pattern(p), text).unwrap_or_else(|| panic!("{ecma} as {p}")))
    }

    #[test]
    fn patterns_mean_what_they_mean_in_ecmascript() {
        let rows: &[(&str, &[&str], &[&str])] = &[
            ("^[[]$", &["["], &["]", ""]),
            ("^[a&&b]+$", &["a&b"], &["c"]),
            ("^[+--]$", &["+", ",", "-"], &["."]),
            ("^[--a]$", &["-", "a", "A"], &["b"]),
            ("^[\\w-]+$", &["a-b_9"], &["ä", "a b"]),
            ("^[\\w-.]+$", &["a-b.c"], &["a/b"]),
            ("^[^\\s]+$", &["ab"], &["a b", "a\u{feff}"]),
            ("^\\d+$", &["12"], &["١٢"]),
            ("^a{,2}$", &["a{,2}"], &["aa"]),
            ("^{a}$", &["{a}"], &["a"]),
            ("^a{2,3}$", &["aa", "aaa"], &["a", "aaaa"]),
            ("^\\/\\-\\<\\.\\'$", &["/-<.'"], &["/-<a'"]),
            ("^\\u0041\\x42\\cJ\\u{1F600}\\ud83d\\ude00$", &["AB\n😀😀"], &["AB"]),
            ("^[\\b]$", &["\u{8}"], &["b"]),
            ("^[^]$", &["\n", "a"], &[""]),
            ("a|b", &["xbx"], &["xyz"]),
            ("^a|b$", &["ax", "xb"], &["xax"]),
            ("^(?=.*\\d)(?=.*[a-z]).{4,}$", &["abc1", "1abcd"], &["abcd", "1234", "ab1"]),
            ("^(?<year>\\d{4})$", &["2024"], &["24"]),
            ("^\\p{L}+$", &["äb"], &["1"]),
            ("^[\\p{L}\\d]+$", &["ä1"], &["-"]),
            ("]}", &["a]}"], &["]"]),
            ("^$", &[""], &["a"]),
            ("^[a-z]+(?:-[a-z]+)*?$", &["ab-c"], &["-"]),
        ];
        for (ecma, good, bad) in rows {
            good.iter().for_each(|text| assert!(fits(text, ecma), "{ecma} should match {text:?}"));
            bad.iter().for_each(|text| assert!(!fits(text, ecma), "{ecma} should not match {text:?}"));
        }
    }

    #[test]
    fn what_has_no_counterpart_is_named() {
        for (ecma, reason) in [
            ("(?!a)b", "look-around"),
            ("^(?=a)b|c", "look-around"),
            ("(?<=a)b", "look-around"),
            ("(a)\\1", "references"),
            ("\\bword\\b", "word borders"),
            ("(?i)a", "flags"),
            ("a\\", "backslash"),
            ("[a", "does not end"),
            ("a\\Z", "no escape"),
        ] {
            let error = translate(ecma).expect_err(ecma);
            assert!(error.contains(reason), "{ecma}: {error}");
        }
    }
}
