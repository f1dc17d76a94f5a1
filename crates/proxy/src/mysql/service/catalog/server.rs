//! Facts about the whole server: whether its binlog contains every change, and what privileges depend on besides grants.
//!
//! A filter (`binlog-do-db`, `binlog-ignore-db`) hides more than the tables of some databases: DDL, TRUNCATE and GRANT are logged or not by the
//! session's default database, whatever tables they name. So with a filter nothing is cached. The same holds for a replica that applies changes
//! without logging them (`log_slave_updates`, off in MariaDB by default), and for Galera, whose other nodes write too.

use std::fmt::Write as _;

use freshet_net::mysql::ServerVersion;
use freshet_sql::POLLED_VARIABLES;

use crate::mysql::service::catalog::rows::{first, texts};
use crate::mysql::service::connection::{Connection, ServiceError};
use crate::mysql::service::lease::end_question;

const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
    ('log_slave_updates', 'log_replica_updates', 'wsrep_on', 'lower_case_table_names', 'binlog_row_image')";

/// Variables that statements may return ([`freshet_sql::POLLED_VARIABLES`]).
macro_rules! polled {
    () => {
        "SELECT 'read_only', @@GLOBAL.read_only UNION ALL SELECT 'server_id', @@GLOBAL.server_id"
    };
}
/// MariaDB: replication may be started at any time. The counters show whether it ran between two readings.
const REPLICATION: &str = concat!(
    polled!(),
    " UNION ALL SELECT variable_name, variable_value FROM information_schema.global_status WHERE variable_name IN \
     ('Slaves_running', 'Com_start_slave', 'Com_start_all_slaves')"
);
/// MySQL: mandatory roles, whose changes are not in the binlog.
const ROLES: &str = concat!(polled!(), " UNION ALL SELECT 'mandatory_roles', @@GLOBAL.mandatory_roles");
const POLLED: &str = polled!();

/// Facts about a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Server {
    /// Why the binlog does not contain every change.
    gap: Option<&'static str>,
    /// Facts that may change at any time and are in no log, as name and value.
    volatile: Vec<[String; 2]>,
    /// Facts that cannot change while the server runs, or that affect precision only.
    fixed: Vec<[String; 2]>,
}

impl Server {
    pub(super) async fn read(connection: &mut Connection) -> Result<Self, ServiceError> {
        let mut fixed = Vec::new();
        for row in connection.query(VARIABLES).await? {
            fixed.push(texts::<2>(row, "variables")?);
        }
        let volatile = read_volatile(connection).await?;
        let status = connection.query_for(end_question).await?;
        let filtered = status.iter().any(|row| row.iter().skip(2).take(2).flatten().any(|filter| !filter.is_empty()));
        let is = |name: &str, value: &str| fixed.iter().any(|[n, v]| n == name && v.eq_ignore_ascii_case(value));
        let logs_replicated = is("log_slave_updates", "ON") || is("log_replica_updates", "ON");
        // MySQL logs replicated changes unless told otherwise, and does not show every account whether it replicates.
        let replicates = volatile.iter().find(|[name, _]| name.eq_ignore_ascii_case("slaves_running"));
        let replicates = replicates.is_none_or(|[_, running]| running != "0");
        let gap = if filtered {
            Some("the binlog is filtered (binlog-do-db or binlog-ignore-db)")
        } else if is("wsrep_on", "ON") {
            Some("Galera is on (wsrep_on)")
        } else if !logs_replicated && replicates {
            Some("the server replicates without logging it (log_slave_updates is OFF)")
        } else {
            None
        };
        Ok(Self { gap, volatile, fixed })
    }

    /// Whether the facts that may change at any time are unchanged.
    pub(super) async fn is_unchanged(&self, connection: &mut Connection) -> Result<bool, ServiceError> {
        Ok(read_volatile(connection).await? == self.volatile)
    }

    /// Whether images of old rows have the primary key alone, if there is one and the session has not set otherwise.
    pub(super) fn logs_keys_only(&self) -> bool {
        self.fixed.iter().any(|[name, value]| name == "binlog_row_image" && value.eq_ignore_ascii_case("MINIMAL"))
    }

    /// Whether every change of an InnoDB table is in the binlog.
    pub(super) fn logs_everything(&self) -> bool {
        self.gap.is_none()
    }

    /// Why it does not contain every change.
    pub(super) fn gap(&self) -> Option<&'static str> {
        self.gap
    }

    /// The values of the variables that statements may return.
    pub(super) fn polled(&self) -> Vec<[Box<str>; 2]> {
        let polled = self.volatile.iter().filter(|[name, _]| POLLED_VARIABLES.contains(&&**name));
        polled.map(|[name, value]| [name.as_str().into(), value.as_str().into()]).collect()
    }

    /// All facts, for [`freshet_types::Catalog::surroundings`].
    pub(super) fn surroundings(&self, sees_triggers: bool) -> Box<str> {
        let mut text = format!("triggers {sees_triggers}");
        for [name, value] in self.fixed.iter().chain(&self.volatile) {
            let _ = write!(text, ", {name} {value}");
        }
        text.into()
    }
}

async fn read_volatile(connection: &mut Connection) -> Result<Vec<[String; 2]>, ServiceError> {
    let rows = connection.query_for(volatile_question).await?;
    if first(&rows).is_none() {
        return Err(ServiceError::UnexpectedAnswer("the server's state"));
    }
    rows.into_iter().map(|row| texts(row, "the server's state")).collect()
}

fn volatile_question(server: &ServerVersion) -> &'static str {
    if server.is_mariadb {
        REPLICATION
    } else if server.is_at_least(8, 0, 2) {
        ROLES
    } else {
        POLLED
    }
}
