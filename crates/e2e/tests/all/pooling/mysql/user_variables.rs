//! User variables that go from one connection to another.

use anyhow::{Result, ensure};

use super::stage::Stage;
use crate::mysql::support::packets;
use crate::mysql::support::{Kind, on_both};

on_both!(each_session_has_its_own, triggers_read_them, one_that_was_never_set_is_not_there);

const ALL: &str = "SELECT CONCAT_WS(' ', @id, @name)";

/// Sessions with one connection, in turns; the connection stays the same if the names are.
fn each_session_has_its_own(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    let mut all = Vec::new();
    for at in 0..3 {
        let mut client = stage.connect()?;
        client.run(&format!("SET @id = {at}, @name = 'n{at}'"))?;
        all.push(client);
    }
    for round in 10..15 {
        for (at, client) in all.iter_mut().enumerate() {
            let name = if round == 10 { format!("{at} n{at}") } else { format!("{} n{at}", round - 1 + at) };
            ensure!(client.value(ALL)? == name, "round {round}, session {at}");
            client.run(&format!("SET @id = {}", round + at))?;
        }
    }
    let Some(first) = all.first_mut() else { return Ok(()) };
    first.command(&packets::reset_connection())?;
    ensure!(first.value(ALL)?.is_empty(), "a reset forgets them");
    first.run("SET @id = 5")?;
    ensure!(first.value(ALL)? == "5");
    ensure!(stage.is_free()?);
    Ok(())
}

/// What is written for a session by a trigger is written with its own value, and the trigger holds no connection.
fn triggers_read_them(kind: Kind) -> Result<()> {
    let stage = Stage::with(kind, &["--default-pool-size", "1", "--query-wait-timeout", "30s"])?;
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    for round in 1..5 {
        for (client, who) in [(&mut a, "ann"), (&mut b, "bob")] {
            client.run(&format!("SET @who = '{who}{round}'"))?;
        }
        for (client, who) in [(&mut a, "ann"), (&mut b, "bob")] {
            client.run(&format!("INSERT INTO noted (n) VALUES ({round})"))?;
            let last = client.value("SELECT who FROM noted WHERE id = LAST_INSERT_ID()")?;
            ensure!(last == format!("{who}{round}"), "{last} for {who}{round}");
        }
    }
    ensure!(stage.is_free()?);
    Ok(())
}

/// A session never sees that another has set a variable on its connection.
fn one_that_was_never_set_is_not_there(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    let b_reads = "SELECT @id IS NULL, @id";
    let before = b.query(b_reads)?;
    a.run("SET @id = 1")?;
    ensure!(a.value(ALL)? == "1");
    let after = b.query(b_reads)?;
    ensure!(before.packets == after.packets, "{before:?} {after:?}");
    ensure!(a.value(ALL)? == "1");
    Ok(())
}
