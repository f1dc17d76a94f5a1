//! Reads the catalogue, and notices when it has changed.
//!
//! If event triggers write them into the change stream, DDL and GRANT arrive with it. They invalidate in commit order, and this service is woken to
//! load the catalogue again before the next fill. The stream never contains roles, memberships, settings and other changes that event triggers do not
//! see. So a fingerprint of everything that verdicts depend on is read every [`TICK`]: object ids with the transaction that wrote each catalogue row
//! last (in-place updates such as those of VACUUM and ANALYZE do not change it). The lease counts from the last fingerprint found unchanged, so no
//! answer outlives a change of the catalogue by more than D, with or without triggers.
//!
//! An object that is created and dropped between two readings leaves no trace in the rows, but a session may have filled under it: a table that hid
//! another one, an operator, a role's privilege. With triggers the stream shows created and dropped objects. Without them, and for roles, the
//! statistics of written catalogue rows show them, and then all entries are flushed. The statistics include temporary tables and are late: a second
//! after the commit, or ten if the session was busy just before and is idle since.
//!
//! *Catalogue reads are fills.* The catalogue is loaded in one snapshot, together with its fingerprint and the snapshot itself as proof: if it does
//! not show a redefinition that the stream has delivered, the cache does not accept it. The entries that depend on the difference from the previous
//! catalogue are flushed: those of some relations, or all, if more than relations or anything about roles changed. The publication is read after the
//! proof: a table that a transaction removed from it and redefined is no longer published when fills begin again.

mod code;
mod definitions;
mod load;
mod rows;
mod triggers;
mod trusted;
mod types;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use freshet_cache::Redefinition;
use freshet_types::{CatalogVersion, Epoch, Nanos, TableId, Visible};

use crate::postgres::Pg;
use crate::postgres::service::connection::{Connection, ServiceError};
use crate::postgres::service::publication::{published_sql, read_published};
use crate::service::once::Once;

use self::definitions::Definitions;
use self::load::Shown;
use self::triggers::Triggers;

/// Interval of fingerprints.
const TICK: Duration = Duration::from_millis(250);
/// Shortest pause between readings while the stream is ahead of new snapshots; it grows up to [`TICK`].
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// Shortest pause between readings that only look-ups wait for; it is at least this many times as long as a reading takes.
const REST_MIN: Nanos = 20_000_000;
const REST: Nanos = 4;

/// The snapshot, and the fingerprint of the catalogue in it: everything that event triggers can see, then the rest, then the number of rows deleted
/// from the catalogue. The system's own objects have ids below 16384 (`FirstNormalObjectId`).
const FINGERPRINT: &str = "
WITH relations AS MATERIALIZED (SELECT oid, xmin, relkind FROM pg_class
   WHERE oid >= 16384 AND relpersistence <> 't' AND relkind IN ('r', 'p', 'v', 'm', 'f')),
