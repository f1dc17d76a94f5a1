//! A service connection that reconnects by itself.

use std::sync::Arc;
use std::time::Duration;

use freshet_net::postgres::{Client, ConnectError, Error, Purpose, Rows};
use thiserror::Error as ThisError;

use crate::postgres::Pg;
use crate::postgres::question::{POSTMASTER_START, SYSTEM_ID};
use crate::service::once::{Failure, Hearing};
use crate::shared::ServerIdentity;

/// After this time without an answer the connection counts as dead.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// The same for more than so many statements at once.
const ANSWERS_TIMEOUT: Duration = Duration::from_secs(60);
const MANY: usize = 3;
/// The longest wait for a lock in milliseconds, and the largest fraction of `deadlock_timeout`. A session that holds one lock and waits for another
/// may be part of a deadlock. Freshet gives up long before the server looks for deadlocks and ends a transaction.
const LOCK_WAIT_MAX: u64 = 100;
const LOCK_WAIT_PART: u64 = 4;
/// SQLSTATE `insufficient_privilege`.
const INSUFFICIENT_PRIVILEGE: &str = "42501";
/// Errors in a race with DDL: `undefined_table`, `undefined_column`, `undefined_object`, `invalid_schema_name`, `duplicate_object`, `object_in_use`,
/// `lock_not_available`, `deadlock_detected`, `serialization_failure`, and `internal_error` for "could not open relation with OID".
const RACES: [&str; 10] = ["42P01", "42703", "42704", "3F000", "42710", "55006", "55P03", "40P01", "40001", "XX000"];

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
}

impl ServiceError {
    /// Whether the server refused the statement; false if the server cannot be reached.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Query(Error::Server(_)))
    }

    /// Whether the statement raced with DDL, or an object that it names was dropped or renamed meanwhile: it must be tried again.
    pub(crate) fn is_race(&self) -> bool {
        self.sqlstate().is_some_and(|code| RACES.contains(&code))
    }

    /// Whether a privilege is missing.
    pub(crate) fn is_forbidden(&self) -> bool {
        self.sqlstate() == Some(INSUFFICIENT_PRIVILEGE)
    }

    fn sqlstate(&self) -> Option<&str> {
        match self {
            Self::Query(error) => error.sqlstate(),
            _ => None,
        }
    }
}

impl Failure for ServiceError {
    fn hearing(&self) -> Hearing {
        match self {
            Self::NoStream => Hearing::Never,
            Self::Query(Error::Server(error)) if error.severity != "FATAL" && !self.is_race() => Hearing::AtOnce,
            Self::Query(Error::Malformed(_) | Error::Unexpected(_) | Error::TooLarge(_))
            | Self::UnexpectedAnswer(_) => Hearing::AtOnce,
            Self::Connect(_) | Self::OtherServer | Self::Query(_) => Hearing::IfLasting,
        }
    }
}

pub(crate) struct Connection {
    shared: Arc<Pg>,
    client: Option<Client>,
    identity: Option<ServerIdentity>,
}

impl Connection {
    pub(crate) fn new(shared: Arc<Pg>) -> Self {
        Self { shared, client: None, identity: None }
    }

    /// Runs a statement on the server of the change stream; connects first if necessary.
    pub(crate) async fn query(&mut self, sql: &str) -> Result<Rows, ServiceError> {
        Ok(self.client().await?.query_timeout(sql, ANSWER_TIMEOUT).await?)
    }

    /// Runs a frequent statement, which is prepared.
    pub(crate) async fn query_again(&mut self, sql: &str) -> Result<Rows, ServiceError> {
        Ok(self.query_all_again(&[(sql, Vec::new())]).await?.pop().unwrap_or_default())
    }

    /// Runs frequent statements with text parameters in one round trip. The answers are in their order.
    pub(crate) async fn query_all_again(
        &mut self,
        statements: &[(&str, Vec<&str>)],
    ) -> Result<Vec<Rows>, ServiceError> {
        let limit = if statements.len() > MANY { ANSWERS_TIMEOUT } else { ANSWER_TIMEOUT };
        Ok(self.client().await?.query_prepared(statements, limit).await?)
    }

    async fn client(&mut self) -> Result<&mut Client, ServiceError> {
        // Without a stream the server is unknown. If the stream ended in a transaction of this connection, the transaction ends with the connection.
        // Otherwise the next stream would wait for it without end.
        if self.shared.identity().is_none() {
            self.client = None;
            return Err(ServiceError::NoStream);
        }
        if self.client.as_ref().is_none_or(Client::is_dead) {
            self.client = None;
            self.connect().await?;
        }
        let stream = self.shared.identity().ok_or(ServiceError::NoStream)?;
        if self.identity.as_ref() != Some(&*stream) {
            self.client = None;
        }
        self.client.as_mut().ok_or(ServiceError::OtherServer)
    }

    async fn connect(&mut self) -> Result<(), ServiceError> {
        let (mut client, identity) = connect(&self.shared).await?;
        self.identity = Some(identity);
        // No unqualified name then means an object of the application, whatever the account's own search path. To compile the statements would take
        // longer than to run them.
        let settings =
            "SELECT pg_catalog.set_config('search_path', '', false), pg_catalog.set_config('jit', 'off', false)";
        client.query_timeout(settings, ANSWER_TIMEOUT).await?;
        self.shared.saw_server_version(client.server_version());
        self.client = Some(client);
        Ok(())
    }
}

/// A new connection to the upstream's name with a short limit of lock waits, and the identity of its server.
pub(crate) async fn connect(shared: &Pg) -> Result<(Client, ServerIdentity), ServiceError> {
    let mut client = Client::connect(&shared.own.upstream, Purpose::Sql).await?;
    let sql = format!(
        "SELECT {SYSTEM_ID}, {POSTMASTER_START}, pg_catalog.current_database()::text, \
         (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'deadlock_timeout')"
    );
    let rows = client.query_timeout(&sql, ANSWER_TIMEOUT).await?;
    match rows.into_iter().next().as_deref() {
        Some([Some(system_id), Some(start), Some(database), deadlock_timeout]) => {
            let longest = deadlock_timeout.as_ref().and_then(|text| text.parse().ok()).unwrap_or(0) / LOCK_WAIT_PART;
            let sql = format!("SET lock_timeout = {}", longest.clamp(1, LOCK_WAIT_MAX));
            client.query_timeout(&sql, ANSWER_TIMEOUT).await?;
            let (system_id, postmaster_start) = (system_id.clone(), start.clone());
            Ok((client, ServerIdentity { system_id, postmaster_start, database: database.clone() }))
        }
        _ => Err(ServiceError::UnexpectedAnswer("the server's identity")),
    }
}
