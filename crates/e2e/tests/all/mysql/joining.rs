//! Sessions that miss while another session fills the same key wait for this fill, and get no older state because of it.

use std::thread;

use super::support::{Database, Kind, Pair, RawClient, on_both};
use crate::support::{PATIENCE, eventually, rest};
use anyhow::{Context, Result, ensure};

on_both!(one_runs_for_all, nobody_misses_their_own_write);

const SCHEMA: &str = "CREATE TABLE number (id INT PRIMARY KEY, v INT NOT NULL); \
     INSERT INTO number WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 900) \
     SELECT i, i * 7919 % 1000 FROM n";

const SESSIONS: usize = 6;

/// It takes the database long enough for others to come meanwhile.
fn slow(number: usize) -> String {
    format!("SELECT COUNT(*) FROM number a, number b WHERE (a.v + b.v) % 97 < {number}")
}

/// How many sessions run such a query.
const RUNNING: &str = "SELECT COUNT(*) FROM information_schema.processlist WHERE command IN ('Query', 'Execute')
    AND info LIKE '%number b WHERE%' AND id <> CONNECTION_ID()";

fn sessions(pair: &Pair) -> Result<Vec<RawClient>> {
    let connect = || {
        let mut client = pair.connect()?;
        eventually(PATIENCE, || {
            let before = pair.freshet.metrics()?.hits();
            client.query("SELECT v FROM number WHERE id = 1")?;
            ensure!(pair.freshet.metrics()?.hits() > before, "no hit");
            rest();
            Ok(())
        })?;
        Ok(client)
    };
    (0..SESSIONS).map(|_| connect()).collect()
}

fn pair(kind: Kind) -> Result<Pair> {
    // Of its own: what other tests define and set flushes the cache.
    Pair::over(Database::create(kind.start(&Kind::settings())?)?, SCHEMA, &["--admission", "always"])
}

/// Some of them may come too late, on a busy machine, but not in many of the rounds. Two that miss at the same moment are not
/// two that fill.
fn one_runs_for_all(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut clients = sessions(&pair)?;
    let mut direct = pair.database.connect()?;
    let mut hits = Vec::new();
    for number in 1..=10 {
        let (sql, before) = (slow(number), pair.freshet.metrics()?);
        let answers: Result<Vec<String>> = thread::scope(|scope| {
            let threads: Vec<_> = clients.iter_mut().map(|client| scope.spawn(|| client.value(&sql))).collect();
            threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow::anyhow!("panicked"))?).collect()
        });
        let expected = direct.value(&sql)?;
        ensure!(answers?.iter().all(|answer| *answer == expected), "{sql}");
        let now = pair.freshet.metrics()?;
        hits.push((now.hits() - before.hits(), now.passed_since(&before)));
    }
    let rounds = hits.iter().filter(|(count, _)| *count == SESSIONS as u64 - 1).count();
    ensure!(rounds >= 8, "from the cache, of {SESSIONS} at once, and why others were not: {hits:?}");
    Ok(())
}

/// The flight that it joins was begun before the write.
fn nobody_misses_their_own_write(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    let mut clients = sessions(&pair)?;
    let [first, second, ..] = &mut clients[..] else { anyhow::bail!("two sessions") };
    let mut direct = pair.database.connect()?;
    for round in 1..=5 {
        let sql = slow(round);
        let (own, expected) = thread::scope(|scope| {
            let leader = scope.spawn(|| first.value(&sql));
            // The server runs it.
            eventually(PATIENCE, || {
                let runs = leader.is_finished() || direct.value(RUNNING)? != "0";
                ensure!(runs, "the first session's query does not run");
                Ok(())
            })?;
            second.run(&format!("INSERT INTO number VALUES ({}, 0)", 10_000 + round))?;
            let answers = (second.value(&sql)?, direct.value(&sql)?);
            leader.join().map_err(|_| anyhow::anyhow!("panicked"))?.context("the first session")?;
            anyhow::Ok(answers)
        })?;
        ensure!(own == expected, "round {round}: {own} instead of {expected}");
    }
    Ok(())
}
