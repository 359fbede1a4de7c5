//! Where does a `$ref` of a schema lead? Only places of the same document: nothing is fetched.

use serde_json::{Map, Value};
use std::cell::OnceCell;
use std::collections::HashMap;

/// Deepest nesting of a schema, and of the schemas that it refers to one through another.
pub(crate) const MAX_DEPTH: usize = 400;

/// A schema document with the names that its parts give themselves.
pub(super) struct Document<'a> {
    root: &'a Value,
    /// Made when a reference needs it: most lead from the root.
    index: OnceCell<Index<'a>>,
}

#[derive(Default)]
struct Index<'a> {
    /// Base addresses of embedded resources and anchors, each with its JSON pointer.
    named: HashMap<String, String>,
    /// How often each `$dynamicAnchor` occurs.
    dynamic: HashMap<&'a str, usize>,
}

/// A place in the document.
#[derive(Clone, Debug)]
pub(super) struct Place<'a> {
    pub(super) value: &'a Value,
    pub(super) pointer: String,
    /// The address that references here are relative to.
    pub(super) base: String,
}

impl<'a> Document<'a> {
    pub(super) fn new(root: &'a Value) -> Document<'a> {
        Document { root, index: OnceCell::new() }
    }

    fn index(&self) -> &Index<'a> {
        self.index.get_or_init(|| {
            let mut index = Index::default();
            index.add(self.root, String::new(), String::new(), MAX_DEPTH);
            index
        })
    }

    pub(super) fn root(&self) -> Place<'a> {
        Place { value: self.root, pointer: String::new(), base: base_of(self.root, "") }
    }

    /// The place that a reference leads to from `from`.
    pub(super) fn resolve(&self, reference: &str, from: &Place<'a>) -> Result<Place<'a>, String> {
        let address = join(&from.base, reference);
        let (base, fragment) = address.split_once('#').unwrap_or((&address, ""));
        let fragment = percent_decoded(fragment);
        let resource = match base.is_empty() || base == self.root().base {
            true => "",
            false => match self.index().named.get(base) {
                Some(pointer) => pointer,
                None => return Err(format!("{reference:?} leads out of the document, and nothing is fetched")),
            },
        };
        if !fragment.is_empty() && !fragment.starts_with('/') {
            let anchor = self.index().named.get(&format!("{base}#{fragment}"));
            let pointer = anchor.ok_or_else(|| format!("{reference:?} leads nowhere: no $anchor is named so"))?;
            return self.at(pointer, base).ok_or_else(|| format!("{reference:?} leads nowhere"));
        }
        // `#/` is meant as the root by many.
        let fragment = if fragment == "/" { "" } else { &fragment };
        self.at(&format!("{resource}{fragment}"), base).ok_or_else(|| format!("{reference:?} leads nowhere"))
    }

    /// Whether a `$dynamicAnchor` occurs once, so that a reference to it is a plain one.
    pub(super) fn is_plain_anchor(&self, name: &str) -> bool {
        self.index().dynamic.get(name).is_none_or(|&count| count == 1)
    }

    fn at(&self, pointer: &str, base: &str) -> Option<Place<'a>> {
        let value = self.root.pointer(pointer)?;
        Some(Place { value, pointer: pointer.to_owned(), base: base_of(value, base) })
    }
}

impl<'a> Index<'a> {
    fn add(&mut self, value: &'a Value, pointer: String, base: String, depth: usize) {
        if depth == 0 {
            return; // refused when it is walked
        }
        match value {
            Value::Object(map) => {
                let base = base_of(value, &base);
                if id_of(map).is_some() {
                    self.named.entry(base.clone()).or_insert_with(|| pointer.clone());
                }
                let anchors = ["$anchor", "$dynamicAnchor"].into_iter().filter_map(|key| map.get(key)?.as_str());
                let old = id_of(map).and_then(|id| id.strip_prefix('#'));
                for anchor in anchors.chain(old) {
                    self.named.entry(format!("{base}#{anchor}")).or_insert_with(|| pointer.clone());
                }
                if let Some(name) = map.get("$dynamicAnchor").and_then(Value::as_str) {
                    *self.dynamic.entry(name).or_default() += 1;
                }
                for (key, inner) in map {
                    // Data, not schemas.
                    if !matches!(key.as_str(), "enum" | "const" | "default" | "examples") {
                        self.add(inner, child(&pointer, key), base.clone(), depth - 1);
                    }
                }
            }
            Value::Array(items) => {
                for (i, inner) in items.iter().enumerate() {
                    self.add(inner, format!("{pointer}/{i}"), base.clone(), depth - 1);
                }
            }
            _ => {}
        }
    }
}

