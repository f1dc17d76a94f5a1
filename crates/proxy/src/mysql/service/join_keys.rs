//! Runs key queries: see [`crate::shared::key_queries`].
//!
//! Key queries must see committed rows only, so that no key is missed that a rollback restores. A missing privilege is unlikely: the catalogue
//! contains only tables that the account may read, and no others are cached.

use std::sync::Arc;
use std::time::Duration;

use freshet_net::mysql::{Client, Error};

use crate::mysql::MySql;
use crate::mysql::service::connection::{ServiceError, open};
use crate::service::once::Once;
use crate::shared::ServerIdentity;
use crate::shared::key_queries::{ANSWER_BYTES_MAX, Failure, Job, Keys, keys_question, read_keys};

/// Connections for key queries, opened when first needed.
const CONNECTIONS: usize = 2;
/// Time limit of one key query with its settings.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Settings in addition to those of every service connection.
const MANNERS: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY";
/// The server's own limit comes first: MariaDB counts seconds, MySQL milliseconds. The second setting is for table locks.
const LIMIT_OF_MARIADB: &str = "SET SESSION max_statement_time = 3, SESSION lock_wait_timeout = 3";
const LIMIT_OF_MYSQL: &str = "SET SESSION max_execution_time = 3000, SESSION lock_wait_timeout = 3";

/// Errors of a statement that took too long: ER_QUERY_INTERRUPTED, ER_STATEMENT_TIMEOUT of MariaDB and ER_QUERY_TIMEOUT of MySQL.
const TOO_LONG: [u16; 3] = [1317, 1969, 3024];

/// `ER_TABLEACCESS_DENIED_ERROR` and `ER_COLUMNACCESS_DENIED_ERROR`.
const NO_RIGHT: [u16; 2] = [1142, 1143];

/// Starts the key queries.
pub(super) fn run_key_queries(mysql: &Arc<MySql>) {
    for _ in 0..CONNECTIONS {
        mysql.tasks.spawn(read(Reader { mysql: mysql.clone(), link: None }));
    }
}

async fn read(mut reader: Reader) {
    let mut once = Once::default();
    loop {
        let jobs = reader.mysql.next_key_queries().await;
        match reader.read(&jobs).await {
            Ok(keys) => {
                once.clear();
                for (job, keys) in jobs.into_iter().zip(&keys) {
                    let (complete, _) = reader.mysql.keys_known(job, Some(keys));
                    reader.mysql.await_end(complete);
                }
                reader.mysql.want_log_end();
            }
            Err(error) => {
                once.warn_of("cannot read the keys that results depend on, so that they go with any row", &error);
                reader.mysql.key_queries_failed(jobs, failure(&error));
            }
        }
    }
}

fn failure(error: &ServiceError) -> Failure {
    match error {
        ServiceError::Query(Error::Server(error)) if TOO_LONG.contains(&error.code) => Failure::Costly,
        ServiceError::Query(Error::TooLarge(_)) => Failure::Costly,
        error if error.is_race() => Failure::Raced,
        ServiceError::Query(Error::Server(error)) if NO_RIGHT.contains(&error.code) => Failure::Forbidden,
        ServiceError::Query(Error::Server(_) | Error::Malformed(_)) | ServiceError::UnexpectedAnswer(_) => {
            Failure::Refused
        }
        _ => Failure::Broken,
    }
}

struct Reader {
    mysql: Arc<MySql>,
    link: Option<(Client, ServerIdentity)>,
}

impl Reader {
    async fn read(&mut self, jobs: &[Job]) -> Result<Vec<Keys>, ServiceError> {
        let mut link = match self.link.take() {
            Some(link) if !link.0.is_dead() && Some(&link.1) == self.mysql.identity().as_deref() => link,
            _ => self.open().await?,
        };
        let answer = link.0.query_bytes_timeout(&keys_question(jobs), ANSWER_TIMEOUT).await;
        self.link = Some(link);
        read_keys(answer?, jobs.len()).ok_or(ServiceError::UnexpectedAnswer("a query for keys"))
    }

    async fn open(&self) -> Result<(Client, ServerIdentity), ServiceError> {
        let (mut client, identity) = open(&self.mysql).await?;
        if self.mysql.identity().as_deref() != Some(&identity) {
            return Err(ServiceError::OtherServer);
        }
        client.query_timeout(MANNERS, ANSWER_TIMEOUT).await?;
        let limit = if client.server().is_mariadb { LIMIT_OF_MARIADB } else { LIMIT_OF_MYSQL };
        client.query_timeout(limit, ANSWER_TIMEOUT).await?;
        client.limit_answers(ANSWER_BYTES_MAX);
        Ok((client, identity))
    }
}

#[cfg(test)]
mod tests {
    use freshet_net::mysql::ServerError;

    use super::*;

    #[test]
    fn failures_say_whether_to_try_again() {
        let server = |code: u16| {
            let error = ServerError { code, sqlstate: "HY000".into(), message: String::new() };
            failure(&ServiceError::Query(Error::Server(Box::new(error))))
        };
        for costly in TOO_LONG {
            assert_eq!(server(costly), Failure::Costly, "{costly}");
        }
        assert_eq!(failure(&ServiceError::Query(Error::TooLarge(1))), Failure::Costly);
        assert_eq!(server(1064), Failure::Refused);
        assert_eq!(server(1142), Failure::Forbidden);
        for raced in [1146, 1205, 1412] {
            assert_eq!(server(raced), Failure::Raced, "{raced}");
        }
        assert_eq!(failure(&ServiceError::UnexpectedAnswer("keys")), Failure::Refused);
        assert_eq!(failure(&ServiceError::Query(Error::Closed)), Failure::Broken);
        assert_eq!(failure(&ServiceError::OtherServer), Failure::Broken);
    }
}
