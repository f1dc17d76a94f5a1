//! The dependencies of a cached result, once its parameters are known.
//!
//! The input is the analysis of a statement and the parameters of one execution. The output is the tags, which say which changed rows affect the
//! result, and the queries for keys that only the database knows. Each file handles one kind of dependency and gives at its top the argument why it
//! is sound: limits, keys of result rows, keys of rows in other tables, anti-joins.
//!
//! A *sound predicate* of a table reference is true of every row that matters: the table's other rows could be deleted without changing the result. A
//! row *enters* if a change makes it satisfy the predicate; it *leaves* if it is deleted or a change makes it fail the predicate.

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
