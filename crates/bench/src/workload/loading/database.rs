//! A connection that prepares a run: it creates tables and looks for existing ones.

use std::io::Cursor;

use anyhow::{Context, Result, bail};
use futures_util::SinkExt as _;
use mysql_async::prelude::Queryable as _;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use super::Table;
use crate::target::{Family, Target};

/// The comment on the tables that the benchmark creates. Only tables with this comment are dropped.
pub(super) const OURS: &str = "made by freshet-bench load";

/// A connection.
pub(in super::super) enum Database {
    Postgres(Client),
    Mysql(Box<mysql_async::Conn>),
}

impl Database {
    pub(in super::super) async fn open(target: &Target) -> Result<Self> {
        let connecting = || format!("connecting to {} at {}", target.name, target.shown_url());
        match target.family() {
            Some(Family::Postgres) => {
                let (client, connection) =
                    tokio_postgres::connect(&target.url, NoTls).await.with_context(connecting)?;
                // The client reports the connection's errors too.
                tokio::spawn(connection);
                client
                    .batch_execute(
                        "SET TimeZone = 'UTC'; SET synchronous_commit = off; SET maintenance_work_mem = '256MB'",
                    )
                    .await?;
                Ok(Self::Postgres(client))
            }
            Some(Family::Mysql) => {
                let url = match target.url.strip_prefix("mariadb://") {
                    Some(rest) => format!("mysql://{rest}"),
                    None => target.url.clone(),
                };
                let options = mysql_async::Opts::from_url(&url).with_context(connecting)?;
                Ok(Self::Mysql(Box::new(mysql_async::Conn::new(options).await.with_context(connecting)?)))
            }
            None => bail!("{} is not an SQL server", target.name),
        }
    }

    pub(in super::super) fn family(&self) -> Family {
        match self {
            Self::Postgres(_) => Family::Postgres,
            Self::Mysql(_) => Family::Mysql,
        }
    }

    pub(in super::super) async fn run(&mut self, sql: &str) -> Result<()> {
        match self {
            Self::Postgres(client) => client.batch_execute(sql).await.with_context(|| sql.to_owned()),
            Self::Mysql(connection) => connection.query_drop(sql).await.with_context(|| sql.to_owned()),
        }
    }

    /// Runs one statement and returns its rows as texts.
    pub(in super::super) async fn texts(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>> {
        match self {
            Self::Postgres(client) => {
                let messages = client.simple_query(sql).await.with_context(|| sql.to_owned())?;
                let row = |message| match message {
                    SimpleQueryMessage::Row(row) => {
                        Some((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect())
                    }
                    _ => None,
                };
                Ok(messages.into_iter().filter_map(row).collect())
            }
            Self::Mysql(connection) => {
                let rows: Vec<mysql_async::Row> = connection.query(sql).await.with_context(|| sql.to_owned())?;
                let text = |value| match value {
                    mysql_async::Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
                    _ => None,
                };
                Ok(rows.into_iter().map(|row| row.unwrap().into_iter().map(text).collect()).collect())
            }
        }
    }

    /// The comment of the relation with this name, if it exists in the schema where tables are created.
    pub(in super::super) async fn comment(&mut self, name: &str) -> Result<Option<String>> {
        let sql = match self {
            Self::Postgres(_) => format!(
                "SELECT coalesce(obj_description(c.oid, 'pg_class'), '') FROM pg_class c \
                 JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = current_schema() AND c.relname = '{name}'"
            ),
            Self::Mysql(_) => format!(
                "SELECT table_comment FROM information_schema.tables \
                 WHERE table_schema = database() AND table_name = '{name}'"
            ),
        };
        let row = self.texts(&sql).await?.into_iter().next();
        Ok(row.map(|row| row.into_iter().next().flatten().unwrap_or_default()))
    }

    /// Drops a table in the schema where tables are created, and in no other schema.
    pub(super) async fn drop_table(&mut self, name: &str) -> Result<()> {
        let schema = match self {
            Self::Postgres(_) => "SELECT quote_ident(current_schema())",
            Self::Mysql(_) => "SELECT concat('`', database(), '`')",
        };
        let schema = self.texts(schema).await?.into_iter().flatten().next().flatten().context("no schema in force")?;
        self.run(&format!("DROP TABLE {schema}.{name}")).await
    }

    pub(super) async fn create(&mut self, table: &Table) -> Result<()> {
        let Table { name, columns, key, .. } = table;
        match self {
            Self::Postgres(_) => {
                let comment = format!("COMMENT ON TABLE {name} IS '{OURS}'");
                self.run(&format!("CREATE TABLE {name} ({columns}); {comment}")).await
            }
            Self::Mysql(_) => {
                let options = format!("ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COMMENT = '{OURS}'");
                self.run(&format!("CREATE TABLE {name} ({columns}, PRIMARY KEY ({key})) {options}")).await
            }
        }
    }

    /// Adds rows in the family's form, as [`super::Rows`] makes them.
    pub(super) async fn add(&mut self, table: &str, rows: String) -> Result<()> {
        match self {
            Self::Postgres(client) => {
                let sink = client.copy_in(&format!("COPY {table} FROM STDIN")).await?;
                let mut sink = std::pin::pin!(sink);
                sink.send(Cursor::new(rows.into_bytes())).await?;
                sink.finish().await?;
                Ok(())
            }
            Self::Mysql(connection) => Ok(connection.query_drop(format!("INSERT INTO {table} VALUES {rows}")).await?),
        }
    }

    /// Builds the table's keys and indexes once its rows are there.
    pub(super) async fn complete(&mut self, table: &Table) -> Result<()> {
        let Table { name, key, after, .. } = table;
        let postgres = matches!(self, Self::Postgres(_));
        if postgres {
            self.run(&format!("ALTER TABLE {name} ADD PRIMARY KEY ({key})")).await?;
        }
        for statement in after {
            self.run(statement).await?;
        }
        self.run(&if postgres { format!("VACUUM ANALYZE {name}") } else { format!("ANALYZE TABLE {name}") }).await
    }
}
