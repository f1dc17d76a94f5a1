//! All waits of the tests. Tests wait for a state, with [`eventually`] or [`rest`]. They let time pass only if time itself is tested, or between the
//! steps of a load: `tidy` allows no other sleep.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::freshet;
use super::http::Metrics;

/// The default patience for a state that comes soon.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);

/// Tries again until it succeeds; fails with the last error once the time is over.
pub(crate) fn eventually<T>(patience: Duration, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() >= deadline => bail!("not within {patience:?}: {error:#}"),
            Err(_) => sleep(BETWEEN_ATTEMPTS),
        }
    }
}

/// The same for tests whose clients are tasks of the test's runtime.
pub(crate) async fn eventually_async<T>(patience: Duration, mut attempt: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() >= deadline => bail!("not within {patience:?}: {error:#}"),
            Err(_) => tokio::time::sleep(BETWEEN_ATTEMPTS).await,
        }
    }
}

/// Waits until each Freshet of this test has read the log end and checked the catalogue once more, so that the next read of a session may hit
/// whatever the session was answered before. Commits before this call are visible from then on.
pub(crate) fn rest() {
    rest_within(PATIENCE).unwrap_or_else(|error| panic!("{error:#}"));
}

/// The same if a Freshet may have no change stream: then it fails.
pub(crate) fn rest_within(patience: Duration) -> Result<()> {
    freshet::of_this_test().into_iter().try_for_each(|http| rest_of(http, patience))
}

/// The same for the Freshet with this HTTP address.
pub(crate) fn rest_of(http: SocketAddr, patience: Duration) -> Result<()> {
    let began = Instant::now();
    eventually(patience, || {
        let elapsed = began.elapsed().as_secs_f64();
        // It has ended: no read will hit.
        let Ok(metrics) = Metrics::read(http) else { return Ok(()) };
        for age in ["freshet_stream_age_seconds", "freshet_catalog_age_seconds"] {
            ensure!(metrics.value(age) < elapsed, "{age} is {} after {elapsed} s", metrics.value(age));
        }
        Ok(())
    })
}

/// Lets time pass if time itself is tested: a time-out, a bound on staleness, a pause of a process, or that nothing happens. `_what` says which, for
/// the reader.
pub(crate) fn time_passes(_what: &str, time: Duration) {
    sleep(time);
}

/// The time that a relay delays bytes.
pub(crate) fn under_way(time: Duration) {
    sleep(time);
}

/// A pause between two steps of a load, or a random offset to other loads. Nothing depends on its length.
pub(crate) fn pace(time: Duration) {
    sleep(time);
}

/// The same for tests whose clients are tasks of the test's runtime.
pub(crate) async fn pace_async(time: Duration) {
    tokio::time::sleep(time).await;
}
