//! Settings of applications, such as `app.user`: which of their names a session, and a connection, knows.
//!
//! A server process knows the name of such a setting from the first SET, RESET or `set_config` on, whatever becomes of the transaction, and never
//! forgets it. Behind that the setting is empty, where it was undefined before: `current_setting('app.user', true)` is `''` and not NULL. No list has
//! these settings. So the names that a session's statements say are noted, and the server is asked for each of them. A connection belongs to the
//! sessions that know the same names. One that knows fewer is given the others first, by RESET, which leaves the same behind.

use std::sync::{Arc, LazyLock};

use regex::Regex;

/// Limit of names that a session's statements may say; a session with more keeps its connection.
pub(crate) const NAMES_MAX: usize = 16;
/// Limit of the length of a name.
const NAME_BYTES_MAX: usize = 63;

/// Names of extensions' own settings begin so. They mean something else as soon as the extension is loaded, which any statement may do.
const OF_EXTENSIONS: [&str; 16] = [
    "auto_explain.",
    "hnsw.",
    "ivfflat.",
    "pg_stat_statements.",
    "pg_trgm.",
    "pgaudit.",
    "pgcrypto.",
    "pljava.",
    "plperl.",
    "plpgsql.",
    "plpgsql_check.",
    "plpython.",
    "pltcl.",
    "plv8.",
    "postgis.",
    "timescaledb.",
];

/// See [`SettingNames::told`].
const UNDEFINED: u8 = b'u';

/// Names in order.
pub(crate) type Names = Arc<[Arc<str>]>;

/// The names that a text gives to the server process; None: it gives some that cannot be read. Some may stand in constants, or never be executed.
pub(crate) fn names_in(text: &str) -> Option<Vec<Box<str>>> {
    static COMMENT: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?s)/\*.*?\*/|--[^\n]*").ok());
    static UNREADABLE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        // A SET whose name is put together, and names with escapes.
        Regex::new(r#"(?i)\b(?:re)?set\s+(?:(?:local|session)\s+)?(?:%|'|$)|\bexecute\b[^;]*'(?:re)?set'|\bu&["']"#)
            .ok()
    });
    static AROUND_COMMENT: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r#"(?i)\b(?:re)?set\b[\s\w".$]*(?:/\*|--)"#).ok());
    if UNREADABLE.as_ref()?.is_match(text) {
        return None;
    }
    let mut names = Vec::new();
    find(text, &mut names)?;
    if text.contains("/*") || text.contains("--") {
        // Behind a quote, what looks like a comment may be none, and hide the next one.
        let is_quoted = |end: usize| text.get(..end).is_none_or(|before| before.contains(['\'', '"', '$']));
        if AROUND_COMMENT.as_ref()?.find_iter(text).any(|found| is_quoted(found.end())) {
            return None;
        }
        let bare = COMMENT.as_ref()?.replace_all(text, " ");
        // Comments within comments.
        if bare.contains("*/") && bare.to_ascii_lowercase().contains("set") {
            return None;
        }
        find(&bare, &mut names)?;
    }
    Some(names)
}

fn find(text: &str, names: &mut Vec<Box<str>>) -> Option<()> {
    // A call of set_config, with the name if it is a plain constant; or SET and RESET with a name, and what must not follow it.
    static GIVEN: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let part = r#"(?:"[^"]*"|[\w$]+)"#;
        let set = format!(r#"\b(?:re)?set\s+(?:(?:local|session)\s+)?({part}(?:\s*\.\s*{part})*)(\s*\.|&")?"#);
        Regex::new(&format!(r"(?i)\bset_config\b(?:\s*\(\s*'([^']*)'\s*,)?|{set}")).ok()
    });
    for found in GIVEN.as_ref()?.captures_iter(text) {
        let name = match (found.get(1), found.get(2), found.get(3)) {
            (Some(name), _, _) => name.as_str().to_owned(),
            (None, Some(name), None) => folded(name.as_str()),
            _ => return None,
        };
        // Settings of the server's own have no dot.
        if name.contains('.') {
            names.push(Some(name).filter(|name| is_plain(name))?.into());
        }
    }
    Some(())
}

/// An identifier as the server reads it.
fn folded(name: &str) -> String {
    let mut is_quoted = false;
    let mut read = |letter: char| {
        is_quoted ^= letter == '"';
        let is_read = letter != '"' && (is_quoted || !letter.is_whitespace());
        is_read.then(|| if is_quoted { letter } else { letter.to_ascii_lowercase() })
    };
    name.chars().filter_map(&mut read).collect()
}

/// Whether it is written alike everywhere, and can be given to any connection.
fn is_plain(name: &str) -> bool {
    let is_first = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    let is_part = |part: &str| {
        part.bytes().next().is_some_and(is_first)
            && part.bytes().all(|byte| is_first(byte) || byte.is_ascii_digit() || byte == b'$')
    };
    name.len() <= NAME_BYTES_MAX
        && name.split('.').all(is_part)
        && !OF_EXTENSIONS.iter().any(|own| name.starts_with(own))
}

/// The names of one session.
#[derive(Debug, Default)]
pub(crate) struct SettingNames {
    /// Those that its statements have said, in the order in which the server is asked for them, with what it has told of them last.
    said: Vec<(Arc<str>, u8)>,
    /// Those that it knows, but not by its login.
    known: Names,
}

