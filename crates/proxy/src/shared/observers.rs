//! What hears of a statement that was answered: the query log, and the spans.

use freshet_types::Dialect;

use crate::rules;
use crate::server::query_log::{Record, Who};
use crate::server::traces::{Answered, AnsweredBy, Origin};
use crate::shared::Shared;
use crate::statement::registry::NormalizedQuery;

impl Shared {
    /// Whether a rule wants a statement in the query log.
    pub(crate) fn logs_by_rule(&self, query: &NormalizedQuery, who: &rules::Who<'_>) -> bool {
        self.settings.query_log.looks_for_rules() && self.rules.logs(query.subject(None), who)
    }

    /// Tells the query log and the spans of a statement of this session. `by_rule`: a rule wants it in the log.
    pub(crate) fn observe(&self, answered: &Answered<'_>, dialect: Dialect, by_rule: bool, who: impl Fn() -> Who) {
        let Answered { query, took, outcome, .. } = *answered;
        let hit = if let AnsweredBy::Hit(bytes) = outcome { Some(bytes) } else { None };
        let settings = &self.settings;
        settings.query_log.note(took, by_rule, || Record { who: who(), query: query.clone(), took, hit });
        let origin = || Origin { who: who(), dialect, upstream: settings.upstream.as_str().into() };
        settings.traces.note(answered, origin);
    }
}
