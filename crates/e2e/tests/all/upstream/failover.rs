//! The primary ends, and a standby is promoted: sessions wait for it.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use freshet_testbed::StopMode;

use super::start::{Home, command};
use super::{READ, both_hosts, expect_value, replicated, serves};
use crate::pooling::postgres::operator::all_at_rest;
use crate::pooling::until_sessions_wait;
use crate::support::frames::query;
use crate::support::{Freshet, PATIENCE, RawClient, Version, eventually, on_both, time_passes};

on_both!(writes_wait_for_the_new_primary);

/// A switch-over: all that is sent while there is no primary is done once, at the new one.
fn writes_wait_for_the_new_primary(version: Version) -> Result<()> {
    let ((database, standby), home) = (replicated(version)?, Home::new()?);
    let upstream = both_hosts(&database, &standby, "primary");
    let Some(mut command) = command(Some(&upstream), &[], &home.0)? else { return Ok(()) };
    command.args(["--auth", "trust", "--pool", "transaction", "--default-pool-size", "6", "--failover-timeout", "2m"]);
    let freshet = Freshet::spawn(database.address(), Some(command))?;
    serves(&freshet, &database)?;
    let connect = || RawClient::login(freshet.address, database.login());
    let mut clients = (0..8).map(|_| connect()).collect::<Result<Vec<_>>>()?;
    for (n, client) in clients.iter_mut().enumerate() {
        client.run(&format!("insert into film values ({}, 'before')", 200 + n))?;
    }
    all_at_rest(freshet.address, database.login())?;
    // It waits until the standby has received all that is in the log.
    database.server.stop(StopMode::Fast)?;
    for (n, client) in clients.iter_mut().enumerate() {
        client.send(&query(&format!("insert into film values ({}, 'after')", 300 + n)))?;
        // One of them soon tries the host again, whenever it comes back.
        time_passes("they do not try at the same time", Duration::from_millis(30));
    }
    until_sessions_wait(&freshet)?;
    // The old primary comes back as a standby, as Patroni does it: it is no server for them.
    fs::write(database.server.data_dir().join("standby.signal"), "")?;
    database.server.start()?;
    time_passes("sessions try to connect", Duration::from_millis(600));
    ensure!(standby.psql("select pg_promote()")? == "t", "not promoted");
    for client in &mut clients {
        let answer = client.until(b'Z')?;
        ensure!(answer.iter().any(|message| message.tag == b'C'), "{answer:?}");
    }
    for client in &mut clients {
        expect_value(client, "select count(*) from film where id >= 200", "16")?;
        expect_value(client, "select pg_is_in_recovery()", "f")?;
    }
    // The cache is that of the new primary.
    for title in ["of the new one", "again"] {
        clients[0].run(&format!("update film set title = '{title}' where id = 1"))?;
        let hits = freshet.metrics()?.hits();
        eventually(PATIENCE, || {
            expect_value(&mut clients[1], READ, title)?;
            ensure!(freshet.metrics()?.hits() > hits, "no hits");
            Ok(())
        })?;
    }
    Ok(())
}
