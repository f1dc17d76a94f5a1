//! The classes of verdicts: cached with some kind of tags, refused although the result could be cached, or excluded, since no cache should cache it.
//!
//! Whether a statement is excluded depends on its text alone, not on Freshet's reason, which could excuse itself. A tag for any row is exact if the
//! statement reads all rows of the table; so such tags count as bad only if it does not (`structure.rs`).

use std::fmt;

use super::structure::chooses;

/// Functions, here in lower case, whose value is not that of their arguments: clocks, chance, sequences, the session.
#[rustfmt::skip]
const NOT_DETERMINISTIC: &[&str] = &[
    "now", "clock_timestamp", "statement_timestamp", "transaction_timestamp", "timeofday", "curdate", "curtime",
    "sysdate", "utc_date", "utc_time", "utc_timestamp", "random", "rand", "uuid", "uuid_short", "gen_random_uuid", "nextval", "currval",
    "lastval", "setval", "last_insert_id", "found_rows", "row_count", "connection_id", "pg_backend_pid", "current_setting",
    "set_config", "current_schemas", "sleep", "pg_sleep",
    "get_lock", "release_lock", "txid_current", "current_timestamp", "localtime", "localtimestamp", "current_date",
    "current_time",
];
/// Those of them that are called without brackets.
const BARE: &[&str] = &["current_timestamp", "current_date", "current_time", "localtime", "localtimestamp"];
/// Where the servers keep their own tables.
const SYSTEM: &[&str] = &["pg_catalog", "information_schema", "performance_schema", "sys"];

/// What a statement depends on, in the coarsest of its references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tags {
    /// Rows with given values.
    Point,
    /// Rows within given limits.
    Range,
    /// Rows with the keys that other rows hold.
    Keys,
    /// Those that are shown, and all that enter by a change of the columns that select.
    Entering,
    /// All rows, and all are asked for.
    Whole,
    /// Any row, though not all are asked for.
    AnyRow,
}

/// What is said of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is cached; a line for each relation says what matters of it.
    Cached(Tags, Vec<String>),
    /// It is not, for this reason, though it could be.
    Refused(String),
    /// It is not, rightly: what kind of statement it is.
    Aside(&'static str),
    /// It would be cached, though it is one of those.
    Doubtful(&'static str, Vec<String>),
}

impl Verdict {
    /// Of what `EXPLAIN CACHE` answers.
    pub(super) fn of(statement: &str, pairs: &[(String, String)], mysql: bool) -> Self {
        let value = |name: &'static str| pairs.iter().filter(move |(known, _)| known == name).map(|(_, value)| value);
        let cached = value("cached").next().map_or("", String::as_str);
        let words = words(statement, mysql);
        let aside = aside(&words);
        if cached != "yes" {
            let reason = cached.strip_prefix("no: ").unwrap_or(cached);
            return aside.map_or_else(|| Self::Refused(reason.to_owned()), Self::Aside);
        }
        let depends: Vec<String> = value("depends_on").cloned().collect();
        if let Some(aside) = aside {
            return Self::Doubtful(aside, depends);
        }
        if depends.is_empty() {
            return Self::Aside("no table");
        }
        let chooses = chooses(statement, mysql);
        let coarsest = depends.iter().filter_map(|line| tags(line)).max().unwrap_or(Tags::Point);
        let coarsest = if coarsest == Tags::AnyRow && !chooses { Tags::Whole } else { coarsest };
        Self::Cached(coarsest, depends)
    }
}

impl fmt::Display for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Point => "point",
            Self::Range => "range",
            Self::Keys => "keys",
            Self::Entering => "enters",
            Self::Whole => "whole",
            Self::AnyRow => "any row",
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cached(tags, depends) => write!(f, "cached   {tags:8} {}", depends.join("; ")),
            Self::Refused(reason) => write!(f, "refused  {reason}"),
            Self::Aside(what) => write!(f, "aside    {what}"),
            Self::Doubtful(what, depends) => write!(f, "doubtful {what}: {}", depends.join("; ")),
        }
    }
}

/// The kind of what is said of one relation; None: nothing of its rows.
fn tags(line: &str) -> Option<Tags> {
    let (_, rows) = line.split_once(": ")?;
    let known = |part: &str| part.contains(" = …") || part.contains(" in (…)") || part.contains(" is null");
    Some(match rows {
        "its definition" | "no row" => return None,
        "any row" => Tags::AnyRow,
        rows if rows.contains("among the values of") => Tags::Keys,
        rows if rows.contains("what enters by") => Tags::Entering,
        rows if rows.split(" or ").all(known) => Tags::Point,
        _ => Tags::Range,
    })
}

