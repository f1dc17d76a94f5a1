//! Labels: the settings that sessions have set on a connection since its login, with their values.
//!
//! A session whose settings can all be carried gives its connection back with them, as the connection's label, and remembers the same as its own. It
//! prefers connections with its own label. Any other one is given the difference first: RESET of what only the connection's label has, and `set_config`
//! of the rest. The server then shows the values in force, which must be the label's.
//!
//! Carried are settings of the server's own that any role may set at any time, whose value is the same when the text that the server shows is set again
//! (numbers with fractions are shown rounded), and by which no other session's statement can be delayed. Values are plain ASCII: they mean the same in
//! every `client_encoding`.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::postgres::pooling::application_settings::{Names, giving};
use crate::postgres::question::parse_name_array;

/// `name=value` in the server's order of names.
pub(crate) type Label = Arc<[Arc<str>]>;

/// Settings on which it may depend what the server makes of a statement when it prepares or plans it; in small letters.
pub(crate) const OF_PREPARING: [&str; 23] = [
    "array_nulls",
    "backslash_quote",
    "bytea_output",
    "client_encoding",
    "datestyle",
    "default_text_search_config",
    "enable_partition_pruning",
    "escape_string_warning",
    "extra_float_digits",
    "intervalstyle",
    "lc_monetary",
    "lc_numeric",
    "lc_time",
    "plan_cache_mode",
    "quote_all_identifiers",
    "row_security",
    "search_path",
    "standard_conforming_strings",
    "timezone",
    "timezone_abbreviations",
    "transform_null_equals",
    "xmlbinary",
    "xmloption",
];

/// All others.
const OTHERS: [&str; 38] = [
    "application_name",
    "check_function_bodies",
    "client_connection_check_interval",
    "client_min_messages",
    "constraint_exclusion",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "effective_io_concurrency",
    "enable_async_append",
    "enable_bitmapscan",
    "enable_gathermerge",
    "enable_hashagg",
    "enable_hashjoin",
    "enable_incremental_sort",
    "enable_indexonlyscan",
    "enable_indexscan",
    "enable_material",
    "enable_memoize",
    "enable_mergejoin",
    "enable_nestloop",
    "enable_parallel_append",
    "enable_parallel_hash",
    "enable_partitionwise_aggregate",
    "enable_partitionwise_join",
    "enable_seqscan",
    "enable_sort",
    "enable_tidscan",
    "from_collapse_limit",
    "geqo",
    "idle_in_transaction_session_timeout",
    "jit",
    "join_collapse_limit",
    "lock_timeout",
    "maintenance_work_mem",
    "max_parallel_workers_per_gather",
    "statement_timeout",
    "transaction_timeout",
    "work_mem",
];

/// They end the statements that set the others, so they are reset first and set last.
const OF_STATEMENTS: [&str; 2] = ["statement_timeout", "transaction_timeout"];

/// Limit of the settings of a label, and of the length of one.
const SETTINGS_MAX: usize = 32;
const SETTING_BYTES_MAX: usize = 512;

/// What a label may have.
pub(crate) const SETTINGS: (&[&str], &[&str], [usize; 2]) = (&OF_PREPARING, &OTHERS, [SETTINGS_MAX, SETTING_BYTES_MAX]);

fn name_of(setting: &str) -> &str {
    setting.split_once('=').map_or(setting, |(name, _)| name)
}

fn is_of_preparing(setting: &str) -> bool {
    OF_PREPARING.iter().any(|name| name.eq_ignore_ascii_case(name_of(setting)))
}

/// The call that sets it, and shows it as it is then.
fn setting_of(setting: &str) -> String {
    let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
    let value = value.replace('\\', "\\\\").replace('\'', "''");
    format!("pg_catalog.set_config('{name}', E'{value}', false)")
}

/// Whether it can be carried over to another connection.
fn is_carried(setting: &str) -> bool {
    let is_other = || OTHERS.iter().any(|name| name.eq_ignore_ascii_case(name_of(setting)));
    let is_plain = setting.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    is_plain && setting.len() <= SETTING_BYTES_MAX && (is_of_preparing(setting) || is_other())
}

/// The label of these settings; None: one of them cannot be carried over.
pub(crate) fn label_of(settings: &[Arc<str>]) -> Option<Label> {
    let is_short = settings.len() <= SETTINGS_MAX;
    (is_short && settings.iter().all(|setting| is_carried(setting))).then(|| settings.into())
}

/// The part of a label on which prepared statements depend.
pub(crate) fn of_preparing(label: &Label) -> Label {
    if label.iter().all(|setting| is_of_preparing(setting)) {
        return label.clone();
    }
    label.iter().filter(|setting| is_of_preparing(setting)).cloned().collect()
}

/// What sessions have set on a connection since its login.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SetThere {
    /// The names of settings of applications that it knows.
    pub(crate) names: Names,
    pub(crate) label: Label,
}

