//! The settings that a session has made since its login, as statements that make them again on another connection.
//!
//! Only a SET of session variables to constants, or to texts that are computed from constants and settings (`CONCAT(@@sql_mode, ',ANSI')`), is one of them:
//! it means the same on every connection that is in the state before it. So the label is a sequence, which begins with the state after a login or after
//! COM_RESET_CONNECTION. A later SET of constants replaces an earlier one if it sets all its variables, and nothing in between is computed.
//! Sessions with equal labels share connections. Any other change of settings keeps the session on its connection.

use std::sync::Arc;

/// Limit of statements in a label; a session with more keeps its connection.
const ENTRIES_MAX: usize = 32;
/// Limit of a statement's length.
const BYTES_MAX: usize = 1024;

/// Session variables of both servers that a constant sets in the same way on each connection.
#[rustfmt::skip]
const VARIABLES: &[&str] = &[
    "autocommit", "character_set_client", "character_set_results", "collation_connection", "div_precision_increment", "foreign_key_checks",
    "group_concat_max_len", "innodb_lock_wait_timeout", "innodb_strict_mode", "interactive_timeout", "join_buffer_size", "lc_time_names",
    "lock_wait_timeout", "max_execution_time", "max_heap_table_size", "max_join_size", "max_sort_length", "max_statement_time",
    "net_read_timeout", "net_write_timeout", "optimizer_search_depth", "optimizer_switch", "sort_buffer_size", "sql_auto_is_null", "sql_big_selects", "sql_mode",
    "sql_notes", "sql_quote_show_create", "sql_safe_updates", "sql_select_limit", "sql_warnings", "storage_engine", "default_storage_engine",
    "time_zone", "tmp_table_size", "unique_checks", "wait_timeout",
];
/// Those that, set by `@@name`, are set for the next transaction only.
const OF_TRANSACTIONS: [&str; 4] = ["transaction_isolation", "tx_isolation", "transaction_read_only", "tx_read_only"];

/// Those of them on which the meaning of a text does not depend, nor what is computed of it when it is prepared.
#[rustfmt::skip]
const WITHOUT_MEANING: &[&str] = &[
    "autocommit", "foreign_key_checks", "innodb_lock_wait_timeout", "interactive_timeout", "join_buffer_size", "lock_wait_timeout",
    "max_execution_time", "max_heap_table_size", "max_statement_time", "net_read_timeout", "net_write_timeout", "sort_buffer_size",
    "sql_notes", "sql_warnings", "tmp_table_size", "transaction_isolation", "transaction_read_only", "unique_checks", "wait_timeout",
];

/// A SET that can be sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    sets: Sets,
    text: Arc<[u8]>,
}

/// What a SET sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sets {
    variables: Vec<Box<str>>,
    /// A value is computed from settings.
    computes: bool,
}

/// The settings of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Label {
    /// There was a COM_RESET_CONNECTION, which sets other values than a login.
    was_reset: bool,
    entries: Vec<Entry>,
}

impl Label {
    /// The session was reset.
    pub(crate) fn reset(&mut self) {
        *self = Self { was_reset: true, entries: Vec::new() };
    }

    /// Whether it begins with COM_RESET_CONNECTION.
    pub(crate) fn was_reset(&self) -> bool {
        self.was_reset
    }

