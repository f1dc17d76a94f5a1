//! Reads the catalogue, and notices when it has changed.
//!
//! If event triggers write them into the change stream, DDL and GRANT arrive with it. They invalidate in commit order, and this service is woken to
//! load the catalogue again. The stream never contains roles, memberships, settings and other changes that event triggers do not see. So a fingerprint
//! of everything that verdicts depend on is read every [`TICK`]: object ids with the transaction that wrote each catalogue row last (in-place updates
//! such as those of VACUUM and ANALYZE do not change it). The lease counts from the last fingerprint found unchanged, so no answer outlives a change of
//! the catalogue by more than D, with or without triggers.
//!
//! An object that is created and dropped between two readings leaves no trace in the rows, but a session may have filled under it: a table that hid
//! another one, an operator, a role's privilege. With triggers the stream shows created and dropped objects. Without them, and for roles, the
//! statistics of written catalogue rows show them, and then all entries are flushed. The statistics include temporary tables and are late: a second
//! after the commit, or ten if the session was busy just before and is idle since.
//!
//! *Catalogue reads are fills.* The catalogue is loaded in one snapshot, together with its fingerprint and the snapshot itself as proof: no fill begins
//! that depends on a redefinition which the stream has delivered and the catalogue does not show. The entries that depend on the difference from the
//! previous catalogue are flushed: those of some relations, or all, if more than relations or anything about roles changed. A new role alone flushes
//! nothing ([`roles`]). The publication is read in the same snapshot: a table that a transaction removed from it and redefined is no longer published
//! when fills over it begin again.

mod code;
mod composites;
mod definitions;
mod load;
mod roles;
mod rows;
mod triggers;
mod trusted;
mod types;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use freshet_cache::{CatalogLoad, Redefinition};
use freshet_net::postgres::Rows;
use freshet_types::{Catalog, CatalogVersion, ChangeSet, Epoch, Nanos, TableId, Visible};

use crate::postgres::Pg;
use crate::postgres::service::connection::{Connection, ServiceError};
use crate::postgres::service::publication::{published_sql, read_published};
use crate::service::once::Once;
use crate::session::context::Contexts;

use self::definitions::Definitions;
use self::load::{QUERIES, Shown};
use self::roles::NewRoles;
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
   WHERE oid >= 16384 AND relpersistence <> 't' AND relkind IN ('r', 'p', 'v', 'm', 'f', 'c')),
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
   WHERE oid >= 16384 AND relpersistence <> 't' AND relkind IN ('S', 'i', 'I')
  UNION ALL SELECT 'n' || oid || ' ' || xmin FROM pg_namespace
   WHERE oid >= 2200 AND nspname !~ '^pg_(toast_)?temp_'
  UNION ALL SELECT 'b' || oid || ' ' || xmin FROM pg_ts_config
  UNION ALL SELECT 'u' || oid || ' ' || xmin FROM pg_ts_dict
  UNION ALL SELECT 'v' || count(*) || ' ' || coalesce(sum(int8in(xidout(xmin))), 0) FROM pg_ts_config_map),
rest(v, is_new) AS (
  SELECT 'r' || oid || ' ' || rolname || ' ' || rolsuper || rolinherit || rolbypassrls, oid > $1::oid FROM pg_roles
  UNION ALL SELECT 'm' || roleid || ' ' || member || ' ' || xmin, roleid > $1::oid FROM pg_auth_members
  UNION ALL SELECT 'x' || oid || ' ' || pg_stat_get_tuples_updated(oid) || ' ' || pg_stat_get_tuples_deleted(oid), false
   FROM pg_class WHERE oid IN ('pg_authid'::regclass, 'pg_auth_members'::regclass))
SELECT pg_catalog.pg_current_snapshot()::text,
 (SELECT count(*) || ' ' || coalesce(sum(hashtextextended(v, 0)), 0) FROM schema),
 (SELECT count(*) || ' ' || coalesce(sum(hashtextextended(v, 0)), 0) || ' ' || extract(epoch from pg_conf_load_time())
  FROM rest),
 (SELECT sum(pg_stat_get_tuples_deleted(oid))::text FROM pg_class WHERE oid IN ('pg_class'::regclass,
  'pg_inherits'::regclass, 'pg_rewrite'::regclass, 'pg_policy'::regclass, 'pg_type'::regclass, 'pg_enum'::regclass,
  'pg_proc'::regclass, 'pg_operator'::regclass, 'pg_cast'::regclass, 'pg_collation'::regclass,
  'pg_namespace'::regclass, 'pg_trigger'::regclass, 'pg_attrdef'::regclass, 'pg_constraint'::regclass,
  'pg_amproc'::regclass, 'pg_opclass'::regclass, 'pg_ts_config'::regclass, 'pg_ts_dict'::regclass, 'pg_ts_config_map'::regclass)),
 (SELECT count(*) || ' ' || coalesce(sum(hashtextextended(v, 0)), 0) || ' ' || extract(epoch from pg_conf_load_time())
  FROM rest WHERE NOT is_new),
 (SELECT max(oid::bigint)::text FROM pg_roles), ";

