//! Why there is no stream.

use std::time::Duration;

use freshet_net::pg::{ConnectError, Error, ServerError};
use freshet_wire::reader::Malformed;

/// What an administrator must change before a stream can stand. The messages say exactly what to do.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Versions before 13 lack `pg_current_snapshot()`.
    #[error("the upstream is PostgreSQL {0}; Freshet needs version 13 or later")]
    Version(String),
    /// A standby.
    #[error("the upstream is a standby, which is not supported yet; point Freshet to the primary")]
    Standby,
    /// Row changes are not in the log.
    #[error(
        "wal_level is {0}, so the upstream does not log what a change stream needs; run \
         ALTER SYSTEM SET wal_level = 'logical'; and restart the server"
    )]
    WalLevel(String),
    /// The role may not replicate.
    #[error(
        "role {user} may not replicate ({source}); run ALTER ROLE {} REPLICATION; (managed services have a role \
         for it instead, such as GRANT rds_replication TO {};)",
        quote_identifier(.user),
        quote_identifier(.user)
    )]
    NotReplication {
        /// The role.
        user: String,
        /// What the server said.
        source: Box<ServerError>,
    },
    /// Every walsender is in use.
    #[error(
        "no walsender is free ({0}); run ALTER SYSTEM SET max_wal_senders = 20; (or more, with wal_level = 'logical') and \
         restart the server, or end another replication connection: SELECT * FROM pg_stat_replication;"
    )]
    NoWalSender(Box<ServerError>),
    /// Every slot is in use.
    #[error(
        "no replication slot is free ({used} of max_replication_slots = {max} are in use); run \
         ALTER SYSTEM SET max_replication_slots = {}; and restart the server, or drop a slot that is not needed: \
         SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active AND slot_name = '…';",
        .used.max(.max) + 10
    )]
    NoSlot {
        /// Slots in use.
        used: u32,
        /// The setting.
        max: u32,
    },
    /// The publication does not exist and is not to be created, or may not be.
    #[error("publication {name} is missing{why}; run {statement}")]
    PublicationMissing {
        /// Its name.
        name: String,
        /// Why it was not created, or empty.
        why: String,
        /// What creates it.
        statement: String,
    },
    /// The publication leaves changes out, or takes tables in that the application then could not update.
    #[error("publication {name} {what}; run {statement}")]
    PublicationUnsuitable {
        /// Its name.
        name: String,
        /// What is wrong with it.
        what: &'static str,
        /// What mends it.
        statement: String,
    },
}

/// Why a stream ended or could not be started. Each one ends the epoch.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// An administrator must change something.
    #[error("{0}")]
    Setup(#[from] SetupError),
    /// The upstream did not let us in.
    #[error("{0}")]
    Connect(#[from] ConnectError),
    /// The connection failed.
    #[error("{0}")]
    Connection(#[from] Error),
    /// A message of the stream was not understood.
    #[error("the change stream is malformed: {0}")]
    Malformed(#[from] Malformed),
    /// A message of the stream contradicts the ones before it.
    #[error("the change stream is out of order: {0}")]
    OutOfOrder(&'static str),
    /// An answer of the server has another form than expected.
    #[error("the upstream's answer to {0} was not understood")]
    Answer(&'static str),
    /// Nothing came, not even an answer to a keepalive request.
    #[error("the change stream was silent for {0:?}")]
    Silent(Duration),
    /// Asked for by [`crate::Control::restart`].
    #[error("a restart of the change stream was requested")]
    Restart,
    /// Asked for by [`crate::Control::shutdown`].
    #[error("the change stream was shut down")]
    Shutdown,
}

/// A name in double quotes.
pub(crate) fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text constant, whatever `standard_conforming_strings` says.
pub(crate) fn quote_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') { format!(" E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}
