//! How many connections there are, for whom, and in which mode.

use anyhow::{Context, Result, ensure};

use super::stage::Stage;
use crate::mysql::support::{Kind, RawClient, on_both};
use crate::support::{PATIENCE, eventually};

on_both!(
    the_reserve_helps_who_waits,
    a_minimum_stays_open,
    users_have_modes,
    statement_mode_refuses_transactions,
    too_many_clients,
);

fn the_reserve_helps_who_waits(kind: Kind) -> Result<()> {
    let options = ["--default-pool-size", "1", "--reserve-pool-size", "1", "--reserve-pool-timeout", "300ms"];
    let stage = Stage::with(kind, &[&options[..], &["--query-wait-timeout", "2s"]].concat())?;
    let (mut a, mut b, mut c) = (stage.connect()?, stage.connect()?, stage.connect()?);
    a.run("BEGIN")?;
    a.run("UPDATE line SET n = 5 WHERE id = 1")?;
    b.run("BEGIN").context("there is a reserve")?;
    b.run("UPDATE line SET n = 6 WHERE id = 2")?;
    let refused = c.query("SELECT n FROM line WHERE id = 3")?.error();
    ensure!(refused.as_ref().is_some_and(|(code, ..)| *code == 1040), "more than the reserve: {refused:?}");
    a.run("COMMIT")?;
    b.run("COMMIT")
}

fn a_minimum_stays_open(kind: Kind) -> Result<()> {
    let options = ["--default-pool-size", "4", "--min-pool-size", "2", "--server-idle-timeout", "1s"];
    let stage = Stage::with(kind, &options)?;
    let mut client = stage.connect()?;
    let has = |count: u64| {
        eventually(PATIENCE, || {
            let now = stage.connections()?;
            ensure!(now == count, "{now} connections, not {count}");
            Ok(())
        })
    };
    has(2)?;
    for _ in 0..3 {
        client.run("UPDATE line SET n = n + 1 WHERE id = 1")?;
        ensure!(client.value("SELECT LAST_INSERT_ID() + COUNT(*) FROM line")? == "3");
    }
    has(2)?;
    drop(client);
    has(0)
}

fn users_have_modes(kind: Kind) -> Result<()> {
    let stage = Stage::of_mode(kind, "session", &["--default-pool-size", "1"])?;
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    a.run("BEGIN")?;
    a.run("UPDATE line SET n = 5 WHERE id = 1")?;
    b.run("SET @mine = 7")?;
    b.run("UPDATE line SET n = 6 WHERE id = 2")?;
    ensure!(b.value("SELECT @mine")? == "7" && stage.connections()? == 2);
    a.run("COMMIT")?;
    a.run("DO 1")?;
    ensure!(stage.connections()? == 2, "a session of its own has given its connection back");
    // Its number in the handshake is the one to kill it by, as with shared connections.
    b.run(&format!("KILL {}", a.handshake.connection))?;
    a.bytes_to_end()?;
    let kept = stage.pair.freshet.metrics()?.value("freshet_pinned_sessions{reason=\"user_variable\"}");
    ensure!(kept == 0.0, "it is no pin");
    Ok(())
}

fn statement_mode_refuses_transactions(kind: Kind) -> Result<()> {
    let stage = Stage::of_mode(kind, "statement", &["--default-pool-size", "1"])?;
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    for client in [&mut a, &mut b] {
        client.run("UPDATE line SET n = n + 1 WHERE id = 1")?;
        ensure!(client.value("SELECT COUNT(*) FROM line")? == "3");
    }
    a.run("BEGIN")?;
    let refused = a.query("UPDATE line SET n = 99 WHERE id = 1")?.error();
    ensure!(refused.as_ref().is_some_and(|(code, ..)| *code == 1235), "{refused:?}");
    ensure!(b.value("SELECT n FROM line WHERE id = 1")? == "3");
    Ok(())
}

fn too_many_clients(kind: Kind) -> Result<()> {
    let stage = Stage::with(kind, &["--max-client-conn", "2"])?;
    let (first, _second) = (stage.connect()?, stage.connect()?);
    let refused = RawClient::login(stage.pair.address(), stage.login());
    ensure!(refused.is_err_and(|error| format!("{error:#}").contains("Too many connections")));
    drop(first);
    eventually(PATIENCE, || stage.connect())?.run("DO 1")
}
