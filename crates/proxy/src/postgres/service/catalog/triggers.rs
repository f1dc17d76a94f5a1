//! Whether the change stream contains DDL.
//!
//! It does once the event triggers exist and every statement has ended that began before. A command that was running then fires no trigger, and a
//! transaction that ran a command before has not reported it. If the triggers are changed in any way, even back again, this starts over.

use std::collections::HashSet;

use freshet_types::Nanos;

use crate::postgres::Pg;
use crate::postgres::service::connection::{Connection, ServiceError};

/// Oldest major version whose output plugin sends messages.
const VERSION_MESSAGES: u32 = 14;

/// Transactions of this database that have written, or are running a statement.
const RUNNING: &str = "
SELECT l.virtualtransaction FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE l.granted AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
 AND (a.pid IS NULL OR a.datname = pg_catalog.current_database())
 AND (l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock'
  OR l.locktype = 'virtualxid' AND l.mode = 'ExclusiveLock' AND a.state IS DISTINCT FROM 'idle in transaction')";

/// How long dropped triggers are not created again: five minutes. `pg_restore --clean` drops them first and creates them again last.
const AGAIN_AFTER: Nanos = 300_000_000_000;

/// The state of the event triggers.
pub(super) struct Triggers {
    /// The query for their state.
    sql: &'static str,
    /// Their last state.
    seen: Option<String>,
    /// The transactions that began before and are still running.
    running: HashSet<String>,
    /// When some of them were first missing.
    gone_since: Option<Nanos>,
    told: Option<bool>,
}

impl Triggers {
    pub(super) fn new(sql: &'static str) -> Self {
        Self { sql, seen: None, running: HashSet::new(), gone_since: None, told: None }
    }

    /// Whether every DDL command that becomes visible from now on will be in the stream, as far as event triggers see it.
    pub(super) async fn look(&mut self, connection: &mut Connection, shared: &Pg) -> Result<bool, ServiceError> {
        let mut form = self.form(connection, shared).await?;
        if form.is_none() && self.mend(connection, shared).await? {
            form = self.form(connection, shared).await?;
        }
        if form.is_some() && (form != self.seen || !self.running.is_empty()) {
            let now = running(connection).await?;
            if form == self.seen {
                self.running.retain(|transaction| now.contains(transaction));
            } else {
                self.running = now;
            }
        }
        if form.is_none() {
            self.running.clear();
        }
        self.seen = form;
        let stands = self.seen.is_some() && self.running.is_empty();
        self.tell(stands);
        Ok(stands)
    }

    /// Creates triggers again that were dropped some time ago. Disabled triggers are not changed: that is intended.
    async fn mend(&mut self, connection: &mut Connection, shared: &Pg) -> Result<bool, ServiceError> {
        let Some((missing, sql)) = &shared.own.triggers_again else { return Ok(false) };
        let stood = self.seen.is_some() || self.gone_since.is_some();
        if !stood || connection.query(missing).await?.is_empty() {
            self.gone_since = None;
            return Ok(false);
        }
        let now = shared.clock.now();
        let gone = now.saturating_sub(*self.gone_since.get_or_insert(now));
        if gone < AGAIN_AFTER && !shared.settings.faults.triggers_at_once {
            return Ok(false);
        }
        self.gone_since = None;
        make_again(connection, sql).await?;
        Ok(true)
    }

    async fn form(&self, connection: &mut Connection, shared: &Pg) -> Result<Option<String>, ServiceError> {
        let rows = connection.query_again(self.sql).await?;
        let form = rows.into_iter().next().and_then(|row| row.into_iter().next().flatten());
        Ok(form.filter(|_| shared.server_version() >= VERSION_MESSAGES))
    }

    /// Whether they exist, but statements that began before are still running.
    pub(super) fn wait(&self) -> bool {
        !self.running.is_empty()
    }

    fn tell(&mut self, stands: bool) {
        let waits = self.seen.is_some() && !stands;
        if self.told == Some(stands) || (waits && self.told.is_none()) {
            return;
        }
        if stands {
            tracing::info!("DDL is in the change stream");
        } else if self.told.is_some() {
            tracing::warn!("the event triggers were changed: DDL is found by polling");
        } else {
            tracing::info!("DDL is found by polling");
        }
        self.told = Some(stands);
    }
}

async fn make_again(connection: &mut Connection, sql: &str) -> Result<(), ServiceError> {
    match connection.query(sql).await {
        Ok(_) => tracing::warn!("the event triggers were dropped: made again"),
        Err(error) if error.is_refusal() => {
            tracing::warn!("the event triggers were dropped, and cannot be made again: {error}");
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

async fn running(connection: &mut Connection) -> Result<HashSet<String>, ServiceError> {
    Ok(connection.query(RUNNING).await?.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect())
}
