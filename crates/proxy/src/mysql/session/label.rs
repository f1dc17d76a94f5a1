//! The settings that a session has made since its login, as statements that make them again on another connection.
//!
//! Only a SET of session variables to constants is one of them: it means the same on every connection that is in the state before it. So the label
//! is a sequence, which begins with the state after a login or after COM_RESET_CONNECTION. A later SET replaces an earlier one if it sets all its variables.
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
    "net_read_timeout", "net_write_timeout", "optimizer_search_depth", "optimizer_switch", "sort_buffer_size", "sql_big_selects", "sql_mode",
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
    variables: Vec<Box<str>>,
    text: Arc<[u8]>,
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
        let entries = self.entries.iter().filter(|entry| has_meaning(&entry.variables)).map(|entry| &*entry.text);
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
        let sets_others = |entry: &Entry| entry.variables.iter().all(|name| !own.variables.contains(name));
        !text.contains(&b'"') && later.iter().all(sets_others)
    }

    /// A SET has succeeded. `normalized`: without its constants. False: the label cannot say what it has set.
    pub(crate) fn set(&mut self, normalized: &str, text: &[u8]) -> bool {
        let normalized = normalized.to_ascii_lowercase();
        let Some(variables) = variables(&normalized) else { return false };
        let sets_modes = |entry: &Entry| entry.variables.iter().any(|name| **name == *"sql_mode");
        // With another mode a string may be a name, or end elsewhere.
        let depends_on_modes = text.contains(&b'"') && self.entries.iter().any(sets_modes);
        if !text.is_ascii() || text.contains(&b'\\') || depends_on_modes || text.len() > BYTES_MAX {
            return false;
        }
        if self.has(text) {
            return true;
        }
        self.entries.retain(|entry| !entry.variables.iter().all(|name| variables.contains(name)));
        let has_room = self.entries.len() < ENTRIES_MAX;
        if has_room {
            self.entries.push(Entry { variables, text: text.into() });
        }
        has_room
    }
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
    variables(&normalized).is_none_or(|variables| has_meaning(&variables))
}

/// Whether a SET sets variables to constants, so that a label can say it.
pub(crate) fn sets_constants(normalized: &str) -> bool {
    variables(&normalized.to_ascii_lowercase()).is_some()
}

/// Whether a SET sets nothing but user variables.
pub(crate) fn sets_user_variables(normalized: &str) -> bool {
    let is_unclear = normalized.contains([';', '`', '#', '"', '\''])
        || ["/*", "--"].into_iter().any(|mark| normalized.contains(mark));
    let Some((word, rest)) = normalized.trim_start().split_at_checked(3).filter(|_| !is_unclear) else { return false };
    let mut depth = 0_usize;
    let mut assignments = rest.split(|letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    });
    let is_user_variable = |assignment: &str| {
        let name = assignment.trim_start();
        name.starts_with('@') && !name.starts_with("@@")
    };
    word.eq_ignore_ascii_case("set") && assignments.all(is_user_variable)
}

/// The variables that a SET of constants sets; None if it is anything else.
fn variables(normalized: &str) -> Option<Vec<Box<str>>> {
    if normalized.contains(['(', ';', '`', '#', '"', '\''])
        || ["/*", "--", "||"].into_iter().any(|mark| normalized.contains(mark))
    {
        return None;
    }
    let rest = normalized.trim().strip_prefix("set")?;
    let rest = rest.strip_prefix(|letter: char| letter.is_ascii_whitespace() || letter == '@').map(|_| rest)?;
    let mut all = Vec::new();
    for assignment in rest.split(',') {
        all.extend(assigned(assignment.trim())?);
    }
    Some(all)
}

fn assigned(assignment: &str) -> Option<Vec<Box<str>>> {
    let spaced = assignment.replace(":=", "=").replace('=', " = ");
    let words: Vec<&str> = spaced.split_ascii_whitespace().collect();
    let boxed = |names: &[&str]| Some(names.iter().map(|name| Box::from(*name)).collect());
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
    let [name, "=", value] = words else { return None };
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
    (is_known && is_constant(value)).then(|| vec![name.into()])
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
            ("set sql_mode = concat(@@sql_mode, $1)", None),
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
            let found = variables(text).map(|names| names.join(" "));
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
