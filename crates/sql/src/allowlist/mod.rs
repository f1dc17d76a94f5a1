//! Which constructs a cached statement may use.
//!
//! The lists name functions, operators and types whose results depend on their arguments alone, or on settings that are part of the cache key. The visitor
//! goes over the whole syntax tree and finds everything that the lists have to decide. In go names and trees; out comes whether a query may be cached,
//! or the reason why not.

pub(crate) mod functions;
pub(crate) mod implicit_lookups;
pub(crate) mod mysql_functions;
pub(crate) mod trusted;
pub(crate) mod types;
pub(crate) mod visitor;
