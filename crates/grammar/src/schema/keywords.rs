//! What is done about each keyword of JSON Schema? The table that `docs/grammars.md` prints.

/// How a keyword is honoured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Exactly as it stands.
    Exact,
    /// Exactly, by saying the same with other keywords; refused where that cannot be done.
    Rewritten,
    /// It says nothing about what fits.
    Annotation,
    /// Never, unless it has no effect.
    Refused,
}

/// A keyword of any draft from 4 to 2020-12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keyword {
    /// Its name.
    pub name: &'static str,
    /// How it is honoured.
    pub support: Support,
    /// What there is to know.
    pub note: &'static str,
}

const fn row(name: &'static str, support: Support, note: &'static str) -> Keyword {
    Keyword { name, support, note }
}

use Support::{Annotation, Exact, Refused, Rewritten};

/// All keywords. Others are annotations, as the specification has it.
pub const KEYWORDS: &[Keyword] = &[
    row("type", Exact, "an integer is written without a fraction (`1`, not `1.0`)"),
    row("enum", Exact, "objects among the values with their keys in the order given"),
    row("const", Exact, "as `enum`"),
    row("properties", Exact, "in the order given; see below"),
    row("required", Exact, "keys that are not in `properties` come after those that are"),
    row("additionalProperties", Exact, "after all others"),
    row("patternProperties", Exact, "refused where a key could match two patterns"),
    row("minProperties", Rewritten, "refused above 1 unless the keys that count are named and few"),
    row("maxProperties", Rewritten, "refused unless the keys that count are required, or named and few"),
    row("propertyNames", Rewritten, "one of `pattern`, `enum`, `const`, lengths; refused otherwise"),
    row("dependencies", Rewritten, ""),
    row("dependentRequired", Rewritten, ""),
    row("dependentSchemas", Rewritten, ""),
    row("unevaluatedProperties", Rewritten, "beside `allOf` and `$ref`; refused beside other combinations"),
    row("items", Exact, "as a list too (drafts to 2019-09)"),
    row("prefixItems", Exact, ""),
    row("additionalItems", Exact, ""),
    row("minItems", Exact, ""),
    row("maxItems", Exact, ""),
    row("contains", Rewritten, "in arrays of at most 8 items; refused in longer ones"),
    row("minContains", Rewritten, "0 and 1; refused otherwise"),
    row("maxContains", Refused, ""),
    row("uniqueItems", Rewritten, "in arrays of at most one item, or of few values; refused otherwise"),
    row("unevaluatedItems", Refused, "unless it is true"),
    row("minLength", Exact, "in Unicode characters"),
    row("maxLength", Exact, "in Unicode characters"),
    row("pattern", Exact, "refused with look-around, back references and word borders"),
    row("format", Exact, "see below"),
    row("minimum", Exact, "numbers with bounds are written without an exponent"),
    row("maximum", Exact, "as `minimum`"),
    row("exclusiveMinimum", Exact, "as a number, and as the flag of draft 4"),
    row("exclusiveMaximum", Exact, "as `exclusiveMinimum`"),
    row("multipleOf", Exact, ""),
    row("allOf", Exact, ""),
    row("anyOf", Exact, ""),
    row("oneOf", Rewritten, "branches that exclude each other, or whose complements can be said"),
    row("not", Rewritten, "types, values, bounds, lengths, `required`, `properties` and combinations of them"),
    row("if", Rewritten, "where the complement of the condition can be said, as with `not`"),
    row("then", Rewritten, "with `if`"),
    row("else", Rewritten, "with `if`"),
    row("$ref", Exact, "to places of the same document; nothing is fetched"),
    row("$recursiveRef", Rewritten, "where it means what `$ref` means"),
    row("$dynamicRef", Rewritten, "where it means what `$ref` means"),
    row("$id", Annotation, "names a place for `$ref`"),
    row("id", Annotation, "names a place for `$ref` (draft 4)"),
    row("$anchor", Annotation, "names a place for `$ref`"),
    row("$dynamicAnchor", Annotation, "names a place for `$ref`"),
    row("$recursiveAnchor", Annotation, ""),
    row("$defs", Annotation, "a place for schemas"),
    row("definitions", Annotation, "a place for schemas"),
    row("$schema", Annotation, "keywords mean what they mean in any draft that has them"),
    row("$vocabulary", Annotation, ""),
    row("$comment", Annotation, ""),
    row("title", Annotation, ""),
    row("description", Annotation, ""),
    row("default", Annotation, ""),
    row("examples", Annotation, ""),
    row("deprecated", Annotation, ""),
    row("readOnly", Annotation, ""),
    row("writeOnly", Annotation, ""),
    row("contentEncoding", Annotation, ""),
    row("contentMediaType", Annotation, ""),
    row("contentSchema", Annotation, ""),
];
