//! Counters of a target's cache, from any source.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};

use super::lines::{self, finite};
use super::prometheus;
use crate::driver::{Driver, Failure, Protocol, Rows};
use crate::result::Cache;
use crate::statement::Statement;
use crate::target::{Counters, Target};

/// Time limit for the answer to one statement.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The query cache does not count SHOW.
const QCACHE: [&str; 2] = ["SHOW GLOBAL STATUS LIKE 'Qcache%'", "SHOW GLOBAL VARIABLES LIKE 'query_cache_size'"];

/// Reads the counters of one target repeatedly, on one thread.
pub(super) struct Reader {
    counters: Counters,
    /// For SQL targets: the connection, kept between readings.
    connection: Option<Driver>,
    target: Target,
    runtime: Runtime,
}

impl Reader {
    /// A reader for a target with counters. If no source is named, a look-aside cache is the source.
    pub(super) fn new(target: &Target) -> Result<Option<Self>> {
        let lookaside = || target.lookaside.clone().map(Counters::Memcached);
        let Some(counters) = target.counters.clone().or_else(lookaside) else { return Ok(None) };
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Some(Self { counters, connection: None, target: target.clone(), runtime }))
    }

    /// Reads the current counters. The reader can be used again after an error.
    pub(super) fn read(&mut self) -> Result<Cache> {
        Ok(match &self.counters {
            Counters::Prometheus(url) => prometheus::parse(&prometheus::get(url)?)?,
            Counters::Memcached(place) => lines::memcached_cache(&lines::memcached(place)?),
            Counters::Redis(place) => lines::redis_cache(&lines::redis(place)?),
            Counters::Qcache => qcache(&self.query(&QCACHE)?),
            Counters::PoolCache => {
                pool_cache(&self.query(&["SHOW pool_cache"])?).context("no row with pgpool-II's counters")?
            }
        })
    }

    /// The rows of all answers.
    fn query(&mut self, queries: &[&str]) -> Result<Vec<Vec<String>>> {
        let (kept, target) = (self.connection.take(), &self.target);
        let asked = async move {
            // A connection is opened with its statements. Here they are always the same.
            let mut connection = match kept {
                Some(connection) => connection,
                None => Driver::open(target, &statements(queries), Protocol::Text).await?,
            };
            let mut rows = Vec::new();
            for index in 0..queries.len() {
                rows.extend(texts(&mut connection, index).await?);
            }
            Ok((connection, rows))
        };
        let (connection, rows) = self.runtime.block_on(in_time(asked))?;
        self.connection = Some(connection);
        Ok(rows)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // A driver may send a message when it closes, for which it needs the runtime.
        let connection = self.connection.take();
        self.runtime.block_on(async move { drop(connection) });
    }
}

/// Answers to these statements, over a separate connection.
pub(super) async fn answers(target: &Target, queries: &[&str]) -> Result<Vec<Result<Vec<Vec<String>>, Failure>>> {
    let mut connection = in_time(Driver::open(target, &statements(queries), Protocol::Text)).await?;
    let mut answers = Vec::new();
    for index in 0..queries.len() {
        answers.push(in_time(async { Ok(texts(&mut connection, index).await) }).await?);
    }
    Ok(answers)
}

fn statements(queries: &[&str]) -> Arc<[Statement]> {
    queries.iter().map(|sql| Statement::read("counters", sql)).collect()
}

/// All rows, with NULL as an empty text.
async fn texts(connection: &mut Driver, index: usize) -> Result<Vec<Vec<String>>, Failure> {
    let mut rows = Vec::new();
    connection.run(index, &[], Rows::Kept(&mut rows)).await?;
    let text = |value: Option<Vec<u8>>| String::from_utf8_lossy(&value.unwrap_or_default()).into_owned();
    Ok(rows.into_iter().map(|row| row.into_iter().map(text).collect()).collect())
}

async fn in_time<T>(asked: impl Future<Output = Result<T, Failure>>) -> Result<T> {
    Ok(tokio::time::timeout(TIMEOUT, asked).await.with_context(|| format!("no answer in {TIMEOUT:?}"))??)
}

/// MySQL's and MariaDB's query cache: "Query Cache Status and Maintenance" in MySQL 5.7's manual. The status has only the free memory, so the bytes
/// of the entries are `total` less that.
fn qcache(rows: &[Vec<String>]) -> Cache {
    let named = |name: &str| {
        let row = rows.iter().find(|row| row.first().is_some_and(|first| first.eq_ignore_ascii_case(name)));
        row.and_then(|row| finite(row.get(1)?)).unwrap_or_default()
    };
    Cache {
        hits: named("Qcache_hits"),
        fills: named("Qcache_inserts"),
        passed: named("Qcache_not_cached"),
        evictions: named("Qcache_lowmem_prunes"),
        entries: named("Qcache_queries_in_cache"),
        bytes: (named("query_cache_size") - named("Qcache_free_memory")).max(0.0),
        ..Cache::default()
    }
}

/// pgpool-II: "SHOW POOL_CACHE" in its manual. It is one row of `num_cache_hits`, `num_selects` (misses), `cache_hit_ratio`, `num_hash_entries`,
/// `used_hash_entries`, `num_cache_entries`, `used_cache_entries_size` …
fn pool_cache(rows: &[Vec<String>]) -> Option<Cache> {
    let row = rows.first()?;
    let number = |index: usize| finite(row.get(index)?);
    Some(Cache {
        hits: number(0)?,
        fills: 0.0,
        passed: number(1)?,
        evictions: 0.0,
        entries: number(5)?,
        bytes: number(6)?,
        ..Cache::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<Vec<String>> {
        text.lines().map(|line| line.split('|').map(|value| value.trim().to_owned()).collect()).collect()
    }

    #[test]
    fn the_query_cache_is_read_by_name() {
        // From MariaDB 10.11.
        let text = "Qcache_free_blocks|1\nQcache_free_memory|1031272\nQcache_hits|3\nQcache_inserts|2\n\
                    Qcache_lowmem_prunes|7\nQcache_not_cached|4\nQcache_queries_in_cache|2\nQcache_total_blocks|6\n\
                    query_cache_size|1048576";
        let cache = Cache { hits: 3.0, fills: 2.0, passed: 4.0, evictions: 7.0, entries: 2.0, ..Cache::default() };
        let cache = Cache { bytes: 17_304.0, ..cache };
        assert_eq!(qcache(&rows(text)), cache);
        assert_eq!(qcache(&[]), Cache::default());
    }

    #[test]
    fn pgpools_counters_are_read_by_place() {
        // The example in pgpool-II's manual.
        let text = "891703 | 99995 | 0.90 | 131072 | 0 | 99992 | 12482600 | 54626264 | 0";
        let cache =
            Cache { hits: 891_703.0, passed: 99_995.0, entries: 99_992.0, bytes: 12_482_600.0, ..Cache::default() };
        assert_eq!(pool_cache(&rows(text)), Some(cache));
        assert_eq!(pool_cache(&rows("no|numbers")), None);
        assert_eq!(pool_cache(&rows(&text.replace("99995", "NaN"))), None);
        assert_eq!(pool_cache(&[]), None);
    }
}
