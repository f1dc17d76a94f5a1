//! Transaction blocks: which of their reads may come from the cache, and when their writes are acknowledged.
//!
//! Nothing is asked on a connection while a block is open: a question would take the snapshot, or fail and abort the
//! block. So what must be known is asked before `BEGIN`, and whatever opens a block in a way that is not understood makes
//! its statements pass.
//!
//! | level | from the cache |
//! |---|---|
//! | READ COMMITTED | until the block's first write, under the rules of every other read |
//! | REPEATABLE READ | not the first read, which takes the snapshot. Later ones, until the first write, if the entry was read before a position that was proven visible before `BEGIN` (lo), and the stream has passed a log end that was asked for after the first read (hi): the commits that matter to the entry are then exactly those of the snapshot |
//! | SERIALIZABLE | nothing: the server must see what is read |
//!
//! Answers inside a block are kept too: READ COMMITTED ones, and the first of REPEATABLE READ. They have no proof of their
//! own, so a pending commit that matters prevents it, and the log end is asked for after `COMMIT`; until then they
//! are in flight.

use std::sync::Arc;

use freshet_cache::{Proven, SnapshotBounds};
use freshet_sql::{Bracket, Effect, Isolation};
use freshet_types::{CatalogVersion, Nanos, Reason, TableId};
use freshet_wire::postgres::backend;

use crate::postgres::session::unit::{Ask, ClientUnit, Fill, Kind, Unit};
use crate::postgres::session::{Known, Session};
use crate::session::commit_wait::Touched;
use crate::statement::registry::Statement;

/// Answers of one block that wait for its end.
const BLOCK_FILLS_MAX: usize = 16;
/// Time after which they are given up: while they wait, nobody else can keep these results.
const BLOCK_FILLS_AGE_MAX: Nanos = 1_000_000_000;

/// What is known of the open block.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
pub(crate) struct Block {
    /// None: it was not understood how it began.
    isolation: Option<Isolation>,
    /// Something in it may have changed settings or definitions.
    unsettled: bool,
    /// Something in it may have written.
    pub(crate) wrote: bool,
    /// Where it may have.
    pub(crate) touched: Touched,
    /// Anything was sent in it.
    pub(crate) used: bool,
    /// Everything up to here was proven visible before it began.
    lo: Option<Proven>,
    /// A query of it was answered from the cache, and the server has seen none since it began.
    has_unseen_query: bool,
}

impl Block {
    const UNKNOWN: Self = Self {
        isolation: None,
        unsettled: true,
        wrote: true,
        touched: Touched::Anything,
        used: true,
        lo: None,
        has_unseen_query: false,
    };

    /// Why its reads pass, if they do.
    pub(crate) fn obstacle(&self, hits_after_write: bool) -> Option<Reason> {
        match self.isolation {
            _ if self.wrote && !hits_after_write => Some(Reason::WroteInTransaction),
            _ if self.unsettled => Some(Reason::InTransaction),
            None => Some(Reason::InTransaction),
            Some(Isolation::Serializable) => Some(Reason::Serializable),
            Some(Isolation::ReadCommitted | Isolation::RepeatableRead) => None,
        }
    }

    /// Nothing is known of it: a portal may be bound to what ends it.
    pub(crate) fn is_unknown(&self) -> bool {
        self.isolation.is_none()
    }

    /// All its reads are of one snapshot.
    pub(crate) fn has_snapshot(&self) -> bool {
        self.isolation == Some(Isolation::RepeatableRead)
    }
}

/// A block begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begin {
    isolation: Option<Isolation>,
    lo: Option<Proven>,
}

/// In which state a unit leaves the session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Leaves {
    /// As it was.
    #[default]
    Same,
    /// In a new block.
    Open(Begin),
    /// In none.
    Closed,
    /// Not understood.
    Unknown,
}

/// What a unit does to data and to the transaction, as far as its statements say.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other, each set in one place")]
pub(crate) struct Mark {
    /// It may write.
    pub(crate) writes: bool,
    /// Where it may.
    pub(crate) touched: Touched,
    /// It reads tables, and so takes the snapshot of a block that has none.
    pub(crate) reads: bool,
    /// It may change settings or definitions.
    unsettles: bool,
    /// Something other than BEGIN was parsed, bound or described, which may take a snapshot.
    pub(crate) others: bool,
    /// The unnamed portal was bound to what ends the block, and was executed.
    portal_ends: bool,
    end_executed: bool,
    /// The server may ask for data: nothing can be sent behind it.
    asks_for_data: bool,
    leaves: Leaves,
}