schema(v) AS (
  SELECT 'c' || oid || ' ' || xmin FROM relations
  UNION ALL SELECT 'i' || i.indexrelid || ' ' || i.xmin FROM pg_index i JOIN relations c ON c.oid = i.indrelid
   WHERE i.indisprimary OR i.indisreplident
  UNION ALL SELECT 'a' || a.attrelid || ' ' || a.attnum || ' ' || a.xmin FROM pg_attribute a
   JOIN relations c ON c.oid = a.attrelid WHERE c.relkind <> 'f' AND a.attnum > 0
  UNION ALL SELECT 'w' || r.oid || ' ' || r.xmin FROM pg_rewrite r JOIN relations c ON c.oid = r.ev_class
  UNION ALL SELECT 'y' || p.oid || ' ' || p.xmin FROM pg_policy p JOIN relations c ON c.oid = p.polrelid
  UNION ALL SELECT 'h' || h.inhrelid || ' ' || h.inhparent || ' ' || h.xmin FROM pg_inherits h
   JOIN relations c ON c.oid = h.inhrelid
  UNION ALL SELECT 't' || oid || ' ' || xmin FROM pg_type
   WHERE oid >= 16384 AND typtype IN ('b', 'd', 'e', 'r') AND typelem = 0
  UNION ALL SELECT 'e' || oid || ' ' || xmin FROM pg_enum
  UNION ALL SELECT 'p' || oid || ' ' || xmin FROM pg_proc WHERE oid >= 16384
  UNION ALL SELECT 'o' || oid || ' ' || xmin FROM pg_operator WHERE oid >= 16384
  UNION ALL SELECT 'k' || oid || ' ' || xmin FROM pg_cast
  UNION ALL SELECT 'x' || oid || ' ' || xmin FROM pg_opclass WHERE oid >= 16384
  UNION ALL SELECT 'l' || oid || ' ' || xmin FROM pg_collation WHERE oid >= 16384
  UNION ALL SELECT 'g' || oid || ' ' || xmin FROM pg_trigger WHERE NOT tgisinternal
  UNION ALL SELECT 'd' || oid || ' ' || xmin FROM pg_attrdef
  UNION ALL SELECT 'z' || oid || ' ' || xmin FROM pg_constraint WHERE oid >= 16384 AND contype NOT IN ('f', 'p', 'u', 'n')
  UNION ALL SELECT 'f' || oid || ' ' || xmin FROM pg_constraint
   WHERE contype = 'f' AND (confdeltype IN ('c', 'n', 'd') OR confupdtype IN ('c', 'n', 'd'))
  UNION ALL SELECT 'j' || indexrelid || ' ' || xmin FROM pg_index
   WHERE indexrelid >= 16384 AND (indexprs IS NOT NULL OR indpred IS NOT NULL)
  UNION ALL SELECT 's' || oid || ' ' || xmin FROM pg_amproc WHERE oid >= 16384
  UNION ALL SELECT 'q' || oid || ' ' || relnamespace || ' ' || relname FROM pg_class
   WHERE oid >= 16384 AND relpersistence <> 't' AND relkind IN ('S', 'c', 'i', 'I')
  UNION ALL SELECT 'n' || oid || ' ' || xmin FROM pg_namespace
   WHERE oid >= 2200 AND nspname !~ '^pg_(toast_)?temp_'
  UNION ALL SELECT 'b' || oid || ' ' || xmin FROM pg_ts_config
  UNION ALL SELECT 'u' || oid || ' ' || xmin FROM pg_ts_dict
  UNION ALL SELECT 'v' || count(*) || ' ' || coalesce(sum(int8in(xidout(xmin))), 0) FROM pg_ts_config_map),
rest(v) AS (
  SELECT 'r' || oid || ' ' || rolname || ' ' || rolsuper || rolinherit || rolbypassrls FROM pg_roles
  UNION ALL SELECT 'm' || roleid || ' ' || member || ' ' || xmin FROM pg_auth_members
  UNION ALL SELECT 'x' || oid || ' ' || pg_stat_get_tuples_updated(oid) || ' ' || pg_stat_get_tuples_deleted(oid)
   FROM pg_class WHERE oid IN ('pg_authid'::regclass, 'pg_auth_members'::regclass))
SELECT pg_catalog.pg_current_snapshot()::text,
 (SELECT count(*) || ' ' || coalesce(sum(hashtextextended(v, 0)), 0) FROM schema),
 (SELECT count(*) || ' ' || coalesce(sum(hashtextextended(v, 0)), 0) || ' ' || extract(epoch from pg_conf_load_time())
  FROM rest),
 (SELECT sum(pg_stat_get_tuples_deleted(oid))::text FROM pg_class WHERE oid IN ('pg_class'::regclass,
  'pg_inherits'::regclass, 'pg_rewrite'::regclass, 'pg_policy'::regclass, 'pg_type'::regclass, 'pg_enum'::regclass,
  'pg_proc'::regclass, 'pg_operator'::regclass, 'pg_cast'::regclass, 'pg_collation'::regclass,
  'pg_namespace'::regclass, 'pg_trigger'::regclass, 'pg_attrdef'::regclass, 'pg_constraint'::regclass,
  'pg_amproc'::regclass, 'pg_opclass'::regclass, 'pg_ts_config'::regclass, 'pg_ts_dict'::regclass, 'pg_ts_config_map'::regclass))";

