//! Writes without a commit wait: they are acknowledged at once, since no entry depends on the tables that they touched.
//!
//! A commit wait costs the database a query for the log end (PostgreSQL), and the client a wait for the stream. If a write runs built-in code only
//! (`sql/src/statement/write_effects.rs`), the tables that it touches are known. If no entry and no flight depends on any of them at a moment *after*
//! the server has answered it, no look-up can find a result without the write: everything filled later sees it. [`freshet_cache::Cache::is_free_of`]
//! explains why this is sufficient, whatever the stream has delivered. The server answers only once new snapshots show the commit: it leaves the list
//! of running transactions before that, also with a synchronous standby, and with `synchronous_commit = off`. (On a standby it becomes visible later:
//! fills from a standby would need the commit wait.) MySQL and MariaDB answer after the commit in the engine, when snapshots show it.
//!
//! On PostgreSQL this is checked twice: when the statement is sent, to decide whether the log end must be read after it; and when it is answered,
//! which decides. If a fill has begun in between, the log end is read then. On MySQL and MariaDB the commit that the answer names is the session's
//! watermark, once the stream has applied it.
//!
//! # Definitions
//!
//! The tables of a write depend on the catalogue. A trigger that was just created may have run in the write, and touched other tables, although the
//! stream has not delivered the trigger yet. A commit wait includes this delivery. A write without one relies on this: a session that sends a
//! statement that may define anything is counted from before the statement is sent until it is acknowledged. Its acknowledgement waits until the
//! stream has delivered it (or a fence is set, which [`freshet_cache::Cache::is_free_of`] checks). While any is counted, every write waits. Once none
//! is, their definitions are in the catalogue with which the write was judged, or the cache knows that the catalogue is out of date. Definitions that
//! bypass Freshet may be unknown to a write until they are delivered, like everything that bypasses Freshet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use freshet_types::{CatalogVersion, TableId};

use crate::shared::Shared;

/// Limit of tables of one transaction; with more, it waits.
const TABLES_MAX: usize = 64;

/// The tables that a transaction may have written to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Touched {
    #[default]
    Nothing,
    /// These tables, if this catalogue is right.
    Tables(CatalogVersion, Vec<TableId>),
    Anything,
}

impl Touched {
    /// Adds tables that it may have written to; None: any table.
    pub(crate) fn add(&mut self, tables: Option<(CatalogVersion, &[TableId])>) {
        let Some((catalog, more)) = tables else {
            *self = Self::Anything;
            return;
        };
        match self {
            Self::Nothing => *self = Self::Tables(catalog, more.to_vec()),
            Self::Tables(same, tables) if *same == catalog && tables.len() + more.len() <= TABLES_MAX => {
                let new = more.iter().filter(|table| !tables.contains(table)).copied().collect::<Vec<_>>();
                tables.extend(new);
            }
            Self::Tables(..) | Self::Anything => *self = Self::Anything,
        }
    }

    pub(crate) fn join(&mut self, other: &Self) {
        match other {
            Self::Nothing => {}
            Self::Tables(catalog, tables) => self.add(Some((*catalog, tables))),
            Self::Anything => *self = Self::Anything,
        }
    }
}

/// Counts a session while it lives: one that has sent a statement that may define anything, or one that writes.
#[derive(Debug)]
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Counted {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, SeqCst);
        Self(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Shared {
    /// Whether a transaction that touched these tables needs no commit wait, as far as is known now. Only for a session on the stream's server.
    pub(crate) fn may_skip_commit_wait(&self, touched: &Touched) -> bool {
        let Touched::Tables(catalog, tables) = touched else { return false };
        // In this order: a fence is set before the count goes down.
        let none_defines = self.defining.load(SeqCst) == 0;
        none_defines && (self.settings.faults.skip_all_commit_waits || self.cache.is_free_of(tables, *catalog))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_touches_what_its_statements_do() {
        let (one, two) = (CatalogVersion(1), CatalogVersion(2));
        let mut touched = Touched::default();
        touched.add(Some((one, &[TableId(1)])));
        touched.add(Some((one, &[TableId(2), TableId(1)])));
        assert_eq!(touched, Touched::Tables(one, vec![TableId(1), TableId(2)]));
        let mut more = touched.clone();
        more.join(&Touched::Nothing);
        assert_eq!(more, touched);
        let mut under_another = touched.clone();
        under_another.add(Some((two, &[TableId(1)])));
        assert_eq!(under_another, Touched::Anything);
        let many: Vec<TableId> = (0..65).map(TableId).collect();
        touched.add(Some((one, &many)));
        assert_eq!(touched, Touched::Anything);
        more.add(None);
        more.add(Some((one, &[TableId(1)])));
        assert_eq!(more, Touched::Anything);
    }
}
