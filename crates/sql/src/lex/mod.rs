//! From statement text to tokens, and to the normalized query with its literals.
//!
//! The scanners of both families split a text exactly where the servers do. `normalize` replaces literals by parameters, so that statements that
//! differ only in values are parsed and analysed once. The input is a text with its dialect and modes. The output is tokens, or a normalized query
//! with literals, which together have exactly the meaning of the text. The modules here do not know what a statement means.

pub(crate) mod literal;
pub(crate) mod mysql;
pub(crate) mod mysql_words;
pub(crate) mod normalize;
pub(crate) mod outer_comments;
pub(crate) mod postgres;
pub(crate) mod raw_bytes;
pub(crate) mod tokens;
pub(crate) mod trace_parent;
