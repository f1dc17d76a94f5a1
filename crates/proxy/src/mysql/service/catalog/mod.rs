//! Reads the catalogue, and notices when it has changed.
//!
//! DDL and GRANT arrive with the binlog, in commit order. They invalidate the entries of the objects that they name, and this service is woken to
//! read the catalogue again before the next fill. It reads only the relations that DDL names, and their dependents ([`part`]); for statements that
//! name none, it reads everything. `information_schema` has no cheap fingerprint (some ten microseconds for each table of MariaDB, more of MySQL),
//! and needs none. Facts that privileges and the log's completeness depend on and that are in no log are read every [`TICK`]: mandatory roles, and
//! whether replication was started. The lease counts from the last such reading. DDL under `sql_log_bin=0` is in no log: everything is read again at
//! intervals, within [`SHARE`] of the time. What MariaDB cannot show for a lock is read later ([`locked`]).
//!
//! *Catalogue reads are fills.* `information_schema` has no snapshots, so a proof is taken before it is read. If the proof does not show a
//! redefinition that the stream has delivered, the cache does not accept the catalogue. Anything newer than the proof is delivered later, and then
//! invalidates what was derived from it. A reading is useful even if it is not accepted: it shows everything that was delivered before it began, so
//! the next reading covers only later changes, however often definitions change.
//!
//! Tables need no publication: every table in the binlog is published as soon as it is known.

mod cascades;
mod definitions;
mod load;
mod locked;
mod part;
mod redefined;
mod rows;
mod server;

use std::sync::Arc;
use std::time::{Duration, Instant};

use freshet_cache::{CatalogLoad, Redefinition};
use freshet_types::{Catalog, CatalogVersion, End, Epoch, Lsn, Nanos, RelationKind, TableId, Visible};

use crate::mysql::MySql;
use crate::mysql::service::catalog::load::Basis;
use crate::mysql::service::catalog::part::Before;
use crate::mysql::service::catalog::redefined::Redefined;
use crate::mysql::service::catalog::server::Server;
use crate::mysql::service::connection::{Connection, ServiceError};
use crate::mysql::service::lease::{end_question, read_end};
use crate::mysql::service::prober::read_visible;
use crate::service::once::Once;

pub(crate) use redefined::Redefinitions;

/// Interval of readings of the server's facts.
const TICK: Duration = Duration::from_millis(250);
/// Shortest pause between readings while the stream is ahead of them; it grows up to [`TICK`].
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// The catalogue is read again after this many times the duration of the last reading: half a percent of the time.
const SHARE: u32 = 200;
/// Shortest interval of such readings.
const AGAIN_MIN: Duration = Duration::from_secs(60);
/// The same while tables are locked, of which nothing is known.
const SHARE_LOCKED: u32 = 20;
const LOCKED_MIN: Duration = Duration::from_secs(5);

/// Watches the catalogue; never returns.
pub(super) async fn watch_catalog(mysql: Arc<MySql>) {
    let mut watch = Watch {
        connection: Connection::new(mysql.clone()),
        loader: Connection::new(mysql.clone()),
        last: None,
        server: None,
        version: CatalogVersion(0),
        again_at: Instant::now(),
        mysql: mysql.clone(),
    };
    let mut once = Once::default();
    let mut pause = PAUSE_MIN;
    loop {
        match watch.round().await {
            Ok(()) => once.clear(),
            Err(error) => once.warn_of("cannot read the catalogue", &error),
        }
        watch.mysql.waits.looked(watch.mysql.cache.catalog_as_of());
        // Still needed: the reading does not show everything that the stream has delivered.
        pause = if mysql.cache.wants_catalog() { (pause * 2).min(TICK) } else { TICK };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = mysql.catalog_wanted.notified() => pause = PAUSE_MIN,
        }
    }
}

struct Watch {
    mysql: Arc<MySql>,
    connection: Connection,
    /// The connection that reads the catalogue, while the other one continues to read the server's facts.
    loader: Connection,
    /// The last reading, whether the cache accepted it or not: parts are read on top of it.
    last: Option<Loaded>,
    /// The server's facts for the catalogue in use.
    server: Option<Server>,
    /// The version of the catalogue in use.
    version: CatalogVersion,
    /// When everything is read again in any case.
    again_at: Instant,
}

