//! Rules of the operator: which statements are cached by the usual reckoning, always, or never, and which are refused. The first rule
//! that matches a statement and its session decides.
//!
//! A hit pays one comparison for them. What a rule says of a statement depends on the session only by user, database and application name:
//! its *class* names the rules that match these. Sessions with the same settings but of different classes have different contexts
//! ([`crate::session::context`]), and the context is part of every key. So an entry is found only where the same rules hold as where it was
//! filled, and a result that is never cached is never found. A change of the rules gives all sessions new contexts.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use freshet_sql::NamedTable;
use freshet_types::{Dialect, Nanos};
use regex::{Regex, RegexBuilder};

/// Limit of a regular expression that is compiled, in bytes.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// The bounds of a rule's `ttl`.
const TTL: RangeInclusive<Nanos> = 100_000_000..=24 * 3600 * 1_000_000_000;

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

    fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|(_, caching)| *caching == self).map_or("", |(name, _)| name)
    }
}

/// A rule as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleText {
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
    /// The statement is refused with this message.
    pub refuse: Option<String>,
}

impl RuleText {
    /// Keys and values of the conditions.
    fn conditions(&self) -> [(&'static str, Option<&str>); 6] {
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
        let is_digest = |text: &str| text.len() == 16 && u64::from_str_radix(text, 16).is_ok();
        if self.digest.as_deref().is_some_and(|digest| !is_digest(digest)) {
            return Some(("digest", "expected the 16 hexadecimal digits that SHOW CACHES shows".to_owned()));
        }
        if let Some(Err(error)) = self.query.as_deref().map(compile) {
            return Some(("query", format!("not a regular expression: {}", last_line(&error.to_string()))));
        }
        if self.ttl.is_some_and(|ttl| !TTL.contains(&ttl)) {
            return Some(("ttl", "expected a time between 100ms and 24h".to_owned()));
        }
        if self.refuse.as_deref().is_some_and(|message| message.contains('\0')) {
            return Some(("refuse", "a message has no zero character".to_owned()));
        }
        None
    }

    /// Whether it matches all that the other one matches, as far as both name the same values.
    fn covers(&self, other: &Self) -> bool {
        self.conditions().iter().zip(other.conditions()).all(|((_, own), (_, its))| own.is_none() || *own == its)
    }
}

fn compile(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).case_insensitive(true).size_limit(REGEX_BYTES_MAX).build()
}

/// Errors of the parser are drawings of several lines; the last one has the words.
fn last_line(error: &str) -> &str {
    error.lines().last().unwrap_or_default().trim_start_matches("error: ")
}

/// Who sends a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who<'a> {
    pub(crate) user: &'a str,
    pub(crate) database: &'a str,
    pub(crate) application: &'a str,
    /// MySQL and MariaDB: its clock may have been set, so that what reads the clock is of this session alone.
    pub(crate) sets_clock: bool,
}

/// What a rule looks at of a normalized query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) digest: u64,
    pub(crate) text: &'a str,
    pub(crate) candidates: &'a Candidates,
}

/// A rule that is in force.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) text: RuleText,
    digest: Option<u64>,
    query: Option<Regex>,
    /// Statements that it has decided, apart from hits.
    matches: AtomicU64,
    /// When it came into force.
    since: SystemTime,
}

impl Rule {
    fn new(text: RuleText) -> Self {
        let digest = text.digest.as_deref().and_then(|digest| u64::from_str_radix(digest, 16).ok());
        let query = text.query.as_deref().and_then(|query| compile(query).ok());
        Self { text, digest, query, matches: AtomicU64::new(0), since: SystemTime::now() }
    }

    fn matches_statement(&self, dialect: Dialect, query: Subject<'_>) -> bool {
        self.digest.is_none_or(|digest| digest == query.digest)
            && self.query.as_ref().is_none_or(|regex| regex.is_match(query.text))
            && self.text.table.as_deref().is_none_or(|table| NamedTable::of(table).is_in(dialect, query.text))
    }

    fn matches_session(&self, who: &Who<'_>) -> bool {
        let is = |wanted: &Option<String>, has: &str| wanted.as_deref().is_none_or(|wanted| wanted == has);
        is(&self.text.user, who.user)
            && is(&self.text.database, who.database)
            && is(&self.text.application_name, who.application)
    }

