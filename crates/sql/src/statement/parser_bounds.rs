//! Limits of queries for the SQL parser: it builds its tree, which is walked and dropped, recursively.

use freshet_types::Dialect;

use crate::lex::postgres::{Kind, Token};

/// PostgreSQL truncates longer identifiers (`NAMEDATALEN - 1`), so two spellings may mean one name.
pub(crate) const NAME_LEN_MAX: usize = 63;
/// Longest normalized query that is analysed, in bytes.
const SHAPE_LEN_MAX: usize = 16 << 10;
/// Limit of tokens in one query that may each make its syntax tree one level deeper.
const DEPTH_MAX: usize = 500;
/// Limit of joins in one query of MySQL, where each may be inside the previous one. The server joins at most 61 tables.
const JOINS_MAX: usize = 100;
/// Limit of nested parentheses and sub-queries (the parser's own limit).
pub(crate) const NESTING_MAX: usize = 60;

/// Whether a statement is too long or too deep to be analysed.
pub(crate) fn is_too_long(dialect: Dialect, tokens: &[Token<'_>]) -> bool {
    let text_len: usize = tokens.iter().map(|token| token.text.len() + 1).sum();
    let mysql = dialect.is_mysql_family();
    let (mut depth, mut joins) = (0usize, 0usize);
    for token in tokens {
        let lower = if mysql { token.text.to_ascii_lowercase() } else { String::new() };
        let own = matches!(lower.as_str(), "xor" | "regexp" | "rlike" | "div" | "mod" | "binary");
        let token = if mysql { &Token { text: &lower, ..*token } } else { token };
        depth += usize::from(deepens(token) || own);
        joins += usize::from(matches!(lower.as_str(), "join" | "straight_join"));
    }
    text_len > SHAPE_LEN_MAX || depth > DEPTH_MAX || joins > JOINS_MAX || nests(tokens)
}

/// Whether a token may make the syntax tree deeper without a parenthesis.
fn deepens(token: &Token<'_>) -> bool {
    match token.kind {
        Kind::Symbol(byte) => !matches!(byte, b',' | b'.' | b'(' | b')'),
        Kind::Word => matches!(
            token.text,
            "and"
                | "or"
                | "not"
                | "is"
                | "isnull"
                | "notnull"
                | "between"
                | "like"
                | "ilike"
                | "similar"
                | "in"
                | "collate"
                | "at"
                | "union"
                | "intersect"
                | "except"
                | "minus"
                | "escape"
                | "overlaps"
                | "array"
        ),
        _ => false,
    }
}

/// Whether parentheses nest too deeply.
fn nests(tokens: &[Token<'_>]) -> bool {
    let mut depth = 0usize;
    tokens.iter().any(|token| {
        match token.kind {
            Kind::Symbol(b'(' | b'[') => depth += 1,
            Kind::Symbol(b')' | b']') => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > NESTING_MAX
    })
}