/// Watches the catalogue and the publication; never returns.
pub async fn watch_catalog(shared: Arc<Pg>) {
    let mut watch = Watch {
        connection: Connection::new(shared.clone()),
        triggers: Triggers::new(shared.own.triggers_sql),
        definitions: Definitions::default(),
        loaded: None,
        version: CatalogVersion(0),
        in_use: false,
        changed: None,
        publication: None,
        shared: shared.clone(),
    };
    let mut once = Once::default();
    let mut pause = PAUSE_MIN;
    loop {
        let began = shared.clock.now();
        shared.catalog_rests.store(Nanos::MAX, Relaxed);
        match watch.round().await {
            Ok(()) => once.clear(),
            Err(error) => once.warn_of("cannot read the catalogue", &error),
        }
        let now = shared.clock.now();
        let rest = now.saturating_sub(began).saturating_mul(REST).max(REST_MIN);
        shared.catalog_rests.store(now + rest, Relaxed);
        // Still needed: no snapshot shows what the stream has delivered.
        let soon = shared.cache.wants_catalog() || watch.triggers.wait();
        let untimed = watch.in_use && shared.settings.faults.no_timed_looks;
        let tick = if untimed { Duration::from_secs(3_600) } else { TICK };
        pause = if soon { (pause * 2).min(TICK) } else { tick };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shared.catalog_wanted.notified() => pause = PAUSE_MIN,
        }
    }
}

struct Watch {
    shared: Arc<Pg>,
    connection: Connection,
    triggers: Triggers,
    definitions: Definitions,
    /// The fingerprint of the catalogue loaded last.
    loaded: Option<Fingerprint>,
    /// Its version.
    version: CatalogVersion,
    /// The cache has accepted it.
    in_use: bool,
    /// The relations in which it differs from the cache's catalogue; None: everything may differ.
    changed: Option<Vec<TableId>>,
    /// The version of the publication's own row.
    publication: Option<String>,
}

/// Identifies the state of the catalogue.
#[derive(PartialEq, Eq)]
struct Fingerprint {
    schema: String,
    rest: String,
    /// Number of rows deleted from the catalogue; empty if the stream shows created and dropped objects.
    deleted: String,
}

impl Fingerprint {
    /// Whether more than relations may differ.
    fn differs_widely(&self, other: &Self) -> bool {
        self.rest != other.rest || self.deleted != other.deleted
    }
}

impl Watch {
    async fn round(&mut self) -> Result<(), ServiceError> {
        let Some(epoch) = self.shared.cache.epoch() else { return Ok(()) };
        let asked_at = self.shared.clock.now();
        let ddl_in_stream = self.triggers.look(&mut self.connection, &self.shared).await?;
        let wanted = self.shared.cache.wants_catalog();
        let (mut proof, fingerprint) = self.fingerprint(ddl_in_stream).await?;
        let changed = self.loaded.as_ref() != Some(&fingerprint);
        if changed
            || self.definitions.try_again(&mut self.connection).await?
            || self.shared.catalog.load().ddl_in_stream != ddl_in_stream
        {
            proof = self.load(&fingerprint, ddl_in_stream).await?;
        }
        self.watch_publication().await?;
        if self.in_use && !wanted {
            self.shared.cache.catalog_unchanged(self.version, asked_at);
        } else {
            self.hand_over(epoch, &proof, asked_at);
        }
        self.shared.waits.looked(self.shared.cache.catalog_as_of());
        Ok(())
    }

    async fn fingerprint(&mut self, ddl_in_stream: bool) -> Result<(Visible, Fingerprint), ServiceError> {
        let shape = || ServiceError::UnexpectedAnswer("the fingerprint");
        let row = self.connection.query(FINGERPRINT).await?.into_iter().next().ok_or_else(shape)?;
        let Ok([Some(snapshot), Some(schema), Some(rest), Some(deleted)]) = <[_; 4]>::try_from(row) else {
            return Err(shape());
        };
        let deleted = if ddl_in_stream { String::new() } else { deleted };
        Ok((Visible::of_snapshot(&snapshot).ok_or_else(shape)?, Fingerprint { schema, rest, deleted }))
    }

