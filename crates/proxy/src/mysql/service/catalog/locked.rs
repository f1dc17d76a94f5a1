//! MariaDB: tables that cannot be read while another session holds an exclusive lock on them, as CREATE TABLE … SELECT does to its end.
//!
//! A query of `information_schema` over all tables waits for such a lock. With a limit of 0 the server omits what is locked, without saying what it
//! omits. So that is used only to find the locked tables. All others are then read by their names, and a locked table counts as one of which
//! nothing is known, until it is read later.

use std::collections::HashSet;

use freshet_net::mysql::ServerVersion;

use crate::mysql::service::catalog::rows::{Name, question, read_names, texts};
use crate::mysql::service::connection::{Connection, LOCK_WAIT_TIMEOUT, ServiceError};

/// Relations that are read by one query.
const READ_AT_ONCE: usize = 50;
/// Limit of relations that are read by their names; with more, the locks are waited for.
const READ_BY_NAME_MAX: usize = 5000;

const NO_LOCK_WAIT: &str = "SET SESSION lock_wait_timeout = 0";
const LOCK_WAIT_AS_BEFORE: &str = "SET SESSION lock_wait_timeout = DEFAULT";

/// It opens each table.
const OPENED: &str = "SELECT COUNT(engine) FROM information_schema.tables WHERE ";
const WITH_COLUMNS: &str = "SELECT DISTINCT table_schema, table_name FROM information_schema.columns WHERE ";

/// How the relations are read.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Relations of which nothing is known.
    pub(super) locked: HashSet<Name>,
    /// The others; None: none is locked.
    others: Option<Vec<Name>>,
}

impl Plan {
    /// Looks for locked tables.
    pub(super) async fn read(connection: &mut Connection) -> Result<Self, ServiceError> {
        let mut is_mariadb = false;
        let limits = |server: &ServerVersion| {
            is_mariadb = server.is_mariadb;
            if is_mariadb { NO_LOCK_WAIT } else { "DO 0" }
        };
        connection.query_for(limits).await?;
        if !is_mariadb {
            return Ok(Self::default()); // it reads tables of its own, without a lock
        }
        let opened = opened(connection).await;
        connection.query(LOCK_WAIT_AS_BEFORE).await?;
        let Some(opened) = opened? else { return Ok(Self::default()) };
        let (others, locked): (Vec<Name>, Vec<Name>) =
            read_names(connection).await?.into_iter().partition(|name| opened.contains(name));
        if others.len() > READ_BY_NAME_MAX {
            return Ok(Self::default());
        }
        Ok(Self { locked: locked.into_iter().collect(), others: Some(others) })
    }

    /// What is read by one query each; None: everything.
    pub(super) fn parts(&self) -> Vec<Option<&[Name]>> {
        self.others.as_ref().map_or_else(|| vec![None], |others| others.chunks(READ_AT_ONCE).map(Some).collect())
    }
}

/// The relations that could be opened; None: all. One without columns is locked, or over a locked one, or the account may not read it.
async fn opened(connection: &mut Connection) -> Result<Option<HashSet<Name>>, ServiceError> {
    let own = ["table_schema", "table_name"];
    connection.query(&question(OPENED, own, None)).await?;
    let warnings = connection.query("SHOW WARNINGS").await?;
    let code = LOCK_WAIT_TIMEOUT.to_string();
    if !warnings.iter().any(|row| row.get(1).and_then(Option::as_ref) == Some(&code)) {
        return Ok(None);
    }
    let rows = connection.query(&question(WITH_COLUMNS, own, None)).await?;
    let names = rows.into_iter().map(|row| texts(row, "columns").map(|[schema, name]| (schema, name)));
    names.collect::<Result<_, _>>().map(Some)
}