    fn depends_on_session(&self) -> bool {
        self.text.user.is_some() || self.text.database.is_some() || self.text.application_name.is_some()
    }

    fn count(&self) {
        self.matches.fetch_add(1, Relaxed);
    }
}

/// All rules, in their order.
#[derive(Debug, Default)]
struct Rules {
    list: Vec<Arc<Rule>>,
    generation: u64,
}

/// The rules in force.
#[derive(Debug)]
pub(crate) struct RulesInForce {
    dialect: Dialect,
    rules: ArcSwap<Rules>,
    /// [`Rules::generation`], for the hit path; 0: there was never a rule.
    generation: AtomicU64,
    changing: Mutex<()>,
}

/// The rules that match a normalized query by its text alone, of one generation.
#[derive(Debug, Default)]
pub(crate) struct Candidates(Mutex<(u64, Arc<[Arc<Rule>]>)>);

impl RulesInForce {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self { dialect, rules: ArcSwap::default(), generation: AtomicU64::new(0), changing: Mutex::default() }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Acquire)
    }

    /// Replaces all rules. False: they are the same as before.
    pub(crate) fn set(&self, texts: Vec<RuleText>) -> bool {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.rules.load_full();
        if before.list.iter().map(|rule| &rule.text).eq(&texts) {
            return false;
        }
        let mut list = Vec::with_capacity(texts.len());
        for text in texts {
            // What a rule has counted goes on.
            let known =
                before.list.iter().find(|rule| rule.text == text && !list.iter().any(|new| Arc::ptr_eq(new, rule)));
            list.push(known.cloned().unwrap_or_else(|| Arc::new(Rule::new(text))));
        }
        let generation = before.generation + 1;
        self.rules.store(Arc::new(Rules { list, generation }));
        self.generation.store(generation, Release);
        true
    }

    /// The generation of the rules, and the numbers of those that match the session, of the rules that depend on it.
    pub(crate) fn class(&self, who: &Who<'_>) -> (u64, String) {
        let rules = self.rules.load();
        let matching =
            rules.list.iter().enumerate().filter(|(_, rule)| rule.depends_on_session() && rule.matches_session(who));
        let mut class: String = matching.map(|(at, _)| at.to_string() + " ").collect();
        class.extend(who.sets_clock.then_some("clock"));
        (rules.generation, class)
    }

    fn find(&self, query: Subject<'_>, who: &Who<'_>) -> Option<Arc<Rule>> {
        if self.generation() == 0 {
            return None;
        }
        let rules = self.rules.load();
        let candidates = query.candidates.of(rules.generation, || {
            rules.list.iter().filter(|rule| rule.matches_statement(self.dialect, query)).cloned().collect()
        });
        candidates.iter().find(|rule| rule.matches_session(who)).cloned()
    }

    /// What the rules say of caching the results of a statement, and how long a result is served that changes do not invalidate.
    pub(crate) fn caching(&self, query: Subject<'_>, who: &Who<'_>) -> (Caching, Option<Nanos>) {
        self.find(query, who).map_or((Caching::Auto, None), |rule| {
            rule.count();
            (rule.text.cache, rule.text.ttl)
        })
    }

    /// Whether a rule has a `ttl`.
    pub(crate) fn have_ttl(&self) -> bool {
        self.generation() > 0 && self.rules.load().list.iter().any(|rule| rule.text.ttl.is_some())
    }

    /// How long a result of the statement is served that changes do not invalidate.
    pub(crate) fn ttl(&self, query: Subject<'_>, who: &Who<'_>) -> Option<Nanos> {
        self.find(query, who)?.text.ttl
    }

    /// Whether a rule refuses a statement.
    pub(crate) fn refuses(&self, query: Subject<'_>, who: &Who<'_>) -> bool {
        self.find(query, who).is_some_and(|rule| rule.text.refuse.is_some())
    }

    /// The message of the rule that refuses a statement.
    pub(crate) fn refusal(&self, query: Subject<'_>, who: &Who<'_>) -> Option<String> {
        let rule = self.find(query, who)?;
        let message = rule.text.refuse.clone()?;
        rule.count();
        Some(message)
    }

    /// How many statements each rule has decided, apart from hits.
    pub(crate) fn matches(&self) -> Vec<u64> {
        self.rules.load().list.iter().map(|rule| rule.matches.load(Relaxed)).collect()
    }

    /// For SHOW RULES: number, conditions, action, matches, since.
    pub(crate) fn shown(&self) -> Vec<[String; 5]> {
        let rules = self.rules.load();
        let row = |(at, rule): (usize, &Arc<Rule>)| {
            let conditions = rule.text.conditions().into_iter();
            let conditions = conditions.filter_map(|(key, value)| Some(format!("{key} = '{}'", value?)));
            let action = match &rule.text.refuse {
                Some(message) => format!("refuse = '{message}'"),
                None => cached(&rule.text),
            };
            let since = rule.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            let conditions = conditions.collect::<Vec<_>>().join(", ");
            [(at + 1).to_string(), conditions, action, rule.matches.load(Relaxed).to_string(), since.to_string()]
        };
        rules.list.iter().enumerate().map(row).collect()
    }
}

