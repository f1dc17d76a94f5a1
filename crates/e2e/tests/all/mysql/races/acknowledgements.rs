//! Acknowledgements of writes while their changes have not been delivered.

use anyhow::{Result, ensure};

use super::Stage;
use super::relay::Hold;
use crate::mysql::support::{Kind, on_both};
use crate::support::{PATIENCE, eventually};

on_both!(without_the_rule_they_are_missed);

const SCHEMA: &str = "CREATE TABLE item (id INT PRIMARY KEY, n INT NOT NULL); INSERT INTO item VALUES (1, 0)";
const READ: &str = "SELECT n FROM item WHERE id = 1";

/// Where no acknowledgement waits, the result of before the write is served behind it.
fn without_the_rule_they_are_missed(kind: Kind) -> Result<()> {
    let options = ["--test-fault", "skip-all-commit-waits", "--admission", "always"];
    let Some(stage) = Stage::with_fault(kind, SCHEMA, &options)? else { return Ok(()) };
    let (mut writer, mut reader) = (stage.connect()?, stage.connect()?);
    for session in [&mut writer, &mut reader] {
        eventually(PATIENCE, || {
            let before = stage.freshet.metrics()?.hits();
            session.value(READ)?;
            ensure!(stage.freshet.metrics()?.hits() > before, "no hit");
            Ok(())
        })?;
    }
    stage.relay.hold(Hold::Stream);
    writer.run("UPDATE item SET n = 1 WHERE id = 1")?;
    let seen = reader.value(READ)?;
    stage.relay.release(Hold::Stream);
    ensure!(seen == "0", "{seen} is read: the fault was not found");
    Ok(())
}
