//! A connection of the demo. It uses the drivers of the benchmark program for both families.

use std::sync::{Arc, LazyLock};

use crate::driver::{Driver, Protocol, Row, Rows};
use crate::statement::Statement;
use crate::target::{Family, Kind, Target};
use crate::value::Value;
use crate::workload::movies::QUERIES;
use anyhow::{Context, Result, ensure};

use super::DATABASE;

/// The queries of a page about a movie.
static READS: LazyLock<Arc<[Statement]>> =
    LazyLock::new(|| QUERIES.iter().map(|sql| Statement::read(sql, sql)).collect());

/// The database in the form of the benchmark program.
pub(super) fn target(url: &str) -> Target {
    let family = if url.starts_with("postgres") { Family::Postgres } else { Family::Mysql };
    Target { name: DATABASE.to_owned(), kind: Kind::Sql(family), url: url.to_owned(), counters: None, lookaside: None }
}

/// A connection and its statements.
pub(super) struct Session {
    driver: Driver,
    statements: Arc<[Statement]>,
}

impl Session {
    /// Connects for the five queries. They are prepared, unless the protocol is text.
    pub(super) async fn open(url: &str, protocol: Protocol) -> Result<Self> {
        Self::with(url, protocol, &READS).await
    }

    /// Connects with other statements.
    pub(super) async fn with(url: &str, protocol: Protocol, statements: &Arc<[Statement]>) -> Result<Self> {
        let target = target(url);
        let opened = Driver::open(&target, statements, protocol).await;
        let driver = opened.with_context(|| format!("connecting to {}", target.shown_url()))?;
        Ok(Self { driver, statements: Arc::clone(statements) })
    }

    /// Runs the five SELECTs, one after another.
    pub(super) async fn transaction(&mut self, title: &str) -> Result<()> {
        let values = [Value::from(title)];
        for query in 0..QUERIES.len() {
            let rows = self.run(query, &values, Rows::Counted).await?;
            ensure!(query > 0 || rows > 0, "no movie is called {title:?}, though it was loaded");
        }
        Ok(())
    }

    /// Runs one of the statements and returns its rows as texts.
    pub(super) async fn rows(&mut self, statement: usize, values: &[Value]) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        self.run(statement, values, Rows::Kept(&mut rows)).await?;
        Ok(rows)
    }

    /// Runs one of the statements and returns the number of rows read or changed.
    pub(super) async fn run(&mut self, statement: usize, values: &[Value], rows: Rows<'_>) -> Result<u64> {
        let name = || self.statements.get(statement).map_or_else(String::new, |statement| statement.name.clone());
        self.driver.run(statement, values, rows).await.with_context(name)
    }
}

/// A column of a row as text. A NULL or missing column is an error.
pub(super) fn text(row: &Row, column: usize) -> Result<&str> {
    let value = row.get(column).and_then(Option::as_ref).with_context(|| format!("no value in column {column}"))?;
    std::str::from_utf8(value).context("a value that is not UTF-8")
}
