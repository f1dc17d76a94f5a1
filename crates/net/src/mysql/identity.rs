//! Which run of which server a connection leads to.
//!
//! A name may lead elsewhere after a failover, and a server that was started again may have lost log that was not flushed.
//! So each connection that takes part in caching says both: who the server is, and when it was started. MySQL has a UUID;
//! for MariaDB, host name, port, data directory and `server_id` stand together.
//!
//! The start is the statement's own time less the server's uptime. The server reckons the uptime from the same time, so
//! the difference is exact; but `SET timestamp` would shift it, so it is asked before anything else. It is in whole seconds:
//! two runs that were started within one second are taken for one.

use std::time::Duration;

use super::client::Client;
use super::error::Error;

/// A run of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRun {
    /// Who it is.
    pub server: String,
    /// When it was started, in seconds since 1970.
    pub start: String,
}

/// The columns of a question's one row that [`read`] understands. Every account may ask for them.
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

/// None if the answer is of another shape.
pub fn read(row: &[Option<String>]) -> Option<ServerRun> {
    match row {
        [Some(server), Some(start)] => Some(ServerRun { server: server.clone(), start: start.clone() }),
        _ => None,
    }
}

/// Asks on a connection of Freshet's own; None if the answer is of another shape.
pub async fn ask(client: &mut Client, limit: Duration) -> Result<Option<ServerRun>, Error> {
    let question = format!("SELECT {}", columns(client.server().is_mariadb));
    let rows = client.query_timeout(&question, limit).await?;
    Ok(rows.first().and_then(|row| read(row)))
}
