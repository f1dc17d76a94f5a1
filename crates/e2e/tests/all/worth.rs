//! Statements whose results do not pay: they are hardly filled, Freshet reports it, and it ends when they pay again.

use anyhow::{Result, ensure};

use crate::join_keys::stage::{Session, Stage, Which, on_all};

const TITLE: &str = "SELECT title FROM title WHERE title_id = 3";
const REASON: &str = "not_admitted";
/// Rows beyond those of the schema.
const ROWS: std::ops::Range<u64> = 5000..5100;
const ROUNDS: u64 = 12;

on_all!(what_changes_before_it_is_read_again, all_if_told_so);

fn votes(row: u64) -> String {
    format!("SELECT num_votes FROM title_rating WHERE title_id = {row}")
}

/// Every result is read once, then it changes.
fn read_once_after_each_change(stage: &Stage, reader: &mut Session) -> Result<()> {
    let mut writer = stage.connect()?;
    let rows: Vec<String> = ROWS.map(|row| format!("({row}, 5.5, 0)")).collect();
    writer.run(&format!("INSERT INTO title_rating VALUES {}", rows.join(", ")))?;
    for round in 1..=ROUNDS {
        writer.run(&format!("UPDATE title_rating SET num_votes = {round} WHERE title_id >= {}", ROWS.start))?;
        for row in ROWS {
            let rows = reader.rows(&votes(row))?;
            ensure!(rows == [[Some(round.to_string())]], "{rows:?} after {round} was written");
        }
    }
    Ok(())
}

fn what_changes_before_it_is_read_again(which: Which) -> Result<()> {
    let Some(stage) = Stage::with(which, false, &["--refresh-share", "0"])? else { return Ok(()) };
    let mut reader = stage.connect()?;
    read_once_after_each_change(&stage, &mut reader)?;
    ensure!(stage.metrics()?.passed(REASON) > 0, "all that was possible was filled");
    let explained = reader.rows(&format!("EXPLAIN CACHE {}", votes(1)))?;
    ensure!(
        explained.iter().flatten().flatten().any(|value| value.starts_with("few results are cached now")),
        "{explained:?}"
    );
    // The others are unchanged; and so is this one, once no session writes.
    stage.until_hits(&mut reader, &[TITLE.to_owned(), votes(ROWS.start)])
}

fn all_if_told_so(which: Which) -> Result<()> {
    let Some(stage) = Stage::with(which, false, &["--refresh-share", "0", "--admission", "always"])? else {
        return Ok(());
    };
    read_once_after_each_change(&stage, &mut stage.connect()?)?;
    let passed = stage.metrics()?.passed(REASON);
    ensure!(passed == 0, "{passed} passed");
    Ok(())
}
