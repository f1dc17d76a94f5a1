//! Commands of an operator to a running Freshet.
//!
//! They use Freshet's own port, like a client. There the permitted users are known, and no second port needs protection.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use freshet_net::postgres::{Client, Purpose, Rows};
use freshet_net::{Upstream, mysql};

/// PostgreSQL's SQLSTATE for an unknown statement.
const SYNTAX_ERROR: &str = "42601";
/// `ER_PARSE_ERROR`, the corresponding error of MySQL and MariaDB.
const PARSE_ERROR: u16 = 1064;

/// The running Freshet.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct At {
    /// Freshet itself, and one of its admin users: postgres://user:password@host:6432/database, or any other connection
    /// string that libpq understands; mysql://user:password@host:3307/ where it stands before MySQL or MariaDB
    #[arg(long, value_name = "URL", env = "FRESHET_AT", hide_env_values = true)]
    at: String,
}

/// Sends the statement. Returns the address, for messages, and the rows.
pub(crate) async fn rows(At { at }: &At, sql: &str) -> Result<(String, Rows)> {
    if mysql::Upstream::is_url(at) { ask_mysql(at, sql).await } else { ask_postgres(at, sql).await }
}

/// Sends the statement and returns the value in the answer's only row.
pub(crate) async fn ask(at: &At, sql: &str) -> Result<(String, String)> {
    let (at, rows) = rows(at, sql).await?;
    match rows.as_slice().first().map(Vec::as_slice) {
        Some([_, Some(value)]) if rows.len() == 1 => Ok((at, value.clone())),
        _ => bail!("{at} gave an unexpected answer to {sql}"),
    }
}

async fn ask_postgres(at: &str, sql: &str) -> Result<(String, Rows)> {
    let at = Arc::new(Upstream::parse(at).context("--at")?);
    let mut client = Client::connect(&at, Purpose::Sql).await.with_context(|| format!("cannot log in at {at}"))?;
    let rows = match client.query(sql).await {
        Err(error) if error.sqlstate() == Some(SYNTAX_ERROR) => bail!("{at} is not a Freshet: it does not know {sql}"),
        answer => answer.with_context(|| format!("{at} refused {sql}"))?,
    };
    client.close().await;
    Ok((at.to_string(), rows))
}

async fn ask_mysql(at: &str, sql: &str) -> Result<(String, Rows)> {
    let at = mysql::Upstream::parse(at).context("--at")?;
    let mut client = mysql::Client::connect_to_primary(&at).await.with_context(|| format!("cannot log in at {at}"))?;
    let rows = match client.query(sql).await {
        Err(error) if error.code() == Some(PARSE_ERROR) => bail!("{at} is not a Freshet: it does not know {sql}"),
        answer => answer.with_context(|| format!("{at} refused {sql}"))?,
    };
    client.close().await;
    Ok((at.to_string(), rows))
}
