//! A rule as it is written, in the configuration file and in the state file.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use freshet_types::Nanos;
use regex::{Regex, RegexBuilder};

/// Limit of a regular expression that is compiled, in bytes.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// The bounds of a `ttl`.
const TTL: RangeInclusive<Nanos> = 100_000_000..=24 * 3600 * 1_000_000_000;

/// The bounds of a `timeout`.
const TIMEOUT: RangeInclusive<Nanos> = 10_000_000..=24 * 3600 * 1_000_000_000;

/// Longest name of a rule, in bytes, as for names in PostgreSQL.
const NAME_BYTES_MAX: usize = 63;

/// What a rule says of caching.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caching {
    /// As without a rule.
    #[default]
    Auto,
    /// Results are cached although hits may not pay for it.
    Always,
    /// Results are not cached.
    Never,
}

impl Caching {
    /// All, with their names.
    pub const NAMES: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("always", Self::Always), ("never", Self::Never)];

    /// The one with this name.
    pub fn named(wanted: &str) -> Option<Self> {
        Self::NAMES.into_iter().find(|(name, _)| *name == wanted).map(|(_, caching)| caching)
    }

    fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|(_, caching)| *caching == self).map_or("", |(name, _)| name)
    }
}

/// Where what is not in the cache is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// At the primary.
    Primary,
    /// At a replica, if one may answer.
    Replica,
}

impl Way {
    /// All, with their names.
    pub const NAMES: [(&'static str, Self); 2] = [("primary", Self::Primary), ("replica", Self::Replica)];

    /// The one with this name.
    pub fn named(wanted: &str) -> Option<Self> {
        Self::NAMES.into_iter().find(|(name, _)| *name == wanted).map(|(_, way)| way)
    }

    fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|(_, way)| *way == self).map_or("", |(name, _)| name)
    }
}

/// A rule as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleText {
    /// A name for people, and for DROP CACHE.
    pub name: Option<String>,
    /// The digest of the normalized query, in hexadecimal.
    pub digest: Option<String>,
    /// The user that the session has logged in as.
    pub user: Option<String>,
    /// The database of the session.
    pub database: Option<String>,
    /// A relation that the statement names: `table`, or `schema.table`.
    pub table: Option<String>,
    /// A regular expression that is found in the normalized query.
    pub query: Option<String>,
    /// `application_name` of the session; MySQL and MariaDB: its attribute `program_name`.
    pub application_name: Option<String>,
    /// What is cached.
    pub cache: Caching,
    /// For so long a result is served that changes do not invalidate.
    pub ttl: Option<Nanos>,
    /// After so long the statement is cancelled at the server.
    pub timeout: Option<Nanos>,
    /// PostgreSQL: where it is read.
    pub route: Option<Way>,
    /// The statement goes to the query log, however short it took.
    pub log: bool,
    /// The statement is refused with this message.
    pub refuse: Option<String>,
}

/// All rules, in the order in which they are tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleTexts {
    /// Those that SQL has created. Each names a statement by its digest, and no session.
    pub sql: Vec<RuleText>,
    /// Those of the configuration file.
    pub file: Vec<RuleText>,
}

/// Whether a text is a digest.
pub fn is_digest(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl RuleText {
    /// Keys and values of the conditions.
    pub(super) fn conditions(&self) -> [(&'static str, Option<&str>); 6] {
        [
            ("digest", self.digest.as_deref()),
            ("user", self.user.as_deref()),
            ("database", self.database.as_deref()),
            ("table", self.table.as_deref()),
            ("query", self.query.as_deref()),
            ("application_name", self.application_name.as_deref()),
        ]
    }

    /// What is wrong with a value: its key, and the fault.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        if self.name.as_deref().is_some_and(|name| !is_name(name)) {
            let text = format!("expected 1 to {NAME_BYTES_MAX} bytes without control characters, and no digest");
            return Some(("name", text));
        }
        if self.digest.as_deref().is_some_and(|digest| !is_digest(digest)) {
            return Some(("digest", "expected the 16 hexadecimal digits that SHOW CACHES shows".to_owned()));
        }
        if let Some(Err(error)) = self.query.as_deref().map(compile) {
            return Some(("query", format!("not a regular expression: {}", last_line(&error.to_string()))));
        }
        if self.ttl.is_some_and(|ttl| !is_ttl(ttl)) {
            return Some(("ttl", "expected a time between 100ms and 24h".to_owned()));
        }
        if self.timeout.is_some_and(|timeout| !TIMEOUT.contains(&timeout)) {
            return Some(("timeout", "expected a time between 10ms and 24h".to_owned()));
        }
        if self.refuse.as_deref().is_some_and(|message| message.contains('\0')) {
            return Some(("refuse", "a message has no zero character".to_owned()));
        }
        None
    }

    /// Whether it is one that SQL can have created: it caches the statement with a digest.
    pub fn is_of_sql(&self) -> bool {
        let Self { digest, cache, ttl, .. } = self;
        let made =
            Self { name: self.name.clone(), digest: digest.clone(), cache: *cache, ttl: *ttl, ..Self::default() };
        digest.is_some() && *cache == Caching::Always && *self == made
    }

    /// Whether it is meant by a name, or by a digest.
    pub fn is_called(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name)
            || self.digest.as_deref().is_some_and(|digest| digest.eq_ignore_ascii_case(name))
    }

    /// Whether it matches all that the other one matches, as far as both name the same values.
    pub(super) fn covers(&self, other: &Self) -> bool {
        self.conditions().iter().zip(other.conditions()).all(|((_, own), (_, its))| own.is_none() || *own == its)
    }

    /// Keys and values of what it does, each value as TOML writes it by `quote`.
    fn actions(&self, quote: impl Fn(&str) -> String) -> Vec<String> {
        let does = |key: &str, value: String| format!("{key} = {value}");
        let mut actions = Vec::new();
        actions.extend(self.refuse.as_deref().map(|message| does("refuse", quote(message))));
        actions.extend(self.ttl.map(|ttl| does("ttl", quote(&span_text(ttl)))));
        actions.extend(self.timeout.map(|timeout| does("timeout", quote(&span_text(timeout)))));
        actions.extend(self.route.map(|route| does("route", quote(route.name()))));
        actions.extend(self.log.then(|| does("log", "true".to_owned())));
        if self.cache != Caching::Auto || actions.is_empty() {
            actions.insert(0, does("cache", quote(self.cache.name())));
        }
        actions
    }

    /// Its conditions and what it does, for people.
    pub(super) fn shown(&self) -> [String; 2] {
        let conditions = self.conditions().into_iter();
        let conditions = conditions.filter_map(|(key, value)| Some(format!("{key} = '{}'", value?)));
        [conditions.collect::<Vec<_>>().join(", "), self.actions(|text| format!("'{text}'")).join(", ")]
    }

    /// The lines of its table in a configuration file.
    pub fn toml(&self) -> Vec<String> {
        let texts = std::iter::once(("name", self.name.as_deref())).chain(self.conditions());
        let texts = texts.filter_map(|(key, value)| Some(format!("{key} = {}", quoted(value?))));
        std::iter::once("[[rule]]".to_owned()).chain(texts).chain(self.actions(quoted)).collect()
    }
}

