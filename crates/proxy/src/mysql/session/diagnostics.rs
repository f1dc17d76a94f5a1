//! The diagnostics that a statement leaves for the next one: FOUND_ROWS(), ROW_COUNT(), warnings.
//!
//! A hit leaves none on the server. So the session remembers the last hit. Before a later statement that may read its diagnostics, the server
//! executes the hit, and the answer is dropped. Any other statement that the server executes replaces the diagnostics of the hit, except the number
//! of rows found, which only some statements count. The number of a hit's rows is known from its answer, unless it has a LIMIT. Before a statement
//! that may or may not count rows, the hit is executed.
//!
//! `SELECT SQL_CALC_FOUND_ROWS … LIMIT` is always followed by `SELECT FOUND_ROWS()`. If the first were executed for the second, the hit would save
//! nothing. So the answer to the second is cached with the first: a session that asks directly after a hit receives the answer that the session of
//! the fill received.
//!
//! Without autocommit a hit also leaves an open transaction.
//!
//! A client may close a statement directly after its hit (COM_STMT_CLOSE, which has no answer). As long as the hit may be executed on the server,
//! that command waits: it is sent after the hit, or once another statement has replaced the hit.

mod elsewhere;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use freshet_sql::{Bracket, Effect};
use freshet_wire::mysql::capabilities::{Capabilities, Status};
use freshet_wire::mysql::packet::HEADER_BYTES;
use freshet_wire::mysql::response::{Done, Kind};

use crate::mysql::session::answer::without_status;
use crate::mysql::session::diagnostics::elsewhere::Elsewhere;
use crate::mysql::session::forward::To;
use crate::mysql::session::known::Allowed;
use crate::mysql::session::mark::Mark;
use crate::mysql::session::row_count::RowCount;
use crate::mysql::session::settings::put_query;
use crate::mysql::session::there::put_close;
use crate::mysql::session::{Session, SessionError};
use crate::session::body::FoundRows;
use crate::statement::registry::{Leaves, NormalizedQuery, Statement};

/// The capacity of the buffer that stays allocated.
const KEEP_BYTES: usize = 4 << 10;

/// Limit of rows of a hit that are counted.
const ROWS_MAX: u32 = 10_000;
/// Limit of rows that are found again only for their number.
const FOUND_AGAIN_MAX: u32 = 1_000_000;

/// A statement behind which ROW_COUNT() is 0, and that leaves FOUND_ROWS() as it is.
const CHANGE_NOTHING: &[u8] = b"SET @@sql_warnings = @@sql_warnings";

/// Errors of a query that was running, whose columns may not have been sent: a subquery with more than one row, a value out of range, a division by
/// zero, a lock not granted, a deadlock, a KILL, a time-out.
const WHILE_RUNNING: [u16; 7] = [1242, 1690, 1365, 1205, 1213, 1317, 1969];

/// The position of the statement's number in the packet of an execution.
const NUMBER: Range<usize> = HEADER_BYTES + 1..HEADER_BYTES + 5;

/// The number of rows that FOUND_ROWS() counts after an answer, if it is the number of the answer's rows.
pub(crate) fn rows_found(query: &NormalizedQuery, done: &Done) -> Option<u32> {
    u32::try_from(done.rows).ok().filter(|rows| *rows <= ROWS_MAX && query.finds().as_answered)
}

/// A query that finds this number of rows, and reads no table.
fn finding(rows: u32) -> String {
    let ten = ["SELECT 1"; 10].join(" UNION ALL ");
    let mut tables = Vec::new();
    let mut reached = 1;
    while reached < rows {
        tables.push(format!("({ten}) f{}", tables.len()));
        reached *= 10;
    }
    let from = if tables.is_empty() { String::new() } else { format!(" FROM {}", tables.join(", ")) };
    format!("SELECT 1{from} LIMIT {rows}")
}

