//! Requirements of a stream that PostgreSQL does not meet.

use freshet_net::postgres::{ServerError, quote_identifier};

/// What an administrator must change before a stream can be established. The messages give the exact statements.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Versions before 13 lack `pg_current_snapshot()`.
    #[error("the upstream is PostgreSQL {0}; Freshet needs version 13 or later")]
    Version(String),
    /// A standby.
    #[error(
        "the upstream is a standby, which sends no change stream, so all statements pass to it{}; to cache, let upstream name \
         the primary and its standbys, with target_session_attrs=primary: with read_replicas the standbys go on answering reads",
        if *.is_wanted { " (target_session_attrs asks for one)" } else { " until it is promoted" }
    )]
    Standby {
        /// The connection string takes nothing but a standby.
        is_wanted: bool,
    },
    /// Row changes are not in the log.
    #[error(
        "wal_level is {0}, so the upstream does not log what a change stream needs; run \
         ALTER SYSTEM SET wal_level = 'logical'; and restart the server"
    )]
    WalLevel(String),
    /// The role has no REPLICATION attribute.
    #[error(
        "role {user} may not replicate ({source}); run ALTER ROLE {} REPLICATION; (managed services have a role \
         for it instead, such as GRANT rds_replication TO {};)",
        quote_identifier(.user),
        quote_identifier(.user)
    )]
    NotReplication {
        /// The role.
        user: String,
        /// The server's error.
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
    /// A lasting slot is in use by another process.
    #[error(
        "replication slot {name} is in use by process {pid}: give each Freshet a --slot name of its own (if the Freshet \
         that used it is gone, its connection ends by itself, or by SELECT pg_terminate_backend({pid});)"
    )]
    SlotInUse {
        /// Its name.
        name: String,
        /// Process id of its walsender.
        pid: String,
    },
    /// The publication does not exist, and creating it is disabled or not permitted.
    #[error("publication {name} is missing{why}; run {statement}")]
    PublicationMissing {
        /// Its name.
        name: String,
        /// Why it was not created, or empty.
        why: String,
        /// The statement that creates it.
        statement: String,
    },
    /// The publication leaves out changes, or has tables that the application could no longer update.
    #[error("publication {name} {what}; run {statement}")]
    PublicationUnsuitable {
        /// Its name.
        name: String,
        /// What is wrong with it.
        what: &'static str,
        /// The statement that corrects it.
        statement: String,
    },
}
