//! The kind and the possible effects of a statement.
//!
//! The input is a normalized query; the output is a [`template::Template`]: the [`effect::Effect`] of the statement and, for queries that may be
//! cached, the syntax tree. The first words decide for everything but queries, which the SQL parser reads within bounds. These modules also recognise
//! transaction control, writes with known effects, names of temporary objects and the statements that Freshet answers itself.

pub(crate) mod admin;
pub(crate) mod between_symmetric;
pub(crate) mod clock_text;
pub(crate) mod effect;
pub(crate) mod effect_in_catalog;
pub(crate) mod mysql;
pub(crate) mod named_table;
pub(crate) mod parse;
pub(crate) mod parser_bounds;
pub(crate) mod relations;
pub(crate) mod show_setting;
pub(crate) mod stats_query;
pub(crate) mod summary;
pub(crate) mod template;
pub(crate) mod temporary;
pub(crate) mod transaction;
pub(crate) mod trusted;
pub(crate) mod user_code;
pub(crate) mod write_effects;
