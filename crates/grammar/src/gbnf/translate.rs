//! From the rules of GBNF to those of Lark: what is regular becomes a terminal, where that changes nothing.
//!
//! Terminals are matched greedily, all that may come at a place at once. After a word `w` of a terminal `T` a character
//! `c` that begins what may follow `T` is taken into a longer word if some terminal has one that begins with `w c`. If
//! there is no such `w c`, greedy matching finds what the character grammar would; else the grammar is refused.

use super::parse::{Grammar, Node};
use super::refuse;
use crate::error::GrammarError;
use llguidance::derivre::{ExprRef, Regex, RegexAst, RegexBuilder, StateID};
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;

/// Work that a question about terminals may cost.
const FUEL: u64 = 100_000;
/// Most characters, classes and references of the regular parts, with those of the rules that they refer to.
const MAX_SIZE: usize = 50_000;
/// Most terminals that a recursive grammar may have: each is compared with each.
const MAX_TERMINALS: usize = 60;

/// A set of terminals, by their indices.
type Set = u64;

/// Stands in a set for the end of the text.
const END: Set = 1 << 63;

pub(super) fn translate(grammar: &Grammar) -> Result<String, GrammarError> {
    let (order, recursive) = recursive(grammar);
    if !productive(grammar)[0] {
        return refuse(grammar.rules[0].line, "root has no text that ends");
    }
    let grammar = prune(grammar);
    // Few long terminals are fast; more and shorter ones may tell contexts apart that begin alike.
    attempt(&grammar, &order, &recursive, false).or_else(|_| attempt(&grammar, &order, &recursive, true))
}

fn attempt(grammar: &Grammar, order: &[usize], recursive: &[bool], short: bool) -> Result<String, GrammarError> {
    let mut make = Make {
        grammar,
        recursive,
        short,
        builder: RegexBuilder::new(),
        regular: vec![None; grammar.rules.len()],
        sizes: vec![0; grammar.rules.len()],
        terminals: Vec::new(),
        known: HashMap::new(),
    };
    // A regular rule before those that refer to it.
    for &index in order {
        let rule = &grammar.rules[index];
        let size = make.size(&rule.body);
        if size > MAX_SIZE {
            let what = "the size of a rule with those that it refers to";
            return Err(GrammarError::TooLarge { kind: "GBNF grammar", what, got: size, limit: MAX_SIZE });
        }
        make.sizes[index] = size;
        make.regular[index] = Some(make.words(&rule.body)?);
    }
    let mut bodies = Vec::new();
    for index in reached(grammar).into_iter().filter(|&index| index == 0 || recursive[index]) {
        let rule = &grammar.rules[index];
        bodies.push((index, make.item(&rule.body, rule.line)?));
    }
    if recursive[0] {
        make.check(&bodies)?;
    }
    Ok(make.lark(&bodies))
}

/// What a recursive rule is made of.
enum Item {
    Empty,
    Terminal(usize),
    Rule(usize),
    Sequence(Vec<Item>),
    Choice(Vec<Item>),
    Repeat(Box<Item>, u32, Option<u32>),
}

struct Terminal {
    /// In Lark.
    text: String,
    words: ExprRef,
    line: usize,
}

struct Make<'a> {
    grammar: &'a Grammar,
    recursive: &'a [bool],
    /// Whether the parts of a recursive rule's sequences are terminals each by itself.
    short: bool,
    builder: RegexBuilder,
    /// Of the regular rules.
    regular: Vec<Option<ExprRef>>,
    sizes: Vec<usize>,
    terminals: Vec<Terminal>,
    known: HashMap<ExprRef, usize>,
}