impl SettingNames {
    /// Whether no statement has said any, and none is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.said.is_empty() && self.known.is_empty()
    }

    /// A statement says them. Returns whether the session knows all; None: there are too many.
    pub(crate) fn note(&mut self, names: &[Box<str>]) -> Option<bool> {
        let mut knows_all = true;
        for name in names {
            if let Some((_, state)) = self.said.iter().find(|(said, _)| **said == **name) {
                knows_all &= *state != UNDEFINED;
                continue;
            }
            knows_all = false;
            if self.said.len() >= NAMES_MAX {
                return None;
            }
            self.said.push((name.as_ref().into(), UNDEFINED));
        }
        Some(knows_all)
    }

    /// Those to ask for, as an array of the server's.
    pub(crate) fn to_ask(&self) -> String {
        let names: Vec<&str> = self.said.iter().map(|(name, _)| &**name).collect();
        format!("{{{}}}", names.join(","))
    }

    /// The server has told of each: `u` undefined, `l` as a login would set it now, `e` empty, `v` it has another value. `as_login`: the session's login
    /// would have the same settings now. Returns whether one has another value than the session's login.
    pub(crate) fn told(&mut self, states: &str, as_login: bool) -> bool {
        let states = if as_login { states.to_owned() } else { states.replace('l', "v") };
        self.said.iter_mut().zip(states.bytes()).for_each(|((_, state), told)| *state = told);
        let known = self.said.iter().filter(|(_, state)| matches!(state, b'e' | b'v'));
        let mut known: Vec<_> = known.map(|(name, _)| name.clone()).collect();
        known.sort();
        if *known != *self.known {
            self.known = known.into();
        }
        states.contains('v')
    }

    /// Those that the session knows.
    pub(crate) fn known(&self) -> &Names {
        &self.known
    }
}

/// The statements that give names to a connection, as a transaction does that sets them for itself, and what reads their values. Where the login has set
/// one, that is not empty.
pub(crate) fn giving(names: &Names) -> (String, String) {
    if names.is_empty() {
        return (String::new(), "''".to_owned());
    }
    let give = |name: &Arc<str>| format!("RESET \"{}\"; ", name.replace('.', "\".\""));
    let read = |name: &Arc<str>| format!("pg_catalog.current_setting('{name}')");
    let (given, read): (String, Vec<_>) = (names.iter().map(give).collect(), names.iter().map(read).collect());
    (given, format!("pg_catalog.concat({})", read.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        for (text, expected) in [
            ("set app.name = 'x'", "app.name"),
            ("SET LOCAL \"app.x\" to 1", "app.x"),
            ("set session App . X to default; reset a.b.c", "app.x a.b.c"),
            ("select set_config('app.x', '1', true), pg_catalog.set_config( 'app.y' ,$1, false)", "app.x app.y"),
            ("set /* the user */ local -- his id\n app.x = 1", "app.x"),
            ("do $$ begin perform set_config('app.x', 'v', true); end $$", "app.x"),
            ("update t set a.b = 1", "a.b"),
            ("set search_path = a", ""),
            ("set local work_mem = '1MB'; reset all", ""),
            ("select set_config('work_mem', '1', true)", ""),
            ("update t set v = a.b from my_set_config a offset 5.0", ""),
            ("alter table t set (toast.autovacuum_enabled = off)", ""),
        ] {
            let names = names_in(text).map(|names| names.join(" "));
            assert_eq!(names.as_deref(), Some(expected), "{text}");
        }
        for text in [
            "select set_config($1, 'x', false)",
            "select set_config('app' || '.x', 'x', false)",
            "select set_config(E'app\\x2ex', 'x', false)",
            "select \"set_config\"('app.x', 'x', false)",
            "do $$ begin execute 'set app.' || 'x = 1'; execute 'select set_config(''app.x'', 1, true)'; end $$",
            "do $$ begin execute format('set local app.%I = 1', x); end $$",
            "set U&\"app.x\" = 1",
            "set \"App\".x = 1",
            "select set_config('App.x', '1', true)",
            "set hnsw.ef_search = 1",
            "set /* /* */ */ app.x = 1",
            "do $$ begin execute format('set %s = %L', 'app.x', '7'); end $$",
            "do $$ begin execute format('SET LOCAL %I = %L', 'app.x', '7'); end $$",
            "do $$ begin execute 'set '||'app.x = 7'; end $$",
            "do $$ begin execute 'reset' || ' app.x'; end $$",
            "select '/*'; set /*c*/ app.x = 7",
            "select '--'; set /*c*/ app.x = 7",
            "select '/*'; set app /*c*/ . x = 7",
            "select U&\"set\\005fconfig\"('app.x', '7', false)",
        ] {
            assert_eq!(names_in(text), None, "{text}");
        }
    }

    #[test]
    fn a_session_knows_what_the_server_has_told() {
        let boxed = |names: &[&str]| names.iter().map(|name| Box::from(*name)).collect::<Vec<Box<str>>>();
        let mut names = SettingNames::default();
        assert_eq!(names.note(&boxed(&["b.b", "a.a", "c.c"])), Some(false));
        assert_eq!(names.to_ask(), "{b.b,a.a,c.c}");
        assert!(!names.told("eeu", true));
        assert_eq!(**names.known(), ["a.a".into(), "b.b".into()] as [Arc<str>; 2]);
        assert_eq!((names.note(&boxed(&["a.a", "b.b"])), names.note(&boxed(&["c.c"]))), (Some(true), Some(false)));
        assert!(!names.told("eel", true) && names.told("eel", false), "the login had another value");
        assert!(names.told("evl", true));
        assert_eq!((names.known().len(), names.note(&boxed(&["c.c"]))), (2, Some(true)));
        let many: Vec<Box<str>> = (0..NAMES_MAX).map(|number| format!("n.n{number}").into()).collect();
        assert_eq!(names.note(&many), None);
        let (given, read) = giving(names.known());
        assert_eq!(given, "RESET \"a\".\"a\"; RESET \"b\".\"b\"; ");
        assert_eq!(read, "pg_catalog.concat(pg_catalog.current_setting('a.a'), pg_catalog.current_setting('b.b'))");
    }
}
