//! Which grammars are not even looked at? Those whose length, depth or repetitions the parser would not come back from.

use crate::error::GrammarError;

/// Largest regular expression, in bytes.
const MAX_REGEX: usize = 16 << 10;
/// Largest Lark grammar, in bytes.
const MAX_LARK: usize = 512 << 10;
/// Deepest nesting of brackets in a Lark grammar.
const MAX_DEPTH: usize = 100;
/// Largest product of counted repetitions inside of each other, added up over a text.
const MAX_REPETITIONS: u64 = 100_000;

/// Refuses a regular expression that is too large.
///
/// # Errors
/// [`GrammarError::TooLarge`].
pub(crate) fn regex(kind: &'static str, text: &str) -> Result<(), GrammarError> {
    size(kind, text, MAX_REGEX)?;
    repetitions(kind, text)
}

/// Refuses texts whose counted repetitions stand for too much, as `(a{1000}){1000}` does.
fn repetitions(kind: &'static str, text: &str) -> Result<(), GrammarError> {
    let (mut open, mut total, mut last) = (Vec::new(), 0u64, 0u64);
    let mut chars = text.char_indices();
    let mut class = false;
    while let Some((at, c)) = chars.next() {
        let count = match c {
            '\\' => {
                let code = chars.next().is_some_and(|(_, c)| matches!(c, 'u' | 'x' | 'U' | 'p' | 'P'));
                if code && chars.as_str().starts_with('{') {
                    chars.by_ref().take_while(|&(_, c)| c != '}').for_each(drop);
                }
                1
            }
            ']' => {
                class = false;
                1
            }
            _ if class => continue,
            '[' => {
                class = true;
                continue;
            }
            '(' => {
                total = total.saturating_add(last);
                open.push(std::mem::take(&mut total));
                last = 0;
                continue;
            }
            ')' => {
                last = total.saturating_add(last);
                total = open.pop().unwrap_or(0);
                continue;
            }
            '{' => {
                let counts = text[at + 1..].split('}').next().unwrap_or_default();
                let largest = counts.split(',').filter_map(|n| n.trim().parse::<u64>().ok()).max();
                last = last.saturating_mul(largest.unwrap_or(1).max(1));
                let inside = counts.len() + 1;
                if largest.is_some() {
                    chars.by_ref().take_while(|&(i, _)| i < at + inside).for_each(drop);
                }
                continue;
            }
            _ => 1,
        };
        total = total.saturating_add(last);
        last = count;
        if total > MAX_REPETITIONS.saturating_add(text.len() as u64) {
            break;
        }
    }
    let all = open.into_iter().fold(total.saturating_add(last), u64::saturating_add);
    let limit = MAX_REPETITIONS.saturating_add(text.len() as u64);
    match all > limit {
        true => {
            let (got, limit) = (all.min(1 << 40) as usize, limit as usize);
            Err(GrammarError::TooLarge { kind, what: "what its counted repetitions stand for", got, limit })
        }
        false => Ok(()),
    }
}

fn size(kind: &'static str, text: &str, limit: usize) -> Result<(), GrammarError> {
    match text.len() {
        got if got > limit => Err(GrammarError::TooLarge { kind, what: "its length in bytes", got, limit }),
        _ => Ok(()),
    }
}

/// Refuses what the parser of Lark grammars would not come back from, or would let pass unseen.
///
/// # Errors
/// What is too large, too deep or not built.
pub(crate) fn lark(kind: &'static str, text: &str) -> Result<(), GrammarError> {
    size(kind, text, MAX_LARK)?;
    repetitions(kind, text)?;
    let (mut depth, mut line) = (0usize, 1);
    let mut chars = text.chars().peekable();
    let mut before = '\n';
    while let Some(c) = chars.next() {
        match c {
            '\n' => line += 1,
            // A text or an expression, to its end or that of the line.
            '"' => drop(skip_to(&mut chars, '"')),
            '/' if chars.peek() == Some(&'/') => {
                chars.by_ref().take_while(|&c| c != '\n').for_each(drop);
                line += 1;
            }
            '/' => drop(skip_to(&mut chars, '/')),
            '#' if before.is_whitespace() => {
                chars.by_ref().take_while(|&c| c != '\n').for_each(drop);
                line += 1;
            }
            '(' | '[' | '{' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    let what = "its depth of brackets";
                    return Err(GrammarError::TooLarge { kind, what, got: depth, limit: MAX_DEPTH });
                }
            }
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            '%' => {
                let word: String = std::iter::from_fn(|| chars.next_if(char::is_ascii_alphabetic)).collect();
                if matches!(word.as_str(), "json" | "lark" | "llguidance" | "regex" | "import" | "override" | "extend")
                {
                    let reason =
                        format!("%{word} is not built; write rules and terminals, or give the schema by itself");
                    return Err(GrammarError::Syntax { kind, line: Some(line), reason });
                }
            }
            _ => {}
        }
        before = c;
    }
    Ok(())
}

/// Skips to after the next `end` that no backslash stands before, or to the end of the line.
fn skip_to(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, end: char) -> Option<()> {
    loop {
        match chars.peek()? {
            '\\' => drop((chars.next(), chars.next())),
            '\n' => return Some(()),
            c if *c == end => {
                chars.next();
                return Some(());
            }
            _ => drop(chars.next()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_counted_through_brackets() {
        for (text, fits) in [
            ("a{1000}", true),
            ("(a{300}b){300}", true),
            ("(a{1000}b){1000}", false),
            ("((((a{1000}){1000}){1000}){1000}){1000}", false),
            ("[(]{9}a{99999}", true),
            ("\\(a{90000}\\){2}", true),
            ("(a|b)*a(a|b){500}c", true),
            ("{}{{,}", true),
            (r"\u{100000}{9}\p{L}", true),
        ] {
            assert_eq!(repetitions("regular expression", text).is_ok(), fits, "{text}");
        }
    }
}
