//! Rows that leave results without showing their keys, if old rows are logged with the primary key alone.

use anyhow::{Context, Result, ensure};

use super::precision::invalidates;
use super::races::overtake;
use super::relay::Hold;
use super::stage::{Stage, Which, on_all};

on_all!(
    others_stay,
    what_goes_is_noticed,
    rows_go_before_their_keys_are_read,
    rows_go_before_their_keys_are_told,
    many_rows,
    names_outlive_results,
);

/// Aggregates, rows of the nullable side, groups, pages, distinct values, and rows that keys of others lead to.
fn reads() -> Vec<String> {
    [
        "SELECT count(*) FROM title WHERE title = 'movie 5'",
        "SELECT sum(num_votes) FROM title_rating WHERE num_votes BETWEEN 4 AND 6",
        "SELECT DISTINCT type FROM title WHERE title = 'movie 5' OR title = 'movie 6'",
        "SELECT type, max(updated) FROM title WHERE title IN ('movie 5', 'movie 6') GROUP BY type",
        "SELECT title FROM title WHERE title = 'movie 5' ORDER BY title_id LIMIT 5 OFFSET 1",
        "SELECT count(*) FROM name n JOIN title_principal p ON p.name_id = n.name_id WHERE n.name = 'Name 501'",
        "SELECT g.genre, t.title FROM title_genre g LEFT JOIN title t ON t.title_id = g.title_id AND t.type = 'movie' \
         WHERE g.title_id IN (5, 1005)",
        "SELECT count(*) FROM title_genre g WHERE EXISTS (SELECT 1 FROM title t WHERE t.title_id = g.title_id AND t.title = 'movie 5')",
    ]
    .map(str::to_owned)
    .into()
}

/// Updates and deletes of other rows leave the results where they are.
fn others_stay(which: Which) -> Result<()> {
    let Some(stage) = Stage::logging_keys(which, false)? else { return Ok(()) };
    let (mut c, mut direct) = (stage.connect()?, stage.direct()?);
    stage.until_hits(&mut c, &reads())?;
    ensure!(stage.metrics()?.count("freshet_member_keys_total") > 0, "none has such keys");
    for change in [
        "UPDATE title SET updated = 1 WHERE title_id = 20",
        "UPDATE title SET title = 'another', type = 'video' WHERE title_id = 21",
        "DELETE FROM title WHERE title_id = 22",
        "UPDATE title_rating SET num_votes = num_votes + 100 WHERE title_id = 20",
        "DELETE FROM title_rating WHERE title_id = 21",
        "UPDATE title_principal SET category = 'actress' WHERE title_id = 20",
        "UPDATE title_principal SET name_id = 2002 WHERE title_id = 20 AND ordering = 1",
        "DELETE FROM title_principal WHERE title_id = 21",
        "UPDATE name SET name = 'Somebody' WHERE name_id = 2001",
        "DELETE FROM name WHERE name_id = 2101",
        "UPDATE title_genre SET genre = 'Other' WHERE title_id = 20 AND genre = 'Drama'",
    ] {
        ensure!(!invalidates(&stage, &mut direct, change)?, "{change} invalidated results of other rows");
    }
    Ok(())
}

/// Rows that come, change, go, or get another key.
fn changes() -> [&'static str; 15] {
    [
        "UPDATE title SET updated = 7 WHERE title_id = 5",
        "UPDATE title SET title = 'movie 5 no more' WHERE title_id = 5",
        "UPDATE title SET title = 'movie 5' WHERE title_id = 25",
        // Its key is another one, and by that it goes.
        "UPDATE title SET title_id = 7000 WHERE title_id = 25",
        "DELETE FROM title WHERE title_id = 7000",
        "DELETE FROM title WHERE title_id = 6",
        "INSERT INTO title VALUES (6, 'video', 'movie 5', 1)",
        "UPDATE title_rating SET num_votes = 50 WHERE title_id = 5",
        "UPDATE title_rating SET num_votes = 5 WHERE title_id = 26",
        "DELETE FROM title_rating WHERE title_id = 26",
        "UPDATE title_principal SET name_id = 601 WHERE title_id = 5 AND ordering = 1",
        "UPDATE title_principal SET name_id = 501 WHERE title_id = 8 AND ordering = 2",
        "DELETE FROM title_principal WHERE title_id = 8",
        "UPDATE name SET name = 'Name 501' WHERE name_id = 901",
        "UPDATE title SET type = 'video' WHERE title_id = 1005",
    ]
}

fn what_goes_is_noticed(which: Which) -> Result<()> {
    let Some(stage) = Stage::logging_keys(which, false)? else { return Ok(()) };
    let (mut c, mut writer) = (stage.connect()?, stage.connect()?);
    stage.until_hits(&mut c, &reads())?;
    for write in changes()
        .into_iter()
        .chain(["DELETE FROM title_rating WHERE title_id < 10", "DELETE FROM title WHERE title_id < 10"])
    {
        writer.run(write).context(write)?;
        stage.ensure_fresh(&mut [&mut c, &mut writer, &mut stage.connect()?], &reads(), write)?;
        stage.until_hits(&mut c, &reads())?;
    }
    Ok(())
}

