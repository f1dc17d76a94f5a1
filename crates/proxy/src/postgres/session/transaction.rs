//! Transaction blocks: which of their reads may be served from the cache, and when their writes are acknowledged.
//!
//! While a block is open, Freshet sends no query on the connection, except that of [`super::local`]: a query would take the snapshot, or fail and
//! abort the block. So what must be known is read before `BEGIN`. If a statement opens a block and is not understood, the statements of the block
//! pass.
//!
//! | level | from the cache |
//! |---|---|
//! | READ COMMITTED | until the block's first write, under the rules of every other read |
//! | REPEATABLE READ | not the first read, which takes the snapshot. Later ones, until the first write, if the entry was read before a position that was proven visible before `BEGIN` (lo), and the stream has passed a log end that was asked for after the first read (hi): the commits that matter to the entry are then exactly those of the snapshot |
//! | SERIALIZABLE | nothing: the server must see what is read |
//!
//! Answers inside a block are also cached: those of READ COMMITTED, and the first of REPEATABLE READ. They have no proof of their own, so an unproven
//! commit that matters prevents it, and the log end is asked for after `COMMIT`. Until then they are in flight.

use std::sync::Arc;

use freshet_cache::SnapshotBounds;
use freshet_sql::Bracket;

use crate::postgres::session::mark::{Begin, Leaves, Locally};
use crate::postgres::session::unit::{Ask, ClientUnit, Kind, Unit};
use crate::postgres::session::{Known, Session};
use crate::statement::registry::Statement;

impl Session {
    /// Between transactions, and certain to be so when the next message is read.
    pub(crate) fn is_between_transactions(&self) -> bool {
        self.transaction.is_idle() && self.pipeline.is_pure()
    }

    /// Whether the settings and definitions in force stay in force: no open transaction can roll them back.
    pub(crate) fn is_settled(&self) -> bool {
        self.pipeline.is_pure() && self.transaction.is_settled()
    }

    /// A statement passes in the last unit: notes its effect on the transaction block.
    pub(crate) fn note_bracket(&mut self, statement: Option<&Arc<Statement>>) {
        let between = self.is_between_transactions();
        let lo = statement.and_then(|s| s.query.template.bracket()).and_then(|bracket| match bracket {
            Bracket::Begin(_) => self.shared.cache.proven(),
            _ => None,
        });
        let is_usual = |s: &Arc<Statement>| matches!(s.query.template.bracket(), None | Some(Bracket::End));
        if !statement.is_some_and(is_usual) {
            self.lose_outer();
        }
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

    /// Asks for the session's context before a block is opened: inside, it cannot.
    pub(crate) fn prepare_block(&mut self, statement: &Statement) {
        let begins = matches!(statement.query.template.bracket(), Some(Bracket::Begin(_)));
        self.server.settings.is_used |= begins;
        if begins
            && self.is_between_transactions()
            && matches!(self.server.settings.known, Known::Nothing | Known::Failed)
        {
            self.ask_context();
        }
    }

    /// The last unit is sent completely: asks for the log end after it, if it certainly ends a transaction that wrote or that has fills, or if the
    /// next look-up is likely to need it. If it were asked for after the answer, it would arrive a round trip later, after the client's next
    /// statement.
    pub(crate) fn close_unit(&mut self) {
        let same_server = matches!(self.server.compare(&self.shared), Some(Ok(())));
        let alone = self.pipeline.is_pure_before_last();
        let idle = self.transaction.is_idle();
        let kept = self.transaction.has_fills() || self.transaction.wrote();
        let effects = &self.last_unit().effects;
        let stays = matches!(effects.mark.leaves, Leaves::Same) && !effects.mark.writes();
        match effects.locally {
            Locally::Sets if stays => return,
            Locally::Queries if stays => return self.ask_local(),
            Locally::Nothing | Locally::Sets | Locally::Queries => {}
        }
        let unit = self.last_unit();
        let mark = &unit.effects.mark;
        let (ends, writes) = match mark.leaves {
            Leaves::Closed => (unit.kind != Kind::Batch || mark.has_executed_end(), mark.writes() || kept || !alone),
            Leaves::Same => (idle && alone, mark.writes()),
            Leaves::Open(_) | Leaves::Unknown => (false, false),
        };
        if !ends || mark.asks_for_data || !same_server {
            return;
        }
        let place = Some(unit.place).filter(|_| unit.tells_of_data());
        let needed = place.is_some_and(|place| self.prefetch.expect_end_needed(place));
        if writes && (needed || !self.skips_commit_wait()) {
            self.ask_end_behind_write();
        } else if needed {
            self.ask(Ask::End);
        }
    }

    /// Whether the log end is not needed after the last unit, which ends a transaction that wrote: as far as is known now, its acknowledgement needs
    /// no commit wait, and it has no fills.
    fn skips_commit_wait(&mut self) -> bool {
        let Some(Unit::Client(unit)) = self.pipeline.back() else { return false };
        let touched = self.touched_with(&unit.effects.mark.touched);
        !self.transaction.has_fills()
            && matches!(self.server.settings.known, Known::Context(..))
            && self.check_wait_skipped(&touched)
    }

    /// A query was answered from the cache.
    pub(crate) fn query_unseen(&mut self) {
        if let Some(block) = self.transaction.block_mut() {
            block.note_unseen_query();
        }
    }

    /// A unit has been answered: updates the state of the block.
    pub(crate) fn follow_block(&mut self, unit: &ClientUnit) {
        let mark = &unit.effects.mark;
        if self.transaction.is_idle() {
            if !self.client.ends_by_itself() {
                self.client.unseen_mut().forget();
            }
            self.restore_outer();
            self.transaction.end_block();
            self.watermark.end_snapshot();
            return;
        }
        if mark.may_commit() {
            self.lose_outer();
        }
        let now = self.now();
        let used = mark.reads || mark.others || !self.pipeline.is_empty();
        let block = self.transaction.follow_block(mark, self.server.settings.default_isolation, used);
        if unit.has_failed() {
            block.note_failure();
        }
        if block.has_snapshot() && self.watermark.snapshot().is_none() && mark.reads && !unit.has_failed() {
            self.watermark.begin_snapshot(block.lo().map(|lo| SnapshotBounds { lo, since: now }));
        }
    }

    /// Results of a block that stays open for too long are not cached.
    pub(crate) fn give_up_block_fills(&mut self) {
        if self.transaction.fills_due().is_some_and(|due| self.now() >= due) {
            self.transaction.fills().clear();
        }
    }
}