/// The last hit.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    /// Its command, as a packet; empty if the server has executed the last statement.
    command: Vec<u8>,
    kind: Option<Kind>,
    /// It read tables, so for the client it has opened a transaction.
    opened: bool,
    /// The hit that has opened one, if the last hit came after it and reads no table.
    opener: Option<(Vec<u8>, Kind)>,
    /// The number of rows that it found, if known.
    pub(crate) rows: Option<u32>,
    /// The number of rows found that a query of Freshet's own has just replaced.
    pub(crate) displaced: Option<u32>,
    /// Since then the server has executed a statement that did not count rows.
    rows_only: bool,
    /// There was a SELECT, or an unknown statement.
    selected: bool,
    /// Numbers of statements that the client has closed, and that may still be executed. The server was not told yet.
    closed: Vec<u32>,
    elsewhere: Elsewhere,
    /// For the last statement, whether hit or fill: where the number of rows is cached that it counted.
    pub(crate) found_rows: Option<Arc<OnceLock<FoundRows>>>,
}

/// An answer with the number of rows that the preceding fill counted.
#[derive(Debug)]
pub(crate) struct Counting {
    place: Arc<OnceLock<FoundRows>>,
    text: Box<[u8]>,
    frames: Vec<u8>,
}

impl Counting {
    pub(crate) fn keep(&mut self, bytes: &[u8]) {
        if self.frames.len() <= FoundRows::BYTES_MAX {
            self.frames.extend_from_slice(bytes);
        }
    }
}

impl Replay {
    /// A hit is about to be remembered. `reads`: it reads tables. `opens`: it opens a transaction of which the server does not know.
    pub(crate) fn hit(&mut self, reads: bool, opens: bool) {
        self.elsewhere.reads = reads;
        if opens {
            self.opener = None;
        } else if let Some(kind) = self.kind.filter(|_| self.opened) {
            self.opener = Some((std::mem::take(&mut self.command), kind));
        }
        self.opened = opens;
    }

    /// Whether a hit has opened a transaction, and the server has executed nothing since that opens or ends one.
    pub(crate) fn has_opened(&self) -> bool {
        self.opened || self.opener.is_some()
    }

    /// Whether this statement may still be executed.
    pub(crate) fn runs(&self, number: u32) -> bool {
        let last = self.kind.filter(|_| self.rows.is_none() || !self.rows_only || self.has_opened());
        let last = last.map(|kind| (&self.command, kind));
        let opener = self.opener.as_ref().map(|(command, kind)| (command, *kind));
        last.into_iter().chain(opener).any(|(command, kind)| number_in(command, kind) == Some(number))
    }

    /// The client has closed a statement that may still be executed.
    pub(crate) fn close(&mut self, number: u32) {
        self.closed.push(number);
    }

    /// Whether the server has statements that the client has closed.
    pub(crate) fn has_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// Appends a COM_STMT_CLOSE for each statement that will not be executed any more.
    pub(crate) fn put_closed(&mut self, out: &mut Vec<u8>) {
        let mut closed = std::mem::take(&mut self.closed);
        closed.retain(|number| {
            let is_kept = self.runs(*number);
            if !is_kept {
                put_close(out, *number);
            }
            is_kept
        });
        self.closed = closed;
    }

    /// The hit's command names the statement that was prepared last; later it would name another one.
    pub(crate) fn name(&mut self, number: u32) {
        if let Some(place) = self.command.get_mut(NUMBER) {
            place.copy_from_slice(&number.to_le_bytes());
        }
    }

    /// The server has opened or ended a transaction itself.
    pub(crate) fn note_transaction(&mut self) {
        (self.opened, self.opener) = (false, None);
    }

    /// A hit was served for this command.
    pub(crate) fn remember(&mut self, packet: &[u8], kind: Kind) {
        self.command.clear();
        self.command.shrink_to(KEEP_BYTES);
        self.command.extend_from_slice(packet);
        (self.kind, self.rows_only, self.selected) = (Some(kind), false, true);
        (self.displaced, self.elsewhere.counted, self.elsewhere.ends_without_rows) = (None, None, false);
        (self.found_rows, self.rows, self.elsewhere.was_executed) = (None, None, false);
    }

