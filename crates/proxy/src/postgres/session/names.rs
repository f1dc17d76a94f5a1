//! The names of a session's prepared statements, where sessions share server connections.

use std::collections::HashMap;
use std::sync::Arc;

use rapidhash::quality::RandomState;

use crate::postgres::pooling::entries::Entry;
use crate::postgres::pooling::labels::Label;

/// Names of a session that are remembered; statements with further ones keep the connection.
const NAMES_MAX: usize = 10_000;

/// A statement that the client has prepared.
#[derive(Clone, Debug)]
pub(crate) struct Defined {
    pub(crate) entry: Arc<Entry>,
    /// When: see [`crate::postgres::pooling::entries::Entries::tick`].
    pub(crate) since: u64,
}

/// What a name stands for.
#[derive(Clone, Debug)]
pub(crate) enum Name {
    /// A statement that is prepared where it is needed, under the name of its entry.
    Shared(Defined),
    /// One that the connection has under this name, which the session keeps.
    Own,
}

/// The names.
#[derive(Debug, Default)]
pub(crate) struct Names {
    by_name: HashMap<Box<[u8]>, Name, RandomState>,
    /// Names that the connection has without need.
    superfluous: Vec<Box<[u8]>>,
    /// SQL may have prepared statements, whose names only the server knows.
    has_unknown: bool,
}

impl Names {
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Name> {
        self.by_name.get(name)
    }

    pub(crate) fn shared(&self, name: &[u8]) -> Option<&Defined> {
        match self.by_name.get(name) {
            Some(Name::Shared(defined)) => Some(defined),
            Some(Name::Own) | None => None,
        }
    }

    /// All that are shared.
    pub(crate) fn all_shared(&self) -> impl Iterator<Item = (&[u8], &Defined)> {
        self.by_name.iter().filter_map(|(name, kind)| match kind {
            Name::Shared(defined) => Some((&**name, defined)),
            Name::Own => None,
        })
    }

    /// Whether the connection has none under a name of the client's, nor any without need.
    pub(crate) fn are_shared(&self) -> bool {
        !self.has_unknown && self.superfluous.is_empty() && self.by_name.len() == self.all_shared().count()
    }

    /// The length of all.
    pub(crate) fn bytes(&self) -> usize {
        self.all_shared().map(|(name, defined)| name.len() + defined.entry.definition.len()).sum()
    }

    /// The client has prepared this statement before.
    pub(crate) fn set_shared(&mut self, name: &[u8], entry: Arc<Entry>, since: u64) {
        self.set(name, Some(Name::Shared(Defined { entry, since })));
    }

    /// Sets what a name stands for, or that it stands for nothing. Returns what it stood for.
    pub(crate) fn set(&mut self, name: &[u8], kind: Option<Name>) -> Option<Name> {
        match kind {
            Some(kind) => self.by_name.insert(name.into(), kind),
            None => self.by_name.remove(name),
        }
    }

    /// Whether there is one that is prepared under other settings.
    pub(crate) fn has_misfit(&self, settings: &Label) -> bool {
        self.all_shared().any(|(_, defined)| defined.entry.settings != *settings)
    }

    /// Whether another name can be remembered, and the client can have no statement of that name unseen.
    pub(crate) fn may_grow(&self) -> bool {
        self.by_name.len() < NAMES_MAX && !self.has_unknown
    }

    /// A statement passes that may be PREPARE: returns whether that is new.
    pub(crate) fn note_unknown(&mut self) -> bool {
        !std::mem::replace(&mut self.has_unknown, true)
    }

    pub(crate) fn note_superfluous(&mut self, name: &[u8]) {
        self.superfluous.push(name.into());
    }

    /// Whether the connection had it without need.
    pub(crate) fn take_superfluous(&mut self, name: &[u8]) -> bool {
        let before = self.superfluous.len();
        self.superfluous.retain(|other| **other != *name);
        self.superfluous.len() < before
    }

    pub(crate) fn take_all_superfluous(&mut self) -> Vec<Box<[u8]>> {
        std::mem::take(&mut self.superfluous)
    }

    /// The connection has no statement under a name of the client's.
    pub(crate) fn own_are_gone(&mut self) {
        self.by_name.retain(|_, kind| matches!(kind, Name::Shared(_)));
        self.has_unknown = false;
    }

    /// All statements were dropped.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
