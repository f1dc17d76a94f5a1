//! Changes of other rows do not invalidate a result.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::movies::{EPISODE, UNRATED, rating, reads};
use super::stage::{Session, Stage, Which, on_all};
use crate::support::{PATIENCE, eventually};

on_all!(
    other_movies,
    pages_and_searches,
    pages_not_shown,
    rows_that_meet_none,
    views_and_disjunctions,
    what_was_not_there,
    read_again_in_the_background,
    keys_outlive_results,
    in_transactions,
);

/// Changes of other movies, one in each table and more.
fn changes_of_others() -> Vec<String> {
    let mut changes: Vec<String> = [
        "INSERT INTO title_genre VALUES (2, 'New')",
        "DELETE FROM title_genre WHERE title_id = 2 AND genre = 'New'",
        "UPDATE title_genre SET genre = 'Newer' WHERE title_id = 2 AND genre = 'Drama'",
        "UPDATE title_rating SET num_votes = num_votes + 1 WHERE title_id = 2",
        "DELETE FROM title_rating WHERE title_id = 2",
        "UPDATE name SET name = 'Somebody' WHERE name_id = 201",
        "INSERT INTO name VALUES (1, 'Nobody', NULL)",
        "UPDATE title_name_character SET character_name = 'Knave' WHERE title_id = 2 AND name_id = 201",
        "DELETE FROM title_name_character WHERE title_id = 2 AND name_id = 202",
        "INSERT INTO title_principal VALUES (2, 3, 202, 'actor')",
        "UPDATE title_principal SET category = 'actress' WHERE title_id = 2 AND ordering = 1",
        "DELETE FROM title_principal WHERE title_id = 2",
        "UPDATE title SET updated = 1 WHERE title_id = 2",
        "UPDATE title SET title = 'another' WHERE title_id = 2",
        "INSERT INTO title VALUES (3000, 'movie', 'movie 3000', 0)",
        "INSERT INTO title_genre VALUES (900, 'Musical')",
    ]
    .map(str::to_owned)
    .into();
    // It bears the same title, but is no movie.
    let episode = EPISODE + 1;
    changes.push(format!("INSERT INTO title_genre VALUES ({episode}, 'Drama')"));
    changes.push(format!("INSERT INTO title_rating VALUES ({episode}, 1, 1)"));
    changes.push(format!("UPDATE title SET updated = 1 WHERE title_id = {episode}"));
    changes
}

/// Whether a change takes results away.
pub(super) fn invalidates(stage: &Stage, direct: &mut Session, change: &str) -> Result<bool> {
    let before = stage.metrics()?;
    direct.run(change)?;
    eventually(PATIENCE, || {
        let after = stage.metrics()?;
        ensure!(after.count("freshet_commits_total") > before.count("freshet_commits_total"), "not delivered");
        Ok(())
    })?;
    let name = "freshet_invalidations_total";
    Ok(stage.metrics()?.count(name) > before.count(name))
}

/// The first rows of a join, and those that a pattern finds: what is joined to others does not matter.
fn pages_and_searches(which: Which) -> Result<()> {
    let Some(stage) = Stage::alone(which)? else { return Ok(()) };
    let (mut c, mut direct) = (stage.connect()?, stage.direct()?);
    let reads = [
        "SELECT c.title_id, c.character_name, n.name FROM title_name_character c \
         JOIN name n ON n.name_id = c.name_id ORDER BY c.title_id LIMIT 4",
        "SELECT t.title_id, r.num_votes FROM title t LEFT JOIN title_rating r ON r.title_id = t.title_id \
         ORDER BY t.title_id LIMIT 10",
        "SELECT n.name_id, n.name, c.character_name FROM title_name_character c JOIN name n ON n.name_id = c.name_id \
         WHERE n.name LIKE '%ame 10%'",
        "SELECT p.title_id, p.title, g.genre FROM (SELECT title_id, title FROM title ORDER BY title_id LIMIT 6) p \
         LEFT JOIN title_genre g ON g.title_id = p.title_id ORDER BY p.title_id, g.genre",
    ]
    .map(str::to_owned);
    stage.until_hits(&mut c, &reads)?;
    for change in [
        "UPDATE name SET name = 'Somebody' WHERE name_id = 3001",
        "INSERT INTO name VALUES (1, 'Nobody', NULL)",
        "UPDATE title_rating SET num_votes = num_votes + 1 WHERE title_id = 20",
        "DELETE FROM title_rating WHERE title_id = 20",
        "UPDATE title_name_character SET character_name = 'Knave' WHERE title_id = 20 AND name_id = 2001",
        "INSERT INTO title VALUES (3000, 'movie', 'movie 3000', 0)",
    ] {
        ensure!(!invalidates(&stage, &mut direct, change)?, "{change} invalidated results of other rows");
    }
    for change in [
        "UPDATE name SET name = 'Shown' WHERE name_id = 201",
        // None was shown.
        "INSERT INTO title_rating VALUES (7, 7.5, 1)",
        "UPDATE title_name_character SET character_name = 'Knight' WHERE title_id = 10 AND name_id = 1001",
        "UPDATE name SET name = 'Name 10' WHERE name_id = 3002",
        "INSERT INTO title_genre VALUES (2, 'Musical')",
        "DELETE FROM title WHERE title_id = 1",
    ] {
        ensure!(invalidates(&stage, &mut direct, change)?, "{change} invalidated no result");
        stage.until_hits(&mut c, &reads)?;
    }
    Ok(())
}

