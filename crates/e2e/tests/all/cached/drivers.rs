//! An ordinary driver as applications use it: tokio-postgres. Other drivers are in `clients`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio_postgres::types::Type;

use super::SCHEMA;
use crate::support::frames::{bind_text, describe_portal, execute, flush, parse, sync, unnamed};
use crate::support::{PATIENCE, Pair, RawClient, Version, connect, eventually, on_both, pace_async};

on_both!(tokio_postgres, tokio_postgres_pipelines, answers_by_flush);

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn tokio_postgres(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    runtime()?.block_on(async {
        let mut client = connect(pair.address(), pair.login()).await?;
        let prepared = client.prepare("select title, votes from film where id = $1").await?;
        for round in 0..50_i32 {
            let votes = 1000 + round;
            client.execute("update film set votes = $1 where id = 1", &[&votes]).await?;
            for _ in 0..3 {
                let row = client.query_one(&prepared, &[&1_i32]).await?;
                ensure!(row.get::<_, i32>(1) == votes, "round {round}: {row:?}");
                // Not prepared by the caller: parsed, described and closed each time.
                let row = client.query_one("select votes from film where id = $1", &[&1_i32]).await?;
                ensure!(row.get::<_, i32>(0) == votes, "round {round}: {row:?}");
                let row = client.query_typed("select votes from film where id = $1", &[(&1_i32, Type::INT4)]).await?;
                ensure!(row[0].get::<_, i32>(0) == votes, "round {round}: {row:?}");
                pace_async(Duration::from_millis(10)).await;
            }
        }
        // A statement that is prepared once and executed often.
        for _ in 0..50 {
            let row = client.query_one(&prepared, &[&1_i32]).await?;
            ensure!(row.get::<_, i32>(1) == 1049, "{row:?}");
            pace_async(Duration::from_millis(20)).await;
        }
        let transaction = client.transaction().await?;
        transaction.execute("update film set votes = 0 where id = 1", &[]).await?;
        let row = transaction.query_one(&prepared, &[&1_i32]).await?;
        ensure!(row.get::<_, i32>(1) == 0, "in the transaction: {row:?}");
        transaction.rollback().await?;
        let row = client.query_one(&prepared, &[&1_i32]).await?;
        ensure!(row.get::<_, i32>(1) == 1049, "after the rollback: {row:?}");
        let error = client.query("select nothing from film", &[]).await.err().context("no error")?;
        ensure!(error.code().is_some_and(|c| c.code() == "42703"), "{error:?}");
        if pair.freshet.is_there() {
            let hits = pair.freshet.metrics()?.hits();
            ensure!(hits > 20, "{hits} hits");
        }
        Ok(())
    })
}

fn tokio_postgres_pipelines(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    runtime()?.block_on(async {
        let client = connect(pair.address(), pair.login()).await?;
        let cached = client.prepare("select id from film where id = $1").await?;
        let uncached = client.prepare("select id from film where id = $1 and random() < 2").await?;
        for _ in 0..50 {
            // All are sent before the first is answered.
            let ids: Vec<i32> = (1..=20).collect();
            let statements = ids.iter().map(|id| if id % 4 == 0 { &uncached } else { &cached });
            let asked: Vec<_> = ids
                .iter()
                .zip(statements)
                .map(|(id, statement)| {
                    let client = &client;
                    async move { client.query_one(statement, &[id]).await.map(|row| (*id, row.get::<_, i32>(0))) }
                })
                .collect();
            for (asked, got) in all(asked).await? {
                ensure!(asked == got, "asked for {asked}, got {got}");
            }
        }
        Ok(())
    })
}

const VOTES: &str = "select id, votes from film where id = $1";

