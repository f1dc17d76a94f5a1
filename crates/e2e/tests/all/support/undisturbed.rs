//! Steps in which a certain read must hit, on a server that other tests use, too.
//!
//! A hit is never certain there. A role that another test creates flushes the caches in front of all databases of the server, other tests' log keeps
//! the change stream from passing a watermark in time, and on MySQL and MariaDB their tables are in the catalogue, too. Freshet counts each of these.
//! So a step that fails is run again only if these counters show such a disturbance: a hit that is lost for any other reason fails the test at once.

use std::fmt;

use anyhow::{Result, bail, ensure};

use super::Freshet;
use super::http::Metrics;
use super::waiting::{PATIENCE, eventually};

/// Statements pass for these reasons while the change stream or the catalogue is behind, whatever they are.
const BEHIND: [&str; 7] =
    ["catalog_stale", "fence", "lease_expired", "no_stream", "not_yet_applied", "unproven", "watermark"];

/// Runs a step until nothing has disturbed it, and returns its outcome. What has to be cached in it must be read in it first.
pub(crate) fn undisturbed<T>(freshet: &Freshet, mut step: impl FnMut() -> Result<T>) -> Result<T> {
    eventually(PATIENCE, || {
        let before = freshet.metrics()?;
        let error = match step() {
            Ok(value) => return Ok(Ok(value)),
            Err(error) => error,
        };
        let after = freshet.metrics()?;
        let is_flushed = after.count("freshet_flushed_total") > before.count("freshet_flushed_total");
        let is_behind = match error.downcast_ref::<Lost>() {
            Some(lost) => lost.is_behind,
            None => is_behind(&before, &after),
        };
        if is_flushed || is_behind {
            bail!("{error:#}; it was disturbed each time, at last by a flush: {is_flushed}, a delay: {is_behind}");
        }
        Ok(Err(error))
    })?
}

/// So many reads hit, and no more.
pub(crate) fn ensure_hits<T>(freshet: &Freshet, count: u64, reads: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = freshet.metrics()?;
    let answers = reads()?;
    let after = freshet.metrics()?;
    let hits = after.hits() - before.hits();
    let why = format!("{hits} of {count} reads hit: {:?}", after.grown_since(&before));
    ensure!(hits == count || !freshet.is_there(), Lost { is_behind: is_behind(&before, &after), why });
    Ok(answers)
}

fn is_behind(before: &Metrics, after: &Metrics) -> bool {
    BEHIND.iter().any(|reason| after.passed(reason) > before.passed(reason))
}

/// Reads that had to hit and did not.
#[derive(Debug)]
struct Lost {
    /// The stream or the catalogue was behind.
    is_behind: bool,
    why: String,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Lost {}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::super::{Pair, RawClient, Version};
    use super::*;
    use crate::mysql::support as mysql;

    const SCHEMA: &str = "create table item (id int primary key); insert into item select generate_series(1, 1000)";

    fn read(pair: &Pair, client: &mut RawClient, id: u32) -> Result<()> {
        ensure_hits(&pair.freshet, 1, || client.value(&format!("select id from item where id = {id}"))).map(drop)
    }

    #[test]
    fn a_lost_hit_fails_at_once() -> Result<()> {
        let pair = Pair::new(Version::V18, SCHEMA)?;
        if !pair.freshet.is_there() {
            return Ok(());
        }
        let mut client = pair.connect()?;
        let mut id = 1;
        let lost = undisturbed(&pair.freshet, || {
            eventually(PATIENCE, || read(&pair, &mut client, 1))?;
            id += 1; // not read before
            read(&pair, &mut client, id)
        });
        let error = lost.err().context("a miss counts as a hit")?.to_string();
        ensure!(error.starts_with("0 of 1 reads hit"), "{error}");
        Ok(())
    }

    #[test]
    fn a_flush_is_forgiven() -> Result<()> {
        let pair = Pair::new(Version::V18, SCHEMA)?;
        if !pair.freshet.is_there() {
            return Ok(());
        }
        let mut client = pair.connect()?;
        let mut steps = 0;
        undisturbed(&pair.freshet, || {
            steps += 1;
            eventually(PATIENCE, || read(&pair, &mut client, 1))?;
            if steps == 1 {
                let flushed = pair.freshet.metrics()?.count("freshet_flushed_total");
                let role = format!("{}_new", pair.database.name);
                pair.database.run(&format!("create role {role}; drop role {role}"))?;
                eventually(PATIENCE, || {
                    let now = pair.freshet.metrics()?.count("freshet_flushed_total");
                    ensure!(now > flushed, "not flushed");
                    Ok(())
                })?;
            }
            read(&pair, &mut client, 1)
        })?;
        ensure!(steps > 1, "a read behind the flush hits");
        Ok(())
    }

    /// In the binlog another database's statements redefine what is not named, too.
    #[test]
    fn so_is_a_redefinition_elsewhere() -> Result<()> {
        let schema = "CREATE TABLE item (id INT PRIMARY KEY); INSERT INTO item VALUES (1)";
        let pair = mysql::Pair::new(mysql::Kind::Mariadb, schema)?;
        if !pair.freshet.is_there() {
            return Ok(());
        }
        let (mut client, mut steps) = (pair.connect()?, 0);
        let read = "select id from item where id = 1";
        undisturbed(&pair.freshet, || {
            steps += 1;
            pair.until_hit(&mut client, read)?;
            if steps == 1 {
                let before = pair.freshet.metrics()?;
                pair.database.run("ALTER DATABASE CHARACTER SET = latin1")?;
                eventually(PATIENCE, || {
                    let grown = pair.freshet.metrics()?.grown_since(&before);
                    let is_delivered = grown.iter().any(|one| one.starts_with("freshet_commits_total"));
                    ensure!(is_delivered, "not delivered: {grown:?}");
                    Ok(())
                })?;
                // From here on the new catalogue is known.
                pair.until_hit(&mut pair.connect()?, "select count(*) from item")?;
            }
            ensure_hits(&pair.freshet, 1, || client.query(read))
        })?;
        ensure!(steps > 1, "a read behind the redefinition hits");
        Ok(())
    }
}
