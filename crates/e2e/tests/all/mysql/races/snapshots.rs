//! The snapshot of a transaction has no proof: the last proof may show commits that the snapshot does not.
//!
//! A snapshot is taken. A commit follows, and is visible and proven so, but not delivered yet. The transaction reads the old state of the row that
//! the commit has changed. The commit is delivered while the answer is on its way, so the fill needs a proof. The last proof shows the commit, but
//! the answer does not.

use anyhow::{Result, ensure};

use super::Stage;
use super::relay::Hold;
use crate::mysql::support::packets;
use crate::mysql::support::{Kind, on_both};
use crate::support::{PATIENCE, eventually};

on_both!(transactions_have_no_proof, the_last_proof_would_not_do, a_commit_without_a_proof_is_the_reason);

const SCHEMA: &str = "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20)); CREATE TABLE other (id INT PRIMARY KEY); \
    INSERT INTO item VALUES (1, 'old'), (2, 'old'), (3, 'old'); INSERT INTO other VALUES (0)";

/// How a snapshot comes about, each for a row of its own.
const OPENINGS: [(&str, &str); 3] = [
    ("BEGIN", "SELECT name FROM item WHERE id = 1"),
    ("START TRANSACTION WITH CONSISTENT SNAPSHOT", "SELECT name FROM item WHERE id = 2"),
    ("SET autocommit = 0", "SELECT name FROM item WHERE id = 3"),
];

/// What services ask for a proof.
fn proof(kind: Kind) -> Hold {
    Hold::Statement(match kind {
        Kind::Mariadb => "binlog_snapshot_%",
        Kind::Mysql => "@@GLOBAL.gtid_executed",
    })
}

/// The race, up to the end of the fill. It offers the answer of before a commit that is delivered by then.
fn race(stage: &Stage, kind: Kind, number: usize, opening: &str, read: &'static str) -> Result<()> {
    let (relay, proof, read_held) = (&stage.relay, proof(kind), Hold::Statement(read));
    let (mut direct, mut old) = (stage.database.connect()?, stage.connect()?);
    stage.until("nothing is pending", |metrics| metrics.value("freshet_commits_unproven") == 0.0)?;
    // A commit is delivered, and its proof is asked for, but not yet of the server.
    relay.hold(proof);
    direct.run(&format!("INSERT INTO other VALUES ({})", number + 1))?;
    relay.until_waiting(proof)?;
    relay.hold(Hold::Stream);
    old.run(opening)?;
    ensure!(old.value("SELECT id FROM other WHERE id = 0")? == "0", "another row");
    // What the snapshot does not show is shown by the proof, and is not delivered.
    direct.run(&format!("UPDATE item SET name = 'new' WHERE id = {}", number + 1))?;
    relay.release(proof);
    let before = stage.until("the proof is there", |metrics| metrics.value("freshet_commits_unproven") == 0.0)?;
    relay.hold(read_held);
    old.send(&packets::query(read))?;
    relay.until_waiting(read_held)?;
    let filling = stage.freshet.metrics()?;
    ensure!(filling.count("freshet_fills_in_flight") == 1, "no fill is in flight: {:?}", filling.passed_since(&before));
    let delivered = |metrics: &crate::support::Metrics| metrics.count("freshet_commits_total");
    relay.release(Hold::Stream);
    stage.until("the commit is delivered", |metrics| delivered(metrics) > delivered(&before))?;
    relay.release(read_held);
    let answer = old.answer()?;
    ensure!(answer.rows() == [[Some("old".to_owned())]], "{answer:?}");
    stage.until("the fill has ended", |metrics| metrics.value("freshet_fills_in_flight") == 0.0)?;
    Ok(())
}

fn transactions_have_no_proof(kind: Kind) -> Result<()> {
    let Some(stage) = Stage::new(kind, SCHEMA, &[])? else { return Ok(()) };
    for (number, (opening, read)) in OPENINGS.into_iter().enumerate() {
        let before = stage.freshet.metrics()?.count("freshet_stale_fills_total");
        race(&stage, kind, number, opening, read)?;
        let stale = stage.freshet.metrics()?.count("freshet_stale_fills_total") - before;
        ensure!(stale == 1, "{opening}: {stale} fills were found stale");
        let mut session = stage.connect()?;
        eventually(PATIENCE, || {
            let hits = stage.freshet.metrics()?.hits();
            let name = session.value(read)?;
            assert_eq!(name, "new", "{opening}: stale");
            ensure!(stage.freshet.metrics()?.hits() > hits, "no hit");
            Ok(())
        })?;
    }
    Ok(())
}

/// The test above would notice: without the rule, the old answer is served.
fn the_last_proof_would_not_do(kind: Kind) -> Result<()> {
    let Some(stage) = Stage::with_fault(kind, SCHEMA, &["--test-fault", "proves-in-blocks"])? else { return Ok(()) };
    for (number, (opening, read)) in OPENINGS.into_iter().enumerate() {
        race(&stage, kind, number, opening, read)?;
        let mut session = stage.connect()?;
        eventually(PATIENCE, || {
            ensure!(session.value(read)? == "old", "{opening}: the fault was not found");
            Ok(())
        })?;
    }
    Ok(())
}

/// Reads of what a commit touched pass until its proof is there, and the reason says so.
fn a_commit_without_a_proof_is_the_reason(kind: Kind) -> Result<()> {
    let Some(stage) = Stage::new(kind, SCHEMA, &["--admission", "always"])? else { return Ok(()) };
    let mut session = stage.connect()?;
    stage.until("nothing is pending", |metrics| metrics.value("freshet_commits_unproven") == 0.0)?;
    stage.relay.hold(proof(kind));
    stage.database.run("UPDATE item SET name = 'new' WHERE id = 1")?;
    stage.until("the commit is pending", |metrics| metrics.value("freshet_commits_unproven") > 0.0)?;
    eventually(PATIENCE, || {
        ensure!(session.value(OPENINGS[0].1)? == "new", "an old name");
        let metrics = stage.freshet.metrics()?;
        ensure!(metrics.passed("unproven") > 0, "another reason: {metrics:?}");
        Ok(())
    })?;
    ensure!(stage.freshet.metrics()?.passed("too_busy") == 0, "nothing is busy");
    stage.relay.release(proof(kind));
    Ok(())
}
