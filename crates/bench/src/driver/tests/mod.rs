//! The drivers on real servers.
//!
//! A test whose peer is not installed is skipped with a message. If `FRESHET_TEST_STRICT` is set, it fails.

mod keyvalue;
mod mysql;
pub(crate) mod peer;
mod postgres;

use std::future::Future;
use std::sync::Arc;

use super::{Driver, Failure, Protocol, Row, Rows};
use crate::statement::Statement;
use crate::target::Target;
use crate::value::Value;

const BOTH: [Protocol; 2] = [Protocol::Prepared, Protocol::Text];

/// Runs a future as the load does.
fn block<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

fn target(url: &str) -> Target {
    format!("t={url}").parse().unwrap()
}

async fn open(url: &str, statements: &[Statement], protocol: Protocol) -> Result<Driver, Failure> {
    Driver::open(&target(url), &Arc::from(statements), protocol).await
}

async fn count(driver: &mut Driver, index: usize, values: &[Value]) -> u64 {
    driver.run(index, values, Rows::Counted).await.unwrap()
}

/// The rows of an answer. Their number must be the one that the driver returns.
async fn rows(driver: &mut Driver, index: usize, values: &[Value]) -> Vec<Row> {
    let mut rows = Vec::new();
    let count = driver.run(index, values, Rows::Kept(&mut rows)).await.unwrap();
    assert_eq!(count, rows.len() as u64);
    rows
}

async fn fails(driver: &mut Driver, index: usize, values: &[Value]) -> Failure {
    driver.run(index, values, Rows::Counted).await.unwrap_err()
}

/// Polls a request once, so that it is sent, and drops it.
async fn give_up(driver: &mut Driver, index: usize, values: &[Value]) {
    let request = driver.run(index, values, Rows::Counted);
    let mut request = std::pin::pin!(request);
    std::future::poll_fn(|context| {
        assert!(request.as_mut().poll(context).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
}

/// Texts that are often damaged on the way.
const TEXTS: [&str; 7] =
    ["", "plain", "O'Hara ''", "back\\slash\\", "two\nlines\tand a tab", "Grüße, 世界 🌊", "$1 ? :name"];

fn values_of(row: &Row) -> Vec<Option<&str>> {
    row.iter().map(|value| value.as_deref().map(|bytes| std::str::from_utf8(bytes).unwrap())).collect()
}
