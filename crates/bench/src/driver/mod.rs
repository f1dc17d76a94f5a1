//! Connections to targets, through ordinary drivers: one per family, and one small client for the peers that are not SQL servers.
//!
//! A driver runs one statement at a time and reads its whole answer. It returns the rows only on request.

pub mod keyvalue;
pub mod mysql;
pub mod postgres;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::sync::Arc;

use crate::statement::Statement;
use crate::target::{Kind, Target};
use crate::value::Value;

/// How statements are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Prepared once per connection, then executed with parameters.
    Prepared,
    /// One text, with literals for the parameters.
    Text,
}

/// The values of a row: the bytes of the answer; NULL is None.
pub type Row = Vec<Option<Vec<u8>>>;

/// An error of a statement or a connection.
#[derive(Clone, Debug)]
pub struct Failure {
    /// SQLSTATE, MySQL's error number, or `connection`: the code under which failures are counted.
    pub code: String,
    /// The message of the server or the system.
    pub text: String,
    /// The connection can be used again (in a transaction, after a ROLLBACK).
    pub usable: bool,
    /// The server asks to repeat the transaction: a deadlock, or a serialization failure.
    pub retry: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.text)
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// The connection cannot be used any more.
    pub fn connection(error: &dyn fmt::Display) -> Self {
        Self { code: "connection".to_owned(), text: error.to_string(), usable: false, retry: false }
    }

    /// A row that must exist was not found.
    pub fn no_row(what: &str) -> Self {
        Self { code: "no row".to_owned(), text: what.to_owned(), usable: true, retry: false }
    }

    /// The key already exists.
    pub fn duplicate(&self) -> bool {
        matches!(self.code.as_str(), "23505" | "1062")
    }
}

/// A column of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type, as the protocol names it.
    pub kind: String,
}

/// What to do with rows.
#[derive(Debug)]
pub enum Rows<'a> {
    /// Count them.
    Counted,
    /// Store them, not decoded.
    Kept(&'a mut Vec<Row>),
    /// Store them with their columns if the answer describes them. In PostgreSQL only the text protocol does so, and the key-value peers never do.
    Described(&'a mut Vec<Column>, &'a mut Vec<Row>),
}

/// An open connection.
#[derive(Debug)]
pub enum Driver {
    /// tokio-postgres.
    Postgres(postgres::Connection),
    /// mysql_async.
    Mysql(mysql::Connection),
    /// memcached, Redis or the echo server.
    KeyValue(keyvalue::Connection),
}

impl Driver {
    /// Connects, and prepares the statements if that is the protocol.
    pub async fn open(target: &Target, statements: &Arc<[Statement]>, protocol: Protocol) -> Result<Self, Failure> {
        Ok(match &target.kind {
            Kind::Sql(crate::target::Family::Postgres) => {
                Self::Postgres(postgres::Connection::open(&target.url, statements, protocol).await?)
            }
            Kind::Sql(crate::target::Family::Mysql) => {
                Self::Mysql(mysql::Connection::open(&target.url, statements, protocol).await?)
            }
            _ => Self::KeyValue(keyvalue::Connection::open(&target.kind).await?.running(statements)),
        })
    }

    /// Runs the statement with this index; returns the number of rows returned or changed.
    pub async fn run(&mut self, index: usize, values: &[Value], rows: Rows<'_>) -> Result<u64, Failure> {
        match self {
            Self::Postgres(connection) => connection.run(index, values, rows).await,
            Self::Mysql(connection) => connection.run(index, values, rows).await,
            Self::KeyValue(connection) => connection.run(index, values, rows).await,
        }
    }

    /// Sends a text that is not a statement of the workload. For PostgreSQL it may have parameters, in the extended protocol. Returns the number of
    /// rows returned or changed.
    pub async fn text(&mut self, sql: &str, values: Option<&[Value]>, rows: Rows<'_>) -> Result<u64, Failure> {
        match self {
            Self::Postgres(connection) => connection.send_text(sql, values, rows).await,
            Self::Mysql(connection) => connection.send_text(sql, rows).await,
            Self::KeyValue(_) => Err(Failure::connection(&"it is not an SQL server")),
        }
    }

    /// Runs a statement without parameters that is not one of the workload's, such as BEGIN. Peers ignore it.
    pub async fn command(&mut self, sql: &str) -> Result<(), Failure> {
        match self {
            Self::Postgres(connection) => connection.command(sql).await,
            Self::Mysql(connection) => connection.command(sql).await,
            Self::KeyValue(_) => Ok(()),
        }
    }
}