impl Make<'_> {
    fn item(&mut self, node: &Node, line: usize) -> Result<Item, GrammarError> {
        if self.is_regular(node) {
            return self.terminal(node, line);
        }
        Ok(match node {
            Node::Rule(index) => Item::Rule(*index),
            Node::Repeat(inner, least, most) => Item::Repeat(Box::new(self.item(inner, line)?), *least, *most),
            Node::Sequence(parts) => Item::Sequence(match self.short {
                true => parts.iter().map(|part| self.item(part, line)).collect::<Result<_, _>>()?,
                false => self.runs(parts, line, Node::Sequence)?,
            }),
            Node::Choice(ways) => {
                let (regular, others): (Vec<_>, Vec<_>) = ways.iter().cloned().partition(|way| self.is_regular(way));
                let all: Vec<Node> = regular.into_iter().chain(others).collect();
                Item::Choice(self.runs(&all, line, Node::Choice)?)
            }
            Node::Text(_) | Node::Class { .. } | Node::Any => unreachable!("these are regular"),
        })
    }

    /// Parts, each longest run of regular ones as one terminal, unless short ones are asked for.
    fn runs(&mut self, parts: &[Node], line: usize, join: fn(Vec<Node>) -> Node) -> Result<Vec<Item>, GrammarError> {
        let mut items = Vec::new();
        for run in
            parts.chunk_by(|a, b| self.is_regular(a) && self.is_regular(b)).map(<[Node]>::to_vec).collect::<Vec<_>>()
        {
            items.push(match run.len() {
                1 => self.item(&run[0], line)?,
                _ => self.terminal(&join(run), line)?,
            });
        }
        Ok(items)
    }

    fn is_regular(&self, node: &Node) -> bool {
        references(node).iter().all(|&index| !self.recursive[index])
    }

    /// The words of a regular node. A terminal is not empty: where the node may be, the terminal may be absent.
    fn terminal(&mut self, node: &Node, line: usize) -> Result<Item, GrammarError> {
        let mut words = self.words(node)?;
        let mut text = self.text(node);
        let mut regex = self.regex(words).map_err(|reason| complex(line, &reason))?;
        if regex.always_empty() {
            return refuse(line, "it has a part that matches nothing");
        }
        let start = regex.initial_state();
        let may_be_empty = regex.is_accepting(start);
        if may_be_empty {
            words =
                self.make(&RegexAst::And(vec![RegexAst::ExprRef(words), RegexAst::Regex("(?s:.+)".into())]), line)?;
            text = format!("({text}) & /(?s:.+)/");
            if self.regex(words).map_err(|reason| complex(line, &reason))?.always_empty() {
                return Ok(Item::Empty);
            }
        }
        let index = match self.known.get(&words) {
            Some(&index) => index,
            None => {
                self.terminals.push(Terminal { text, words, line });
                self.known.insert(words, self.terminals.len() - 1);
                self.terminals.len() - 1
            }
        };
        if self.terminals.len() > MAX_TERMINALS {
            let (got, limit) = (self.terminals.len(), MAX_TERMINALS);
            return Err(GrammarError::TooLarge { kind: "GBNF grammar", what: "its number of terminals", got, limit });
        }
        let terminal = Item::Terminal(index);
        Ok(if may_be_empty { Item::Repeat(Box::new(terminal), 0, Some(1)) } else { terminal })
    }

    fn make(&mut self, ast: &RegexAst, line: usize) -> Result<ExprRef, GrammarError> {
        self.builder.mk(ast).map_err(|error| complex(line, &error.to_string()))
    }

    fn regex(&self, words: ExprRef) -> Result<Regex, String> {
        self.builder.to_regex_limited(words, FUEL).map_err(|error| error.to_string())
    }

    fn words(&mut self, node: &Node) -> Result<ExprRef, GrammarError> {
        let all = |make: &mut Self, parts: &[Node]| {
            parts.iter().map(|part| Ok(RegexAst::ExprRef(make.words(part)?))).collect::<Result<Vec<_>, GrammarError>>()
        };
        let ast = match node {
            Node::Text(text) => RegexAst::Literal(text.clone()),
            Node::Class { .. } | Node::Any => RegexAst::Regex(class(node)),
            Node::Rule(index) => {
                return Ok(self.regular[*index].expect("a rule comes after those that it refers to"));
            }
            Node::Sequence(parts) => RegexAst::Concat(all(self, parts)?),
            Node::Choice(ways) => RegexAst::Or(all(self, ways)?),
            Node::Repeat(inner, least, most) => {
                let inner = Box::new(RegexAst::ExprRef(self.words(inner)?));
                RegexAst::Repeat(inner, *least, most.unwrap_or(u32::MAX))
            }
        };
        self.make(&ast, 0)
    }

    /// What a regular node would take, written out; repetitions once.
    fn size(&self, node: &Node) -> usize {
        let all = |parts: &[Node]| parts.iter().fold(1usize, |size, part| size.saturating_add(self.size(part)));
        match node {
            Node::Text(text) => text.len() + 1,
            Node::Class { ranges, .. } => ranges.len() + 1,
            Node::Any => 1,
            Node::Rule(index) => self.sizes[*index],
            Node::Sequence(parts) | Node::Choice(parts) => all(parts),
            Node::Repeat(inner, ..) => 1 + self.size(inner),
        }
    }

    /// A regular node in Lark.
    fn text(&self, node: &Node) -> String {
        let joined = |parts: &[Node], with: &str| {
            let parts: Vec<String> = parts.iter().map(|part| self.text(part)).collect();
            match parts.is_empty() {
                true => "\"\"".to_owned(),
                false => format!("({})", parts.join(with)),
            }
        };
        match node {
            Node::Text(text) if text.is_empty() => "\"\"".into(),
            Node::Text(text) => format!("/{}/", text.chars().map(escaped).collect::<String>()),
            Node::Class { .. } | Node::Any => format!("/{}/", class(node)),
            Node::Rule(index) => format!("N{index}"),
            Node::Sequence(parts) => joined(parts, " "),
            Node::Choice(ways) => joined(ways, " | "),
            Node::Repeat(inner, least, most) => format!("({}){}", self.text(inner), repetition(*least, *most)),
        }
    }

    /// Refuses terminals that greedy matching could take too far.
    fn check(&self, bodies: &[(usize, Item)]) -> Result<(), GrammarError> {
        let after = self.follow(bodies);
        let firsts: Vec<Vec<u32>> = self.terminals.iter().map(|t| self.first_bytes(t.words)).collect();
        for (index, terminal) in self.terminals.iter().enumerate() {
            let mut next = vec![0; 8];
            for other in members(after.follow[index]) {
                next.iter_mut().zip(&firsts[other]).for_each(|(all, more)| *all |= more);
            }
            if next.iter().all(|&word| word == 0) {
                continue;
            }
            let longer = RegexAst::Concat(vec![
                RegexAst::ExprRef(terminal.words),
                RegexAst::ByteSet(next),
                RegexAst::Repeat(Box::new(RegexAst::ByteSet(vec![u32::MAX; 8])), 0, u32::MAX),
            ]);
            for other in members(after.beside[index]) {
                if !self.excludes(vec![longer.clone(), RegexAst::ExprRef(self.terminals[other].words)]) {
                    let line = self.terminals[other].line;
                    let what = if other == index { "it".into() } else { format!("what stands in line {line}") };
                    return refuse(
                        terminal.line,
                        format!(
                            "a part that ends where {what} could also go on, with a character that may follow, cannot be translated; make the border between them clear ({})",
                            shortened(&terminal.text)
                        ),
                    );
                }
            }
        }
        Ok(())
    }

    /// Whether it is certain that no text is a word of all of these.
    fn excludes(&self, all: Vec<RegexAst>) -> bool {
        let mut builder = self.builder.clone();
        let Ok(both) = builder.mk(&RegexAst::And(all)) else { return false };
        builder.to_regex_limited(both, FUEL).is_ok_and(|mut regex| regex.always_empty())
    }

    /// The bytes that words begin with, as a set of 256 bits.
    fn first_bytes(&self, words: ExprRef) -> Vec<u32> {
        let Ok(mut regex) = self.regex(words) else { return vec![u32::MAX; 8] };
        let start = regex.initial_state();
        let mut bytes = vec![0u32; 8];
        for byte in 0..=255u8 {
            if regex.transition(start, byte) != StateID::DEAD {
                bytes[byte as usize / 32] |= 1 << (byte % 32);
            }
        }
        bytes
    }

    fn follow(&self, bodies: &[(usize, Item)]) -> Follow {
        let count = self.terminals.len();
        let mut all = Follow {
            first: HashMap::new(),
            after_rule: HashMap::from([(0, END)]),
            follow: vec![0; count],
            beside: vec![0; count],
        };
        loop {
            let before = (all.first.clone(), all.after_rule.clone(), all.follow.clone());
            for (index, body) in bodies {
                let after = all.after_rule.get(index).copied().unwrap_or(0);
                let first = all.walk(body, after);
                all.first.insert(*index, first);
            }
            if before == (all.first.clone(), all.after_rule.clone(), all.follow.clone()) {
                break;
            }
        }
        // Terminals with a word in common may come to an end together; what may follow either may then come.
        let mut together = all.follow.clone();
        for a in 0..count {
            for b in a + 1..count {
                if !self.excludes(vec![
                    RegexAst::ExprRef(self.terminals[a].words),
                    RegexAst::ExprRef(self.terminals[b].words),
                ]) {
                    together[a] |= all.follow[b];
                    together[b] |= all.follow[a];
                }
            }
        }
        let start = all.first.get(&0).map_or(0, |(set, _)| *set);
        for places in together.into_iter().chain([start]) {
            members(places).for_each(|index| all.beside[index] |= places & !END);
        }
        all
    }

    fn lark(&self, bodies: &[(usize, Item)]) -> String {
        let mut out = String::new();
        for (index, body) in bodies {
            let _ = writeln!(out, "{}: {}", rule_name(*index), item_text(body));
        }
        for (index, terminal) in self.terminals.iter().enumerate() {
            let _ = writeln!(out, "T{index}: {}", terminal.text);
        }
        for (index, rule) in self.grammar.rules.iter().enumerate() {
            if self.regular[index].is_some() {
                let _ = writeln!(out, "N{index}: {}", self.text(&rule.body));
            }
        }
        out
    }
}