/// How far a page reaches that the answer does not show, and what belongs to its rows.
fn pages_not_shown(which: Which) -> Result<()> {
    let Some(stage) = Stage::alone(which)? else { return Ok(()) };
    let (mut c, mut direct) = (stage.connect()?, stage.direct()?);
    let reads = [
        "SELECT type, updated FROM title ORDER BY title_id LIMIT 6",
        "SELECT count(*) FROM (SELECT title_id FROM title ORDER BY title_id LIMIT 3 OFFSET 3) p \
         JOIN title_genre g ON g.title_id = p.title_id",
    ]
    .map(str::to_owned);
    stage.until_hits(&mut c, &reads)?;
    for change in [
        "INSERT INTO title VALUES (3000, 'movie', 'movie 3000', 0)",
        "UPDATE title SET updated = 1 WHERE title_id = 20",
        "DELETE FROM title WHERE title_id = 7",
        "INSERT INTO title_genre VALUES (20, 'Musical')",
    ] {
        ensure!(!invalidates(&stage, &mut direct, change)?, "{change} invalidated results of other rows");
    }
    for change in [
        "UPDATE title SET updated = 1 WHERE title_id = 6",
        "INSERT INTO title_genre VALUES (6, 'Musical')",
        "DELETE FROM title WHERE title_id = 1",
        "INSERT INTO title VALUES (0, 'movie', 'movie 0', 0)",
    ] {
        ensure!(invalidates(&stage, &mut direct, change)?, "{change} invalidated no result");
        stage.until_hits(&mut c, &reads)?;
    }
    Ok(())
}

/// Rows that NOT EXISTS drops do not matter, as long as what drops them is there.
fn rows_that_meet_none(which: Which) -> Result<()> {
    let Some(stage) = Stage::alone(which)? else { return Ok(()) };
    let (mut c, mut direct) = (stage.connect()?, stage.direct()?);
    let reads = [
        "SELECT sum(t.updated), count(*) FROM title t \
         WHERE NOT EXISTS (SELECT 1 FROM title_genre g WHERE g.title_id = t.title_id AND g.genre = 'Drama')",
        "SELECT sum(t.updated), count(*) FROM title t \
         WHERE t.title_id NOT IN (SELECT g.title_id FROM title_genre g WHERE g.genre IN ('Drama', 'None'))",
    ]
    .map(str::to_owned);
    stage.until_hits(&mut c, &reads)?;
    for change in ["UPDATE title SET updated = 1 WHERE title_id = 2", "DELETE FROM title WHERE title_id = 3"] {
        ensure!(!invalidates(&stage, &mut direct, change)?, "{change} invalidated results of other rows");
    }
    for change in [
        "DELETE FROM title_genre WHERE title_id = 3 AND genre = 'Drama'",
        "INSERT INTO title VALUES (3, 'movie', 'movie 3', 1)",
        "UPDATE title SET updated = 2 WHERE title_id = 3",
        "INSERT INTO title_genre VALUES (3, 'Drama')",
    ] {
        ensure!(invalidates(&stage, &mut direct, change)?, "{change} invalidated no result");
        stage.until_hits(&mut c, &reads)?;
    }
    Ok(())
}