/// A word in lower case and whether it is called.
struct Word {
    text: String,
    called: bool,
    /// The character before it.
    after: char,
}

/// What kind of statement it is, if no cache should keep its result.
fn aside(words: &[Word]) -> Option<&'static str> {
    let text = |at: usize| words.get(at).map_or("", |word| word.text.as_str());
    for (at, word) in words.iter().enumerate() {
        let next = text(at + 1);
        let pg_table = word.text.starts_with("pg_") && !word.called && word.after != '.';
        match word.text.as_str() {
            "for" if ["update", "share", "no", "key"].contains(&next) => return Some("locks rows"),
            "lock" if next == "in" && text(at + 2) == "share" => return Some("locks rows"),
            "current" if next == "of" => return Some("a cursor"),
            name if SYSTEM.contains(&name) || pg_table => return Some("system tables"),
            name if word.called && NOT_DETERMINISTIC.contains(&name) => return Some("clock, chance or session"),
            name if word.after != '.' && BARE.contains(&name) => return Some("clock, chance or session"),
            _ if word.after == '@' && words.iter().any(|word| word.text == "from") => {
                return Some("clock, chance or session");
            }
            _ => {}
        }
    }
    None
}

/// The words outside of literals and quoted names.
fn words(statement: &str, mysql: bool) -> Vec<Word> {
    let mut words = Vec::new();
    let mut before = ' ';
    let mut rest = statement.chars().peekable();
    while let Some(c) = rest.next() {
        if matches!(c, '\'' | '"' | '`') {
            while let Some(inner) = rest.next() {
                match inner {
                    '\\' if mysql && c != '`' => drop(rest.next()),
                    inner if inner == c => break,
                    _ => {}
                }
            }
        } else if c.is_alphabetic() || c == '_' {
            let mut text = String::from(c.to_ascii_lowercase());
            while let Some(more) = rest.next_if(|c| c.is_alphanumeric() || *c == '_') {
                text.push(more.to_ascii_lowercase());
            }
            let called = rest.clone().find(|c| !c.is_whitespace()) == Some('(');
            words.push(Word { text, called, after: before });
        }
        before = c;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aside_of(statement: &str) -> Option<&'static str> {
        aside(&words(statement, true))
    }

    #[test]
    fn statements_are_set_aside_by_their_text() {
        assert_eq!(aside_of("SELECT a FROM t WHERE b < NOW ()"), Some("clock, chance or session"));
        assert_eq!(aside_of("SELECT a FROM t WHERE b < current_date"), Some("clock, chance or session"));
        assert_eq!(aside_of("SELECT @@version FROM t"), Some("clock, chance or session"));
        assert_eq!(aside_of("SELECT a FROM t FOR UPDATE"), Some("locks rows"));
        assert_eq!(aside_of("SELECT 1 FROM information_schema.tables"), Some("system tables"));
        assert_eq!(aside_of(r"SELECT 'it\'s now()', `now` FROM t WHERE user = 'for update'"), None);
    }

    #[test]
    fn the_coarsest_reference_counts() {
        let pairs = |lines: &[&str]| {
            let line = |line: &&str| ("depends_on".to_owned(), (*line).to_owned());
            let mut pairs: Vec<_> = lines.iter().map(line).collect();
            pairs.push(("cached".to_owned(), "yes".to_owned()));
            pairs
        };
        let of = |statement: &str, lines: &[&str]| match Verdict::of(statement, &pairs(lines), false) {
            Verdict::Cached(tags, _) => tags,
            other => panic!("{other}"),
        };
        assert_eq!(of("select 1 from t where a = 1", &["t: a = …"]), Tags::Point);
        assert_eq!(of("select 1 from t where a = 1", &["t: a = … or b within a range"]), Tags::Range);
        assert_eq!(of("select 1 from t where a = 1", &["t: a = …", "s: b among the values of t.a"]), Tags::Keys);
        assert_eq!(of("select 1 from t where a = 1", &["t: a = …", "s: any row"]), Tags::AnyRow);
        assert_eq!(of("select 1 from t where a like '%a'", &["t: any row"]), Tags::AnyRow);
        assert_eq!(of("select a from t limit 1", &["t: any row"]), Tags::AnyRow);
        assert_eq!(of("select a, max(b) filter (where b < 2) from t group by a", &["t: any row"]), Tags::Whole);
    }
}
