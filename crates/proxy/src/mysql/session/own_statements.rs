//! Prepared statements of a session that shares connections: their numbers are the session's own.
//!
//! On a connection a statement has the server's number. While the session has the connection, that statement is the session's alone. When it gives the
//! connection back, the statement stays there for others ([`super::there`]), by its text, all on which its meaning may depend, and the types of parameters
//! with which it was executed: one that was executed with several is closed. On a connection that lacks it, it is prepared by Freshet before the command
//! that needs it, which then sends the types itself. The client's COM_STMT_PREPARE is always sent, so the server finds what is wrong with it.
//!
//! | command | on a connection that lacks the statement |
//! |---|---|
//! | COM_STMT_EXECUTE, COM_STMT_FETCH | it is prepared; if that fails, the error is the command's |
//! | COM_STMT_SEND_LONG_DATA | it is prepared; if that fails, the session ends, since the command has no answer |
//! | COM_STMT_RESET | the same; if that fails, COM_PING is answered like it |
//! | COM_STMT_CLOSE | nothing is sent |
//!
//! Some statements stay on the connection where they were prepared, and keep it until they are closed: [`Session::meaning_carried`].
//!
//! Before the settings change on which the meaning of texts may depend, statements of the session are prepared on its connection ([`super::held`]). They
//! keep it until they are closed, or the settings are what they were.

use std::sync::Arc;

use freshet_wire::mysql::capabilities::Status;
use freshet_wire::mysql::command as code;
use freshet_wire::mysql::error::put_error;
use freshet_wire::mysql::packet::{self, HEADER_BYTES};
use freshet_wire::mysql::response::Kind;
use freshet_wire::mysql::statement::Execute;

use crate::mysql::session::diagnostics::number_in;
use crate::mysql::session::forward::To;
use crate::mysql::session::idle::Command;
use crate::mysql::session::known::Known;
use crate::mysql::session::message::{Types, plain_types};
use crate::mysql::session::pin::Pin;
use crate::mysql::session::prepared::{FIRST, Here, Involved, LAST, Prepared, PreparedUnder};
use crate::mysql::session::row_count::RowCount;
use crate::mysql::session::there::{Key, put_close};
use crate::mysql::session::{Outcome, Session, SessionError};
use crate::statement::registry::Statement;

/// No server gives this number: those of the server are smaller, those of sessions larger.
const NOBODY: u32 = FIRST - 1;
/// `ER_MAX_PREPARED_STMT_COUNT_REACHED`
pub(super) const TOO_MANY: u16 = 1461;

/// The payload of an error.
fn error(code: u16, text: &str) -> Vec<u8> {
    let mut packet = Vec::new();
    put_error(&mut packet, &mut 1, code, Some("HY000"), text);
    packet.split_off(HEADER_BYTES)
}

/// `ER_NEED_REPREPARE`: the text of a statement does not mean any more what it meant.
pub(super) fn needs_reprepare() -> Vec<u8> {
    error(1615, "Prepared statement needs to be re-prepared")
}

/// For a client that has as many statements as Freshet remembers.
pub(super) fn too_many() -> Vec<u8> {
    error(TOO_MANY, "Can't create more than max_prepared_stmt_count statements (the limit of Freshet for one session)")
}

fn names_user_variable(normalized: &str) -> bool {
    normalized.replace("@@", "").contains('@')
}

/// Puts a number into the packet of a command that names a statement.
pub(super) fn put_number(packet: &mut [u8], number: u32) {
    if let Some(place) = packet.get_mut(HEADER_BYTES + 1..HEADER_BYTES + 5) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}

impl Session {
    /// All on which the meaning of a text depends now; None: the default database is not known.
    pub(super) fn meaning(&self) -> Option<Arc<[u8]>> {
        let database = self.default_database().ok()?;
        let pooling = self.server.pooling.as_ref()?;
        Some(pooling.carried.label.meaning(database.as_deref()))
    }

    /// That of a text for which a statement is prepared now, if the statement can go to other connections. Not one that reads the diagnostics of the
    /// statement before it, which a prepare ahead of it would replace; nor one of user variables or unknown words, or prepared while the settings may be
    /// others than those of the label.
    pub(super) fn meaning_carried(&self, statement: Option<&Arc<Statement>>, text: Option<&[u8]>) -> Option<Arc<[u8]>> {
        let statement = statement.filter(|statement| Some(statement.text()) == text)?;
        // The server may keep what type a user variable had.
        let stays = statement.query.template.reads_diagnostics() || names_user_variable(&statement.query.text);
        if stays || self.server.prepareds.are_many() { None } else { self.meaning_now() }
    }

    /// All on which the meaning of a text depends, if that is known for sure.
    fn meaning_now(&self) -> Option<Arc<[u8]>> {
        if self.has_doubts() { None } else { self.meaning() }
    }

