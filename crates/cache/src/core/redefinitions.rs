//! Redefinitions that the stream has delivered and that the catalogue in use does not show.
//!
//! On delivery the entries that depend on the redefined relations are removed, and their flights fail. From then on no
//! fill begins that depends on one of them: its tags would be those of the previous definition. Other fills begin,
//! since their tags are the same under both definitions. So results are cached also while definitions change faster
//! than the catalogue is loaded.
//!
//! A catalogue may be used that does not show all redefinitions. This is as if it had been loaded before they were
//! delivered, with one difference: their names were looked up in the previous catalogue. So they are looked up again
//! ([`Core::redefine_again`]).

use std::sync::Arc;

use freshet_types::{CatalogVersion, Change, ChangeSet, Commit, CommitId, TableId, Tag, Visible};

use crate::core::Core;

/// The redefinitions that the catalogue in use does not show.
#[derive(Debug, Default)]
pub(super) struct Redefinitions(Vec<Unshown>);

#[derive(Debug)]
struct Unshown {
    commit: CommitId,
    changes: ChangeSet,
    /// A catalogue shows it that was loaded, but is not in use.
    is_read: bool,
}

impl Redefinitions {
    /// The number of relations beyond which a redefinition is remembered as one of everything.
    const RELATIONS_MAX: usize = 1000;
    /// The number of redefinitions beyond which the epoch ends, since no catalogue can be loaded.
    const COMMITS_MAX: usize = 10_000;

    pub(super) fn push(&mut self, commit: &Commit) {
        let relations = match &commit.changes {
            ChangeSet::Rows(rows) => rows.iter().filter(|change| change.is_whole()).cloned().collect(),
            ChangeSet::Everything => Vec::new(),
        };
        let fits = self.relations().count() + relations.len() <= Self::RELATIONS_MAX;
        let changes = if fits { known(ChangeSet::Rows(relations)) } else { ChangeSet::Everything };
        self.0.push(Unshown { commit: commit.id, changes, is_read: false });
    }

    /// Adds the relations with the same names.
    fn add_namesakes(&mut self, add_namesakes: &dyn Fn(&mut ChangeSet)) {
        for Unshown { changes, .. } in &mut self.0 {
            add_namesakes(changes);
            *changes = known(std::mem::replace(changes, ChangeSet::Everything));
        }
        if self.relations().count() > Self::RELATIONS_MAX {
            self.0.iter_mut().for_each(|unshown| unshown.changes = ChangeSet::Everything);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether a result with these tags depends on one of them.
    pub(super) fn touch(&self, tags: &[Tag]) -> bool {
        self.has_everything() || self.relations().any(|table| tags.iter().any(|tag| tag.table == table))
    }

    fn has_everything(&self) -> bool {
        self.0.iter().any(|unshown| unshown.changes == ChangeSet::Everything)
    }

    fn relations(&self) -> impl Iterator<Item = TableId> {
        let rows = self.0.iter().filter_map(|unshown| match &unshown.changes {
            ChangeSet::Rows(rows) => Some(rows),
            ChangeSet::Everything => None,
        });
        rows.flatten().map(Change::table)
    }
}

/// Everything instead of relations of unknown names. The names are unknown if a transaction changed too many rows.
fn known(changes: ChangeSet) -> ChangeSet {
    match changes {
        ChangeSet::Rows(rows) if rows.iter().any(|change| matches!(change, Change::Redefined { .. })) => {
            ChangeSet::Rows(rows)
        }
        _ => ChangeSet::Everything,
    }
}

impl Core {
    pub(crate) fn catalog(&self) -> Option<CatalogVersion> {
        self.catalog
    }

    pub(crate) fn set_catalog(&mut self, version: Option<CatalogVersion>) {
        self.catalog = version;
    }

    /// Whether a catalogue must be loaded: there is none, or it is older than what the stream has delivered.
    pub(crate) fn wants_catalog(&self) -> bool {
        self.catalog.is_none() || self.has_unshown()
    }

    /// So many redefinitions wait for a catalogue that they take too much memory.
    pub(super) fn unshown_is_hopeless(&self) -> bool {
        self.redefinitions.0.len() > Redefinitions::COMMITS_MAX
    }

    /// Whether the stream has delivered a redefinition that the catalogue in use does not show.
    pub(crate) fn has_unshown(&self) -> bool {
        !self.redefinitions.0.is_empty()
    }

    /// Notes the redefinitions that a loaded catalogue shows. Returns whether it shows all of them. It may be built on
    /// one that was loaded before and was not used.
    pub(crate) fn note_read(&mut self, load: &Visible) -> bool {
        let unshown = &mut self.redefinitions.0;
        for unshown in unshown.iter_mut() {
            unshown.is_read |= load.proves(unshown.commit);
        }
        unshown.iter().all(|unshown| unshown.is_read)
    }

    /// The catalogue is used: forgets the redefinitions that it shows.
    pub(crate) fn forget_read(&mut self) {
        self.redefinitions.0.retain(|unshown| !unshown.is_read);
    }

    /// The other redefinitions count as delivered once more, with the meanings of their names under a new catalogue.
    /// Returns the keys of the entries that depend on them.
    pub(crate) fn redefine_again(&mut self, add_namesakes: &dyn Fn(&mut ChangeSet)) -> Vec<Arc<[u8]>> {
        self.redefinitions.add_namesakes(add_namesakes);
        if self.redefinitions.has_everything() {
            return self.flush();
        }
        let relations: Vec<TableId> = self.redefinitions.relations().collect();
        self.remove_dependents(&relations)
    }
}