    /// A hit leaves the number of rows found unchanged, so that of the previous hit remains valid. False if there was none.
    pub(crate) fn keep_rows(&mut self) -> bool {
        let is_there = self.kind.is_some() && !self.command.is_empty();
        self.rows_only &= !is_there;
        self.elsewhere.ends_without_rows = false;
        is_there
    }

    /// The command of the last hit, and what its answer is; None: the server has executed something since.
    pub(crate) fn last_hit(&self) -> Option<(&[u8], Kind)> {
        let kind = self.kind.filter(|_| !self.rows_only)?;
        Some((&self.command, kind))
    }

    /// Remembers this command.
    pub(crate) fn is_of(&self, packet: &[u8]) -> bool {
        self.command == packet
    }

    /// The session is reset. The servers keep the number of rows found, so the number of a hit must be kept, too.
    pub(crate) fn begin_anew(&mut self, capabilities: Capabilities) {
        let Self { rows, elsewhere, .. } = std::mem::take(self);
        self.elsewhere.counted = elsewhere.counted;
        if let Some(rows) = rows {
            self.find_again(rows, capabilities);
        }
    }

    /// This number of rows must be found on the server before somebody asks for it.
    fn find_again(&mut self, rows: u32, capabilities: Capabilities) {
        self.command.clear();
        put_query(&mut self.command, capabilities, finding(rows).as_bytes());
        (self.kind, self.rows, self.rows_only) = (Some(Kind::Query), Some(rows), true);
    }

    /// The command that the server understands, in place of the remembered one.
    pub(crate) fn resend(&mut self, packet: &[u8]) {
        self.command.clear();
        self.command.extend_from_slice(packet);
    }

    /// A query of Freshet's own is the first query of the session, and has found a row.
    pub(crate) fn nothing_found(&mut self, capabilities: Capabilities) {
        self.command.clear();
        put_query(&mut self.command, capabilities, b"SELECT 1 LIMIT 0");
        self.kind = Some(Kind::Query);
    }

    /// The server is about to execute something; `counts`: it may count rows.
    pub(crate) fn overtaken(&mut self, counts: bool) {
        self.selected |= counts;
        (self.rows_only, self.elsewhere.ends_without_rows) = (true, false);
        (self.found_rows, self.elsewhere.was_executed) = (None, false);
    }

    /// The server is about to execute a statement.
    pub(crate) fn overtaken_by(&mut self, leaves: Leaves) {
        self.overtaken(leaves != Leaves::Nothing);
    }

    /// A statement was answered. A statement with one row of no table finds as many rows as Freshet's own queries, which may be sent after it.
    /// `mariadb`: a query that fails while it runs has counted its rows so far.
    pub(crate) fn answered(&mut self, query: &NormalizedQuery, leaves: Leaves, done: &Done, mariadb: bool) {
        // A failed statement may have opened no transaction.
        if done.error.is_none() {
            self.note_transaction();
        }
        let ran = done.error.is_none_or(|error| mariadb && (done.columns > 0 || WHILE_RUNNING.contains(&error)));
        if leaves == Leaves::Rows && ran {
            self.forget_rows();
            let is_plain = query.selects && done.error.is_none() && done.result_sets == 1;
            self.elsewhere.counted = u32::try_from(done.rows).ok().filter(|_| is_plain && query.finds().as_answered);
        }
        if leaves == Leaves::Either {
            self.elsewhere.counted = None;
        }
        if leaves == Leaves::Either || leaves == Leaves::Rows && ran {
            self.displaced = None;
        }
        let is_one = query.selects && done.error.is_none() && (done.result_sets, done.rows) == (1, 1);
        if is_one && query.template.effect() == Effect::Pure && query.finds().from_nothing {
            self.selected = false;
        }
    }

    /// A statement was answered: if it has not counted rows, those that a query before it has replaced must be found again.
    pub(crate) fn find_displaced(&mut self, capabilities: Capabilities) {
        let displaced = self.displaced.take().filter(|rows| *rows != 1 && *rows <= FOUND_AGAIN_MAX);
        if let Some(rows) = displaced.filter(|_| self.kind.is_none()) {
            self.find_again(rows, capabilities);
        }
    }

