//! The contents of the publication, and the way a table is added or removed.
//!
//! `ALTER PUBLICATION` locks the publication, then one table after another. While it waits for a table, other sessions wait for it: an application's
//! DDL that needs the lock of a second table, or an event trigger that removes a table. A deadlock between them would end an application's
//! transaction. So each table is added or removed in a transaction of its own, which waits for the table's lock while it holds nothing else. Under
//! this lock no session can redefine the table. Then it is checked once more whether updates of the table would fail.

use std::collections::HashMap;

use freshet_types::TableId;

use crate::postgres::Pg;
use crate::postgres::service::connection::{Connection, ServiceError};

/// The lock that ALTER PUBLICATION takes on a table.
const LOCK: &str = "SHARE UPDATE EXCLUSIVE";
/// Time limit in milliseconds for a table's lock that autovacuum holds. Autovacuum releases it after `deadlock_timeout`.
const AUTOVACUUM_WAIT: u32 = 3000;
/// Time limit for the publication's lock, while the table's lock is held. A transaction whose DDL removed a table holds the publication's lock to its
/// end.
const SECOND_WAIT: u32 = 10;

/// Whether UPDATE and DELETE of a table `c` fail if it is published. They fail without a replica identity. From version 18 on they also fail if the
/// replica identity has generated columns that the publication does not send. It never sends virtual ones. `freshet.note_ddl()` has the same
/// condition. Neither casts a text to a number, since such a cast may be user-defined. `publication` is its name as a literal; if it does not exist,
/// it will send stored columns.
#[must_use]
pub fn updates_fail(publication: &str) -> String {
    format!(
        "(c.relreplident <> 'f' AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND {IDENTITY}) \
          OR pg_catalog.current_setting('server_version_num') >= '180000' AND EXISTS (SELECT FROM pg_catalog.pg_attribute a \
           LEFT JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND {IDENTITY} \
           WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
           AND (a.attgenerated = 'v' OR a.attgenerated = 's' AND EXISTS (SELECT FROM pg_catalog.pg_publication p \
            WHERE p.pubname = {publication} AND pg_catalog.to_jsonb(p) ->> 'pubgencols' <> 's')) \
           AND (c.relreplident = 'f' OR a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]))))"
    )
}

/// Whether the index `i` is the replica identity of table `c`.
const IDENTITY: &str = "i.indisvalid AND i.indimmediate \
    AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END";

/// The publication's tables, each with the version of its row. Tables with a row filter or a column list are left out, since their changes would be
/// incomplete (the columns for this exist from version 15 on).
pub(crate) fn published_sql(shared: &Pg) -> String {
    format!(
        "SELECT r.prrelid::text, r.xmin::text FROM pg_catalog.pg_publication_rel r \
         JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid WHERE p.pubname = {} \
         AND (pg_catalog.to_jsonb(r) ->> 'prqual') IS NULL AND (pg_catalog.to_jsonb(r) ->> 'prattrs') IS NULL",
        shared.publication_literal()
    )
}

pub(crate) fn read_published(rows: Vec<Vec<Option<String>>>) -> HashMap<TableId, String> {
    let read = |row: Vec<Option<String>>| match <[_; 2]>::try_from(row) {
        Ok([Some(id), Some(version)]) => Some((TableId(id.parse().ok()?), version)),
        _ => None,
    };
    rows.into_iter().filter_map(read).collect()
}

/// The direction of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    In,
    Out,
}

impl Move {
    const fn verb(self) -> &'static str {
        match self {
            Self::In => "ADD",
            Self::Out => "DROP",
        }
    }
}

/// Adds a table to the publication, unless its updates would fail, or removes it. Does nothing if the table does not exist.
pub(crate) async fn move_table(
    connection: &mut Connection,
    shared: &Pg,
    way: Move,
    table: TableId,
) -> Result<(), ServiceError> {
    let Some((name, wait)) = lock_of(connection, table).await? else { return Ok(()) };
    let outcome = match connection.query(&format!("BEGIN; {wait}LOCK TABLE ONLY {name} IN {LOCK} MODE")).await {
        // The publication's owner may lack the privilege to lock the table.
        Err(error) if error.is_forbidden() => {
            connection.query("BEGIN").await?;
            move_locked(connection, shared, way, (table, &name)).await
        }
        Err(error) => Err(error),
        Ok(_) => move_locked(connection, shared, way, (table, &name)).await,
    };
    let end = match &outcome {
        // The error has ended the transaction.
        Err(error) if error.is_refusal() => return outcome,
        Err(_) => "ROLLBACK",
        Ok(()) => "COMMIT",
    };
    let ended = connection.query(end).await;
    outcome.and(ended).map(drop)
}

/// The table's name, and the statement that sets the time limit for its lock; None if the table does not exist.
async fn lock_of(connection: &mut Connection, table: TableId) -> Result<Option<(String, String)>, ServiceError> {
    let sql = format!(
        "SELECT pg_catalog.format('%I.%I', n.nspname, c.relname), EXISTS (SELECT FROM pg_catalog.pg_locks l \
         JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid AND a.backend_type = 'autovacuum worker' \
         WHERE l.relation = c.oid AND l.database = (SELECT oid FROM pg_catalog.pg_database \
          WHERE datname = pg_catalog.current_database()) AND l.mode = 'ShareUpdateExclusiveLock')::text \
         FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = {}",
        table.0
    );
    let row = connection.query(&sql).await?.into_iter().next();
    let Some([Some(name), vacuumed]) = row.map(<[_; 2]>::try_from).and_then(Result::ok) else { return Ok(None) };
    let vacuumed = vacuumed.as_deref() == Some("true");
    let wait = if vacuumed { format!("SET LOCAL lock_timeout = {AUTOVACUUM_WAIT}; ") } else { String::new() };
    Ok(Some((name, wait)))
}

/// Moves the table in a transaction that has locked the table with this name, if it is still the same table.
async fn move_locked(
    connection: &mut Connection,
    shared: &Pg,
    way: Move,
    (table, name): (TableId, &str),
) -> Result<(), ServiceError> {
    let publication = shared.publication_literal();
    let (verb, name) = (way.verb(), name.replace('\'', "''"));
    let fit = match way {
        Move::In => format!("c.relkind = 'r' AND c.relpersistence = 'p' AND NOT {}", updates_fail(&publication)),
        Move::Out => "true".to_owned(),
    };
    let sql = format!(
        "SELECT pg_catalog.format('ALTER PUBLICATION %I {verb} TABLE ONLY %I.%I', {publication}::text, n.nspname, c.relname) \
         FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = {} \
         AND pg_catalog.format('%I.%I', n.nspname, c.relname) = '{name}' AND {fit}",
        table.0
    );
    let rows = connection.query(&sql).await?;
    if let Some([Some(statement)]) = rows.first().map(Vec::as_slice) {
        let statement = format!("SET LOCAL lock_timeout = {SECOND_WAIT}; {statement}");
        connection.query(&statement).await?;
    }
    Ok(())
}
