//! Rules of the operator: which statements are cached by the usual reckoning, always, or never, which are refused, and which are cancelled after some time. The first rule
//! that matches a statement and its session decides: of those that SQL has created first, then of those of the configuration file. If none matches,
//! the statement's own [`hint`] does, where the operator allows hints.
//!
//! A hit pays one comparison for them. What a rule of the file says of a statement depends on the session only by user, database and application name:
//! its *class* names the rules that match these. Sessions with the same settings but of different classes have different contexts
//! ([`crate::session::context`]), and the context is part of every key. So an entry is found only where the same rules hold as where it was
//! filled, and a result that is never cached is never found. A change of the file's rules gives all sessions new contexts.
//!
//! A rule that SQL has created names one statement and no session. Its change must not cost the entries of all other statements, so contexts stay.
//! Instead those of its statement are removed, and what is under way is not cached ([`freshet_cache::Cache::discard`]). Hence two generations: one by which
//! a statement's rules are looked up, and one by which contexts are made.

mod hint;
mod text;

use std::borrow::Cow;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use freshet_sql::NamedTable;
use freshet_types::{Dialect, Nanos};
use regex::Regex;

pub(crate) use hint::Hint;
pub(crate) use text::span_text;
pub use text::{Caching, RuleText, RuleTexts, Way, is_digest};

/// Who sends a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who<'a> {
    pub(crate) user: &'a str,
    pub(crate) database: &'a str,
    pub(crate) application: &'a str,
    /// MySQL and MariaDB: its clock may have been set, so that what reads the clock is of this session alone.
    pub(crate) sets_clock: bool,
}

/// What a rule looks at of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) digest: u64,
    pub(crate) text: &'a str,
    pub(crate) candidates: &'a Candidates,
    /// What the statement says itself.
    pub(crate) hint: Option<Hint>,
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
        let query = text.query.as_deref().and_then(|query| text::compile(query).ok());
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

/// All rules.
#[derive(Debug, Default)]
struct Rules {
    /// Those of SQL, then those of the file.
    list: Vec<Arc<Rule>>,
    /// How many of them SQL has created.
    sql: usize,
    generation: u64,
    /// The generation for contexts.
    of_contexts: u64,
}

impl Rules {
    /// Those of the file, which alone may depend on the session.
    fn of_file(&self) -> &[Arc<Rule>] {
        self.list.get(self.sql..).unwrap_or_default()
    }

    /// The number of a rule, among those of its origin.
    fn number(&self, at: usize) -> String {
        (at.checked_sub(self.sql).unwrap_or(at) + 1).to_string()
    }

    fn of_sql(&self) -> &[Arc<Rule>] {
        self.list.get(..self.sql).unwrap_or_default()
    }
}

/// What a change of the rules has changed.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    /// The digests of the statements for which SQL's rules have changed.
    pub(crate) digests: Vec<u64>,
    /// Others have changed.
    pub(crate) file: bool,
}

/// How often a rule has decided.
#[derive(Clone, Debug)]
pub struct RuleMatches {
    /// Whether SQL has created it.
    pub is_of_sql: bool,
    /// Its digest, if SQL has created it; else its number among those of the file.
    pub rule: String,
    /// Statements that it has decided, apart from hits.
    pub matches: u64,
}

/// The rules in force.
#[derive(Debug)]
pub(crate) struct RulesInForce {
    dialect: Dialect,
    rules: ArcSwap<Rules>,
    /// [`Rules::generation`]; 0: there was never a rule.
    generation: AtomicU64,
    /// [`Rules::of_contexts`], for the hit path.
    of_contexts: AtomicU64,
    /// Statements may have hints.
    hints: AtomicBool,
    hints_ignored: AtomicU64,
    changing: Mutex<()>,
}

/// The rules that match a normalized query by its text alone, of one generation.
#[derive(Debug, Default)]
pub(crate) struct Candidates(Mutex<(u64, Arc<[Arc<Rule>]>)>);

