//! What a fill is begun with, and what it ends with.

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
    /// What the [`RowSet::Later`](freshet_types::RowSet) among its tags stand for.
    pub(crate) deferred: Option<Deferred>,
    /// Not to be held against the commits since the fill began: a rule that is off.
    pub(crate) trust_deferred: bool,
}

/// Deferred tags.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    pub(crate) tags: Vec<Tag>,
    /// The tables whose rows led to them, if that is all that they were made of.
    pub(crate) led_by: Option<Arc<[TableId]>>,
    /// The rows that may go, which they name by their keys.
    pub(crate) named: Arc<[NamedRows]>,
    /// Then, what the commits since the fill began are held against in their place.
    pub(crate) until_known: Option<Vec<Tag>>,
}

/// What a fill is begun with.
#[derive(Debug)]
pub struct FillRequest<'a> {
    /// The whole key.
    pub key: &'a [u8],
    /// What the result depends on.
    pub tags: Vec<Tag>,
    /// The catalogue that the tags were derived from.
    pub catalog: CatalogVersion,
    /// The query is sent now or later: sessions whose last answer is older may hit the entry at once.
    pub now: Nanos,
    /// The query reads a snapshot that was taken after this was proven visible, instead of the state of now.
    pub snapshot: Option<Proven>,
    /// Others may wait for its end until then (0: nobody may): see [`crate::Cache::join`].
    pub join_until: Nanos,
}

/// A flight that was registered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) id: Id,
    pub(crate) epoch: Epoch,
    /// Some commit is not proven visible that its query may or may not see.
    pub(crate) needs_proof: bool,
    /// The same, or so it may turn out once the deferred tags are told.
    pub(crate) may_need_proof: bool,
    /// Some of its tags are told later.
    pub(crate) wants_deferred: bool,
    /// [`crate::core::Core::publications`]
    pub(crate) publications: u64,
}

/// A flight that may be installed.
pub(crate) struct Flight {
    pub(crate) key: Arc<[u8]>,
    /// Of all its tags, with their share of the index.
    pub(crate) tags_bytes: usize,
    pub(crate) fence: Lsn,
    /// To be dropped once the entry can be found.
    _joiners: Joiners,
}

impl Flight {
    pub(crate) fn new(key: Arc<[u8]>, tags_bytes: usize, fence: Lsn, joiners: Joiners) -> Self {
        Self { key, tags_bytes, fence, _joiners: joiners }
    }
}

/// Tasks that wait for the end of a flight: they are woken when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Joiners(pub(crate) Vec<Waker>);

impl Drop for Joiners {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Waker::wake);
    }
}
