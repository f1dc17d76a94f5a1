//! Warnings of rules that match nothing: at once, if an earlier rule leaves them nothing; else after some thousand statements.

use freshet_proxy::{Database, Databases, RuleText, hidden_rules};

/// After so many statements that were not answered from the cache, a rule that matched none of them is warned of.
const STATEMENTS: u64 = 10_000;

/// The rules in force have not been examined yet.
#[derive(Debug, Default)]
pub(super) struct Unexamined {
    /// The number of statements when they came into force; None: they were examined, or there are none.
    since: Option<u64>,
}

impl Unexamined {
    /// These rules have come into force.
    pub(super) fn begin(&mut self, rules: &[RuleText], databases: &Databases) {
        for (hidden, earlier) in hidden_rules(rules) {
            tracing::warn!("rule {hidden} matches nothing: rule {earlier} comes first and matches all of it");
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
            let matches = family.shared().rule_matches();
            all.resize(all.len().max(matches.len()), 0);
            all.iter_mut().zip(matches).for_each(|(all, matches)| *all += matches);
        }
        for (at, _) in all.iter().enumerate().filter(|(_, matches)| **matches == 0) {
            tracing::warn!("rule {} has matched none of {STATEMENTS} statements (SHOW RULES)", at + 1);
        }
    }
}

/// Statements that the databases have answered.
fn statements(databases: &Databases) -> u64 {
    let of_one = |database: &Database| {
        let metrics = &database.family.shared().metrics;
        metrics.fills() + metrics.passed()
    };
    databases.databases().iter().map(of_one).sum()
}
