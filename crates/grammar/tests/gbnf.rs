//! GBNF: a translated grammar takes the texts that the character grammar takes, or is refused.

use lattice_grammar::{Bytes, Compiler, Constraint, GrammarError, GrammarSpec, Matcher};
use proptest::prelude::*;
use std::collections::HashSet;
use std::fmt::Write;

fn compile(text: &str) -> Result<Matcher, GrammarError> {
    let compiler = Compiler::new(Bytes::shared(), &[Bytes::END]).expect("bytes");
    compiler.compile(&GrammarSpec::Gbnf(text.into()))
}

fn fits(matcher: &Matcher, text: &str) -> bool {
    let mut matcher = matcher.clone();
    text.bytes().all(|byte| matcher.accept(byte.into()).is_ok()) && matcher.may_end()
}

fn check(grammar: &str, good: &[&str], bad: &[&str]) {
    let matcher = compile(grammar).unwrap_or_else(|e| panic!("{grammar}: {e}"));
    good.iter().for_each(|text| assert!(fits(&matcher, text), "{grammar} should take {text:?}"));
    bad.iter().for_each(|text| assert!(!fits(&matcher, text), "{grammar} should not take {text:?}"));
}

/// As llama.cpp ships it.
const JSON: &str = r#"root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
"#;

#[test]
fn grammars_take_what_they_say() {
    check("root ::= \"a\" | \"ab\" \"c\"", &["a", "abc"], &["", "ab", "ac", "abcc"]);
    check("root ::= (\"a\" | \"ab\") \"bc\"?", &["a", "ab", "abc", "abbc"], &["abb", "bc"]);
    check("root ::= [a-c]* \"c\" # greedy\n", &["c", "abcc"], &["", "ab"]);
    check(
        "root ::= item{2,3} end\nitem ::= [0-9] \".\"\nend ::= \"\" | \"!\"",
        &["1.2.", "1.2.3.!"],
        &["1.", "1.2.3.4."],
    );
    check(
        "root ::= \"\\x41\\u00e4\\U0001F600\\\"\\\\\" [^\\]\\-] .",
        &["Aä😀\"\\a\n", "Aä😀\"\\ßß"],
        &["Aä😀\"\\]a", "Aä😀\"\\-a"],
    );
    check("root ::= \"(\" root \")\" | \"x\"", &["x", "((x))"], &["(x", "x)", ""]);
    check("root ::= root \"+\" n | n\nn ::= [0-9]+", &["1", "12+3+45"], &["1+", "+1", "1++2"]);
    check(
        JSON,
        &["{}", "{\"a\": [1, -2.5e3, \"x\\u00e4\\n\", {\"b\":null}], \"c\":true}", "{\n  \"a\":{ } }"],
        &["[]", "{\"a\":  1}", "{\"a\": 01x}", "{\"a\": tru}", "{\"a\":1,}", "{\"a\":\"\n\"}"],
    );
}

#[test]
fn what_is_wrong_or_cannot_be_translated_is_named_with_its_line() {
    for (grammar, line, part) in [
        ("item ::= \"a\"", 1, "no rule named root"),
        ("root ::= \"a\"\n\nroot ::= \"b\"", 3, "rule root is there twice"),
        ("root ::=\n  \"a\" other", 2, "no rule named other"),
        ("root = \"a\"", 1, "expected ::= after root"),
        ("root ::= \"a", 1, "a text does not end"),
        ("root ::= [a", 1, "does not end"),
        ("root ::= [b-a]", 1, "runs backwards"),
        ("root ::= (\"a\"", 1, "does not close"),
        ("root ::= \"a\"{3,2}", 1, "counts backwards"),
        ("root ::= \"a\"{x}", 1, "no count"),
        ("root ::= \"\\q\"", 1, "no escape"),
        ("root ::= \"a\" )", 1, "unexpected ')'"),
        ("root ::= <think> \"a\"", 1, "tokens"),
        ("root ::= \"a\" root", 1, "no text that ends"),
        ("root ::= []", 1, "matches nothing"),
        ("root ::= name root | \".\"\nname ::= [a-z]+ [a-z]?", 1, "cannot be translated"),
    ] {
        match compile(grammar) {
            Err(GrammarError::Syntax { kind: "GBNF grammar", line: Some(at), reason }) => {
                assert!(at == line && reason.contains(part), "{grammar}: line {at}, {reason}");
            }
            other => panic!("{grammar}: {other:?}"),
        }
    }
    let message = compile("root ::= \"a\"\n\nroot ::= \"b\"").unwrap_err().to_string();
    assert_eq!(message, "GBNF grammar, line 3: rule root is there twice");
}

/// A grammar for the test: the oracle works on this.
#[derive(Clone, Debug)]
enum Node {
    Text(String),
    Class(String),
    Rule(usize),
    Sequence(Vec<Node>),
    Choice(Vec<Node>),
    Repeat(Box<Node>, u32, Option<u32>),
}

