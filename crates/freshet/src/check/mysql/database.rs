//! The connection of the check, and the facts that it reads first.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use freshet_net::mysql::{Client, Error, ServerVersion, Upstream, quote_account, quote_text};

/// Time limit of one statement.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The servers' own schemas.
pub(super) const SYSTEM: &str = "('mysql', 'information_schema', 'performance_schema', 'sys')";
/// Replaces global settings that would change answers.
const MANNERS: &str = "SET SESSION sql_mode = '', SESSION sql_select_limit = 18446744073709551615";

/// A connection to the upstream.
pub(super) struct Database {
    client: Client,
    /// Product and version.
    pub(super) server: ServerVersion,
    /// The connection's account, as statements name it: 'user'@'host'.
    pub(super) account: String,
}

impl Database {
    pub(super) async fn connect(upstream: &Upstream) -> Result<Self> {
        let client = Client::connect_to_primary(upstream).await?;
        let server = client.server().clone();
        let mut database = Self { client, server, account: String::new() };
        database.rows::<0>(MANNERS).await?;
        let account = database.value("SELECT CURRENT_USER()").await?;
        database.account = quote_account(&account);
        Ok(database)
    }

    /// The client itself, for queries of other modules.
    pub(super) fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// The rows as text; NULL is empty.
    pub(super) async fn rows<const N: usize>(&mut self, sql: &str) -> Result<Vec<[String; N]>> {
        let rows = self.client.query_timeout(sql, ANSWER_TIMEOUT).await.with_context(|| sql.to_owned())?;
        let shape = |_| anyhow!("not {N} columns: {sql}");
        rows.into_iter()
            .map(|row| row.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>().try_into().map_err(shape))
            .collect()
    }

    /// The only value.
    pub(super) async fn value(&mut self, sql: &str) -> Result<String> {
        let [[value]] = <[_; 1]>::try_from(self.rows(sql).await?).map_err(|_| anyhow!("not one row: {sql}"))?;
        Ok(value)
    }

    /// The first column.
    pub(super) async fn column(&mut self, sql: &str) -> Result<Vec<String>> {
        Ok(self.rows::<1>(sql).await?.into_iter().map(|[value]| value).collect())
    }

    /// A global system variable. Empty if this server does not have it.
    pub(super) async fn variable(&mut self, name: &str) -> Result<String> {
        let rows = self.rows(&format!("SHOW GLOBAL VARIABLES WHERE Variable_name = {}", quote_text(name))).await?;
        Ok(rows.into_iter().next().map(|[_, value]: [String; 2]| value).unwrap_or_default())
    }

    /// The rows, or the server's refusal.
    pub(super) async fn attempt(&mut self, sql: &str) -> Result<Result<Vec<Vec<Option<String>>>, String>> {
        match self.client.query_timeout(sql, ANSWER_TIMEOUT).await {
            Ok(rows) => Ok(Ok(rows)),
            Err(Error::Server(error)) => Ok(Err(error.message)),
            Err(error) => Err(error).with_context(|| sql.to_owned()),
        }
    }

    /// `SET PERSIST …` if the server has it. Otherwise a statement for now, and a line of the option file for later.
    pub(super) fn set(&self, name: &str, value: &str) -> Vec<String> {
        if self.server.is_mariadb {
            vec![
                format!("SET GLOBAL {name} = {value}; -- counts for new connections"),
                in_option_file(&[&format!("{} = {value}", name.replace('_', "-"))]),
            ]
        } else {
            vec![format!("SET PERSIST {name} = {value}; -- counts for new connections")]
        }
    }
}

/// Lines of the option file, as a comment.
pub(super) fn in_option_file(lines: &[&str]) -> String {
    format!("-- in the option file, under [mysqld]: {}", lines.join("; "))
}
