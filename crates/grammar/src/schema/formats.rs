//! Which strings does a `format` allow?

use super::document::Place;
use super::values::short;
use crate::error::GrammarError;
use serde_json::{Value, json};

/// What a format comes to.
pub(super) enum Format {
    /// Strings that a pattern says.
    Pattern(String),
    /// Strings of a format that the parser knows.
    Known,
    /// Numbers of a schema.
    Numbers(Value),
    /// It says nothing.
    Anything,
}

/// Formats that no draft defines, and that say how a value is stored or shown, not what it is.
const ANNOTATIONS: &[&str] =
    &["float", "double", "decimal", "byte", "binary", "password", "textarea", "markdown", "html"];
/// Formats that the parser knows by itself.
const KNOWN: &[&str] = &["duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];

const DATE: &str = "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)";
/// The second 60 is taken at the end of a day in UTC only.
const TIME: &str = "(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]+)?(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])|23:59:60(?:[.][0-9]+)?(?:[zZ]|[+-]00:00))";
const IPV6: &str = "(?:(?:H:){7}H|(?:H:){1,7}:|(?:H:){1,6}:H|(?:H:){1,5}(?::H){1,2}|(?:H:){1,4}(?::H){1,3}|(?:H:){1,3}(?::H){1,4}|(?:H:){1,2}(?::H){1,5}|H:(?::H){1,6}|:(?::H){1,7}|::)";
const UNRESERVED: &str = r"\-a-zA-Z0-9._~!$&'()*+,;=";
/// `ucschar` of RFC 3987.
const WIDE: &str = r"\u{a0}-\u{d7ff}\u{f900}-\u{fdcf}\u{fdf0}-\u{ffef}\u{10000}-\u{1fffd}\u{20000}-\u{2fffd}\u{30000}-\u{3fffd}\u{40000}-\u{4fffd}\u{50000}-\u{5fffd}\u{60000}-\u{6fffd}\u{70000}-\u{7fffd}\u{80000}-\u{8fffd}\u{90000}-\u{9fffd}\u{a0000}-\u{afffd}\u{b0000}-\u{bfffd}\u{c0000}-\u{cfffd}\u{d0000}-\u{dfffd}\u{e1000}-\u{efffd}";
const POINTER: &str = "(?:/(?:[^~/]|~[01])*)*";

/// What the value of `format` comes to.
///
/// # Errors
/// A format that is not built.
pub(super) fn of(place: &Place, value: &Value) -> Result<Format, GrammarError> {
    let refuse =
        |reason: String| Err(GrammarError::Schema { keyword: "format".into(), pointer: place.pointer.clone(), reason });
    let Some(name) = value.as_str() else {
        return refuse(format!("expected a string, got {}", short(value)));
    };
    let whole = |pattern: &str| Ok(Format::Pattern(format!("^(?:{pattern})$")));
    match name {
        "date" => whole(DATE),
        "time" => whole(TIME),
        "date-time" => whole(&format!("{DATE}[tT]{TIME}")),
        "json-pointer" => whole(POINTER),
        "relative-json-pointer" => whole(&format!("(?:0|[1-9][0-9]*)(?:#|{POINTER})")),
        "uri-reference" => whole(&references("")),
        "iri" => whole(&addresses(WIDE)),
        "iri-reference" => whole(&references(WIDE)),
        "uri-template" => whole(&templates()),
        "int32" => Ok(Format::Numbers(bounds(i32::MIN.into(), i32::MAX.into()))),
        "int64" => Ok(Format::Numbers(bounds(i64::MIN, i64::MAX))),
        _ if KNOWN.contains(&name) => Ok(Format::Known),
        _ if ANNOTATIONS.contains(&name) => Ok(Format::Anything),
        _ => refuse(format!("{name:?} is not built; give a pattern")),
    }
}

/// Numbers between two, which other types need not be.
fn bounds(least: i64, most: i64) -> Value {
    // As `format` says nothing of other types, neither do these.
    json!({"minimum": least, "maximum": most})
}

fn authority(wide: &str) -> String {
    let part = format!("(?:[{UNRESERVED}{wide}]|%[0-9a-fA-F]{{2}})*");
    let user = format!("(?:(?:[{UNRESERVED}:{wide}]|%[0-9a-fA-F]{{2}})*@)?");
    let v6 = IPV6.replace('H', "[0-9a-fA-F]{1,4}");
    format!("//{user}(?:[\\[](?:{v6}|v[0-9a-fA-F]+[.][{UNRESERVED}:]+)[\\]]|{part})(?::[0-9]*)?")
}

fn tail(wide: &str) -> String {
    let rest = format!("(?:[{UNRESERVED}:@/?{wide}]|%[0-9a-fA-F]{{2}})*");
    format!("(?:[?]{rest})?(?:#{rest})?")
}

fn addresses(wide: &str) -> String {
    let c = format!("(?:[{UNRESERVED}:@{wide}]|%[0-9a-fA-F]{{2}})");
    let path = format!("(?:{}(?:/{c}*)*|/(?:{c}+(?:/{c}*)*)?|{c}+(?:/{c}*)*|)", authority(wide));
    format!("[a-zA-Z][a-zA-Z0-9+.-]*:{path}{}", tail(wide))
}

fn references(wide: &str) -> String {
    let c = format!("(?:[{UNRESERVED}:@{wide}]|%[0-9a-fA-F]{{2}})");
    let first = format!("(?:[{UNRESERVED}@{wide}]|%[0-9a-fA-F]{{2}})");
    let path = format!("(?:{}(?:/{c}*)*|/(?:{c}+(?:/{c}*)*)?|{first}+(?:/{c}*)*|)", authority(wide));
    format!("(?:{}|{path}{})", addresses(wide), tail(wide))
}

/// RFC 6570.
fn templates() -> String {
    let name = "(?:[a-zA-Z0-9_]|%[0-9a-fA-F]{2})(?:[.]?(?:[a-zA-Z0-9_]|%[0-9a-fA-F]{2}))*";
    let variable = format!("{name}(?::[1-9][0-9]{{0,3}}|[*])?");
    let literal = format!("[!#$&(-;=?-\\[\\]_a-z~{WIDE}]|%[0-9a-fA-F]{{2}}");
    format!("(?:{literal}|[{{][+#./;?&=,!@|]?{variable}(?:,{variable})*[}}])*")
}

#[cfg(test)]
mod tests {
    use super::super::strings;
    use super::*;

    #[test]
    fn formats_allow_what_their_documents_allow() {
        let rows: &[(&str, &[&str], &[&str])] = &[
            (
                "date",
                &["2024-02-29", "2000-02-29", "1999-12-31", "0000-02-29"],
                &["2023-02-29", "1900-02-29", "2024-04-31", "2024-1-01", "24-01-01"],
            ),
            (
                "time",
                &["23:59:60Z", "08:30:06.283185+08:00", "23:59:60+00:00"],
                &["22:59:60Z", "24:00:00Z", "08:30:06", "08:30:60Z"],
            ),
            (
                "date-time",
                &["1963-06-19T08:30:06.283185Z", "1998-12-31t23:59:60z"],
                &["1990-02-31T15:59:59Z", "1990-02-28 15:59:59Z"],
            ),
            ("json-pointer", &["", "/a~0b/~1", "/"], &["a", "/~2", "/~"]),
            ("relative-json-pointer", &["0", "1/a", "0#"], &["/a", "-1", "01/a", "0##"]),
            (
                "uri-reference",
                &["", "/abc", "//foo.bar/?baz=qux#quux", "abc", "#f", "http://x.y", "a/b:c"],
                &["\\\\WINDOWS", "abc\\def", "1:b", "a b"],
            ),
            (
                "iri",
                &["http://ƒøø.ßår/?∂éœ=πîx#πîüx", "http://[2001:0db8:85a3::8a2e:370:7334]"],
                &["/abc", "http://2001:0db8:85a3::8a2e:0370:7334:x[", "\\\\W"],
            ),
            ("iri-reference", &["/âππ", "âππ", "#ƒräg"], &["\\\\W", "#ƒräg\\x"]),
            (
                "uri-template",
                &["http://example.com/dictionary/{term:1}/{term}", "{?x,y*}", "x", ""],
                &["http://example.com/{term", "{}", "a b"],
            ),
        ];
        for (name, good, bad) in rows {
            let place = Place { value: &Value::Null, pointer: String::new(), base: String::new() };
            let Ok(Format::Pattern(pattern)) = of(&place, &json!(name)) else { panic!("{name}") };
            for (text, fits) in good.iter().map(|t| (t, true)).chain(bad.iter().map(|t| (t, false))) {
                assert_eq!(strings::matches_surely(strings::pattern(&pattern), text), Some(fits), "{name}: {text:?}");
            }
        }
    }
}