const SHAPE: ServiceError = ServiceError::UnexpectedAnswer("the catalogue");

/// The statements that are run again and again.
struct Queries {
    fingerprint: String,
    /// The publication's tables, and its own row as that of table 0.
    published: String,
    catalog: [String; QUERIES],
}

impl Queries {
    fn new(shared: &Pg) -> Self {
        let publication = shared.publication_literal();
        Self {
            fingerprint: [FINGERPRINT, roles::NEW].concat(),
            published: format!(
                "{} UNION ALL SELECT '0', xmin::text FROM pg_catalog.pg_publication WHERE pubname = {publication}",
                published_sql(shared)
            ),
            catalog: load::queries(&publication, shared.settings.trust_immutable),
        }
    }

    /// For the fingerprint and the publication, with their parameters: roles that `loaded` does not know are new.
    fn to_look<'a>(&'a self, loaded: Option<&'a Fingerprint>) -> [(&'a str, Vec<&'a str>); 2] {
        let newest = loaded.map_or(roles::NONE_IS_NEW, |loaded| &loaded.new_roles.newest);
        [(&self.fingerprint, vec![newest]), (&self.published, Vec::new())]
    }

    /// For these and the catalogue in one snapshot.
    fn to_load<'a>(&'a self, loaded: Option<&'a Fingerprint>) -> Vec<(&'a str, Vec<&'a str>)> {
        let plain = |sql| (sql, Vec::new());
        let mut statements = vec![plain("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")];
        statements.extend(self.to_look(loaded));
        statements.extend(self.catalog.iter().map(|sql| plain(sql.as_str())));
        statements.push(plain("COMMIT"));
        statements
    }
}