    /// The statements that make the settings, in order.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().map(|entry| &*entry.text)
    }

    /// Appends what distinguishes it from others.
    pub(crate) fn write_key(&self, key: &mut Vec<u8>) {
        key.push(u8::from(self.was_reset));
        for text in self.texts() {
            key.extend_from_slice(&(text.len() as u32).to_le_bytes());
            key.extend_from_slice(text);
        }
    }

    /// All on which the meaning of a text may depend, with the default database.
    pub(crate) fn meaning(&self, database: Option<&str>) -> Arc<[u8]> {
        let mut key = vec![u8::from(self.was_reset), u8::from(database.is_some())];
        let database = database.unwrap_or_default().as_bytes();
        let entries = self.entries.iter().filter(|entry| has_meaning(&entry.sets.variables)).map(|entry| &*entry.text);
        for text in std::iter::once(database).chain(entries) {
            key.extend_from_slice(&(text.len() as u32).to_le_bytes());
            key.extend_from_slice(text);
        }
        key.into()
    }

    /// Whether this SET, sent again, changes nothing.
    pub(crate) fn has(&self, text: &[u8]) -> bool {
        let Some(at) = self.entries.iter().position(|entry| &*entry.text == text) else { return false };
        let (Some(own), Some(later)) = (self.entries.get(at), self.entries.get(at + 1..)) else { return false };
        let sets_others = |entry: &Entry| entry.sets.variables.iter().all(|name| !own.sets.variables.contains(name));
        !own.sets.computes && !text.contains(&b'"') && later.iter().all(sets_others)
    }

    /// A SET has succeeded. `normalized`: without its constants. False: the label cannot say what it has set.
    pub(crate) fn set(&mut self, normalized: &str, text: &[u8]) -> bool {
        let normalized = normalized.to_ascii_lowercase();
        let Some(sets) = sets(&normalized) else { return false };
        let sets_modes = |entry: &Entry| entry.sets.variables.iter().any(|name| **name == *"sql_mode");
        // With another mode a string may be a name, or end elsewhere.
        let depends_on_modes = text.contains(&b'"') && self.entries.iter().any(sets_modes);
        if !text.is_ascii() || text.contains(&b'\\') || depends_on_modes || text.len() > BYTES_MAX {
            return false;
        }
        if normalized.contains(AUTO_IS_NULL) && !sets_auto_is_null_off(text) {
            return false;
        }
        if self.has(text) {
            return true;
        }
        // What is computed depends on what was set before.
        let fixed = self.entries.iter().rposition(|entry| entry.sets.computes).map_or(0, |last| last + 1);
        let fixed = if sets.computes { self.entries.len() } else { fixed };
        let is_replaced = |entry: &Entry| entry.sets.variables.iter().all(|name| sets.variables.contains(name));
        let later = self.entries.split_off(fixed);
        self.entries.extend(later.into_iter().filter(|entry| !is_replaced(entry)));
        let has_room = self.entries.len() < ENTRIES_MAX;
        if has_room {
            self.entries.push(Entry { sets, text: text.into() });
        }
        has_room
    }
}

/// With it, a read finds the row that the session has inserted last, once: that cannot be carried.
const AUTO_IS_NULL: &str = "sql_auto_is_null";

/// Whether a SET that names it only switches it off.
fn sets_auto_is_null_off(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text).to_ascii_lowercase();
    text.split(AUTO_IS_NULL).skip(1).all(|behind| {
        let value = behind.trim_start().strip_prefix(':').unwrap_or(behind.trim_start()).strip_prefix('=');
        let word = value.unwrap_or_default().trim_start().split([',', ' ']).next().unwrap_or_default();
        ["0", "off", "false"].contains(&word)
    })
}

fn has_meaning(variables: &[Box<str>]) -> bool {
    variables.iter().any(|name| !WITHOUT_MEANING.contains(&&**name))
}

/// Whether a SET may change the meaning of texts.
pub(crate) fn may_set_meaning(normalized: &str) -> bool {
    let normalized = normalized.to_ascii_lowercase();
    if normalized.split_ascii_whitespace().nth(1) == Some("transaction") {
        return false;
    }
    sets(&normalized).is_none_or(|sets| has_meaning(&sets.variables))
}

/// Whether a label can say what a SET sets.
pub(crate) fn sets_constants(normalized: &str) -> bool {
    sets(&normalized.to_ascii_lowercase()).is_some()
}

/// Whether a SET sets nothing but user variables.
pub(crate) fn sets_user_variables(normalized: &str) -> bool {
    let is_user_variable = |assignment: &str| assignment.starts_with('@') && !assignment.starts_with("@@");
    assignments(normalized).is_some_and(|mut all| all.all(is_user_variable))
}

/// The assignments of a SET; None if it is anything else, or it is not sure where they end.
pub(super) fn assignments(normalized: &str) -> Option<impl Iterator<Item = &str>> {
    let is_unclear = normalized.contains([';', '`', '#', '"', '\''])
        || ["/*", "--", "||"].into_iter().any(|mark| normalized.contains(mark));
    let (word, rest) = normalized.trim().split_at_checked(3).filter(|_| !is_unclear)?;
    let is_set = word.eq_ignore_ascii_case("set") && rest.starts_with(|c: char| c.is_ascii_whitespace() || c == '@');
    let mut depth = 0_usize;
    let ends = move |letter: char| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    };
    is_set.then(|| rest.split(ends).map(str::trim))
}

/// What a SET sets; None if a label cannot say it.
fn sets(normalized: &str) -> Option<Sets> {
    let mut all = Sets::default();
    for assignment in assignments(normalized)? {
        let sets = assigned(assignment)?;
        all.variables.extend(sets.variables);
        all.computes |= sets.computes;
    }
    Some(all)
}

