//! The statements Freshet answers itself.
//!
//! They come over the client's ordinary connection, so every statement is looked at: texts that start with none of
//! SHOW, EXPLAIN, FRESHET, RELOAD, CREATE and DROP must be told apart within a few instructions. On MySQL and MariaDB a new SELECT is searched for one word more.

pub(crate) mod caches;

use freshet_types::Dialect;

use crate::lex::mysql;
use crate::lex::postgres::{Kind, Token};
use crate::lex::tokens::Tokens;
use crate::statement::admin::caches::CreateCache;
use crate::statement::stats_query::{StatsStatement, stats_statement};

/// Less memory than this is a mistake.
const MEMORY_BYTES_MIN: u64 = 1 << 20;

/// A statement for Freshet itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admin {
    /// `SHOW CACHES`
    ShowCaches,
    /// `SHOW PROXIED QUERIES`
    ShowProxiedQueries,
    /// `SHOW FRESHET STATUS`
    ShowStatus,
    /// `SHOW FRESHET QUERIES`
    ShowQueries,
    /// `SHOW ADVICE`
    ShowAdvice,
    /// `SHOW CONFIG`
    ShowConfig,
    /// `SHOW REPLICATION`
    ShowReplication,
    /// `SHOW RULES`
    ShowRules,
    /// `SHOW RULES AS TOML`
    ShowRulesAsToml,
    /// `CREATE CACHE …`
    CreateCache(Box<CreateCache>),
    /// `DROP CACHE name | digest`
    DropCache(String),
    /// `DROP ALL CACHES`
    DropAllCaches,
    /// `RELOAD`
    Reload,
    /// `EXPLAIN CACHE <query>`: the query's text.
    ExplainCache(String),
    /// `EXPLAIN LAST STATEMENT`
    ExplainLast,
    /// `FRESHET BYPASS ON` (true) and `FRESHET BYPASS OFF`
    Bypass(bool),
    /// `FRESHET MEMORY <bytes>`
    Memory(u64),
    /// `FRESHET MEMORY MIN <bytes>`: the least that the session's database has.
    MemoryMin(u64),
    /// `FRESHET MEMORY MAX <bytes>`: the most that it may have.
    MemoryMax(u64),
    /// `FRESHET PAUSE` (true) and `FRESHET RESUME`
    Pause(bool),
    /// `FRESHET RECONNECT`
    Reconnect,
    /// MySQL and MariaDB: `SHOW STATUS LIKE 'Qcache%'` with its pattern, which matches only such names.
    QueryCacheStatus(String),
    /// MySQL and MariaDB: `SHOW VARIABLES LIKE 'query_cache%'` with its pattern, which matches only such names.
    QueryCacheVariables(String),
    /// MySQL and MariaDB: a SELECT on one of ProxySQL's tables of statistics.
    Stats(Box<StatsStatement>),
}

/// Recognises an admin statement. None: it is not one. Err: it begins like one but is malformed (message for the client).
pub fn admin(dialect: Dialect, text: &str) -> Option<Result<Admin, String>> {
    // Only a comment or one of the six words can lead to an admin statement.
    match text.trim_ascii_start().as_bytes() {
        [b's' | b'S', b'h' | b'H', ..]
        | [b'e' | b'E', b'x' | b'X', ..]
        | [b'c' | b'C' | b'd' | b'D' | b'f' | b'F', b'r' | b'R', ..]
        | [b'r' | b'R', b'e' | b'E', b'l' | b'L', b'o' | b'O', ..]
        | [b'-' | b'/' | b'#', ..] => {}
        [b's' | b'S', b'e' | b'E', ..] if dialect.is_mysql_family() => {
            return stats_statement(text).map(|stats| Ok(Admin::Stats(Box::new(stats))));
        }
        _ => return None,
    }
    let mut tokens = Tokens::of(dialect, text);
    let mut word = || tokens.next().filter(|token| token.kind == Kind::Word).map_or("", |token| token.text);
    let is = |word: &str, wanted: &str| word.eq_ignore_ascii_case(wanted);
    let verb = word();
    let (show, explain, freshet) = (is(verb, "show"), is(verb, "explain"), is(verb, "freshet"));
    if is(verb, "reload") {
        return Some(whole(tokens, Admin::Reload, "RELOAD"));
    }
    if is(verb, "create") || is(verb, "drop") {
        return caches::statement(is(verb, "create"), tokens);
    }
    if !show && !explain && !freshet {
        return None;
    }
    if show
        && dialect.is_mysql_family()
        && let Some(question) = query_cache(text)
    {
        return Some(Ok(question));
    }
    let object = word();
    let (statement, usage) = match () {
        () if explain && is(object, "cache") => return Some(explained(&tokens)),
        // `EXPLAIN last` describes a table on MySQL and MariaDB.
        () if explain && is(object, "last") && is(word(), "statement") => {
            (Some(Admin::ExplainLast), "EXPLAIN LAST STATEMENT")
        }
        () if show && is(object, "caches") => (Some(Admin::ShowCaches), "SHOW CACHES"),
        () if show && is(object, "config") => (Some(Admin::ShowConfig), "SHOW CONFIG"),
        () if show && is(object, "replication") => (Some(Admin::ShowReplication), "SHOW REPLICATION"),
        () if show && is(object, "rules") => (shown_rules(tokens.by_ref()), "SHOW RULES or SHOW RULES AS TOML"),
        () if show && is(object, "proxied") => {
            (is(word(), "queries").then_some(Admin::ShowProxiedQueries), "SHOW PROXIED QUERIES")
        }
        () if show && is(object, "freshet") => {
            let what = word();
            let queries = || is(what, "queries").then_some(Admin::ShowQueries);
            let statement = is(what, "status").then_some(Admin::ShowStatus).or_else(queries);
            (statement, "SHOW FRESHET STATUS or SHOW FRESHET QUERIES")
        }
        () if show && is(object, "advice") => (Some(Admin::ShowAdvice), "SHOW ADVICE"),
        () if freshet && is(object, "bypass") => {
            let switch = word();
            let on = is(switch, "on");
            ((on || is(switch, "off")).then_some(Admin::Bypass(on)), "FRESHET BYPASS ON or FRESHET BYPASS OFF")
        }
        () if freshet && is(object, "pause") => (Some(Admin::Pause(true)), "FRESHET PAUSE"),
        () if freshet && is(object, "resume") => (Some(Admin::Pause(false)), "FRESHET RESUME"),
        () if freshet && is(object, "reconnect") => (Some(Admin::Reconnect), "FRESHET RECONNECT"),
        () if freshet && is(object, "memory") => {
            (memory(&mut tokens), "FRESHET MEMORY [MIN | MAX] <bytes>, at least 1048576 but for MIN")
        }
        () => return None,
    };
    let ended = tokens.all(|token| token.kind == Kind::Symbol(b';'));
    Some(statement.filter(|_| ended).ok_or_else(|| format!("syntax: {usage}")))
}

