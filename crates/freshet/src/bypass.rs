//! `freshet bypass on|off`: switches a running Freshet's cache off and on again.
//!
//! It goes the way that a client goes, through Freshet's own port: whoever may is known there already, and no second
//! door has to be guarded.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use freshet_net::pg::{Client, Purpose, Rows};
use freshet_net::{Upstream, mysql};

/// SQLSTATE of what PostgreSQL itself says to a statement that it does not know.
const SYNTAX_ERROR: &str = "42601";
/// `ER_PARSE_ERROR`, with which MySQL and MariaDB say it.
const PARSE_ERROR: u16 = 1064;

/// Options of `freshet bypass`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BypassArgs {
    /// on: all statements go to the database, at once and in all sessions, until Freshet is told off or starts again.
    /// off: the cache answers again; what it holds has been kept true meanwhile
    #[arg(value_enum)]
    state: State,
    /// Freshet itself, and one of its admin users: postgres://user:password@host:6432/database, or any other connection
    /// string that libpq understands; mysql://user:password@host:3307/ where it stands before MySQL or MariaDB
    #[arg(long, value_name = "URL")]
    at: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum State {
    On,
    Off,
}

/// Switches, and says what is so now.
pub(crate) async fn run(args: BypassArgs) -> Result<()> {
    let (sql, is) = match args.state {
        State::On => ("FRESHET BYPASS ON", "all statements go to the database"),
        State::Off => ("FRESHET BYPASS OFF", "the cache answers"),
    };
    let (at, rows) = if mysql::Upstream::is_url(&args.at) {
        ask_mysql(&args.at, sql).await?
    } else {
        ask_postgres(&args.at, sql).await?
    };
    let [row] = rows.as_slice() else { bail!("{at} gave an unexpected answer to {sql}") };
    let [_, Some(state)] = row.as_slice() else { bail!("{at} gave an unexpected answer to {sql}") };
    println!("bypass {state} at {at}: {is}");
    Ok(())
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
    let mut client = mysql::Client::connect(&at).await.with_context(|| format!("cannot log in at {at}"))?;
    let rows = match client.query(sql).await {
        Err(error) if error.code() == Some(PARSE_ERROR) => bail!("{at} is not a Freshet: it does not know {sql}"),
        answer => answer.with_context(|| format!("{at} refused {sql}"))?,
    };
    client.close().await;
    Ok((at.to_string(), rows))
}
