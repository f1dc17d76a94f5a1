//! The cache is switched off and on again.

use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use freshet_testbed::Settings;

use super::{SCHEMA, connect_as, reader, rows, sqlstate, tags};
use crate::cached::until_hit;
use crate::support::frames::{sync, unnamed};
use crate::support::{Database, Pair, Version, on_both_at_length, program};

on_both_at_length!(
    at_once_in_open_sessions,
    nothing_is_lost_meanwhile,
    not_for_everybody,
    by_the_program,
    from_the_start
);

const READ: &str = "select title from film where id = 1";
const OTHER: &str = "select title from film where id = 2";

fn switch(admin: &mut crate::support::RawClient, word: &str) -> Result<()> {
    let answer = admin.query(&format!("FRESHET BYPASS {word}"))?;
    ensure!(rows(&answer) == [["bypass", &word.to_lowercase()]] && tags(&answer) == "TDCZ", "{word}: {answer:?}");
    Ok(())
}

fn at_once_in_open_sessions(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut c, mut admin) = (pair.connect()?, pair.connect()?);
    until_hit(&pair, &mut c, READ)?;
    c.exchange(&[unnamed(READ, &[]), sync()].concat(), 1)?;
    switch(&mut admin, "ON")?;
    let before = pair.freshet.metrics()?;
    ensure!(before.value("freshet_bypass") > 0.5, "the metric does not say so");
    for _ in 0..5 {
        ensure!(c.value(READ)? == "film 1", "the answer is another");
        c.exchange(&[unnamed(READ, &[]), sync()].concat(), 1)?;
    }
    // A session that comes later.
    let mut late = pair.connect()?;
    late.query(READ)?;
    let after = pair.freshet.metrics()?;
    ensure!(after.hits() == before.hits(), "hits while the cache is off");
    let passed = after.passed("switched_off") - before.passed("switched_off");
    ensure!(passed >= 11, "{passed} statements passed for the reason; {:?}", after.passed_since(&before));
    let status = rows(&admin.query("SHOW FRESHET STATUS")?);
    ensure!(status.contains(&vec!["bypass".to_owned(), "on".to_owned()]), "{status:?}");
    let explained = rows(&late.query(&format!("EXPLAIN CACHE {READ}"))?).concat().join(" ");
    ensure!(explained.contains("switched the cache off"), "{explained}");
    ensure!(pair.freshet.log().contains("switched the bypass on"), "no word in the log:\n{}", pair.freshet.log());
    switch(&mut admin, "OFF")?;
    until_hit(&pair, &mut c, READ)?;
    ensure!(pair.freshet.metrics()?.value("freshet_bypass") == 0.0, "the metric stays");
    c.expect_silence()
}

/// The changes of that time are in the answers, and what they do not concern is still there.
fn nothing_is_lost_meanwhile(version: Version) -> Result<()> {
    // A server of its own: roles that other tests change would have the cache flushed.
    let pair = Pair::over(Database::create(version.start(&Settings::default())?)?, SCHEMA, &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut c, mut admin) = (pair.connect()?, pair.connect()?);
    until_hit(&pair, &mut c, READ)?;
    until_hit(&pair, &mut c, OTHER)?;
    switch(&mut admin, "ON")?;
    let before = pair.freshet.metrics()?;
    c.run("update film set title = 'changed' where id = 1")?;
    crate::support::eventually(crate::support::PATIENCE, || {
        let invalidated = pair.freshet.metrics()?.count("freshet_invalidations_total");
        ensure!(invalidated > before.count("freshet_invalidations_total"), "the change has invalidated nothing");
        Ok(())
    })?;
    switch(&mut admin, "OFF")?;
    ensure!(c.value(READ)? == "changed", "an answer from before the change");
    until_hit(&pair, &mut c, READ)?;
    let fills = pair.freshet.metrics()?.count("freshet_fills_total");
    until_hit(&pair, &mut c, OTHER)?;
    let after = pair.freshet.metrics()?;
    ensure!(after.count("freshet_fills_total") == fills, "what nothing had touched had to be read again");
    ensure!(after.count("freshet_flushed_total") == before.count("freshet_flushed_total"), "the cache was flushed");
    Ok(())
}

fn not_for_everybody(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut other = connect_as(&pair, &reader(&pair, "reader")?)?;
    for word in ["ON", "OFF"] {
        let answer = other.query(&format!("FRESHET BYPASS {word}"))?;
        ensure!(sqlstate(&answer).as_deref() == Some("42501"), "{answer:?}");
    }
    ensure!(pair.freshet.metrics()?.value("freshet_bypass") == 0.0, "it is switched off all the same");
    let mut admin = pair.connect()?;
    switch(&mut admin, "ON")?;
    ensure!(sqlstate(&other.query("FRESHET BYPASS OFF")?).as_deref() == Some("42501"), "switched on by anybody");
    ensure!(pair.freshet.metrics()?.value("freshet_bypass") > 0.5, "it is switched on all the same");
    other.expect_silence()
}

fn from_the_start(version: Version) -> Result<()> {
    let pair = Pair::over(Database::shared(version)?, SCHEMA, &["--bypass"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    for _ in 0..3 {
        ensure!(c.value(READ)? == "film 1", "the answer is another");
    }
    let metrics = pair.freshet.metrics()?;
    ensure!(metrics.hits() == 0 && metrics.value("freshet_bypass") > 0.5, "the cache is on");
    switch(&mut c, "OFF")?;
    until_hit(&pair, &mut c, READ)
}

fn by_the_program(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let Some(program) = program()? else { return Ok(()) };
    let other = reader(&pair, "reader")?;
    let run = |state: &str, at: &str| -> Result<Output> {
        Command::new(&program).args(["bypass", state, "--at", at]).output().context("freshet bypass")
    };
    let login = pair.login();
    let url = |user: &str, address: std::net::SocketAddr| {
        format!("postgres://{user}:{}@{address}/{}", login.password.unwrap_or_default(), login.database)
    };
    for (state, gauge) in [("on", true), ("on", true), ("off", false)] {
        let output = run(state, &url(login.user, pair.address()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success() && said.contains(&format!("bypass {state}")), "{state}: {output:?}");
        ensure!((pair.freshet.metrics()?.value("freshet_bypass") > 0.5) == gauge, "{state}: the metric says otherwise");
    }
    let refused = [
        (url(login.user, pair.database.address()), "is not a Freshet"),
        (url(&other, pair.address()), "is not one of Freshet's admin users"),
        (url("nobody_at_all", pair.address()), "cannot log in"),
    ];
    for (at, why) in refused {
        let output = run("on", &at)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success() && said.contains(why), "{at}: {output:?}");
        ensure!(pair.freshet.metrics()?.value("freshet_bypass") == 0.0, "{at}: switched all the same");
    }
    Ok(())
}