impl RulesInForce {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            rules: ArcSwap::default(),
            generation: AtomicU64::new(0),
            of_contexts: AtomicU64::new(0),
            hints: AtomicBool::new(false),
            hints_ignored: AtomicU64::new(0),
            changing: Mutex::default(),
        }
    }

    /// Changes whenever another rule may decide a statement.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Acquire)
    }

    /// Changes whenever contexts must be made anew.
    pub(crate) fn of_contexts(&self) -> u64 {
        self.of_contexts.load(Acquire)
    }

    /// Replaces all rules. What it returns is told of once they are in force.
    pub(crate) fn set(&self, texts: &RuleTexts) -> Changed {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.rules.load_full();
        let file = !before.of_file().iter().map(|rule| &rule.text).eq(&texts.file);
        let is_there = |all: &[Arc<Rule>], text: &RuleText| all.iter().any(|rule| rule.text == *text);
        let gone = before.of_sql().iter().filter(|rule| !texts.sql.contains(&rule.text)).cloned();
        let new =
            texts.sql.iter().filter(|text| !is_there(before.of_sql(), text)).cloned().map(Rule::new).map(Arc::new);
        let digests: Vec<u64> = gone.chain(new).filter_map(|rule| rule.digest).collect();
        if !file && digests.is_empty() {
            return Changed::default();
        }
        let mut list: Vec<Arc<Rule>> = Vec::with_capacity(texts.sql.len() + texts.file.len());
        for text in texts.sql.iter().chain(&texts.file) {
            // What a rule has counted goes on.
            let is_it = |rule: &&Arc<Rule>| rule.text == *text && !list.iter().any(|new| Arc::ptr_eq(new, rule));
            let known = before.list.iter().find(is_it).cloned();
            list.push(known.unwrap_or_else(|| Arc::new(Rule::new(text.clone()))));
        }
        self.put(Rules { list, sql: texts.sql.len(), ..before.next(file) });
        Changed { digests, file }
    }

    /// Whether statements may have hints. It is in force for all entries: those of statements that had or have one are not found any more.
    pub(crate) fn set_hints(&self, hints: bool) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.hints.swap(hints, Release) != hints {
            let before = self.rules.load_full();
            self.put(Rules { list: before.list.clone(), sql: before.sql, ..before.next(true) });
        }
    }

    fn put(&self, rules: Rules) {
        let (generation, of_contexts) = (rules.generation, rules.of_contexts);
        self.rules.store(Arc::new(rules));
        self.generation.store(generation, Release);
        self.of_contexts.store(of_contexts, Release);
    }

    /// The generation for contexts, and the numbers of those rules that match the session, of the rules that depend on it.
    pub(crate) fn class(&self, who: &Who<'_>) -> (u64, String) {
        let rules = self.rules.load();
        let all = rules.of_file().iter().enumerate();
        let matching = all.filter(|(_, rule)| rule.depends_on_session() && rule.matches_session(who));
        let mut class: String = matching.map(|(at, _)| at.to_string() + " ").collect();
        class.extend(who.sets_clock.then_some("clock"));
        (rules.of_contexts, class)
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

    /// The statement's hint, if it counts.
    fn hint(&self, query: Subject<'_>) -> Option<Hint> {
        query.hint.filter(|_| self.hints.load(Acquire))
    }

    /// What rules and hints say of caching the results of a statement, and how long a result is served that changes do not invalidate.
    pub(crate) fn caching(&self, query: Subject<'_>, who: &Who<'_>) -> (Caching, Option<Nanos>) {
        if let Some(rule) = self.find(query, who) {
            rule.count();
            return (rule.text.cache, rule.text.ttl);
        }
        self.hint(query).map_or((Caching::Auto, None), |hint| (hint.cache, hint.ttl))
    }

    /// The same, for a statement that is not decided yet.
    pub(crate) fn caching_to_be(&self, query: Subject<'_>, who: &Who<'_>) -> Caching {
        let of_hint = || self.hint(query).map_or(Caching::Auto, |hint| hint.cache);
        self.find(query, who).map_or_else(of_hint, |rule| rule.text.cache)
    }

    /// Whether a rule has a `ttl`, or a hint may have one.
    pub(crate) fn have_ttl(&self) -> bool {
        let is_one = || self.rules.load().list.iter().any(|rule| rule.text.ttl.is_some());
        self.generation() > 0 && (self.hints.load(Acquire) || is_one())
    }

    /// How long a result of the statement is served that changes do not invalidate, and what says so.
    pub(crate) fn ttl(&self, query: Subject<'_>, who: &Who<'_>) -> Option<(Nanos, &'static str)> {
        match self.find(query, who) {
            Some(rule) => Some((rule.text.ttl?, "rule")),
            None => Some((self.hint(query)?.ttl?, "hint")),
        }
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

    /// After how long a rule wants the statement cancelled.
    pub(crate) fn timeout(&self, query: Subject<'_>, who: &Who<'_>) -> Option<Nanos> {
        self.find(query, who).and_then(|rule| rule.text.timeout)
    }

    /// Where a rule or the statement's hint wants it to be read.
    pub(crate) fn route(&self, query: Subject<'_>, who: &Who<'_>) -> Option<Way> {
        match self.find(query, who) {
            Some(rule) => rule.text.route,
            None => self.hint(query)?.route,
        }
    }

    /// Whether a rule wants statements in the query log.
    pub(crate) fn log(&self) -> bool {
        self.rules.load().list.iter().any(|rule| rule.text.log)
    }

    /// Whether a rule wants the statement in the query log.
    pub(crate) fn logs(&self, query: Subject<'_>, who: &Who<'_>) -> bool {
        self.find(query, who).is_some_and(|rule| rule.text.log)
    }

    /// The text by which a statement is known: `bare`, the text without the comments around it, and the hint in them, if hints count. None: the hint is
    /// wrong, and not taken.
    pub(crate) fn known_text<'t>(&self, sent: &'t [u8], bare: &'t [u8]) -> Option<Cow<'t, [u8]>> {
        if sent.len() == bare.len() || !self.hints.load(Relaxed) {
            return Some(Cow::Borrowed(bare));
        }
        let text = hint::known_text(sent, bare);
        if text.is_none() {
            self.hints_ignored.fetch_add(1, Relaxed);
        }
        text
    }

    /// Statements whose hint was wrong, apart from what has stayed prepared.
    pub(crate) fn hints_ignored(&self) -> u64 {
        self.hints_ignored.load(Relaxed)
    }

    /// How many statements each rule has decided.
    pub(crate) fn matches(&self) -> Vec<RuleMatches> {
        let rules = self.rules.load();
        let of = |(at, rule): (usize, &Arc<Rule>)| {
            let digest = rule.text.digest.clone().filter(|_| at < rules.sql);
            let matches = rule.matches.load(Relaxed);
            RuleMatches { is_of_sql: digest.is_some(), rule: digest.unwrap_or_else(|| rules.number(at)), matches }
        };
        rules.list.iter().enumerate().map(of).collect()
    }

    /// For SHOW RULES: number, conditions, action, matches, since, name, origin.
    pub(crate) fn shown(&self) -> Vec<[String; 7]> {
        let rules = self.rules.load();
        let row = |(at, rule): (usize, &Arc<Rule>)| {
            let since = rule.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            let (number, origin) = (rules.number(at), if at < rules.sql { "sql" } else { "file" });
            let [conditions, action] = rule.text.shown();
            let matches = rule.matches.load(Relaxed).to_string();
            let name = rule.text.name.clone().unwrap_or_default();
            [number, conditions, action, matches, since.to_string(), name, origin.to_owned()]
        };
        rules.list.iter().enumerate().map(row).collect()
    }

    /// The rules that SQL has created, as the lines that a configuration file would have.
    pub(crate) fn toml(&self) -> Vec<String> {
        self.rules.load().of_sql().iter().flat_map(|rule| rule.text.toml()).collect()
    }
}

impl Rules {
    /// The generations of the next rules. `contexts`: contexts must be made anew.
    fn next(&self, contexts: bool) -> Self {
        let generation = self.generation + 1;
        let of_contexts = if contexts { generation } else { self.of_contexts };
        Self { list: Vec::new(), sql: 0, generation, of_contexts }
    }
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

    fn of_file(file: Vec<RuleText>) -> RuleTexts {
        RuleTexts { file, ..RuleTexts::default() }
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
        assert!(!rules.set(&RuleTexts::default()).file);
        let texts = of_file(vec![rule("user", "app"), rule("query", "orders"), rule("application_name", "report")]);
        assert!(rules.set(&texts).file);
        assert!(!rules.set(&texts).file);
        let class = |user, application| rules.class(&Who { user, database: "d", application, sets_clock: false });
        assert_eq!(class("app", "web"), (1, "0 ".to_owned()));
        assert_eq!(class("app", "report"), (1, "0 2 ".to_owned()));
        assert_eq!(class("other", ""), (1, String::new()));
        assert!(rules.set(&RuleTexts::default()).file);
        assert_eq!(class("app", "report"), (2, String::new()));
    }

    #[test]
    fn rules_of_sql_leave_contexts_alone() {
        let rules = RulesInForce::new(Dialect::Postgres);
        let file = vec![rule("user", "app")];
        rules.set(&of_file(file.clone()));
        let who = Who { user: "app", database: "d", application: "", sets_clock: false };
        let class = rules.class(&who);
        let sql = |digests: &[&str]| digests.iter().map(|digest| rule("digest", digest)).collect();
        let digests = |changed: Changed| changed.digests;
        let (one, two) = ("0000000000000001", "0000000000000002");
        assert_eq!(digests(rules.set(&RuleTexts { sql: sql(&[one]), file: file.clone() })), [1]);
        assert_eq!((rules.generation(), rules.of_contexts(), rules.class(&who)), (2, 1, class));
        let changed = rules.set(&RuleTexts { sql: sql(&[two]), file: file.clone() });
        assert_eq!((changed.file, changed.digests), (false, vec![1, 2]));
        assert_eq!(digests(rules.set(&of_file(file))), [2]);
        assert_eq!((rules.generation(), rules.of_contexts()), (4, 1));
        rules.set_hints(true);
        rules.set_hints(true);
        assert_eq!((rules.generation(), rules.of_contexts()), (5, 5));
    }

    #[test]
    fn a_rule_covers_what_names_the_same_and_more() {
        let one = rule("user", "app");
        let both = RuleText { query: Some("x".to_owned()), ..one.clone() };
        assert!(one.covers(&both) && !both.covers(&one) && RuleText::default().covers(&one));
        assert!(!rule("user", "other").covers(&both));
    }
}
