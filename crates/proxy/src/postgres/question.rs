//! The query for a session's context, and its answer: database, roles, search path and settings.

use std::sync::Arc;

use freshet_sql::{Client, Isolation, Temporary};
use freshet_types::{Nanos, Reason};

use crate::session::context::{ContextKey, Described};

/// Settings that can change a result (`docs/internals/protocol.md`, section 9). A setting that a version does not have reads as NULL.
const SETTINGS: &[&str] = &[
    "search_path",
    "TimeZone",
    "DateStyle",
    "IntervalStyle",
    "client_encoding",
    "extra_float_digits",
    "bytea_output",
    "xmlbinary",
    "xmloption",
    "lc_monetary",
    "lc_numeric",
    "lc_time",
    "row_security",
    "array_nulls",
    "transform_null_equals",
    "standard_conforming_strings",
    "backslash_quote",
    "escape_string_warning",
    "default_text_search_config",
    "gin_fuzzy_search_limit",
    "quote_all_identifiers",
    "timezone_abbreviations",
    "client_min_messages",
    "pg_trgm.similarity_threshold",
];

/// The effective value of a setting. A setting of an extension that is not loaded has no value, or an empty one.
fn known(name: &str, value: Option<String>) -> Option<String> {
    match value {
        value if name == "pg_trgm.similarity_threshold" => {
            value.filter(|value| !value.is_empty()).or(Some("0.3".into()))
        }
        value => value,
    }
}

/// Number of columns in the answer of [`question`] before the settings.
const FIXED_COLUMNS: usize = 15;
/// All of them.
pub(crate) const CONTEXT_COLUMNS: usize = FIXED_COLUMNS + SETTINGS.len();
/// The column of [`CONFIGURATION`].
pub(crate) const CONFIGURATION_COLUMN: usize = 9;
/// The index of the first setting in [`ContextKey`].
const KEY_SETTINGS: usize = 5;

/// When this server process last read its configuration file: settings may have changed then, unnoticed.
pub(crate) const CONFIGURATION: &str = "extract(epoch from pg_catalog.pg_conf_load_time())::pg_catalog.text";

/// [`crate::ServerIdentity::system_id`]
pub(crate) const SYSTEM_ID: &str = "(SELECT system_identifier::pg_catalog.text FROM pg_catalog.pg_control_system())";
/// [`crate::ServerIdentity::postmaster_start`]
pub(crate) const POSTMASTER_START: &str = "extract(epoch from pg_catalog.pg_postmaster_start_time())::pg_catalog.text";

/// The names in the session's temporary schema, which exists from its first use on. The result is empty if the schema is empty, truncated if there
/// are many names, and NULL if a table there is a child of a table outside, whose rows are then also the child's. The server, too, finds the objects
/// to drop at the session's end by these dependencies; 2615 is `pg_namespace`.
const TEMPORARY_OBJECTS: &str = "CASE WHEN pg_catalog.pg_my_temp_schema() OPERATOR(pg_catalog.=) 0 OR NOT EXISTS (\
     SELECT FROM pg_catalog.pg_depend WHERE refclassid OPERATOR(pg_catalog.=) 2615 \
     AND refobjid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()) THEN '{}' \
     WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_inherits i ON i.inhrelid OPERATOR(pg_catalog.=) c.oid \
     JOIN pg_catalog.pg_class p ON p.oid OPERATOR(pg_catalog.=) i.inhparent \
     WHERE c.relnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema() \
     AND p.relnamespace OPERATOR(pg_catalog.<>) c.relnamespace) \
     THEN pg_catalog.left(ARRAY(SELECT relname FROM pg_catalog.pg_class \
     WHERE relnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema() \
     UNION SELECT typname FROM pg_catalog.pg_type \
     WHERE typnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())::pg_catalog.text, 8192) END";

