//! Statements that a rule with `timeout` cancels at the server: see [`crate::session::time_limit`].
//!
//! The time of a unit begins once the server has answered everything before it. It is the shortest of the rules of its statements.

use std::sync::Arc;

use freshet_wire::postgres::backend;

use crate::postgres::pooling::cancel;
use crate::postgres::session::Session;
use crate::postgres::session::unit::{CopyData, Kind, Unit};
use crate::session::time_limit::TimeLimit;
use crate::statement::registry::NormalizedQuery;

/// SQLSTATE `query_canceled`.
const CANCELED: &str = "57014";

impl Session {
    /// A statement with this query is sent in the last unit.
    pub(crate) fn limit_time(&mut self, query: &Arc<NormalizedQuery>) {
        if self.shared.rules.generation() == 0 {
            return;
        }
        let limit = self.shared.rules.timeout(query.subject(None), &self.server.who());
        let Some(limit) = limit else { return };
        // Nothing may be sent behind it.
        self.link.hold();
        let unit = self.last_unit();
        unit.timeout = Some(unit.timeout.map_or(limit, |other| other.min(limit)));
        self.begin_time_limit();
    }

    /// A unit of the client may be the first now.
    pub(crate) fn begin_time_limit(&mut self) {
        let Some(after) = self.pipeline.next_timeout().filter(|_| self.waiting.time_limit.is_none()) else { return };
        let shared = self.shared.clone();
        let target = self.server.sharing.as_ref().map(|sharing| sharing.cancel.target.clone());
        let own_key = self.server.cancel_key.clone();
        let cancel = async move {
            match (target, own_key) {
                (Some(target), _) => target.cancel(&shared.own.upstream).await,
                (None, Some(key)) => {
                    cancel::send(&shared.own.upstream, None, &key).await;
                }
                (None, None) => tracing::warn!("a statement cannot be cancelled: the server has told no key for that"),
            }
        };
        let (limit, task) = TimeLimit::begin(after, &self.link, cancel);
        freshet_net::spawn(task);
        self.waiting.time_limit = Some(limit);
    }

    /// A unit with a time limit has been answered.
    pub(crate) fn end_time_limit(&mut self) {
        if self.waiting.time_limit.take().is_none() {
            self.link.let_go(); // its time had not begun
        }
    }

    /// Whether the next message of the client must wait for the end of a statement with a time limit.
    pub(crate) fn is_held(&self) -> bool {
        self.link.is_held()
            && !self.pipeline.back().is_some_and(copies)
            && !self.is_raw()
            && !self.client.passes_batch()
            && !self.client.leads_batch()
            && !self.client.skips_batch()
    }

    /// Whether the error that comes next may be that of a statement whose time is over.
    pub(crate) fn may_be_over(&self) -> bool {
        self.waiting.time_limit.as_ref().is_some_and(TimeLimit::is_over)
    }

    /// Tells the client why the statement was cancelled, in the place of the server's error; false: it is another error.
    pub(crate) fn answer_over(&mut self, error: &[u8]) -> bool {
        let Some(limit) = &self.waiting.time_limit else { return false };
        let is_cancelled = backend::sqlstate(error) == Some(CANCELED.as_bytes()) && !backend::is_fatal(error);
        if is_cancelled {
            backend::put_error(self.client.output(), "ERROR", CANCELED, &limit.message());
        }
        is_cancelled
    }
}

/// Whether what the client sends next belongs to the unit: data of a COPY, and the `Sync` behind it.
fn copies(unit: &Unit) -> bool {
    let Unit::Client(unit) = unit else { return false };
    unit.copy.data == CopyData::Asked || (unit.copy.is_asked() && unit.kind == Kind::Batch)
}