#[derive(Clone)]
struct Loaded {
    epoch: Epoch,
    server: Server,
    catalog: Arc<Catalog>,
    basis: Arc<Basis>,
}

/// A reading.
struct Read {
    /// What was visible before the reading.
    proof: Visible,
    server: Server,
    catalog: Catalog,
    basis: Basis,
    /// The log end after the reading.
    lsn: Lsn,
    asked_at: Nanos,
}

/// The outcome of reading a part.
enum Part {
    Read(Box<Read>),
    /// The redefinitions are not visible yet.
    NotYet,
    /// Everything must be read.
    Whole,
}

impl Watch {
    async fn round(&mut self) -> Result<(), ServiceError> {
        let Some(epoch) = self.mysql.cache.epoch() else { return Ok(()) };
        let known = self.last.as_ref().is_some_and(|last| last.epoch == epoch);
        if known && self.again_at > Instant::now() {
            let done = if self.mysql.cache.wants_catalog() { self.load_part().await? } else { self.look().await? };
            if done {
                return Ok(());
            }
        }
        self.load(epoch).await
    }

    /// Whether the catalogue is unchanged, as far as this is known without reading it.
    ///
    /// The lease covers the facts that are in no log. The stream has invalidated what it redefined; everything else may be served, also before the
    /// catalogue shows the redefinition.
    async fn look(&mut self) -> Result<bool, ServiceError> {
        let asked_at = self.mysql.clock.now();
        let Some(server) = &self.server else { return Ok(false) };
        if !server.is_unchanged(&mut self.connection).await? {
            return Ok(false);
        }
        self.mysql.cache.catalog_unchanged(self.version, asked_at);
        Ok(!self.mysql.cache.wants_catalog())
    }

    /// Reads the redefined relations. False: everything must be read.
    async fn load_part(&mut self) -> Result<bool, ServiceError> {
        let (mysql, version) = (self.mysql.clone(), self.next_version());
        let Some(last) = self.last.clone() else { return Ok(false) };
        let redefined = mysql.redefinitions.until_now(last.epoch);
        if redefined.is_empty() {
            return Ok(false);
        }
        let part = self.while_looking(async |loader| read_part(&mysql, loader, version, &last, &redefined).await);
        match part.await? {
            Part::Read(read) => self.use_read(last.epoch, *read, &redefined),
            Part::NotYet => drop(self.look().await?),
            Part::Whole => return Ok(false),
        }
        Ok(true)
    }

    async fn load(&mut self, epoch: Epoch) -> Result<(), ServiceError> {
        let (mysql, version, started) = (self.mysql.clone(), self.next_version(), Instant::now());
        let redefined = mysql.redefinitions.until_now(epoch);
        let read = self.while_looking(async |loader| read_all(&mysql, loader, version, &redefined).await).await?;
        let Some(read) = read else {
            self.look().await?;
            return Ok(());
        };
        let gap = read.server.gap();
        if self.last.as_ref().is_none_or(|before| before.server.gap() != gap)
            && let Some(gap) = gap
        {
            tracing::warn!("nothing is cached: {gap}");
        }
        let (share, min) = if read.basis.locked.is_empty() { (SHARE, AGAIN_MIN) } else { (SHARE_LOCKED, LOCKED_MIN) };
        self.use_read(epoch, read, &redefined);
        self.again_at = Instant::now() + (started.elapsed() * share).max(min);
        Ok(())
    }

    fn next_version(&self) -> CatalogVersion {
        CatalogVersion(self.version.0 + 1)
    }

    /// Entries may be served during a reading, as long as no fact has changed.
    async fn while_looking<T>(
        &mut self,
        read: impl AsyncFnOnce(&mut Connection) -> Result<T, ServiceError>,
    ) -> Result<T, ServiceError> {
        let mut loader = std::mem::replace(&mut self.loader, Connection::new(self.mysql.clone()));
        let read = {
            let mut reading = std::pin::pin!(read(&mut loader));
            loop {
                match tokio::time::timeout(TICK, &mut reading).await {
                    Ok(read) => break read,
                    Err(_) => self.look().await?,
                };
            }
        };
        self.loader = loader;
        read
    }