fn assigned(assignment: &str) -> Option<Sets> {
    let spaced = assignment.replace(":=", "=").replace('=', " = ");
    let words: Vec<&str> = spaced.split_ascii_whitespace().collect();
    let boxed = |names: &[&str]| {
        let variables = names.iter().map(|name| Box::from(*name)).collect();
        Some(Sets { variables, computes: false })
    };
    let words = match words.as_slice() {
        ["names", charset] if is_constant(charset) => return boxed(&CLIENT),
        ["names", charset, "collate", collation] if is_constant(charset) && is_constant(collation) => {
            return boxed(&CLIENT);
        }
        ["session" | "local", "transaction", "isolation", "level", level @ ..]
            if level.iter().all(|word| is_constant(word)) =>
        {
            return boxed(&["transaction_isolation"]);
        }
        ["session" | "local", "transaction", "read", "only" | "write"] => return boxed(&["transaction_read_only"]),
        ["session" | "local", rest @ ..] => rest,
        all => all,
    };
    let is_scoped = words.len() < spaced.split_ascii_whitespace().count();
    let [name, "=", value @ ..] = words else { return None };
    let (name, is_at) = match name.strip_prefix("@@") {
        None => (*name, false),
        Some(name) => match name.split_once('.') {
            Some(("session" | "local", name)) => (name, false),
            Some(_) => return None,
            None => (name, true),
        },
    };
    let of_transactions = OF_TRANSACTIONS.contains(&name) && (is_scoped || !is_at);
    let is_known = VARIABLES.contains(&name) || of_transactions;
    let name = name.strip_prefix("tx_").map_or_else(|| name.to_owned(), |rest| format!("transaction_{rest}"));
    let computes = !matches!(value, [constant] if is_constant(constant));
    let is_said = is_known && (!computes || !of_transactions && is_computed(&value.concat()));
    is_said.then(|| Sets { variables: vec![name.into()], computes })
}

/// Whether a value is a text that is computed from constants and settings alone. `value`: without blanks.
fn is_computed(value: &str) -> bool {
    const FUNCTIONS: [&str; 4] = ["concat", "concat_ws", "replace", "trim"];
    let is_setting = |word: &str| {
        let name = word.strip_prefix("@@").map(|name| name.strip_prefix("session.").unwrap_or(name));
        name.is_some_and(|name| VARIABLES.contains(&name))
    };
    let is_number = |word: &str| word.starts_with('$') && is_constant(word);
    let is_said = |part: &str| match part.strip_suffix('(') {
        Some(function) => function.is_empty() || FUNCTIONS.contains(&function),
        None => part.is_empty() || is_setting(part) || is_number(part),
    };
    value.split_inclusive('(').flat_map(|part| part.split([',', ')'])).all(is_said)
}

/// What SET NAMES sets.
const CLIENT: [&str; 3] = ["character_set_client", "character_set_results", "collation_connection"];

