//! Sets of JSON's types, whole numbers apart from others.

use serde_json::{Map, Value, json};

/// A set of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kinds(u8);

impl Kinds {
    pub(super) const NONE: Kinds = Kinds(0);
    pub(super) const NULL: Kinds = Kinds(1);
    pub(super) const BOOLEAN: Kinds = Kinds(2);
    pub(super) const WHOLE: Kinds = Kinds(4);
    pub(super) const FRACTION: Kinds = Kinds(8);
    pub(super) const STRING: Kinds = Kinds(16);
    pub(super) const ARRAY: Kinds = Kinds(32);
    pub(super) const OBJECT: Kinds = Kinds(64);
    pub(super) const NUMBER: Kinds = Kinds(12);
    pub(super) const ALL: Kinds = Kinds(127);

    const NAMED: [(&str, Kinds); 7] = [
        ("null", Kinds::NULL),
        ("boolean", Kinds::BOOLEAN),
        ("number", Kinds::NUMBER),
        ("integer", Kinds::WHOLE),
        ("string", Kinds::STRING),
        ("array", Kinds::ARRAY),
        ("object", Kinds::OBJECT),
    ];

    pub(super) fn has(self, other: Kinds) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn and(self, other: Kinds) -> Kinds {
        Kinds(self.0 & other.0)
    }

    pub(super) fn or(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    pub(super) fn without(self, other: Kinds) -> Kinds {
        Kinds(self.0 & !other.0)
    }

    /// The types that a name stands for.
    pub(super) fn named(name: &str) -> Option<Kinds> {
        Kinds::NAMED.iter().find(|(n, _)| *n == name).map(|(_, kinds)| *kinds)
    }

    /// What the value of `type` says.
    pub(super) fn of_keyword(value: &Value) -> Option<Kinds> {
        match value {
            Value::String(name) => Kinds::named(name),
            Value::Array(names) => {
                names.iter().try_fold(Kinds::NONE, |all, name| Some(all.or(Kinds::named(name.as_str()?)?)))
            }
            _ => None,
        }
    }

    /// The type of a value.
    pub(super) fn of_value(value: &Value) -> Kinds {
        match value {
            Value::Null => Kinds::NULL,
            Value::Bool(_) => Kinds::BOOLEAN,
            Value::Number(n) => match n.as_f64() {
                Some(x) if x.fract() == 0.0 => Kinds::WHOLE,
                _ => Kinds::FRACTION,
            },
            Value::String(_) => Kinds::STRING,
            Value::Array(_) => Kinds::ARRAY,
            Value::Object(_) => Kinds::OBJECT,
        }
    }

    /// The types that a keyword speaks of; none if it speaks of all.
    pub(super) fn of_constraint(keyword: &str) -> Option<Kinds> {
        Some(match keyword {
            "properties"
            | "required"
            | "additionalProperties"
            | "patternProperties"
            | "minProperties"
            | "maxProperties" => Kinds::OBJECT,
            "items" | "prefixItems" | "minItems" | "maxItems" => Kinds::ARRAY,
            "minLength" | "maxLength" | "pattern" | "format" => Kinds::STRING,
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => Kinds::NUMBER,
            _ => return None,
        })
    }

    /// The value of `type` for this set; none if the set holds fractions without whole numbers, which no name says.
    pub(super) fn keyword(self) -> Option<Value> {
        let mut names = Vec::new();
        for (name, kinds) in Kinds::NAMED {
            let whole_too = name == "integer" && self.has(Kinds::FRACTION);
            if self.and(kinds) == kinds && !whole_too {
                names.push(name);
            }
        }
        if self.has(Kinds::FRACTION) && !self.has(Kinds::WHOLE) {
            return None;
        }
        Some(if names.len() == 1 { json!(names[0]) } else { json!(names) })
    }
}

/// Values of other types, or these.
pub(super) fn not_or(out: &Map<String, Value>, kind: Kinds, mut ways: Vec<Value>) -> Value {
    let own = out.get("type").and_then(Kinds::of_keyword).unwrap_or(Kinds::ALL);
    let others = own.without(kind);
    if !others.is_empty() {
        ways.insert(0, json!({"type": others.keyword().expect("numbers are in it whole or not at all")}));
    }
    json!({"anyOf": ways})
}
