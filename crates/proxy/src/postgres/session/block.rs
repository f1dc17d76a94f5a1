//! What is known of the session's transaction, and of its block.

use freshet_cache::Proven;
use freshet_sql::{Bracket, Isolation, Template};
use freshet_types::{Nanos, Reason};
use freshet_wire::postgres::backend;

use crate::postgres::session::local::Outer;
use crate::postgres::session::mark::{Begin, Leaves, Mark};
use crate::postgres::session::unit::Fill;
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
    /// What it may have written to.
    touched: Touched,
    /// Anything was sent in it.
    used: bool,
    /// Everything up to here was proven visible before it began.
    lo: Option<Proven>,
    /// A query of it was answered from the cache, and the server has seen none since it began.
    has_unseen_query: bool,
    /// A statement of the client's failed in it.
    failed: bool,
    /// It has changed settings that come back with its end, and nothing else that decides about results.
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

    /// Why its reads pass, if they do.
    pub(crate) fn obstacle(&self, hits_after_write: bool) -> Option<Reason> {
        match self.isolation {
            _ if self.wrote() && !hits_after_write => Some(Reason::WroteInTransaction),
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

    /// It begins. `used`: something was sent in it already.
    pub(super) fn begun(begin: Begin, default_isolation: Option<Isolation>, used: bool) -> Self {
        let Begin { isolation, lo } = begin;
        let isolation = isolation.or(default_isolation);
        Self { isolation, unsettled: false, touched: Touched::Nothing, used, lo, ..Self::NEW }
    }

    /// It is known to be READ COMMITTED, and has done nothing but read.
    pub(super) fn reads_committed(&self) -> bool {
        self.isolation == Some(Isolation::ReadCommitted) && !self.wrote() && !self.unsettled
    }

    /// A statement of it failed: nothing is answered in it any more.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    pub(super) fn note_failure(&mut self) {
        self.failed = true;
    }

    /// Its settings are not known from here on.
    pub(super) fn unsettle(&mut self) {
        self.unsettled = true;
    }

    /// It has changed settings for itself alone.
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

    /// Something in it may have written.
    pub(crate) fn wrote(&self) -> bool {
        self.touched != Touched::Nothing
    }

    /// What it may have written to.
    pub(crate) fn touched(&self) -> &Touched {
        &self.touched
    }

    /// Anything was sent in it.
    pub(crate) fn is_used(&self) -> bool {
        self.used
    }

    /// Something is sent in it.
    pub(crate) fn note_use(&mut self) {
        self.used = true;
    }

    /// Its end leaves settings and definitions as they are, whichever way it ends.
    pub(crate) fn is_settled(&self) -> bool {
        !self.unsettled && !self.wrote()
    }

    /// What was proven visible before it began.
    pub(super) fn lo(&self) -> Option<Proven> {
        self.lo
    }

    /// A query of it was answered from the cache.
    pub(crate) fn note_unseen_query(&mut self) {
        self.has_unseen_query = true;
    }

    /// Whether the server must be given a query before this statement. Behind the first query of a block it refuses to change the level or the
    /// access mode, and one that was answered from the cache is a query, too. What takes a snapshot is one itself; how the block ends does not
    /// depend on it.
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
    /// What is known of the open block.
    block: Option<Block>,
    /// Complete fills that wait for the block's end, and until when they do.
    fills: Vec<Fill>,
    fills_due: Nanos,
    /// Portals with names may be open in the block.
    portals: bool,
    /// A statement of the open transaction may have changed the catalogue.
    catalog_dirty: bool,
    /// The open transaction may have changed definitions that are looked for.
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

    /// The server waits for the next statement, in this state.
    pub(super) fn ready(&mut self, status: u8) {
        self.status = status;
    }

    pub(super) fn status(&self) -> u8 {
        self.status
    }

    /// In no transaction block.
    pub(super) fn is_idle(&self) -> bool {
        self.status == backend::STATUS_IDLE
    }

    /// In none, or in one whose end leaves settings and definitions as they are, whichever way it ends.
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

    /// The open block may have written.
    pub(super) fn wrote(&self) -> bool {
        self.block.as_ref().is_some_and(Block::wrote)
    }

    /// A unit has been answered, behind which no block is open.
    pub(super) fn end_block(&mut self) {
        self.block = None;
    }

    /// A unit with this mark has been answered, behind which a block is open. `used`: if it has opened one, something was sent in that already.
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

    // --- answers of the block ------------------------------------------------------------------------------

    /// Answers of a unit inside the block, to be kept once it has ended.
    pub(super) fn keep_fills(&mut self, fills: Vec<Option<Fill>>, now: Nanos) {
        if self.fills.is_empty() {
            self.fills_due = now + BLOCK_FILLS_AGE_MAX;
        }
        let room = BLOCK_FILLS_MAX.saturating_sub(self.fills.len());
        self.fills.extend(fills.into_iter().flatten().filter(Fill::is_complete).take(room));
    }

    /// When those that wait are given up; None: none waits.
    pub(super) fn fills_due(&self) -> Option<Nanos> {
        (!self.fills.is_empty()).then_some(self.fills_due)
    }

    pub(super) fn has_fills(&self) -> bool {
        !self.fills.is_empty()
    }

    /// Those that wait, which are taken out or given up.
    pub(super) fn fills(&mut self) -> &mut Vec<Fill> {
        &mut self.fills
    }

    // --- until it ends -------------------------------------------------------------------------------------

    /// A unit has been answered, which may have left portals with names open.
    pub(super) fn note_portals(&mut self, binds_named: bool) {
        self.portals = !self.is_idle() && (self.portals || binds_named);
    }

    /// Portals with names may be open.
    pub(super) fn has_portals(&self) -> bool {
        self.portals
    }

    /// A unit has been answered: whether the catalogue may have changed. What a transaction does to it shows when it commits.
    pub(super) fn follow_catalog(&mut self, changes: bool) -> bool {
        let changed = self.catalog_dirty || changes;
        self.catalog_dirty = changed && !self.is_idle();
        changed
    }

    /// The open transaction may have changed definitions that are looked for.
    pub(super) fn has_redefined(&self) -> bool {
        self.redefined
    }

    /// A unit has been answered: whether its transaction may have changed such definitions.
    pub(super) fn follow_definitions(&mut self, redefines: bool) -> bool {
        let redefined = self.redefined || redefines;
        self.redefined = redefined && !self.is_idle();
        redefined
    }
}