/// The settings for log messages to the client, if the client receives them: a cached answer has no such messages, and is served as long as these
/// settings are the same.
const TALK: &str = "CASE WHEN pg_catalog.current_setting('client_min_messages') OPERATOR(pg_catalog.~) '^(debug|log)' \
     THEN pg_catalog.concat_ws(' ', pg_catalog.current_setting('log_statement'), pg_catalog.current_setting('log_duration'), \
     pg_catalog.current_setting('log_min_duration_statement'), pg_catalog.current_setting('log_min_duration_sample', true), \
     pg_catalog.current_setting('log_statement_sample_rate', true), pg_catalog.current_setting('log_transaction_sample_rate', true), \
     pg_catalog.current_setting('log_parser_stats'), pg_catalog.current_setting('log_planner_stats'), \
     pg_catalog.current_setting('log_executor_stats'), pg_catalog.current_setting('log_statement_stats'), \
     pg_catalog.current_setting('log_temp_files'), pg_catalog.current_setting('debug_print_parse'), \
     pg_catalog.current_setting('debug_print_rewritten'), pg_catalog.current_setting('debug_print_plan'), \
     pg_catalog.current_setting('trace_sort', true), pg_catalog.current_setting('auto_explain.log_min_duration', true)) END";

/// `current_schemas(true)`. It would create the session's temporary schema if `pg_temp` were the first existing schema; NULL if that is possible. A
/// schema before it is found by its name between the commas; `"$user"` stands for the user's.
const SCHEMAS: &str = "CASE WHEN pg_catalog.strpos(pg_catalog.lower(pg_catalog.current_setting('search_path')), 'pg_temp') \
     OPERATOR(pg_catalog.=) 0 OR pg_catalog.pg_my_temp_schema() OPERATOR(pg_catalog.<>) 0 OR EXISTS (\
     SELECT FROM pg_catalog.pg_namespace WHERE nspname::pg_catalog.text OPERATOR(pg_catalog.=) ANY (\
     pg_catalog.string_to_array(pg_catalog.replace(pg_catalog.translate(pg_catalog.left(\
     pg_catalog.current_setting('search_path'), pg_catalog.strpos(pg_catalog.lower(\
     pg_catalog.current_setting('search_path')), 'pg_temp') OPERATOR(pg_catalog.-) 1), '\" ', ''), '$user', \
     current_user::pg_catalog.text), ',')) AND pg_catalog.has_schema_privilege(oid, 'USAGE')) \
     THEN pg_catalog.current_schemas(true)::pg_catalog.text END";

/// The same for [`local_question`].
const LOCAL_SCHEMAS: &str = "CASE WHEN pg_catalog.strpos(pg_catalog.lower(pg_catalog.current_setting('search_path')), 'pg_temp') \
     OPERATOR(pg_catalog.=) 0 THEN pg_catalog.current_schemas(true)::pg_catalog.text END";

/// The columns with the log end, whether commits of the session wait for the log, and the flushed position. `flushed`: a fault for tests.
pub(crate) fn end(flushed: bool) -> String {
    let function = if flushed { "pg_current_wal_flush_lsn" } else { "pg_current_wal_insert_lsn" };
    format!(
        "pg_catalog.{function}()::pg_catalog.text, pg_catalog.current_setting('synchronous_commit'), \
         pg_catalog.pg_current_wal_flush_lsn()::pg_catalog.text"
    )
}

/// Hashes of the values of settings that statements read by name ([`crate::postgres::named::Named`]), `-` for none: values may be long, and may not
/// be representable in the client's encoding.
fn values(named: &[Box<str>]) -> String {
    let value = |name: &str| {
        format!(
            "COALESCE(pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(pg_catalog.current_setting('{name}', true), \
             pg_catalog.getdatabaseencoding())), 'hex'), '-')"
        )
    };
    let values: Vec<String> = named.iter().map(|name| value(name)).collect();
    if values.is_empty() { "NULL".to_owned() } else { format!("pg_catalog.concat_ws(' ', {})", values.join(", ")) }
}

/// Whether a setting is in every key with the value that a statement reads. Settings of extensions appear when the extension is loaded.
pub(crate) fn is_keyed(name: &str) -> bool {
    ["server_version", "server_version_num"]
        .iter()
        .chain(SETTINGS)
        .any(|keyed| keyed.eq_ignore_ascii_case(name) && !keyed.contains('.'))
}

