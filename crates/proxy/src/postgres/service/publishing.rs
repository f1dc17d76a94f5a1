//! Adds tables to the publication and decides when their changes are complete.
//!
//! A table in the publication is not yet published for Freshet. A transaction that wrote to it *before* `ALTER PUBLICATION` committed, and commits
//! afterwards, never delivers this write. A result that was read in between would stay stale without limit. So a table counts as published only once
//! every transaction has ended that held a lock for writing after the ALTER. Prepared transactions hold such locks too, and `pg_locks` shows them.
//!
//! Tables are identified by their object id: a table that was dropped and created again is another table. Each is added or removed in a transaction
//! of its own ([`move_table`]).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use freshet_cache::admission::Keep;
use freshet_types::{Catalog, CatalogVersion, Epoch, RelationKind, ReplicaIdentity, Table, TableId};

use crate::postgres::Pg;
use crate::postgres::service::connection::{Connection, ServiceError};
use crate::postgres::service::publication::{Move, move_table, published_sql, read_published};
use crate::postgres::service::table_balance::{Accounts, Earner};
use crate::service::once::Once;

/// Tables that are requested within this time form one batch.
const BATCH_DELAY: Duration = Duration::from_millis(10);
/// Interval of readings of the lock holders.
const BARRIER_POLL: Duration = Duration::from_millis(20);
/// Interval of readings when nothing is requested.
const IDLE_POLL: Duration = Duration::from_millis(500);
/// Limit of tables that are added in one batch.
const BATCH_MAX: usize = 200;
/// Time before a table that could not be published is tried again.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);
/// Time before a table is tried again that was being redefined, or locked.
const RACE_PAUSE: Duration = Duration::from_secs(1);
/// Time before a table is tried again that was removed for a session's statement, which then locks it.
const WAY_PAUSE: Duration = Duration::from_secs(1);
/// Time before it is checked whether an administrator has published a table.
const UNPUBLISHED_PAUSE: Duration = Duration::from_secs(5);

/// Whether the stream must be restarted after the barrier. Releases before 13.21, 14.18, 15.13, 16.9 and 17.5 may continue to decode a running
/// transaction with the previous state of the publication (commit 4909b38af).
#[must_use]
pub fn stream_must_restart(version_num: u32) -> bool {
    let fixed_minor = match version_num / 10_000 {
        13 => 21,
        14 => 18,
        15 => 13,
        16 => 9,
        17 => 5,
        major => return major < 13,
    };
    version_num % 10_000 < fixed_minor
}

/// Publishes the tables that sessions request; never returns.
pub async fn publish_tables(shared: Arc<Pg>) {
    let mut task = Publishing {
        connection: Connection::new(shared.clone()),
        refused: HashMap::new(),
        barriers: Vec::new(),
        restarted_for: HashMap::new(),
        accounts: Accounts::default(),
        leaving: HashSet::new(),
        balanced_at: Instant::now(),
        compared: None,
        version_num: 0,
        shared: shared.clone(),
    };
    let mut once = Once::default();
    loop {
        let poll = if task.barriers.is_empty() { IDLE_POLL } else { BARRIER_POLL };
        tokio::select! {
            () = shared.publication_wanted.notified() => tokio::time::sleep(BATCH_DELAY).await,
            () = tokio::time::sleep(poll) => {}
        }
        match task.round().await {
            Ok(()) => once.clear(),
            Err(error) => once.warn_of("cannot publish tables", &error),
        }
    }
}

struct Publishing {
    shared: Arc<Pg>,
    connection: Connection,
    /// Tables that the server refused to publish, and when they are tried again.
    refused: HashMap<TableId, Instant>,
    /// Tables in the publication that wait for the end of their writers.
    barriers: Vec<Barrier>,
    /// For releases where [`stream_must_restart`]: the tables that were in the publication, with the versions of its rows, before the last restart of
    /// the stream.
    restarted_for: HashMap<TableId, String>,
    /// The balances of the tables, and the time of their last update.
    accounts: Accounts,
    balanced_at: Instant,
    /// Tables that no longer count as published, since they do not pay, and are yet to be removed from the publication.
    leaving: HashSet<TableId>,
    /// The catalogue for which the publication contains no table whose updates fail.
    compared: Option<CatalogVersion>,
    version_num: u32,
}