impl Node {
    fn write(&self, out: &mut String) {
        match self {
            Node::Text(text) => write!(out, "{text:?}").unwrap(),
            Node::Class(chars) => write!(out, "[{chars}]").unwrap(),
            Node::Rule(index) => write!(out, "{}", name(*index)).unwrap(),
            Node::Sequence(parts) => {
                out.push('(');
                for part in parts {
                    out.push(' ');
                    part.write(out);
                }
                out.push_str(" )");
            }
            Node::Choice(parts) => {
                out.push('(');
                for (i, part) in parts.iter().enumerate() {
                    out.push_str(if i > 0 { " | " } else { " " });
                    part.write(out);
                }
                out.push(')');
            }
            Node::Repeat(inner, least, most) => {
                out.push('(');
                inner.write(out);
                out.push(')');
                match most {
                    Some(most) => write!(out, "{{{least},{most}}}").unwrap(),
                    None => write!(out, "{{{least},}}").unwrap(),
                }
            }
        }
    }

    /// Where a match that begins at `at` may end. Rules are looked up in `ends`, which grows to a fixed point.
    fn ends(&self, text: &str, at: usize, ends: &[Vec<HashSet<usize>>]) -> HashSet<usize> {
        match self {
            Node::Text(own) if text[at..].starts_with(own.as_str()) => HashSet::from([at + own.len()]),
            Node::Class(chars) => {
                text[at..].chars().next().filter(|c| chars.contains(*c)).map(|_| at + 1).into_iter().collect()
            }
            Node::Text(_) => HashSet::new(),
            Node::Rule(index) => ends[*index][at].clone(),
            Node::Sequence(parts) => parts.iter().fold(HashSet::from([at]), |from, part| {
                from.into_iter().flat_map(|at| part.ends(text, at, ends)).collect()
            }),
            Node::Choice(ways) => ways.iter().flat_map(|way| way.ends(text, at, ends)).collect(),
            Node::Repeat(inner, least, most) => {
                let step = |from: &HashSet<usize>| {
                    from.iter().flat_map(|&at| inner.ends(text, at, ends)).collect::<HashSet<_>>()
                };
                let mut reached = HashSet::from([at]);
                (0..*least).for_each(|_| reached = step(&reached));
                let mut all = reached.clone();
                for _ in *least..most.unwrap_or(*least + text.len() as u32 + 1) {
                    reached = step(&reached);
                    all.extend(&reached);
                }
                all
            }
        }
    }
}

fn name(index: usize) -> String {
    if index == 0 { "root".into() } else { format!("rule-{index}") }
}

fn takes(rules: &[Node], text: &str) -> bool {
    let mut ends = vec![vec![HashSet::new(); text.len() + 1]; rules.len()];
    loop {
        let next: Vec<Vec<HashSet<usize>>> =
            rules.iter().map(|rule| (0..=text.len()).map(|at| rule.ends(text, at, &ends)).collect()).collect();
        if next == ends {
            return ends[0][0].contains(&text.len());
        }
        ends = next;
    }
}

fn node(rules: usize) -> impl Strategy<Value = Node> {
    let leaf = prop_oneof![
        3 => "[abc]{0,2}".prop_map(Node::Text),
        2 => prop::sample::select(vec!["ab", "bc", "abc", "c"]).prop_map(|chars| Node::Class(chars.into())),
        3 => (0..rules).prop_map(Node::Rule),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 1..4).prop_map(Node::Sequence),
            2 => prop::collection::vec(inner.clone(), 1..4).prop_map(Node::Choice),
            1 => (inner, 0..2u32, prop::option::of(0..3u32)).prop_map(|(inner, least, more)| {
                Node::Repeat(Box::new(inner), least, more.map(|more| least + more))
            }),
        ]
    })
}

fn texts() -> Vec<String> {
    let mut all = vec![String::new()];
    let mut begin = 0;
    for _ in 0..5 {
        let end = all.len();
        for at in begin..end {
            for c in "abc".chars() {
                all.push(format!("{}{c}", all[at]));
            }
        }
        begin = end;
    }
    all
}

proptest! {
    #[test]
    fn a_translation_takes_the_same_texts(rules in (1..4usize).prop_flat_map(|n| prop::collection::vec(node(n), n))) {
        let mut grammar = String::new();
        for (index, rule) in rules.iter().enumerate() {
            grammar.push_str(&name(index));
            grammar.push_str(" ::= ");
            rule.write(&mut grammar);
            grammar.push('\n');
        }
        if let Ok(matcher) = compile(&grammar) {
            for text in texts() {
                prop_assert_eq!(fits(&matcher, &text), takes(&rules, &text), "{}: {:?}", grammar, text);
            }
        }
    }

    #[test]
    fn garbage_is_an_error_or_a_grammar(text in "(root ::= )?[a-z:=|()\\[\\]\"\\\\{}0-9,.*+?#\n -]{0,60}") {
        let _ = compile(&text);
    }
}
