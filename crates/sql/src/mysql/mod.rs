//! What MySQL and MariaDB have of their own: tokens, statements, functions, comparisons of values.
//!
//! Everything else is shared: lexer, survey, walk and footprint take the dialect as a parameter.

pub(crate) mod code;
mod expressions;
mod facts;
pub(crate) mod functions;
mod hints;
pub(crate) mod moments;
pub(crate) mod parse;
pub(crate) mod raw;
pub(crate) mod scanner;
pub(crate) mod statement;
pub(crate) mod sure;
pub(crate) mod values;
pub(crate) mod variables;
pub(crate) mod words;

pub use facts::Name as TableName;
pub(crate) use facts::{Facts, Snapshot, resolve};