/// The query for everything. The server's identity is the most expensive part and is queried once per connection. The query avoids functions that
/// format values, which cost the database more.
pub(crate) fn question(with_server: bool, named: &[Box<str>]) -> String {
    let server = if with_server { (SYSTEM_ID, POSTMASTER_START) } else { ("NULL", "NULL") };
    columns(server, (SCHEMAS, TEMPORARY_OBJECTS), named)
}

/// The same within a transaction block, where it must not fail: it reads no relation, which a role may have no right to. The session's temporary
/// objects are known. No answer where `pg_temp` is in the path.
pub(crate) fn local_question(named: &[Box<str>]) -> String {
    columns(("NULL", "NULL"), (LOCAL_SCHEMAS, "'{}'"), named)
}

fn columns((system_id, start): (&str, &str), (schemas, temporary): (&str, &str), named: &[Box<str>]) -> String {
    use std::fmt::Write as _;
    let mut sql = format!(
        "SELECT {system_id}, {start}, \
         pg_catalog.current_database()::pg_catalog.text, session_user::pg_catalog.text, current_user::pg_catalog.text, \
         {schemas}, {temporary}, \
         pg_catalog.current_setting('transaction_isolation'), \
         pg_catalog.quote_ident(session_user)::pg_catalog.regrole::pg_catalog.oid \
         OPERATOR(pg_catalog.||) ' ' OPERATOR(pg_catalog.||) \
         pg_catalog.quote_ident(current_user)::pg_catalog.regrole::pg_catalog.oid, {CONFIGURATION}, \
         pg_catalog.current_setting('idle_session_timeout', true), \
         pg_catalog.current_setting('idle_in_transaction_session_timeout'), pg_catalog.version(), {TALK}, {}",
        values(named)
    );
    for setting in SETTINGS {
        let _ = write!(sql, ", pg_catalog.current_setting('{setting}', true)");
    }
    sql
}

/// Whether a time zone is UTC, by one of its usual names.
fn is_utc(zone: &str) -> bool {
    matches!(zone, "UTC" | "Etc/UTC")
}

/// How long the server lets a session be idle; None: without limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdleMax {
    /// `idle_session_timeout`
    pub(crate) outside: Option<Nanos>,
    /// `idle_in_transaction_session_timeout`
    pub(crate) in_block: Option<Nanos>,
}

/// The answer to [`question`].
#[derive(Debug)]
pub(crate) struct Answer {
    /// The server's system identifier and start time, if requested.
    pub(crate) server: Option<(String, String)>,
    /// [`CONFIGURATION`]
    pub(crate) configuration: String,
    pub(crate) database: String,
    pub(crate) session_user: String,
    pub(crate) idle_max: IdleMax,
    /// The session's temporary objects; None: it may have others.
    pub(crate) temporary: Option<Temporary>,
    /// The isolation level of transactions that do not name one.
    pub(crate) isolation: Option<Isolation>,
    /// The hashes of the settings that statements read by name ([`values`]); only in the keys of these statements.
    pub(crate) named: Option<Box<[u8]>>,
    /// Why sessions with this context bypass, if they do.
    obstacle: Option<Reason>,
    client: Client,
    schemas: Vec<Arc<str>>,
    /// The schemas are complete, with their names in the catalogue.
    names_schemas: bool,
    /// All parts of the key.
    key: Vec<Option<String>>,
}

/// What a session must set so that its context has this key, apart from what cannot be set.
pub(crate) struct Recipe<'a> {
    pub(crate) session_user: &'a str,
    pub(crate) current_user: &'a str,
    /// Settings with their values.
    pub(crate) settings: Vec<(&'static str, &'a str)>,
}

