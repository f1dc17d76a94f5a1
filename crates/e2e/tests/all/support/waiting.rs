//! All waiting of the tests. Tests wait for a state, with [`eventually`] or [`rest`]. Time alone passes only where it is what is
//! tested, or between the steps of a load: `tidy` lets nothing else sleep.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::freshet;
use super::http::Metrics;

/// The default patience for what takes a moment.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);

/// Tries again until it holds; fails with the last reason once the time is over.
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

/// The same where clients are tasks of the test's runtime.
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

/// Waits until each Freshet of this test has read the end of the log and looked at the catalogue once more, so that the next
/// read of a session may hit whatever the session was told before. What was committed before is seen from then on.
pub(crate) fn rest() {
    rest_within(PATIENCE).unwrap_or_else(|error| panic!("{error:#}"));
}

/// The same where a Freshet may have no change stream: then it fails.
pub(crate) fn rest_within(patience: Duration) -> Result<()> {
    let began = Instant::now();
    for http in freshet::of_this_test() {
        eventually(patience, || {
            let elapsed = began.elapsed().as_secs_f64();
            // It has ended: nothing will hit.
            let Ok(metrics) = Metrics::read(http) else { return Ok(()) };
            for age in ["freshet_stream_age_seconds", "freshet_catalog_age_seconds"] {
                ensure!(metrics.value(age) < elapsed, "{age} is {} after {elapsed} s", metrics.value(age));
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Lets time pass that is itself what is tested: a time-out, a bound on staleness, a pause of a process, that nothing happens.
/// `_what` says which, for the reader.
pub(crate) fn time_passes(_what: &str, time: Duration) {
    sleep(time);
}

/// The time that bytes are under way through a relay.
pub(crate) fn under_way(time: Duration) {
    sleep(time);
}

/// A pause between two steps of a load, or its chance offset to what others do. Nothing depends on its length.
pub(crate) fn pace(time: Duration) {
    sleep(time);
}

/// The same where clients are tasks of the test's runtime.
pub(crate) async fn pace_async(time: Duration) {
    tokio::time::sleep(time).await;
}
