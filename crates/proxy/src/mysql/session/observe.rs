//! What the query log and the spans are told of a statement, and the trace that its comment names.

use std::borrow::Cow;

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
        let by_rule = self.shared.logs_by_rule(answered.query, &self.server.who());
        self.shared.observe(answered, dialect, by_rule, who);
    }

    /// The text of the command at hand has comments around it, which may name its trace. Returns the text by which the statement is known.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_comments<'t>(&mut self, text: &'t [u8], bare: &'t [u8]) -> Cow<'t, [u8]> {
        if self.shared.settings.traces.are_on() {
            self.at_hand.trace = TraceParent::of(text, bare);
        }
        self.shared.known_text(text, bare)
    }
}
