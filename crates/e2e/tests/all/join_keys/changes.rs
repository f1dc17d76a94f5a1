//! After any change of a movie, its results are never the old ones.

use anyhow::Result;

use super::movies::reads;
use super::stage::{Stage, Which, on_all};

on_all!(its_rows, its_title, in_one_transaction);

/// Each write is followed by reads of two movies, in the session that wrote and in another.
fn never_stale(stage: &Stage, titles: &[&str], writes: &[&str]) -> Result<()> {
    let (mut writer, mut other) = (stage.connect()?, stage.connect()?);
    let reads: Vec<String> = titles.iter().flat_map(|title| reads(title)).collect();
    for write in writes {
        stage.until_hits(&mut other, &reads)?;
        writer.run(write)?;
        stage.ensure_fresh(&mut [&mut writer, &mut other], &reads, write)?;
    }
    stage.until_hits(&mut other, &reads)
}

/// Rows of the joined tables come, change, move to and from another movie, and go.
fn its_rows(which: Which) -> Result<()> {
    let Some(stage) = Stage::new(which)? else { return Ok(()) };
    never_stale(
        &stage,
        &["movie 1", "movie 2"],
        &[
            "UPDATE title_genre SET genre = 'Tragedy' WHERE title_id = 1 AND genre = 'Drama'",
            "INSERT INTO title_genre VALUES (1, 'War')",
            "UPDATE title_genre SET title_id = 1 WHERE title_id = 2 AND genre = 'Drama'",
            "UPDATE title_genre SET title_id = 2 WHERE title_id = 1 AND genre = 'War'",
            "DELETE FROM title_genre WHERE title_id = 1",
            "UPDATE title_rating SET num_votes = 1000 WHERE title_id = 1",
            "DELETE FROM title_rating WHERE title_id = 2",
            "UPDATE title_rating SET title_id = 2 WHERE title_id = 1",
            "INSERT INTO title_rating VALUES (1, 2.5, 7)",
            "UPDATE name SET name = 'Somebody' WHERE name_id = 101",
            "DELETE FROM name WHERE name_id = 102",
            "INSERT INTO name VALUES (102, 'Back', 1999)",
            "UPDATE name SET name_id = 103 WHERE name_id = 101",
            "UPDATE name SET name_id = 101 WHERE name_id = 103",
            "UPDATE title_name_character SET character_name = 'Knave' WHERE title_id = 1 AND name_id = 101",
            "UPDATE title_name_character SET name_id = 201 WHERE title_id = 1 AND name_id = 102",
            // A name that the movie has only just got.
            "UPDATE name SET name = 'Shared' WHERE name_id = 201",
            "UPDATE title_name_character SET title_id = 1 WHERE title_id = 2 AND name_id = 202",
            "UPDATE name SET name = 'Moved' WHERE name_id = 202",
            "INSERT INTO title_name_character VALUES (1, 301, 'Guest')",
            "UPDATE name SET name = 'Of movie 3' WHERE name_id = 301",
            "DELETE FROM title_name_character WHERE title_id = 1",
            "UPDATE title_principal SET category = 'actress' WHERE title_id = 1 AND ordering = 1",
            "UPDATE title_principal SET name_id = 301 WHERE title_id = 1 AND ordering = 2",
            "UPDATE name SET name = 'Again' WHERE name_id = 301",
            "UPDATE title_principal SET title_id = 1, ordering = 9 WHERE title_id = 2 AND ordering = 1",
            "INSERT INTO title_principal VALUES (2, 5, 401, 'producer')",
            "DELETE FROM title_principal WHERE title_id = 1 AND ordering = 1",
        ],
    )
}

/// The row that all others are found by changes what it is found by.
fn its_title(which: Which) -> Result<()> {
    let Some(stage) = Stage::new(which)? else { return Ok(()) };
    never_stale(
        &stage,
        &["movie 1", "movie 2", "elsewhere"],
        &[
            "UPDATE title SET title = 'elsewhere' WHERE title_id = 1",
            "UPDATE title_rating SET num_votes = 2000 WHERE title_id = 1",
            "UPDATE title SET title = 'movie 1' WHERE title_id = 1",
            "UPDATE title_rating SET num_votes = 2001 WHERE title_id = 1",
            "UPDATE title SET type = 'tvMovie' WHERE title_id = 1",
            "UPDATE title SET type = 'movie' WHERE title_id = 1",
            // Two movies of one title.
            "UPDATE title SET title = 'movie 1' WHERE title_id = 2",
            "INSERT INTO title_genre VALUES (2, 'Second')",
            "UPDATE name SET name = 'Of the second' WHERE name_id = 201",
            "DELETE FROM title WHERE title_id = 1",
            "INSERT INTO title_genre VALUES (1, 'Of nobody')",
            "INSERT INTO title VALUES (1, 'movie', 'movie 2', 5)",
            "UPDATE title SET title_id = 5000 WHERE title_id = 1",
            "INSERT INTO title_rating VALUES (5000, 9.5, 1)",
            "UPDATE title SET title_id = 3 WHERE title_id = 5000 AND 1 = 0",
        ],
    )
}

/// Several changes in one commit, so that no state between them was ever there to be read.
fn in_one_transaction(which: Which) -> Result<()> {
    let Some(stage) = Stage::new(which)? else { return Ok(()) };
    let (mut writer, mut other) = (stage.connect()?, stage.connect()?);
    let reads: Vec<String> = ["movie 1", "movie 2"].iter().flat_map(|title| reads(title)).collect();
    for turn in 0..6 {
        stage.until_hits(&mut other, &reads)?;
        let (to, from) = if turn % 2 == 0 { (1, 2) } else { (2, 1) };
        writer.run("BEGIN")?;
        // All that the one movie has goes to the other, titles and all.
        writer.run("UPDATE title SET title = 'between' WHERE title_id = 1")?;
        writer.run("UPDATE title SET title = 'movie 1' WHERE title_id = 2")?;
        writer.run("UPDATE title SET title = 'movie 2' WHERE title_id = 1")?;
        writer.run(&format!(
            "UPDATE title_genre SET genre = 'Turn {turn}' WHERE title_id = {to} AND genre <> 'Comedy'"
        ))?;
        writer.run(&format!("UPDATE title_rating SET num_votes = {turn} WHERE title_id = {from}"))?;
        writer.run(&format!("UPDATE name SET name = 'Turn {turn}' WHERE name_id = {from}01"))?;
        writer.run("COMMIT")?;
        stage.ensure_fresh(&mut [&mut writer, &mut other], &reads, "a transaction")?;
    }
    Ok(())
}