    /// Whether the settings of the session may be others than those of its label.
    pub(super) fn has_doubts(&self) -> bool {
        self.server.pooling.as_ref().is_none_or(|pooling| pooling.has_doubts())
    }

    /// Whether the server can execute a statement at once.
    pub(super) fn is_ready(&self, number: u32) -> bool {
        let lacks = |prepared: &Prepared| prepared.own.is_some() && prepared.here().is_none();
        self.server.is_connected() && !self.server.prepareds.get(number).is_some_and(lacks)
    }

    /// The server's number of a statement of the session.
    pub(super) fn number_there(&mut self, number: u32) -> u32 {
        self.server.prepareds.of_hit(number).and_then(|prepared| prepared.here()).unwrap_or(number)
    }

    // --- on the session's connection ------------------------------------------------------------------------

    /// The settings for which a statement is prepared now.
    pub(super) fn under(&self) -> PreparedUnder {
        match &self.server.settings.known {
            Known::Context(context, under) if *under == self.shared.catalog_version() => {
                PreparedUnder::Context(context.settings)
            }
            _ => PreparedUnder::Era(self.server.settings.era),
        }
    }

    /// A statement is about to be executed on the session's connection: makes sure that it is prepared there. Returns the payload of the error if it
    /// cannot be.
    pub(super) async fn make_statement(&mut self, number: u32) -> Result<Option<Vec<u8>>, SessionError> {
        let Some(number) = self.server.prepareds.number_of(number) else { return Ok(None) };
        let Some(prepared) = self.server.prepareds.of_hit(number) else { return Ok(None) };
        if prepared.own.is_none() || prepared.here().is_some() {
            return Ok(None);
        }
        let (key, statement, parameters) = (prepared.key(), prepared.statement.clone(), prepared.parameters);
        self.wait_for_judgement().await;
        let meaning = self.meaning_now();
        let (Some(key), Ok(statement)) = (key.filter(|key| meaning == Some(key.meaning.clone())), statement) else {
            return Ok(Some(needs_reprepare()));
        };
        let there = self.server.connection.as_mut().and_then(|connection| connection.prepared.take(&key));
        let (there, types) = match there {
            Some(there) => there,
            None => match self.prepare_again(statement.text(), parameters).await? {
                Ok(number) => (number, None),
                Err(error) => return Ok(Some(error)),
            },
        };
        let under = self.under();
        if let Some(prepared) = self.server.prepareds.of_hit(number) {
            prepared.server_knows_types = types.is_some();
            prepared.under = under;
            if let Some(own) = &mut prepared.own {
                own.here = Some(Here { number: there, types, is_mixed: false });
            }
            self.server.prepareds.here.push(number);
        }
        Ok(None)
    }

    /// Prepares a text again; returns the server's number, or the payload of its error.
    async fn prepare_again(&mut self, text: &[u8], parameters: u16) -> Result<Result<u32, Vec<u8>>, SessionError> {
        self.server.answer_from = 1;
        if let Some(out) = self.server.output() {
            packet::put_with(out, &mut 0, |out| {
                out.push(code::STMT_PREPARE);
                out.extend_from_slice(text);
            });
        }
        let mut error = Vec::new();
        let done = self.answer(Kind::Prepare, To::Error(&mut error)).await?;
        if done.error == Some(TOO_MANY) {
            self.close_unused_statements();
        }
        let Some(made) = done.prepared.filter(|_| done.error.is_none()) else { return Ok(Err(error)) };
        if made.parameters != parameters {
            self.close_there(made.statement);
            return Ok(Err(needs_reprepare()));
        }
        Ok(Ok(made.statement))
    }

    /// The command at the start of the client's input executes a statement, which is prepared if need be. False: it cannot be, and the client has been
    /// told so.
    pub(super) async fn ready_statement(&mut self, command: &Command, number: u32) -> Result<bool, SessionError> {
        self.connect().await?;
        if let Some(error) = self.make_statement(number).await? {
            self.refuse(command, &error).await?;
            return Ok(false);
        }
        Ok(true)
    }

    /// The same, and puts the server's number into the command.
    pub(super) async fn reach_statement(&mut self, command: &Command, number: u32) -> Result<bool, SessionError> {
        let is_ready = self.ready_statement(command, number).await?;
        if is_ready {
            self.address(number);
        }
        Ok(is_ready)
    }

    /// Puts the server's number of a statement into the command at the start of the client's input.
    pub(super) fn address(&mut self, number: u32) {
        self.note_meaning(number);
        if let Some(there) = self.server.prepareds.get(number).and_then(Prepared::here) {
            put_number(self.client.input.bytes_mut(), there);
        }
    }

