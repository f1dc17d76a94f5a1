//! Where reads go by the operator's rules, weights and limits, and by hints.

use anyhow::{Result, ensure};

use super::expect_value;
use super::replicas::{BALANCE, Stand};
use crate::support::{PATIENCE, Version, eventually, on_both};

on_both!(
    rules_and_hints_name_the_server,
    reads_go_by_weights,
    a_weight_of_nothing,
    a_replica_that_lags_too_far,
    reads_that_need_no_connection_to_the_primary,
    settings_are_those_of_the_primary,
);

/// Columns of SHOW REPLICATION.
const REASON: usize = 9;
const WEIGHT: usize = 12;
/// Rules of the stand send them to the primary, or to a replica.
const AT_PRIMARY: &str = "select v from account where id = 1 order by v";
const AT_REPLICA: &str = "select v from account where id = 1 order by id";

fn rules_and_hints_name_the_server(version: Version) -> Result<()> {
    let Some(stand) = Stand::behind(version, &["--hints"], Ok)? else { return Ok(()) };
    let mut client = stand.connect()?;
    let title = |hint: &str| format!("select title from film where id = 2 /* freshet: {hint} */");
    for (sql, value) in
        [(AT_REPLICA.to_owned(), "0"), (title("cache=never"), "film 2"), (title("cache=never, replica"), "film 2")]
    {
        let before = stand.reads()?;
        eventually(PATIENCE, || {
            expect_value(&mut client, &sql, value)?;
            ensure!(stand.reads()? > before, "not at the replica: {sql}");
            Ok(())
        })?;
    }
    let before = stand.reads()?;
    for _ in 0..20 {
        expect_value(&mut client, AT_PRIMARY, "0")?;
        expect_value(&mut client, &title("cache=never, primary"), "film 2")?;
        expect_value(&mut client, &title("route=primary"), "film 2")?;
    }
    ensure!(stand.reads()? == before, "the replica has answered what belongs to the primary");
    // A hit is a hit, whatever the hint.
    let hits = stand.freshet.metrics()?.hits();
    eventually(PATIENCE, || {
        expect_value(&mut client, &title("primary"), "film 2")?;
        ensure!(stand.freshet.metrics()?.hits() > hits, "no hit");
        Ok(())
    })
}

fn reads_go_by_weights(version: Version) -> Result<()> {
    const READS: u64 = 400;
    let weights = ["--primary-weight", "1", "--replica-weights", "127.0.0.1=3"];
    let Some(stand) = Stand::behind(version, &weights, Ok)? else { return Ok(()) };
    let mut client = stand.connect()?;
    let before = (stand.reads_at_primary()?, stand.reads()?);
    for _ in 0..READS {
        expect_value(&mut client, BALANCE, "0")?;
    }
    let (primary, replica) = (stand.reads_at_primary()? - before.0, stand.reads()? - before.1);
    // The standby may lose some of its turns on a busy machine.
    ensure!(primary + replica <= READS && primary >= READS / 10 && replica >= READS / 4, "{primary}, {replica}");
    let before = stand.reads_at_primary()?;
    for _ in 0..50 {
        expect_value(&mut client, AT_REPLICA, "0")?;
    }
    ensure!(stand.reads_at_primary()? == before, "the primary took its turn of what belongs to a replica");
    Ok(())
}

fn a_weight_of_nothing(version: Version) -> Result<()> {
    let Some(stand) = Stand::start(version, &["--replica-weights", "127.0.0.1=0"], Ok)? else { return Ok(()) };
    ensure!(stand.shown(&stand.address_of_standby(), WEIGHT)? == "0", "its weight is not shown");
    stand.answers_none("0")?;
    expect_value(&mut stand.connect()?, AT_REPLICA, "0")?;
    ensure!(stand.reads()? == 0, "a rule overrules the weight");
    Ok(())
}

/// A replica that lacks much of the log, or is late, is not read, not even for what it has.
fn a_replica_that_lags_too_far(version: Version) -> Result<()> {
    for most in ["1MiB", "100ms"] {
        let Some(stand) = Stand::behind(version, &["--replica-lag-max", most], Ok)? else { return Ok(()) };
        stand.standby.psql("select pg_wal_replay_pause()")?;
        stand.database.run("select pg_logical_emit_message(false, 'much', repeat('x', 2000000)); checkpoint")?;
        stand.connect()?.run("update account set v = 1 where id = 2")?;
        eventually(PATIENCE, || {
            let reason = stand.shown(&stand.address_of_standby(), REASON)?;
            ensure!(reason.contains("replica_lag_max"), "{most}: {reason:?}");
            Ok(())
        })?;
        stand.answers_none("0")?;
        stand.standby.psql("select pg_wal_replay_resume()")?;
        stand.until_read()?;
    }
    Ok(())
}

/// What a rule keeps out of the cache is read at a replica while all connections to the primary are in use.
fn reads_that_need_no_connection_to_the_primary(version: Version) -> Result<()> {
    let limits = ["--default-pool-size", "1", "--query-wait-timeout", "1s"];
    let Some(stand) = Stand::behind(version, &limits, Ok)? else { return Ok(()) };
    eventually(PATIENCE, || {
        let (mut other, mut reader) = (stand.connect()?, stand.connect()?);
        other.run("begin; select 1")?;
        let read = expect_value(&mut reader, AT_REPLICA, "0");
        other.run("commit")?;
        read
    })
}

/// What tells of the server itself is the primary's answer, also if a rule keeps it out of the cache.
fn settings_are_those_of_the_primary(version: Version) -> Result<()> {
    let Some(stand) = Stand::behind(version, &["--hints"], Ok)? else { return Ok(()) };
    stand.until_read()?;
    for _ in 0..20 {
        let asked =
            "select current_setting('transaction_read_only') || v from account where id = 1 /* freshet: cache=never */";
        expect_value(&mut stand.connect()?, asked, "off0")?;
    }
    Ok(())
}
