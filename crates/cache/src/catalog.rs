//! The catalogue under which results are cached.

use freshet_types::{CatalogVersion, ChangeSet, Epoch, Nanos, TableId, Visible};

use crate::{Cache, Payload};

/// How a newly loaded catalogue differs from the previous one.
#[derive(Clone, Copy, Debug)]
pub enum Redefinition<'a> {
    /// Anything may differ.
    Everything,
    /// Only these relations differ, and no other relation depends on them.
    Tables(&'a [TableId]),
}

/// A catalogue that was loaded.
#[derive(Clone, Copy)]
pub struct CatalogLoad<'a> {
    /// The number of the load.
    pub version: CatalogVersion,
    /// Its difference from the previous catalogue.
    pub differs: Redefinition<'a>,
    /// Read in the same snapshot.
    pub proof: &'a Visible,
    /// When the load was requested.
    pub asked_at: Nanos,
    /// Adds the relations with the same names under this catalogue to the relations that a commit redefined. None: the
    /// catalogue can be used only if it shows all delivered redefinitions.
    pub add_namesakes: Option<&'a dyn Fn(&mut ChangeSet)>,
}

impl<P: Payload> Cache<P> {
    /// The catalogue was found unchanged by a request sent at `asked_at`.
    pub fn catalog_unchanged(&self, version: CatalogVersion, asked_at: Nanos) {
        let core = self.core();
        if core.catalog() == Some(version) {
            self.freshness.renew_catalog(asked_at);
        }
    }

    /// The catalogue changed in an unknown way: everything is flushed, and no fill begins until
    /// [`Self::catalog_loaded`].
    pub fn catalog_changed(&self) {
        let mut core = self.core();
        self.freshness.revoke_catalog();
        core.set_catalog(None);
        self.flush(&mut core);
    }

    /// Whether a catalogue must be loaded: there is none, or it does not show all redefinitions that the stream has
    /// delivered.
    pub fn wants_catalog(&self) -> bool {
        self.core().wants_catalog()
    }

    /// A catalogue was loaded in this epoch. False if it cannot be used, and must be loaded again.
    ///
    /// Fills that depend on a delivered redefinition begin once a catalogue shows it.
    pub fn catalog_loaded(&self, epoch: Epoch, load: CatalogLoad<'_>) -> bool {
        let mut core = self.core();
        if core.epoch() != Some(epoch) {
            return false;
        }
        let shows_all = core.note_read(load.proof);
        if !shows_all && load.add_namesakes.is_none() {
            return false;
        }
        core.forget_read();
        match load.differs {
            Redefinition::Tables(tables) if core.catalog().is_some() => {
                let keys = core.remove_dependents(tables);
                self.drop_flushed(keys);
            }
            _ => self.flush(&mut core),
        }
        if let Some(add_namesakes) = load.add_namesakes.filter(|_| !shows_all) {
            let keys = core.redefine_again(add_namesakes);
            self.drop_flushed(keys);
        }
        core.set_catalog(Some(load.version));
        self.freshness.renew_catalog(load.asked_at);
        true
    }
}
