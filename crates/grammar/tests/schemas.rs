//! What schemas take and what they do not, keyword by keyword; and the table of keywords in the documentation.

use lattice_grammar::{Bytes, Compiler, Constraint, GrammarError, GrammarSpec, KEYWORDS, Support};
use serde_json::{Value, json};

fn compiler() -> Compiler {
    Compiler::new(Bytes::shared(), &[Bytes::END]).expect("bytes")
}

fn check(schema: Value, good: &[&str], bad: &[&str]) -> Vec<String> {
    let matcher = match compiler().compile(&GrammarSpec::JsonSchema(schema.clone())) {
        Ok(matcher) => matcher,
        Err(error) => return vec![format!("{schema}: {error}")],
    };
    let fits = |text: &str| {
        let mut matcher = matcher.clone();
        text.bytes().all(|byte| matcher.accept(byte.into()).is_ok()) && matcher.may_end()
    };
    let missing = good.iter().filter(|text| !fits(text)).map(|text| format!("{schema} should take {text}"));
    let extra = bad.iter().filter(|text| fits(text)).map(|text| format!("{schema} should not take {text}"));
    missing.chain(extra).collect()
}

#[test]
fn schemas_take_what_they_say() {
    let kinds = json!({"oneOf": [
        {"properties": {"kind": {"const": "a"}, "x": {"type": "integer"}}, "required": ["kind", "x"]},
        {"properties": {"kind": {"const": "b"}, "y": {"type": "string"}}, "required": ["kind"]},
    ], "type": "object"});
    let tree = json!({"$ref": "#/$defs/t", "$defs": {"t": {
        "type": "object", "properties": {"v": {"type": "integer"}, "l": {"$ref": "#/$defs/t"}}, "required": ["v"], "additionalProperties": false}}});
    let rows: Vec<(Value, &[&str], &[&str])> = vec![
        (
            json!({"type": "string", "pattern": "^[a-z]+$", "maxLength": 3}),
            &[r#""a""#, r#""abc""#],
            &[r#""""#, r#""abcd""#, r#""A""#],
        ),
        (
            json!({"type": "string", "format": "date", "maxLength": 10}),
            &[r#""2024-02-29""#],
            &[r#""2023-02-29""#, r#""x""#],
        ),
        (json!({"type": "string", "format": "ipv4", "maxLength": 7}), &[r#""1.1.1.1""#], &[r#""10.1.1.1""#]),
        (json!({"format": "int32"}), &["1", "2147483647", "\"x\""], &["2147483648"]),
        (json!({"type": ["integer", "null"]}), &["1", "null"], &["1.5", "\"1\""]),
        (
            json!({"enum": [1, "a", null, [1], {"k": 2}]}),
            &["1", "\"a\"", "null", "[1]", "{\"k\":2}"],
            &["2", "[]", "{}"],
        ),
        // One of several.
        (
            kinds,
            &[r#"{"kind":"a","x":1}"#, r#"{"kind":"b","y":"z"}"#, r#"{"kind": "b"}"#],
            &[r#"{"kind":"a","y":"z"}"#, r#"{"kind":"c","x":1}"#, "{}"],
        ),
        (
            json!({"oneOf": [{"type": "integer", "maximum": 3}, {"minimum": 2, "type": "integer"}]}),
            &["1", "4", "-3"],
            &["2", "3", "1.5"],
        ),
        (
            json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"}),
            &[r#"{"a":1}"#, r#"{"b":1}"#, r#"{"a":1,"c":2}"#],
            &["{}", r#"{"a":1,"b":2}"#],
        ),
        (json!({"oneOf": [{"const": "a"}, {"enum": ["a", "b"]}]}), &["\"b\""], &["\"a\"", "\"c\""]),
        (
            json!({"oneOf": [{"type": "string", "maxLength": 2}, {"type": "string", "minLength": 3}, {"type": "null"}]}),
            &["\"ab\"", "\"abc\"", "null"],
            &["1"],
        ),
        // Not.
        (json!({"not": {"type": "string"}}), &["1", "{}", "null"], &["\"a\""]),
        (
            json!({"type": "string", "not": {"enum": ["", "no", "näh"]}}),
            &["\"n\"", "\"nope\"", "\"nä\""],
            &["\"\"", "\"no\"", "\"näh\""],
        ),
        (json!({"type": "integer", "not": {"enum": [1, 3]}}), &["0", "2", "4", "-1"], &["1", "3"]),
        (json!({"type": "object", "not": {"required": ["a", "b"]}}), &["{}", r#"{"a":1}"#], &[r#"{"a":1,"b":1}"#]),
        (json!({"type": "number", "not": {"minimum": 2, "maximum": 3}}), &["1.9", "3.5"], &["2", "2.5", "3"]),
        (json!({"not": {"not": {"type": "null"}}}), &["null"], &["0"]),
        (json!({"type": "array", "not": {"minItems": 2}}), &["[]", "[1]"], &["[1,2]"]),
        // If.
        (
            json!({"type": "object", "properties": {"a": {"enum": [1, 2]}, "b": {"type": "integer"}}, "if": {"properties": {"a": {"const": 1}}, "required": ["a"]}, "then": {"required": ["b"]}, "else": {"properties": {"b": false}}}),
            &[r#"{"a":1,"b":5}"#, r#"{"a":2}"#, "{}"],
            &[r#"{"a":1}"#, r#"{"a":2,"b":5}"#, r#"{"b":5}"#],
        ),
        (json!({"if": {"type": "string"}, "then": {"minLength": 2}}), &["\"ab\"", "1"], &["\"a\""]),
        // Keys.
        (
            json!({"type": "object", "dependentRequired": {"a": ["b"]}, "properties": {"a": {}, "b": {}}}),
            &["{}", r#"{"b":1}"#, r#"{"a":1,"b":1}"#],
            &[r#"{"a":1}"#],
        ),
        (
            json!({"type": "object", "dependencies": {"a": {"properties": {"b": {"type": "null"}}}}, "properties": {"a": {}, "b": {}}}),
            &[r#"{"b":1}"#, r#"{"a":1,"b":null}"#, r#"{"a":1}"#],
            &[r#"{"a":1,"b":1}"#],
        ),
        (
            json!({"type": "object", "propertyNames": {"pattern": "^x.?$", "type": "string"}}),
            &["{}", r#"{"x":1,"xy":2}"#],
            &[r#"{"y":1}"#, r#"{"xyz":1}"#],
        ),
        (json!({"type": "object", "propertyNames": {"enum": ["a", "b.c"]}}), &[r#"{"b.c":1}"#], &[r#"{"bxc":1}"#]),
        (
            json!({"type": "object", "minProperties": 1, "properties": {"a": {"type": "integer"}, "b": {}}}),
            &[r#"{"a":1}"#, r#"{"b":1}"#, r#"{"c":1}"#, r#"{"a":1,"b":2,"c":3}"#],
            &["{}", r#"{"a":"x"}"#],
        ),
        (
            json!({"type": "object", "minProperties": 2, "maxProperties": 2, "properties": {"a": {}, "b": {}, "c": {}}, "additionalProperties": false}),
            &[r#"{"a":1,"c":1}"#, r#"{"b":1,"c":1}"#],
            &[r#"{"a":1}"#, r#"{"a":1,"b":1,"c":1}"#],
        ),
        (
            json!({"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": {"type": "string"}}),
            &[r#"{"a1":1}"#, r#"{"b":"x"}"#],
            &[r#"{"a1":"x"}"#, r#"{"b":1}"#],
        ),
        (
            json!({"allOf": [{"properties": {"a": {"type": "integer"}}}], "properties": {"b": {}}, "unevaluatedProperties": false, "type": "object"}),
            &[r#"{"a":1}"#, r#"{"a":1,"b":2}"#],
            &[r#"{"c":1}"#, r#"{"a":"x"}"#],
        ),
        // Items.
        (
            json!({"items": [{"type": "integer"}, {"type": "string"}], "additionalItems": false, "type": "array"}),
            &["[]", "[1]", "[1,\"a\"]"],
            &["[\"a\"]", "[1,\"a\",2]"],
        ),
        (
            json!({"prefixItems": [{"type": "integer"}], "items": {"type": "null"}, "type": "array", "minItems": 2}),
            &["[1,null]"],
            &["[1]", "[1,2]"],
        ),
        (
            json!({"type": "array", "contains": {"const": 1}, "maxItems": 3}),
            &["[1]", "[2,1]", "[0,0,1]"],
            &["[]", "[2]", "[2,2,2]"],
        ),
        (
            json!({"type": "array", "uniqueItems": true, "items": {"enum": ["a", "b", "c"]}, "minItems": 1}),
            &["[\"a\"]", "[\"c\",\"a\",\"b\"]"],
            &["[]", "[\"a\",\"a\"]", "[\"a\",\"b\",\"a\"]"],
        ),
        (json!({"type": "array", "uniqueItems": true, "maxItems": 1}), &["[]", "[1]"], &["[1,2]"]),
        // References.
        (tree, &[r#"{"v":1}"#, r#"{"v":1,"l":{"v":2,"l":{"v":3}}}"#], &["{}", r#"{"v":1,"l":{}}"#]),
        (
            json!({"$id": "http://x.y/z", "$ref": "http://x.y/z#n", "$defs": {"q": {"$anchor": "n", "type": "null"}}}),
            &["null"],
            &["1"],
        ),
        // Numbers.
        (json!({"minimum": 0, "exclusiveMinimum": true, "type": "integer"}), &["1"], &["0"]),
        (json!({"type": "number", "exclusiveMaximum": 1.5, "minimum": -0.5}), &["1.4", "-0.5", "0"], &["1.5", "-0.6"]),
        (json!({"type": "integer", "multipleOf": 7}), &["7", "-14", "0"], &["8"]),
        (json!(true), &["1", "{\"a\":[null]}"], &["", "x"]),
    ];
    let wrong: Vec<String> = rows.into_iter().flat_map(|(schema, good, bad)| check(schema, good, bad)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_cannot_be_honoured_is_an_error_that_names_the_keyword() {
    let rows = [
        (json!({"type": "array", "uniqueItems": true}), "uniqueItems", ""),
        (json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}), "oneOf", ""),
        (json!({"propertyNames": {"pattern": "^x", "maxLength": 2}}), "propertyNames", ""),
        (json!({"properties": {"a/b": {"contains": {"const": 1}}}}), "contains", "/properties/a~1b"),
        (json!({"type": "array", "maxContains": 2, "contains": {}}), "maxContains", ""),
        (json!({"oneOf": [{"pattern": "a"}, {"pattern": "b"}]}), "oneOf", ""),
        (json!({"type": "string", "not": {"pattern": "a"}}), "not", ""),
        (json!({"if": {"format": "uri"}, "then": {"minLength": 1}}), "if", ""),
        (json!({"type": "string", "pattern": "(?!a)b"}), "pattern", ""),
        (json!({"type": "string", "format": "topic"}), "format", ""),
        (json!({"$ref": "https://example.com/x.json"}), "$ref", ""),
        (json!({"$ref": "#/$defs/none"}), "$ref", ""),
        (json!({"unevaluatedItems": false}), "unevaluatedItems", ""),
        (json!({"anyOf": [{"properties": {"a": {}}}], "unevaluatedProperties": false}), "unevaluatedProperties", ""),
        (json!({"type": "object", "minProperties": 2}), "minProperties", ""),
        (json!({"type": "any"}), "type", ""),
        (json!({"properties": {"a": {"required": true}}}), "required", "/properties/a"),
        (json!({"minLength": -1}), "minLength", ""),
        (json!({"items": 3}), "schema", "/items"),
        (json!(3), "schema", ""),
    ];
    for (schema, keyword, pointer) in rows {
        match compiler().compile(&GrammarSpec::JsonSchema(schema.clone())) {
            Err(GrammarError::Schema { keyword: got, pointer: at, .. }) => {
                assert_eq!((got.as_str(), at.as_str()), (keyword, pointer), "{schema}")
            }
            other => panic!("{schema}: {other:?}"),
        }
    }
    let error = compiler().compile(&GrammarSpec::JsonSchema(json!({"type": "string", "format": "topic"}))).unwrap_err();
    assert_eq!(error.to_string(), "schema keyword format at the root: \"topic\" is not built; give a pattern");
    for never in [
        json!(false),
        json!({"allOf": [{"type": "null"}, {"type": "string"}]}),
        json!({"not": {}}),
        json!({"enum": []}),
    ] {
        let error = compiler().compile(&GrammarSpec::JsonSchema(never.clone())).unwrap_err();
        assert!(matches!(error, GrammarError::Unsatisfiable { .. }), "{never}: {error}");
    }
}

#[test]
fn forced_text_comes_at_once_and_can_be_taken_back() {
    let schema = json!({"type": "object", "properties": {"answer": {"const": "yes"}}, "required": ["answer"], "additionalProperties": false});
    let mut matcher = compiler().compile(&GrammarSpec::JsonSchema(schema)).unwrap();
    let mut text = String::new();
    while !matcher.is_finished() {
        let forced = matcher.forced();
        let next = forced.first().copied().unwrap_or_else(|| {
            let mut mask = [0u32; 9];
            matcher.mask(&mut mask).unwrap();
            // Whitespace may come; the first printing character is taken.
            (33..256).find(|id| mask[*id as usize / 32] >> (id % 32) & 1 == 1).unwrap()
        });
        matcher.accept(next).unwrap();
        text.push(next as u8 as char);
    }
    assert_eq!(text, r#"{"answer":"yes"}"#);
    assert!(matcher.may_end() && matcher.accept(u32::from(b' ')).is_err());
    matcher.rollback(5).unwrap();
    assert!(!matcher.is_finished() && matcher.accept(u32::from(b'n')).is_err());
    let mut copy = matcher.boxed();
    for byte in b"yes\"}" {
        matcher.accept(u32::from(*byte)).unwrap();
    }
    assert!(matcher.is_finished() && !copy.is_finished());
    assert!(copy.accept(u32::from(b'y')).is_ok());
    assert!(matcher.rollback(100).is_err());
}

#[test]
fn the_documentation_prints_the_table_of_keywords() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/grammars.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let support = |support: Support| match support {
        Support::Exact => "exact",
        Support::Rewritten => "rewritten",
        Support::Annotation => "annotation",
        Support::Refused => "refused",
    };
    let row = |k: &lattice_grammar::Keyword| {
        format!("| `{}` | {} | {} |", k.name, support(k.support), k.note).replace("  |", " |")
    };
    let table: Vec<String> = KEYWORDS.iter().map(row).collect();
    let missing: Vec<&String> = table.iter().filter(|row| !page.contains(*row)).collect();
    assert!(
        missing.is_empty(),
        "docs/grammars.md lacks:\n{}",
        missing.iter().map(|s| s.as_str()).collect::<Vec<_>>().join("\n")
    );
}