/// What may come where.
struct Follow {
    /// What a rule may begin with, and whether it may be empty.
    first: HashMap<usize, (Set, bool)>,
    after_rule: HashMap<usize, Set>,
    /// What may follow a terminal.
    follow: Vec<Set>,
    /// What may stand in its place.
    beside: Vec<Set>,
}

impl Follow {
    /// What an item may begin with and whether it may be empty; notes that `after` follows it.
    fn walk(&mut self, item: &Item, after: Set) -> (Set, bool) {
        match item {
            Item::Empty => (0, true),
            Item::Terminal(index) => {
                self.follow[*index] |= after;
                (1 << index, false)
            }
            Item::Rule(index) => {
                *self.after_rule.entry(*index).or_default() |= after;
                self.first.get(index).copied().unwrap_or((0, false))
            }
            Item::Sequence(parts) => parts.iter().rev().fold((0, true), |(first, empty), part| {
                let after = first | if empty { after } else { 0 };
                let (own, may_be_empty) = self.walk(part, after);
                (own | if may_be_empty { first } else { 0 }, empty && may_be_empty)
            }),
            Item::Choice(ways) => ways.iter().fold((0, false), |(first, empty), way| {
                let (own, may_be_empty) = self.walk(way, after);
                (first | own, empty || may_be_empty)
            }),
            Item::Repeat(inner, least, most) => {
                let (first, may_be_empty) = self.walk(inner, after);
                if *most != Some(1) {
                    self.walk(inner, after | first);
                }
                (first, may_be_empty || *least == 0)
            }
        }
    }
}