    /// A statement is about to be executed. Under other settings than at its prepare the server may prepare it anew, as after a change of its tables, so
    /// it is for no other session then.
    fn note_meaning(&mut self, number: u32) {
        let meaning = self.meaning_now();
        let own = self.server.prepareds.of_hit(number).and_then(|prepared| prepared.own.as_mut());
        if let Some(own) = own.filter(|own| own.meaning != meaning)
            && let Some(here) = &mut own.here
        {
            here.is_mixed = true;
        }
    }

    /// The command of a hit, as the server understands it on the session's connection; None: the statement cannot be executed any more.
    pub(super) async fn addressed(&mut self, command: Vec<u8>, kind: Kind) -> Result<Option<Vec<u8>>, SessionError> {
        let Some(number) = number_in(&command, kind).filter(|_| self.server.shares_statements()) else {
            return Ok(Some(command));
        };
        if let Some(error) = self.make_statement(number).await? {
            self.note_not_made(error);
            return Ok(None);
        }
        self.note_meaning(number);
        let Some(prepared) = self.server.prepareds.of_hit(number) else { return Ok(None) };
        let payload = command.get(HEADER_BYTES..).unwrap_or_default();
        let tail = Execute::parse(payload).map_or(&[][..], |execute| execute.tail);
        // Its types are in it: see `remember_bound`. The client may have sent others since.
        let types = plain_types(tail, prepared.parameters);
        let are_same = matches!(&types, Types::Here(types) if prepared.types.as_deref() == Some(&**types));
        if are_same || types == Types::None {
            prepared.tell_types();
        } else {
            prepared.forget_types_there();
        }
        let there = prepared.here().unwrap_or(number);
        let mut command = command;
        put_number(&mut command, there);
        Ok(Some(command))
    }

    /// Answers the command at the start of the client's input with an error.
    pub(super) async fn refuse(&mut self, command: &Command, error: &[u8]) -> Result<(), SessionError> {
        self.at_hand.refused.get_or_insert_with(|| error.to_vec());
        self.send_command(*command).await?;
        self.answer(Kind::Status, To::Client { fill: None, impure: false }).await?;
        (self.answer.outcome, self.answer.row_count) = (Outcome::Failed, RowCount::Rows);
        self.replay.overtaken(false);
        self.transaction_failed();
        Ok(())
    }

    /// The command at the start of the client's input names a statement that the session does not have: the server is to report that, so it must not
    /// find another one with this number.
    pub(super) async fn name_nothing(&mut self, number: Option<u32>) -> Result<(), SessionError> {
        self.connect().await?;
        let is_there = |number| {
            let Self { server, .. } = self;
            let is_others = server.connection.as_ref().is_some_and(|connection| connection.prepared.has_number(number));
            number == LAST || is_others || server.prepareds.have_here(number)
        };
        if number.is_some_and(is_there) {
            put_number(self.client.input.bytes_mut(), NOBODY);
        }
        Ok(())
    }

    // --- at rest --------------------------------------------------------------------------------------------

    /// What of the session's statements lives on its connection.
    pub(super) fn pin_of_statements(&self) -> Option<Pin> {
        let meaning = if self.server.prepareds.here.is_empty() { None } else { self.meaning() };
        let pin = |prepared: &Prepared| match prepared.involved {
            Involved::Cursor => Some(Pin::Cursor),
            Involved::LongData => Some(Pin::LongData),
            Involved::No => {
                let own = prepared.own.as_ref()?.meaning.as_ref();
                (own.is_none() || own != meaning.as_ref()).then_some(Pin::PreparedStatement)
            }
        };
        self.server.prepareds.all_here().find_map(pin)
    }

    /// Nothing holds the session on its connection: its statements stay there for others.
    pub(super) fn leave_statements(&mut self) {
        for number in self.server.prepareds.leave() {
            let Some(prepared) = self.server.prepareds.of_hit(number) else { continue };
            let key = prepared.key();
            let Some(here) = prepared.own.as_mut().and_then(|own| own.here.take()) else { continue };
            self.leave_statement(key, here);
        }
    }

    /// A statement stays on the connection for others if it is known what it is.
    fn leave_statement(&mut self, key: Option<Key>, here: Here) {
        let most = self.shared.settings.pool.prepared_max;
        let closed = match (key, &mut self.server.connection) {
            (Some(key), Some(connection)) if !here.is_mixed => {
                connection.prepared.put(Key { types: here.types, ..key }, here.number, most)
            }
            _ => Some(here.number),
        };
        if let Some(number) = closed {
            self.close_there(number);
        }
    }

    /// Closes a statement of the connection.
    fn close_there(&mut self, number: u32) {
        if let Some(out) = self.server.output() {
            put_close(out, number);
        }
    }

