//! Transactions: which of their reads may be served from the cache.
//!
//! The server's status flags show whether a transaction is open, and the session's settings whether autocommit is on (`settings`). The statement that
//! opened it, and its statements so far, are known from their texts. Statements of an unknown transaction pass.
//!
//! | level | from the cache |
//! |---|---|
//! | READ COMMITTED | until the first write, under the rules of every other read |
//! | REPEATABLE READ | not the first read, which takes the snapshot. Later ones, until the first write, if the entry was read before a position that was proven visible before the snapshot was taken (lo), and the stream has passed an end of the binlog that was asked for after it surely had been (hi): the commits that matter to the entry are then exactly those of the snapshot |
//! | READ UNCOMMITTED, SERIALIZABLE | nothing |
//!
//! A snapshot is taken by the first consistent read of InnoDB, not by the first statement. It is *possible* with any statement that reads. It is
//! *certain* once a statement that must have read a table has returned a row, or must have read a table in any case
//! ([`freshet_sql::Template::surely_takes_snapshot`]). lo is read before the first possible one, hi after the first certain one. Certainty depends on
//! the catalogue in use: another session may just have made another table with that name. So before the first hit within the snapshot, which the
//! stream has passed by then, that catalogue must have shown all that was defined before the answer.

use std::sync::Arc;

use freshet_cache::{Proven, SnapshotBounds, Watermark};
use freshet_sql::{Bracket, Effect};
use freshet_types::{CatalogVersion, Nanos, Reason};
use freshet_wire::mysql::capabilities::Status;

use crate::mysql::question::Level;
use crate::mysql::session::Session;
use crate::mysql::session::known::Allowed;
use crate::mysql::session::mark::Mark;
use crate::mysql::session::settings::Settings;
use crate::session::commit_wait::Touched;
use crate::statement::registry::Statement;

/// A transaction, or the place for one if autocommit is off.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// None: the statement that began it was not understood.
    began_in: Option<u64>,
    /// None: not known yet.
    level: Option<Level>,
    /// A statement of it may have written.
    pub(crate) wrote: bool,
    /// A statement of it may have taken the snapshot.
    used: bool,
    /// The commits that were proven visible before that.
    lo: Option<Proven>,
    /// When the snapshot was certainly taken.
    taken: Option<Nanos>,
    /// The certainty holds if this catalogue showed all that was defined by then.
    taken_by: Option<CatalogVersion>,
}

/// The transaction state of a session.
#[derive(Debug, Default)]
pub(crate) struct TransactionState {
    /// None: autocommit is on.
    block: Option<Block>,
    /// Whether one is open is unknown, since an error does not show it.
    lost: bool,
    /// A statement has failed since the last answer with a state. It may have left a transaction open if autocommit was off.
    tried: bool,
    /// The next statement takes the snapshot, if it [takes one](Mark::takes_snapshot), even without a row: by this catalogue.
    pub(crate) sure_by: Option<CatalogVersion>,
    /// The commits that were proven visible before a statement was sent that takes a snapshot by itself.
    pub(crate) proven_before: Option<Proven>,
    /// The tables that the open transaction may have written to.
    pub(crate) touched: Touched,
}

impl Block {
    fn begun_in(era: u64) -> Self {
        Self { began_in: Some(era), level: None, wrote: false, used: false, lo: None, taken: None, taken_by: None }
    }

    fn unknown() -> Self {
        Self { began_in: None, wrote: true, used: true, ..Self::begun_in(0) }
    }

    /// Asks for the isolation level as long as it is the session's.
    fn learn_level(&mut self, settings: &Settings) {
        if let (None, Some(era)) = (self.level, self.began_in) {
            self.level = settings.level_in(era);
        }
    }
}

impl TransactionState {
    pub(crate) fn is_within_block(&self) -> bool {
        self.lost || self.block.as_ref().is_some_and(|block| block.began_in.is_none() || block.wrote || block.used)
    }

