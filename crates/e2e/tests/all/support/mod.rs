//! Support for all tests: real servers, a running Freshet, and a client that hides nothing.

pub(crate) mod frames;
mod freshet;
mod http;
mod pair;
pub(crate) mod races;
mod raw;
pub(crate) mod relaying;
mod server;
pub(crate) mod turns;

pub(crate) use freshet::{Freshet, LISTEN, program};
pub(crate) use http::{Metrics, get};
pub(crate) use pair::{Pair, ensure_same};
pub(crate) use raw::{Login, Message, RawClient};
pub(crate) use server::{Database, Version, connect, on_both, on_both_at_length};

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// The default patience for what takes a moment.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Files that this process may open, and so many as it may let itself open.
pub(crate) fn files_max() -> Result<(usize, usize)> {
    let limits = std::fs::read_to_string("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).context("no limit")?;
    let mut limits = line.split_whitespace().map(|limit| limit.parse().unwrap_or(usize::MAX));
    limits.next().zip(limits.next()).context("no limits")
}

/// Tries again until it holds; fails with the last reason once the time is over.
pub(crate) fn eventually<T>(patience: Duration, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() >= deadline => bail!("not within {patience:?}: {error:#}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Waits until each Freshet of this test has read the end of the log and looked at the catalogue once more, so that the next
/// read of a session may hit whatever the session was told before.
pub(crate) fn rest() {
    let began = Instant::now();
    for http in freshet::of_this_test() {
        let settled = eventually(PATIENCE, || {
            let elapsed = began.elapsed().as_secs_f64();
            // It has ended: nothing will hit.
            let Ok(metrics) = Metrics::read(http) else { return Ok(()) };
            for age in ["freshet_stream_age_seconds", "freshet_catalog_age_seconds"] {
                ensure!(metrics.value(age) < elapsed, "{age} is {} after {elapsed} s", metrics.value(age));
            }
            Ok(())
        });
        settled.unwrap_or_else(|error| panic!("{error:#}"));
    }
}