fn members(set: Set) -> impl Iterator<Item = usize> {
    (0..63).filter(move |i| set >> i & 1 == 1)
}

fn rule_name(index: usize) -> String {
    if index == 0 { "start".into() } else { format!("r{index}") }
}

fn item_text(item: &Item) -> String {
    let joined = |parts: &[Item], with: &str| {
        let parts: Vec<String> = parts.iter().map(item_text).collect();
        format!("({})", parts.join(with))
    };
    match item {
        Item::Empty => "\"\"".into(),
        Item::Terminal(index) => format!("T{index}"),
        Item::Rule(index) => rule_name(*index),
        Item::Sequence(parts) => joined(parts, " "),
        Item::Choice(ways) => joined(ways, " | "),
        Item::Repeat(inner, least, most) => format!("({}){}", item_text(inner), repetition(*least, *most)),
    }
}

fn repetition(least: u32, most: Option<u32>) -> String {
    match (least, most) {
        (0, None) => "*".into(),
        (1, None) => "+".into(),
        (0, Some(1)) => "?".into(),
        (least, None) => format!("{{{least},}}"),
        (least, Some(most)) => format!("{{{least},{most}}}"),
    }
}

/// A class of characters as a regular expression.
fn class(node: &Node) -> String {
    let Node::Class { ranges, negated } = node else { return "(?s:.)".into() };
    if ranges.is_empty() {
        return "(?s:.)".into();
    }
    let ranges: String = ranges.iter().map(|&(a, b)| format!("{}-{}", escaped(a), escaped(b))).collect();
    format!("[{}{ranges}]", if *negated { "^" } else { "" })
}