/// Tables, and the transactions that must end before they count as published.
struct Barrier {
    epoch: Epoch,
    /// The tables with the versions of the publication's rows.
    tables: HashMap<TableId, String>,
    /// Lock holders, in the form of [`Publishing::holders`]. None: they will be read at the next check.
    waiting: Option<HashSet<Holder>>,
}

/// Relation and virtual transaction of a lock.
type Holder = Vec<Option<String>>;

impl Publishing {
    async fn round(&mut self) -> Result<(), ServiceError> {
        for (tables, done) in self.shared.unwelcome() {
            let tried = self.make_way(&tables).await;
            let _ = done.send(());
            tried?;
        }
        let Some(epoch) = self.shared.cache.epoch() else { return Ok(()) };
        let catalog = self.shared.catalog.load_full();
        self.withdraw(&catalog).await?;
        self.begin_cool_offs().await?;
        self.barriers.retain(|barrier| barrier.epoch == epoch);
        let batch = self.batch(&catalog);
        if !batch.is_empty() {
            self.publish(epoch, batch).await?;
        }
        self.look_at_barriers().await
    }

    /// A session is about to make changes to these tables that the publication does not permit, so they are removed from it.
    async fn make_way(&mut self, tables: &[TableId]) -> Result<(), ServiceError> {
        let mut published = self.published().await?;
        published.retain(|table, _| tables.contains(table));
        let tables: Vec<TableId> = published.into_keys().collect();
        self.lose(&tables);
        for table in tables {
            self.refused.insert(table, Instant::now() + WAY_PAUSE);
            self.drop(table).await?;
        }
        Ok(())
    }

    /// The tables no longer count as published.
    fn lose(&mut self, tables: &[TableId]) {
        self.shared.cache.unpublish(tables);
        self.shared.forget_published(tables);
        for barrier in &mut self.barriers {
            barrier.tables.retain(|table, _| !tables.contains(table));
        }
        self.barriers.retain(|barrier| !barrier.tables.is_empty());
    }

    /// The requested tables that are neither published nor waiting.
    fn batch(&mut self, catalog: &Catalog) -> Vec<TableId> {
        let now = Instant::now();
        let mut batch = Vec::new();
        for table in self.shared.wanted() {
            let on_the_way = self.barriers.iter().any(|barrier| barrier.tables.contains_key(&table));
            let refused = self.refused.get(&table).is_some_and(|until| *until > now);
            if on_the_way || refused || self.shared.cache.is_published(table) || batch.len() >= BATCH_MAX {
                continue;
            }
            match catalog.table(table) {
                Some(known) if is_table(known) && known.identity != ReplicaIdentity::Missing => batch.push(table),
                _ => self.shared.unwant(table),
            }
        }
        batch
    }

    /// Ensures that the tables are in the publication, and makes them wait for their writers.
    async fn publish(&mut self, epoch: Epoch, batch: Vec<TableId>) -> Result<(), ServiceError> {
        let published = self.published().await?;
        let missing: Vec<TableId> = batch.iter().filter(|t| !published.contains_key(t)).copied().collect();
        if self.shared.own.prepared {
            self.leave_unpublished(missing);
        } else if !missing.is_empty() {
            self.add(missing).await?;
        }
        let mut tables = self.published().await?;
        tables.retain(|table, _| batch.contains(table));
        // These tables no longer qualify, as a newer catalogue will show.
        for table in batch.iter().filter(|table| !tables.contains_key(table)) {
            self.refused.entry(*table).or_insert_with(|| Instant::now() + RACE_PAUSE);
        }
        for table in tables.keys() {
            self.shared.forget_refusal(*table);
        }
        if !tables.is_empty() {
            self.barriers.push(Barrier { epoch, tables, waiting: None });
        }
        Ok(())
    }

