//! Which commit an OK packet acknowledges.
//!
//! A server can report the commit in the packet itself (`session_track_gtids`; in MariaDB the tracked variable `last_gtid`). Then the acknowledgement
//! waits for that commit only, and no log end has to be read. Only sessions that write switch this on, by a statement that is sent before the first
//! write in the same network packet. The client does not see the answer to that statement, nor the reported commits ([`freshet_wire::mysql::track`]).
//!
//! On MySQL, Freshet does not switch it on, but reads the reports if the operator or the client has done so: 8.0.15 crashes when a session has
//! switched it on and off, is reset (COM_RESET_CONNECTION, COM_CHANGE_USER), switches it on again and writes.
//!
//! | tracking | means |
//! |---|---|
//! | `Off` | the server was not asked; it is before the next write |
//! | `On` | it was, and is told otherwise before a statement that might show it, or run others that do |
//! | `Theirs` | it tells already, or the client has named these settings: it is left alone |
//!
//! An acknowledgement without a report waits for a log end ([`super::waiting`]): after an error, which carries no state; after results that end in
//! EOF packets, which carry none either, so that the next OK may report older commits; after DDL.

use std::sync::Arc;

use freshet_sql::Effect;
use freshet_types::{End, Lsn};
use freshet_wire::mysql::capabilities::{Capabilities, Status};
use freshet_wire::mysql::packet::{self, HEADER_BYTES};
use freshet_wire::mysql::response::{Done, Kind};
use freshet_wire::mysql::track::{Gtid, Hidden, commits, shown};

use crate::mysql::session::forward::To;
use crate::mysql::session::mark::Mark;
use crate::mysql::session::{Session, SessionError};
use crate::session::commit_wait::Touched;
use crate::statement::registry::{Statement, Tracking, first_word};

/// Switches the reports on. If they are on already, it fails: NULL is not a valid value.
const TELL: &str = "SET SESSION session_track_system_variables = IF(@@session_track_system_variables = '*' \
     OR FIND_IN_SET('last_gtid', @@session_track_system_variables), NULL, \
     CONCAT(@@session_track_system_variables, ',last_gtid'))";
/// Switches them off. The other settings stay as they are, since the server keeps the list in order.
const TELL_NO_MORE: &str = "SET SESSION session_track_system_variables = TRIM(BOTH ',' FROM \
     REPLACE(CONCAT(',', @@session_track_system_variables, ','), ',last_gtid,', ','))";

/// What a session knows of its own commits.
#[derive(Debug, Default)]
pub(crate) struct Track {
    /// The answer to a statement of Freshet's own is due; this is the state after it, if it is an OK.
    owed: Option<Tracking>,
    /// The commits that the current answer has reported.
    told: Told,
    /// The next OK may report commits that were made before.
    stale: bool,
}

/// The commits of an answer.
#[derive(Debug, Default)]
pub(crate) struct Told {
    gtids: Vec<Gtid>,
    /// There are more.
    unclear: bool,
}

impl Track {
    /// Whether the next OK may report commits that were made before.
    pub(super) fn is_stale(&self) -> bool {
        self.stale
    }

    pub(super) fn set_stale(&mut self, stale: bool) {
        self.stale = stale;
    }
}

impl Session {
    /// The parts of the session's state that the client is not shown.
    pub(crate) fn hidden(&self) -> Hidden {
        let all = self.server.about.tracks && !self.server.about.capabilities.has(Capabilities::SESSION_TRACK);
        Hidden { all, commits: self.server.tracking() == Tracking::On }
    }

    /// A statement is about to be sent (None: an unknown one): the reports may have to be switched first.
    pub(crate) fn tune(&mut self, statement: Option<&Arc<Statement>>) {
        if !self.server.about.tracks
            || !self.server.about.version.is_mariadb
            || self.server.tracking() == Tracking::Theirs
        {
            return;
        }
        let betrayal = statement.map_or(Some(Tracking::Off), |statement| statement.query.tracking());
        let next = match (self.server.tracking(), betrayal) {
            (Tracking::On, Some(next)) => next,
            (Tracking::Off, Some(Tracking::Theirs)) => {
                self.server.set_tracking(Tracking::Theirs);
                return;
            }
            (Tracking::Off, None) if statement.is_some_and(|statement| self.is_to_track(statement)) => Tracking::On,
            _ => return,
        };
        self.track.owed = Some(next);
        self.server.put_query(if next == Tracking::On { TELL } else { TELL_NO_MORE }.as_bytes());
    }

    /// Whether to switch the reports on before this statement, which may write. Not if the client could notice: warnings would be lost.
    fn is_to_track(&self, statement: &Statement) -> bool {
        let settings = &self.server.settings;
        let would_be_noticed = settings.locked
            || settings.one_shot
            || settings.watched.is_some()
            || settings.temporaries.are_unsure()
            || self.answer.warned
            || statement.query.template.reads_diagnostics();
        is_dml(first_word(&statement.query.text)) && !would_be_noticed && self.shared.cache.epoch().is_some()
    }