    /// The server has too many statements: closes those on the connection that no session uses.
    pub(super) fn close_unused_statements(&mut self) {
        let unused = self.server.connection.as_mut().map(|connection| connection.prepared.take_all());
        for number in unused.unwrap_or_default() {
            self.close_there(number);
        }
    }

    // --- commands -------------------------------------------------------------------------------------------

    /// Handles a command with a number of the session's own, other than an execution.
    pub(super) async fn about_own_statement(
        &mut self,
        command: Command,
        number: Option<u32>,
    ) -> Result<(), SessionError> {
        let known = number.and_then(|number| self.server.prepareds.number_of(number));
        let known = known.filter(|number| self.server.prepareds.get(*number).is_some());
        match command.code {
            Some(code::STMT_CLOSE) => return self.close_statement(command, known).await,
            Some(code::STMT_SEND_LONG_DATA) => return self.send_long_data(command, known).await,
            _ => {}
        }
        let Some(known) = known else {
            self.name_nothing(number).await?;
            return self.pass_about_statement(command).await;
        };
        self.connect().await?;
        if command.code == Some(code::STMT_RESET) {
            self.reset_statement(command, known).await
        } else {
            self.fetch(command, known).await
        }
    }

    async fn reset_statement(&mut self, command: Command, number: u32) -> Result<(), SessionError> {
        if let Some(prepared) = self.server.prepareds.get_mut(number) {
            prepared.involved = Involved::No;
        }
        if let Some(error) = self.make_statement(number).await? {
            self.note_not_made(error);
            let mut ping = Vec::new();
            packet::put(&mut ping, &mut 0, &[code::PING]);
            self.at_hand.rewritten = Some((ping, command.header.packet_bytes()));
        }
        self.address(number);
        self.pass_about_statement(command).await
    }

    async fn fetch(&mut self, command: Command, number: u32) -> Result<(), SessionError> {
        if !self.reach_statement(&command, number).await? {
            return Ok(());
        }
        self.pass_about_statement(command).await?;
        if self.status.has(Status::LAST_ROW_SENT)
            && let Some(prepared) = self.server.prepareds.get_mut(number)
        {
            prepared.involved = Involved::No;
            self.status = self.status.without(Status::LAST_ROW_SENT);
        }
        Ok(())
    }

    async fn close_statement(&mut self, command: Command, known: Option<u32>) -> Result<(), SessionError> {
        if !command.whole || command.header.continues() {
            self.connect().await?;
            put_number(self.client.input.bytes_mut(), 0);
            return self.send_command(command).await;
        }
        self.client.input.consume(command.header.packet_bytes());
        let Some((number, prepared)) = known.and_then(|number| self.server.prepareds.take(number)) else {
            return Ok(());
        };
        if self.replay.runs(number) {
            self.server.prepareds.close_later(number, prepared);
        } else {
            self.server.prepareds.here.retain(|other| *other != number);
            self.drop_statement(prepared);
        }
        Ok(())
    }

    /// The statements that the client has closed, and that were kept for a hit, are not executed any more.
    pub(super) fn drop_closed_statements(&mut self) {
        if self.server.prepareds.are_closing() {
            for prepared in self.server.prepareds.take_closed(|number| self.replay.runs(number)) {
                self.drop_statement(prepared);
            }
        }
    }

    /// The session has a statement no more.
    fn drop_statement(&mut self, mut prepared: Prepared) {
        let key = prepared.key();
        let Some(here) = prepared.own.as_mut().and_then(|own| own.here.take()) else { return };
        let is_plain = prepared.involved == Involved::No && !self.has_doubts();
        let is_same = |key: &Key| is_plain && self.meaning().as_ref() == Some(&key.meaning);
        let key = key.filter(is_same);
        self.leave_statement(key, here);
    }

    async fn send_long_data(&mut self, command: Command, known: Option<u32>) -> Result<(), SessionError> {
        self.connect().await?;
        let Some(number) = known else {
            put_number(self.client.input.bytes_mut(), 0);
            return self.send_command(command).await;
        };
        // The piece does not belong to the hit.
        if self.replay.runs(number) {
            self.replay_now().await?;
        }
        let error = match self.at_hand.refused.take() {
            None => self.make_statement(number).await?,
            error => error,
        };
        if let Some(error) = error {
            // A piece has no answer, and a value without it must never be stored: the session ends, with the answer to what comes next.
            packet::put(self.client.output.buffer(), &mut 1, &error);
            return Err(SessionError::NoConnection);
        }
        let there = self.number_there(number);
        if let Some(prepared) = self.server.prepareds.get_mut(number) {
            prepared.involved = Involved::LongData;
        }
        put_number(self.client.input.bytes_mut(), there);
        self.send_command(command).await
    }
}
