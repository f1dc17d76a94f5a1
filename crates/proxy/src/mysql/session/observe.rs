//! What the query log and the spans are told of a statement, and the trace that its comment names.

use freshet_sql::TraceParent;
use freshet_types::Dialect;

use crate::mysql::session::Session;
use crate::server::query_log::Who;
use crate::server::traces::Answered;

impl Session {
    /// A statement was answered, after long enough for the query log or while there are spans.
    #[cold]
    pub(crate) fn observe(&self, answered: &Answered<'_>) {
        let about = &self.server.about;
        let who = || {
            // Empty where it is not known: the session may have chosen another one since its login.
            let (user, database) = (about.user.clone(), self.server.who().database.to_owned());
            Who { id: self.server.link.id, user, database, address: self.client.socket().peer_ip() }
        };
        let dialect = if about.version.is_mariadb { Dialect::MariaDb } else { Dialect::MySql };
        self.shared.observe(answered, dialect, who);
    }

    /// The text of the command at hand has comments around it, which may name its trace.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_comments(&mut self, text: &[u8], bare: &[u8]) {
        if self.shared.settings.traces.are_on() {
            self.at_hand.trace = TraceParent::of(text, bare);
        }
    }
}
