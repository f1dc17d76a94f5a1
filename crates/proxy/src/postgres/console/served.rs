//! The databases that the console tells of: all PostgreSQL databases of the instance.
//!
//! The console's own sessions are in the list of the first.

use std::sync::Arc;

use crate::postgres::Pg;
use crate::server::databases::{Database, Databases, Family};
use crate::server::sessions::Link;

/// One PostgreSQL database of the instance.
#[derive(Clone, Debug)]
pub(super) struct Served {
    /// What clients ask for.
    pub(super) name: String,
    pub(super) aliases: Vec<String>,
    pub(super) pg: Arc<Pg>,
}

impl Served {
    /// The names by which clients may ask for it.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.aliases.iter().chain([&self.name]).map(String::as_str)
    }
}

/// All of them as of the begin of a command, and the first, whose operators these are.
#[derive(Clone, Copy)]
pub(super) struct Instance<'a> {
    pub(super) first: &'a Arc<Pg>,
    pub(super) served: &'a [Served],
    pub(super) databases: &'a Databases,
}

/// The PostgreSQL databases of this instance, as of now.
pub(super) fn served(databases: &Databases) -> Vec<Served> {
    let of = |database: &Database| match &database.family {
        Family::Postgres(pg) => {
            Some(Served { name: database.name.clone(), aliases: database.aliases.clone(), pg: pg.clone() })
        }
        Family::MySql(_) => None,
    };
    databases.databases().iter().filter_map(of).collect()
}

impl<'a> Instance<'a> {
    /// Whether clients may name any database, which is opened then.
    pub(super) fn takes_any(self) -> bool {
        self.all().any(|pg| pg.own.on_demand.is_some())
    }

    pub(super) fn all(self) -> impl Iterator<Item = &'a Arc<Pg>> {
        self.served.iter().map(|served| &served.pg)
    }

    /// The sessions of all, the oldest first.
    pub(super) fn links(self) -> Vec<Arc<Link>> {
        let mut links: Vec<Arc<Link>> = self.all().flat_map(|pg| pg.sessions.all()).collect();
        links.sort_by_key(|link| link.id);
        links
    }

    /// Whether the database of this name is paused.
    pub(super) fn is_paused(self, database: &str) -> bool {
        self.first.sessions.pauses.include(database)
    }

    pub(super) fn is_all_paused(self) -> bool {
        self.first.sessions.pauses.are_of_all()
    }

    pub(super) fn pause(self, database: Option<&str>) {
        self.first.sessions.pauses.begin(database);
        for pg in self.now() {
            pg.sessions.follow_pauses(database);
            pg.pooling.reconnect(database);
        }
    }

    /// Closes connections to the server, each as soon as no session has it.
    pub(super) fn reconnect(self, database: Option<&str>) {
        for pg in self.now() {
            pg.pooling.remembered.forget(database);
            pg.pooling.reconnect(database);
            pg.sessions.note_close_needed(database, |link| !pg.shares(link));
        }
    }

    /// Whether all connections from before the last RECONNECT are closed.
    pub(super) fn is_reconnected(self, database: Option<&str>) -> bool {
        self.now().all(|pg| !pg.pooling.has_earlier(database) && !pg.sessions.is_close_needed(database))
    }

    /// False: there was no pause.
    pub(super) fn resume(self, database: Option<&str>) -> bool {
        let was_paused = self.first.sessions.pauses.end(database);
        self.now().for_each(|pg| pg.sessions.follow_pauses(database));
        was_paused
    }

    pub(super) fn is_at_rest(self, database: Option<&str>) -> bool {
        self.now().all(|pg| pg.sessions.is_at_rest(database))
    }

    /// All databases of this moment: some may have been opened since the command began.
    fn now(self) -> impl Iterator<Item = Arc<Pg>> {
        served(self.databases).into_iter().map(|served| served.pg)
    }

    pub(super) fn kill_all(self, database: Option<&str>) {
        for pg in self.now() {
            pg.sessions.kill_all(database);
            pg.pooling.reconnect(database);
        }
    }

    /// False: there is no session of this number.
    pub(super) fn kill(self, id: u64) -> bool {
        self.all().any(|pg| pg.sessions.kill(id))
    }
}
