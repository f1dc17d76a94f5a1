//! Definitions that change while the catalogue is being read. The cache does not accept this catalogue, and it is read again. If all of it were read
//! each time, definitions that change faster than it can be read would disable the cache for long.

use anyhow::{Result, ensure};

use super::Stage;
use super::relay::Hold;
use crate::mysql::support::{Kind, on_both};
use crate::support::{PATIENCE, eventually};

on_both!(a_reading_that_is_refused_is_not_in_vain);

const SCHEMA: &str =
    "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20)); CREATE TABLE other (id INT PRIMARY KEY)";

/// What is asked for if everything is read, and not for a part.
const WHOLE: Hold = Hold::Statement("information_schema.routines");

fn a_reading_that_is_refused_is_not_in_vain(kind: Kind) -> Result<()> {
    let Some(stage) = Stage::new(kind, SCHEMA, &[])? else { return Ok(()) };
    let (mut direct, mut session) = (stage.database.connect()?, stage.connect()?);
    let delivered = || Ok::<_, anyhow::Error>(stage.freshet.metrics()?.count("freshet_commits_total"));
    stage.relay.hold(WHOLE);
    for number in 1..=5 {
        let read = format!("SELECT name FROM item WHERE id = {number}");
        direct.run(&format!("INSERT INTO item VALUES ({number}, 'item {number}')"))?;
        // It names no relation, so that everything is read.
        direct.run(&format!("CREATE FUNCTION f_{number}() RETURNS INT DETERMINISTIC NO SQL RETURN 1"))?;
        stage.relay.until_waiting(WHOLE)?;
        let before = delivered()?;
        direct.run(&format!("ALTER TABLE other ADD COLUMN c_{number} INT"))?;
        stage.until("the definition is delivered", |metrics| metrics.count("freshet_commits_total") > before)?;
        // This reading goes on, and is refused. A further one would not come to its end.
        stage.relay.let_go();
        eventually(PATIENCE, || {
            let before = stage.freshet.metrics()?;
            ensure!(session.value(&read)? == format!("item {number}"), "{read}: another item");
            let after = stage.freshet.metrics()?;
            ensure!(after.hits() > before.hits(), "{read}: no hit; {:?}", after.passed_since(&before));
            Ok(())
        })?;
        // What was read since is in the catalogue too.
        let read = format!("SELECT c_{number} FROM other WHERE id = 1");
        eventually(PATIENCE, || {
            let before = stage.freshet.metrics()?;
            session.run(&read)?;
            let after = stage.freshet.metrics()?;
            ensure!(after.hits() > before.hits(), "{read}: no hit; {:?}", after.passed_since(&before));
            Ok(())
        })?;
    }
    Ok(())
}
