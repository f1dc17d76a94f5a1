//! The catalogue: the definitions of views are in the stream, other changes are found by polling. Each load is read in one snapshot with its proof. A
//! load with other views flushes what depends on them, any other difference flushes everything.

use freshet_cache::{CatalogLoad, Redefinition};
use freshet_types::{CatalogVersion, ChangeSet, Epoch, Nanos, TableId, Visible};

use crate::database::{TABLES, VIEWS, Views, table_id};
use crate::world::{Event, MS, World};

/// The contents of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Changes that are not in the stream: roles, settings, functions.
    pub(crate) definition: u64,
    pub(crate) views: Views,
}

/// A running check of the catalogue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    asked_at: Nanos,
    /// To load it, under this epoch.
    load: Option<Epoch>,
}

impl World {
    pub(crate) fn ask_catalog(&mut self) {
        let load = self.catalog.is_none() || self.views_differ || self.cache.wants_catalog();
        let delay = self.round_trip();
        let load = self.cache.epoch().filter(|_| load);
        self.after(delay, Event::CatalogRead(Look { asked_at: self.now, load }));
    }

    pub(crate) fn read_catalog(&mut self, look: Look) {
        let known = Known { definition: self.db.definition, views: self.db.visible.views };
        let (delay, proof) = (self.round_trip(), self.db.proof());
        self.after(delay, Event::CatalogAnswer(look, known, proof));
    }

    pub(crate) fn catalog_answer(&mut self, look: Look, read: Known, proof: &Visible) {
        let asked_at = look.asked_at;
        match (self.catalog, look.load) {
            (_, Some(epoch)) => self.load_catalog((epoch, asked_at), read, proof),
            (Some((version, known)), None) if known == read => self.cache.catalog_unchanged(version, asked_at),
            (Some((_, known)), None) if known.definition == read.definition => self.views_differ = true,
            _ => {
                self.cache.catalog_changed();
                self.catalog = None;
            }
        }
        let again = self.catalog.is_none() || self.views_differ || self.cache.wants_catalog();
        let longest = if self.rng.percent(5) && !self.quiet() { 3000 } else { 200 };
        let pause = if again { MS } else { self.rng.between(50, longest) * MS };
        self.after(pause, Event::Catalog);
    }

    fn load_catalog(&mut self, (epoch, asked_at): (Epoch, Nanos), read: Known, proof: &Visible) {
        let now = self.db.proof();
        let proof = if self.rules.load_without_proof { &now } else { proof };
        let version = CatalogVersion(self.versions + 1);
        let differing: Vec<TableId> = match self.catalog {
            Some((_, known)) => {
                (0..VIEWS).filter(|v| known.views[*v] != read.views[*v]).map(|v| table_id(TABLES + v)).collect()
            }
            None => Vec::new(),
        };
        let differs = match self.catalog {
            Some((_, known)) if known.definition == read.definition => Redefinition::Tables(&differing),
            _ => Redefinition::Everything,
        };
        // As on PostgreSQL, or as on MySQL.
        let add_namesakes = version.0.is_multiple_of(2).then_some(&(|_: &mut ChangeSet| ()) as &dyn Fn(&mut ChangeSet));
        if self.cache.catalog_loaded(epoch, CatalogLoad { version, differs, proof, asked_at, add_namesakes }) {
            self.versions += 1;
            self.stats.loads += 1;
            self.stats.early_loads += u64::from(self.cache.wants_catalog());
            self.catalog = Some((version, read));
            self.views_differ = false;
            self.oracle.definition_known(read.definition);
        } else {
            self.stats.refused_loads += 1;
        }
    }
}
