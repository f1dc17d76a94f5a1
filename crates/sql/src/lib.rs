//! From statement text to verdict, read set and tags. No other crate imports the SQL parser.
//!
//! ```text
//! text ─ lex ─► normalized query + literals          every statement, cheap
//! normalized query ─ Template::parse ─► effect       once per normalized query
//! template ─ resolve(catalogue, search path) ─► ReadSet or the Reason why not     once per normalized query and catalogue
//! read set ─ bind(parameters) ─► tags    every execution whose key is not yet known
//! ```
//!
//! | folder | what it decides |
//! |---|---|
//! | `lex` | tokens, and the normalized query with its literals |
//! | `statement` | the kind and the effects of a statement; its syntax tree |
//! | `allowlist` | the functions, operators and types that a cached statement may use |
//! | `predicate` | what a condition says about the rows of one table |
//! | `analyze` | the walk over a query, with a catalogue: returns `analysis`, which is plain data |
//! | `dependency` | functions over the analysis: tags, limits, keys |
//! | `visit` | the one walk over all nodes of a syntax tree, for those who look for something |
//!
//! All code here is a pure function of its arguments. In doubt it returns a [`freshet_types::Reason`]: a statement that passes costs time, but a
//! statement that is cached wrongly returns wrong results.

mod allowlist;
mod analysis;
mod analyze;
mod dependency;
mod lex;
mod predicate;
mod statement;
mod visit;

pub use analysis::ReadSet;
pub use dependency::answer::Field;
pub use dependency::derived_limit::{AnswerEnd, LastRowFinder};
pub use dependency::join_keys::JoinKeys;
pub use dependency::key_query::Key;
pub use dependency::limit_bound::LimitBound;
pub use dependency::moving_limit::{Positions, Reach};
pub use dependency::query_text::Parameterised;
pub use dependency::read_set::Bound;
pub use dependency::result_keys::Keys;
pub use lex::literal::{Literal, LiteralKind};
pub use lex::mysql::{Modes, Quoting, Version};
pub use lex::normalize::{Lexed, lex, lex_under};
pub use lex::outer_comments::without_outer_comments;
pub use lex::postgres::with_escapes_marked;
pub use lex::raw_bytes::without_raw_bytes;
pub use lex::trace_parent::TraceParent;
pub use predicate::parameters::{Client, Parameter, ParameterValue};
pub use statement::admin::caches::CreateCache;
pub use statement::admin::{Admin, admin};
pub use statement::effect::{Defines, Effect};
pub use statement::mysql::code::{Code, CodeScanner, stored_code};
pub use statement::mysql::facts::Hint;
pub use statement::mysql::facts::Name as TableName;
pub use statement::mysql::variables::{KNOWN as KNOWN_VARIABLES, KNOWN_TO_MARIADB, POLLED as POLLED_VARIABLES};
pub use statement::named_table::NamedTable;
pub use statement::show_setting::SHOWN as SHOWN_SETTINGS;
pub use statement::stats_query::{Aggregate, Comparison, StatsCondition, StatsItem, StatsQuery, StatsStatement};
pub use statement::summary::Summary;
pub use statement::template::Template;
pub use statement::temporary::{Temporary, Words};
pub use statement::transaction::{Bracket, Isolation};
