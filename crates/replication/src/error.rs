//! Reasons why there is no stream.

use std::time::Duration;

use freshet_net::{mysql, postgres};
use freshet_wire::reader::Malformed;

use crate::mysql::error::SetupError as MySqlSetupError;
use crate::postgres::error::SetupError;

/// Why a stream ended or could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// An administrator must change something.
    #[error("{0}")]
    Setup(#[from] SetupError),
    /// The same, in MySQL or MariaDB.
    #[error("{0}")]
    MySqlSetup(#[from] MySqlSetupError),
    /// The connection to PostgreSQL could not be opened.
    #[error("{0}")]
    Connect(#[from] postgres::ConnectError),
    /// The connection to MySQL or MariaDB could not be opened.
    #[error("{0}")]
    MySqlConnect(#[from] mysql::ConnectError),
    /// The connection to PostgreSQL failed.
    #[error("{0}")]
    Connection(#[from] postgres::Error),
    /// The connection to MySQL or MariaDB failed, or the server ended the stream: a purged file, for example.
    #[error("{0}")]
    MySqlConnection(#[from] mysql::Error),
    /// A message or event was not understood.
    #[error("the change stream is malformed: {0}")]
    Malformed(#[from] Malformed),
    /// A message or event contradicts the ones before it.
    #[error("the change stream is out of order: {0}")]
    OutOfOrder(&'static str),
    /// An event that this version does not support.
    #[error("the binlog holds {0}, which is not supported")]
    Unsupported(&'static str),
    /// The server reports that the log may lack changes.
    #[error("the binlog reports an incident: changes may be missing in it")]
    Incident,
    /// The server has ended the dump.
    #[error("the upstream ended the stream of its binlog")]
    Ended,
    /// An answer of the server has another form than expected.
    #[error("the upstream's answer to {0} was not understood")]
    Answer(&'static str),
    /// Nothing arrived, not even an answer to a keepalive request, or a heartbeat.
    #[error("the change stream was silent for {0:?}")]
    Silent(Duration),
    /// The slot holds back too much log.
    #[error("the slot holds back {bytes} bytes of log, and may hold {bytes_max} (--slot-lag-bytes): starting anew")]
    SlotHolds {
        /// The bytes that it holds back.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The stream is too far behind.
    #[error("the change stream has not passed a position for {0:?} (--slot-lag-seconds): starting anew")]
    Late(Duration),
    /// The slot is in use, most likely by the walsender of the broken connection.
    #[error("the slot is still in use by the previous connection")]
    SlotBusy,
    /// The slot's position is not the one at which the stream broke.
    #[error("another process moved the slot or created it again")]
    SlotMoved,
    /// The name leads to another server, or the server was restarted.
    #[error("the connection leads to another server, or to one that was restarted")]
    OtherServer,
    /// The sink cannot continue its epoch.
    #[error("the epoch has ended")]
    EpochEnded,
    /// Requested by [`crate::Control::restart`].
    #[error("a restart of the change stream was requested")]
    Restart,
    /// Requested by [`crate::Control::shutdown`].
    #[error("the change stream was shut down")]
    Shutdown,
}

/// Errors of a server that is shut down, or whose administrator ends the connection: `ER_SERVER_SHUTDOWN`, `ER_QUERY_INTERRUPTED`, MariaDB's
/// `ER_CONNECTION_KILLED`, MySQL's `ER_CLIENT_INTERACTION_TIMEOUT`.
const MYSQL_ENDINGS: [u16; 4] = [1053, 1317, 1927, 4031];

impl Fault {
    /// Whether a stream with a kept position may continue after this: the connection broke or could not be opened, and everything received was
    /// understood.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Connect(_)
            | Self::MySqlConnect(_)
            | Self::Setup(SetupError::NoWalSender(_))
            | Self::Silent(_)
            | Self::SlotBusy
            | Self::Ended => true,
            Self::Connection(error) => match error {
                // A walsender that reports ERROR would report it again at the same position.
                postgres::Error::Server(said) => said.severity == "FATAL",
                postgres::Error::Io(_)
                | postgres::Error::Closed
                | postgres::Error::Timeout(_)
                | postgres::Error::CopyDone
                | postgres::Error::Dead => true,
                postgres::Error::Malformed(_) | postgres::Error::Unexpected(_) | postgres::Error::TooLarge(_) => false,
            },
            Self::MySqlConnection(error) => match error {
                mysql::Error::Server(said) => MYSQL_ENDINGS.contains(&said.code),
                mysql::Error::Io(_) | mysql::Error::Closed | mysql::Error::Timeout(_) | mysql::Error::Dead => true,
                mysql::Error::Malformed(_) | mysql::Error::Sequence { .. } | mysql::Error::TooLarge(_) => false,
            },
            _ => false,
        }
    }

    /// Whether an administrator must change something.
    pub(crate) fn is_setup(&self) -> bool {
        matches!(self, Self::Setup(_) | Self::MySqlSetup(_))
    }

    /// PostgreSQL's SQLSTATE, if it is the server's error.
    pub(crate) fn sqlstate(&self) -> Option<&str> {
        match self {
            Self::Connection(error) => error.sqlstate(),
            _ => None,
        }
    }
}