impl SetThere {
    /// The statements that make a connection with these settings one with the others; the last one shows what is in force.
    pub(crate) fn change_to(&self, other: &Self) -> String {
        let has = |label: &Label, setting: &str| label.iter().any(|there| name_of(there) == name_of(setting));
        let is_of_statements = |setting: &str| OF_STATEMENTS.contains(&name_of(setting));
        let mut sql = String::new();
        let (first, later): (Vec<_>, Vec<_>) = self.label.iter().partition(|setting| is_of_statements(setting));
        for setting in first.into_iter().chain(later.into_iter().filter(|setting| !has(&other.label, setting))) {
            let _ = write!(sql, "RESET {}; ", name_of(setting));
        }
        let differ = other.label.iter().filter(|setting| !self.label.contains(setting));
        for setting in differ.filter(|setting| !is_of_statements(setting)) {
            let _ = write!(sql, "SELECT {}; ", setting_of(setting));
        }
        let names = if self.names == other.names { &Names::default() } else { &other.names };
        let show = |setting: &Arc<str>| {
            let name = name_of(setting);
            let current = || format!("pg_catalog.current_setting('{name}')");
            let value = if is_of_statements(setting) { setting_of(setting) } else { current() };
            format!("pg_catalog.concat('{name}=', {value})")
        };
        let shown: Vec<String> = other.label.iter().map(show).collect();
        let (given, read) = giving(names);
        format!("{sql}{given}SELECT {read}, (ARRAY[{}]::pg_catalog.text[])::pg_catalog.text", shown.join(", "))
    }

    /// Whether the answer to the last of these statements shows these settings.
    pub(crate) fn is_shown(&self, row: &[Option<&[u8]>]) -> bool {
        // A value of an application's setting that no catalogue shows: the login's options, or the server's configuration, give it.
        let [Some(b""), Some(label)] = row else { return false };
        let shown = std::str::from_utf8(label).ok().and_then(parse_name_array);
        shown.is_some_and(|shown| *shown == *self.label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(texts: &[&str]) -> Vec<Arc<str>> {
        texts.iter().map(|text| (*text).into()).collect()
    }

    #[test]
    fn only_what_can_be_set_again_is_carried() {
        for setting in ["TimeZone=Asia/Tokyo", "search_path=\"a\", b", "work_mem=4MB", "timezone=<-05>+05"] {
            assert!(label_of(&settings(&[setting])).is_some(), "{setting}");
        }
        for setting in ["seq_page_cost=1.5", "search_path=\u{e9}", "temp_buffers=2MB", "session_replication_role=local"]
        {
            assert!(label_of(&settings(&["jit=off", setting])).is_none(), "{setting}");
        }
        assert!(label_of(&vec!["jit=off".into(); SETTINGS_MAX + 1]).is_none());
        let label = label_of(&settings(&["application_name=a", "TimeZone=UTC"])).unwrap();
        assert_eq!(*of_preparing(&label), *settings(&["TimeZone=UTC"]));
    }

    #[test]
    fn the_difference_is_set_and_all_is_shown() {
        let set = |names: &[&str], label: &[&str]| SetThere {
            names: settings(names).into(),
            label: label_of(&settings(label)).unwrap(),
        };
        let (from, to) =
            (set(&[], &["jit=off", "TimeZone=UTC"]), set(&["a.b"], &["search_path=\"o'\\x\"", "TimeZone=UTC"]));
        assert_eq!(
            from.change_to(&to),
            "RESET jit; SELECT pg_catalog.set_config('search_path', E'\"o''\\\\x\"', false); RESET \"a\".\"b\"; \
             SELECT pg_catalog.concat(pg_catalog.current_setting('a.b')), \
             (ARRAY[pg_catalog.concat('search_path=', pg_catalog.current_setting('search_path')), \
             pg_catalog.concat('TimeZone=', pg_catalog.current_setting('TimeZone'))]::pg_catalog.text[])::pg_catalog.text"
        );
        assert!(
            to.change_to(&set(&["a.b"], &[]))
                .ends_with("RESET TimeZone; SELECT '', (ARRAY[]::pg_catalog.text[])::pg_catalog.text")
        );
        let (from, to) = (
            set(&[], &["DateStyle=ISO, MDY", "statement_timeout=5ms"]),
            set(&[], &["statement_timeout=5ms", "TimeZone=UTC", "transaction_timeout=9s"]),
        );
        assert_eq!(
            from.change_to(&to),
            "RESET statement_timeout; RESET DateStyle; SELECT pg_catalog.set_config('TimeZone', E'UTC', false); SELECT '', \
             (ARRAY[pg_catalog.concat('statement_timeout=', pg_catalog.set_config('statement_timeout', E'5ms', false)), \
             pg_catalog.concat('TimeZone=', pg_catalog.current_setting('TimeZone')), pg_catalog.concat('transaction_timeout=', \
             pg_catalog.set_config('transaction_timeout', E'9s', false))]::pg_catalog.text[])::pg_catalog.text"
        );
        let to = set(&["a.b"], &["search_path=\"o'\\x\"", "TimeZone=UTC"]);
        assert!(to.is_shown(&[Some(b""), Some(br#"{"search_path=\"o'\\x\"","TimeZone=UTC"}"#)]));
        assert!(!to.is_shown(&[Some(b""), Some(b"{TimeZone=UTC}")]) && !to.is_shown(&[Some(b"v"), Some(b"{}")]));
    }
}