impl<'a> Recipe<'a> {
    pub(crate) fn of(key: &'a ContextKey) -> Option<Self> {
        let values = key.get(KEY_SETTINGS..)?.iter();
        let settings = SETTINGS.iter().zip(values).filter_map(|(name, value)| Some((*name, value.as_deref()?)));
        if key.iter().flatten().any(|value| value.starts_with(NO_TEXT)) {
            return None; // not to be sent
        }
        Some(Self {
            session_user: key.get(1)?.as_deref()?,
            current_user: key.get(2)?.as_deref()?,
            settings: settings.collect(),
        })
    }
}

impl Answer {
    /// The context of the session; an error if its schemas cannot be compared with the catalogue's.
    pub(crate) fn describe(self) -> Result<Described, Reason> {
        if !self.names_schemas {
            return Err(Reason::Setting(
                "a client_encoding other than UTF8 with the name of a schema that is not ASCII",
            ));
        }
        Ok(Described { key: self.key, schemas: self.schemas, client: self.client, obstacle: self.obstacle })
    }

    /// Whether the session's context is this one.
    pub(crate) fn has_key(&self, key: &ContextKey) -> bool {
        self.key == *key
    }

    /// Reads the row; None if it does not have the expected columns.
    pub(crate) fn read(row: &[Option<&[u8]>]) -> Option<Self> {
        let column = |at: usize| row.get(at).copied().flatten().map(own_text);
        if row.len() != CONTEXT_COLUMNS {
            return None;
        }
        let setting = |name: &str| column(FIXED_COLUMNS + SETTINGS.iter().position(|s| *s == name)?);
        let utf8 = setting("client_encoding")? == "UTF8";
        let schemas = column(5)?;
        // Schema names in another encoding cannot be compared with those of the catalogue.
        let readable = !schemas.starts_with(NO_TEXT) && (utf8 || schemas.is_ascii());
        let mut schemas = if readable { parse_name_array(&schemas)? } else { Vec::new() };
        // If it is named first, `current_schema()` returns it.
        let names_temporary = setting("search_path")?.to_ascii_lowercase().contains("pg_temp");
        let first = schemas.iter().find(|schema| ***schema != *"pg_catalog").filter(|_| names_temporary);
        let first = first.map(ToString::to_string);
        // The last schema hides nothing in another one.
        let hides = schemas.last().is_none_or(|last| !last.starts_with("pg_temp_"));
        // Bytes of other encodings may look like quotes.
        let names = column(6).filter(|names| utf8 || names.is_ascii()).and_then(|names| parse_name_array(&names));
        let names = names.map(|names| if hides { names } else { Vec::new() });
        let temporary = names.map(|names| Temporary::new(names.iter().map(|name| &**name)));
        // Each session has a temporary schema of its own.
        schemas.retain(|schema| !schema.starts_with("pg_temp_"));
        // The user, the search path and all settings, but nothing that changes all the time.
        let path = if readable { Some(format!("{schemas:?}")) } else { column(5) };
        let mut key = vec![column(2), column(3), column(4), path, Some(column(8)?)];
        debug_assert_eq!(key.len(), KEY_SETTINGS);
        key.extend(SETTINGS.iter().enumerate().map(|(at, name)| known(name, column(FIXED_COLUMNS + at))));
        key.extend([first, Some(column(12)?)]);
        let obstacle = if temporary.is_none() {
            Some(Reason::TemporaryTables)
        } else if column(7)? == "serializable" {
            Some(Reason::Serializable)
        } else if setting("client_min_messages")? == "debug5" {
            // Every answer would come with a message about its transaction.
            Some(Reason::Setting("client_min_messages = debug5"))
        } else {
            None
        };
        key.push(obstacle.as_ref().map(|reason| reason.label().to_owned()));
        key.push(column(13));
        Some(Self {
            server: column(0).zip(column(1)),
            configuration: column(CONFIGURATION_COLUMN)?,
            database: column(2)?,
            session_user: column(3)?,
            idle_max: IdleMax {
                outside: column(10).as_deref().and_then(timeout),
                in_block: column(11).as_deref().and_then(timeout),
            },
            temporary,
            isolation: Isolation::named(&column(7)?),
            named: row.get(14).copied().flatten().map(Into::into),
            obstacle,
            client: Client {
                utc: is_utc(&setting("TimeZone")?),
                utf8,
                as_sent: false,
                raw: false,
                plain_backslash: false,
                wide: false,
            },
            schemas,
            names_schemas: readable,
            key,
        })
    }
}