    /// Marks tables as published whose writers have all ended.
    async fn look_at_barriers(&mut self) -> Result<(), ServiceError> {
        let mut at = 0;
        while let Some(tables) = self.barriers.get(at).map(|b| b.tables.keys().copied().collect::<Vec<_>>()) {
            let holders = if self.shared.settings.faults.skip_publication_barrier {
                HashSet::new()
            } else {
                self.holders(&tables).await?
            };
            let Some(barrier) = self.barriers.get_mut(at) else { break };
            let waiting = barrier.waiting.get_or_insert_with(|| holders.clone());
            waiting.retain(|holder| holders.contains(holder));
            if waiting.is_empty() {
                let barrier = self.barriers.swap_remove(at);
                self.writers_have_ended(barrier).await?;
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    async fn writers_have_ended(&mut self, barrier: Barrier) -> Result<(), ServiceError> {
        // Another process may have published them at any time, perhaps after the stream was started.
        let restarted = |(table, version)| self.restarted_for.get(table) == Some(version);
        if !barrier.tables.iter().all(restarted) && stream_must_restart(self.version_num().await?) {
            tracing::info!(
                "starting the change stream again, since this server release needs it after a publication grew"
            );
            self.restarted_for.extend(barrier.tables);
            self.shared.restart_stream.notify_one();
            return Ok(());
        }
        let tables: Vec<TableId> = barrier.tables.keys().copied().collect();
        self.shared.note_published(barrier.tables.into_iter());
        self.shared.cache.publish(barrier.epoch, &tables);
        tracing::debug!(tables = tables.len(), "tables published");
        Ok(())
    }

    /// The publication's tables, each with the version of its row.
    async fn published(&mut self) -> Result<HashMap<TableId, String>, ServiceError> {
        Ok(read_published(self.connection.query(&published_sql(&self.shared)).await?))
    }

    /// Adds tables to the publication. A table that is refused does not delay the others.
    async fn add(&mut self, tables: Vec<TableId>) -> Result<(), ServiceError> {
        for table in tables {
            self.refused.remove(&table);
            self.shared.forget_refusal(table);
            match move_table(&mut self.connection, &self.shared, Move::In, table).await {
                Err(error) if error.is_refusal() => self.refuse(table, &error),
                outcome => outcome?,
            }
        }
        Ok(())
    }

    fn refuse(&mut self, table: TableId, error: &ServiceError) {
        // A race is logged at a low level, since a busy schema has many. EXPLAIN CACHE shows it for the statements that read the table.
        let pause = if error.is_race() {
            tracing::debug!(table = table.0, "table cannot be published yet: {error}");
            RACE_PAUSE
        } else {
            tracing::warn!(table = table.0, "table cannot be published and stays uncached: {error}");
            REFUSED_PAUSE
        };
        self.refused.insert(table, Instant::now() + pause);
        self.shared.note_refusal(table, error.to_string());
    }

    /// An administrator manages the publication: tables that are not in it stay uncached until they are added.
    fn leave_unpublished(&mut self, tables: Vec<TableId>) {
        for table in tables {
            let why = format!(
                "it is not in publication {}, to which Freshet adds nothing (--prepared)",
                self.shared.own.publication
            );
            if self.shared.refusal(table).is_none() {
                tracing::info!(table = table.0, "table stays uncached: {why}");
            }
            self.refused.insert(table, Instant::now() + UNPUBLISHED_PAUSE);
            self.shared.note_refusal(table, why);
        }
    }

    /// The transactions that hold a lock for writing on the tables now.
    async fn holders(&mut self, tables: &[TableId]) -> Result<HashSet<Holder>, ServiceError> {
        let sql = format!(
            "SELECT relation::text, virtualtransaction FROM pg_catalog.pg_locks WHERE locktype = 'relation' AND granted \
             AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) \
             AND mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') \
             AND relation IN ({})",
            id_list(tables)
        );
        Ok(self.connection.query(&sql).await?.into_iter().collect())
    }

    async fn version_num(&mut self) -> Result<u32, ServiceError> {
        if self.version_num == 0 {
            let rows = self.connection.query("SHOW server_version_num").await?;
            let text = rows.first().and_then(|row| row.first()).and_then(Option::as_deref);
            self.version_num =
                text.and_then(|text| text.parse().ok()).ok_or(ServiceError::UnexpectedAnswer("server_version_num"))?;
        }
        Ok(self.version_num)
    }

    /// Removes tables from the publication for a cool-off if they do not pay: [`super::table_balance`]. No table is removed if others manage the
    /// publication, if everything is to be cached, or if adding a table again needs a new stream.
    async fn begin_cool_offs(&mut self) -> Result<(), ServiceError> {
        let now = Instant::now();
        let always = self.shared.cache.limits().keep == Keep::Always;
        if always || self.shared.own.prepared || now < self.balanced_at + IDLE_POLL {
            return Ok(());
        }
        let elapsed = (now - self.balanced_at).min(2 * IDLE_POLL);
        self.balanced_at = now;
        if stream_must_restart(self.version_num().await?) {
            return Ok(());
        }
        let cache = &self.shared.cache;
        let earners = self.shared.registry.each_query().map(|query| Earner {
            digest: query.digest,
            hits: query.figures.hits(),
            saves: query.figures.worth.shortest(),
            tables: move || query.tables(),
        });
        let before = self.shared.cool_off.load_full();
        let is_published = |table| cache.is_published(table);
        let gone =
            self.accounts.update(elapsed, |table| before.is_wanted(table), &cache.changes(), earners, is_published);
        let in_cool_off = self.accounts.in_cool_off();
        // The set is stored before the cache drops the tables, so that fills do not request them again at once.
        self.shared.cool_off.store(Arc::new(in_cool_off.iter().copied().collect()));
        if !gone.is_empty() {
            cache.unpublish(&gone);
            for table in &gone {
                self.shared.unwant(*table);
            }
            self.shared.forget_published(&gone);
            tracing::info!(tables = ?gone, "tables are in cool-off, and not published for a while: their changes cost more than hits saved");
            self.leaving.extend(gone);
        }
        self.leaving.retain(|table| in_cool_off.contains(table));
        self.unpublish().await
    }

    /// Removes tables from the publication. If a lock prevents it, it is tried again. Until then the server sends changes that are not needed.
    async fn unpublish(&mut self) -> Result<(), ServiceError> {
        if self.leaving.is_empty() {
            return Ok(());
        }
        let published = self.published().await?;
        self.leaving.retain(|table| published.contains_key(table));
        let tables: Vec<TableId> = self.leaving.iter().copied().collect();
        for table in tables {
            if self.drop(table).await? {
                self.leaving.remove(&table);
            }
        }
        Ok(())
    }

    /// Removes a table from the publication; false if it must be tried again.
    async fn drop(&mut self, table: TableId) -> Result<bool, ServiceError> {
        match move_table(&mut self.connection, &self.shared, Move::Out, table).await {
            Err(error) if error.is_refusal() => {
                tracing::debug!(table = table.0, "table stays in the publication for now: {error}");
                Ok(false)
            }
            outcome => outcome.map(|()| true),
        }
    }

    /// Removes tables from the publication whose updates fail while they are in it, whoever added them. Each catalogue is compared with the
    /// publication until all are removed.
    async fn withdraw(&mut self, catalog: &Catalog) -> Result<(), ServiceError> {
        if self.compared == Some(catalog.version) {
            return Ok(());
        }
        let published = self.published().await?;
        let unfit = |table: &Arc<Table>| is_table(table) && table.identity == ReplicaIdentity::Missing;
        let lost: Vec<TableId> =
            published.into_keys().filter(|table| catalog.table(*table).is_some_and(unfit)).collect();
        self.lose(&lost);
        let mut all = true;
        if self.shared.own.prepared && !lost.is_empty() {
            tracing::warn!(tables = lost.len(), "updates of tables fail since they are published: see freshet check");
        } else {
            for table in lost {
                let is_out = self.drop(table).await?;
                if is_out {
                    tracing::info!(table = table.0, "table taken out of the publication, since its updates would fail");
                }
                all &= is_out;
            }
        }
        self.compared = all.then_some(catalog.version);
        Ok(())
    }
}

/// Whether the relation has its own rows, all of which are logged.
fn is_table(table: &Table) -> bool {
    matches!(table.kind, RelationKind::Table | RelationKind::Parent)
}

fn id_list<'a>(tables: impl IntoIterator<Item = &'a TableId>) -> String {
    tables.into_iter().map(|table| table.0.to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_releases_without_the_fix_restart() {
        for (version, expected) in
            [(150_012, true), (150_013, false), (150_018, false), (180_000, false), (130_020, true)]
        {
            assert_eq!(stream_must_restart(version), expected, "{version}");
        }
    }
}