    /// Whether the next read may use a snapshot that was taken before it.
    pub(crate) fn may_have_snapshot(&self) -> bool {
        self.lost || self.block.is_some()
    }

    /// Whether the open transaction has written.
    pub(crate) fn wrote(&self) -> bool {
        self.lost || self.block.as_ref().is_some_and(|block| block.wrote)
    }

    /// Whether it is unknown if the open transaction has a snapshot.
    pub(crate) fn wants_snapshot(&self) -> bool {
        !self.lost && self.block.as_ref().is_some_and(|block| block.taken.is_none() && !block.wrote)
    }

    /// The session is reset. `autocommits`: autocommit is on.
    pub(crate) fn reset(&mut self, autocommits: bool, era: u64) {
        (self.lost, self.tried) = (false, false);
        self.block = (!autocommits).then(|| Block::begun_in(era));
    }

    /// Autocommit turns out to be off.
    pub(crate) fn begin_without_autocommit(&mut self, era: u64) {
        self.lost |= std::mem::take(&mut self.tried);
        if self.block.is_none() {
            self.block = Some(Block::begun_in(era));
        }
    }

    /// The reason for which reads pass, if they do, as far as it is known without a query.
    pub(crate) fn obstacle(&self, hits_after_write: bool) -> Option<Reason> {
        if self.lost {
            return Some(Reason::InTransaction);
        }
        let block = self.block.as_ref()?;
        if block.began_in.is_none() {
            return Some(Reason::InTransaction);
        }
        (block.wrote && !hits_after_write).then_some(Reason::WroteInTransaction)
    }

    /// Once the session's settings are known: the reason for which reads pass, or the snapshot that look-ups must fit.
    pub(crate) fn snapshot(&mut self, settings: &Settings) -> Result<Snapshot, Reason> {
        let Some(block) = &mut self.block else { return Ok(Snapshot::None) };
        block.learn_level(settings);
        match block.level {
            Some(Level::ReadCommitted) => Ok(Snapshot::None),
            Some(Level::RepeatableRead) => Ok(match (block.lo, block.taken) {
                (Some(lo), Some(since)) => Snapshot::Of(SnapshotBounds { lo, since }),
                _ if block.used => return Err(Reason::Snapshot),
                _ => Snapshot::ToBeTaken,
            }),
            Some(Level::Serializable) => Err(Reason::Serializable),
            Some(Level::ReadUncommitted) | None => Err(Reason::InTransaction),
        }
    }
}

/// The state that reads see.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Snapshot {
    /// The committed state.
    None,
    /// The next read takes a snapshot.
    ToBeTaken,
    /// This snapshot.
    Of(SnapshotBounds),
}

impl Session {
    /// A statement is about to be sent that may open a transaction. The context that its reads need is asked for first, unless an earlier statement
    /// has left diagnostics that the query would replace.
    pub(crate) fn ask_ahead(&mut self, statement: Option<&Arc<Statement>>) {
        let bracket = statement.and_then(|statement| statement.query.template.bracket());
        let begins = matches!(bracket, Some(Bracket::Begin(_)));
        let is_first = self.server.settings.opening && !self.replay.has_selected() && !self.answer.warned;
        if begins && is_first && matches!(self.allowed(), Allowed::Ask) {
            self.put_question();
            // In a new session, MariaDB's FOUND_ROWS() has the value of an earlier session in the same thread.
            if !self.server.about.version.is_mariadb {
                self.replay.nothing_found(self.capabilities());
            }
        }
    }

