//! What a cached result depends on, once its parameters are known.
//!
//! In go the analysis of a statement and the parameters of one execution; out come the tags that say which changed rows affect the result, and the
//! queries for keys that only the database knows. Each file has one kind of dependency and, at its top, the argument why it is sound: limits, keys of result
//! rows, keys of rows in other tables, rows that NOT EXISTS drops.

pub(crate) mod answer;
pub(crate) mod anti_join;
pub(crate) mod clock;
pub(crate) mod derived_limit;
pub(crate) mod join_keys;
pub(crate) mod join_path;
pub(crate) mod key_conditions;
pub(crate) mod key_query;
pub(crate) mod limit_bound;
pub(crate) mod limit_boundary;
pub(crate) mod member_keys;
pub(crate) mod moving_limit;
pub(crate) mod mysql_times;
pub(crate) mod query_text;
pub(crate) mod read_set;
pub(crate) mod result_keys;
pub(crate) mod type_effects;
