//! The texts of views.
//!
//! To print a view's text, the server locks the relations that it reads until the transaction ends, and waits for sessions that redefine one of them.
//! So each text is read in a transaction of its own, which hardly waits: locks are held during a wait only within one view, and for at most [`WAIT`].
//! If a text cannot be read, its view is not cached. It is tried again once no session has locked what the view reads, or waits for such a lock.
//!
//! A text is read again only if something has changed that its names depend on. It may be newer than the rest of its catalogue: then the cause is a
//! redefinition that the cache will still receive or find by comparison, and either invalidates the entries of this catalogue.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use freshet_net::postgres::Rows;

use crate::postgres::service::catalog::rows::texts;
use crate::postgres::service::connection::{Connection, ServiceError};

/// Longer texts are not analysed.
const TEXT_MAX: usize = 65_536;
/// Time limit of a wait for a lock, in milliseconds.
const WAIT: u32 = 5;
/// Limit of waits before the rest is left for later.
const WAITS_MAX: u32 = 10;

/// All views, with the relations that their texts name.
pub(super) const VIEWS: &str = "
SELECT c.oid::text, coalesce(string_agg(DISTINCT u.oid::text, ' '), '') FROM pg_class c
JOIN pg_rewrite r ON r.ev_class = c.oid
LEFT JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
 AND d.refclassid IN ('pg_class'::regclass, 'pg_type'::regclass) AND d.refobjid >= 16384
LEFT JOIN pg_type t ON d.refclassid = 'pg_type'::regclass AND t.oid = d.refobjid
LEFT JOIN pg_class u ON u.oid = CASE d.refclassid WHEN 'pg_class'::regclass THEN d.refobjid ELSE t.typrelid END
WHERE c.oid >= 16384 AND c.relkind = 'v' AND c.relpersistence <> 't' GROUP BY c.oid";

/// Relations that a session redefines, or waits to redefine.
const LOCKED: &str = "
SELECT DISTINCT l.relation::text FROM pg_locks l JOIN pg_database b ON b.oid = l.database
WHERE b.datname = current_database() AND l.mode = 'AccessExclusiveLock'";

/// A view in a snapshot.
pub(super) struct View {
    /// Its object id.
    id: String,
    /// The ids of the relations that it names.
    reads: Vec<String>,
    /// Versions of all objects that the names in its text depend on.
    version: String,
}

/// All views: the answer to [`VIEWS`].
pub(super) fn views(
    rows: Rows,
    versions: &HashMap<String, Arc<str>>,
    surroundings: &str,
) -> Result<Vec<View>, ServiceError> {
    let mut views = Vec::new();
    for row in rows {
        let [id, reads] = texts(row, "views")?;
        let reads: Vec<String> = reads.split(' ').map(str::to_owned).collect();
        let mut version = surroundings.to_owned();
        for relation in std::iter::once(&id).chain(&reads) {
            version.push(' ');
            version.push_str(versions.get(relation).map_or("", |version| version));
        }
        views.push(View { id, reads, version });
    }
    Ok(views)
}

/// The texts read last.
#[derive(Default)]
pub(super) struct Definitions {
    /// By the view's id: the versions for which it was read, and the text unless it is too long.
    known: HashMap<String, (String, Option<Arc<str>>)>,
    /// Views without text, because a session redefines what they read.
    waiting: Vec<View>,
}

impl Definitions {
    /// The texts of these views, as far as they can be read.
    pub(super) async fn read(
        &mut self,
        connection: &mut Connection,
        views: Vec<View>,
    ) -> Result<HashMap<String, Arc<str>>, ServiceError> {
        let mut before = std::mem::take(&mut self.known);
        self.waiting.clear();
        let mut missing = Vec::new();
        for view in views {
            match before.remove(&view.id) {
                Some(known) if known.0 == view.version => drop(self.known.insert(view.id, known)),
                _ => missing.push(view),
            }
        }
        self.ask(connection, missing).await?;
        let texts = self.known.iter().filter_map(|(id, (_, text))| Some((id.clone(), text.clone()?)));
        Ok(texts.collect())
    }

    /// Tries again to read the missing texts; returns whether one was read.
    pub(super) async fn try_again(&mut self, connection: &mut Connection) -> Result<bool, ServiceError> {
        if self.waiting.is_empty() {
            return Ok(false);
        }
        let before = self.known.len();
        let locked = locked(connection).await?;
        let waiting = std::mem::take(&mut self.waiting);
        let (later, now) = waiting.into_iter().partition(|view| view.is_locked(&locked));
        self.waiting = later;
        self.ask(connection, now).await?;
        Ok(self.known.len() > before)
    }

    /// Reads these views; those that are not read because the connection fails are tried again.
    async fn ask(&mut self, connection: &mut Connection, views: Vec<View>) -> Result<(), ServiceError> {
        let mut views = views.into_iter();
        let asked = self.ask_for_each(connection, &mut views).await;
        self.waiting.extend(views);
        asked
    }

    async fn ask_for_each(
        &mut self,
        connection: &mut Connection,
        views: &mut impl Iterator<Item = View>,
    ) -> Result<(), ServiceError> {
        let (mut held, mut waits) = (HashSet::new(), 0);
        for view in views {
            if waits >= WAITS_MAX || view.is_locked(&held) {
                self.waiting.push(view);
                continue;
            }
            // Two statements in one message are one transaction.
            let sql = format!("SET LOCAL lock_timeout = {WAIT}; SELECT pg_catalog.pg_get_viewdef({}::oid)", view.id);
            match connection.query(&sql).await {
                Ok(rows) => {
                    let text = rows.into_iter().next().and_then(|row| row.into_iter().next().flatten());
                    let text = text.filter(|text| text.len() < TEXT_MAX).map(Arc::from);
                    self.known.insert(view.id, (view.version, text));
                }
                Err(error) if error.is_race() => {
                    tracing::debug!(view = view.id, "its text cannot be read for now: {error}");
                    waits += 1;
                    self.waiting.push(view);
                    held = locked(connection).await?;
                }
                // The server cannot print it for another reason.
                Err(error) if error.is_refusal() => {
                    tracing::debug!(view = view.id, "its text cannot be read: {error}");
                    self.known.insert(view.id, (view.version, None));
                }
                Err(error) => {
                    self.waiting.push(view);
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

impl View {
    fn is_locked(&self, locked: &HashSet<String>) -> bool {
        locked.contains(&self.id) || self.reads.iter().any(|relation| locked.contains(relation))
    }
}

async fn locked(connection: &mut Connection) -> Result<HashSet<String>, ServiceError> {
    Ok(connection.query(LOCKED).await?.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect())
}
