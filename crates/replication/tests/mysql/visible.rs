//! A proof is right about every commit that it shows, also where MariaDB commits out of order.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use freshet_net::mysql::{Client, Upstream};
use freshet_testbed::MysqlSettings;
use freshet_types::{CommitId, GtidSet, Lsn, Visible};

use crate::fixture::{Database, Event, Fixture, shorts};

const WRITERS: usize = 12;
const TRANSACTIONS: usize = 400;

/// Prepares and commits one transaction after the other.
async fn write(upstream: Upstream, writer: usize) -> Result<()> {
    let mut client = Client::connect(&upstream).await?;
    for at in 0..TRANSACTIONS {
        let id = writer * TRANSACTIONS + at;
        for sql in ["XA START 'x#'", "INSERT INTO t VALUES (#)", "XA END 'x#'", "XA PREPARE 'x#'", "XA COMMIT 'x#'"] {
            client.query(&sql.replace('#', &id.to_string())).await?;
        }
    }
    Ok(())
}

/// What is visible now, in each server's form.
async fn proof(client: &mut Client) -> Result<Visible> {
    if !client.server().is_mariadb {
        let executed = client.query("SELECT @@GLOBAL.gtid_executed").await?;
        let executed = executed.first().and_then(|row| row.first()?.as_deref()).context("gtid_executed")?;
        return Ok(Visible::Gtids(GtidSet::parse(executed).context("gtid_executed")?));
    }
    let status = client.query("SHOW STATUS LIKE 'binlog_snapshot_%'").await?;
    let value = |at: usize| status.get(at).and_then(|row| row.get(1)?.clone()).context("binlog_snapshot");
    let file = value(0)?.rsplit_once('.').context("file")?.1.parse()?;
    Ok(Visible::UpTo(Lsn::in_binlog(file, value(1)?.parse()?).context("position")?))
}

/// Proofs, each with the rows that a query saw afterwards.
async fn read(upstream: Upstream, done: Arc<AtomicBool>) -> Result<Vec<(Visible, Vec<String>)>> {
    let mut client = Client::connect(&upstream).await?;
    let mut readings = Vec::new();
    while !done.load(Ordering::SeqCst) {
        let proof = proof(&mut client).await?;
        // The last rows of each writer.
        let rows = client.query("SELECT MAX(id) FROM t GROUP BY id DIV 400").await?;
        readings.push((proof, rows.into_iter().flatten().flatten().collect()));
    }
    Ok(readings)
}

fn proofs_are_true(server: Database) -> Result<()> {
    server.sql("CREATE TABLE t (id INT PRIMARY KEY)")?;
    let upstream = Upstream::parse(&format!("{}?ssl-mode=disabled", server.url()))?;
    let fixture = Fixture::follow(server)?;
    fixture.catalogue.learn("t", &["id"]);
    fixture.recorder.connected()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let done = Arc::new(AtomicBool::new(false));
    let reader = runtime.spawn(read(upstream.clone(), done.clone()));
    let writers: Vec<_> = (0..WRITERS).map(|writer| runtime.spawn(write(upstream.clone(), writer))).collect();
    let mut commits: HashMap<String, CommitId> = HashMap::new();
    while commits.len() < WRITERS * TRANSACTIONS {
        let Event::Commit(commit) = fixture.recorder.next()? else { anyhow::bail!("no commit") };
        let changes = shorts(&commit.changes);
        commits.insert(changes.join(" ").trim_start_matches('+').to_owned(), commit.id);
    }
    for writer in writers {
        runtime.block_on(writer)??;
    }
    done.store(true, Ordering::SeqCst);
    let readings = runtime.block_on(reader)??;
    assert!(readings.len() > 50, "{} readings", readings.len());
    for (proof, seen) in &readings {
        // The last write of each writer implies all its earlier ones.
        let last = |writer: usize| {
            let own = seen.iter().filter_map(|id| id.parse::<usize>().ok()).find(|id| id / TRANSACTIONS == writer);
            own.map_or(writer * TRANSACTIONS, |id| id + 1)
        };
        for writer in 0..WRITERS {
            let next = last(writer);
            if next < (writer + 1) * TRANSACTIONS {
                let id = *commits.get(&next.to_string()).context("commit")?;
                assert!(!proof.proves(id), "{proof:?} proves {next}, which a later query did not see");
            }
        }
    }
    fixture.finish()
}

#[test]
fn prepared_transactions_are_proven_when_visible_on_mariadb() -> Result<()> {
    proofs_are_true(Database::mariadb(MysqlSettings::default())?)
}

#[test]
fn prepared_transactions_are_proven_when_visible_on_mysql() -> Result<()> {
    proofs_are_true(Database::mysql(&MysqlSettings::default())?)
}
