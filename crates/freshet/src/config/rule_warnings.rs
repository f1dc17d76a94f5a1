//! Warnings of rules that match nothing: at once if earlier rules match everything, otherwise after some thousand statements.

use freshet_proxy::{Database, Databases, hidden_rules};

use crate::config::resolve::Resolved;

/// After this many statements that were not served from the cache, there is a warning of each rule that matched none of them.
const STATEMENTS: u64 = 10_000;

/// Whether the rules in force still have to be examined.
#[derive(Debug, Default)]
pub(super) struct Unexamined {
    /// The number of statements when the rules came into force. None if they were examined, or if there are none.
    since: Option<u64>,
}

impl Unexamined {
    /// These rules have come into force.
    pub(super) fn begin(&mut self, config: &Resolved, databases: &Databases) {
        let rules = &config.rules;
        for (hidden, earlier) in hidden_rules(rules) {
            tracing::warn!("rule {hidden} matches nothing: rule {earlier} comes first and matches all of it");
        }
        if config.args.query_log.is_none() && rules.iter().any(|rule| rule.log) {
            tracing::warn!("a rule has log = true, but there is no query log (--query-log)");
        }
        self.since = (!rules.is_empty()).then(|| statements(databases));
    }

    /// Warns once of rules that have matched nothing in any database, after enough statements.
    pub(super) fn examine(&mut self, databases: &Databases) {
        if self.since.is_none_or(|since| statements(databases) < since + STATEMENTS) {
            return;
        }
        self.since = None;
        let mut all: Vec<u64> = Vec::new();
        for Database { family, .. } in databases.databases().iter() {
            let of_file = family.shared().rule_matches().into_iter().filter(|rule| !rule.is_of_sql);
            let matches: Vec<u64> = of_file.map(|rule| rule.matches).collect();
            all.resize(all.len().max(matches.len()), 0);
            all.iter_mut().zip(matches).for_each(|(all, matches)| *all += matches);
        }
        for (at, _) in all.iter().enumerate().filter(|(_, matches)| **matches == 0) {
            tracing::warn!("rule {} has matched none of {STATEMENTS} statements (SHOW RULES)", at + 1);
        }
    }
}

/// Number of statements that the databases have answered.
fn statements(databases: &Databases) -> u64 {
    let of_one = |database: &Database| {
        let metrics = &database.family.shared().metrics;
        metrics.fills() + metrics.passed()
    };
    databases.databases().iter().map(of_one).sum()
}
