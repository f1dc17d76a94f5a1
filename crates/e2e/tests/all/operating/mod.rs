//! Operating a running Freshet, and its reports: switching the cache off, changing its memory, stopping, reading its state and its log.

mod admins;
mod analytics;
mod bypass;
pub(crate) mod configuration;
mod console;
mod created_rules;
mod dashboard;
mod databases;
mod drain;
mod entries;
mod hints;
mod last;
mod logs;
mod memory;
mod otlp;
mod outcomes;
mod prometheus;
mod proxysql;
mod query_log;
mod quickstart;
mod quiet;
mod rules;
mod service;
mod sessions;
mod timeouts;
mod top;
mod ttl;
pub(crate) mod upgrades;
mod upgrades_amid;
pub(crate) mod upgrades_carried;
mod verify;

use anyhow::{Result, ensure};

use crate::support::{Login, Message, Pair, RawClient};

/// A row to read, and one that nobody touches.
const SCHEMA: &str = "
    create table film (id int primary key, title text not null);
    insert into film select i, 'film ' || i from generate_series(1, 100) i;";

/// The rows of an answer as text.
fn rows(messages: &[Message]) -> Vec<Vec<String>> {
    let text = |value: Option<Vec<u8>>| String::from_utf8_lossy(&value.unwrap_or_default()).into_owned();
    messages.iter().filter(|m| m.tag == b'D').map(|m| m.columns().into_iter().map(text).collect()).collect()
}

fn tags(messages: &[Message]) -> String {
    messages.iter().map(|m| char::from(m.tag)).collect()
}

/// The SQLSTATE of the answer's error.
fn sqlstate(messages: &[Message]) -> Option<String> {
    messages.iter().find(|m| m.tag == b'E')?.field(b'C')
}

/// A role of its own for this test, which may read.
fn reader(pair: &Pair, name: &str) -> Result<String> {
    let role = format!("{}_{name}", pair.database.name);
    pair.database.run(&format!("create role \"{role}\" login; grant select on film to \"{role}\""))?;
    Ok(role)
}

fn connect_as(pair: &Pair, user: &str) -> Result<RawClient> {
    RawClient::login(pair.address(), Login { user, ..pair.login() })
}

/// The connection tells its end as PostgreSQL does, and ends.
fn ends_by_command(client: &mut RawClient) -> Result<()> {
    let message = client.read()?;
    let field = |field| message.field(field).unwrap_or_default();
    let said = (message.tag, field(b'S'), field(b'V'), field(b'C'), field(b'M'));
    let words = "terminating connection due to administrator command";
    ensure!(said == (b'E', "FATAL".into(), "FATAL".into(), "57P01".into(), words.into()), "{message:?}");
    let more = client.read_or_end()?;
    ensure!(more.is_none(), "more came: {more:?}");
    Ok(())
}
