//! Which schemas are honoured exactly, and what do they say in the few keywords that the parser knows?
//!
//! [`narrow`] turns a schema of any draft into one of `type`, `enum`, `const`, the keywords of objects, arrays, strings and
//! numbers, `allOf`, `anyOf` and references into `$defs`, which says the same; what cannot be said so is an error that
//! names the keyword. `oneOf` becomes `anyOf` where its branches exclude each other ([`reason`]) or can be made to
//! ([`negate`]).

mod arrays;
mod combine;
mod document;
mod ecma;
mod formats;
mod keywords;
mod kinds;
mod negate;
mod objects;
mod order;
mod productive;
mod reason;
mod rewrite;
mod strings;
mod values;

pub(crate) use document::MAX_DEPTH;
pub use keywords::{KEYWORDS, Keyword, Support};
pub use order::in_schema_order;
pub(crate) use rewrite::{DEPTH, narrow};
