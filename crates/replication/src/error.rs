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
    /// A lasting slot serves somebody else.
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
    /// The slot holds back more log than it may.
    #[error("the slot holds back {bytes} bytes of log, and may hold {bytes_max} (--slot-lag-bytes): starting anew")]
    SlotHolds {
        /// What it holds.
        bytes: u64,
        /// What it may hold.
        bytes_max: u64,
    },
    /// The stream is too far behind.
    #[error("the change stream has not passed a position for {0:?} (--slot-lag-seconds): starting anew")]
    Late(Duration),
    /// The slot serves another connection: that of ours which broke, most likely.
    #[error("the slot is still in use by the connection before")]
    SlotBusy,
    /// The slot is not where the stream broke.
    #[error("the slot was moved or created again by somebody else")]
    SlotMoved,
    /// The name leads to another server, or the server was restarted.
    #[error("the connection leads to another server, or to one that was restarted")]
    OtherServer,
    /// The sink cannot go on with its epoch.
    #[error("the epoch has ended")]
    EpochEnded,
    /// Asked for by [`crate::Control::restart`].
    #[error("a restart of the change stream was requested")]
    Restart,
    /// Asked for by [`crate::Control::shutdown`].
    #[error("the change stream was shut down")]
    Shutdown,
}

impl Fault {
    /// Whether a stream with a lasting slot may go on after this: the connection broke or did not come about, and nothing
    /// was said that was not understood.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Connect(_) | Self::Silent(_) | Self::SlotBusy | Self::Setup(SetupError::NoWalSender(_)) => true,
            Self::Connection(error) => match error {
                // A walsender that says ERROR would say it again at the same place.
                Error::Server(said) => said.severity == "FATAL",
                Error::Io(_) | Error::Closed | Error::Timeout(_) | Error::CopyDone | Error::Dead => true,
                Error::Malformed(_) | Error::Unexpected(_) | Error::TooLarge(_) => false,
            },
            _ => false,
        }
    }

    /// The server's SQLSTATE, if it is the server's error.
    pub(crate) fn sqlstate(&self) -> Option<&str> {
        match self {
            Self::Connection(error) => error.sqlstate(),
            _ => None,
        }
    }
}

/// A name in double quotes.
pub fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text constant, whatever `standard_conforming_strings` says.
pub fn quote_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') { format!(" E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}
