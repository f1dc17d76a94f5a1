//! What the query log and the spans are told of a statement, and the trace that its comment names.

use freshet_sql::TraceParent;
use freshet_types::Dialect;

use crate::postgres::session::Session;
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
        self.shared.observe(answered, Dialect::Postgres, who);
    }

    /// The text that the client has sent has comments around it: they may name the trace of what comes next. It is taken when that is answered
    /// from the cache, or sent.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_comments(&mut self, text: &[u8], bare: &[u8]) {
        if self.shared.settings.traces.are_on() {
            self.client.set_trace(TraceParent::of(text, bare));
        }
    }
}
