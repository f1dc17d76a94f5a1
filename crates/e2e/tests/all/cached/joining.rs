//! Sessions that miss while another session fills the same key wait for this fill, and get no older state because of it.

use std::thread;

use anyhow::{Context, Result, ensure};
use freshet_testbed::Settings;

use super::until_hit;
use crate::support::{Database, Message, PATIENCE, Pair, RawClient, Version, eventually, on_both};

on_both!(one_runs_for_all, nobody_misses_their_own_write);

const SCHEMA: &str = "create table number (id int primary key, v int not null);
    insert into number select i, i * 7919 % 1000 from generate_series(1, 1500) i;";

const SESSIONS: usize = 6;

/// It takes the database long enough for others to come meanwhile.
fn slow(number: usize) -> String {
    format!("select count(*) from number a, number b where (a.v + b.v) % 97 < {number}")
}

/// How many sessions run such a query.
const RUNNING: &str = "select count(*) from pg_stat_activity where datname = current_database() and state = 'active'
    and query like '%number b where%' and pid <> pg_backend_pid()";

fn sessions(pair: &Pair) -> Result<Vec<RawClient>> {
    let connect = || {
        let mut client = pair.connect()?;
        until_hit(pair, &mut client, "select v from number where id = 1")?;
        Ok(client)
    };
    (0..SESSIONS).map(|_| connect()).collect()
}

fn pair(version: Version) -> Result<Pair> {
    // Of its own: what other tests define and set flushes the cache.
    Pair::over(Database::create(version.start(&Settings::default())?)?, SCHEMA, &["--admission", "always"])
}

/// Some of them may come too late or too early, on a busy machine, but not in all of the rounds.
fn one_runs_for_all(version: Version) -> Result<()> {
    let pair = pair(version)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut clients = sessions(&pair)?;
    let mut direct = pair.database.connect()?;
    let mut hits = Vec::new();
    for number in 1..=10 {
        let (sql, before) = (slow(number), pair.freshet.metrics()?.hits());
        let answers: Result<Vec<Vec<Message>>> = thread::scope(|scope| {
            let threads: Vec<_> = clients.iter_mut().map(|client| scope.spawn(|| client.query(&sql))).collect();
            threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow::anyhow!("panicked"))?).collect()
        });
        let expected = direct.query(&sql)?;
        ensure!(answers?.iter().all(|answer| *answer == expected), "{sql}");
        hits.push(pair.freshet.metrics()?.hits() - before);
        if hits.last() == Some(&(SESSIONS as u64 - 1)) {
            return Ok(());
        }
    }
    anyhow::bail!("from the cache, of {SESSIONS} at once: {hits:?}")
}

/// The flight that it joins was begun before the write.
fn nobody_misses_their_own_write(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut clients = sessions(&pair)?;
    let [first, second, ..] = &mut clients[..] else { anyhow::bail!("two sessions") };
    let mut direct = pair.database.connect()?;
    for round in 1..=5 {
        let sql = slow(round);
        let (own, expected) = thread::scope(|scope| {
            let leader = scope.spawn(|| first.query(&sql));
            // The server runs it.
            eventually(PATIENCE, || {
                let runs = leader.is_finished() || direct.value(RUNNING)? != "0";
                ensure!(runs, "the first session's query does not run");
                Ok(())
            })?;
            second.run(&format!("insert into number values ({}, 0)", 10_000 + round))?;
            let answers = (second.query(&sql)?, direct.query(&sql)?);
            leader.join().map_err(|_| anyhow::anyhow!("panicked"))?.context("the first session")?;
            anyhow::Ok(answers)
        })?;
        ensure!(own == expected, "round {round}: {own:?} instead of {expected:?}");
    }
    Ok(())
}