    /// Takes the answer that is due. An error is returned, since it may be the server's last message.
    pub(crate) async fn settle_owed(&mut self) -> Result<Vec<u8>, SessionError> {
        let Some(next) = self.track.owed.take() else { return Ok(Vec::new()) };
        let first = std::mem::replace(&mut self.server.answer_from, 1);
        let mut answer = Vec::new();
        let done = self.follow(Kind::Status, To::Own(&mut answer)).await?;
        self.server.answer_from = first;
        self.server.set_tracking(if done.error.is_none() { next } else { Tracking::Theirs });
        Ok(if done.error.is_some() { answer } else { Vec::new() })
    }

    /// Adds a part of an answer to the client's output; these of its packets report changes of the session.
    pub(crate) fn put_shown(&mut self, count: usize, changes: &[std::ops::Range<usize>]) {
        let bytes = self.server.received().get(..count).unwrap_or_default();
        let hidden = self.hidden();
        let mut at = 0;
        for change in changes {
            let Some(packet) = bytes.get(change.clone()) else { continue };
            let (Some(head), Some(payload)) = (packet.first_chunk::<HEADER_BYTES>(), packet.get(HEADER_BYTES..)) else {
                continue;
            };
            match commits(payload) {
                Some(gtids) if self.track.told.gtids.len() < 256 => self.track.told.gtids.extend(gtids),
                _ => self.track.told.unclear = true,
            }
            let Some(payload) = shown(payload, hidden) else { continue };
            self.client.output.put(bytes.get(at..change.start).unwrap_or_default());
            let [.., mut sequence] = *head;
            packet::put(self.client.output.buffer(), &mut sequence, &payload);
            at = change.end;
        }
        self.client.output.put(bytes.get(at..).unwrap_or_default());
    }

    /// The commits that the answer has reported; None if they may be incomplete, or not from this answer alone.
    pub(crate) fn take_told(&mut self, mark: Mark, done: &Done) -> Option<Told> {
        let told = std::mem::take(&mut self.track.told);
        let (failed, was_stale) = (done.error.is_some(), self.track.stale);
        let ends_in_eof = done.result_sets > 0 && !self.capabilities().has(Capabilities::DEPRECATE_EOF);
        self.track.stale = failed || (ends_in_eof && (mark.writes || was_stale));
        let all = !self.track.stale && !was_stale && !told.unclear;
        (all && self.server.about.tracks && mark.effect != Effect::Definition).then_some(told)
    }

    /// Begins the commit wait of a statement that may have committed.
    pub(crate) async fn acknowledge(&mut self, told: Option<Told>, touched: &Touched, written: Written<'_>) {
        let Written { mark, statement, done, was } = written;
        let told = told.filter(|told| !told.gtids.is_empty() || self.wrote_nothing(mark, done, was));
        if told.as_ref().is_some_and(|told| told.gtids.is_empty()) {
            return;
        }
        // All that the session has read so far was in the log before this commit.
        let word = statement.map_or("", |statement| first_word(&statement.query.text));
        let commits_last = is_dml(word) || word.eq_ignore_ascii_case("commit");
        let commits_last = commits_last && (done.results, done.result_sets) == (1, 0) && mark.effect <= Effect::Write;
        if self.skip_commit_wait(touched) {
            self.watermark.set_committed(told.filter(|_| commits_last).map(|told| told.gtids).unwrap_or_default());
            return;
        }
        let Some(told) = told else { return self.wait_for_stream().await };
        let end = self.wait_for_commits(&told.gtids).await;
        if let Some(end) = end.filter(|_| commits_last) {
            self.watermark.set_end(end);
        }
    }

    /// The reported commit of the session, for which there was no commit wait, is its watermark once the stream has applied it.
    pub(crate) fn settle_committed(&mut self) {
        if let Some(end) = self.applied_end(self.watermark.committed()) {
            self.watermark.committed_until(end);
        }
    }

    /// Whether this is a single statement that would have reported its commit, and has changed no row.
    fn wrote_nothing(&self, mark: Mark, done: &Done, was: Status) -> bool {
        self.server.tracking() == Tracking::On
            && mark.effect == Effect::Write
            && (done.results, done.result_sets) == (1, 0)
            && done.affected_rows == 0
            && !was.has(Status::IN_TRANS)
            && !self.status.has(Status::IN_TRANS)
    }

    /// The position at which the stream has applied all these commits, with its epoch.
    pub(crate) fn applied_end(&self, gtids: &[Gtid]) -> Option<End> {
        let epoch = self.shared.cache.epoch()?;
        let lsn = self.shared.ends.end_of(gtids).filter(|lsn| *lsn > Lsn(0))?;
        (self.shared.cache.epoch() == Some(epoch)).then_some(End { epoch, lsn })
    }
}

/// A statement that may have committed, and its answer.
#[derive(Clone, Copy)]
pub(crate) struct Written<'a> {
    pub(crate) mark: Mark,
    pub(crate) statement: Option<&'a Arc<Statement>>,
    pub(crate) done: &'a Done,
    pub(crate) was: Status,
}

pub(super) fn is_dml(word: &str) -> bool {
    ["insert", "update", "delete", "replace"].into_iter().any(|dml| word.eq_ignore_ascii_case(dml))
}
