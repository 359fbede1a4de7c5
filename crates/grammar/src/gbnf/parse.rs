//! Reads GBNF: `name ::= "text" [a-z] other ( … | … )* # comment`.

use super::refuse;
use crate::error::GrammarError;
use std::collections::HashMap;

/// Largest grammar in bytes.
const MAX_BYTES: usize = 256 << 10;
/// Most rules.
const MAX_RULES: usize = 2_000;
/// Deepest nesting of brackets.
const MAX_DEPTH: usize = 60;
/// Largest count of a repetition.
const MAX_REPEAT: u32 = 10_000;

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) body: Node,
}

/// What a rule matches.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    /// These characters, one after another.
    Text(String),
    /// One character of these ranges, or of all others.
    Class { ranges: Vec<(char, char)>, negated: bool },
    /// Any character.
    Any,
    /// What another rule matches, by its index.
    Rule(usize),
    /// One after another.
    Sequence(Vec<Node>),
    /// One of these.
    Choice(Vec<Node>),
    /// Between two counts; none is without end.
    Repeat(Box<Node>, u32, Option<u32>),
}

/// Rules, the root first.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Grammar {
    pub(super) rules: Vec<Rule>,
}

pub(super) fn parse(text: &str) -> Result<Grammar, GrammarError> {
    if text.len() > MAX_BYTES {
        return Err(too_large("its length in bytes", text.len(), MAX_BYTES));
    }
    let mut reader = Reader { rest: text, line: 1, names: HashMap::new(), used: Vec::new() };
    reader.index("root");
    let mut bodies: Vec<Option<(usize, Node)>> = Vec::new();
    reader.space(true);
    while !reader.rest.is_empty() {
        let line = reader.line;
        let name = reader.name()?;
        reader.space(false);
        if !reader.eat("::=") {
            return refuse(reader.line, format!("expected ::= after {name}"));
        }
        reader.space(true);
        let index = reader.index(&name);
        let body = reader.choice(0)?;
        bodies.resize(reader.used.len(), None);
        if bodies[index].replace((line, body)).is_some() {
            return refuse(line, format!("rule {name} is there twice"));
        }
        match reader.rest.chars().next() {
            None | Some('\n' | '\r') => reader.space(true),
            Some(c) => return refuse(reader.line, format!("unexpected {c:?} in rule {name}")),
        }
    }
    if reader.used.len() > MAX_RULES {
        return Err(too_large("its number of rules", reader.used.len(), MAX_RULES));
    }
    bodies.resize(reader.used.len(), None);
    let mut rules = Vec::with_capacity(bodies.len());
    for ((name, line), body) in reader.used.into_iter().zip(bodies) {
        match body {
            Some((line, body)) => rules.push(Rule { name, line, body }),
            None if name == "root" => return refuse(1, "there is no rule named root"),
            None => return refuse(line, format!("there is no rule named {name}")),
        }
    }
    Ok(Grammar { rules })
}

fn too_large(what: &'static str, got: usize, limit: usize) -> GrammarError {
    GrammarError::TooLarge { kind: "GBNF grammar", what, got, limit }
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
    names: HashMap<String, usize>,
    /// Names in order, with the line where each was first seen.
    used: Vec<(String, usize)>,
}