fn escaped(c: char) -> String {
    if c.is_ascii_alphanumeric() { c.to_string() } else { format!("\\u{{{:x}}}", u32::from(c)) }
}

fn complex(line: usize, reason: &str) -> GrammarError {
    let reason = format!("a part is too complex: {}", reason.lines().next().unwrap_or_default());
    GrammarError::Syntax { kind: "GBNF grammar", line: (line > 0).then_some(line), reason }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// The rules that a node speaks of.
fn references(node: &Node) -> Vec<usize> {
    let mut found = Vec::new();
    let mut stack = vec![node];
    while let Some(node) = stack.pop() {
        match node {
            Node::Rule(index) => found.push(*index),
            Node::Sequence(parts) | Node::Choice(parts) => stack.extend(parts),
            Node::Repeat(inner, ..) => stack.push(inner),
            Node::Text(_) | Node::Class { .. } | Node::Any => {}
        }
    }
    found
}

/// The rules that the root needs, itself first.
fn reached(grammar: &Grammar) -> Vec<usize> {
    let mut order = vec![0];
    let mut seen = BTreeSet::from([0]);
    let mut at = 0;
    while at < order.len() {
        for index in references(&grammar.rules[order[at]].body) {
            if seen.insert(index) {
                order.push(index);
            }
        }
        at += 1;
    }
    order
}

/// The regular rules, each after those that it refers to; and of each rule, whether it reaches one that reaches itself,
/// and so is not regular.
fn recursive(grammar: &Grammar) -> (Vec<usize>, Vec<bool>) {
    let next: Vec<Vec<usize>> = grammar.rules.iter().map(|rule| references(&rule.body)).collect();
    let mut regular = vec![false; next.len()];
    let mut order = Vec::new();
    loop {
        let more: Vec<usize> =
            (0..next.len()).filter(|&i| !regular[i] && next[i].iter().all(|&to| regular[to])).collect();
        if more.is_empty() {
            return (order, regular.into_iter().map(|regular| !regular).collect());
        }
        more.iter().for_each(|&i| regular[i] = true);
        order.extend(more);
    }
}

/// The grammar without ways that no finite text fits.
fn prune(grammar: &Grammar) -> Grammar {
    fn cut(node: &Node, known: &[bool]) -> Node {
        let all = |parts: &[Node]| parts.iter().map(|part| cut(part, known)).collect();
        match node {
            Node::Choice(ways) => {
                Node::Choice(ways.iter().filter(|way| ends(way, known)).map(|way| cut(way, known)).collect())
            }
            Node::Sequence(parts) => Node::Sequence(all(parts)),
            Node::Repeat(inner, ..) if !ends(inner, known) => Node::Sequence(Vec::new()),
            Node::Repeat(inner, least, most) => Node::Repeat(Box::new(cut(inner, known)), *least, *most),
            other => other.clone(),
        }
    }
    let known = productive(grammar);
    let mut pruned = grammar.clone();
    for (rule, _) in pruned.rules.iter_mut().zip(&known).filter(|(_, known)| **known) {
        rule.body = cut(&rule.body, &known);
    }
    pruned
}

/// Whether some finite text fits a node, given the rules that one fits.
fn ends(node: &Node, known: &[bool]) -> bool {
    match node {
        Node::Text(_) | Node::Class { .. } | Node::Any => true,
        Node::Rule(index) => known[*index],
        Node::Sequence(parts) => parts.iter().all(|part| ends(part, known)),
        Node::Choice(ways) => ways.iter().any(|way| ends(way, known)),
        Node::Repeat(inner, least, _) => *least == 0 || ends(inner, known),
    }
}

/// Of each rule, whether some finite text fits it.
fn productive(grammar: &Grammar) -> Vec<bool> {
    let mut known = vec![false; grammar.rules.len()];
    loop {
        let more: Vec<usize> =
            (0..known.len()).filter(|&i| !known[i] && ends(&grammar.rules[i].body, &known)).collect();
        if more.is_empty() {
            return known;
        }
        more.into_iter().for_each(|i| known[i] = true);
    }
}
