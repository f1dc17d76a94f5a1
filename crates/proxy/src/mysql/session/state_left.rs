//! What a command of a session in transaction mode leaves on its server connection: settings of its label, pins, diagnostics.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use freshet_sql::{Code, Effect};
use freshet_wire::mysql::error::put_error;
use freshet_wire::mysql::response::Done;

use crate::mysql::session::label::{may_set_meaning, sets_user_variables};
use crate::mysql::session::mark::Mark;
use crate::mysql::session::pin::Pin;
use crate::mysql::session::pooling::{Pooling, Unjudged};
use crate::mysql::session::{Session, SessionError};
use crate::statement::registry::{StateLeft, Statement, first_word};

impl Session {
    /// A statement is about to be sent that may change the meaning of the last hit's text: its rows are counted while it has the same. Not if the
    /// warnings of a later statement would be lost, which the server counts in its answer.
    pub(super) async fn count_before_change(&mut self) -> Result<(), SessionError> {
        if self.server.pooling.is_some() && self.replay.is_text_needed() && !self.answer.warned {
            self.replay_now().await?;
        }
        Ok(())
    }

    /// Answers a read of `@@last_gtid` with an error, if that of the connection may be another session's; false: it may not. From then on sessions
    /// keep the connection on which they have written, so it can be the first only.
    pub(super) fn refuse_last_gtid(&mut self, statement: &Statement) -> bool {
        let Some(pooling) = self.server.pooling.as_ref().filter(|pooling| pooling.shares()) else { return false };
        if !self.server.about.version.is_mariadb || !names(&statement.query.text, "last_gtid") {
            return false;
        }
        self.shared.reads_last_gtid.store(true, Relaxed);
        let is_refused = !pooling.wrote_here;
        if is_refused {
            let text = "@@last_gtid is not known: the session has not written on this shared connection";
            put_error(self.client.output.buffer(), &mut 1, 1105, Some("HY000"), text);
        }
        is_refused
    }

    /// A command was answered: notes what it leaves on the connection.
    pub(super) fn note_state(
        &mut self,
        mark: Mark,
        statement: Option<&Arc<Statement>>,
        unread: Option<&Arc<Code>>,
        done: &Done,
    ) {
        let (before, is_prepared) = (self.at_hand.code_before.take(), std::mem::take(&mut self.at_hand.is_prepared));
        let before = before.or_else(|| mark.runs_stored_code().then(|| self.shared.catalog.load_full()));
        let reads_last_gtid = self.shared.reads_last_gtid.load(Relaxed);
        let schemas = &self.server.settings.schemas;
        let Some(pooling) = &mut self.server.pooling else { return };
        let failed = done.error.is_some();
        pooling.wrote_here |= mark.writes;
        pooling.resting.has_lost = false;
        if mark.writes && reads_last_gtid {
            pooling.lasting.add(Pin::LastGtid);
        }
        let Some(statement) = statement else {
            if mark.runs_stored_code() || unread.is_some() {
                pooling.insert_id = None;
                // The words of a long query or write of rows tell what it may leave, together with the code that it runs.
                match unread.filter(|code| mark.effect == Effect::Write && !code.may_leave_state()) {
                    Some(code) => pooling.ran(Unjudged::new(None, code, schemas, before.as_deref())),
                    None => pooling.lasting.add(Pin::Unknown),
                }
            }
            return;
        };
        let plain = (done.results, done.result_sets, failed) == (1, 0, false);
        if may_generate(statement) && !(plain && done.insert_id == 0) || mark.runs_stored_code() {
            pooling.insert_id = None;
        }
        if mark.runs_stored_code() {
            pooling.ran(Unjudged::new(Some(statement), statement.query.code(), schemas, before.as_deref()));
        }
        pooling.note_left(statement, failed, is_prepared);
    }
}

impl Pooling {
    /// A SET without parameters has succeeded: whether what it has set goes with the session.
    fn carries(&mut self, normalized: &str, text: &[u8], is_prepared: bool) -> bool {
        if sets_user_variables(normalized) {
            // A text that was prepared may have been read under other settings.
            return !is_prepared && self.carried.variables.set(normalized, text);
        }
        // Texts in user variables would have another character set if they were set again.
        let is_clear =
            self.carried.variables.are_none() || self.carried.label.has(text) || !may_set_meaning(normalized);
        is_clear && self.carried.label.set(normalized, text)
    }

    fn note_left(&mut self, statement: &Statement, failed: bool, is_prepared: bool) {
        let text = &statement.query.text;
        let mut words = text.split_ascii_whitespace().map(str::to_ascii_lowercase);
        let second = words.nth(1).unwrap_or_default();
        match statement.query.state_left() {
            // It is for the next transaction.
            StateLeft::Setting if second == "transaction" => {}
            StateLeft::Setting if failed && !text.contains(',') => {}
            StateLeft::Setting
                if !failed && statement.own_params == 0 && self.carries(text, statement.text(), is_prepared) =>
            {
                self.regroup();
            }
            StateLeft::Setting if sets_user_variables(text) => self.lasting.add(Pin::UserVariable),
            StateLeft::Setting => self.lasting.add(Pin::Setting),
            StateLeft::NoNamedLocks if !failed => self.lasting.remove(Pin::NamedLock),
            StateLeft::Xa if !failed && ["commit", "rollback"].contains(&second.as_str()) => {
                self.lasting.remove(Pin::Xa);
            }
            state => self.lasting.left(state),
        }
    }
}

/// Whether a statement may change LAST_INSERT_ID() by itself.
fn may_generate(statement: &Statement) -> bool {
    let text = &statement.query.text;
    let inserts = ["insert", "replace", "load"].into_iter().any(|word| word.eq_ignore_ascii_case(first_word(text)));
    inserts || names(text, "last_insert_id")
}

fn names(text: &str, name: &str) -> bool {
    text.as_bytes().windows(name.len()).any(|window| window.eq_ignore_ascii_case(name.as_bytes()))
}