    /// A statement is about to be sent (None: an unknown one).
    pub(crate) fn before_sending(&mut self, mark: Mark, statement: Option<&Arc<Statement>>) {
        if mark.writes {
            let plain = mark.effect == Effect::Write && mark.keeps_settings;
            // The current catalogue counts: a session that defines something meanwhile is counted, or makes this catalogue out of date.
            let written = statement.filter(|_| plain).and_then(|statement| self.written(statement));
            self.transaction.touched.add(written.as_ref().map(|(catalog, tables)| (*catalog, &**tables)));
            if !plain {
                self.definitions.note_sent(&self.shared.defining);
            }
        }
        self.note_code(mark, statement);
        let Some(block) = &mut self.transaction.block else { return };
        let begins = matches!(mark.bracket, Some(Bracket::Begin(_)));
        if mark.reads && !begins && !block.used {
            block.used = true;
            block.lo = self.shared.cache.proven();
        }
    }

    /// Whether the open transaction has certainly taken its snapshot, now that the stream has passed it. Otherwise a later read may show it.
    pub(crate) fn settle_snapshot(&mut self) -> bool {
        let Some(block) = &mut self.transaction.block else { return true };
        let Some(version) = block.taken_by.take() else { return true };
        let watermark = Watermark { since: block.taken.unwrap_or(Nanos::MAX), ..Watermark::default() };
        let is_sure = self.shared.cache.reflects(&watermark, version);
        if !is_sure {
            block.taken = None;
        }
        is_sure
    }

    /// A statement was answered; `self.status` is the state that it left if `status_known`. Returns whether it may have committed a transaction that
    /// wrote.
    pub(crate) fn follow_block(&mut self, mark: Mark, answered: Answered) -> bool {
        // It belongs to this statement only.
        let sure_by = self.transaction.sure_by.take();
        let taken_by = mark.takes_snapshot.filter(|catalog| sure_by == Some(*catalog) || answered.rows > 0);
        let wrote = mark.writes || self.transaction.wrote();
        let in_transaction = self.status.has(Status::IN_TRANS);
        let era = self.server.settings.era;
        let commits = wrote && (mark.may_commit() || answered.failed || !in_transaction);
        if answered.failed {
            // The next answer shows whether it ended a transaction; outside of one, most statements open none.
            let plain = self.transaction.block.is_none()
                && !self.transaction.lost
                && mark.effect <= Effect::Write
                && !mark.may_commit();
            self.transaction.lost |= !plain;
            self.transaction.tried |= plain;
            return commits;
        }
        self.transaction.tried = false;
        if std::mem::take(&mut self.transaction.lost) {
            self.transaction.block = Some(Block::unknown());
        }
        // A read outside of a transaction is a transaction by itself.
        if !in_transaction && (answered.was_in_transaction || taken_by.is_some()) {
            self.server.settings.one_shot = false;
        }
        if !in_transaction {
            // Without autocommit, the next statement opens one.
            self.transaction.reset(self.autocommits(), era);
            return commits;
        }
        let one_shot = self.server.settings.one_shot;
        let transaction = &mut self.transaction;
        match mark.bracket {
            Some(Bracket::Begin(_)) if mark.effect == Effect::TransactionControl && !one_shot => {
                let mut block = Block::begun_in(era);
                if mark.takes_snapshot.is_some() {
                    block.used = true;
                    (block.lo, block.taken) = (answered.proven, Some(answered.now));
                }
                transaction.block = Some(block);
            }
            Some(Bracket::Savepoint) | None if transaction.block.is_some() => {}
            _ => transaction.block = Some(Block::unknown()),
        }
        if let Some(block) = &mut transaction.block {
            block.wrote |= mark.writes;
            if taken_by.is_some() && block.taken.is_none() {
                (block.taken, block.taken_by) = (Some(answered.now), taken_by);
            }
            if one_shot {
                *block = Block::unknown();
            }
        }
        commits
    }
}

/// How a statement was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) failed: bool,
    pub(crate) rows: u64,
    pub(crate) was_in_transaction: bool,
    /// The commits that were proven visible before it was sent, for a statement that takes a snapshot by itself.
    pub(crate) proven: Option<Proven>,
    pub(crate) now: Nanos,
}
