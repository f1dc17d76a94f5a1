//! Runs key queries: see [`crate::shared::key_queries`].
//!
//! Key queries must see every row that the sessions' own queries see, so row security must not hide any: the server is told to fail instead. They
//! must see committed rows only, so that no key is missed that a rollback restores. Tables that the account may not read are remembered until the
//! catalogue changes. A GRANT changes it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use freshet_net::postgres::{Client, Error};
use freshet_sql::{JoinKeys, Parameterised};
use freshet_types::{CatalogVersion, Lsn, TableId};

use crate::postgres::Pg;
use crate::postgres::service::connection::{ServiceError, connect};
use crate::service::once::Once;
use crate::shared::ServerIdentity;
use crate::shared::key_queries::{ANSWER_BYTES_MAX, Failure, Job, Keys, read_keys};

/// Connections for key queries, opened when first needed.
const CONNECTIONS: usize = 2;
/// Time limit of one key query with its settings.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The server's own limit comes first. With an empty search path no name means an object of the application by mistake.
const MANNERS: &str = "SET statement_timeout = '3s'; SET default_transaction_read_only = on; \
    SET default_transaction_isolation = 'read committed'; SET row_security = off; SET search_path = ''; \
    SET standard_conforming_strings = on";
/// The log end, read after the keys and so after their snapshots: all that these show was in the log by then.
const END: &str = "SELECT pg_catalog.pg_current_wal_insert_lsn()::pg_catalog.text";
/// SQLSTATE for a missing privilege, and for rows that row security would hide.
const INSUFFICIENT_PRIVILEGE: &str = "42501";
/// SQLSTATE for a statement that took too long. The errors of a session that the server ends have another class.
const QUERY_CANCELED: &str = "57014";
const SESSION_ENDED: &str = "57P";
/// Limit of remembered tables that may not be read.
const CLOSED_MAX: usize = 10_000;

/// Starts the key queries.
pub fn run_key_queries(shared: &Arc<Pg>) {
    for _ in 0..CONNECTIONS {
        let closed = (CatalogVersion::default(), HashSet::new());
        shared.tasks.spawn(read(Reader { shared: shared.clone(), link: None, closed }));
    }
}

async fn read(mut reader: Reader) {
    let mut once = Once::default();
    loop {
        let jobs = reader.shared.next_key_queries().await;
        let (closed, jobs): (Vec<Job>, _) = jobs.into_iter().partition(|job| reader.check_closed(&job.join_keys));
        for job in closed {
            reader.shared.keys_unknown(job);
        }
        if jobs.is_empty() {
            continue;
        }
        match reader.read(&jobs).await {
            Ok((keys, behind)) => {
                once.clear();
                for (job, keys) in jobs.into_iter().zip(&keys) {
                    reader.shared.keys_read(job, keys, behind);
                }
            }
            // The failure ends with the redefinition of the table.
            Err(error) if error.is_race() => {
                tracing::debug!("cannot read the keys that a result depends on: {error}");
                reader.shared.key_queries_failed(jobs, Failure::Raced);
            }
            Err(error) => {
                once.warn_of("cannot read the keys that results depend on, so that they go with any row", &error);
                reader.shared.key_queries_failed(jobs, failure(&error));
            }
        }
    }
}

fn failure(error: &ServiceError) -> Failure {
    match error {
        ServiceError::Query(Error::TooLarge(_)) => Failure::Costly,
        ServiceError::Query(error @ Error::Server(_)) => match error.sqlstate() {
            Some(QUERY_CANCELED) => Failure::Costly,
            Some(INSUFFICIENT_PRIVILEGE) => Failure::Forbidden,
            Some(state) if state.starts_with(SESSION_ENDED) => Failure::Broken,
            _ => Failure::Refused,
        },
        ServiceError::Query(Error::Malformed(_)) | ServiceError::UnexpectedAnswer(_) => Failure::Refused,
        _ => Failure::Broken,
    }
}

struct Reader {
    shared: Arc<Pg>,
    link: Option<(Client, ServerIdentity)>,
    /// Tables that may not be read, with the version of the catalogue.
    closed: (CatalogVersion, HashSet<TableId>),
}

impl Reader {
    /// Whether it is known that one of these tables may not be read.
    fn check_closed(&mut self, join_keys: &JoinKeys) -> bool {
        let catalog = self.shared.catalog_version();
        if self.closed.0 != catalog || self.closed.1.len() > CLOSED_MAX {
            self.closed = (catalog, HashSet::new());
        }
        join_keys.tables().iter().any(|table| self.closed.1.contains(table))
    }

