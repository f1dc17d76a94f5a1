//! Sessions that are idle behind a write: its diagnostics keep the connection as long as nobody else needs it.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::stage::{READ, Stage};
use crate::mysql::support::{Kind, RawClient, on_both};
use crate::support::{PATIENCE, eventually, time_passes};

on_both!(idle_sessions_behind_writes_hinder_nobody, who_waits_for_nothing_keeps_its_diagnostics);

const WRITE: &str = "UPDATE line SET n = n + 1 WHERE id = 1";
const WARNS: &str = "INSERT IGNORE INTO item VALUES (1, 'again')";

fn is_refused(client: &mut RawClient, sql: &str) -> Result<()> {
    let error = client.run(sql).expect_err("the diagnostics are another session's");
    ensure!(format!("{error:#}").contains("1105"), "{sql}: {error:#}");
    Ok(())
}

/// Many more sessions than connections write, and then do nothing.
fn idle_sessions_behind_writes_hinder_nobody(kind: Kind) -> Result<()> {
    let stage = Stage::with(kind, &["--default-pool-size", "2", "--query-wait-timeout", "1m"])?;
    let mut clients = (0..6).map(|_| stage.connect()).collect::<Result<Vec<_>>>()?;
    for write in [WRITE, WARNS] {
        for client in &mut clients {
            client.run(write)?;
        }
        // Those of the first were given up, and only they are lost.
        let (first, others) = clients.split_at_mut(1);
        is_refused(&mut first[0], "SELECT ROW_COUNT()")?;
        is_refused(&mut first[0], "SHOW WARNINGS")?;
        ensure!(first[0].value("SELECT FOUND_ROWS()")?.parse::<u32>().is_ok());
        first[0].run(WRITE)?;
        ensure!(first[0].value("SELECT ROW_COUNT()")? == "1");
        let hits = stage.pair.freshet.metrics()?.hits();
        eventually(PATIENCE, || {
            ensure!(others[0].value(READ)? == "kettle");
            ensure!(stage.pair.freshet.metrics()?.hits() > hits, "no hit");
            Ok(())
        })?;
    }
    ensure!(clients[3].value("SELECT n FROM line WHERE id = 1")? == "9");
    Ok(())
}

/// Without others the diagnostics stay, however late they are asked for.
fn who_waits_for_nothing_keeps_its_diagnostics(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    let mut client = stage.connect()?;
    for _ in 0..2 {
        client.run(WRITE)?;
        time_passes("nobody waits", Duration::from_millis(350));
        ensure!(client.value("SELECT ROW_COUNT()")? == "1");
        client.run(WARNS)?;
        time_passes("nobody waits", Duration::from_millis(350));
        ensure!(client.query("SHOW WARNINGS")?.rows().len() == 1);
    }
    Ok(())
}