impl Reader<'_> {
    fn index(&mut self, name: &str) -> usize {
        if let Some(&index) = self.names.get(name) {
            return index;
        }
        self.names.insert(name.to_owned(), self.used.len());
        self.used.push((name.to_owned(), self.line));
        self.used.len() - 1
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = &self.rest[c.len_utf8()..];
        self.line += usize::from(c == '\n');
        Some(c)
    }

    fn eat(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Skips spaces and comments, line ends too if they mean nothing here.
    fn space(&mut self, lines: bool) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' => drop(self.next()),
                '\n' | '\r' if lines => drop(self.next()),
                '#' => {
                    let end = self.rest.find(['\n', '\r']).unwrap_or(self.rest.len());
                    self.rest = &self.rest[end..];
                }
                _ => return,
            }
        }
    }

    fn name(&mut self) -> Result<String, GrammarError> {
        let end =
            self.rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_')).unwrap_or(self.rest.len());
        if end == 0 {
            let got = self.peek().map(|c| format!("{c:?}")).unwrap_or("the end".into());
            return refuse(self.line, format!("expected the name of a rule, got {got}"));
        }
        let name = self.rest[..end].to_owned();
        self.rest = &self.rest[end..];
        Ok(name)
    }

    fn choice(&mut self, depth: usize) -> Result<Node, GrammarError> {
        if depth > MAX_DEPTH {
            return Err(too_large("its depth of brackets", depth, MAX_DEPTH));
        }
        let mut ways = vec![self.sequence(depth)?];
        while self.eat("|") {
            self.space(true);
            ways.push(self.sequence(depth)?);
        }
        Ok(if ways.len() == 1 { ways.remove(0) } else { Node::Choice(ways) })
    }

    fn sequence(&mut self, depth: usize) -> Result<Node, GrammarError> {
        let mut parts = Vec::new();
        while let Some(c) = self.peek() {
            let part = match c {
                '"' => self.text()?,
                '[' => self.class()?,
                '.' => {
                    self.next();
                    Node::Any
                }
                '(' => {
                    self.next();
                    self.space(true);
                    let inner = self.choice(depth + 1)?;
                    if !self.eat(")") {
                        return refuse(self.line, "a bracket does not close");
                    }
                    inner
                }
                '<' | '!' => return refuse(self.line, "tokens (<…>, !<…>) are not built: write their text"),
                c if c.is_ascii_alphanumeric() || c == '_' => {
                    let name = self.name()?;
                    Node::Rule(self.index(&name))
                }
                _ => break,
            };
            self.space(depth > 0);
            parts.push(self.repeated(part, depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Node::Sequence(parts) })
    }

    fn repeated(&mut self, mut part: Node, depth: usize) -> Result<Node, GrammarError> {
        let mut count = 0;
        while let Some(c) = self.peek().filter(|c| "*+?{".contains(*c)) {
            count += 1;
            if count > 4 {
                return refuse(self.line, "more than four repetitions of one element");
            }
            self.next();
            let (least, most) = match c {
                '*' => (0, None),
                '+' => (1, None),
                '?' => (0, Some(1)),
                _ => self.counts()?,
            };
            part = Node::Repeat(Box::new(part), least, most);
            self.space(depth > 0);
        }
        Ok(part)
    }

    /// After the opening brace: `m}`, `m,}` or `m,n}`.
    fn counts(&mut self) -> Result<(u32, Option<u32>), GrammarError> {
        let line = self.line;
        let Some((inside, rest)) = self.rest.split_once('}') else { return refuse(line, "a brace does not close") };
        self.rest = rest;
        let number = |text: &str| match text.trim().parse() {
            Ok(n) if n <= MAX_REPEAT => Ok(n),
            Ok(n) => Err(too_large("a repetition's count", n as usize, MAX_REPEAT as usize)),
            Err(_) => refuse(line, format!("{text:?} is no count of a repetition up to {MAX_REPEAT}")),
        };
        let (least, most) = match inside.split_once(',') {
            None => (number(inside)?, Some(number(inside)?)),
            Some((least, most)) if most.trim().is_empty() => (number(least)?, None),
            Some((least, most)) if least.trim().is_empty() => (0, Some(number(most)?)),
            Some((least, most)) => (number(least)?, Some(number(most)?)),
        };
        if most.is_some_and(|most| most < least) {
            return refuse(line, format!("{{{inside}}} counts backwards"));
        }
        Ok((least, most))
    }

    fn text(&mut self) -> Result<Node, GrammarError> {
        let line = self.line;
        self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                None => return refuse(line, "a text does not end"),
                Some('"') => return Ok(Node::Text(text)),
                Some('\\') => text.push(self.escape()?),
                Some(c) => text.push(c),
            }
        }
    }

    fn class(&mut self) -> Result<Node, GrammarError> {
        let line = self.line;
        self.next();
        let negated = self.eat("^");
        let mut ranges = Vec::new();
        loop {
            let first = match self.next() {
                None => return refuse(line, "a class of characters does not end"),
                Some(']') => break,
                Some('\\') => self.escape()?,
                Some(c) => c,
            };
            let mut last = first;
            if self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                self.next();
                last = match self.next() {
                    None => return refuse(line, "a class of characters does not end"),
                    Some('\\') => self.escape()?,
                    Some(c) => c,
                };
            }
            if last < first {
                return refuse(line, format!("the range {first:?} to {last:?} runs backwards"));
            }
            ranges.push((first, last));
        }
        if ranges.is_empty() && !negated {
            return refuse(line, "a class without characters matches nothing");
        }
        Ok(Node::Class { ranges, negated })
    }

    fn escape(&mut self) -> Result<char, GrammarError> {
        let line = self.line;
        let digits = match self.next() {
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some(c @ ('\\' | '"' | '[' | ']' | '-' | '^' | '/')) => return Ok(c),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some(c) => return refuse(line, format!("\\{c} is no escape of GBNF")),
            None => return refuse(line, "it ends with a backslash"),
        };
        let hex = self.rest.get(..digits).filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = hex.and_then(|hex| u32::from_str_radix(hex, 16).ok()).and_then(char::from_u32);
        let Some(c) = code else {
            return refuse(line, format!("expected {digits} hexadecimal digits of a character after the escape"));
        };
        self.rest = &self.rest[digits..];
        Ok(c)
    }
}
