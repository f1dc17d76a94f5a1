//! Support for all tests: real servers, a running Freshet, and a client that hides nothing.

pub(crate) mod browser;
pub(crate) mod collector;
pub(crate) mod frames;
mod freshet;
mod http;
mod pair;
pub(crate) mod races;
mod raw;
pub(crate) mod relaying;
mod server;
pub(crate) mod turns;
mod undisturbed;
mod waiting;

pub(crate) use freshet::{Freshet, LISTEN, program};
pub(crate) use http::{Metrics, get};
pub(crate) use pair::{Pair, ensure_same};
pub(crate) use raw::{Login, Message, RawClient};
pub(crate) use server::{Database, Version, connect, on_both, on_both_at_length};
pub(crate) use undisturbed::{ensure_hits, undisturbed};
pub(crate) use waiting::{
    PATIENCE, eventually, eventually_async, pace, pace_async, rest, rest_of, rest_within, time_passes, under_way,
};

use anyhow::{Context as _, Result};

/// The limits of open files of this process: the soft limit, and the hard limit, up to which it may raise the soft one.
pub(crate) fn files_max() -> Result<(usize, usize)> {
    let limits = std::fs::read_to_string("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).context("no limit")?;
    let mut limits = line.split_whitespace().map(|limit| limit.parse().unwrap_or(usize::MAX));
    limits.next().zip(limits.next()).context("no limits")
}
