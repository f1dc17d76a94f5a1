//! COM_STMT_PREPARE.

use std::sync::Arc;

use freshet_types::Reason;
use freshet_wire::mysql::packet::HEADER_BYTES;
use freshet_wire::mysql::response::{Done, Kind};

use crate::mysql::session::forward::To;
use crate::mysql::session::idle::Command;
use crate::mysql::session::known::Known;
use crate::mysql::session::mark::Mark;
use crate::mysql::session::own_statements::{TOO_MANY, too_many};
use crate::mysql::session::prepared::{Here, Own, Prepared};
use crate::mysql::session::row_count::RowCount;
use crate::mysql::session::temporaries::Reading;
use crate::mysql::session::{Session, SessionError};

impl Session {
    pub(crate) async fn prepare(&mut self, command: Command) -> Result<(), SessionError> {
        let text = self.client.input.bytes().get(HEADER_BYTES + 1..command.header.packet_bytes());
        let text = text.filter(|_| command.whole).map(<[u8]>::to_vec);
        let statement = match &text {
            Some(text) => {
                self.ask_to_prepare(text).await?;
                let is_known = self.server.settings.reading.tells_names(text);
                if is_known { self.statement(text) } else { Err(Reason::NotParsed) }
            }
            None => Err(Reason::TooLong),
        };
        let is_own = self.server.shares_statements();
        if is_own && self.server.prepareds.are_full() {
            self.server.prepareds.forget_last();
            return self.refuse(&command, &too_many()).await;
        }
        if statement.as_ref().is_ok_and(|statement| self.refuse_by_rule(statement)) {
            self.server.prepareds.forget_last();
            self.client.input.consume(command.header.packet_bytes());
            return Ok(());
        }
        self.at_hand.reading = statement.is_err().then(|| Reading::new(self.server.settings.quoting(), 1));
        if statement.as_ref().map_or(true, |statement| statement.query.template.reads_diagnostics()) {
            self.replay_hit(text.as_deref().unwrap_or_default()).await?;
        }
        let catalog = self.shared.catalog_version();
        let under = self.under();
        let meaning = self.meaning_carried(statement.as_ref().ok(), text.as_deref());
        self.at_hand.number = is_own.then(|| self.server.prepareds.give_number());
        let number = self.at_hand.number;
        let was = self.status;
        self.send_command(command).await?;
        let unread = self.at_hand.reading.take().map(|reading| Arc::new(reading.finish()));
        let done = self.answer(Kind::Prepare, To::Client { fill: None, impure: false }).await?;
        self.at_hand.number = None;
        // Otherwise the diagnostics are still those of a hit before it.
        if done.error.is_some() || done.warnings > 0 {
            self.replay.overtaken(false);
        }
        match done.prepared {
            Some(made) if done.error.is_none() => {
                let here = Here { number: made.statement, types: None, is_mixed: false };
                let own = number.map(|_| Own { meaning, here: Some(here), used: 0 });
                let parameters = made.parameters;
                let prepared = Prepared { unread, own, ..Prepared::new(statement, under, (catalog, parameters)) };
                self.server.prepareds.insert(number.unwrap_or(made.statement), prepared);
                if !self.server.about.version.is_mariadb {
                    self.server.prepareds.forget_last();
                }
            }
            _ => self.server.prepareds.forget_last(),
        }
        if done.error.is_some() {
            self.not_prepared(&done);
            return Ok(());
        }
        self.after(&Mark::NOTHING, None, &done, was).await
    }

    /// The server has refused to prepare a statement: nothing was executed.
    fn not_prepared(&mut self, done: &Done) {
        if done.error == Some(TOO_MANY) {
            self.close_unused_statements();
        }
        self.answer.warned |= self.server.pooling.is_some();
        self.answer.row_count = RowCount::Rows;
        self.note_state(Mark::NOTHING, None, None, done);
    }

    /// Asks for the context if the text can be parsed only with it. COM_STMT_PREPARE leaves ROW_COUNT() as it is, so the question must, too.
    async fn ask_to_prepare(&mut self, text: &[u8]) -> Result<(), SessionError> {
        let is_behind_hit = self.replay.last_hit().is_some();
        if self.answer.row_count == RowCount::Other && !is_behind_hit {
            return Ok(());
        }
        let was_known = !matches!(self.server.settings.known, Known::Nothing);
        self.ask_to_read(text, true).await?;
        let was_asked = !was_known && !matches!(self.server.settings.known, Known::Nothing);
        if was_asked && self.answer.row_count == RowCount::Zero && !is_behind_hit {
            self.server.put_query(b"DO 0");
            self.hear().await?;
        }
        Ok(())
    }
}
