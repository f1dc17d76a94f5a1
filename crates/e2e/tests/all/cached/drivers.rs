//! An ordinary driver as applications use it: tokio-postgres. Other drivers are in `clients`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio_postgres::types::Type;

use super::SCHEMA;
use crate::support::{Pair, Version, connect, on_both, pace_async};

on_both!(tokio_postgres, tokio_postgres_pipelines);

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
