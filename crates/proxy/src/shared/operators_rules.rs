//! The rules of the operator, as they are set and as statements meet them.

use std::borrow::Cow;

use crate::rules::{RuleMatches, RuleTexts};
use crate::shared::Shared;

impl Shared {
    /// Replaces the rules of the operator. True: those of the configuration file are others than before.
    pub fn set_rules(&self, rules: &RuleTexts) -> bool {
        let changed = self.rules.set(rules);
        // With others of the file, all sessions have new contexts, and find none of the entries.
        if !changed.file && !changed.digests.is_empty() {
            self.cache.discard(|body| changed.digests.contains(&body.source.query.digest));
        }
        self.settings.query_log.look_for_rules(self.rules.log());
        changed.file
    }

    /// Whether statements may have hints.
    pub fn set_hints(&self, hints: bool) {
        self.rules.set_hints(hints);
    }

    /// How many statements each rule has decided, apart from hits.
    pub fn rule_matches(&self) -> Vec<RuleMatches> {
        self.rules.matches()
    }

    /// Statements whose hint was wrong.
    pub fn hints_ignored(&self) -> u64 {
        self.rules.hints_ignored()
    }

    /// The text by which a statement is known: without the comments around it, but with the hint in them, if hints count. `bare` is the part of the
    /// text that has no comments around it.
    pub(crate) fn known_text<'t>(&self, sent: &'t [u8], bare: &'t [u8]) -> Cow<'t, [u8]> {
        self.rules.known_text(sent, bare).unwrap_or_else(|| {
            self.warn_rarely(|| {
                "a statement has a wrong hint, which is ignored: expected /* freshet: ttl=10s */".to_owned()
            });
            Cow::Borrowed(bare)
        })
    }
}