    /// A later statement may ask for a number of rows that an earlier one has found.
    pub(crate) fn has_selected(&self) -> bool {
        self.selected
    }

    /// An unknown statement is about to be sent.
    pub(crate) fn unknown(&mut self) {
        self.overtaken(false);
        self.selected = true;
        (self.displaced, self.elsewhere.counted) = (None, None);
    }

    /// The server has counted other rows since.
    fn forget_rows(&mut self) {
        if self.has_opened() {
            (self.rows, self.found_rows) = (None, None);
        } else {
            self.forget();
        }
    }

    pub(crate) fn forget(&mut self) {
        (self.kind, self.opened, self.opener, self.elsewhere.ends_without_rows) = (None, false, None, false);
        self.command.clear();
        (self.found_rows, self.rows, self.elsewhere.was_executed) = (None, None, false);
    }
}

impl Session {
    /// A command is about to be sent whose OK may count the current warnings (COM_INIT_DB, USE and others of MySQL). After a hit there would be none.
    pub(crate) async fn replay_for_warnings(&mut self) -> Result<(), SessionError> {
        if self.answer.warned && self.replay.last_hit().is_some() {
            let is_kept = self.server.about.version.is_mariadb && !self.replay.is_behind_read();
            self.replay_hit(&[]).await?;
            self.answer.warned = is_kept;
        }
        Ok(())
    }

    /// A statement is about to be sent that opens no transaction by itself. Without autocommit a read opens one, and so has a hit for the client: SET
    /// TRANSACTION, XA START and status flags must find it open. The end of the transaction does not depend on it.
    pub(crate) async fn replay_for_transaction(
        &mut self,
        statement: Option<&Arc<Statement>>,
    ) -> Result<(), SessionError> {
        if !self.replay.has_opened() {
            return Ok(());
        }
        let Some(statement) = statement else { return self.replay_hit(&[]).await };
        let template = &statement.query.template;
        if matches!(template.bracket(), Some(Bracket::Begin(_) | Bracket::End)) {
            self.replay.note_transaction();
            return Ok(());
        }
        let writes = template.effect() == Effect::Write && template.names_relations();
        if writes || self.mark(Some(statement)).takes_snapshot.is_some() {
            return Ok(()); // it has opened one if it does not fail
        }
        self.replay_hit(&[]).await
    }

    /// Notes the effect of a statement on the number of rows found.
    pub(crate) fn leaves(&self, statement: &Statement) -> Leaves {
        statement.query.leaves(self.server.about.version.is_mariadb)
    }

    /// Answers the query for the rows found, if it is the same as the one after the fill.
    pub(crate) fn answer_found_rows(&mut self, text: &[u8], packet: &[u8]) -> bool {
        let hit = self.replay.kind.is_some() && !self.replay.rows_only;
        let Some(place) = self.replay.found_rows.clone().filter(|_| hit) else { return false };
        let Some(found) = place.get().filter(|found| *found.text == *text) else { return false };
        if !matches!(self.allowed(), Allowed::Cache(_)) {
            return false;
        }
        self.last.looked_up_at = self.now();
        self.put_kept(&found.frames, found.status_places, false);
        self.count_served(found.frames.len());
        self.replay.remember(packet, Kind::Query);
        true
    }

    /// A query is about to be sent: returns whether its answer is cached with the preceding fill.
    pub(crate) fn count_found_rows(&mut self, text: &[u8]) {
        let filled = self.replay.kind.is_none();
        let place = self.replay.found_rows.take().filter(|_| filled);
        let place = place.filter(|_| text.len() <= FoundRows::BYTES_MAX && names_found_rows(text));
        self.at_hand.counting = place.map(|place| Counting { place, text: text.into(), frames: Vec::new() });
    }

