//! The connection of the check, and the properties that its start reads.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use freshet_net::Upstream;
use freshet_net::postgres::{Client, Purpose};

/// Time limit of one statement.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to the upstream's database. Names resolve in `pg_catalog` only, so that no object of the database is taken for one of the server's.
/// Relations are shown with their schema.
pub(crate) struct Database {
    client: Client,
    /// Its name, quoted.
    pub(crate) name: String,
    /// The role, quoted.
    pub(crate) role: String,
    /// Whether it is a superuser.
    pub(crate) superuser: bool,
    /// `server_version_num`
    pub(crate) version_num: u32,
    /// `server_version`
    pub(crate) version: String,
}

impl Database {
    pub(crate) async fn connect(upstream: &Arc<Upstream>) -> Result<Self> {
        let client = Client::connect(upstream, Purpose::Sql).await?;
        let mut database = Self {
            client,
            name: String::new(),
            role: String::new(),
            superuser: false,
            version_num: 0,
            version: String::new(),
        };
        database.run("SET search_path = pg_catalog").await?;
        let [name, role, superuser, number, version] = database
            .row(
                "SELECT quote_ident(current_database()), quote_ident(current_user), \
                 (SELECT rolsuper FROM pg_roles WHERE rolname = current_user), \
                 current_setting('server_version_num'), split_part(current_setting('server_version'), ' ', 1)",
            )
            .await?;
        database.version_num = number.parse().context("server_version_num")?;
        Ok(Self { name, role, superuser: superuser == "t", version, ..database })
    }

    /// Runs a statement whose answer is not needed.
    pub(crate) async fn run(&mut self, sql: &str) -> Result<()> {
        self.client.query_timeout(sql, ANSWER_TIMEOUT).await.with_context(|| sql.to_owned())?;
        Ok(())
    }

    /// The rows as text; NULL is empty.
    pub(crate) async fn rows<const N: usize>(&mut self, sql: &str) -> Result<Vec<[String; N]>> {
        let rows = self.client.query_timeout(sql, ANSWER_TIMEOUT).await.with_context(|| sql.to_owned())?;
        let shape = |_| anyhow!("not {N} columns: {sql}");
        rows.into_iter()
            .map(|row| row.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>().try_into().map_err(shape))
            .collect()
    }

    /// The only row.
    pub(crate) async fn row<const N: usize>(&mut self, sql: &str) -> Result<[String; N]> {
        let mut rows = self.rows(sql).await?;
        rows.pop().filter(|_| rows.is_empty()).with_context(|| format!("not one row: {sql}"))
    }

    /// The only value.
    pub(crate) async fn value(&mut self, sql: &str) -> Result<String> {
        let [value] = self.row(sql).await?;
        Ok(value)
    }

    /// The first column.
    pub(crate) async fn column(&mut self, sql: &str) -> Result<Vec<String>> {
        Ok(self.rows::<1>(sql).await?.into_iter().map(|[value]| value).collect())
    }
}
