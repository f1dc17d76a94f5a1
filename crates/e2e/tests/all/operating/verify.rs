//! `--verify`: sampled hits are compared with the database's own answers.

use std::env;

use anyhow::{Result, ensure};

use super::SCHEMA;
use crate::support::{Database, PATIENCE, Pair, Version, eventually, on_both};

on_both!(equal_answers_are_found_equal, an_answer_that_differs_raises_the_alarm);

const READ: &str = "select title from film where id = 7";

fn equal_answers_are_found_equal(version: Version) -> Result<()> {
    let pair = Pair::over(Database::shared(version)?, SCHEMA, &["--verify", "0.5"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut c, mut writer) = (pair.connect()?, pair.connect()?);
    eventually(PATIENCE, || {
        for _ in 0..50 {
            c.query(READ)?;
            c.query("select count(*), title from film group by title")?;
        }
        let metrics = pair.freshet.metrics()?;
        let (verified, hits) = (metrics.count("freshet_verified_total"), metrics.hits());
        ensure!(verified >= 100 && hits >= 100, "{verified} verified, {hits} hits: {metrics:?}");
        Ok(())
    })?;
    // While the row changes, most comparisons say nothing, and none says that an answer was wrong.
    for round in 0..200 {
        writer.query(&format!("update film set title = 'round {round}' where id = 7"))?;
        for _ in 0..3 {
            ensure!(c.value(READ)? == format!("round {round}"), "the write");
        }
    }
    let metrics = pair.freshet.metrics()?;
    ensure!(metrics.count("freshet_verify_mismatches_total") == 0, "a right answer was found wrong: {metrics:?}");
    Ok(())
}

fn an_answer_that_differs_raises_the_alarm(version: Version) -> Result<()> {
    let options = ["--verify", "0.3", "--test-fault", "no-flush"];
    let pair =
        match Pair::over(Database::create(version.start(&freshet_testbed::Settings::default())?)?, SCHEMA, &options) {
            Err(error) if format!("{error:#}").contains("--test-fault") => {
                ensure!(env::var_os("FRESHET_TEST_STRICT").is_none(), "built without fault-injection: {error:#}");
                println!("skipped: Freshet is built without the feature fault-injection");
                return Ok(());
            }
            pair => pair?,
        };
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    crate::cached::until_hit(&pair, &mut c, READ)?;
    pair.database.run(
        "begin; select pg_terminate_backend(pid) from pg_stat_replication; update film set title = 'lost' where id = 7; commit",
    )?;
    eventually(PATIENCE, || {
        c.query(READ)?;
        let found = pair.freshet.metrics()?.count("freshet_verify_mismatches_total");
        ensure!(found == 1, "{found} wrong answers were found");
        Ok(())
    })?;
    let before = pair.freshet.metrics()?;
    let after = eventually(PATIENCE, || {
        for _ in 0..20 {
            ensure!(c.value(READ)? == "lost", "the wrong answer is still given");
        }
        let after = pair.freshet.metrics()?;
        ensure!(
            after.passed("disabled") > before.passed("disabled"),
            "not disabled: {:?}",
            after.passed_since(&before)
        );
        Ok(after)
    })?;
    ensure!(after.hits() == before.hits(), "a statement that was found wrong still hits");
    let log = pair.freshet.log();
    ensure!(log.contains("ALARM") && !log.contains("lost"), "the log: {log}");
    Ok(())
}
