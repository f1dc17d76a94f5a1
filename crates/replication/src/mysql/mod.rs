//! Follows the binlog of MySQL and MariaDB.
//!
//! # The problem
//!
//! It is the same as with a slot (see the crate's page), with other means:
//!
//! - *Everything from here on is delivered.* A stream begins directly behind what is proven visible, so no commit is missed. MySQL is asked for all
//!   transactions except those of `@@gtid_executed`, read before. MariaDB is asked for everything behind its `binlog_snapshot_position`, up to which
//!   every commit is visible. `SHOW MASTER STATUS` would be wrong on both: it is ahead of what is visible.
//! - *Order.* GTIDs have no order, positions do. [`Lsn`](freshet_types::Lsn)s are positions in the binlog: those of
//!   [`Sink::advance`](crate::Sink::advance) are compared with the positions of `SHOW MASTER STATUS`. Visibility proofs name a commit by its GTID in
//!   MySQL and by the end of its transaction in MariaDB.
//! - *Row images without names.* Unless `binlog_row_metadata` is FULL, they have numbered columns. [`Schemas`] names them, if the names are certain.
//! - *A broken connection* loses nothing: the binlog is still there, and the epoch continues at its position. A purged file or another run of the
//!   server ends the epoch.

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

/// Time limit of a query, and of a stream's first packet.
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);

/// Table ids and names of columns. Called between the calls of the [`Sink`](crate::Sink), from the same task.
pub trait Schemas: Send + Sync + 'static {
    /// The table's id.
    fn table(&self, schema: &str, name: &str) -> TableId;
    /// Its columns in order; None if they are not known, so that any row may have changed.
    ///
    /// Columns that were read before a redefinition that the sink was given (of this table, or of everything) count as not known. Otherwise entries
    /// tagged with new names would miss a commit that has old names and is still unproven.
    fn columns(&self, table: TableId) -> Option<Arc<[Arc<str>]>>;
    /// The databases in the binlog; called before each `connected`. Returns whether nothing of the other databases will be cached; otherwise no
    /// stream is established.
    fn accepts(&self, databases: &LoggedDatabases) -> bool {
        databases.is_all()
    }
}

/// The databases in the binlog: `binlog_do_db` and `binlog_ignore_db`.
///
/// For statements (DDL, TRUNCATE, GRANT) the default database of their session counts, not that of their tables: a statement with an excluded default
/// database is missing in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedDatabases {
    /// If not empty: only these.
    pub only: Vec<String>,
    /// Not these; ignored if `only` is not empty.
    pub ignored: Vec<String>,
}

impl LoggedDatabases {
    /// Whether all databases are logged.
    pub fn is_all(&self) -> bool {
        self.only.is_empty() && self.ignored.is_empty()
    }

    /// Whether changes of the database's tables are in the log.
    pub fn contains(&self, database: &str) -> bool {
        let among = |names: &[String]| names.iter().any(|name| name == database);
        if self.only.is_empty() { !among(&self.ignored) } else { among(&self.only) }
    }
}

/// The configuration of a follower.
#[derive(Clone)]
pub struct FollowerConfig {
    /// The upstream; its user needs REPLICATION SLAVE and REPLICATION CLIENT.
    pub upstream: Arc<Upstream>,
    /// The names of columns.
    pub schemas: Arc<dyn Schemas>,
    /// Time without a packet after which the stream counts as dead. The server sends a heartbeat after a fifth of it.
    pub silence_max: Duration,
}

impl FollowerConfig {
    /// With the defaults.
    pub fn new(upstream: Arc<Upstream>, schemas: Arc<dyn Schemas>) -> Self {
        Self { upstream, schemas, silence_max: SILENCE_MAX }
    }
}