impl Mark {
    /// It may have committed, whatever state it leaves.
    pub(crate) fn may_commit(&self) -> bool {
        matches!(self.leaves, Leaves::Closed | Leaves::Unknown)
    }

    /// Some other than BEGIN is parsed, bound or described.
    pub(crate) fn note_other(&mut self, statement: Option<&Arc<Statement>>) {
        let bracket = statement.and_then(|statement| statement.query.template.bracket());
        self.others |= !matches!(bracket, Some(Bracket::Begin(_)));
    }

    /// The unnamed portal is bound.
    pub(crate) fn bind_unnamed(&mut self, statement: Option<&Arc<Statement>>) {
        let bracket = statement.and_then(|statement| statement.query.template.bracket());
        self.portal_ends = bracket == Some(Bracket::End);
    }

    /// The unnamed portal is executed.
    pub(crate) fn execute_unnamed(&mut self) {
        self.end_executed |= self.portal_ends;
    }

    /// The client may be told that a part of the unit is committed while `ReadyForQuery` is still to come.
    pub(crate) fn may_be_told_early(&self, kind: Kind, synced: bool) -> bool {
        match (kind, self.leaves) {
            (Kind::Batch, Leaves::Closed | Leaves::Unknown) => !synced,
            (_, Leaves::Unknown) => true,
            _ => false,
        }
    }

    /// Something is executed of which it is not known whether it ends the block, and begins another.
    pub(crate) fn may_end_unseen(&mut self) {
        self.leaves = Leaves::Unknown;
    }

    /// `written`: the only tables that it may write to, if that is known.
    pub(crate) fn note(&mut self, effect: Effect, written: Option<&(CatalogVersion, Arc<[TableId]>)>) {
        if matches!(effect, Effect::Write | Effect::Definition | Effect::Forgets) {
            self.writes = true;
            self.touched.add(written.map(|(catalog, tables)| (*catalog, &**tables)));
        }
        self.unsettles |= effect > Effect::Write;
    }
}

impl Session {
    /// Between transactions, and certain to be so when the next message is read.
    pub(crate) fn is_between_transactions(&self) -> bool {
        self.status == backend::STATUS_IDLE && self.impure == 0
    }

    /// Settings and definitions in force now stay in force: no open transaction can roll them back.
    pub(crate) fn is_settled(&self) -> bool {
        let pure_block = self.block.as_ref().is_some_and(|block| !block.unsettled && !block.wrote);
        self.impure == 0
            && (self.status == backend::STATUS_IDLE || (self.status == backend::STATUS_BLOCK && pure_block))
    }

    /// A statement passes in the last unit: what it does to the transaction block.
    pub(crate) fn note_bracket(&mut self, statement: Option<&Arc<Statement>>) {
        let between = self.is_between_transactions();
        let lo = statement.and_then(|s| s.query.template.bracket()).and_then(|bracket| match bracket {
            Bracket::Begin(_) => self.shared.cache.proven(),
            _ => None,
        });
        let mark = &mut self.last_unit().effects.mark;
        let Some(template) = statement.map(|statement| &statement.query.template) else {
            mark.leaves = Leaves::Unknown;
            mark.asks_for_data = true;
            return;
        };
        mark.asks_for_data |= template.asks_for_data();
        mark.leaves = match (template.bracket(), mark.leaves) {
            (_, Leaves::Unknown) => Leaves::Unknown,
            (None | Some(Bracket::Savepoint), leaves) => leaves,
            (Some(Bracket::End), _) => Leaves::Closed,
            (Some(Bracket::Begin(isolation)), Leaves::Same) if between && !mark.others => {
                Leaves::Open(Begin { isolation, lo })
            }
            (Some(Bracket::Begin(_) | Bracket::Other), _) => Leaves::Unknown,
        };
    }

    /// The session's context is asked for before a block is opened: inside, it cannot be.
    pub(crate) fn prepare_block(&mut self, statement: &Statement) {
        let begins = matches!(statement.query.template.bracket(), Some(Bracket::Begin(_)));
        self.reads |= begins;
        if begins
            && self.is_between_transactions()
            && matches!(self.server.settings.known, Known::Nothing | Known::Failed)
        {
            self.ask_context();
        }
    }

