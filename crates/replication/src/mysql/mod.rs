//! Follows the binlog of MySQL and MariaDB.
//!
//! # The problem
//!
//! The same as with a slot (see the crate's page), with other means:
//!
//! - *From here on everything is delivered.* A stream begins behind what is proven visible, so nothing can fall between:
//!   MySQL is asked for all transactions but those of `@@gtid_executed`, read before; MariaDB for what stands behind its
//!   `binlog_snapshot_position`, up to which every commit is visible. `SHOW MASTER STATUS` would be wrong on both: it is
//!   ahead of what is visible.
//! - *Order.* GTIDs have none, positions do. [`Lsn`](freshet_types::Lsn)s are positions in the binlog: those of
//!   [`Sink::advance`](crate::Sink::advance) meet what `SHOW MASTER STATUS` said. A commit is named to proofs by its GTID in
//!   MySQL and by the end of its group in MariaDB.
//! - *Row images without names.* Unless `binlog_row_metadata` is FULL they are numbered columns. [`Schemas`] names them, as
//!   long as it is sure.
//! - *A broken connection* loses nothing: the binlog is still there, and the epoch goes on where it stood. A purged file
//!   or another run of the server ends it.

mod assemble;
pub(crate) mod error;
mod follow;
mod position;
mod progress;
mod session;
mod setup;
mod statement;
mod xa;

use std::sync::Arc;
use std::time::Duration;

use freshet_net::mysql::Upstream;
use freshet_types::TableId;

use crate::SILENCE_MAX;

pub use error::SetupError;
pub use follow::follow;

/// Time for a question, and for the first packet of a stream.
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);

/// Numbers for tables and names for columns. Called between the calls of the [`Sink`](crate::Sink), from the same task.
pub trait Schemas: Send + Sync + 'static {
    /// The table's number.
    fn table(&self, schema: &str, name: &str) -> TableId;
    /// Its columns in their order; None: not known, so that any row may have changed.
    ///
    /// What was read before a redefinition that the sink was given (of this table, or of everything) is not known. A
    /// commit that is named by old names and still PENDING would be missed by entries that are tagged with new ones.
    fn columns(&self, table: TableId) -> Option<Arc<[Arc<str>]>>;
    /// Which databases the binlog covers; called before each `connected`. Returns whether nothing of the others will be
    /// cached; else there is no stream.
    fn accepts(&self, databases: &LoggedDatabases) -> bool {
        databases.is_all()
    }
}

/// Which databases the binlog covers: `binlog_do_db` and `binlog_ignore_db`.
///
/// Statements (DDL, TRUNCATE, GRANT) go by the current database of their session, not by that of their tables: one that is
/// run while an excluded database is current is missing in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedDatabases {
    /// If there is any: none but these.
    pub only: Vec<String>,
    /// Not these, unless there are any in `only`.
    pub ignored: Vec<String>,
}

impl LoggedDatabases {
    /// All are.
    pub fn is_all(&self) -> bool {
        self.only.is_empty() && self.ignored.is_empty()
    }

    /// Whether changes of the database's tables are in the log.
    pub fn contains(&self, database: &str) -> bool {
        let among = |names: &[String]| names.iter().any(|name| name == database);
        if self.only.is_empty() { !among(&self.ignored) } else { among(&self.only) }
    }
}

/// What to follow.
#[derive(Clone)]
pub struct FollowerConfig {
    /// The upstream; its user needs REPLICATION SLAVE and REPLICATION CLIENT.
    pub upstream: Arc<Upstream>,
    /// Names.
    pub schemas: Arc<dyn Schemas>,
    /// Silence after which the stream counts as dead. The server sends a heartbeat after a fifth of it.
    pub silence_max: Duration,
}

impl FollowerConfig {
    /// With the defaults.
    pub fn new(upstream: Arc<Upstream>, schemas: Arc<dyn Schemas>) -> Self {
        Self { upstream, schemas, silence_max: SILENCE_MAX }
    }
}