    /// The number of changes of stored code, with this catalogue.
    fn code_changes(&self, catalog: &Catalog) -> u64 {
        let in_use = self.mysql.catalog.load();
        let last = self.last.as_ref().map(|last| &last.catalog);
        let before = last.unwrap_or(&in_use);
        let more = match last {
            _ if !before.stored_code.is_complete => 0,
            // Any number may have been missed.
            None => 2,
            Some(last) => u64::from(!last.stored_code.makes_as(&catalog.stored_code)),
        };
        before.code_changes + more
    }

    /// Gives the catalogue to the cache. If the stream is ahead of it, the previous one stays in use, and no fill begins with it. The next part is
    /// still read on top of this reading, which shows these redefinitions.
    fn use_read(&mut self, epoch: Epoch, read: Read, redefined: &Redefined) {
        let Read { proof, server, mut catalog, basis, lsn, asked_at } = read;
        catalog.code_changes = self.code_changes(&catalog);
        let (mysql, version) = (&self.mysql, catalog.version);
        let changed = catalog.changed_since(&mysql.catalog.load());
        let took_us = mysql.clock.now().saturating_sub(asked_at) / 1000;
        tracing::debug!(version = version.0, ?changed, took_us, "catalogue read");
        let tables = catalog.tables().filter(|table| table.kind == RelationKind::Table).map(|table| table.id);
        let mut unpublished: Vec<TableId> = tables.filter(|table| !mysql.cache.is_published(*table)).collect();
        unpublished.sort_unstable();
        // While one catalogue replaces the other, neither describes changes.
        mysql.describe_from(End { epoch, lsn: Lsn(u64::MAX) });
        let differs = changed.as_deref().map_or(Redefinition::Everything, Redefinition::Tables);
        // It describes the rows of the stream, so it must show all that the stream has redefined.
        let load = CatalogLoad { version, differs, proof: &proof, asked_at, add_namesakes: None };
        let taken = mysql.cache.catalog_loaded(epoch, load);
        let catalog = Arc::new(catalog);
        if taken {
            mysql.use_catalog(catalog.clone());
            mysql.describe_from(End { epoch, lsn });
            if !unpublished.is_empty() {
                mysql.cache.publish(epoch, &unpublished);
            }
            self.version = version;
            self.server = Some(server.clone());
        }
        mysql.redefinitions.shown(redefined);
        self.last = Some(Loaded { epoch, server, catalog, basis: Arc::new(basis) });
    }
}

/// None: these redefinitions are not visible yet, so that the cache would not accept the reading.
async fn read_all(
    mysql: &MySql,
    connection: &mut Connection,
    version: CatalogVersion,
    redefined: &Redefined,
) -> Result<Option<Read>, ServiceError> {
    let asked_at = mysql.clock.now();
    let proof = read_visible(connection).await?;
    if redefined.shown_by(&proof).is_none() {
        return Ok(None);
    }
    let server = Server::read(connection).await?;
    let (catalog, basis) = load::load(mysql, connection, version, &server).await?;
    let lsn = read_end(&connection.query_for(end_question).await?)?;
    Ok(Some(Read { proof, server, catalog, basis, lsn, asked_at }))
}

async fn read_part(
    mysql: &MySql,
    connection: &mut Connection,
    version: CatalogVersion,
    last: &Loaded,
    redefined: &Redefined,
) -> Result<Part, ServiceError> {
    let Some(tables) = &redefined.tables else { return Ok(Part::Whole) };
    let asked_at = mysql.clock.now();
    let Some(proof) = redefined.shown_by(&read_visible(connection).await?) else { return Ok(Part::NotYet) };
    if !last.server.is_unchanged(connection).await? {
        return Ok(Part::Whole);
    }
    let before = Before { catalog: &last.catalog, basis: &last.basis, server: &last.server };
    let Some((catalog, basis)) = part::read_part(mysql, connection, version, &before, tables).await? else {
        return Ok(Part::Whole);
    };
    let lsn = read_end(&connection.query_for(end_question).await?)?;
    Ok(Part::Read(Box::new(Read { proof, server: last.server.clone(), catalog, basis, lsn, asked_at })))
}
