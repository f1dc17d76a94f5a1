//! More keys than a result may depend on: then any row counts.

use std::fmt::Write as _;

use anyhow::{Result, ensure};

use super::movies::rating;
use super::stage::{Stage, Which, on_all};

on_all!(more_keys_than_the_limit);

fn more_keys_than_the_limit(which: Which) -> Result<()> {
    const FIRST: usize = 10_000;
    const MANY: usize = 1_200;
    let Some(stage) = Stage::with(which, false, &["--refresh-share", "0"])? else { return Ok(()) };
    let (mut c, mut writer) = (stage.connect()?, stage.connect()?);
    let (mut titles, mut ratings) = (String::new(), String::new());
    for number in FIRST..FIRST + MANY {
        let _ = write!(titles, "({number}, 'movie', 'many', 0),");
        let _ = write!(ratings, "({number}, 5.5, 1),");
    }
    writer.run(&format!("INSERT INTO title VALUES {}", titles.trim_end_matches(',')))?;
    writer.run(&format!("INSERT INTO title_rating VALUES {}", ratings.trim_end_matches(',')))?;
    let read = [rating("many")];
    stage.until_hits(&mut c, &read)?;
    let coarse = stage.metrics()?.count("freshet_join_keys_coarse_total");
    ensure!(coarse > 0, "any row counts for no result");
    let last = FIRST + MANY - 1;
    for write in [
        format!("UPDATE title_rating SET num_votes = 2 WHERE title_id = {last}"),
        format!("DELETE FROM title_rating WHERE title_id = {FIRST}"),
        format!("INSERT INTO title_rating VALUES ({FIRST}, 1.5, 1)"),
        "UPDATE title SET title = 'many' WHERE title_id = 1".to_owned(),
    ] {
        writer.run(&write)?;
        stage.ensure_fresh(&mut [&mut writer, &mut c], &read, &write)?;
        stage.until_hits(&mut c, &read)?;
    }
    Ok(())
}
