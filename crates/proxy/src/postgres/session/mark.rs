//! What a unit of the client's messages does to data and to the transaction block, as far as its statements say.

use std::sync::Arc;

use freshet_cache::Proven;
use freshet_sql::{Bracket, Effect, Isolation};
use freshet_types::{CatalogVersion, TableId};

use crate::session::commit_wait::Touched;
use crate::statement::registry::Statement;

/// A block begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begin {
    pub(super) isolation: Option<Isolation>,
    /// Everything up to here was proven visible before it began.
    pub(super) lo: Option<Proven>,
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

/// What a statement does to settings of its transaction alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Locally {
    /// Nothing, or more than that.
    #[default]
    Nothing,
    /// `SET LOCAL`, which is no query: behind it the level of the transaction can still be changed.
    Sets,
    /// A query sets them.
    Queries,
}

/// Whether the unnamed portal ends the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EndPortal {
    /// It is not bound to a statement that does.
    #[default]
    NotBound,
    /// It is.
    Bound,
    /// It was, and was executed then.
    Executed,
}

/// What a unit does to data and to the transaction, as far as its statements say.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other, each set in one place")]
pub(crate) struct Mark {
    /// What it may write to.
    pub(crate) touched: Touched,
    /// It reads tables, and so takes the snapshot of a block that has none.
    pub(crate) reads: bool,
    /// It may change settings or definitions.
    pub(super) unsettles: bool,
    /// Something other than BEGIN was parsed, bound or described, which may take a snapshot.
    pub(crate) others: bool,
    end_portal: EndPortal,
    /// The server may ask for data: nothing can be sent behind it.
    pub(super) asks_for_data: bool,
    pub(super) leaves: Leaves,
}

impl Mark {
    /// It may write.
    pub(crate) fn writes(&self) -> bool {
        self.touched != Touched::Nothing
    }

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
        if self.end_portal != EndPortal::Executed {
            self.end_portal = if bracket == Some(Bracket::End) { EndPortal::Bound } else { EndPortal::NotBound };
        }
    }

    /// The unnamed portal is executed.
    pub(crate) fn execute_unnamed(&mut self) {
        if self.end_portal == EndPortal::Bound {
            self.end_portal = EndPortal::Executed;
        }
    }

    /// The unnamed portal was executed when it was bound to what ends the block.
    pub(crate) fn has_executed_end(&self) -> bool {
        self.end_portal == EndPortal::Executed
    }

    /// Something is executed of which it is not known whether it ends the block, and begins another.
    pub(crate) fn note_unseen_end(&mut self) {
        self.leaves = Leaves::Unknown;
    }

    /// `written`: the only tables that it may write to, if that is known.
    pub(crate) fn note(&mut self, effect: Effect, written: Option<&(CatalogVersion, Arc<[TableId]>)>) {
        if matches!(effect, Effect::Write | Effect::Definition | Effect::Forgets) {
            self.touched.add(written.map(|(catalog, tables)| (*catalog, &**tables)));
        }
        self.unsettles |= effect > Effect::Write;
    }
}
