//! Statement text to tokens, and to the normalized query with its literals.
//!
//! Both families' scanners cut a text exactly where their servers do. `normalize` replaces literals by parameters, so that statements that differ in
//! values only are parsed and analysed once. In goes a text with its dialect and modes; out come tokens, or a normalized query and literals that together
//! say exactly what the text says. Nothing here knows what a statement means.

pub(crate) mod literal;
pub(crate) mod mysql;
pub(crate) mod mysql_words;
pub(crate) mod normalize;
pub(crate) mod postgres;
pub(crate) mod raw_bytes;
pub(crate) mod tokens;