/// Whether a `ttl` is within its bounds.
pub(super) fn is_ttl(ttl: Nanos) -> bool {
    TTL.contains(&ttl)
}

/// A name that is a digest would mean two things in DROP CACHE.
fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control) && !is_digest(name)
}

pub(super) fn compile(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).case_insensitive(true).size_limit(REGEX_BYTES_MAX).build()
}

/// Errors of the parser are drawings of several lines; the last one has the words.
fn last_line(error: &str) -> &str {
    error.lines().last().unwrap_or_default().trim_start_matches("error: ")
}

/// A span of time in its largest unit without a fraction.
pub(crate) fn span_text(nanos: Nanos) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")];
    let whole = units.into_iter().find(|(unit, _)| nanos.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{nanos}ns"), |(unit, name)| format!("{}{name}", nanos / unit))
}

/// A text as TOML writes it.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => _ = write!(out, "\\u{:04X}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_written_as_the_file_has_it() {
        let rule = RuleText {
            name: Some("front \"page\"\u{7f}".to_owned()),
            digest: Some("0123456789abcdef".to_owned()),
            cache: Caching::Always,
            ttl: Some(1_500_000_000),
            timeout: Some(3_000_000_000),
            route: Some(Way::Primary),
            log: true,
            ..RuleText::default()
        };
        let lines = [
            "[[rule]]",
            "name = \"front \\\"page\\\"\\u007F\"",
            "digest = \"0123456789abcdef\"",
            "cache = \"always\"",
            "ttl = \"1500ms\"",
            "timeout = \"3s\"",
            "route = \"primary\"",
            "log = true",
        ];
        assert_eq!(rule.toml(), lines);
        let does = "cache = 'always', ttl = '1500ms', timeout = '3s', route = 'primary', log = true";
        let shown = ["digest = '0123456789abcdef'", does];
        assert_eq!(rule.shown(), shown);
        assert_eq!(RuleText::default().toml(), ["[[rule]]", "cache = \"auto\""]);
        assert_eq!([60_000_000_000, 1000, 1].map(span_text), ["60s", "1us", "1ns"]);
    }

    #[test]
    fn names_are_no_digests() {
        let fault = |name: &str| RuleText { name: Some(name.to_owned()), ..RuleText::default() }.fault();
        assert_eq!(fault("front page"), None);
        for name in ["", "0123456789ABCDEF", "a\nb", &"x".repeat(64)] {
            assert_eq!(fault(name).map(|(key, _)| key), Some("name"), "{name}");
        }
    }

    #[test]
    fn rules_of_sql_name_a_statement_and_no_session() {
        let rule =
            RuleText { digest: Some("0123456789abcdef".to_owned()), cache: Caching::Always, ..RuleText::default() };
        assert!(rule.is_of_sql() && RuleText { ttl: Some(1), name: Some("a".to_owned()), ..rule.clone() }.is_of_sql());
        assert!(!RuleText { user: Some("app".to_owned()), ..rule.clone() }.is_of_sql());
        assert!(!RuleText { digest: None, ..rule.clone() }.is_of_sql() && !RuleText::default().is_of_sql());
        assert!(rule.is_called("0123456789ABCDEF") && !rule.is_called("a"));
    }
}