/// Watches the catalogue and the publication; never returns.
pub async fn watch_catalog(shared: Arc<Pg>) {
    let mut watch = Watch {
        connection: Connection::new(shared.clone()),
        queries: Queries::new(&shared),
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
    queries: Queries,
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
struct Fingerprint {
    schema: String,
    rest: String,
    /// Number of rows deleted from the catalogue; empty if the stream shows created and dropped objects.
    deleted: String,
    /// What the roles since the catalogue loaded before have to do with it.
    new_roles: NewRoles,
}

impl Fingerprint {
    /// The snapshot and the fingerprint in it, from the answer to [`FINGERPRINT`] and [`roles::NEW`].
    fn read(answer: Rows, ddl_in_stream: bool) -> Result<(Visible, Self), ServiceError> {
        let row = answer.into_iter().next().and_then(|row| <[_; 8]>::try_from(row).ok());
        let Some([snapshot, schema, rest, deleted, old, newest, names, have_part]) = row else { return Err(SHAPE) };
        let (Some(snapshot), Some(schema), Some(rest), Some(deleted)) = (snapshot, schema, rest, deleted) else {
            return Err(SHAPE);
        };
        let (Some(old), Some(newest)) = (old, newest) else { return Err(SHAPE) };
        let new_roles = NewRoles { rest: old, newest, names, have_part: have_part.as_deref() != Some("false") };
        let deleted = if ddl_in_stream { String::new() } else { deleted };
        Ok((Visible::of_snapshot(&snapshot).ok_or(SHAPE)?, Self { schema, rest, deleted, new_roles }))
    }

    fn is_of_same_state(&self, other: &Self) -> bool {
        (&self.schema, &self.rest, &self.deleted) == (&other.schema, &other.rest, &other.deleted)
    }

    /// Whether more than relations may differ in `now`, which was read after it.
    fn differs_widely(&self, now: &Self, contexts: &Contexts) -> bool {
        let of_roles = self.rest != now.rest && (self.rest != now.new_roles.rest || now.new_roles.matter(contexts));
        of_roles || self.deleted != now.deleted
    }
}

impl Watch {
    async fn round(&mut self) -> Result<(), ServiceError> {
        let shared = self.shared.clone();
        let Some(epoch) = shared.cache.epoch() else { return Ok(()) };
        let asked_at = shared.clock.now();
        let ddl_in_stream = self.triggers.look(&mut self.connection, &shared).await?;
        let wanted = shared.cache.wants_catalog();
        let answers = self.connection.query_all_again(&self.queries.to_look(self.loaded.as_ref())).await?;
        let Ok([fingerprint, mut published]) = <[_; 2]>::try_from(answers) else { return Err(SHAPE) };
        let (mut proof, fingerprint) = Fingerprint::read(fingerprint, ddl_in_stream)?;
        let changed = self.loaded.as_ref().is_none_or(|loaded| !loaded.is_of_same_state(&fingerprint));
        let mut catalog = None;
        if changed
            || self.definitions.try_again(&mut self.connection).await?
            || shared.catalog.load().ddl_in_stream != ddl_in_stream
        {
            let loaded = self.load(&fingerprint, ddl_in_stream).await?;
            (proof, published, catalog) = (loaded.0, loaded.1, Some(loaded.2));
        }
        // The names in delivered redefinitions are looked up in the cache's catalogue.
        let _naming = shared.naming();
        if let Some(catalog) = catalog {
            shared.use_catalog(catalog);
            // From now on, updates of a published table may fail.
            shared.publication_wanted.notify_one();
        }
        self.watch_publication(published, &proof, asked_at);
        if self.in_use && !wanted {
            shared.cache.catalog_unchanged(self.version, asked_at);
        } else {
            self.hand_over(epoch, &proof, asked_at);
        }
        shared.waits.looked(shared.cache.catalog_as_of());
        Ok(())
    }

    /// Loads the catalogue. Returns the snapshot in which it was read, and the publication in it.
    async fn load(
        &mut self,
        seen: &Fingerprint,
        ddl_in_stream: bool,
    ) -> Result<(Visible, Rows, Catalog), ServiceError> {
        if self.loaded.as_ref().is_none_or(|loaded| loaded.differs_widely(seen, &self.shared.contexts)) {
            self.shared.reloads.notice(); // the configuration, perhaps
            self.shared.cache.catalog_changed();
            self.changed = None;
        }
        let (fingerprint, published, shown) = self.read().await?;
        let (proof, fingerprint) = Fingerprint::read(fingerprint, ddl_in_stream)?;
        let version = CatalogVersion(self.version.0 + 1);
        let mut catalog = load::finish(shown, &mut self.connection, &mut self.definitions, version).await?;
        catalog.ddl_in_stream = ddl_in_stream;
        let alike =
            self.loaded.as_ref().is_some_and(|loaded| !loaded.differs_widely(&fingerprint, &self.shared.contexts));
        let changed = if alike { catalog.changed_since(&self.shared.catalog.load()) } else { None };
        self.changed = match (self.changed.take(), changed) {
            (Some(before), Some(now)) => Some([before, now].concat()),
            _ => None,
        };
        tracing::debug!(version = catalog.version.0, changed = ?self.changed, "catalogue loaded");
        self.version = catalog.version;
        self.in_use = false;
        self.loaded = Some(fingerprint);
        Ok((proof, published, catalog))
    }

    /// The fingerprint, the publication and the catalogue, in one snapshot and one round trip.
    async fn read(&mut self) -> Result<(Rows, Rows, Shown), ServiceError> {
        let statements = self.queries.to_load(self.loaded.as_ref());
        let mut answers = self.connection.query_all_again(&statements).await?.into_iter().skip(1);
        let (Some(fingerprint), Some(published)) = (answers.next(), answers.next()) else { return Err(SHAPE) };
        let answers: Vec<Rows> = answers.take(QUERIES).collect();
        let shown = load::shown(answers.try_into().map_err(|_| SHAPE)?)?;
        Ok((fingerprint, published, shown))
    }

    /// Gives the catalogue to the cache. If the stream is ahead of it, what depends on the redefinitions that it does not show is not filled yet.
    fn hand_over(&mut self, epoch: Epoch, proof: &Visible, asked_at: Nanos) {
        let shared = &self.shared;
        let differs = self.changed.as_deref().map_or(Redefinition::Everything, Redefinition::Tables);
        let add_namesakes: &dyn Fn(&mut ChangeSet) = &|changes| shared.add_namesakes(changes);
        let load = CatalogLoad { version: self.version, differs, proof, asked_at, add_namesakes: Some(add_namesakes) };
        if shared.cache.catalog_loaded(epoch, load) {
            self.in_use = true;
            self.changed = Some(Vec::new());
        }
    }

    /// A change of the publication by another session invalidates what depends on it.
    fn watch_publication(&mut self, published: Rows, proof: &Visible, mut asked_at: Nanos) {
        let mut published = read_published(published);
        let own = published.remove(&TableId(0));
        if self.publication.is_some() && own != self.publication {
            tracing::warn!("the publication was changed by somebody else: starting the change stream again");
            self.shared.restart_stream.notify_one();
            // The tables whose updates fail depend on what it sends.
            self.loaded = None;
            published.clear();
            asked_at = Nanos::MAX;
        }
        self.publication = own;
        let lost = self.shared.lost_publications(&published, proof, asked_at);
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
    }
}
