//! Grammars that are made to hurt: an error in well under a second.

use lattice_grammar::{Bytes, Compiler, Constraint, GrammarError, GrammarSpec};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// Longest time that a refusal, or a grammar with its first mask, may take.
const LONGEST: Duration = Duration::from_millis(900);

fn compiler() -> Compiler {
    Compiler::new(Bytes::shared(), &[Bytes::END]).expect("bytes")
}

/// Compiles on a thread with a small stack, and asks for a first mask.
fn compile(spec: GrammarSpec) -> (Result<(), GrammarError>, Duration) {
    let compiler = compiler();
    let run = move || {
        let start = Instant::now();
        let result = compiler.compile(&spec).and_then(|mut matcher| matcher.mask(&mut [0; 9]));
        (result, start.elapsed())
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(run).expect("a thread").join().expect("no panic")
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!({"type": "null"}), |inner, _| json!({"items": inner}))
}

#[test]
fn hostile_grammars_are_refused_in_time() {
    let brackets = |open: &str, close: &str, n: usize| format!("{}a{}", open.repeat(n), close.repeat(n));
    let chain = |n: usize| {
        let one = |i: usize| (format!("d{i}"), json!({"properties": {"x": {"$ref": format!("#/$defs/d{}", i + 1)}}}));
        let mut defs: Map<String, Value> = (0..n).map(one).collect();
        defs.insert(format!("d{n}"), json!({"type": "null"}));
        json!({"$ref": "#/$defs/d0", "$defs": defs})
    };
    let doubling: String = (1..60).map(|i| format!("r{i} ::= r{} r{}\n", i - 1, i - 1)).collect();
    let exponential = (0..20).fold(json!({"enum": ["x"]}), |inner, _| json!({"anyOf": [inner, {"not": inner}]}));
    let either: Vec<Value> =
        (0..20).map(|i| json!({"anyOf": [{"required": [format!("a{i}")]}, {"required": [format!("b{i}")]}]})).collect();
    let patterns: Vec<Value> = (0..300).map(|i| json!({"pattern": format!("^(a|b)*{i}(a|b){{{i}}}$")})).collect();
    let rows: Vec<(&str, GrammarSpec)> = vec![
        ("regex of brackets", GrammarSpec::Regex(brackets("(", ")", 60_000))),
        ("regex of open brackets", GrammarSpec::Regex("(".repeat(60_000))),
        ("regex of repetitions", GrammarSpec::Regex("((((a{1000}){1000}){1000}){1000}){1000}".into())),
        ("regex that has too many states", GrammarSpec::Regex("(a|b)*a(a|b){500}c(a|b)*a(a|b){500}".into())),
        ("huge regex", GrammarSpec::Regex("ab?".repeat(1 << 20))),
        ("huge but legal regex", GrammarSpec::Regex("[a-z]?".repeat(10_000))),
        ("regex of unicode classes", GrammarSpec::Regex(r"(\p{L}\p{N}){0,1000}".repeat(100))),
        ("lark of brackets", GrammarSpec::Lark(format!("start: {}", brackets("(", ")", 60_000)))),
        ("lark of open brackets", GrammarSpec::Lark(format!("start: {}", "(".repeat(60_000)))),
        ("lark with a regex of brackets", GrammarSpec::Lark(format!("start: /{}/", brackets("(", ")", 60_000)))),
        (
            "lark that defers to a schema",
            GrammarSpec::Lark("start: %json {\"x-guidance\": {\"lenient\": true}}".into()),
        ),
        ("lark that has no end", GrammarSpec::Lark("start: \"a\" start".into())),
        ("gbnf of brackets", GrammarSpec::Gbnf(format!("root ::= {}", brackets("( ", " )", 60_000)))),
        ("gbnf of open brackets", GrammarSpec::Gbnf(format!("root ::= {}", "(".repeat(60_000)))),
        ("gbnf that doubles", GrammarSpec::Gbnf(format!("root ::= r59\nr0 ::= \"a\"\n{doubling}"))),
        ("gbnf of repetitions", GrammarSpec::Gbnf("root ::= ((([a-z]{9999}){9999}){9999}){9999}".into())),
        ("gbnf that has no end", GrammarSpec::Gbnf("root ::= \"a\" root".into())),
        (
            "gbnf with a long chain",
            GrammarSpec::Gbnf(
                (0..20_000).map(|i| format!("r{i} ::= r{}\n", i + 1)).collect::<String>()
                    + "root ::= r0\nr20000 ::= \"a\"\n",
            ),
        ),
        ("schema as deep as JSON may be", GrammarSpec::JsonSchema(nested(120))),
        ("schema deeper", GrammarSpec::JsonSchema(nested(1000))),
        ("maxItems", GrammarSpec::JsonSchema(json!({"type": "array", "maxItems": 1_000_000_000}))),
        ("minItems", GrammarSpec::JsonSchema(json!({"type": "array", "minItems": 1_000_000_000}))),
        (
            "nested maxItems",
            GrammarSpec::JsonSchema(
                json!({"maxItems": 1_000_000_000, "items": {"minItems": 999_999_999, "items": {"maxItems": 1_000_000_000}}}),
            ),
        ),
        (
            "maxLength",
            GrammarSpec::JsonSchema(json!({"type": "string", "minLength": 1_000_000_000, "maxLength": 2_000_000_000})),
        ),
        (
            "maxLength with a pattern",
            GrammarSpec::JsonSchema(
                json!({"type": "string", "pattern": "^(a|bb|ccc)*$", "minLength": 900_000_000, "maxLength": 1_000_000_000}),
            ),
        ),
        ("maxProperties", GrammarSpec::JsonSchema(json!({"type": "object", "maxProperties": 1_000_000_000}))),
        ("reference to itself", GrammarSpec::JsonSchema(json!({"$ref": "#"}))),
        (
            "references in a circle",
            GrammarSpec::JsonSchema(
                json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}),
            ),
        ),
        (
            "a value that needs itself",
            GrammarSpec::JsonSchema(json!({"type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]})),
        ),
        ("a long chain of references", GrammarSpec::JsonSchema(chain(10_000))),
        ("a chain of references as long as may be", GrammarSpec::JsonSchema(chain(190))),
        ("complements of complements", GrammarSpec::JsonSchema(exponential)),
        ("a product of alternatives", GrammarSpec::JsonSchema(json!({"allOf": either}))),
        ("patterns that may overlap", GrammarSpec::JsonSchema(json!({"type": "string", "oneOf": patterns}))),
        ("pattern of brackets", GrammarSpec::JsonSchema(json!({"pattern": brackets("(", ")", 60_000)}))),
        ("pattern of open classes", GrammarSpec::JsonSchema(json!({"pattern": "[".repeat(60_000)}))),
        (
            "many properties",
            GrammarSpec::JsonSchema(
                json!({"properties": (0..4000).map(|i| (format!("p{i}"), json!({"type": "integer"}))).collect::<Map<_, _>>()}),
            ),
        ),
        (
            "too many properties",
            GrammarSpec::JsonSchema(
                json!({"properties": (0..50_000).map(|i| (format!("p{i}"), json!(true))).collect::<Map<_, _>>()}),
            ),
        ),
        (
            "many values",
            GrammarSpec::JsonSchema(
                json!({"enum": (0..19_000).map(|i| json!(format!("value number {i}"))).collect::<Vec<_>>()}),
            ),
        ),
        (
            "many branches",
            GrammarSpec::JsonSchema(
                json!({"oneOf": (0..2000).map(|i| json!({"properties": {"k": {"const": i}}, "required": ["k"]})).collect::<Vec<_>>()}),
            ),
        ),
        ("not everything", GrammarSpec::JsonSchema(json!({"not": {}}))),
    ];
    let mut slow = Vec::new();
    for (name, spec) in rows {
        let (result, time) = compile(spec);
        println!(
            "{:>9.1} ms  {name}: {}",
            time.as_secs_f64() * 1e3,
            result.as_ref().err().map(|e| e.to_string().chars().take(150).collect()).unwrap_or("taken".to_owned())
        );
        if time > LONGEST {
            slow.push(format!("{name} took {time:?}"));
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}
