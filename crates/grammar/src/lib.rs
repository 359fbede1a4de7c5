//! Grammars as masks over a model's tokens: which tokens may come next so that the text fits a JSON Schema, a regular
//! expression, a Lark or a GBNF grammar?
//!
//! A [`Compiler`] is made once a model, from its [`Vocabulary`]; it turns a [`GrammarSpec`] into a [`Matcher`], the state of
//! one text. Before each token [`Constraint::forced`] says which tokens can only come, [`Constraint::mask`] which may, and
//! [`Constraint::accept`] takes the one that came. The parsing is `llguidance`'s; this crate decides what is honoured
//! exactly (see `docs/grammars.md`), rewrites schemas so that more is, translates GBNF, and keeps hostile input cheap.
//!
//! ```
//! use lattice_grammar::{Bytes, Compiler, Constraint, GrammarSpec};
//!
//! let compiler = Compiler::new(Bytes::shared(), &[Bytes::END])?;
//! let mut matcher = compiler.compile(&GrammarSpec::Regex("[0-9]+kg".into()))?;
//! for byte in b"72k" {
//!     matcher.accept(u32::from(*byte))?;
//! }
//! assert_eq!(matcher.forced(), [u32::from(b'g')]);
//! assert!(matcher.accept(u32::from(b'x')).is_err());
//! # Ok::<(), lattice_grammar::GrammarError>(())
//! ```

mod compiler;
mod constraint;
mod error;
mod gbnf;
mod limits;
mod matcher;
mod schema;
mod spec;
mod tagged;
mod vocabulary;

pub use compiler::Compiler;
pub use constraint::Constraint;
pub use error::GrammarError;
pub use matcher::Matcher;
pub use schema::{KEYWORDS, Keyword, Support, in_schema_order};
pub use spec::GrammarSpec;
pub use tagged::{Tag, Tagged};
pub use vocabulary::{Bytes, Vocabulary};