    /// The keys, and a log end read after them.
    async fn read(&mut self, jobs: &[Job]) -> Result<(Vec<Keys>, Lsn), ServiceError> {
        let mut link = match self.link.take() {
            Some(link) if !link.0.is_dead() && Some(&link.1) == self.shared.identity().as_deref() => link,
            _ => open(&self.shared).await?,
        };
        let questions: Vec<Parameterised> = jobs.iter().map(|job| job.join_keys.parameterised()).collect();
        let mut statements: Vec<(&str, Vec<&str>)> = questions.iter().map(Parameterised::parts).collect();
        statements.push((END, Vec::new()));
        let answer = link.0.query_prepared(&statements, ANSWER_TIMEOUT).await;
        if let ([job], Err(error)) = (jobs, &answer)
            && error.sqlstate() == Some(INSUFFICIENT_PRIVILEGE)
        {
            let tables = unreadable(&mut link.0, job.join_keys.tables()).await?;
            self.closed.1.extend(tables);
        }
        self.link = Some(link);
        let mut answers = answer?;
        let end = answers.pop().unwrap_or_default();
        let behind = end.first().and_then(|row| Lsn::parse(row.first()?.as_deref()?));
        let behind = behind.ok_or(ServiceError::UnexpectedAnswer("a position"))?;
        let keys = answers.into_iter().map(|rows| read_keys(rows, 1)?.pop()).collect::<Option<_>>();
        let keys = keys.ok_or(ServiceError::UnexpectedAnswer("a query for keys"))?;
        Ok((keys, behind.without_page_header(self.shared.wal_segment_bytes())))
    }
}

/// A new connection to the server of the change stream.
async fn open(shared: &Pg) -> Result<(Client, ServerIdentity), ServiceError> {
    // Without a stream the server is unknown.
    if shared.identity().is_none() {
        return Err(ServiceError::NoStream);
    }
    let (mut client, identity) = connect(shared).await?;
    if Some(&identity) != shared.identity().as_deref() {
        return Err(ServiceError::OtherServer);
    }
    client.query_timeout(MANNERS, ANSWER_TIMEOUT).await?;
    client.limit_answers(ANSWER_BYTES_MAX);
    Ok((client, identity))
}

/// The tables that may not be read. All of them, if this cannot be determined.
async fn unreadable(client: &mut Client, tables: &[TableId]) -> Result<Vec<TableId>, Error> {
    let ids: Vec<String> = tables.iter().map(|table| table.0.to_string()).collect();
    let sql = format!(
        "SELECT c.oid FROM pg_catalog.pg_class c WHERE c.oid IN ({}) AND NOT (pg_catalog.has_table_privilege(c.oid, \
         'SELECT') AND pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE') \
         AND NOT pg_catalog.row_security_active(c.oid))",
        ids.join(", ")
    );
    let rows = client.query_timeout(&sql, ANSWER_TIMEOUT).await?;
    let id = |row: &Vec<Option<String>>| row.first()?.as_deref()?.parse().ok().map(TableId);
    let found: Vec<TableId> = rows.iter().filter_map(id).collect();
    Ok(if found.is_empty() { tables.to_vec() } else { found })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use freshet_net::postgres::ServerError;

    use super::*;

    #[test]
    fn failures_say_whether_to_try_again() {
        let server = |code: &str| {
            let error = ServerError {
                severity: "ERROR".into(),
                code: code.into(),
                message: String::new(),
                detail: String::new(),
                hint: String::new(),
                body: Box::default(),
            };
            failure(&ServiceError::Query(Error::Server(Box::new(error))))
        };
        assert_eq!(server("57014"), Failure::Costly, "statement_timeout");
        assert_eq!(failure(&ServiceError::Query(Error::TooLarge(1))), Failure::Costly);
        assert_eq!(server("42501"), Failure::Forbidden);
        for refused in ["22012", "XX000"] {
            assert_eq!(server(refused), Failure::Refused, "{refused}");
        }
        assert_eq!(failure(&ServiceError::UnexpectedAnswer("keys")), Failure::Refused);
        for ended in ["57P01", "57P02", "57P03", "57P05"] {
            assert_eq!(server(ended), Failure::Broken, "{ended}");
        }
        for broken in [Error::Closed, Error::Timeout(Duration::ZERO), Error::Unexpected(b'X')] {
            assert_eq!(failure(&ServiceError::Query(broken)), Failure::Broken);
        }
        assert_eq!(failure(&ServiceError::OtherServer), Failure::Broken);
    }
}
