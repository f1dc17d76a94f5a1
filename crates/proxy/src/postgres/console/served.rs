//! The databases that the console tells of: all PostgreSQL databases of the instance.
//!
//! The console's own sessions are in the list of the first. A pause is set in all lists, so that the first knows what is paused.

use std::sync::Arc;

use crate::postgres::Pg;
use crate::server::databases::{Database, Databases, Family};
use crate::server::sessions::Link;

/// One PostgreSQL database of the instance.
#[derive(Clone, Debug)]
pub(super) struct Served {
    /// What clients ask for.
    pub(super) name: String,
    pub(super) pg: Arc<Pg>,
}

/// All of them, and the first, whose operators these are.
#[derive(Clone, Copy)]
pub(super) struct Instance<'a> {
    pub(super) first: &'a Arc<Pg>,
    pub(super) all: &'a [Served],
}

/// The PostgreSQL databases of this instance, as of now.
pub(super) fn served(databases: &Databases) -> Vec<Served> {
    let of = |database: &Database| match &database.family {
        Family::Postgres(pg) => Some(Served { name: database.name.clone(), pg: pg.clone() }),
        Family::MySql(_) => None,
    };
    databases.databases().iter().filter_map(of).collect()
}

impl<'a> Instance<'a> {
    pub(super) fn databases(self) -> impl Iterator<Item = &'a Arc<Pg>> {
        self.all.iter().map(|served| &served.pg)
    }

    /// The sessions of all, the oldest first.
    pub(super) fn links(self) -> Vec<Arc<Link>> {
        let mut links: Vec<Arc<Link>> = self.databases().flat_map(|pg| pg.sessions.all()).collect();
        links.sort_by_key(|link| link.id);
        links
    }

    /// Whether the database of this name is paused.
    pub(super) fn is_paused(self, database: &str) -> bool {
        self.first.sessions.is_paused(database)
    }

    pub(super) fn is_all_paused(self) -> bool {
        self.first.sessions.is_all_paused()
    }

    pub(super) fn pause(self, database: Option<&str>) {
        self.databases().for_each(|pg| pg.sessions.pause(database));
    }

    /// False: there was no pause.
    pub(super) fn resume(self, database: Option<&str>) -> bool {
        self.databases().fold(false, |any, pg| pg.sessions.resume(database) | any)
    }

    pub(super) fn is_at_rest(self, database: Option<&str>) -> bool {
        self.databases().all(|pg| pg.sessions.is_at_rest(database))
    }

    pub(super) fn kill_all(self, database: Option<&str>) {
        self.databases().for_each(|pg| pg.sessions.kill_all(database));
    }

    /// False: there is no session of this number.
    pub(super) fn kill(self, id: u64) -> bool {
        self.databases().any(|pg| pg.sessions.kill(id))
    }
}
