//! Prepared statements ahead of changed settings.
//!
//! A statement means what its text meant at its prepare ([`super::own_statements`]). Before the settings change on which that may depend, the session's
//! statements are prepared on its connection: all of them if nobody will know what the settings are then, else those that it has used last. The others are
//! refused while the settings differ.

use std::sync::Arc;

use freshet_sql::Code;
use freshet_wire::mysql::packet;
use freshet_wire::mysql::response::Done;

use crate::mysql::session::label::{may_set_meaning, sets_constants, sets_user_variables};
use crate::mysql::session::mark::Mark;
use crate::mysql::session::own_statements::TOO_MANY;
use crate::mysql::session::row_count::RowCount;
use crate::mysql::session::transaction::Answered;
use crate::mysql::session::{Session, SessionError};
use crate::statement::registry::{StateLeft, Statement};

/// Statements that are prepared ahead of settings that will be known. Each may wait for a lock of its tables.
pub(super) const HELD_MAX: usize = 16;

/// Errors about a text that was right once, beside those of the class 42: a column that is ambiguous, or one too many; no database; a view or its definer
/// that is not valid; collations that do not fit; a statement to be prepared again; a table that is not among the locked ones; a read-only transaction.
const OF_TEXTS: [u16; 10] = [1052, 1136, 1046, 1356, 1449, 1267, 1615, 1099, 1100, 1792];

/// Words of what reads the diagnostics of the statement before it.
pub(super) const DIAGNOSTICS: [&str; 7] =
    ["row_count", "found_rows", "warnings", "errors", "diagnostics", "warning_count", "error_count"];

/// The number of an error.
fn number_of(error: &[u8]) -> u16 {
    let number = error.get(1..).and_then(|bytes| bytes.first_chunk());
    number.map_or(0, |number| u16::from_le_bytes(*number))
}

/// Whether an error says that what a text names is gone, or that the right to it is.
fn is_gone(error: &[u8]) -> bool {
    let number = number_of(error);
    let is_of_class = error.get(3..).is_some_and(|rest| rest.starts_with(b"#42")) && number != TOO_MANY;
    is_of_class || OF_TEXTS.contains(&number)
}

/// Whether a statement may drop the default database.
fn may_drop_database(normalized: &str) -> bool {
    let mut words = normalized.split_ascii_whitespace();
    let is = |word: Option<&str>, name: &str| word.is_some_and(|word| word.eq_ignore_ascii_case(name));
    let (first, second) = (words.next(), words.next());
    is(first, "drop") && (is(second, "database") || is(second, "schema"))
}

fn reads_diagnostics(code: &Code) -> bool {
    code.words().any(|word| DIAGNOSTICS.contains(&word))
}

impl Session {
    /// A statement is about to be sent that may change the meaning of the session's statements: they are prepared on its connection first.
    pub(super) async fn hold_statements_before(&mut self, statement: &Arc<Statement>) -> Result<(), SessionError> {
        if !self.server.shares_statements() || !self.server.prepareds.are_elsewhere() {
            return Ok(());
        }
        let query = &statement.query;
        let is_set = || self.server.pooling.as_ref().is_some_and(|pooling| pooling.carried.label.has(statement.text()));
        let most = match query.state_left() {
            StateLeft::Setting if sets_user_variables(&query.text) || !may_set_meaning(&query.text) => None,
            StateLeft::Setting if sets_constants(&query.text) => (!is_set()).then_some(HELD_MAX),
            StateLeft::Database => Some(HELD_MAX),
            StateLeft::Setting | StateLeft::Anything | StateLeft::NamedStatement => Some(usize::MAX),
            _ => None,
        };
        let runs_code = || {
            let catalog = self.shared.catalog.load();
            let is_known = || self.shared.cache.reflects(self.watermark.get(), catalog.version);
            let may_leave = || query.code().temporaries(&catalog.stored_code).may_leave_state();
            self.mark(Some(statement)).runs_stored_code() && (!is_known() || may_leave())
        };
        let may_set = most.is_none() && (may_drop_database(&query.text) || runs_code());
        match most.or(may_set.then_some(usize::MAX)) {
            Some(most) if !self.has_diagnostics() || !reads_diagnostics(query.code()) => {
                self.hold_statements(most).await
            }
            _ => Ok(()),
        }
    }

    /// The same before a text of which only the words are known, or not even these.
    pub(super) async fn hold_statements_before_code(&mut self, code: Option<&Code>) -> Result<(), SessionError> {
        if self.has_diagnostics() && code.is_some_and(reads_diagnostics) {
            return Ok(());
        }
        self.hold_statements(usize::MAX).await
    }

    /// Whether there is something to read for a statement that reads diagnostics, which a prepare may replace.
    fn has_diagnostics(&self) -> bool {
        self.answer.warned || self.answer.row_count == RowCount::Other
    }

    /// Prepares those of the session's statements on its connection that are not; at most so many.
    pub(super) async fn hold_statements(&mut self, most: usize) -> Result<(), SessionError> {
        if !self.server.shares_statements() || !self.server.prepareds.are_elsewhere() || self.has_doubts() {
            return Ok(());
        }
        let Some(meaning) = self.meaning() else { return Ok(()) };
        for number in self.server.prepareds.elsewhere(&meaning, most) {
            if let Some(error) = self.make_statement(number).await? {
                self.note_not_made(error);
            }
            if self.at_hand.refused.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// A statement could not be prepared ahead of the client's command. If that is not for its text, the error may have ended the transaction, so the
    /// client receives it in place of the answer to its command.
    pub(super) fn note_not_made(&mut self, error: Vec<u8>) {
        if !is_gone(&error) && self.at_hand.refused.is_none() {
            self.at_hand.refused = Some(error);
        }
    }

    /// Answers a command that was not sent.
    pub(super) fn answer_refused(&mut self, error: &[u8]) -> Done {
        self.at_hand.timeout = None;
        let mut sequence = std::mem::replace(&mut self.server.answer_from, 1);
        packet::put(self.client.output.buffer(), &mut sequence, error);
        Done { error: Some(number_of(error)), ..Done::default() }
    }

    /// The server has refused to prepare a statement again: that may have ended the transaction.
    pub(super) fn transaction_failed(&mut self) {
        let was_in_transaction = self.transaction.is_within_block();
        if was_in_transaction {
            let answered = Answered { failed: true, rows: 0, was_in_transaction, proven: None, now: self.now() };
            self.follow_block(Mark::NOTHING, answered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_texts_that_were_right_once() {
        let error =
            |number: u16, state: &str| [&[0xff], &number.to_le_bytes()[..], b"#", state.as_bytes(), b"x"].concat();
        for (number, state, gone) in [
            (1146, "42S02", true),
            (1142, "42000", true),
            (1356, "HY000", true),
            (1213, "40001", false),
            (1205, "HY000", false),
            (1461, "42000", false),
            (1317, "70100", false),
        ] {
            assert_eq!((is_gone(&error(number, state)), number_of(&error(number, state))), (gone, number));
        }
    }
}
