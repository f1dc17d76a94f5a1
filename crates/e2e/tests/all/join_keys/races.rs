//! Commits between the query of a result and its key query.

use anyhow::{Context, Result, ensure};

use super::movies::rating;
use super::relay::Hold;
use super::stage::{Session, Stage, Which, on_all};
use crate::support::{PATIENCE, eventually};

on_all!(keys_that_are_read_late, keys_that_are_told_late, a_reader_that_does_not_come_about);

/// Commits touch what a result shows.
fn race(which: Which, hold: Hold) -> Result<()> {
    let Some(stage) = Stage::with(which, true, &["--refresh-share", "0"])? else { return Ok(()) };
    let (mut c, mut writer) = (stage.connect()?, stage.connect()?);
    // Both connections stand before anything is held.
    for number in 10..16 {
        stage.until_hits(&mut c, &[rating(&format!("movie {number}"))])?;
    }
    for (number, write) in [
        (1, "UPDATE title_rating SET num_votes = 1000 WHERE title_id = 1"),
        (2, "DELETE FROM title_rating WHERE title_id = 2"),
        (7, "INSERT INTO title_rating VALUES (7, 1.5, 1)"),
        (3, "UPDATE title SET title_id = 6000 WHERE title_id = 3"),
        (4, "UPDATE title_rating SET title_id = 4000 WHERE title_id = 4"),
        (5, "UPDATE title SET title = 'movie 5 no more' WHERE title_id = 5"),
        (6, "UPDATE title SET title = 'movie 6' WHERE title_id = 8"),
    ] {
        overtake(&stage, hold, [&mut c, &mut writer], rating(&format!("movie {number}")), write)?;
    }
    Ok(())
}

/// A result is read that was not cached before, its key query is held, another session writes, and the key query is released.
pub(super) fn overtake(
    stage: &Stage,
    hold: Hold,
    [c, writer]: [&mut Session; 2],
    read: String,
    write: &str,
) -> Result<()> {
    let relay = stage.relay.as_ref().context("no relay")?;
    let read = [read];
    let held = relay.held();
    relay.hold(hold);
    let raced = (|| {
        // It is answered, although its keys are not there.
        eventually(PATIENCE, || {
            c.rows(&read[0])?;
            ensure!(relay.held() > held, "the relay holds no message; the log:\n{}", stage.freshet.log());
            Ok(())
        })?;
        writer.run(write)?;
        stage.ensure_fresh(&mut [&mut *c, &mut *writer], &read, write)
    })();
    relay.hold(Hold::Nothing);
    raced?;
    eventually(PATIENCE, || {
        let flights = stage.metrics()?.value("freshet_fills_in_flight");
        ensure!(flights == 0.0, "{flights} fills in flight");
        Ok(())
    })?;
    for _ in 0..5 {
        stage.ensure_fresh(&mut [&mut *c, &mut *writer, &mut stage.connect()?], &read, write)?;
    }
    stage.until_hits(c, &read)
}

/// The keys are those of after the commit.
fn keys_that_are_read_late(which: Which) -> Result<()> {
    race(which, Hold::Questions)
}

/// The keys are those of before the commit.
fn keys_that_are_told_late(which: Which) -> Result<()> {
    race(which, Hold::Answers)
}

/// Without the keys results are cached all the same, and any row invalidates them.
fn a_reader_that_does_not_come_about(which: Which) -> Result<()> {
    let Some(stage) = Stage::with(which, true, &["--refresh-share", "0"])? else { return Ok(()) };
    let relay = stage.relay.as_ref().context("no relay")?;
    let (mut c, mut writer) = (stage.connect()?, stage.connect()?);
    relay.hold(Hold::Questions);
    let read = [rating("movie 1")];
    let kept = stage.until_hits(&mut c, &read);
    relay.hold(Hold::Nothing);
    kept?;
    let metrics = stage.metrics()?;
    let (failed, coarse) = (
        metrics.count("freshet_key_query_failures_total{class=\"connection\"}"),
        metrics.count("freshet_join_keys_coarse_total"),
    );
    ensure!(failed > 0 && coarse > 0, "{failed} failures, {coarse} results with any row");
    for write in [
        "UPDATE title_rating SET num_votes = 1000 WHERE title_id = 1",
        "UPDATE title SET title = 'movie 1' WHERE title_id = 2",
    ] {
        writer.run(write)?;
        stage.ensure_fresh(&mut [&mut writer, &mut c], &read, write)?;
        stage.until_hits(&mut c, &read)?;
    }
    Ok(())
}