/// A placeholder of a normalized query, or a plain word: a character set, ON, NULL. Not DEFAULT, which may be another value by then.
fn is_constant(word: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    match word.strip_prefix('$') {
        Some(number) => !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()),
        None => word != "default" && !word.is_empty() && word.bytes().all(is_part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_set_again() {
        for (text, names) in [
            ("set names utf8mb4", Some("character_set_client character_set_results collation_connection")),
            ("set names $1 collate $2", Some("character_set_client character_set_results collation_connection")),
            ("set autocommit = $1, sql_mode = $2", Some("autocommit sql_mode")),
            ("set session sql_mode=$1", Some("sql_mode")),
            ("set @@session.time_zone := $1", Some("time_zone")),
            ("set @@time_zone = $1", Some("time_zone")),
            ("set character_set_results = null", Some("character_set_results")),
            ("set session transaction isolation level read committed", Some("transaction_isolation")),
            ("set tx_isolation = $1", Some("transaction_isolation")),
            // For the next transaction.
            ("set transaction isolation level read committed", None),
            ("set @@tx_isolation = $1", None),
            ("set @x = $1", None),
            ("set global time_zone = $1", None),
            ("set @@global.time_zone = $1", None),
            ("set time_zone = default", None),
            ("set time_zone = @@global.time_zone", None),
            ("set time_zone = @z", None),
            ("set sql_mode = concat(@@sql_mode, $1)", Some("sql_mode")),
            (
                "set names utf8mb4,  @@session.sql_mode = concat(concat(@@sql_mode, $1), $2), @@session.sql_auto_is_null = $3",
                Some("character_set_client character_set_results collation_connection sql_mode sql_auto_is_null"),
            ),
            ("set sql_mode = (select replace(@@sql_mode, $1, $2))", None),
            ("set sql_mode=(replace(@@session.sql_mode,$1,$2))", Some("sql_mode")),
            ("set sql_mode = concat(@a, $1)", None),
            ("set sql_mode = concat(@@sql_mode, now())", None),
            ("set sql_mode = concat(@@global.sql_mode, $1)", None),
            ("set @@transaction_isolation = concat($1, $2)", None),
            ("set names default", None),
            ("set character set utf8mb4", None),
            ("set password = $1", None),
            ("set role r", None),
            ("set gtid_next = $1", None),
            ("set timestamp = $1", None),
            ("set statement sql_mode = $1 for select $2", None),
            ("settle autocommit = $1", None),
            ("set autocommit = $1; set time_zone = $2", None),
        ] {
            let found = sets(text).map(|sets| sets.variables.join(" "));
            assert_eq!(found.as_deref(), names, "{text}");
        }
    }

    #[test]
    fn user_variables_alone() {
        for (text, alone) in [
            ("SET @a = $1", true),
            ("set@a:=$1, @b = coalesce(@a, $2)", true),
            ("SET @a = (SELECT $1, $2)", true),
            ("SET @a = $1, sql_mode = $2", false),
            ("SET @@sql_mode = $1", false),
            ("SET @a = if($1, $2), time_zone = $3", false),
            ("SET @`a)` = $1, sql_mode = $2", false),
            ("SET sql_mode = @a", false),
            ("SET", false),
        ] {
            assert_eq!(sets_user_variables(text), alone, "{text}");
        }
    }

    #[test]
    fn the_same_again_changes_nothing() {
        let mut label = Label::default();
        label.set("SET NAMES latin1", b"SET NAMES latin1");
        label.set("SET sql_mode = $1", b"SET sql_mode = ''");
        let before = label.clone();
        assert!(label.has(b"SET NAMES latin1") && label.set("SET NAMES latin1", b"SET NAMES latin1"));
        assert_eq!(label, before);
        label.set("SET character_set_client = latin1", b"SET character_set_client = latin1");
        assert!(!label.has(b"SET NAMES latin1"));
    }

    #[test]
    fn what_is_computed_is_computed_from_what_was_there() {
        let mut label = Label::default();
        let adds = "SET sql_mode = CONCAT(@@sql_mode, ',ANSI')";
        for text in ["SET sql_mode = ''", adds, adds, "SET time_zone = '+01:00'", "SET time_zone = '+02:00'"] {
            let normalized = text.replace("','ANSI'", "$1").replace("',ANSI'", "$1").replace("''", "$1");
            let normalized = normalized.replace("'+01:00'", "$1").replace("'+02:00'", "$1");
            assert!(label.set(&normalized, text.as_bytes()), "{normalized}");
        }
        let texts: Vec<_> = label.texts().map(String::from_utf8_lossy).collect();
        assert_eq!(texts, ["SET sql_mode = ''", adds, adds, "SET time_zone = '+02:00'"]);
        assert!(!label.has(adds.as_bytes()), "it adds once more");
    }

    #[test]
    fn finding_the_last_row_is_not_carried() {
        let normalized = "SET sql_mode = $1, @@SESSION.sql_auto_is_null = $2";
        for (value, is_carried) in [("0", true), ("off", true), ("1", false), ("00", false)] {
            let text = format!("SET sql_mode = 'sql_auto_is_null', @@SESSION.sql_auto_is_null := {value}");
            assert!(!Label::default().set(normalized, text.as_bytes()), "the name in a text");
            let text = format!("SET sql_mode = '', @@SESSION.sql_auto_is_null := {value}");
            assert_eq!(Label::default().set(normalized, text.as_bytes()), is_carried, "{value}");
        }
    }

    #[test]
    fn the_last_value_counts() {
        let mut label = Label::default();
        let texts =
            |label: &Label| label.texts().map(|text| String::from_utf8_lossy(text).into_owned()).collect::<Vec<_>>();
        assert!(label.set("SET time_zone = $1", b"SET time_zone = '+01:00'"));
        assert!(label.set("SET autocommit = $1", b"SET autocommit = 1"));
        assert!(label.set("SET time_zone = $1", b"SET time_zone = '+02:00'"));
        assert_eq!(texts(&label), ["SET autocommit = 1", "SET time_zone = '+02:00'"]);
        assert!(!label.set("SET @a = $1", b"SET @a = 1"));
        assert!(label.set("SET sql_mode = $1", b"SET sql_mode = \"ANSI\""));
        assert!(!label.set("SET time_zone = $1", b"SET time_zone = \"+02:00\""), "a name by now");
        let key = |label: &Label| {
            let mut key = Vec::new();
            label.write_key(&mut key);
            key
        };
        let before = key(&label);
        label.reset();
        assert!(
            label.was_reset()
                && texts(&label).is_empty()
                && key(&label) != before
                && key(&label) != key(&Label::default())
        );
    }
}
