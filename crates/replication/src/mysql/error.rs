//! Why there is no stream of a binlog.

use std::time::Duration;

use freshet_net::mysql::{ConnectError, Error, ServerError};
use freshet_wire::reader::Malformed;

/// What an administrator must change before a stream can stand. The messages say exactly what to do.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Versions before MySQL 8.0 and MariaDB 10.6.
    #[error("the upstream is {0}; Freshet needs MySQL 8.0 or MariaDB 10.6, or later")]
    Version(String),
    /// There is no binlog.
    #[error(
        "the upstream writes no binlog (log_bin = OFF); put log_bin = binlog, binlog_format = ROW and a server_id into its \
         option file and restart it"
    )]
    NoBinlog,
    /// Statements instead of rows.
    #[error(
        "binlog_format is {0}, so the binlog does not say which rows change; run SET GLOBAL binlog_format = 'ROW'; put \
         binlog_format = ROW into the option file, and let applications connect anew"
    )]
    Format(String),
    /// MySQL without GTIDs.
    #[error(
        "gtid_mode is {0}, so nothing tells which transactions are visible; turn it on: SET GLOBAL enforce_gtid_consistency \
         = ON; SET GLOBAL gtid_mode = OFF_PERMISSIVE; SET GLOBAL gtid_mode = ON_PERMISSIVE; SET GLOBAL gtid_mode = ON; and \
         both in the option file"
    )]
    GtidMode(String),
    /// GTIDs of MySQL 8.3 and later with tags.
    #[error("gtid_executed has GTIDs with tags, which are not supported: {0}")]
    GtidTags(String),
    /// A replica, or a node of a cluster, that does not log what it receives.
    #[error(
        "the upstream receives changes of other servers and does not log them; put log_slave_updates = ON (MySQL: \
         log_replica_updates) into its option file and restart it, or point Freshet to the primary"
    )]
    ReceivedNotLogged,
    /// The binlog leaves changes out.
    #[error(
        "the binlog leaves databases out ({0}), and with them statements on others that are run while one of them is \
         current; remove binlog_do_db and binlog_ignore_db from the upstream's option file and restart it"
    )]
    Filtered(String),
    /// Names compare otherwise than they are written.
    #[error("lower_case_table_names is {0}, which is not supported: only 0 and 1 are")]
    NameCase(String),
    /// A privilege is missing.
    #[error("{source}; run GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user};")]
    Privilege {
        /// The account, quoted.
        user: String,
        /// What the server said.
        source: Box<ServerError>,
    },
    /// A position that cannot be asked for.
    #[error("the binlog stands beyond what can be followed ({file}, {offset}); run FLUSH BINARY LOGS;")]
    Position {
        /// Its file.
        file: String,
        /// The offset in it.
        offset: u64,
    },
}

/// Why a stream ended or could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// An administrator must change something.
    #[error("{0}")]
    Setup(#[from] SetupError),
    /// The upstream did not let us in.
    #[error("{0}")]
    Connect(#[from] ConnectError),
    /// The connection failed, or the server gave up: a purged file, for example.
    #[error("{0}")]
    Connection(#[from] Error),
    /// An event was not understood.
    #[error("the binlog is malformed: {0}")]
    Malformed(#[from] Malformed),
    /// An event contradicts the ones before it.
    #[error("the binlog is out of order: {0}")]
    OutOfOrder(&'static str),
    /// An event means what this version does not follow.
    #[error("the binlog holds {0}, which is not supported")]
    Unsupported(&'static str),
    /// The server itself does not know what is missing.
    #[error("the binlog tells of an incident: changes may be missing in it")]
    Incident,
    /// The server has nothing more to send.
    #[error("the upstream ended the stream of its binlog")]
    Ended,
    /// An answer of the server has another form than expected.
    #[error("the upstream's answer to {0} was not understood")]
    Answer(&'static str),
    /// Nothing came, not even a heartbeat.
    #[error("the change stream was silent for {0:?}")]
    Silent(Duration),
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

/// `ER_SPECIFIC_ACCESS_DENIED_ERROR`
const ACCESS_DENIED: u16 = 1227;
/// What a server says that is being shut down, or whose administrator ends the connection: `ER_SERVER_SHUTDOWN`,
/// `ER_QUERY_INTERRUPTED`, MariaDB's `ER_CONNECTION_KILLED`, MySQL's `ER_CLIENT_INTERACTION_TIMEOUT`.
const PASSING: [u16; 4] = [1053, 1317, 1927, 4031];

impl Fault {
    /// Whether the stream may go on after this: the connection broke or did not come about, and nothing was said that
    /// was not understood.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Connect(_) | Self::Silent(_) | Self::Ended => true,
            Self::Connection(error) => match error {
                Error::Server(said) => PASSING.contains(&said.code),
                Error::Io(_) | Error::Closed | Error::Timeout(_) | Error::Dead => true,
                Error::Malformed(_) | Error::Sequence { .. } | Error::TooLarge(_) => false,
            },
            _ => false,
        }
    }

    /// The error, and what to grant if it is a privilege that is missing.
    pub(super) fn of(error: Error, user: &str) -> Self {
        match error {
            Error::Server(source) if source.code == ACCESS_DENIED => {
                SetupError::Privilege { user: user.to_owned(), source }.into()
            }
            other => other.into(),
        }
    }
}