impl<'a> Place<'a> {
    /// A part of this schema.
    pub(super) fn child(&self, key: &str, value: &'a Value) -> Place<'a> {
        Place { value, pointer: child(&self.pointer, key), base: base_of(value, &self.base) }
    }
}

/// The pointer of a part.
pub(super) fn child(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

fn id_of(map: &Map<String, Value>) -> Option<&str> {
    map.get("$id").or_else(|| map.get("id"))?.as_str()
}

/// The address of a schema, given the one around it.
fn base_of(value: &Value, around: &str) -> String {
    match value.as_object().and_then(id_of) {
        Some(id) if !id.starts_with('#') => {
            let address = join(around, id);
            address.split_once('#').map(|(base, _)| base.to_owned()).unwrap_or(address)
        }
        _ => around.to_owned(),
    }
}

/// RFC 3986, section 5.2, as far as schemas use it.
fn join(base: &str, reference: &str) -> String {
    let has_scheme = |text: &str| {
        let (scheme, _) = text.split_once(':').unwrap_or(("", ""));
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    let base = base.split('#').next().unwrap_or_default();
    if reference.is_empty() || has_scheme(reference) {
        return if reference.is_empty() { base.to_owned() } else { reference.to_owned() };
    }
    if reference.starts_with('#') {
        return format!("{base}{reference}");
    }
    let authority_end =
        base.find("://").map_or(0, |at| at + 3 + base[at + 3..].find('/').unwrap_or(base.len() - at - 3));
    if reference.starts_with('/') {
        return format!("{}{reference}", &base[..authority_end]);
    }
    let folder_end = base.rfind('/').map_or(0, |at| at + 1).max(authority_end);
    let mut path = base[..folder_end].to_owned();
    let mut rest = reference;
    loop {
        if let Some(next) = rest.strip_prefix("./") {
            rest = next;
        } else if let Some(next) = rest.strip_prefix("../") {
            rest = next;
            let trimmed = path.trim_end_matches('/').rfind('/').map_or(0, |at| at + 1);
            path.truncate(trimmed.max(authority_end));
        } else {
            return path + rest;
        }
    }
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let hex = |b: u8| (b as char).to_digit(16).map(|d| d as u8);
        match (first, tail) {
            (b'%', [a, b, after @ ..]) if hex(*a).is_some() && hex(*b).is_some() => {
                bytes.push(hex(*a).unwrap_or_default() << 4 | hex(*b).unwrap_or_default());
                rest = after;
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_lead_to_pointers_anchors_and_ids() {
        let schema = json!({
            "$id": "https://example.com/a/root.json",
            "definitions": {
                "a/b": {"const": 1},
                "inner": {"$id": "other.json", "$defs": {"x": {"const": 2}}, "$ref": "#/$defs/x"},
                "named": {"$anchor": "here", "const": 3},
                "old": {"id": "#there", "const": 4},
            },
        });
        let document = Document::new(&schema);
        let rows = [
            ("#/definitions/a~1b", "/definitions/a~1b"),
            ("#/definitions/a%7E1b", "/definitions/a~1b"),
            ("#here", "/definitions/named"),
            ("#there", "/definitions/old"),
            ("other.json", "/definitions/inner"),
            ("other.json#/$defs/x", "/definitions/inner/$defs/x"),
            ("./../a/other.json", "/definitions/inner"),
            ("https://example.com/a/root.json#", ""),
            ("/a/root.json", ""),
            ("#", ""),
            ("#/", ""),
        ];
        for (reference, pointer) in rows {
            let place = document.resolve(reference, &document.root()).unwrap_or_else(|e| panic!("{reference}: {e}"));
            assert_eq!(place.pointer, pointer, "{reference}");
        }
        let inner = document.resolve("other.json", &document.root()).unwrap();
        assert_eq!(document.resolve("#/$defs/x", &inner).unwrap().value, &json!({"const": 2}));
        for nowhere in ["#/x", "#nope", "https://elsewhere.org/s.json", "third.json"] {
            assert!(document.resolve(nowhere, &document.root()).is_err(), "{nowhere}");
        }
    }
}