/// Rows go from a result while their keys are held.
fn race(which: Which, hold: Hold) -> Result<()> {
    let Some(stage) = Stage::logging_keys(which, true)? else { return Ok(()) };
    let (mut c, mut writer) = (stage.connect()?, stage.connect()?);
    // Both connections stand before anything is held.
    for number in 10..16 {
        stage.until_hits(&mut c, &[format!("SELECT count(*) FROM title WHERE title = 'movie {number}'")])?;
    }
    for (number, write) in changes().into_iter().enumerate() {
        // Each says another number, so it was not filled before.
        let read = format!(
            "SELECT count(*), {number} FROM title_principal p JOIN title t ON t.title_id IN (5, 25, 7000) AND t.title = 'movie 5' \
             LEFT JOIN title_rating r ON r.num_votes BETWEEN 4 AND 6 WHERE p.name_id = 501"
        );
        overtake(&stage, hold, [&mut c, &mut writer], read, write)?;
    }
    Ok(())
}

fn rows_go_before_their_keys_are_read(which: Which) -> Result<()> {
    race(which, Hold::Questions)
}

fn rows_go_before_their_keys_are_told(which: Which) -> Result<()> {
    race(which, Hold::Answers)
}

/// Of more rows than keys may be any row that goes counts, as far as its image tells.
fn many_rows(which: Which) -> Result<()> {
    let Some(stage) = Stage::logging_keys(which, false)? else { return Ok(()) };
    let (mut c, mut writer) = (stage.connect()?, stage.connect()?);
    let values: Vec<String> = (0..1_200).map(|number| format!("({}, 'many', {number})", 10_000 + number)).collect();
    writer.run(&format!("INSERT INTO name (name_id, name, born) VALUES {}", values.join(", ")))?;
    let read = ["SELECT count(*), sum(born) FROM name WHERE name = 'many'".to_owned()];
    stage.until_hits(&mut c, &read)?;
    for write in [
        "DELETE FROM name WHERE name_id = 10000",
        "UPDATE name SET born = 0 WHERE name_id = 10001",
        "DELETE FROM name WHERE name_id BETWEEN 10100 AND 10900",
    ] {
        writer.run(write)?;
        stage.ensure_fresh(&mut [&mut c, &mut writer], &read, write)?;
        stage.until_hits(&mut c, &read)?;
    }
    // Few enough by now, and another statement, of which it is not known that they were too many.
    stage.until_hits(&mut c, &["SELECT sum(born) FROM name WHERE name = 'many'".to_owned()])?;
    let members = stage.metrics()?.count("freshet_member_keys_total");
    ensure!(members > 0, "the keys of few rows are not read");
    Ok(())
}

/// What invalidates a result for a row of its own, or one that comes, leaves the names of its rows: they are not read again.
fn names_outlive_results(which: Which) -> Result<()> {
    let Some(stage) = Stage::logging_keys(which, false)? else { return Ok(()) };
    let (mut c, mut writer) = (stage.connect()?, stage.connect()?);
    let reads = [
        "SELECT count(*), sum(updated) FROM title WHERE title = 'movie 5'".to_owned(),
        "SELECT count(*), sum(p.ordering) FROM name n JOIN title_principal p ON p.name_id = n.name_id WHERE n.name_id IN (501, 502)".to_owned(),
    ];
    stage.until_hits(&mut c, &reads)?;
    let count = || Ok::<_, anyhow::Error>(stage.metrics()?.count("freshet_key_queries_total"));
    let before = count()?;
    for write in [
        "UPDATE title SET updated = updated + 1 WHERE title_id = 5",
        "UPDATE title SET title = 'movie 5' WHERE title_id = 6",
        "UPDATE title SET updated = updated + 1 WHERE title_id = 6",
        "UPDATE title SET title = 'movie 6' WHERE title_id = 6",
        "DELETE FROM title WHERE title_id = 1005",
        "UPDATE title_principal SET ordering = 7 WHERE title_id = 5 AND ordering = 1",
        "INSERT INTO title_principal VALUES (9, 9, 501, 'actor')",
        "DELETE FROM title_principal WHERE title_id = 9 AND ordering = 9",
        "DELETE FROM title_principal WHERE title_id = 5 AND ordering = 7",
    ] {
        writer.run(write)?;
        stage.ensure_fresh(&mut [&mut c, &mut writer], &reads, write)?;
        stage.until_hits(&mut c, &reads)?;
    }
    let read = count()? - before;
    // A fill that another write overtakes may lose them.
    ensure!(read <= 2, "keys were read {read} times");
    Ok(())
}
