//! How do `oneOf`, `not` and `if` become `anyOf`? By telling branches apart, or by what a schema does not fit.

use super::document::Place;
use super::negate::negate;
use super::reason::Reason;
use super::rewrite::{Out, Walk};
use super::values::{Result, refuse, too_large};
use serde_json::{Map, Value, json};

/// Most branches of a `oneOf`.
const MAX_BRANCHES: usize = 1_000;

impl<'a> Walk<'a> {
    /// The branches of a `oneOf` as those of an `anyOf`.
    pub(super) fn one_of(&mut self, place: &Place<'a>, value: &'a Value, around: &Out) -> Result<Vec<Value>> {
        let branches = self.schemas(&place.child("oneOf", value), "oneOf", value)?;
        if branches.is_empty() {
            return refuse(place, "oneOf", "expected at least one schema");
        }
        if branches.len() > MAX_BRANCHES {
            return too_large("an oneOf's number of branches", branches.len(), MAX_BRANCHES);
        }
        let mut context = around.clone();
        context.remove("anyOf");
        let context = Value::Object(context);
        let reason = Reason::new(&self.definitions, &self.budget);
        let count = branches.len();
        let mut apart = vec![false; count * count];
        for (i, a) in branches.iter().enumerate() {
            for (j, b) in branches.iter().enumerate().skip(i + 1) {
                let both = reason.is_empty(&[a, b, &context]);
                (apart[i * count + j], apart[j * count + i]) = (both, both);
            }
        }
        let mut made = Vec::with_capacity(count);
        for (i, branch) in branches.iter().enumerate() {
            let mut parts = vec![branch.clone()];
            for (j, other) in branches.iter().enumerate() {
                if i == j || apart[i * count + j] {
                    continue;
                }
                let within = reason.kinds(branch).and(reason.kinds(&context));
                match negate(other, within, &reason) {
                    Ok(complement) => parts.push(complement),
                    Err(why) => {
                        return refuse(
                            place,
                            "oneOf",
                            format!(
                                "branches {i} and {j} may both fit, and one cannot be held off ({}: {}); use anyOf, or let a required property with a constant tell them apart",
                                why.keyword, why.why
                            ),
                        );
                    }
                }
            }
            if parts.len() == 1 {
                made.push(branch.clone());
                continue;
            }
            let all: Vec<&Value> = parts.iter().chain([&context]).collect();
            if !reason.is_empty(&all) {
                made.push(json!({"allOf": parts}));
            }
        }
        if made.is_empty() {
            made.push(json!(false));
        }
        Ok(made)
    }

    /// What does not fit `inner`, in the types that are left.
    pub(super) fn complement(&self, place: &Place<'a>, keyword: &str, inner: &Value, around: &Out) -> Result<Value> {
        let reason = Reason::new(&self.definitions, &self.budget);
        let around = Value::Object(around.clone());
        if reason.is_empty(&[inner, &around]) {
            return Ok(json!(true));
        }
        match negate(inner, reason.kinds(&around), &reason) {
            Ok(complement) => Ok(complement),
            Err(why) => {
                refuse(place, keyword, format!("the complement of its {} cannot be said: {}", why.keyword, why.why))
            }
        }
    }

    /// The two ways of an `if`.
    pub(super) fn condition(
        &mut self,
        place: &Place<'a>,
        map: &'a Map<String, Value>,
        value: &'a Value,
        around: &Out,
    ) -> Result<Option<Value>> {
        let branch = |walk: &mut Self, keyword: &str| {
            map.get(keyword).map(|schema| walk.schema(&place.child(keyword, schema))).transpose()
        };
        let (then, otherwise) = (branch(self, "then")?, branch(self, "else")?);
        if then.is_none() && otherwise.is_none() {
            return Ok(None);
        }
        let holds = self.schema(&place.child("if", value))?;
        let fails = self.complement(place, "if", &holds, around)?;
        let both = |a: Value, b: Option<Value>| match b {
            Some(b) => json!({"allOf": [a, b]}),
            None => a,
        };
        Ok(Some(json!({"anyOf": [both(holds, then), both(fails, otherwise)]})))
    }
}
