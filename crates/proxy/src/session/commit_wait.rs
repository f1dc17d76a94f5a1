//! Writes that are acknowledged at once, since nothing that is kept rests on the tables that they touched.
//!
//! A held acknowledgement costs the database a question for the log end (PostgreSQL), and the client a wait for the stream. A write that runs
//! nothing but the server's own code (`sql/src/statement/write_effects.rs`) tells which tables it touches. If no entry and no flight rests on
//! any of them at a moment *after* the server has answered it, then no look-up can find what misses the write: whatever is filled later sees it.
//! [`freshet_cache::Cache::is_free_of`] says why that is enough, whatever the stream has delivered. The server answers only once new
//! snapshots show the commit: it leaves the list of running transactions before that, also behind a synchronous standby, and with
//! `synchronous_commit = off`. (On a standby it is shown later: fills that read one would need the acknowledgement to be held.) MySQL and MariaDB
//! answer once the engine has committed, which is when snapshots show it.
//!
//! On PostgreSQL it is asked twice: when the statement is sent, whether the log end has to be asked for behind it; and when it is answered, which
//! is what counts. If a fill has begun in between, the log end is asked for then. On MySQL and MariaDB the
//! commit that the answer names is the session's watermark, once the stream has applied it.
//!
//! # Definitions
//!
//! Which tables a write touches rests on the catalogue. A trigger that somebody has just made may have run in it, and touch others, although the
//! stream has not delivered it yet. An acknowledgement that is held waits for that as well; one that is not relies on this: who sends what may
//! define anything is counted from before it is sent until it is acknowledged, and that is held until the stream has delivered
//! it (or a fence is set, which [`freshet_cache::Cache::is_free_of`] minds). While there is any, every write is held. Once there is none, what they defined is in
//! the catalogue under which the write was judged, or the cache knows that the catalogue is out of date. Of definitions that come around
//! Freshet a write may know nothing as long as they are not delivered, as with all that comes around it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use freshet_types::{CatalogVersion, TableId};

use crate::shared::Shared;

/// Tables of one transaction beyond which it is held.
const TABLES_MAX: usize = 64;

/// What a transaction may have written to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Touched {
    #[default]
    Nothing,
    /// These tables, if this catalogue is right.
    Tables(CatalogVersion, Vec<TableId>),
    Anything,
}

impl Touched {
    /// It may have written to these as well; None: to anything.
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

/// One of those who are counted: who has sent what may define anything, which is not acknowledged yet; who writes.
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
    /// Whether a transaction that touched this needs no holding, as far as can be told now: to be asked by a session of the stream's server.
    pub(crate) fn is_free(&self, touched: &Touched) -> bool {
        let Touched::Tables(catalog, tables) = touched else { return false };
        // In this order: a fence is set before the count goes down.
        let none_defines = self.defining.load(SeqCst) == 0;
        none_defines && (self.settings.faults.frees_all || self.cache.is_free_of(tables, *catalog))
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
