//! The beginning and the end of a fill.

use std::sync::Arc;
use std::task::Waker;

use freshet_types::{CatalogVersion, Epoch, Lsn, NamedRows, Nanos, TableId, Tag, Visible};

use crate::freshness::Proven;

/// Identifies a fill and, once installed, its entry.
pub(crate) type Id = u64;

/// What a fill ends with.
pub(crate) struct Ending<'a> {
    pub(crate) proof: Option<&'a Visible>,
    pub(crate) epoch: Epoch,
    /// The tags behind its [`RowSet::Later`](freshet_types::RowSet) tags.
    pub(crate) deferred: Option<Deferred>,
    /// A rule that is off: the deferred tags are not checked against the commits since the fill began.
    pub(crate) trust_deferred: bool,
}

/// Deferred tags.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    pub(crate) tags: Vec<Tag>,
    /// The tables whose rows determined the tags. None if something else did, too.
    pub(crate) led_by: Option<Arc<[TableId]>>,
    /// The rows that the tags name by their keys.
    pub(crate) named: Arc<[NamedRows]>,
    /// If rows are named: the tags that are checked against the commits since the fill began, in place of `tags`.
    pub(crate) until_known: Option<Vec<Tag>>,
}

/// What a fill begins with.
#[derive(Debug)]
pub struct FillRequest<'a> {
    /// The whole key.
    pub key: &'a [u8],
    /// What the result depends on.
    pub tags: Vec<Tag>,
    /// The catalogue that the tags were derived from.
    pub catalog: CatalogVersion,
    /// The query is sent now or later. A session whose last answer is older may hit the entry at once.
    pub now: Nanos,
    /// The query reads a snapshot that was taken after this was proven visible, not the current state.
    pub snapshot: Option<Proven>,
    /// Others may wait for its end until this time (0: nobody may): see [`crate::Cache::join`].
    pub join_until: Nanos,
}

/// A flight that was registered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) id: Id,
    pub(crate) epoch: Epoch,
    /// A matching commit is not proven visible: the query may or may not see it.
    pub(crate) needs_proof: bool,
    /// The same, or this may turn out once the deferred tags are known.
    pub(crate) may_need_proof: bool,
    /// Some of its tags are deferred.
    pub(crate) wants_deferred: bool,
    /// [`crate::core::Core::publications`]
    pub(crate) publications: u64,
}

/// A flight that may be installed.
pub(crate) struct Flight {
    pub(crate) key: Arc<[u8]>,
    /// The bytes of all its tags, with their share of the index.
    pub(crate) tags_bytes: usize,
    pub(crate) fence: Lsn,
    /// Dropped once the entry can be found.
    _joiners: Joiners,
}

impl Flight {
    pub(crate) fn new(key: Arc<[u8]>, tags_bytes: usize, fence: Lsn, joiners: Joiners) -> Self {
        Self { key, tags_bytes, fence, _joiners: joiners }
    }
}

/// Tasks that wait for the end of a flight. They are woken when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Joiners(pub(crate) Vec<Waker>);

impl Drop for Joiners {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Waker::wake);
    }
}
