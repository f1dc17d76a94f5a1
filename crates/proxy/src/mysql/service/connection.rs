//! A service connection that reconnects by itself.

use std::sync::Arc;
use std::time::Duration;

use freshet_net::mysql::{Client, ConnectError, Error, Rows, ServerVersion, identity};
use thiserror::Error as ThisError;

use crate::mysql::MySql;
use crate::service::once::{Failure, Hearing};
use crate::shared::ServerIdentity;

/// After this time without an answer the connection counts as dead.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Replaces global settings that would change answers or end the connection.
const MANNERS: &str = "SET SESSION sql_mode = '', SESSION autocommit = 1, SESSION wait_timeout = 31536000, \
                       SESSION sql_quote_show_create = 1, SESSION sql_select_limit = 18446744073709551615";

/// Errors in a race with DDL: `ER_BAD_DB_ERROR`, `ER_BAD_TABLE_ERROR`, `ER_BAD_FIELD_ERROR`, `ER_NO_SUCH_TABLE`, `ER_LOCK_WAIT_TIMEOUT`,
/// `ER_LOCK_DEADLOCK`, `ER_VIEW_INVALID`, `ER_TABLE_DEF_CHANGED`.
const RACES: [u16; 8] = [1049, 1051, 1054, 1146, LOCK_WAIT_TIMEOUT, 1213, 1356, 1412];
/// `ER_LOCK_WAIT_TIMEOUT`.
pub(super) const LOCK_WAIT_TIMEOUT: u16 = 1205;
/// `ER_LOCK_WAIT_TIMEOUT`, and the errors of a statement that exceeds the server's time limit: MariaDB's `ER_STATEMENT_TIMEOUT`, MySQL's
/// `ER_QUERY_TIMEOUT`.
const TIMEOUTS: [u16; 3] = [LOCK_WAIT_TIMEOUT, 1969, 3024];
/// Races that end when the statement is sent again: `ER_LOCK_DEADLOCK`, `ER_TABLE_DEF_CHANGED`. The others may last.
const SHORT_RACES: [u16; 2] = [1213, 1412];
/// Errors with which the server ends the connection: `ER_SERVER_SHUTDOWN`, `ER_QUERY_INTERRUPTED`, MariaDB's `ER_CONNECTION_KILLED`, MySQL's
/// `ER_CLIENT_INTERACTION_TIMEOUT`.
const ENDINGS: [u16; 4] = [1053, 1317, 1927, 4031];

/// Why a service statement has no answer.
#[derive(Debug, ThisError)]
pub(crate) enum ServiceError {
    /// The connection could not be opened.
    #[error("{0}")]
    Connect(#[from] ConnectError),
    /// The statement failed, or the connection did.
    #[error("{0}")]
    Query(#[from] Error),
    /// There is no change stream, so the server is not known.
    #[error("there is no change stream")]
    NoStream,
    /// The connection leads to another server than the change stream.
    #[error("the connection leads to another server than the change stream")]
    OtherServer,
    /// The answer does not have the expected form.
    #[error("unexpected answer to {0}")]
    UnexpectedAnswer(&'static str),
    /// The positions of the binlog start again.
    #[error("the binlog was begun anew (RESET MASTER)")]
    LogReset,
}

impl ServiceError {
    /// Whether the wait for a lock, or the statement, timed out.
    pub(crate) fn is_timeout(&self) -> bool {
        matches!(self, Self::Query(Error::Server(error)) if TIMEOUTS.contains(&error.code))
    }

    /// Whether the statement raced with DDL.
    pub(crate) fn is_race(&self) -> bool {
        matches!(self, Self::Query(Error::Server(error)) if RACES.contains(&error.code))
    }

    /// Whether the server refused the statement and will refuse it again; false if the server cannot be reached.
    pub(crate) fn is_lasting_refusal(&self) -> bool {
        let passes = |code| ENDINGS.contains(&code) || SHORT_RACES.contains(&code);
        matches!(self, Self::Query(Error::Server(error)) if !passes(error.code)) && !self.is_timeout()
    }
}

impl Failure for ServiceError {
    fn hearing(&self) -> Hearing {
        match self {
            Self::NoStream => Hearing::Never,
            Self::Query(Error::Server(error)) if !RACES.contains(&error.code) && !ENDINGS.contains(&error.code) => {
                Hearing::AtOnce
            }
            Self::Query(Error::Malformed(_) | Error::Sequence { .. } | Error::TooLarge(_))
            | Self::UnexpectedAnswer(_)
            | Self::LogReset => Hearing::AtOnce,
            Self::Connect(_) | Self::OtherServer | Self::Query(_) => Hearing::IfLasting,
        }
    }
}

pub(crate) struct Connection {
    mysql: Arc<MySql>,
    link: Option<(Client, ServerIdentity)>,
}

impl Connection {
    pub(crate) fn new(mysql: Arc<MySql>) -> Self {
        Self { mysql, link: None }
    }

    /// Runs a statement on the server of the change stream; connects first if necessary.
    pub(crate) async fn query(&mut self, sql: &str) -> Result<Rows, ServiceError> {
        self.query_for(|_| sql).await
    }

    /// Runs a statement that depends on the server's version.
    pub(crate) async fn query_for<'a>(
        &mut self,
        sql: impl FnOnce(&ServerVersion) -> &'a str,
    ) -> Result<Rows, ServiceError> {
        let stream = self.mysql.identity().ok_or(ServiceError::NoStream)?;
        let mut link = match self.link.take() {
            Some(link) if !link.0.is_dead() => link,
            _ => open(&self.mysql).await?,
        };
        if *stream != link.1 {
            return Err(ServiceError::OtherServer);
        }
        let client = &mut link.0;
        let sql = sql(client.server());
        let answer = client.query_timeout(sql, ANSWER_TIMEOUT).await;
        self.link = Some(link);
        Ok(answer?)
    }
}

/// A new connection to the server of the change stream.
pub(super) async fn open(mysql: &MySql) -> Result<(Client, ServerIdentity), ServiceError> {
    // Without a stream the server is unknown.
    if mysql.identity().is_none() {
        return Err(ServiceError::NoStream);
    }
    let (mut client, identity) = connect(mysql).await?;
    client.query_timeout(MANNERS, ANSWER_TIMEOUT).await?;
    Ok((client, identity))
}

/// A new connection to the upstream's name, and the identity of its server.
pub(crate) async fn connect(mysql: &MySql) -> Result<(Client, ServerIdentity), ServiceError> {
    let mut client = Client::connect(&mysql.own.upstream).await?;
    let run = identity::ask(&mut client, ANSWER_TIMEOUT)
        .await?
        .ok_or(ServiceError::UnexpectedAnswer("the server's identity"))?;
    let identity = ServerIdentity { system_id: run.server, postmaster_start: run.start, database: String::new() };
    Ok((client, identity))
}

#[cfg(test)]
mod tests {
    use freshet_net::mysql::ServerError;

    use super::*;

    #[test]
    fn what_passes_is_no_refusal() {
        let lasts = |code| {
            let error = ServerError { code, sqlstate: String::new(), message: String::new() };
            ServiceError::Query(Error::Server(Box::new(error))).is_lasting_refusal()
        };
        // Access denied, no such table, an invalid view.
        assert_eq!([1142, 1146, 1356].map(lasts), [true; 3]);
        // A deadlock, time-outs, and ends of the connection.
        assert_eq!([1213, 1205, 1969, 1317, 1053, 1927].map(lasts), [false; 6]);
        assert!(!ServiceError::NoStream.is_lasting_refusal());
    }
}
