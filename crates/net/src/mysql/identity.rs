//! The server run that a connection leads to: the server's identity and its start time.
//!
//! A name may lead to another server after a failover, and a server that was restarted may have lost log that was not flushed. So each connection
//! that takes part in caching reads both: the server's identity and its start time. MySQL has a UUID; for MariaDB, host name, port, data directory
//! and `server_id` together are the identity.
//!
//! The start time is the statement's time minus the server's uptime. The server computes the uptime from the same time, so the difference is exact.
//! `SET timestamp` would shift it, so it is read before any other statement. It is in whole seconds: two runs that were started within one second
//! look the same.

use std::time::Duration;

use super::client::Client;
use super::error::Error;

/// A run of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRun {
    /// The server's identity.
    pub server: String,
    /// When it was started, in seconds since 1970.
    pub start: String,
}

/// The columns of the query whose one row [`read`] understands. Every account may select them.
pub const fn columns(is_mariadb: bool) -> &'static str {
    if is_mariadb {
        "CONCAT(@@GLOBAL.hostname, ':', @@GLOBAL.port, ':', @@GLOBAL.datadir, ':', @@GLOBAL.server_id), \
         CAST(UNIX_TIMESTAMP() - (SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS \
         WHERE VARIABLE_NAME = 'Uptime') AS SIGNED)"
    } else {
        "@@GLOBAL.server_uuid, CAST(UNIX_TIMESTAMP() - (SELECT VARIABLE_VALUE FROM \
         performance_schema.global_status WHERE VARIABLE_NAME = 'Uptime') AS SIGNED)"
    }
}

/// Reads the row; None if it has another form.
pub fn read(row: &[Option<String>]) -> Option<ServerRun> {
    match row {
        [Some(server), Some(start)] => Some(ServerRun { server: server.clone(), start: start.clone() }),
        _ => None,
    }
}

/// Runs the query on a connection of Freshet's own; None if the answer has another form.
pub async fn ask(client: &mut Client, limit: Duration) -> Result<Option<ServerRun>, Error> {
    let question = format!("SELECT {}", columns(client.server().is_mariadb));
    let rows = client.query_timeout(&question, limit).await?;
    Ok(rows.first().and_then(|row| read(row)))
}