/// Batches whose answers are asked for by `Flush`, as by psycopg's pipelines and node-postgres's `rows`: each is read before the next is sent.
fn by_flush(c: &mut RawClient) -> Result<()> {
    let votes = |id: &str| unnamed(VOTES, &[id]);
    for _ in 0..5 {
        // Two in one go, one more, and an end that comes later.
        c.send(&[votes("1"), votes("2"), flush()].concat())?;
        c.until(b'C')?;
        c.until(b'C')?;
        c.send(&[votes("3"), flush()].concat())?;
        c.until(b'C')?;
        c.exchange(&sync(), 1)?;
        // The end is there at once.
        c.exchange(&[votes("1"), flush(), sync()].concat(), 1)?;
        // Some rows of a portal: all, and then not.
        let some = |rows| {
            let of_genre = "select id from film where genre = 'drama' order by id";
            [parse("", of_genre), bind_text("", "", &[]), describe_portal(""), execute("", rows), flush()].concat()
        };
        c.send(&some(1000))?;
        c.until(b'C')?;
        c.exchange(&sync(), 1)?;
        c.send(&some(1))?;
        c.until(b's')?;
        c.send(&[execute("", 1), flush()].concat())?;
        c.until(b's')?;
        c.exchange(&[execute("", 0), sync()].concat(), 1)?;
        // A write behind a read, in one transaction, and a read behind both; an error that takes it back.
        c.send(&[votes("1"), flush()].concat())?;
        c.until(b'C')?;
        c.send(&[unnamed("update film set votes = votes + 1 where id = $1", &["1"]), votes("1"), flush()].concat())?;
        c.until(b'C')?;
        c.until(b'C')?;
        c.send(&[unnamed("select 1 / $1::int", &["0"]), votes("1"), flush()].concat())?;
        c.until(b'E')?;
        c.exchange(&[votes("2"), flush(), sync()].concat(), 1)?;
        c.exchange(&[votes("1"), sync()].concat(), 1)?;
        // In a block.
        c.run("begin")?;
        c.send(&[votes("1"), flush()].concat())?;
        c.until(b'C')?;
        c.exchange(&sync(), 1)?;
        c.run("update film set votes = votes where id = 2")?;
        c.send(&[votes("2"), flush()].concat())?;
        c.until(b'C')?;
        c.exchange(&sync(), 1)?;
        c.run("commit")?;
    }
    Ok(())
}

fn answers_by_flush(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(15, by_flush)?;
    let (mut c, mut direct) = (pair.connect()?, pair.database.connect()?);
    let mut ask = |c: &mut RawClient| {
        let messages = [unnamed(VOTES, &["7"]), unnamed(VOTES, &["8"]), flush()].concat();
        let both = |c: &mut RawClient| {
            c.send(&messages)?;
            let answers = [c.until(b'C')?, c.until(b'C')?, c.exchange(&sync(), 1)?];
            Ok::<_, anyhow::Error>(answers)
        };
        let (expected, got) = (both(&mut direct)?, both(c)?);
        ensure!(expected == got, "expected {expected:?}, got {got:?}");
        Ok(())
    };
    for change in ["select 1", "update film set votes = 70 where id = 7", "update film set votes = 80 where id = 8"] {
        pair.connect()?.run(change)?;
        ask(&mut c)?;
        eventually(PATIENCE, || {
            let before = pair.freshet.metrics()?;
            ask(&mut c)?;
            let after = pair.freshet.metrics()?;
            let hits = after.hits() - before.hits();
            ensure!(hits == 2 || !pair.freshet.is_there(), "{hits} hits: {:?}", after.passed_since(&before));
            Ok(())
        })?;
    }
    Ok(())
}

/// Polls all futures until all are done.
async fn all<T, E>(futures: Vec<impl Future<Output = Result<T, E>>>) -> Result<Vec<T>, E> {
    let mut futures: Vec<_> = futures.into_iter().map(|f| Some(Box::pin(f))).collect();
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(move |context| {
        for (future, done) in futures.iter_mut().zip(&mut done) {
            if let Some(std::task::Poll::Ready(result)) = future.as_mut().map(|f| f.as_mut().poll(context)) {
                *future = None;
                match result {
                    Ok(value) => *done = Some(value),
                    Err(error) => return std::task::Poll::Ready(Err(error)),
                }
            }
        }
        if futures.iter().any(Option::is_some) {
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(Ok(done.iter_mut().filter_map(Option::take).collect()))
    })
    .await
}