    /// Everything of the last unit has been sent: asks for the log end behind it, if it surely ends a transaction that wrote or that
    /// has answers to keep, or behind which the next look-up is likely to need it. Asked for once it is answered, it would come a way to the
    /// server and back later, and the client's next statement before it.
    pub(crate) fn close_unit(&mut self) {
        let same_server = matches!(self.server.compare(&self.shared), Some(Ok(())));
        let own = usize::from(!self.last_unit().effects.pure);
        let alone = self.impure == own;
        let idle = self.status == backend::STATUS_IDLE;
        let kept = !self.block_fills.is_empty() || self.block.as_ref().is_some_and(|block| block.wrote);
        let unit = self.last_unit();
        let mark = &unit.effects.mark;
        let (ends, writes) = match mark.leaves {
            Leaves::Closed => (unit.kind != Kind::Batch || mark.end_executed, mark.writes || kept || !alone),
            Leaves::Same => (idle && alone, mark.writes),
            Leaves::Open(_) | Leaves::Unknown => (false, false),
        };
        if !ends || mark.asks_for_data || !same_server {
            return;
        }
        let place = Some(unit.place).filter(|_| unit.tells_of_data());
        let needed = place.is_some_and(|place| self.prefetch.needs_end(place));
        if writes && (needed || !self.skips_commit_wait()) {
            self.ask_end_behind_write();
        } else if needed {
            self.ask(Ask::End);
        }
    }

    /// Nothing is asked behind the last unit, which ends a transaction that wrote: neither is its acknowledgement to be held, as far as can be
    /// told now, nor has it answers to keep.
    fn skips_commit_wait(&mut self) -> bool {
        let Some(Unit::Client(unit)) = self.units.back() else { return false };
        let touched = self.touched_with(&unit.effects.mark.touched);
        self.block_fills.is_empty()
            && matches!(self.server.settings.known, Known::Context(..))
            && self.is_free(&touched)
    }

    /// A query was answered from the cache.
    pub(crate) fn query_unseen(&mut self) {
        if let Some(block) = &mut self.block {
            block.has_unseen_query = true;
        }
    }

    /// Whether the server must be given a query before this statement. Behind the first query of a block it refuses to change the level or the
    /// access mode, and one that was answered from the cache is a query, too. What takes a snapshot is one itself; how the block ends does not
    /// depend on it.
    pub(crate) fn lacks_query(&mut self, statement: Option<&Arc<Statement>>) -> bool {
        let Some(block) = self.block.as_mut().filter(|block| block.has_unseen_query) else { return false };
        let template = statement.map(|statement| &statement.query.template);
        if matches!(template.and_then(freshet_sql::Template::bracket), Some(Bracket::End | Bracket::Savepoint)) {
            return false;
        }
        block.has_unseen_query = false;
        !statement.is_some_and(|statement| statement.query.takes_snapshot)
    }

    /// A unit has been answered: what is now known of the block.
    pub(crate) fn follow_block(&mut self, unit: &ClientUnit) {
        if self.status == backend::STATUS_IDLE {
            self.block = None;
            self.watermark.snapshot = None;
            return;
        }
        match unit.effects.mark.leaves {
            Leaves::Open(Begin { isolation, lo }) => {
                let isolation = isolation.or(self.server.settings.default_isolation);
                let used = unit.effects.mark.reads || unit.effects.mark.others || !self.units.is_empty();
                let (unsettled, wrote, has_unseen_query) = (false, false, false);
                let touched = Touched::Nothing;
                self.block = Some(Block { isolation, unsettled, wrote, touched, used, lo, has_unseen_query });
            }
            Leaves::Closed | Leaves::Unknown => self.block = Some(Block::UNKNOWN),
            Leaves::Same => {}
        }
        let now = self.now();
        let block = self.block.get_or_insert(Block::UNKNOWN);
        block.wrote |= unit.effects.mark.writes;
        block.touched.join(&unit.effects.mark.touched);
        block.unsettled |= unit.effects.mark.unsettles;
        if block.has_snapshot() && self.watermark.snapshot.is_none() && unit.effects.mark.reads && !unit.has_failed() {
            self.watermark.snapshot = block.lo.map(|lo| SnapshotBounds { lo, since: now });
        }
    }

    /// Answers of a unit inside the block, to be kept once it has ended.
    pub(crate) fn keep_for_later(&mut self, fills: Vec<Option<Fill>>) {
        if self.block_fills.is_empty() {
            self.block_fills_due = self.now() + BLOCK_FILLS_AGE_MAX;
        }
        let room = BLOCK_FILLS_MAX.saturating_sub(self.block_fills.len());
        self.block_fills.extend(fills.into_iter().flatten().filter(Fill::is_complete).take(room));
    }

    /// Answers of a block that goes on for too long are not kept.
    pub(crate) fn give_up_block_fills(&mut self) {
        if !self.block_fills.is_empty() && self.now() >= self.block_fills_due {
            self.block_fills.clear();
        }
    }
}
