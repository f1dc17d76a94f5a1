//! Dispatches commands.

use freshet_wire::mysql::command as code;
use freshet_wire::mysql::packet::HEADER_BYTES;
use freshet_wire::mysql::response::{Answer, Kind};

use freshet_sql::{Bracket, Effect};
use freshet_types::Reason;

use crate::mysql::kills::Kill;
use crate::mysql::session::diagnostics::Replay;
use crate::mysql::session::forward::To;
use crate::mysql::session::held::HELD_MAX;
use crate::mysql::session::idle::Command;
use crate::mysql::session::mark::Mark;
use crate::mysql::session::prepared::Involved;
use crate::mysql::session::row_count::RowCount;
use crate::mysql::session::track::Track;
use crate::mysql::session::{Session, SessionError};

/// `COM_CREATE_DB`, `COM_DROP_DB`, `COM_SHUTDOWN`: obsolete, but some servers still know them.
const CREATE_DB: u8 = 0x05;
const DROP_DB: u8 = 0x06;
const REFRESH: u8 = 0x07;
const SHUTDOWN: u8 = 0x08;

impl Session {
    /// Handles the command at the start of the client's input; false if the session ends.
    pub(crate) async fn command(&mut self, command: Command) -> Result<bool, SessionError> {
        if self.replay.has_closed()
            && let Some(out) = self.server.output()
        {
            self.replay.put_closed(out);
        }
        self.drop_closed_statements();
        match command.code {
            // A hit needs no connection.
            Some(code::QUERY) => {}
            Some(code::STMT_EXECUTE | code::STMT_CLOSE) if self.server.shares_statements() => {}
            Some(code::QUIT) if !self.server.is_connected() => return Ok(false),
            Some(code::PROCESS_KILL) if self.process_kill(command).await? => return Ok(true),
            _ if self.server.is_connected() => {}
            _ => self.connect().await?,
        }
        match command.code {
            Some(code::QUERY) => self.query(command).await?,
            Some(code::STMT_EXECUTE) => self.execute(command).await?,
            Some(code::STMT_PREPARE) => self.prepare(command).await?,
            Some(code::STMT_BULK_EXECUTE) => self.bulk_execute(command).await?,
            Some(code::QUIT) => {
                self.send_command(command).await?;
                return Ok(false);
            }
            Some(code::STMT_CLOSE | code::STMT_SEND_LONG_DATA | code::STMT_RESET | code::STMT_FETCH) => {
                self.about_statement(command).await?;
            }
            Some(code::INIT_DB) => self.init_db(command).await?,
            Some(code::SET_OPTION) => {
                self.hold_statements(usize::MAX).await?;
                self.simple(command, Mark::NOTHING).await?;
                self.server.keep_connection();
            }
            Some(code::CHANGE_USER) if command.whole => {
                self.settle_sent_ahead().await?;
                return self.change_user(command).await;
            }
            Some(code::RESET_CONNECTION) => self.reset_connection(command).await?,
            Some(
                code::PING
                | code::STATISTICS
                | code::PROCESS_KILL
                | code::DEBUG
                | code::FIELD_LIST
                | code::PROCESS_INFO
                | code::REGISTER_REPLICA
                | REFRESH,
            ) => self.simple(command, Mark::NOTHING).await?,
            Some(CREATE_DB | DROP_DB | SHUTDOWN) => {
                let definition =
                    Mark { effect: Effect::Definition, bracket: Some(Bracket::End), writes: true, ..Mark::NOTHING };
                self.simple(command, definition).await?;
            }
            // The binlog, and unknown commands: only the client can interpret the answer.
            _ => {
                self.settle_sent_ahead().await?;
                self.shared.cache.fence_since(self.now());
                self.raw().await?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Passes a command, whose effects are in the mark.
    pub(crate) async fn simple(&mut self, command: Command, mark: Mark) -> Result<(), SessionError> {
        let number = command.code.unwrap_or_default();
        let Answer::Packets(kind) = Answer::to(&[number]) else {
            return self.send_command(command).await;
        };
        self.replay_for_transaction(None).await?;
        if number != code::STATISTICS {
            // It sets ROW_COUNT(), and leaves the warnings.
            self.replay_for_warnings().await?;
            self.replay.overtaken(false);
        }
        self.before_sending(mark, None);
        let (was, row_count) = (self.status, self.answer.row_count);
        self.send_command(command).await?;
        let done = self.answer(kind, To::Client { fill: None, impure: mark.writes }).await?;
        self.after(&mark, None, &done, was).await?;
        // MySQL warns that it is deprecated, and does not count that in the answer.
        self.answer.warned |= number == code::FIELD_LIST && self.server.pooling.is_some();
        self.answer.row_count = RowCount::behind_command(number, &done, row_count);
        Ok(())
    }

    /// COM_PROCESS_KILL of a session that shares connections; false: it is for the server.
    async fn process_kill(&mut self, command: Command) -> Result<bool, SessionError> {
        let packet = command.header.packet_bytes();
        let bytes = self.client.input.bytes().get(HEADER_BYTES + 1..packet).filter(|_| command.whole);
        let number = bytes.and_then(|bytes| bytes.first_chunk()).map(|number| u32::from_le_bytes(*number));
        let Some(number) = number else { return Ok(false) };
        let is_done = self.kill(Kill { number, query: false }).await?;
        if is_done {
            self.client.input.consume(packet);
        }
        Ok(is_done)
    }

    /// Handles a command with a statement's number.
    async fn about_statement(&mut self, command: Command) -> Result<(), SessionError> {
        let number = self.number_at_hand(&command).await?;
        if self.server.shares_statements() {
            return self.about_own_statement(command, number).await;
        }
        let prepared = number.and_then(|number| self.server.prepareds.get_mut(number));
        match command.code {
            Some(code::STMT_SEND_LONG_DATA) => {
                if let Some(prepared) = prepared {
                    prepared.involved = Involved::LongData;
                }
                // The piece does not belong to the hit.
                let number = number.and_then(|number| self.server.prepareds.number_of(number));
                if number.is_some_and(|number| self.replay.runs(number)) {
                    self.replay_now().await?;
                }
                self.send_command(command).await
            }
            Some(code::STMT_CLOSE) => {
                let closed = number.and_then(|number| self.server.prepareds.remove(number));
                match closed.filter(|number| command.whole && self.replay.runs(*number)) {
                    Some(number) => {
                        self.replay.close(number);
                        self.client.input.consume(command.header.packet_bytes());
                        Ok(())
                    }
                    None => self.send_command(command).await,
                }
            }
            Some(code::STMT_RESET) => {
                if let Some(prepared) = prepared {
                    prepared.involved = Involved::No;
                }
                self.simple(command, Mark::NOTHING).await
            }
            _ => self.pass_about_statement(command).await,
        }
    }

    /// COM_STMT_RESET or COM_STMT_FETCH.
    pub(super) async fn pass_about_statement(&mut self, command: Command) -> Result<(), SessionError> {
        if command.code == Some(code::STMT_RESET) {
            return self.simple(command, Mark::NOTHING).await;
        }
        self.count_passed(&Reason::MessageShape);
        self.simple(command, Mark { reads: true, ..Mark::NOTHING }).await
    }

    /// The number of the statement that the current command names.
    pub(crate) async fn number_at_hand(&mut self, command: &Command) -> Result<Option<u32>, SessionError> {
        let packet = command.header.packet_bytes().min(HEADER_BYTES + 5);
        self.client.receive_at_least(packet).await?;
        let bytes = self.client.input.bytes().get(HEADER_BYTES + 1..packet).unwrap_or_default();
        let number = bytes.first_chunk().map(|number| u32::from_le_bytes(*number));
        if let Some(number) = number.filter(|_| command.code != Some(code::STMT_CLOSE) || self.server.is_connected()) {
            self.close_before(number).await?;
        }
        Ok(number)
    }

    async fn init_db(&mut self, command: Command) -> Result<(), SessionError> {
        let bytes = self.client.input.bytes().get(HEADER_BYTES + 1..command.header.packet_bytes());
        let name = bytes.and_then(|name| std::str::from_utf8(name).ok()).map(str::to_owned);
        let was = self.status;
        self.replay_for_warnings().await?;
        self.count_before_change().await?;
        self.replay_for_transaction(None).await?;
        self.replay.overtaken(false);
        if !self.server.settings.is_in(name.as_deref().unwrap_or_default().as_bytes()) {
            self.hold_statements(HELD_MAX).await?;
        }
        self.send_command(command).await?;
        let done = self.answer(Kind::Status, To::Client { fill: None, impure: false }).await?;
        if done.error.is_none() {
            self.server.settings.use_database(name.as_deref());
        }
        self.after(&Mark::NOTHING, None, &done, was).await
    }

    async fn reset_connection(&mut self, command: Command) -> Result<(), SessionError> {
        let was = self.status;
        self.send_command(command).await?;
        let done = self.answer(Kind::Status, To::Client { fill: None, impure: false }).await?;
        if done.error.is_none() {
            let mut replay = std::mem::take(&mut self.replay);
            self.begin_anew();
            replay.begin_anew(self.capabilities());
            self.replay = replay;
            self.note_status(done.status.unwrap_or(self.status));
            self.transaction.reset(self.autocommits(), self.server.settings.era);
        }
        self.after(&Mark::NOTHING, None, &done, was).await
    }

    /// The session is reset: its state is forgotten.
    pub(crate) fn begin_anew(&mut self) {
        self.server.begin_anew();
        self.track = Track::default();
        self.replay = Replay::default();
    }
}
