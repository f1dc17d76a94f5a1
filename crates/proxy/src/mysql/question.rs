//! The query for a session's context, and its answer: database, user, role and settings.
//!
//! It is one SELECT without a table, on the session's own connection: it takes no snapshot and opens no transaction. It resets FOUND_ROWS, ROW_COUNT
//! and the warnings, but it is sent only before a SELECT that resets them as well.

use std::sync::Arc;

use freshet_net::mysql::ServerVersion;
use freshet_net::mysql::identity::{self, ServerRun};
use freshet_sql::Client;
use freshet_types::Reason;

use crate::mysql::session::reading::{Reading, is_multibyte};
use crate::session::context::Described;

/// Settings of both servers that can change a result (`docs/internals/protocol.md`, section 9), or that a statement may return
/// ([`freshet_sql::KNOWN_VARIABLES`]), besides those with a meaning of their own here.
const SETTINGS: &[&str] = &[
    "@@time_zone",
    "@@system_time_zone",
    "@@character_set_connection",
    "@@character_set_results",
    "@@collation_connection",
    "@@character_set_database",
    "@@collation_database",
    "@@group_concat_max_len",
    "@@sql_select_limit",
    "@@div_precision_increment",
    "@@lc_time_names",
    "@@max_sort_length",
    "@@default_week_format",
    "@@sql_big_selects",
    "@@max_join_size",
    "@@sql_safe_updates",
    "@@sql_buffer_result",
    "@@session_track_state_change",
    "@@session_track_transaction_info",
    "@@max_allowed_packet",
    "@@optimizer_switch",
    "@@version",
    "@@version_comment",
    "@@lower_case_table_names",
];
/// MySQL's own.
const MYSQL: &[&str] = &[
    "@@block_encryption_mode",
    "@@cte_max_recursion_depth",
    "@@windowing_use_high_precision",
    "@@default_collation_for_utf8mb4",
    "@@session_track_gtids",
];
/// MariaDB's own.
const MARIADB: &[&str] = &[
    "@@old_mode",
    "@@old",
    "@@max_recursive_iterations",
    "@@system_versioning_asof",
    "@@default_regex_flags",
    "@@server_id",
];
/// Since 11.2.
const MARIADB_11_2: &str = "@@character_set_collations";

/// Number of columns behind the first one and before [`SETTINGS`].
const FIXED_COLUMNS: usize = 7;
/// The column of `@@time_zone`, before `@@system_time_zone`.
const TIME_ZONE: usize = FIXED_COLUMNS;
/// The column of `@@character_set_connection`.
const CONNECTION_CHARSET: usize = FIXED_COLUMNS + 2;
/// The column of `@@sql_select_limit`.
const SELECT_LIMIT: usize = FIXED_COLUMNS + 8;

/// SQL modes in which a text has another meaning for the server than for Freshet, or values print differently. Quotes and `||` are read by the
/// session's own modes ([`freshet_sql::Modes`]). MariaDB's POSTGRESQL, DB2 and MAXDB include ANSI_QUOTES, PIPES_AS_CONCAT and
/// IGNORE_SPACE, which are in the list as well, and change definitions and how they are printed. MSSQL quotes names in square brackets.
const MODES: &[(&str, &str)] = &[
    ("HIGH_NOT_PRECEDENCE", "sql_mode HIGH_NOT_PRECEDENCE"),
    ("PAD_CHAR_TO_FULL_LENGTH", "sql_mode PAD_CHAR_TO_FULL_LENGTH"),
    ("EMPTY_STRING_IS_NULL", "sql_mode EMPTY_STRING_IS_NULL"),
    ("ORACLE", "sql_mode ORACLE"),
    ("MSSQL", "sql_mode MSSQL"),
];

/// The isolation level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    ReadUncommitted,
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Level {
    fn named(text: &str) -> Option<Self> {
        Some(match text {
            "READ-UNCOMMITTED" => Self::ReadUncommitted,
            "READ-COMMITTED" => Self::ReadCommitted,
            "REPEATABLE-READ" => Self::RepeatableRead,
            "SERIALIZABLE" => Self::Serializable,
            _ => return None,
        })
    }
}

/// The last columns of the answer, if requested: the server's identity.
const SERVER_COLUMNS: usize = 2;

/// The statement that asks for everything, and last for the number of rows found, which it replaces. Which server it is is asked once per
/// connection.
pub(crate) fn question(version: &ServerVersion, with_server: bool) -> String {
    let isolation = if version.is_mariadb { "@@tx_isolation" } else { "@@transaction_isolation" };
    let mut sql = format!(
        "SELECT IF(@@autocommit, 'ON', 'OFF'), DATABASE(), CURRENT_USER(), CURRENT_ROLE(), {isolation}, @@sql_mode, \
         @@character_set_client, @@sql_auto_is_null"
    );
    let own = if version.is_mariadb { MARIADB } else { MYSQL };
    let late = (version.is_mariadb && version.is_at_least(11, 2, 1)).then_some(MARIADB_11_2);
    let lacks = |name: &str| name == "@@session_track_transaction_info" && !version.is_mariadb && version.major < 8;
    for name in SETTINGS.iter().chain(own).copied().chain(late).filter(|name| !lacks(name)) {
        sql.push_str(", ");
        sql.push_str(name);
    }
    if with_server {
        sql.push_str(", ");
        sql.push_str(identity::columns(version.is_mariadb));
    }
    sql.push_str(", FOUND_ROWS()");
    sql
}