    /// Loads the catalogue; returns the snapshot in which it was read.
    async fn load(&mut self, seen: &Fingerprint, ddl_in_stream: bool) -> Result<Visible, ServiceError> {
        if self.loaded.as_ref().is_none_or(|loaded| loaded.differs_widely(seen)) {
            self.shared.reloads.notice(); // the configuration, perhaps
            self.shared.cache.catalog_changed();
            self.changed = None;
        }
        self.connection.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let read = self.read(ddl_in_stream).await;
        // A refusal has ended the transaction.
        if !read.as_ref().is_err_and(ServiceError::is_refusal) {
            self.connection.query("COMMIT").await?;
        }
        let (proof, fingerprint, shown) = read?;
        let version = CatalogVersion(self.version.0 + 1);
        let mut catalog = load::finish(shown, &mut self.connection, &mut self.definitions, version).await?;
        catalog.ddl_in_stream = ddl_in_stream;
        let alike = self.loaded.as_ref().is_some_and(|loaded| !loaded.differs_widely(&fingerprint));
        let changed = if alike { catalog.changed_since(&self.shared.catalog.load()) } else { None };
        self.changed = match (self.changed.take(), changed) {
            (Some(before), Some(now)) => Some([before, now].concat()),
            _ => None,
        };
        tracing::debug!(version = catalog.version.0, changed = ?self.changed, "catalogue loaded");
        self.version = catalog.version;
        self.in_use = false;
        self.loaded = Some(fingerprint);
        self.shared.use_catalog(catalog);
        // From now on, updates of a published table may fail.
        self.shared.publication_wanted.notify_one();
        Ok(proof)
    }

    async fn read(&mut self, ddl_in_stream: bool) -> Result<(Visible, Fingerprint, Shown), ServiceError> {
        // Compiling the statements takes longer than running them.
        self.connection.query("SET LOCAL jit = off").await?;
        let (proof, fingerprint) = self.fingerprint(ddl_in_stream).await?;
        let publication = self.shared.publication_literal();
        let trusts = self.shared.settings.trust_immutable;
        let shown = load::read(&mut self.connection, &publication, trusts).await?;
        Ok((proof, fingerprint, shown))
    }

    /// Gives the catalogue to the cache, unless the stream is ahead of it.
    fn hand_over(&mut self, epoch: Epoch, proof: &Visible, asked_at: Nanos) {
        let redefinition = self.changed.as_deref().map_or(Redefinition::Everything, Redefinition::Tables);
        if self.shared.cache.catalog_loaded(epoch, self.version, redefinition, proof, asked_at) {
            self.in_use = true;
            self.changed = Some(Vec::new());
        }
    }

    /// A change of the publication by another session invalidates what depends on it.
    async fn watch_publication(&mut self) -> Result<(), ServiceError> {
        let sql = format!(
            "{} UNION ALL SELECT '0', xmin::text FROM pg_catalog.pg_publication WHERE pubname = {}",
            published_sql(&self.shared),
            self.shared.publication_literal()
        );
        let mut published = read_published(self.connection.query(&sql).await?);
        let own = published.remove(&TableId(0));
        if self.publication.is_some() && own != self.publication {
            tracing::warn!("the publication was changed by somebody else: starting the change stream again");
            self.shared.restart_stream.notify_one();
            // The tables whose updates fail depend on what it sends.
            self.loaded = None;
            published.clear();
        }
        self.publication = own;
        let lost = self.shared.lost_publications(&published);
        if !lost.is_empty() {
            // Most often dropped.
            let catalog = self.shared.catalog.load();
            let taken_out = lost.iter().filter(|table| catalog.table(**table).is_some()).count();
            if taken_out > 0 {
                tracing::info!(tables = taken_out, "tables are not in the publication any more as they were");
            }
            self.shared.cache.unpublish(&lost);
            self.shared.publication_wanted.notify_one();
        }
        Ok(())
    }
}
