//! PostgreSQL: the same as direct, with few server connections.

mod absence;
mod application_settings;
mod labels;
mod leaks;
mod limits;
mod listening;
mod logins;
mod messages;
pub(crate) mod operator;
mod pins;
mod prepared;
mod settings_of_blocks;
mod sharing;
mod unread_settings;

use std::time::Duration;

use anyhow::Result;

use crate::support::{Database, PATIENCE, Pair, RawClient, Version};

/// A database behind a Freshet whose sessions share so many connections.
fn shared(version: Version, schema: &str, size: u32) -> Result<Pair> {
    shared_with(version, schema, size, &[])
}

/// The same with one worker: a session always gets the connection that was used last.
fn shared_by_one(version: Version, schema: &str, size: u32) -> Result<Pair> {
    shared_with(version, schema, size, &["--workers", "1"])
}

/// The same with more options.
fn shared_with(version: Version, schema: &str, size: u32, more: &[&str]) -> Result<Pair> {
    let size = size.to_string();
    let options = ["--auth", "trust", "--pool", "transaction", "--default-pool-size", &size];
    Pair::over(Database::shared(version)?, schema, &[&options, more].concat())
}

/// Whether nothing comes from the server for a while.
fn is_silent(client: &RawClient) -> Result<bool> {
    is_silent_for(client, Duration::from_millis(300))
}

fn is_silent_for(client: &RawClient, time: Duration) -> Result<bool> {
    let socket = client.socket()?;
    socket.set_read_timeout(Some(time))?;
    let heard = socket.peek(&mut [0]);
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(heard.is_err())
}

/// The process of the server that serves the client's statements.
const PID: &str =
    "select pid from pg_stat_activity where query like 'select pid from pg_stat_activity%' and state = 'active'";
