//! Requirements of a stream that MySQL or MariaDB does not meet.

use freshet_net::mysql::ServerError;

/// What an administrator must change before a stream can be established. The messages give the exact statements.
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
         log_replica_updates) into its option file and restart it, or point Freshet to the primary (a MariaDB server that was a \
         replica and is none any more: RESET SLAVE ALL, and GRANT REPLICA MONITOR, by which Freshet is shown that)"
    )]
    ReceivedNotLogged,
    /// The binlog leaves out changes.
    #[error(
        "the binlog leaves databases out ({0}), and with them statements on others that are run while one of them is \
         current; remove binlog_do_db and binlog_ignore_db from the upstream's option file and restart it"
    )]
    Filtered(String),
    /// Names are compared differently from how they are written.
    #[error("lower_case_table_names is {0}, which is not supported: only 0 and 1 are")]
    NameCase(String),
    /// A privilege is missing.
    #[error("{source}; run GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user};")]
    Privilege {
        /// The account, with quotes.
        user: String,
        /// The server's error.
        source: Box<ServerError>,
    },
    /// A position that the protocol cannot express.
    #[error("the binlog's position is beyond what can be followed ({file}, {offset}); run FLUSH BINARY LOGS;")]
    Position {
        /// Its file.
        file: String,
        /// The offset in it.
        offset: u64,
    },
}