/// What follows `FRESHET MEMORY`.
fn memory(tokens: &mut Tokens<'_>) -> Option<Admin> {
    let first = tokens.next()?;
    let is = |word: &str| first.kind == Kind::Word && first.text.eq_ignore_ascii_case(word);
    let (make, least): (fn(u64) -> Admin, _) = match () {
        () if is("min") => (Admin::MemoryMin, 0),
        () if is("max") => (Admin::MemoryMax, MEMORY_BYTES_MIN),
        () => (Admin::Memory, MEMORY_BYTES_MIN),
    };
    let size = if first.kind == Kind::Word { tokens.next()? } else { first };
    let is_bound = is("min") || is("max");
    let bytes = Some(size).filter(|size| size.kind == Kind::Number && is_bound == (first.kind == Kind::Word));
    bytes.and_then(|size| size.text.parse().ok()).filter(|bytes| *bytes >= least).map(make)
}

/// Queries of monitoring tools for the servers' own query cache. Freshet answers them, since the server's query cache is off or was removed. Patterns
/// that match other names go to the server.
fn query_cache(text: &str) -> Option<Admin> {
    let tokens: Vec<Token<'_>> = Tokens::of(Dialect::MySql, text).collect();
    let end = tokens.iter().rposition(|token| token.kind != Kind::Symbol(b';'))?;
    let (pattern, words) = tokens.get(1..=end)?.split_last()?;
    let words: Vec<String> = words.iter().map(|token| token.text.to_ascii_lowercase()).collect();
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    if matches!(words.first(), Some(&("global" | "session" | "local"))) {
        words.remove(0);
    }
    let pattern = match pattern.kind {
        Kind::Text => String::from_utf8(mysql::unescaped(pattern.text)).ok()?,
        _ => return None,
    };
    // `_` matches any character, escaped or not: the server has no names that differ only there.
    let starts = |prefix: &str| pattern.replace('\\', "").to_ascii_lowercase().starts_with(prefix);
    match words.as_slice() {
        ["status", "like"] if starts("qcache") => Some(Admin::QueryCacheStatus(pattern)),
        ["variables", "like"] if starts("query_cache") => Some(Admin::QueryCacheVariables(pattern)),
        _ => None,
    }
}

/// The statement, if nothing follows it.
fn whole(mut rest: Tokens<'_>, admin: Admin, usage: &str) -> Result<Admin, String> {
    let ended = rest.all(|token| token.kind == Kind::Symbol(b';'));
    if ended { Ok(admin) } else { Err(format!("syntax: {usage}")) }
}

fn shown_rules(tokens: &mut Tokens<'_>) -> Option<Admin> {
    let words: Vec<&str> = tokens.filter(|token| token.kind != Kind::Symbol(b';')).map(|token| token.text).collect();
    match words.as_slice() {
        [] => Some(Admin::ShowRules),
        [one, two] if one.eq_ignore_ascii_case("as") && two.eq_ignore_ascii_case("toml") => {
            Some(Admin::ShowRulesAsToml)
        }
        _ => None,
    }
}

fn explained(tokens: &Tokens<'_>) -> Result<Admin, String> {
    let query = tokens.rest().trim_ascii().trim_end_matches(|c: char| c == ';' || c.is_ascii_whitespace());
    if query.is_empty() {
        Err("syntax: EXPLAIN CACHE <query>".to_owned())
    } else {
        Ok(Admin::ExplainCache(query.to_owned()))
    }
}