/// Removes the number of rows found before the question from the answer's row.
pub(crate) fn take_found_rows(row: &mut Vec<Option<String>>) -> Option<u32> {
    row.pop()??.parse().ok()
}

/// Removes the server's identity from the answer's row.
pub(crate) fn take_server(row: &mut Vec<Option<String>>) -> Option<ServerRun> {
    identity::read(&row.split_off(row.len().saturating_sub(SERVER_COLUMNS)))
}

/// The session's answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The level of transactions that begin from now on.
    pub(crate) level: Level,
    /// Each statement is a transaction of its own.
    pub(crate) autocommits: bool,
    /// How the session's texts are read.
    pub(crate) reading: Reading,
    pub(crate) described: Described,
}

impl Answer {
    /// Reads the answer's one row; None if it has other columns. `collation`: the number in the metadata of the answer's text columns, which all of
    /// the session's answers have. No variable contains it: of `SET NAMES … COLLATE …` and `SET collation_connection = …` only the first changes it.
    pub(crate) fn read(row: &[Option<&[u8]>], collation: Option<u16>) -> Option<Self> {
        let (autocommit, row) = row.split_first()?;
        if row.len() < FIXED_COLUMNS + SETTINGS.len() {
            return None;
        }
        let mut key = Vec::with_capacity(row.len());
        for value in row {
            let text = value.map(|value| std::str::from_utf8(value).map(str::to_owned)).transpose().ok()?;
            key.push(text);
        }
        key.push(collation.map(|number| number.to_string()));
        let text = |at: usize| key.get(at).and_then(Option::as_deref);
        let schemas: Vec<Arc<str>> = text(0).map(Arc::from).into_iter().collect();
        let level = Level::named(text(3)?)?;
        let charset = text(5)?;
        let connection = text(CONNECTION_CHARSET).unwrap_or_default();
        let utf8 = is_utf8(charset);
        // Binary texts are not converted, and compare as a text of the column.
        let raw = matches!((charset, connection), ("binary", "binary" | "latin1"))
            || charset == "binary" && is_utf8(connection)
            || utf8 && connection == "binary";
        let obstacle = obstacle(level, text(4)?, utf8 || raw || charset == "latin1");
        let as_sent = raw || connection == charset;
        // The character set to which constants are converted: `BINARY 'x'` has other bytes in a wide one.
        let wide = is_wide(connection);
        let utf8 = utf8 && !wide && !raw;
        // `id IS NULL` finds the row that this session inserted last.
        let finds_inserted = (text(6) != Some("0")).then_some(Reason::Setting("sql_auto_is_null"));
        // Then no statement reads anything.
        let wants_nothing = (text(SELECT_LIMIT) == Some("0")).then_some(Reason::Setting("sql_select_limit = 0"));
        let obstacle = obstacle.or(finds_inserted).or(wants_nothing);
        let has_mode = |name: &str| text(4).is_some_and(|modes| modes.split(',').any(|mode| mode == name));
        let plain_backslash = has_mode("NO_BACKSLASH_ESCAPES");
        let reading = Reading {
            multibyte: Some(is_multibyte(charset)),
            ansi_quotes: Some(has_mode("ANSI_QUOTES")),
            plain_backslash: Some(plain_backslash),
            pipes_concat: Some(has_mode("PIPES_AS_CONCAT")),
        };
        let client = Client {
            utf8,
            as_sent,
            wide,
            raw,
            plain_backslash,
            utc: is_steady(text(TIME_ZONE).unwrap_or_default(), text(TIME_ZONE + 1).unwrap_or_default()),
        };
        let described = Described { key, schemas, client, obstacle };
        Some(Self { level, autocommits: *autocommit == Some(b"ON"), reading, described })
    }
}

fn is_utf8(charset: &str) -> bool {
    matches!(charset, "utf8" | "utf8mb3" | "utf8mb4" | "ascii")
}

/// Whether the zone is one offset from UTC at all times. Another name of the system's zone may mean a zone with summer time.
fn is_steady(zone: &str, system: &str) -> bool {
    zone.starts_with(['+', '-']) || (zone, system) == ("SYSTEM", "UTC")
}

/// Whether ASCII characters have other bytes in this character set.
fn is_wide(charset: &str) -> bool {
    matches!(charset, "ucs2" | "utf16" | "utf16le" | "utf32" | "swe7")
}

