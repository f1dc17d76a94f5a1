//! The statements Freshet answers itself.
//!
//! They come over the client's ordinary connection, so every statement is looked at: texts that start with neither
//! SHOW nor EXPLAIN must be told apart within a few instructions.

use crate::scanner::{Kind, Scanner};

/// A statement for Freshet itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admin {
    /// `SHOW CACHES`
    ShowCaches,
    /// `SHOW PROXIED QUERIES`
    ShowProxiedQueries,
    /// `SHOW FRESHET STATUS`
    ShowStatus,
    /// `EXPLAIN CACHE <query>`: the query's text.
    ExplainCache(String),
}

/// Recognises an admin statement. None: it is not one. Err: it starts like one but is malformed (text for the
/// client).
pub fn admin(text: &str) -> Option<Result<Admin, String>> {
    match text.trim_ascii_start().as_bytes().first()? {
        // Only a comment or one of the two words can lead to an admin statement.
        b's' | b'S' | b'e' | b'E' | b'-' | b'/' => {}
        _ => return None,
    }
    let mut tokens = Scanner::new(text);
    let mut word = || tokens.next().filter(|token| token.kind == Kind::Word).map_or("", |token| token.text);
    let is = |word: &str, wanted: &str| word.eq_ignore_ascii_case(wanted);
    let verb = word();
    let (show, explain) = (is(verb, "show"), is(verb, "explain"));
    if !show && !explain {
        return None;
    }
    let object = word();
    let (statement, usage) = match () {
        () if explain && is(object, "cache") => return Some(explained(&tokens)),
        () if show && is(object, "caches") => (Some(Admin::ShowCaches), "SHOW CACHES"),
        () if show && is(object, "proxied") => {
            (is(word(), "queries").then_some(Admin::ShowProxiedQueries), "SHOW PROXIED QUERIES")
        }
        () if show && is(object, "freshet") => {
            (is(word(), "status").then_some(Admin::ShowStatus), "SHOW FRESHET STATUS")
        }
        () => return None,
    };
    let ended = tokens.all(|token| token.kind == Kind::Symbol(b';'));
    Some(statement.filter(|_| ended).ok_or_else(|| format!("syntax: {usage}")))
}

fn explained(tokens: &Scanner<'_>) -> Result<Admin, String> {
    let query = tokens.rest().trim_ascii().trim_end_matches(|c: char| c == ';' || c.is_ascii_whitespace());
    if query.is_empty() {
        Err("syntax: EXPLAIN CACHE <query>".to_owned())
    } else {
        Ok(Admin::ExplainCache(query.to_owned()))
    }
}
