//! Statement text to verdict, footprint and tags; the only importer of the SQL parser.
//!
//! ```text
//! text ─ lex ─► shape + literals          every statement, cheap
//! shape ─ Template::parse ─► effect       once per shape
//! template ─ resolve(catalogue, search path) ─► Footprint or the Reason why not     once per shape and catalogue
//! footprint ─ bind(parameters) ─► tags    every execution that is not answered by a key already known
//! ```
//!
//! Everything here is a pure function of its arguments. When in doubt the answer is a [`freshet_types::Reason`]:
//! a statement that passes costs time, one that is cached wrongly costs the truth.

mod absent;
mod admin;
mod arrays;
mod block;
mod bounds;
mod branches;
mod clock;
mod columns;
mod conditions;
mod ctes;
mod derived;
mod effect;
mod ends;
mod expressions;
mod footprint;
mod formulas;
mod functions;
mod identity;
mod joins;
mod lexer;
mod lineage;
mod lookups;
mod members;
mod moments;
mod moving;
mod mysql;
mod nulls;
mod order;
mod outer;
mod pages;
mod params;
mod parts;
mod patterns;
mod plain;
mod predicate;
mod questions;
mod relations;
mod residuals;
mod rows;
mod scalar;
mod scanner;
mod shown;
mod shown_settings;
mod starts;
mod survey;
mod template;
mod temporary;
mod terms;
mod tokens;
mod top;
mod transaction;
mod trusted;
mod type_effects;
mod views;
mod walk;
mod ways;
mod within;
mod written;

pub use admin::{Admin, admin};
pub use effect::{Defines, Effect};
pub use footprint::{Bound, Footprint, Parameter, ParameterValue};
pub use identity::Keys;
pub use lexer::{Lexed, Literal, LiteralKind, lex, lex_under};
pub use lineage::{Key, Lineage};
pub use moving::{Positions, Reach};
pub use mysql::TableName;
pub use mysql::code::{Code, CodeScanner, stored_code};
pub use mysql::raw::without_raw_bytes;
pub use mysql::scanner::{Modes, Quoting};
pub use mysql::variables::KNOWN as KNOWN_VARIABLES;
pub use pages::{End, Furthest};
pub use params::Client;
pub use scanner::with_escapes_marked;
pub use shown_settings::SHOWN as SHOWN_SETTINGS;
pub use template::{Hint, Template};
pub use temporary::{Temporary, Words};
pub use top::{Field, Top};
pub use transaction::{Bracket, Isolation};
pub use written::Parameterised;