fn obstacle(level: Level, modes: &str, charset_known: bool) -> Option<Reason> {
    match level {
        Level::ReadUncommitted => return Some(Reason::Setting("READ UNCOMMITTED")),
        Level::Serializable => return Some(Reason::Serializable),
        Level::ReadCommitted | Level::RepeatableRead => {}
    }
    let mode = modes.split(',').find_map(|mode| MODES.iter().find(|(name, _)| *name == mode));
    if let Some((_, setting)) = mode {
        return Some(Reason::Setting(setting));
    }
    (!charset_known).then_some(Reason::Setting("this character_set_client"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(level: &str, modes: &str, charset: &str) -> Option<Answer> {
        let mut row = vec![Some(b"ON".as_slice()), Some(b"shop"), Some(b"app@%"), None, Some(level.as_bytes())];
        row.extend([Some(modes.as_bytes()), Some(charset.as_bytes()), Some(b"0".as_slice())]);
        row.resize(1 + FIXED_COLUMNS + SETTINGS.len(), Some(b"x"));
        Answer::read(&row, Some(45))
    }

    #[test]
    fn what_statements_may_show_is_asked_for() {
        let questions = ["8.0.36", "10.11.6-MariaDB"].map(|version| {
            question(&ServerVersion::parse(version.as_bytes()), false).replace("@@tx_", "@@transaction_")
        });
        for name in freshet_sql::KNOWN_VARIABLES {
            let name = format!("@@{}", name.replace("tx_", "transaction_"));
            for question in &questions {
                assert!(question.split(", ").any(|asked| asked == name), "{name}");
            }
        }
        for name in freshet_sql::KNOWN_TO_MARIADB {
            assert!(questions[1].split(", ").any(|asked| asked == format!("@@{name}")), "{name}");
        }
    }

    #[test]
    fn zones_of_one_offset() {
        assert!(
            [("+00:00", "CET"), ("-05:30", "UTC"), ("SYSTEM", "UTC")]
                .iter()
                .all(|(zone, system)| is_steady(zone, system))
        );
        // In winter London's zone is called GMT, too.
        let others = [("SYSTEM", "GMT"), ("SYSTEM", "CET"), ("Europe/Berlin", "UTC"), ("", "")];
        assert!(!others.iter().any(|(zone, system)| is_steady(zone, system)));
    }

    #[test]
    fn settings_that_hinder_are_named() {
        assert_eq!(SETTINGS[SELECT_LIMIT - FIXED_COLUMNS], "@@sql_select_limit");
        assert_eq!(SETTINGS[TIME_ZONE - FIXED_COLUMNS..][..2], ["@@time_zone", "@@system_time_zone"]);
        let plain = answer("REPEATABLE-READ", "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION", "utf8mb4").unwrap();
        assert!(plain.described.obstacle.is_none() && plain.described.client.utf8 && plain.autocommits);
        assert_eq!(plain.reading.multibyte, Some(false));
        assert_eq!((plain.level, &*plain.described.schemas[0]), (Level::RepeatableRead, "shop"));
        let obstacle = |level, modes, charset| answer(level, modes, charset).unwrap().described.obstacle;
        assert_eq!(obstacle("SERIALIZABLE", "", "utf8mb4"), Some(Reason::Serializable));
        assert_eq!(obstacle("READ-UNCOMMITTED", "", "utf8mb4"), Some(Reason::Setting("READ UNCOMMITTED")));
        let not = Some(Reason::Setting("sql_mode HIGH_NOT_PRECEDENCE"));
        assert_eq!(obstacle("READ-COMMITTED", "STRICT_ALL_TABLES,HIGH_NOT_PRECEDENCE", "utf8mb4"), not);
        for modes in ["ANSI_QUOTES", "NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT", "REAL_AS_FLOAT,IGNORE_SPACE,ANSI"] {
            assert_eq!(obstacle("READ-COMMITTED", modes, "utf8mb4"), None);
        }
        assert!(
            obstacle("READ-COMMITTED", "", "sjis").is_some()
                && answer("READ-COMMITTED", "", "sjis").unwrap().reading.multibyte == Some(true)
        );
        let reading = answer("READ-COMMITTED", "NO_BACKSLASH_ESCAPES,ANSI_QUOTES", "utf8mb4").unwrap().reading;
        assert_eq!((reading.ansi_quotes, reading.plain_backslash), (Some(true), Some(true)));
        assert_eq!(obstacle("READ-COMMITTED", "", "latin1"), None);
        assert!(!answer("READ-COMMITTED", "", "latin1").unwrap().described.client.utf8);
        let mut row = vec![Some("OFF"), None, None, None, Some("READ-COMMITTED"), Some(""), Some("utf8mb4"), Some("0")];
        row.extend(SETTINGS.iter().map(|name| Some(if name.ends_with("set_connection") { "ucs2" } else { "x" })));
        let row: Vec<_> = row.into_iter().map(|cell: Option<&str>| cell.map(str::as_bytes)).collect();
        let wide = Answer::read(&row, None).unwrap();
        assert!(!wide.described.client.utf8 && wide.described.client.wide);
        assert!(wide.described.obstacle.is_none() && !wide.autocommits);
        assert!(answer("CHAOS", "", "utf8mb4").is_none() && Answer::read(&[], None).is_none());
    }
}
