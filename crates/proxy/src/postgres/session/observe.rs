//! What the query log and the spans are told of a statement, and the trace that its comment names.

use std::borrow::Cow;

use freshet_sql::TraceParent;
use freshet_types::{Dialect, Nanos};

use crate::postgres::session::Session;
use crate::postgres::session::unit::ClientUnit;
use crate::server::query_log::Who;
use crate::server::traces::Answered;

impl Session {
    /// A statement was answered, after long enough for the query log or while there are spans.
    #[cold]
    pub(crate) fn observe(&self, answered: &Answered<'_>) {
        let about = &self.link.about;
        let who = || {
            let (user, database) = (about.user.clone(), about.database.clone());
            Who { id: self.link.id, user, database, address: about.client.map(|(_, peer)| peer.ip()) }
        };
        let by_rule = self.shared.logs_by_rule(answered.query, &self.server.who());
        self.shared.observe(answered, Dialect::Postgres, by_rule, who);
    }

    /// A statement was sent: the list of sessions tells of the one that the server answers next.
    pub(super) fn name_running(&self) {
        if let Some(unit) = self.pipeline.client_units().next() {
            self.link.name_running(unit.digest());
        }
    }

    /// A unit of the client was answered: the list of sessions tells of the next.
    pub(super) fn next_is_running(&mut self, now: Nanos) {
        let digest = self.pipeline.client_units().next().map(ClientUnit::digest);
        if let Some(digest) = digest {
            self.link.begin_running(digest, now);
            self.begin_time_limit();
        } else {
            self.link.end_running();
            self.link.note_transaction(!self.transaction.is_idle());
        }
    }

    /// The text that the client has sent has comments around it: they may name the trace of what comes next. It is taken when that is answered
    /// from the cache, or sent.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_comments<'t>(&mut self, text: &'t [u8], bare: &'t [u8]) -> Cow<'t, [u8]> {
        if self.shared.settings.traces.are_on() {
            self.client.set_trace(TraceParent::of(text, bare));
        }
        self.shared.known_text(text, bare)
    }
}
