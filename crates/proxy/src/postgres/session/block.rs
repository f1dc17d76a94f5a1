//! The state of the session's transaction and of its block.

use freshet_cache::Proven;
use freshet_sql::{Bracket, Isolation, Template};
use freshet_types::{Nanos, Reason};
use freshet_wire::postgres::backend;

use crate::postgres::session::local::Outer;
use crate::postgres::session::mark::{Begin, Leaves, Mark};
use crate::postgres::session::unit::Fill;
use crate::session::commit_wait::Touched;
use crate::statement::registry::Statement;

/// Limit of answers of one block that wait for its end.
const BLOCK_FILLS_MAX: usize = 16;
/// Their age limit: while they wait, no other session can cache these results.
const BLOCK_FILLS_AGE_MAX: Nanos = 1_000_000_000;

/// The state of the open block.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
pub(crate) struct Block {
    /// None: the statement that began it was not understood.
    isolation: Option<Isolation>,
    /// A statement of it may have changed settings or definitions.
    unsettled: bool,
    /// The tables that it may have written to.
    touched: Touched,
    /// A statement was sent in it.
    used: bool,
    /// All commits up to here were proven visible before it began.
    lo: Option<Proven>,
    /// A query of it was served from the cache, and the server has executed none since the block began.
    has_unseen_query: bool,
    /// A statement of the client failed in it.
    failed: bool,
    /// It has changed settings that its end restores, and no other state that can change a result.
    outer: Option<Box<Outer>>,
}

impl Block {
    pub(super) const UNKNOWN: Self = Self {
        isolation: None,
        unsettled: true,
        touched: Touched::Anything,
        used: true,
        lo: None,
        has_unseen_query: false,
        failed: false,
        outer: None,
    };

    const NEW: Self = Self {
        isolation: None,
        unsettled: false,
        touched: Touched::Nothing,
        used: false,
        lo: None,
        has_unseen_query: false,
        failed: false,
        outer: None,
    };

    /// The reason for which its reads pass, if they do.
    pub(crate) fn obstacle(&self, hits_after_write: bool) -> Option<Reason> {
        match self.isolation {
            _ if self.wrote() && !hits_after_write => Some(Reason::WroteInTransaction),
            _ if self.unsettled => Some(Reason::InTransaction),
            None => Some(Reason::InTransaction),
            Some(Isolation::Serializable) => Some(Reason::Serializable),
            Some(Isolation::ReadCommitted | Isolation::RepeatableRead) => None,
        }
    }

    /// Its state is unknown: a portal may be bound to a statement that ends it.
    pub(crate) fn is_unknown(&self) -> bool {
        self.isolation.is_none()
    }

    /// All its reads use one snapshot.
    pub(crate) fn has_snapshot(&self) -> bool {
        self.isolation == Some(Isolation::RepeatableRead)
    }

    /// Begins a block. `used`: a statement was sent in it already.
    pub(super) fn begun(begin: Begin, default_isolation: Option<Isolation>, used: bool) -> Self {
        let Begin { isolation, lo } = begin;
        let isolation = isolation.or(default_isolation);
        Self { isolation, unsettled: false, touched: Touched::Nothing, used, lo, ..Self::NEW }
    }

    /// It is READ COMMITTED for certain, and has only read.
    pub(super) fn reads_committed(&self) -> bool {
        self.isolation == Some(Isolation::ReadCommitted) && !self.wrote() && !self.unsettled
    }

    /// A statement of it failed: no further read is answered in it.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    pub(super) fn note_failure(&mut self) {
        self.failed = true;
    }

    /// Its settings are unknown from here on.
    pub(super) fn unsettle(&mut self) {
        self.unsettled = true;
    }

    /// It has changed settings for this transaction only.
    pub(crate) fn has_local_settings(&self) -> bool {
        self.outer.is_some()
    }

    pub(super) fn outer_mut(&mut self) -> &mut Option<Box<Outer>> {
        &mut self.outer
    }

    /// A unit of it has been answered.
    pub(super) fn follow(&mut self, mark: &Mark) {
        self.touched.join(&mark.touched);
        self.unsettled |= mark.unsettles;
    }

    /// A statement of it may have written.
    pub(crate) fn wrote(&self) -> bool {
        self.touched != Touched::Nothing
    }

    /// The tables that it may have written to.
    pub(crate) fn touched(&self) -> &Touched {
        &self.touched
    }

    /// A statement was sent in it.
    pub(crate) fn is_used(&self) -> bool {
        self.used
    }

    /// A statement is sent in it.
    pub(crate) fn note_use(&mut self) {
        self.used = true;
    }

    /// COMMIT and ROLLBACK both leave settings and definitions as they are.
    pub(crate) fn is_settled(&self) -> bool {
        !self.unsettled && !self.wrote()
    }

    /// The commits that were proven visible before it began.
    pub(super) fn lo(&self) -> Option<Proven> {
        self.lo
    }

    /// A query of it was served from the cache.
    pub(crate) fn note_unseen_query(&mut self) {
        self.has_unseen_query = true;
    }

    /// Whether the server must execute a query before this statement. After the first query of a block the server refuses to change the isolation
    /// level or the access mode, and a query that was served from the cache counts too. A statement that takes a snapshot is a query itself. The end
    /// of the block does not depend on it.
    pub(crate) fn take_unseen_query(&mut self, statement: Option<&Statement>) -> bool {
        let template = statement.map(|statement| &statement.query.template);
        let is_free_of_it = matches!(template.and_then(Template::bracket), Some(Bracket::End | Bracket::Savepoint));
        if is_free_of_it || !std::mem::take(&mut self.has_unseen_query) {
            return false;
        }
        !statement.is_some_and(|statement| statement.query.takes_snapshot)
    }
}