/// Conditions reach the tables behind a view, and each side of OR its own tables.
fn views_and_disjunctions(which: Which) -> Result<()> {
    let Some(stage) = Stage::alone(which)? else { return Ok(()) };
    let (mut c, mut direct) = (stage.connect()?, stage.direct()?);
    direct.run(
        "CREATE VIEW movie (id, named, genre, rating) AS SELECT t.title_id, t.title, g.genre, r.average_rating FROM title t \
         JOIN title_genre g ON g.title_id = t.title_id LEFT JOIN title_rating r ON r.title_id = t.title_id \
         WHERE t.type = 'movie'",
    )?;
    let reads = [
        "SELECT genre, rating FROM movie WHERE named = 'movie 1'",
        "SELECT m.id, c.character_name FROM movie m JOIN title_name_character c ON c.title_id = m.id WHERE m.named = 'movie 1'",
        "SELECT t.title, g.genre FROM title t LEFT JOIN title_genre g ON g.title_id = t.title_id \
         WHERE t.title = 'movie 5' OR g.genre = 'Western'",
    ]
    .map(str::to_owned);
    stage.until_hits(&mut c, &reads)?;
    for change in changes_of_others() {
        ensure!(!invalidates(&stage, &mut direct, &change)?, "{change} invalidated results of other rows");
    }
    for change in [
        "INSERT INTO title_genre VALUES (1, 'Short')",
        "INSERT INTO title_genre VALUES (3, 'Western')",
        "UPDATE title SET title = 'no longer shown' WHERE title_id = 3",
        "UPDATE title_rating SET average_rating = 9 WHERE title_id = 1",
        "UPDATE title_name_character SET character_name = 'Knight' WHERE title_id = 1 AND name_id = 101",
        "UPDATE title SET title = 'movie 1' WHERE title_id = 4",
    ] {
        ensure!(invalidates(&stage, &mut direct, change)?, "{change} invalidated no result");
        stage.until_hits(&mut c, &reads)?;
    }
    Ok(())
}

fn other_movies(which: Which) -> Result<()> {
    let Some(stage) = Stage::alone(which)? else { return Ok(()) };
    let (mut c, mut direct) = (stage.connect()?, stage.direct()?);
    let reads = reads("movie 1");
    stage.until_hits(&mut c, &reads)?;
    let metrics = stage.metrics()?;
    let read = metrics.count("freshet_key_queries_total");
    ensure!(read >= 4, "the keys were read {read} times; the log:\n{}", stage.freshet.log());
    let coarse = metrics.count("freshet_join_keys_coarse_total");
    ensure!(coarse == 0, "any row counts for {coarse} results");
    for change in changes_of_others() {
        ensure!(!invalidates(&stage, &mut direct, &change)?, "{change} invalidated results of other rows");
    }
    let before = stage.metrics()?;
    stage.until_hits(&mut c, &reads)?;
    let after = stage.metrics()?;
    let fills = after.count("freshet_fills_total") - before.count("freshet_fills_total");
    ensure!(fills == 0, "{fills} results were not there any more:\n{before:?}\n{after:?}");
    Ok(())
}

/// The first rating of a movie touches the result that shows none.
fn what_was_not_there(which: Which) -> Result<()> {
    let Some(stage) = Stage::new(which)? else { return Ok(()) };
    let (mut writer, mut other) = (stage.connect()?, stage.connect()?);
    let read = [rating(&format!("movie {UNRATED}"))];
    for votes in 0..5 {
        stage.until_hits(&mut other, &read)?;
        let rate = format!("INSERT INTO title_rating VALUES ({UNRATED}, 7.5, {votes})");
        writer.run(&rate)?;
        stage.ensure_fresh(&mut [&mut writer, &mut other], &read, &rate)?;
        stage.until_hits(&mut other, &read)?;
        let away = format!("DELETE FROM title_rating WHERE title_id = {UNRATED}");
        writer.run(&away)?;
        stage.ensure_fresh(&mut [&mut writer, &mut other], &read, &away)?;
    }
    Ok(())
}

