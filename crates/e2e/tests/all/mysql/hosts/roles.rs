//! What is shown of the hosts, wrong ones, and those that do not answer.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use freshet_testbed::MysqlSettings;

use super::{Hosts, IS_STREAM_SERVER, POSITION, REASON, ROLE, STATE};
use crate::mysql::support::{Kind, on_both};
use crate::support::{PATIENCE, eventually, program};

on_both!(roles_and_trouble_are_shown, a_host_of_another_database);

/// The first host of the list does not answer, the second is the replica.
fn roles_and_trouble_are_shown(kind: Kind) -> Result<()> {
    let hosts = Hosts::start(kind)?;
    let (primary, replica, nobody) = (hosts.primary_address(), hosts.replica_address(), "127.0.0.1:1");
    let freshet = hosts.freshet_over(&[nobody, &replica, &primary], &[])?;
    if !freshet.is_there() {
        return Ok(());
    }
    hosts.hits_again(&freshet, &["pot", "jug"])?;
    ensure!(hosts.port(&freshet)? == hosts.database.server.port().to_string(), "not at the primary");
    let row = hosts.shows(&freshet, nobody, &[(ROLE, ""), (STATE, "down")])?;
    ensure!(row[REASON].contains("refused"), "{row:?}");
    let wanted = [(ROLE, "primary"), (IS_STREAM_SERVER, "yes"), (STATE, "up"), (REASON, "")];
    let position = hosts.shows(&freshet, &primary, &wanted)?[POSITION].clone();
    ensure!(!position.is_empty(), "no position");
    hosts.catch_up()?;
    let wanted = [(ROLE, "replica"), (IS_STREAM_SERVER, "no"), (STATE, "up"), (REASON, "")];
    hosts.shows(&freshet, &replica, &wanted)?;
    hosts.connect(&freshet)?.run("INSERT INTO log (n) VALUES (1)")?;
    eventually(PATIENCE, || {
        let (one, other) = (hosts.row(&freshet, &primary)?, hosts.row(&freshet, &replica)?);
        ensure!(one[POSITION] != position && other[POSITION] == one[POSITION], "{one:?} {other:?}");
        Ok(())
    })?;
    let metrics = freshet.metrics()?;
    let up = |server: &str| metrics.value(&format!("freshet_server_up{{server=\"{server}\"}}"));
    ensure!((up(&primary), up(&replica), up(nobody)) == (1.0, 1.0, 0.0), "{metrics:?}");
    let said = check(&hosts.url(&[nobody, &replica, &primary]))?;
    for line in [
        format!("the server {nobody} cannot be looked at"),
        format!("the server {replica} is read-only"),
        format!("the server {primary} is a primary"),
    ] {
        ensure!(said.contains(&line), "nothing of {line:?} in {said}");
    }
    let said = check(&hosts.url(&[nobody, &replica]))?;
    ensure!(said.contains(&format!("the server {replica} is read-only")), "without a primary: {said}");
    // The replica ends, and comes back.
    hosts.replica.stop()?;
    hosts.shows(&freshet, &replica, &[(ROLE, "replica"), (STATE, "down")])?;
    hosts.hits_again(&freshet, &["pan"])?;
    hosts.replica.start_again()?;
    hosts.shows(&freshet, &replica, &[(ROLE, "replica"), (STATE, "up"), (REASON, "")])?;
    Ok(())
}

/// What `freshet check` says.
fn check(url: &str) -> Result<String> {
    let mut command = Command::new(program()?.context("no program")?);
    command.args(["--log", "warn", "check", "--upstream", url]);
    Ok(String::from_utf8_lossy(&command.output()?.stdout).into_owned())
}

/// A server that can be written, but was never a replica.
fn a_host_of_another_database(kind: Kind) -> Result<()> {
    let hosts = Hosts::start(kind)?;
    let other = kind.start(&MysqlSettings::default().with_binlog().with("server-id = 9"))?;
    other.sql(&format!("CREATE DATABASE {0}; CREATE TABLE {0}.item (id INT, name TEXT)", hosts.database.name))?;
    let (primary, wrong) = (hosts.primary_address(), other.address().to_string());
    let freshet = hosts.freshet_over(&[&primary, &wrong], &["--failover-timeout", "1s"])?;
    if !freshet.is_there() {
        return Ok(());
    }
    let row = hosts.shows(&freshet, &wrong, &[(ROLE, "primary"), (STATE, "left out")])?;
    ensure!(row[REASON].contains("none of the primary's GTIDs"), "{row:?}");
    hosts.hits_again(&freshet, &["pot", "jug"])?;
    // Nor does it serve while the right one is down.
    hosts.database.server.stop()?;
    hosts.shows_while_down(&freshet)?;
    hosts.database.server.start_again()?;
    eventually(PATIENCE, || {
        ensure!(hosts.port(&freshet)? == hosts.database.server.port().to_string(), "not at the primary");
        Ok(())
    })?;
    hosts.hits_again(&freshet, &["cup"])
}

impl Hosts {
    /// Nobody is let in for several rounds of the watch.
    fn shows_while_down(&self, freshet: &crate::support::Freshet) -> Result<()> {
        for _ in 0..4 {
            let refusal = self.connect(freshet).err().map(|error| format!("{error:#}")).unwrap_or_default();
            ensure!(refusal.contains("cannot reach the database"), "a client at the wrong server: {refusal}");
        }
        Ok(())
    }
}