fn cached(rule: &RuleText) -> String {
    let ttl = rule.ttl.map(|ttl| format!("ttl = '{}'", Duration::from_nanos(ttl).as_secs_f64().to_string() + "s"));
    let cache = Some(rule.cache).filter(|cache| *cache != Caching::Auto || ttl.is_none());
    let cache = cache.map(|cache| format!("cache = '{}'", cache.name()));
    cache.into_iter().chain(ttl).collect::<Vec<_>>().join(", ")
}

/// The rules that can match nothing, since an earlier one matches all that they match: both numbers.
pub fn hidden_rules(texts: &[RuleText]) -> impl Iterator<Item = (usize, usize)> {
    texts.iter().enumerate().filter_map(|(at, text)| {
        let earlier = texts.iter().take(at).position(|earlier| earlier.covers(text))?;
        Some((at + 1, earlier + 1))
    })
}

impl Candidates {
    fn of(&self, generation: u64, find: impl FnOnce() -> Arc<[Arc<Rule>]>) -> Arc<[Arc<Rule>]> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != generation {
            *known = (generation, find());
        }
        known.1.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(key: &str, value: &str) -> RuleText {
        let (mut text, value) = (RuleText::default(), Some(value.to_owned()));
        match key {
            "digest" => text.digest = value,
            "user" => text.user = value,
            "query" => text.query = value,
            _ => text.application_name = value,
        }
        text
    }

    #[test]
    fn faults_name_their_key() {
        assert_eq!(rule("digest", "0123456789abcdef").fault(), None);
        assert_eq!(rule("digest", "12").fault().map(|(key, _)| key), Some("digest"));
        let (key, text) = rule("query", "a(").fault().expect("a fault");
        assert_eq!((key, text.as_str()), ("query", "not a regular expression: unclosed group"));
        let huge = rule("query", &"x{1000}".repeat(100)).fault().expect("a fault");
        assert_eq!(huge.0, "query");
    }

    #[test]
    fn sessions_are_of_the_class_of_the_rules_that_match_them() {
        let rules = RulesInForce::new(Dialect::Postgres);
        assert_eq!(rules.generation(), 0);
        assert!(!rules.set(Vec::new()));
        let texts = vec![rule("user", "app"), rule("query", "orders"), rule("application_name", "report")];
        assert!(rules.set(texts.clone()));
        assert!(!rules.set(texts));
        let class = |user, application| rules.class(&Who { user, database: "d", application, sets_clock: false });
        assert_eq!(class("app", "web"), (1, "0 ".to_owned()));
        assert_eq!(class("app", "report"), (1, "0 2 ".to_owned()));
        assert_eq!(class("other", ""), (1, String::new()));
        assert!(rules.set(Vec::new()));
        assert_eq!(class("app", "report"), (2, String::new()));
    }

    #[test]
    fn a_rule_covers_what_names_the_same_and_more() {
        let one = rule("user", "app");
        let both = RuleText { query: Some("x".to_owned()), ..one.clone() };
        assert!(one.covers(&both) && !both.covers(&one) && RuleText::default().covers(&one));
        assert!(!rule("user", "other").covers(&both));
    }
}
