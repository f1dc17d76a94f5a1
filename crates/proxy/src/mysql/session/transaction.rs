//! Transactions: which of their reads may come from the cache.
//!
//! The server's status flags say whether a transaction is open; the session is asked whether each statement is one of its own
//! (`settings`). What opened it, and what has been done in it, is known from the statements. A transaction of which nothing is
//! known passes.
//!
//! | level | from the cache |
//! |---|---|
//! | READ COMMITTED | until the first write, under the rules of every other read |
//! | REPEATABLE READ | not the first read, which takes the snapshot. Later ones, until the first write, if the entry was read before a position that was proven visible before the snapshot was taken (lo), and the stream has passed an end of the binlog that was asked for after it surely had been (hi): the commits that matter to the entry are then exactly those of the snapshot |
//! | READ UNCOMMITTED, SERIALIZABLE | nothing |
//!
//! A snapshot is taken by the first consistent read of InnoDB, not by the first statement: it is *possible* with any
//! statement that reads, and *sure* once one that must have read a table has returned a row, or must have read it even so
//! ([`freshet_sql::Template::surely_takes_snapshot`]). lo is read before the first
//! possible one, hi after the first sure one. What is sure rests on the catalogue that was in use: another session may just have
//! made another table of that name. So before the first hit within the snapshot, which the stream has passed by then, that
//! catalogue must have shown all that was defined before the answer.

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

/// A transaction, or the room for one if each statement is not one of its own.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// None: it was not understood how it began.
    began_in: Option<u64>,
    /// Once it is known.
    level: Option<Level>,
    /// Something in it may have written.
    pub(crate) wrote: bool,
    /// Something in it may have taken the snapshot.
    used: bool,
    /// What was proven visible before that.
    lo: Option<Proven>,
    /// The snapshot was surely taken by then.
    taken: Option<Nanos>,
    /// That is so if this catalogue showed all that was defined by then.
    taken_by: Option<CatalogVersion>,
}

/// Where a session stands.
#[derive(Debug, Default)]
pub(crate) struct TransactionState {
    /// None: each statement is a transaction of its own.
    block: Option<Block>,
    /// Whether one is open is not known, since an error does not tell.
    lost: bool,
    /// A statement has failed since the last answer that told, which may have left one open if it was not one of its own.
    tried: bool,
    /// The statement that is sent next takes the snapshot, if it [takes one](Mark::takes_snapshot), also without a row: by this catalogue.
    pub(crate) sure_by: Option<CatalogVersion>,
    /// What was proven visible before a statement was sent that takes a snapshot by itself.
    pub(crate) proven_before: Option<Proven>,
    /// What the open transaction may have written to.
    pub(crate) touched: Touched,
}

impl Block {
    fn begun_in(era: u64) -> Self {
        Self { began_in: Some(era), level: None, wrote: false, used: false, lo: None, taken: None, taken_by: None }
    }

    fn unknown() -> Self {
        Self { began_in: None, wrote: true, used: true, ..Self::begun_in(0) }
    }

    /// Asks for the level as long as it is the session's.
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

    /// Whether the next read may be of a snapshot that was taken before it.
    pub(crate) fn may_have_snapshot(&self) -> bool {
        self.lost || self.block.is_some()
    }

    /// Whether the open transaction has written.
    pub(crate) fn wrote(&self) -> bool {
        self.lost || self.block.as_ref().is_some_and(|block| block.wrote)
    }

    /// It is not known yet whether the open transaction has a snapshot.
    pub(crate) fn wants_snapshot(&self) -> bool {
        !self.lost && self.block.as_ref().is_some_and(|block| block.taken.is_none() && !block.wrote)
    }

    /// All is forgotten: the session begins anew. `autocommits`: each statement is a transaction of its own.
    pub(crate) fn reset(&mut self, autocommits: bool, era: u64) {
        (self.lost, self.tried) = (false, false);
        self.block = (!autocommits).then(|| Block::begun_in(era));
    }

    /// It turns out that statements are no transactions of their own.
    pub(crate) fn begin_without_autocommit(&mut self, era: u64) {
        self.lost |= std::mem::take(&mut self.tried);
        if self.block.is_none() {
            self.block = Some(Block::begun_in(era));
        }
    }

    /// Why reads pass, if they do, as far as it can be told without asking.
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

    /// Once the session's settings are known: why reads pass, or the snapshot that look-ups are bound to.
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

/// What reads see.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Snapshot {
    /// What is committed.
    None,
    /// The next read takes a snapshot.
    ToBeTaken,
    /// This.
    Of(SnapshotBounds),
}

impl Session {
    /// A statement is about to be sent that may open a transaction: the context that its reads need is asked for ahead of it, if no
    /// earlier statement has left what the question would replace.
    pub(crate) fn ask_ahead(&mut self, statement: Option<&Arc<Statement>>) {
        let bracket = statement.and_then(|statement| statement.query.template.bracket());
        let begins = matches!(bracket, Some(Bracket::Begin(_)));
        let is_first = self.server.settings.opening && !self.replay.has_selected() && !self.answer.warned;
        if begins && is_first && matches!(self.allowed(), Allowed::Ask) {
            self.put_question();
            // In a new session MariaDB's FOUND_ROWS() is whatever an earlier session has left that ran in the same thread.
            if !self.server.about.version.is_mariadb {
                self.replay.nothing_found(self.capabilities());
            }
        }
    }

    /// A statement is about to be sent (None: it is not known which).
    pub(crate) fn before_sending(&mut self, mark: Mark, statement: Option<&Arc<Statement>>) {
        if mark.writes {
            let plain = mark.effect == Effect::Write && mark.keeps_settings;
            // By the catalogue of now: whoever defines something meanwhile is counted, or makes this one out of date.
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

    /// Whether the open transaction has surely taken its snapshot, now that the stream has passed it. Otherwise a later read may tell.
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

    /// A statement was answered; `self.status` is the state it left if `status_known`. Whether a transaction that wrote may
    /// have been committed with it.
    pub(crate) fn follow_block(&mut self, mark: Mark, answered: Answered) -> bool {
        // It is of this statement alone.
        let sure_by = self.transaction.sure_by.take();
        let taken_by = mark.takes_snapshot.filter(|catalog| sure_by == Some(*catalog) || answered.rows > 0);
        let wrote = mark.writes || self.transaction.wrote();
        let in_transaction = self.status.has(Status::IN_TRANS);
        let era = self.server.settings.era;
        let commits = wrote && (mark.may_commit() || answered.failed || !in_transaction);
        if answered.failed {
            // Whether it ended a transaction is told by the next answer; outside of one, most statements open none.
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
        // A read outside of one is a transaction by itself.
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
    /// What was proven visible before it was sent, of a statement that takes a snapshot by itself.
    pub(crate) proven: Option<Proven>,
    pub(crate) now: Nanos,
}