/// The prefix of bytes that are not UTF-8: the server's texts contain no zero byte.
const NO_TEXT: char = '\0';

/// A text unchanged, or an unambiguous form of its bytes.
fn own_text(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    std::str::from_utf8(bytes).map_or_else(
        |_| {
            let mut text = String::from(NO_TEXT);
            for byte in bytes {
                let _ = write!(text, "{byte:02x}");
            }
            text
        },
        str::to_owned,
    )
}

/// Reads a time-out in the server's form, such as `90s`; None if it is off. A value that is not understood counts as the shortest.
fn timeout(text: &str) -> Option<Nanos> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let millis = match unit {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Some(1),
    };
    number.parse().map_or(Some(1), |number: Nanos| Some(number.saturating_mul(millis * 1_000_000)).filter(|n| *n > 0))
}

/// Reads the text form of a `name[]`: `{a,"b c","d\"e"}`.
pub(crate) fn parse_name_array(text: &str) -> Option<Vec<Arc<str>>> {
    let inner = text.strip_prefix('{')?.strip_suffix('}')?;
    let mut names = Vec::new();
    let mut chars = inner.chars().peekable();
    while chars.peek().is_some() {
        let mut name = String::new();
        if chars.next_if_eq(&'"').is_some() {
            loop {
                match chars.next()? {
                    '"' => break,
                    '\\' => name.push(chars.next()?),
                    other => name.push(other),
                }
            }
        } else {
            while let Some(other) = chars.next_if(|c| *c != ',') {
                name.push(other);
            }
        }
        names.push(name.into());
        match chars.next() {
            None | Some(',') => {}
            Some(_) => return None,
        }
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_lists_are_read() {
        let parse = |text| parse_name_array(text).map(|names| names.join("|"));
        assert_eq!(parse("{pg_catalog,public}").as_deref(), Some("pg_catalog|public"));
        assert_eq!(parse(r#"{"a,b","c\"d",e}"#).as_deref(), Some("a,b|c\"d|e"));
        assert_eq!(parse("{}").as_deref(), Some(""));
        assert_eq!(parse("{\"a}"), None);
        assert_eq!(parse("a"), None);
    }

    #[test]
    fn texts_of_other_encodings_are_told_apart() {
        let texts = [&b"s\xe9"[..], b"s\xe8", "s\u{e9}".as_bytes(), "s\u{fffd}".as_bytes(), b"s"].map(own_text);
        let distinct: std::collections::HashSet<_> = texts.iter().collect();
        assert_eq!(distinct.len(), texts.len(), "{texts:?}");
        assert_eq!(texts[4], "s");
    }

    #[test]
    fn timeouts_are_read() {
        let read = timeout;
        assert_eq!((read("0"), read("0ms")), (None, None));
        let second = 1_000_000_000;
        assert_eq!((read("1500ms"), read("90s")), (Some(second * 3 / 2), Some(90 * second)));
        assert_eq!(
            (read("5min"), read("1h"), read("2d")),
            (Some(300 * second), Some(3600 * second), Some(172_800 * second))
        );
        // It is better to be awake too often than to be ended.
        assert_eq!((read("never"), read("5 lustra")), (Some(1), Some(1)));
    }

    #[test]
    fn the_question_names_each_setting_once() {
        let sql = question(true, &[]).replace(SCHEMAS, "").replace(TALK, "");
        for setting in SETTINGS {
            assert_eq!(sql.matches(&format!("'{setting}'")).count(), 1, "{setting}");
        }
    }

    #[test]
    fn what_is_shown_is_in_the_key() {
        for setting in freshet_sql::SHOWN_SETTINGS {
            assert!(is_keyed(setting), "{setting}");
        }
    }
}