    /// The query was answered.
    pub(crate) fn found_rows_counted(&mut self, done: &Done) {
        let Some(Counting { place, text, mut frames }) = self.at_hand.counting.take() else { return };
        if frames.len() <= FoundRows::BYTES_MAX && self.is_plain(done, &mut frames) {
            let status_places = without_status(&mut frames, done);
            // Another session may have been faster, with the same answer.
            let _ = place.set(FoundRows { text, frames: frames.into(), status_places });
        }
    }

    /// A statement is about to be sent that may read the diagnostics of the statement before it.
    pub(crate) async fn replay_hit(&mut self, text: &[u8]) -> Result<(), SessionError> {
        if self.replay.rows_only && !names_found_rows(text) && !self.replay.has_opened() {
            return Ok(());
        }
        self.replay_now().await
    }

    /// A statement is about to be sent that may or may not count rows.
    pub(crate) async fn replay_now(&mut self) -> Result<(), SessionError> {
        let Some(mut kind) = self.replay.kind else { return Ok(()) };
        if let Some(rows) = self.replay.rows.filter(|_| self.replay.rows_only && !self.replay.has_opened()) {
            // The rows that it has read may have changed since.
            self.replay.command.clear();
            let capabilities = self.capabilities();
            put_query(&mut self.replay.command, capabilities, finding(rows).as_bytes());
            kind = Kind::Query;
        }
        if self.replay.last_hit().is_some() {
            self.server.settings.temporaries.named.not_behind_set();
        }
        let last = (std::mem::take(&mut self.replay.command), kind);
        let opener = self.replay.opener.take();
        let is_zero = self.replay.rows_only && self.answer.row_count == RowCount::Zero;
        let (rows, ends_without_rows) = (self.replay.rows, is_zero || self.replay.elsewhere.ends_without_rows);
        // What a fill has counted may be cached with it, on whatever connection.
        let place = self.replay.found_rows.take().filter(|_| self.replay.elsewhere.was_executed);
        self.replay.forget();
        self.replay.set_counted(rows);
        self.replay.found_rows = place;
        for (command, mut kind) in opener.into_iter().chain([last]) {
            let command = if let Some(command) = self.addressed(command, kind).await? {
                command
            } else {
                // What was found there is another session's.
                kind = Kind::Query;
                let mut command = Vec::new();
                put_query(&mut command, self.capabilities(), finding(rows.unwrap_or(0)).as_bytes());
                command
            };
            self.server.answer_from = 1;
            self.server.put(&command);
            self.raise_watermark(self.now());
            // In a transaction it may take the snapshot.
            self.before_sending(Mark { reads: true, ..Mark::NOTHING }, None);
            let mut error = Vec::new();
            let done = self.answer(kind, To::Error(&mut error)).await?;
            if done.error.is_some() {
                self.note_not_made(error);
            }
            if done.status.is_some_and(|status| status.has(Status::IN_TRANS)) {
                self.status = self.status.with(Status::IN_TRANS);
            }
        }
        if ends_without_rows {
            self.server.put_query(CHANGE_NOTHING);
            self.answer(Kind::Query, To::Nobody).await?;
        }
        if let Some(out) = self.server.output() {
            self.replay.put_closed(out);
        }
        self.drop_closed_statements();
        Ok(())
    }

    /// A command names this statement. If the client has closed it, the server is told first.
    pub(crate) async fn close_before(&mut self, number: u32) -> Result<(), SessionError> {
        let has_closed = self.replay.has_closed() || self.server.prepareds.are_closing();
        if has_closed && self.server.prepareds.get_mut(number).is_none() {
            self.connect().await?;
            self.replay_now().await?;
        }
        Ok(())
    }
}

/// The statement of an execution.
pub(crate) fn number_in(command: &[u8], kind: Kind) -> Option<u32> {
    let bytes = command.get(NUMBER).filter(|_| kind != Kind::Query)?;
    bytes.first_chunk().map(|number| u32::from_le_bytes(*number))
}

fn names_found_rows(text: &[u8]) -> bool {
    const NAME: &[u8] = b"found_rows";
    text.windows(NAME.len()).any(|window| window.eq_ignore_ascii_case(NAME))
}
