//! Statements that the operator's rules refuse.

use std::sync::Arc;

use freshet_types::Reason;
use freshet_wire::mysql::error::put_error;

use crate::mysql::session::Session;
use crate::statement::registry::Statement;

/// Code of the error that the user may not run a statement on a table.
const TABLE_ACCESS_DENIED: u16 = 1142;

impl Session {
    /// Answers a statement that a rule refuses; false: none does.
    pub(crate) fn refuse_by_rule(&mut self, statement: &Arc<Statement>) -> bool {
        let Some(message) = self.shared.rules.refusal(statement.subject(), &self.server.who()) else {
            return false;
        };
        self.at_hand.trace = None;
        self.note_passed(Some(statement), &Reason::Refused);
        put_error(self.client.output.buffer(), &mut 1, TABLE_ACCESS_DENIED, Some("42000"), &message);
        true
    }
}