/// The session's transaction.
#[derive(Debug)]
pub(super) struct Transaction {
    /// The transaction status of the last `ReadyForQuery`.
    status: u8,
    /// The state of the open block.
    block: Option<Block>,
    /// Complete fills that wait for the end of the block, and their time limit.
    fills: Vec<Fill>,
    fills_due: Nanos,
    /// Named portals may be open in the block.
    portals: bool,
    /// A statement of the open transaction may have changed the catalogue.
    catalog_dirty: bool,
    /// The open transaction may have changed definitions that only a check of the catalogue finds.
    redefined: bool,
}

impl Transaction {
    pub(super) fn new() -> Self {
        Self {
            status: backend::STATUS_IDLE,
            block: None,
            fills: Vec::new(),
            fills_due: 0,
            portals: false,
            catalog_dirty: false,
            redefined: false,
        }
    }

    // --- the block -----------------------------------------------------------------------------------------

    /// The server waits for the next statement and has reported this status.
    pub(super) fn ready(&mut self, status: u8) {
        self.status = status;
    }

    pub(super) fn status(&self) -> u8 {
        self.status
    }

    /// Whether no transaction block is open.
    pub(super) fn is_idle(&self) -> bool {
        self.status == backend::STATUS_IDLE
    }

    /// Whether no block is open, or both COMMIT and ROLLBACK of it leave settings and definitions as they are.
    pub(super) fn is_settled(&self) -> bool {
        let is_settled_block = self.block.as_ref().is_some_and(Block::is_settled);
        self.is_idle() || (self.status == backend::STATUS_BLOCK && is_settled_block)
    }

    pub(super) fn block(&self) -> Option<&Block> {
        self.block.as_ref()
    }

    pub(super) fn block_mut(&mut self) -> Option<&mut Block> {
        self.block.as_mut()
    }

    /// Whether the open block may have written.
    pub(super) fn wrote(&self) -> bool {
        self.block.as_ref().is_some_and(Block::wrote)
    }

    /// A unit has been answered, after which no block is open.
    pub(super) fn end_block(&mut self) {
        self.block = None;
    }

    /// A unit with this mark has been answered, after which a block is open. `used`: if the unit has opened the block, it has sent a statement in it
    /// already.
    pub(super) fn follow_block(&mut self, mark: &Mark, default_isolation: Option<Isolation>, used: bool) -> &mut Block {
        match mark.leaves {
            Leaves::Open(begin) => self.block = Some(Block::begun(begin, default_isolation, used)),
            Leaves::Closed | Leaves::Unknown => self.block = Some(Block::UNKNOWN),
            Leaves::Same => {}
        }
        let block = self.block.get_or_insert(Block::UNKNOWN);
        block.follow(mark);
        block
    }

    // --- fills of the block --------------------------------------------------------------------------------

    /// Adds fills of a unit inside the block, which are installed once it has ended.
    pub(super) fn keep_fills(&mut self, fills: Vec<Option<Fill>>, now: Nanos) {
        if self.fills.is_empty() {
            self.fills_due = now + BLOCK_FILLS_AGE_MAX;
        }
        let room = BLOCK_FILLS_MAX.saturating_sub(self.fills.len());
        self.fills.extend(fills.into_iter().flatten().filter(Fill::is_complete).take(room));
    }

    /// When the waiting fills are given up; None if there are none.
    pub(super) fn fills_due(&self) -> Option<Nanos> {
        (!self.fills.is_empty()).then_some(self.fills_due)
    }

    pub(super) fn has_fills(&self) -> bool {
        !self.fills.is_empty()
    }

    /// The waiting fills, which the caller takes or gives up.
    pub(super) fn fills(&mut self) -> &mut Vec<Fill> {
        &mut self.fills
    }

    // --- state until its end -------------------------------------------------------------------------------

    /// A unit has been answered, which may have left named portals open.
    pub(super) fn note_portals(&mut self, binds_named: bool) {
        self.portals = !self.is_idle() && (self.portals || binds_named);
    }

    /// Whether named portals may be open.
    pub(super) fn has_portals(&self) -> bool {
        self.portals
    }

    /// A unit has been answered: returns whether the catalogue may have changed. Changes of a transaction become visible when it commits.
    pub(super) fn follow_catalog(&mut self, changes: bool) -> bool {
        let changed = self.catalog_dirty || changes;
        self.catalog_dirty = changed && !self.is_idle();
        changed
    }

    /// Whether the open transaction may have changed definitions that only a check of the catalogue finds.
    pub(super) fn has_redefined(&self) -> bool {
        self.redefined
    }

    /// A unit has been answered: returns whether its transaction may have changed such definitions.
    pub(super) fn follow_definitions(&mut self, redefines: bool) -> bool {
        let redefined = self.redefined || redefines;
        self.redefined = redefined && !self.is_idle();
        redefined
    }
}