/// A result in use that a change invalidated comes back with its keys.
fn read_again_in_the_background(which: Which) -> Result<()> {
    let Which::Postgres(_) = which else { return Ok(()) }; // the others read nothing in the background
    let Some(stage) = Stage::with(which, false, &["--refresh-share", "1"])? else { return Ok(()) };
    let (mut writer, mut other) = (stage.connect()?, stage.connect()?);
    let read = [rating("movie 1")];
    for votes in 100..110 {
        stage.until_hits(&mut other, &read)?;
        let before = stage.metrics()?;
        let write = format!("UPDATE title_rating SET num_votes = {votes} WHERE title_id = 1");
        writer.run(&write)?;
        eventually(PATIENCE, || {
            let after = stage.metrics()?;
            ensure!(
                after.count("freshet_refreshed_total") > before.count("freshet_refreshed_total"),
                "not refreshed: {after:?}"
            );
            Ok(())
        })?;
        stage.ensure_fresh(&mut [&mut writer, &mut other], &read, &write)?;
    }
    let coarse = stage.metrics()?.count("freshet_join_keys_coarse_total");
    ensure!(coarse == 0, "any row counts for {coarse} results");
    Ok(())
}

/// The results of a transaction are cached with their keys.
fn in_transactions(which: Which) -> Result<()> {
    let Some(stage) = Stage::new(which)? else { return Ok(()) };
    let (mut c, mut writer) = (stage.connect()?, stage.connect()?);
    let begin = match which {
        Which::Postgres(_) => "BEGIN ISOLATION LEVEL REPEATABLE READ",
        Which::Mysql(_) => "START TRANSACTION",
    };
    for votes in 100..105 {
        let [_, genres, rating, ..] = reads("movie 3");
        eventually(PATIENCE, || {
            let before = stage.metrics()?;
            c.run(begin)?;
            let rows = c.rows(&rating)?;
            c.rows(&genres)?;
            c.run("COMMIT")?;
            ensure!(rows == stage.direct()?.rows(&rating)?, "{rows:?}");
            // One that is there already is as good.
            eventually(Duration::from_millis(500), || {
                let after = stage.metrics()?;
                let more = |name| after.count(name) > before.count(name);
                ensure!(more("freshet_cached_total") || more("freshet_hits_total"), "no result is cached");
                Ok(())
            })
        })?;
        let write = format!("UPDATE title_rating SET num_votes = {votes} WHERE title_id = 3");
        writer.run(&write)?;
        stage.ensure_fresh(&mut [&mut writer, &mut c], &[rating], &write)?;
    }
    Ok(())
}

/// A vote invalidates what shows the rating, and not the keys by which it was found: they are not read again, until the title is that of
/// another movie as well.
fn keys_outlive_results(which: Which) -> Result<()> {
    let Some(stage) = Stage::alone(which)? else { return Ok(()) };
    let (mut c, mut direct) = (stage.connect()?, stage.direct()?);
    let reads = [rating("movie 1")];
    let vote = |id: u32| format!("UPDATE title_rating SET num_votes = num_votes + 1 WHERE title_id = {id}");
    let keys_read = || Ok::<_, anyhow::Error>(stage.metrics()?.count("freshet_key_queries_total"));
    stage.until_hits(&mut c, &reads)?;
    // Before a table's first change no keys are read.
    ensure!(invalidates(&stage, &mut direct, &vote(1))?, "a vote invalidates nothing");
    stage.until_hits(&mut c, &reads)?;
    let first = keys_read()?;
    ensure!(first > 0, "no keys were read");
    for _ in 0..5 {
        ensure!(invalidates(&stage, &mut direct, &vote(1))?, "a vote invalidates nothing");
        stage.until_hits(&mut c, &reads)?;
        ensure!(!invalidates(&stage, &mut direct, &vote(2))?, "another movie's vote invalidates");
        stage.ensure_fresh(&mut [&mut c], &reads, "a vote")?;
    }
    ensure!(keys_read()? == first, "keys were read again");
    ensure!(invalidates(&stage, &mut direct, "UPDATE title SET title = 'movie 1' WHERE title_id = 2")?, "a namesake");
    stage.until_hits(&mut c, &reads)?;
    ensure!(keys_read()? > first, "keys were not read again");
    ensure!(invalidates(&stage, &mut direct, &vote(2))?, "the namesake's vote invalidates nothing");
    stage.until_hits(&mut c, &reads)?;
    stage.ensure_fresh(&mut [&mut c], &reads, "the namesake's vote")
}
