//! System variables whose values are part of the cache key, so that statements that return them can be cached.

use freshet_types::Dialect;

use crate::lex::postgres::{Kind, Token};

/// Variables whose values Freshet reads for each session (`question.rs` of `proxy`). A variable that the server does not know is an error.
#[rustfmt::skip]
pub const KNOWN: &[&str] = &[
    "character_set_client", "character_set_connection", "character_set_database", "character_set_results",
    "collation_connection", "collation_database", "default_week_format", "div_precision_increment",
    "group_concat_max_len", "lc_time_names", "lower_case_table_names", "max_allowed_packet", "max_join_size",
    "max_sort_length", "optimizer_switch", "sql_auto_is_null", "sql_big_selects", "sql_buffer_result", "sql_mode",
    "sql_safe_updates", "sql_select_limit", "system_time_zone", "time_zone", "transaction_isolation", "tx_isolation",
    "version", "version_comment",
];

/// The same for MariaDB alone. On MySQL these are global.
pub const KNOWN_TO_MARIADB: &[&str] = &["server_id"];

/// Global variables that may change at any time. Freshet reads them from the server at intervals (`service/catalog/server.rs` of `proxy`). An answer is
/// cached only if it is the value that was read last, and every change flushes the cache.
pub const POLLED: &[&str] = &["read_only", "server_id"];

/// Variables that cannot change while a server runs and are the same for all sessions. A restart ends the change stream, and with it all entries.
/// Other global variables are never cached: the binlog does not contain their changes.
#[rustfmt::skip]
const CONSTANT: &[&str] = &[
    "basedir", "character_set_system", "datadir", "hostname", "innodb_page_size", "innodb_read_only", "innodb_version", "license", "log_bin",
    "lower_case_file_system", "lower_case_table_names", "pid_file", "port", "protocol_version", "server_uuid", "socket",
    "tmpdir", "version", "version_comment", "version_compile_machine", "version_compile_os",
];

/// Whether a query returns variables of these only. A query that also reads tables is not analysed.
pub(crate) fn are_known(dialect: Dialect, tokens: &[Token<'_>]) -> bool {
    let reads = |token: &Token<'_>| token.kind == Kind::Word && token.text.eq_ignore_ascii_case("from");
    let known = |token: &Token<'_>| token.kind != Kind::Variable || is_known(dialect, token.text);
    !tokens.iter().any(reads) && tokens.iter().all(known)
}

/// `@@name`, `@@session.name`, `@@local.name` or `@@global.name`.
fn is_known(dialect: Dialect, text: &str) -> bool {
    let Some(name) = text.strip_prefix("@@") else { return false };
    let of_session =
        |name: &str| is_among(KNOWN, name) || dialect == Dialect::MariaDb && is_among(KNOWN_TO_MARIADB, name);
    match name.split_once('.') {
        Some((scope, name)) if is_among(&["session", "local"], scope) => of_session(name),
        Some((scope, name)) => scope.eq_ignore_ascii_case("global") && is_among(CONSTANT, name),
        None => of_session(name) || is_among(CONSTANT, name),
    }
}

fn is_among(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether a token is a global variable that may change at any time.
pub(crate) fn is_global(dialect: Dialect, token: &Token<'_>) -> bool {
    let scope = token.text.get(..9).is_some_and(|scope| scope.eq_ignore_ascii_case("@@global."));
    token.kind == Kind::Variable && scope && !is_known(dialect, token.text)
}

/// The global variable of [`POLLED`] whose value is the whole answer: `SELECT @@GLOBAL.read_only AS Value`.
pub(crate) fn polled(dialect: Dialect, tokens: &[Token<'_>]) -> Option<&'static str> {
    let is_word = |token: &Token<'_>, word: &str| token.kind == Kind::Word && token.text.eq_ignore_ascii_case(word);
    let names = |token: &Token<'_>| matches!(token.kind, Kind::Word | Kind::Quoted);
    let variable = match tokens {
        [select, variable] if is_word(select, "select") => variable,
        [select, variable, alias] if is_word(select, "select") && names(alias) => variable,
        [select, variable, r#as, alias] if is_word(select, "select") && is_word(r#as, "as") && names(alias) => variable,
        _ => return None,
    };
    let name = variable.text.strip_prefix("@@").filter(|_| variable.kind == Kind::Variable)?;
    let name = match name.split_once('.') {
        Some((scope, name)) => scope.eq_ignore_ascii_case("global").then_some(name)?,
        None if is_known(dialect, variable.text) => return None,
        None => name,
    };
    POLLED.iter().copied().find(|polled| polled.eq_ignore_ascii_case(name))
}
