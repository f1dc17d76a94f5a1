//! What hears of a statement that was answered: the query log, and the spans.

use freshet_types::Dialect;

use crate::server::query_log::{Record, Who};
use crate::server::traces::{Answered, AnsweredBy, Origin};
use crate::shared::Shared;

impl Shared {
    /// Tells the query log and the spans of a statement of this session.
    pub(crate) fn observe(&self, answered: &Answered<'_>, dialect: Dialect, who: impl Fn() -> Who) {
        let Answered { query, took, outcome, .. } = *answered;
        let hit = if let AnsweredBy::Hit(bytes) = outcome { Some(bytes) } else { None };
        let settings = &self.settings;
        settings.query_log.note(took, || Record { who: who(), query: query.clone(), took, hit });
        let origin = || Origin { who: who(), dialect, upstream: settings.upstream.as_str().into() };
        settings.traces.note(answered, origin);
    }
}
